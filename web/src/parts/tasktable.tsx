// The tasks of a job as a table, of which only what can be seen is there; and one of them in full.
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Task } from '../api';
import { bytes, clock, duration, number, plural, short } from '../format';
import { attemptsOf, readAttempts, readResult } from '../tasks';
import { Action, Badge, Choice, Copy, Empty, Failure } from './ui';
import type { Attempt } from './timeline';
import { VirtualTable } from './virtual';

const STATES = ['queued', 'running', 'succeeded', 'failed', 'canceled', 'skipped'];
const RESULT_SHOWN = 20_000;

// How a job is run again from one of its tasks.
export interface RetryFrom {
  act: (task: Task) => Promise<unknown>;
  question: (task: Task) => string;
  whyNot: (task: Task) => string | undefined;
}

interface Props {
  jobId: string;
  tasks: Task[];
  earlier: Map<string, Attempt>;
  stage: number | undefined;
  now: number;
  isCut: boolean;
  retryFrom: RetryFrom | undefined;
}

const took = (task: Task, now: number) =>
  task.started_at_ms === null ? '–' : duration((task.state === 'running' ? now : (task.finished_at_ms ?? now)) - task.started_at_ms);

// What each attempt came to, and why. Of a large job not all events have been read.
function Attempts({ jobId, task, earlier, now }: { jobId: string; task: Task; earlier: Map<string, Attempt>; now: number }) {
  const [told, setTold] = useState<Map<string, Attempt>>();
  const { list, missing } = attemptsOf(task, told ? new Map([...told, ...earlier]) : earlier);
  if (list.length + missing < 2 && task.state !== 'queued') return null;
  return (
    <>
      {missing > 0 && (
        <p class="row soft">
          {told ? `The events of ${plural(missing, 'earlier attempt')} have been removed.` : `The events of ${plural(missing, 'earlier attempt')} have not been read.`}
          {!told && (
            <Action class="is-small" onAct={async () => setTold(await readAttempts(jobId, task))}>
              Read all events of the job
            </Action>
          )}
        </p>
      )}
      {list.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="group" aria-label="Attempts, scrolls">
          <table class="table attempts" aria-label="Attempts">
            <thead>
              <tr>
                <th scope="col" class="num">
                  Attempt
                </th>
                <th scope="col">Outcome</th>
                <th scope="col">Worker</th>
                <th scope="col">Started</th>
                <th scope="col" class="num">
                  Took
                </th>
                <th scope="col">Message</th>
              </tr>
            </thead>
            <tbody>
              {list.map(({ attempt, outcome, worker, from, to, message }) => (
                <tr key={attempt}>
                  <th scope="row" class="num">
                    {attempt}
                  </th>
                  <td>
                    <Badge state={outcome} />
                  </td>
                  <td>{worker || '–'}</td>
                  <td>{clock(from)}</td>
                  <td class="num">{duration((to ?? now) - from)}</td>
                  <td class="why">{message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

interface DetailProps {
  jobId: string;
  task: Task;
  earlier: Map<string, Attempt>;
  now: number;
  onClose: () => void;
  retryFrom: RetryFrom | undefined;
}

function Detail({ jobId, task, earlier, now, onClose, retryFrom }: DetailProps) {
  const [result, setResult] = useState<string>();
  const [error, setError] = useState<Error>();
  useEffect(() => {
    let isOver = false;
    setResult(undefined);
    setError(undefined);
    readResult(jobId, task).then(
      (value) => !isOver && setResult(value === null || value === undefined ? '' : JSON.stringify(value, null, 2)),
      (caught: Error) => !isOver && setError(caught),
    );
    return () => {
      isOver = true;
    };
  }, [jobId, task.stage, task.task, task.attempt, task.state]);
  const whyNot = retryFrom?.whyNot(task);
  return (
    <aside class="detail" aria-label="Task">
      <header class="row">
        <h3>
          {task.name ?? `stage ${task.stage}`} <span class="soft">task {task.task}</span>
        </h3>
        <Badge state={task.state} />
        {retryFrom && task.name !== null && (
          <Action onAct={() => retryFrom.act(task)} confirm={retryFrom.question(task)} title={whyNot} disabled={whyNot !== undefined}>
            Retry from here
          </Action>
        )}
        <button class="button is-quiet is-small" onClick={onClose}>
          Close
        </button>
      </header>
      <dl class="facts">
        <dt>Attempt</dt>
        <dd>
          {task.attempt ?? '–'}
          {task.failures > 0 && `, after ${number(task.failures)} failed`}
        </dd>
        <dt>Worker</dt>
        <dd>{task.worker_id ?? '–'}</dd>
        <dt>Started</dt>
        <dd>{clock(task.started_at_ms)}</dd>
        <dt>Finished</dt>
        <dd>{clock(task.finished_at_ms)}</dd>
        <dt>Rows</dt>
        <dd>{number(task.rows)}</dd>
        <dt>Bytes</dt>
        <dd>{bytes(task.bytes)}</dd>
      </dl>
      <Attempts key={`${task.stage}.${task.task}`} jobId={jobId} task={task} earlier={earlier} now={now} />
      {task.message !== null && <pre class="message is-bad">{task.message}</pre>}
      {error && <Failure error={error} what="Its result cannot be shown" />}
      {result && (
        <div class="result">
          <div class="row">
            <h4>Result</h4>
            <Copy text={result} label="Copy the result" />
          </div>
          <pre tabIndex={0} aria-label="Result of the task">
            {result.length > RESULT_SHOWN ? `${result.slice(0, RESULT_SHOWN)}\n… ${number(result.length - RESULT_SHOWN)} more characters` : result}
          </pre>
        </div>
      )}
    </aside>
  );
}

export function TaskTable({ jobId, tasks, earlier, stage, now, isCut, retryFrom }: Props) {
  const [state, setState] = useState('');
  const [open, setOpen] = useState<Task>();
  const counts = useMemo(() => {
    const found = new Map<string, number>();
    for (const task of tasks) if (stage === undefined || task.stage === stage) found.set(task.state, (found.get(task.state) ?? 0) + 1);
    return found;
  }, [tasks, stage, now]);
  const shown = useMemo(
    () => tasks.filter((task) => (state === '' || task.state === state) && (stage === undefined || task.stage === stage)),
    [tasks, state, stage, now],
  );
  const current = open && (tasks.find((task) => task.stage === open.stage && task.task === open.task) ?? open);
  return (
    <>
      <div class="row tools">
        <Choice
          label="State of tasks"
          value={state}
          onChange={setState}
          options={[
            { value: '', label: 'all', count: [...counts.values()].reduce((sum, n) => sum + n, 0) },
            ...STATES.filter((value) => counts.has(value) || value === state).map((value) => ({ value, label: value, count: counts.get(value) ?? 0 })),
          ]}
        />
        {isCut && <span class="soft">only the first {number(tasks.length)} are shown</span>}
      </div>
      {shown.length === 0 ? (
        <Empty>There are no such tasks.</Empty>
      ) : (
        <VirtualTable
          count={shown.length}
          rowHeight={28}
          label="Tasks"
          class={`tasks ${shown.length > 12 ? 'is-high' : ''}`}
          head={
            <div class="virtual-row" role="row">
              <span role="columnheader">Task</span>
              <span role="columnheader">State</span>
              <span role="columnheader" class="num">Attempt</span>
              <span role="columnheader">Worker</span>
              <span role="columnheader" class="num">Took</span>
              <span role="columnheader" class="num">Rows</span>
              <span role="columnheader" class="num">Bytes</span>
              <span role="columnheader">Message</span>
            </div>
          }
          row={(i) => {
            const task = shown[i]!;
            const isOpen = current !== undefined && task.stage === current.stage && task.task === current.task;
            return (
              <div class={`virtual-row ${isOpen ? 'is-on' : ''}`} role="row" key={`${task.stage}.${task.task}`} aria-rowindex={i + 2}>
                <span role="cell" class="cut">
                  <button class="link" aria-expanded={isOpen} onClick={() => setOpen(isOpen ? undefined : task)}>
                    {task.name ?? task.stage}
                    <span class="soft">.{task.task}</span>
                  </button>
                </span>
                <span role="cell">
                  <Badge state={task.state} />
                </span>
                <span role="cell" class={`num ${task.failures > 0 ? 'is-warn' : ''}`}>
                  {task.attempt ?? '–'}
                </span>
                <span role="cell" class="cut soft">
                  {task.worker_id ?? '–'}
                </span>
                <span role="cell" class="num">
                  {took(task, now)}
                </span>
                <span role="cell" class="num">
                  {short(task.rows)}
                </span>
                <span role="cell" class="num">
                  {bytes(task.bytes)}
                </span>
                <span role="cell" class="cut soft" title={task.message ?? ''}>
                  {task.message}
                </span>
              </div>
            );
          }}
        />
      )}
      {current && <Detail jobId={jobId} task={current} earlier={earlier} now={now} onClose={() => setOpen(undefined)} retryFrom={retryFrom} />}
    </>
  );
}
