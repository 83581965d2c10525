// A layered layout of a graph without cycles: each node stands one layer behind the last of its parents. An edge over
// several layers passes through a point in each of them, which takes part in everything as a thin node, so that edges do
// not run behind boxes. Inside a layer nodes are sorted by where their neighbours are (a few sweeps in both directions),
// then put as straight behind these as the space allows.

export interface Point {
  x: number;
  y: number;
}

export interface Laid {
  nodes: Map<number, Point>; // their upper left corners
  edges: { from: number; to: number; via: Point[] }[]; // the middles of the points that they pass
  width: number;
  height: number;
}

export interface Sizes {
  node: { width: number; height: number };
  gap: { x: number; y: number };
}

const SWEEPS = 6;
const POINTS_MAX = 2000; // edges beyond these go straight
const POINT_HEIGHT = 10;

interface Web {
  parents: Map<number, number[]>;
  children: Map<number, number[]>;
}

function push(map: Map<number, number[]>, key: number, value: number): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

function layersOf(ids: number[], { parents, children }: Web): Map<number, number> {
  const layers = new Map<number, number>();
  const waits = new Map(ids.map((id) => [id, parents.get(id)?.length ?? 0] as const));
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

// Puts points, which have negative ids, into edges over several layers. Says which points an edge has.
function addPoints(edges: { from: number; to: number }[], layers: Map<number, number>): { web: Web; points: number[][] } {
  const web: Web = { parents: new Map(), children: new Map() };
  let next = -1;
  const points = edges.map(({ from, to }) => {
    const chain: number[] = [];
    let last = from;
    for (let layer = layers.get(from)! + 1; layer < layers.get(to)! && next > -POINTS_MAX; layer++) {
      layers.set(next, layer);
      push(web.children, last, next);
      push(web.parents, next, last);
      chain.push(next);
      last = next--;
    }
    push(web.children, last, to);
    push(web.parents, to, last);
    return chain;
  });
  return { web, points };
}

function sortLayers(rows: number[][], { parents, children }: Web): void {
  const position = new Map<number, number>();
  const note = (row: number[]) => row.forEach((id, i) => position.set(id, row.length > 1 ? i / (row.length - 1) : 0.5));
  rows.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const keys = new Map<number, number>();
      for (const id of row) {
        const near = (isDown ? parents : children).get(id) ?? [];
        keys.set(id, near.length === 0 ? position.get(id)! : near.reduce((sum, n) => sum + position.get(n)!, 0) / near.length);
      }
      row.sort((a, b) => keys.get(a)! - keys.get(b)!); // which keeps the order of equals
      note(row);
    }
  }
}

// Moves the nodes of a layer to where they want to be without letting two of them touch.
function spread(row: number[], wanted: Map<number, number>, apart: (a: number, b: number) => number, at: Map<number, number>): void {
  let sum = 0;
  row.forEach((id, i) => {
    const before = row[i - 1];
    const least = before === undefined ? -Infinity : at.get(before)! + apart(before, id);
    at.set(id, Math.max(wanted.get(id)!, least));
    sum += at.get(id)! - wanted.get(id)!;
  });
  // What was pushed down is shared in both directions.
  const off = sum / row.length;
  for (const id of row) at.set(id, at.get(id)! - off);
}

// Middles of all nodes and points, from the top.
function heights(rows: number[][], { parents, children }: Web, sizes: Sizes): Map<number, number> {
  const half = (id: number) => (id < 0 ? POINT_HEIGHT : sizes.node.height) / 2;
  const apart = (a: number, b: number) => half(a) + half(b) + sizes.gap.y;
  const at = new Map<number, number>();
  for (const row of rows) row.forEach((id, i) => at.set(id, i === 0 ? 0 : at.get(row[i - 1]!)! + apart(row[i - 1]!, id)));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const wanted = new Map<number, number>();
      for (const id of row) {
        const near = (isDown ? parents : children).get(id) ?? [];
        wanted.set(id, near.length === 0 ? at.get(id)! : near.reduce((sum, n) => sum + at.get(n)!, 0) / near.length);
      }
      spread(row, wanted, apart, at);
    }
  }
  let top = Infinity;
  for (const [id, y] of at) top = Math.min(top, y - half(id));
  for (const [id, y] of at) at.set(id, y - top);
  return at;
}

export function layOut(all: { id: number; parents: number[] }[], sizes: Sizes): Laid {
  const known = new Set(all.map(({ id }) => id));
  const edges = all.flatMap(({ id, parents }) => parents.filter((p) => known.has(p)).map((from) => ({ from, to: id })));
  const plain: Web = { parents: new Map(), children: new Map() };
  for (const { from, to } of edges) {
    push(plain.parents, to, from);
    push(plain.children, from, to);
  }
  const layers = layersOf([...known], plain);
  const { web, points } = addPoints(edges, layers);
  const rows: number[][] = [];
  for (const [id, layer] of layers) (rows[layer] ??= []).push(id);
  sortLayers(rows, web);
  const at = heights(rows, web, sizes);
  const step = sizes.node.width + sizes.gap.x;
  const nodes = new Map<number, Point>();
  let height = sizes.node.height;
  for (const id of known) {
    nodes.set(id, { x: layers.get(id)! * step, y: at.get(id)! - sizes.node.height / 2 });
    height = Math.max(height, at.get(id)! + sizes.node.height / 2);
  }
  const via = (id: number) => ({ x: layers.get(id)! * step + sizes.node.width / 2, y: at.get(id)! });
  for (const y of at.values()) height = Math.max(height, y + POINT_HEIGHT / 2);
  return {
    nodes,
    edges: edges.map((edge, i) => ({ ...edge, via: points[i]!.map(via) })),
    width: Math.max(1, rows.length) * step - sizes.gap.x,
    height,
  };
}
