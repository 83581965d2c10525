// How evenly the work of a stage is spread over its tasks: rows, bytes and time.
import { useMemo } from 'preact/hooks';
import type { Task } from '../api';
import { bytes, duration, short } from '../format';

const BINS = 24;

export interface Spread {
  n: number;
  median: number;
  high: number; // of 95 in 100
  max: number;
  bins: number[];
  worst: Task;
}

export function spreadOf(tasks: Task[], value: (task: Task) => number | null): Spread | undefined {
  const all = new Float64Array(tasks.length);
  let n = 0;
  let worst: Task | undefined;
  let max = -Infinity;
  for (const task of tasks) {
    const x = value(task);
    if (x === null) continue;
    all[n++] = x;
    if (x > max) {
      max = x;
      worst = task;
    }
  }
  if (!worst) return undefined;
  const sorted = all.subarray(0, n).sort(); // numbers, without a function to compare them
  const at = (part: number) => sorted[Math.min(n - 1, Math.floor(part * n))]!;
  const bins = new Array<number>(BINS).fill(0);
  for (const x of sorted) bins[max === 0 ? 0 : Math.min(BINS - 1, Math.floor((x / max) * BINS))]!++;
  return { n, median: at(0.5), high: at(0.95), max, bins, worst };
}

function Bins({ bins }: { bins: number[] }) {
  const top = Math.max(...bins);
  return (
    <svg class="bins" viewBox={`0 0 ${BINS * 4} 20`} aria-hidden="true">
      {bins.map((n, i) =>
        n === 0 ? null : <rect key={i} x={i * 4} width="3" y={20 - Math.max(2, (n / top) * 20)} height={Math.max(2, (n / top) * 20)} />,
      )}
    </svg>
  );
}

function Cells({ spread, show }: { spread: Spread | undefined; show: (value: number) => string }) {
  if (!spread || spread.max === 0) return <td colSpan={3} class="soft">–</td>;
  const ratio = spread.median > 0 ? spread.max / spread.median : Infinity;
  return (
    <>
      <td class="bins-cell">
        <Bins bins={spread.bins} />
      </td>
      <td class="num">
        {show(spread.median)} <span class="soft">/</span> {show(spread.max)}
      </td>
      <td class={`num ${spread.n > 1 && ratio > 3 ? 'is-warn' : 'soft'}`} title={`largest: task ${spread.worst.task}`}>
        {spread.n < 2 ? '–' : ratio === Infinity ? '∞' : `×${ratio.toFixed(1)}`}
      </td>
    </>
  );
}

export interface Group {
  name: string;
  tasks: Task[];
}

const GROUPS_MAX = 60;

export function Skew({ groups, now }: { groups: Group[]; now: number }) {
  const rows = useMemo(() => {
    const isDone = (task: Task) => task.state === 'succeeded';
    return groups.slice(0, GROUPS_MAX).map(({ name, tasks }) => ({
      name,
      n: tasks.length,
      time: spreadOf(tasks, (task) => (task.started_at_ms === null ? null : (task.finished_at_ms ?? now) - task.started_at_ms)),
      rows: spreadOf(tasks, (task) => (isDone(task) ? task.rows : null)),
      bytes: spreadOf(tasks, (task) => (isDone(task) ? task.bytes : null)),
    }));
  }, [groups]);
  return (
    <div class="scroll-x" tabIndex={0} role="group" aria-label="Skew, scrolls">
      <table class="table skew">
        <thead>
          <tr>
            <th scope="col">Stage</th>
            <th scope="col" class="num">
              Tasks
            </th>
            {['Time', 'Rows', 'Bytes'].map((what) => (
              <th key={what} scope="colgroup" colSpan={3}>
                {what} <span class="soft">median / largest</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, n, time, rows: numbers, bytes: sizes }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="num">{short(n)}</td>
              <Cells spread={time} show={duration} />
              <Cells spread={numbers} show={short} />
              <Cells spread={sizes} show={bytes} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
