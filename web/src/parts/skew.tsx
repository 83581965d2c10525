// How evenly the work of a stage is spread over its tasks: rows, bytes and time.
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
  const pairs: { task: Task; x: number }[] = [];
  for (const task of tasks) {
    const x = value(task);
    if (x !== null) pairs.push({ task, x });
  }
  if (pairs.length === 0) return undefined;
  pairs.sort((a, b) => a.x - b.x);
  const at = (part: number) => pairs[Math.min(pairs.length - 1, Math.floor(part * pairs.length))]!.x;
  const worst = pairs.at(-1)!;
  const bins = new Array<number>(BINS).fill(0);
  for (const { x } of pairs) bins[worst.x === 0 ? 0 : Math.min(BINS - 1, Math.floor((x / worst.x) * BINS))]!++;
  return { n: pairs.length, median: at(0.5), high: at(0.95), max: worst.x, bins, worst: worst.task };
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
  const isDone = (task: Task) => task.state === 'succeeded';
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
          {groups.slice(0, GROUPS_MAX).map(({ name, tasks }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="num">{short(tasks.length)}</td>
              <Cells
                spread={spreadOf(tasks, (task) =>
                  task.started_at_ms === null ? null : (task.finished_at_ms ?? now) - task.started_at_ms,
                )}
                show={duration}
              />
              <Cells spread={spreadOf(tasks, (task) => (isDone(task) ? task.rows : null))} show={short} />
              <Cells spread={spreadOf(tasks, (task) => (isDone(task) ? task.bytes : null))} show={bytes} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
