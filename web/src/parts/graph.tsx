// The stages of a job, drawn as a graph, with how far each of them is.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Stage } from '../api';
import { bytes, number, plural, short } from '../format';
import { layOut, type Laid, type Point } from './layout';

const SIZES = { node: { width: 176, height: 62 }, gap: { x: 56, y: 18 } };
const PAD = 6;

export function stateOf(stage: Stage): string {
  if (stage.failed > 0) return 'failed';
  if (stage.running > 0) return 'running';
  if (stage.succeeded === stage.tasks) return 'succeeded';
  if (stage.canceled > 0) return 'canceled';
  if (stage.skipped > 0) return 'skipped';
  return stage.succeeded > 0 ? 'running' : 'queued';
}

const ended = (stage: Stage) => stage.succeeded + stage.failed + stage.canceled + stage.skipped;

// How much of the stage running tasks have done so far, as a number of tasks.
export const underWay = (stage: Stage) => Math.min(stage.running, Math.max(0, stage.fraction * stage.tasks - stage.succeeded));

function cut(text: string, n: number): string {
  return text.length > n ? `${text.slice(0, n - 1)}…` : text;
}

interface Props {
  stages: Stage[];
  notes: Map<number, string>; // what a stage does, if a plan says it
  selected: number | undefined;
  onSelect: (stage: number | undefined) => void;
}

// From the right side of a box to the left side of another, straight through the points between them.
function Edge({ from, to, via }: { from: Point; to: Point; via: Point[] }) {
  const { width, height } = SIZES.node;
  let last = { x: from.x + width, y: from.y + height / 2 };
  let path = `M${last.x},${last.y}`;
  const curve = (next: Point) => {
    const bend = Math.max(16, (next.x - last.x) / 2);
    path += ` C${last.x + bend},${last.y} ${next.x - bend},${next.y} ${next.x},${next.y}`;
    last = next;
  };
  for (const { x, y } of via) {
    curve({ x: x - width / 2, y });
    path += ` H${x + width / 2}`;
    last = { x: x + width / 2, y };
  }
  curve({ x: to.x - 3, y: to.y + height / 2 });
  return <path class="edge" d={path} marker-end="url(#arrow)" />;
}

function Box({ stage, note, at, isOn, onSelect }: { stage: Stage; note: string | undefined; at: { x: number; y: number }; isOn: boolean; onSelect: () => void }) {
  const { width, height } = SIZES.node;
  const state = stateOf(stage);
  const inner = width - 20;
  const part = (n: number) => (stage.tasks === 0 ? 0 : (n / stage.tasks) * inner);
  const title = stage.name ?? `stage ${stage.stage}`;
  const count = `${short(ended(stage))} / ${short(stage.tasks)}`;
  const what = cut(note?.split('\n')[0] ?? (stage.rows > 0 ? `${short(stage.rows)} rows, ${bytes(stage.bytes)}` : state), 27);
  const label =
    `${title}: ${state}, ${number(ended(stage))} of ${plural(stage.tasks, 'task')} done, ` +
    `${number(stage.running)} running, ${number(stage.failed)} failed` +
    (state === 'running' ? `, ${Math.floor(stage.fraction * 100)} % through` : '');
  return (
    <g
      class={`stage is-${state} ${isOn ? 'is-on' : ''}`}
      transform={`translate(${at.x},${at.y})`}
      role="button"
      tabindex={0} // in an SVG attributes keep their case, and tabIndex is none
      aria-pressed={isOn}
      onClick={onSelect}
      onKeyDown={(event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          onSelect();
        }
      }}
    >
      <title>{note ? `${label}\n${note}` : label}</title>
      <rect class="frame" width={width} height={height} rx="7" />
      <rect class="edge-mark" width="4" height={height} rx="2" />
      <text class="name" x="12" y="18">
        {cut(title, 15)}
      </text>
      <text class="count" x={width - 10} y="18" text-anchor="end">
        {count}
      </text>
      <text class="what" x="12" y="34">
        {what}
      </text>
      <rect class="track" x="10" y={height - 14} width={inner} height="5" rx="2.5" />
      <rect class="done is-succeeded" x="10" y={height - 14} width={part(stage.succeeded)} height="5" rx="2.5" />
      <rect class="done is-failed" x={10 + part(stage.succeeded)} y={height - 14} width={part(stage.failed)} height="5" rx="1" />
      <rect class="done is-canceled" x={10 + part(stage.succeeded + stage.failed)} y={height - 14} width={part(stage.canceled + stage.skipped)} height="5" rx="1" />
      <rect class="done is-running" x={10 + part(ended(stage))} y={height - 14} width={part(stage.running)} height="5" />
      <rect class="done is-under-way" x={10 + part(ended(stage))} y={height - 14} width={part(underWay(stage))} height="5" />
    </g>
  );
}

