// What each worker did when: one lane per slot in use, one bar per attempt, drawn on a canvas so that tens of thousands of
// them cost little. The table of tasks below says the same in words, each task with all of its attempts when it is opened.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { clock, duration } from '../format';

export interface Attempt {
  stage: number;
  task: number;
  attempt: number;
  worker: string; // empty: it has none of its own, its tasks do
  from: number;
  to: number | null; // null: it runs
  outcome: string;
  message: string | null;
  name: string | null;
}

interface Lane {
  worker: string;
  isFirst: boolean;
  attempts: Attempt[];
}

const LANE = 14;
const GAP = 8;
const LANES_MAX = 200;

// Puts the attempts of each worker into as few lanes as do not overlap.
export function lanesOf(attempts: Attempt[], now: number): Lane[] {
  const byWorker = new Map<string, Attempt[]>();
  for (const attempt of attempts) {
    const list = byWorker.get(attempt.worker);
    if (list) list.push(attempt);
    else byWorker.set(attempt.worker, [attempt]);
  }
  const lanes: Lane[] = [];
  for (const worker of [...byWorker.keys()].sort()) {
    const free: { lane: Lane; until: number }[] = [];
    for (const attempt of byWorker.get(worker)!.sort((a, b) => a.from - b.from)) {
      let slot = free.find(({ until }) => until <= attempt.from);
      if (!slot) {
        slot = { lane: { worker, isFirst: free.length === 0, attempts: [] }, until: 0 };
        free.push(slot);
        lanes.push(slot.lane);
      }
      slot.lane.attempts.push(attempt);
      slot.until = attempt.to ?? now;
    }
  }
  return lanes;
}

const NAMED_MAX = 10; // workers

// How many attempts each worker had.
function inWords(lanes: Lane[]): string {
  const counts = new Map<string, number>();
  for (const { worker, attempts } of lanes) counts.set(worker, (counts.get(worker) ?? 0) + attempts.length);
  const words = [...counts].slice(0, NAMED_MAX).map(([worker, n]) => `${n} on ${worker}`);
  return [...words, ...(counts.size > NAMED_MAX ? [`and on ${counts.size - NAMED_MAX} more workers`] : [])].join(', ');
}

// The colours of the style sheet, as a canvas needs them.
function colorsOf(element: HTMLElement): (name: string) => string {
  const probe = document.createElement('span');
  probe.hidden = true;
  element.append(probe);
  const found = new Map<string, string>();
  for (const name of ['succeeded', 'failed', 'running', 'lost', 'canceled', 'line', 'text-soft']) {
    probe.style.color = `var(--${name})`;
    found.set(name, getComputedStyle(probe).color);
  }
  probe.remove();
  return (name) => found.get(name) ?? found.get('text-soft')!;
}

// Bars that are thinner than a pixel are many and look like one: of those in the same pixel one is drawn, and one that did
// not succeed goes before the others. Colours are set only when they change, which costs more than to draw.
function drawLane(
  pen: CanvasRenderingContext2D,
  attempts: Attempt[],
  color: (name: string) => string,
  along: (at: number) => number,
  { top, height, to }: { top: number; height: number; to: number },
): void {
  let lastPixel = -1;
  let lastOutcome = '';
  for (const { from, to: end, outcome } of attempts) {
    const x = along(from);
    const width = along(end ?? to) - x - 0.5;
    const pixel = Math.floor(x);
    if (width < 1 && pixel === lastPixel && (outcome === 'succeeded' || outcome === lastOutcome)) continue;
    if (outcome !== lastOutcome) pen.fillStyle = color(outcome);
    pen.fillRect(width < 1 ? pixel : x, top, Math.max(1, width), height);
    lastPixel = width < 1 ? pixel : -1;
    lastOutcome = outcome;
  }
}

const NICE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000];

export function Timeline({ attempts, from, to }: { attempts: Attempt[]; from: number; to: number }) {
  const holder = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(800);
  const [over, setOver] = useState<{ attempt: Attempt; x: number; y: number }>();
  const lanes = useMemo(() => lanesOf(attempts, to), [attempts, to]);
  const shown = lanes.slice(0, LANES_MAX);
  const tops: number[] = [];
  let y = 20;
  for (const lane of shown) {
    if (lane.isFirst) y += GAP + 14;
    tops.push(y);
    y += LANE;
  }
  const height = y + 6;
  const span = Math.max(1, to - from);

  useLayoutEffect(() => {
    const element = holder.current!;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    setWidth(element.clientWidth);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current!;
    const scale = window.devicePixelRatio || 1;
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    const pen = element.getContext('2d')!;
    const color = colorsOf(holder.current!);
    pen.scale(scale, scale);
    pen.clearRect(0, 0, width, height);
    pen.font = '11px system-ui, sans-serif';
    const step = NICE.find((ms) => (span / ms) * 70 < width) ?? NICE.at(-1)!;
    for (let at = 0; at <= span; at += step) {
      const x = Math.round((at / span) * (width - 2)) + 0.5;
      pen.fillStyle = color('line');
      pen.fillRect(x, 16, 1, height);
      pen.fillStyle = color('text-soft');
      pen.fillText(at === 0 ? '0' : duration(at), Math.min(x + 3, width - 40), 11);
    }
    shown.forEach((lane, i) => {
      const top = tops[i]!;
      if (lane.isFirst) {
        pen.fillStyle = color('text-soft');
        pen.fillText(lane.worker, 2, top - 4);
      }
      drawLane(pen, lane.attempts, color, (at) => ((at - from) / span) * (width - 2), { top: top + 1, height: LANE - 3, to });
    });
  }, [attempts, width, height, from, to]);

  const find = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const [x, py] = [event.clientX - box.left, event.clientY - box.top];
    const lane = shown[tops.findIndex((top) => py >= top && py < top + LANE)];
    const at = from + (x / (width - 2)) * span;
    const slack = (2 / width) * span;
    const attempt = lane?.attempts.find((one) => at >= one.from - slack && at <= (one.to ?? to) + slack);
    setOver(attempt && { attempt, x, y: py });
  };
  return (
    <div class="timeline" ref={holder} onMouseMove={find} onMouseLeave={() => setOver(undefined)}>
      <canvas
        ref={canvas}
        style={{ width: `${width}px`, height: `${height}px` }}
        role="img"
        aria-label={`Timeline: ${attempts.length} attempts in ${lanes.length} lanes over ${duration(span)}: ${inWords(lanes)}`}
      />
      {lanes.length > LANES_MAX && <p class="empty">{lanes.length - LANES_MAX} more lanes are not drawn.</p>}
      {over && (
        <div class="tip" style={{ left: `${Math.min(over.x + 12, width - 220)}px`, top: `${over.y + 14}px` }}>
          <strong>
            {over.attempt.name ?? `stage ${over.attempt.stage}`} · task {over.attempt.task} · attempt {over.attempt.attempt}
          </strong>
          <span>{over.attempt.outcome} on {over.attempt.worker}</span>
          <span>
            {clock(over.attempt.from)}, {duration((over.attempt.to ?? to) - over.attempt.from)}
          </span>
        </div>
      )}
    </div>
  );
}
