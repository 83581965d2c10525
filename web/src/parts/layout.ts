// A layered layout of a graph without cycles: each node stands one layer behind the last of its parents; inside a layer
// nodes are sorted by where their neighbours are (a few sweeps in both directions), then put as straight behind their
// parents as the space allows.

export interface Placed {
  id: number;
  layer: number;
  x: number;
  y: number;
}

export interface Laid {
  nodes: Map<number, Placed>;
  edges: { from: number; to: number }[];
  width: number;
  height: number;
}

export interface Sizes {
  node: { width: number; height: number };
  gap: { x: number; y: number };
}

const SWEEPS = 6;

function layersOf(ids: number[], parents: Map<number, number[]>): Map<number, number> {
  const layers = new Map<number, number>();
  const children = new Map<number, number[]>();
  const waits = new Map<number, number>();
  for (const id of ids) {
    const own = parents.get(id) ?? [];
    waits.set(id, own.length);
    for (const parent of own) children.set(parent, [...(children.get(parent) ?? []), id]);
  }
  const ready = ids.filter((id) => waits.get(id) === 0);
  for (const id of ready) layers.set(id, 0);
  for (let i = 0; i < ready.length; i++) {
    const id = ready[i]!;
    for (const child of children.get(id) ?? []) {
      layers.set(child, Math.max(layers.get(child) ?? 0, layers.get(id)! + 1));
      waits.set(child, waits.get(child)! - 1);
      if (waits.get(child) === 0) ready.push(child);
    }
  }
  return layers;
}

function sortLayers(rows: number[][], parents: Map<number, number[]>, children: Map<number, number[]>): void {
  const position = new Map<number, number>();
  const note = () => rows.forEach((row) => row.forEach((id, i) => position.set(id, row.length > 1 ? i / (row.length - 1) : 0.5)));
  const middle = (ids: number[], own: number) =>
    ids.length === 0 ? own : ids.reduce((sum, id) => sum + (position.get(id) ?? 0), 0) / ids.length;
  note();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    const order = isDown ? rows : [...rows].reverse();
    for (const row of order) {
      const keys = new Map(
        row.map((id) => [id, middle((isDown ? parents : children).get(id) ?? [], position.get(id)!)] as const),
      );
      row.sort((a, b) => keys.get(a)! - keys.get(b)! || a - b);
      row.forEach((id, i) => position.set(id, row.length > 1 ? i / (row.length - 1) : 0.5));
    }
    note();
  }
}

// Moves the nodes of a layer to where they want to be without letting two of them touch.
function spread(row: number[], wanted: Map<number, number>, least: number): Map<number, number> {
  const at = new Map<number, number>();
  let floor = -Infinity;
  for (const id of row) {
    const y = Math.max(wanted.get(id) ?? 0, floor);
    at.set(id, y);
    floor = y + least;
  }
  // What was pushed down is shared in both directions.
  const off = row.reduce((sum, id) => sum + at.get(id)! - (wanted.get(id) ?? 0), 0) / Math.max(1, row.length);
  for (const id of row) at.set(id, at.get(id)! - off);
  return at;
}

export function layOut(all: { id: number; parents: number[] }[], sizes: Sizes): Laid {
  const known = new Set(all.map(({ id }) => id));
  const parents = new Map(all.map(({ id, parents: own }) => [id, own.filter((p) => known.has(p))] as const));
  const children = new Map<number, number[]>();
  for (const [id, own] of parents) for (const p of own) children.set(p, [...(children.get(p) ?? []), id]);
  const layers = layersOf([...known], parents);
  const rows: number[][] = [];
  for (const [id, layer] of layers) (rows[layer] ??= []).push(id);
  sortLayers(rows, parents, children);

  const least = sizes.node.height + sizes.gap.y;
  const y = new Map<number, number>();
  rows.forEach((row) => row.forEach((id, i) => y.set(id, i * least)));
  for (let sweep = 0; sweep < 4; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const wanted = new Map(
        row.map((id) => {
          const near = (isDown ? parents : children).get(id) ?? [];
          return [id, near.length === 0 ? y.get(id)! : near.reduce((sum, n) => sum + y.get(n)!, 0) / near.length] as const;
        }),
      );
      for (const [id, value] of spread(row, wanted, least)) y.set(id, value);
    }
  }
  const top = Math.min(0, ...y.values());
  const nodes = new Map<number, Placed>();
  for (const [id, layer] of layers) {
    nodes.set(id, { id, layer, x: layer * (sizes.node.width + sizes.gap.x), y: y.get(id)! - top });
  }
  const bottom = Math.max(0, ...[...nodes.values()].map((node) => node.y));
  return {
    nodes,
    edges: [...parents].flatMap(([to, own]) => own.map((from) => ({ from, to }))),
    width: Math.max(1, rows.length) * (sizes.node.width + sizes.gap.x) - sizes.gap.x,
    height: bottom + sizes.node.height,
  };
}