const DRAWN_MAX = 120; // more stages than these are drawn only where they can be seen
const MARGIN = 160;

interface View {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

// What can be seen of a scrolled box, and a margin around it.
function useView(isOn: boolean) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<View>({ left: 0, right: 2000, top: 0, bottom: 1200 });
  useEffect(() => {
    const element = box.current;
    if (!isOn || !element) return undefined;
    let frame = 0;
    const read = () => {
      frame = 0;
      const { scrollLeft: left, scrollTop: top, clientWidth, clientHeight } = element;
      setView({
        left: left - MARGIN,
        right: left + clientWidth + MARGIN,
        top: top - MARGIN,
        bottom: top + clientHeight + MARGIN,
      });
    };
    const soon = () => {
      frame ||= requestAnimationFrame(read);
    };
    element.addEventListener('scroll', soon, { passive: true });
    read();
    return () => {
      element.removeEventListener('scroll', soon);
      cancelAnimationFrame(frame);
    };
  }, [isOn]);
  return { box, view };
}

const layOutStages = (stages: Stage[]) => layOut(stages.map(({ stage, parents }) => ({ id: stage, parents })), SIZES);

// Where the stages stand. Of many it is found out in a task of its own, and drawn in the next.
function useLayout(shape: string, stages: Stage[], isLarge: boolean): Laid | undefined {
  const now = useMemo(() => (isLarge ? undefined : layOutStages(stages)), [shape, isLarge]);
  const [late, setLate] = useState<Laid>();
  useEffect(() => {
    if (!isLarge) return undefined;
    const laid = layOutStages(stages);
    const timer = window.setTimeout(() => setLate(laid), 0);
    return () => window.clearTimeout(timer);
  }, [shape, isLarge]);
  return isLarge ? late : now;
}

export function Graph({ stages, notes, selected, onSelect }: Props) {
  // Where things stand depends on who follows whom only, not on how far they are.
  const shape = stages.map(({ stage, parents }) => `${stage}<${parents.join()}`).join(';');
  const isLarge = stages.length > DRAWN_MAX;
  const laid = useLayout(shape, stages, isLarge);
  const { box, view } = useView(isLarge);
  if (!laid) return <div class="graph" ref={box} />;
  const isSeen = (id: number) => {
    const at = laid.nodes.get(id);
    if (!at) return false; // it has come since
    const { x, y } = at;
    return !isLarge || (x < view.right && x + SIZES.node.width > view.left && y < view.bottom && y + SIZES.node.height > view.top);
  };
  return (
    <div class="graph" tabIndex={0} role="group" aria-label="Stages" ref={box}>
      <svg
        width={laid.width + 2 * PAD}
        height={laid.height + 2 * PAD}
        viewBox={`${-PAD} ${-PAD} ${laid.width + 2 * PAD} ${laid.height + 2 * PAD}`}
      >
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path class="arrow" d="M0,0.5 L7,4 L0,7.5 z" />
          </marker>
        </defs>
        {laid.edges
          .filter(({ from, to }) => isSeen(from) || isSeen(to))
          .map(({ from, to, via }) => (
            <Edge key={`${from}-${to}`} from={laid.nodes.get(from)!} to={laid.nodes.get(to)!} via={via} />
          ))}
        {stages.filter(({ stage }) => isSeen(stage)).map((stage) => (
          <Box
            key={stage.stage}
            stage={stage}
            note={notes.get(stage.stage)}
            at={laid.nodes.get(stage.stage)!}
            isOn={selected === stage.stage}
            onSelect={() => onSelect(selected === stage.stage ? undefined : stage.stage)}
          />
        ))}
      </svg>
    </div>
  );
}
