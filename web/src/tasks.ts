// The tasks of one job: read page by page, then kept up to date by events. Few tasks are simply read again; of many only
// the events are taken in, and all of them are read again now and then.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, api, type CapstanEvent, type Task } from './api';
import { readEvents } from './live';
import { detailsOf } from './parts/eventline';
import type { Attempt } from './parts/timeline';

const PAGE = 1000;
export const TASKS_MAX = 20_000;
const FEW = 1000;
const REREAD_MS = 15_000;
const REDRAW_MS = 300;
const REDRAW_MANY_MS = 1000;

const keyOf = (stage: number, task: number) => stage * 2 ** 22 + task;

export interface Tasks {
  list: Task[];
  earlier: Map<string, Attempt>; // attempts that events told of
  isWhole: boolean; // all pages are there
  isCut: boolean; // there are more than TASKS_MAX
  error: Error | undefined;
  take: (events: CapstanEvent[]) => void;
  reread: () => void;
}

// What an event says about its task.
export function applyEvent(task: Task, event: CapstanEvent): void {
  switch (event.type) {
    case 'assigned':
    case 'started':
      task.state = 'running';
      task.worker_id = event.worker_id ?? task.worker_id;
      if (event.attempt !== task.attempt || task.started_at_ms === null) task.started_at_ms = event.at_ms;
      task.attempt = event.attempt;
      task.finished_at_ms = null;
      break;
    case 'completed':
      task.state = 'succeeded';
      task.finished_at_ms = event.at_ms;
      break;
    case 'failed':
      task.state = 'failed';
      task.finished_at_ms = event.at_ms;
      task.failures++;
      break;
    case 'pending':
    case 'reassigned':
    case 'retried':
      task.state = 'queued';
      break;
    case 'cancelled':
      task.state = 'canceled';
      task.finished_at_ms = event.at_ms;
      break;
    case 'skipped':
      task.state = 'skipped';
      break;
    default:
      break;
  }
}

const ENDINGS: Record<string, string> = { completed: 'succeeded', failed: 'failed', reassigned: 'lost', cancelled: 'canceled' };

export function noteAttempt(known: Map<string, Attempt>, event: CapstanEvent): void {
  if (event.stage === null || event.task === null || event.attempt === null) return;
  const key = `${event.stage}.${event.task}.${event.attempt}`;
  const outcome = ENDINGS[event.type];
  const attempt = known.get(key);
  // What is no worker's is never assigned.
  if (event.type === 'assigned' || (event.type === 'started' && !attempt)) {
    known.set(key, {
      stage: event.stage,
      task: event.task,
      attempt: event.attempt,
      worker: event.worker_id ?? '',
      from: event.at_ms,
      to: null,
      outcome: 'running',
      message: null,
      name: null,
    });
  } else if (outcome !== undefined && attempt && attempt.to === null) {
    attempt.to = event.at_ms;
    attempt.outcome = outcome;
    attempt.message = detailsOf(event) || null;
  }
}

export function useTasks(jobId: string, isEnded: boolean): Tasks {
  const data = useRef({ list: [] as Task[], index: new Map<number, Task>(), isWhole: false, isCut: false });
  const earlier = useRef(new Map<string, Attempt>());
  const [, setVersion] = useState(0);
  const [error, setError] = useState<Error>();
  const control = useRef({ reread: () => {}, redraw: () => {} });

  useEffect(() => {
    const stop = new AbortController();
    let isBusy = false;
    let isWanted = false;
    let timer = 0;
    let redrawTimer = 0;
    data.current = { list: [], index: new Map(), isWhole: false, isCut: false };
    earlier.current = new Map();
    const redraw = () => {
      redrawTimer ||= window.setTimeout(() => {
        redrawTimer = 0;
        setVersion((n) => n + 1);
      }, data.current.list.length > FEW ? REDRAW_MANY_MS : REDRAW_MS);
    };
    const read = async () => {
      const list: Task[] = [];
      const index = new Map<number, Task>();
      const isFirst = !data.current.isWhole;
      let after: string | null = null;
      do {
        const page: { tasks: Task[]; next: string | null } = await api.tasks(
          jobId,
          { limit: PAGE, after, without_results: true },
          stop.signal,
        );
        for (const task of page.tasks) {
          list.push(task);
          index.set(keyOf(task.stage, task.task), task);
        }
        after = page.next;
        if (isFirst) {
          // A list of its own each time: who looks at it can tell by that that it has grown.
          data.current = { list: [...list], index, isWhole: after === null, isCut: false };
          redraw();
        }
      } while (after !== null && list.length < TASKS_MAX);
      data.current = { list, index, isWhole: true, isCut: after !== null };
      setError(undefined);
      setVersion((n) => n + 1);
    };
    const run = async () => {
      window.clearTimeout(timer);
      if (isBusy) {
        isWanted = true;
        return;
      }
      isBusy = true;
      isWanted = false;
      try {
        await read();
      } catch (caught) {
        if (!stop.signal.aborted && caught instanceof ApiError) setError(caught);
      }
      isBusy = false;
      if (isWanted && !stop.signal.aborted) soon();
    };
    const soon = () => {
      const isFew = data.current.list.length <= FEW;
      window.clearTimeout(timer);
      timer = window.setTimeout(run, isFew ? 700 : REREAD_MS);
    };
    control.current = { reread: () => void run(), redraw };
    void run();
    return () => {
      stop.abort();
      window.clearTimeout(timer);
      window.clearTimeout(redrawTimer);
    };
  }, [jobId]);

  // What ended may have left more behind than its events say.
  useEffect(() => {
    if (isEnded) control.current.reread();
  }, [isEnded]);

  const pending = useRef(0);
  const take = (events: CapstanEvent[]) => {
    for (const event of events) {
      if (event.stage === null || event.task === null) continue;
      noteAttempt(earlier.current, event);
      const task = data.current.index.get(keyOf(event.stage, event.task));
      // Events of the past are told again when one begins to follow.
      const isNews = task && (event.attempt === null || task.attempt === null || event.attempt >= task.attempt);
      if (task && isNews && event.at_ms >= (task.finished_at_ms ?? 0)) applyEvent(task, event);
    }
    control.current.redraw();
    if (!isEnded) {
      // Stages may have come to be, and numbers of rows are in no event.
      const isFew = data.current.list.length <= FEW;
      pending.current ||= window.setTimeout(
        () => {
          pending.current = 0;
          control.current.reread();
        },
        isFew ? 700 : REREAD_MS,
      );
    }
  };
  useEffect(() => () => window.clearTimeout(pending.current), []);
  return {
    list: data.current.list,
    earlier: earlier.current,
    isWhole: data.current.isWhole,
    isCut: data.current.isCut,
    error,
    take,
    reread: () => control.current.reread(),
  };
}

// The last attempt, as the task tells it. None while it waits for the next one.
function lastOf(task: Task): Attempt | undefined {
  if (task.started_at_ms === null || task.state === 'queued') return undefined;
  return {
    stage: task.stage,
    task: task.task,
    attempt: task.attempt ?? 1,
    worker: task.worker_id ?? '',
    from: task.started_at_ms,
    to: task.state === 'running' ? null : task.finished_at_ms,
    outcome: task.state,
    message: task.message,
    name: task.name,
  };
}

export interface Attempts {
  list: Attempt[];
  missing: number; // earlier ones that no event has told of
}

// The attempts of one task, by their numbers.
export function attemptsOf(task: Task, earlier: Map<string, Attempt>): Attempts {
  const list: Attempt[] = [];
  const n = task.attempt ?? 0;
  let missing = 0;
  for (let i = 1; i <= n; i++) {
    const last = i === n ? lastOf(task) : undefined;
    const attempt = last ?? earlier.get(`${task.stage}.${task.task}.${i}`);
    if (attempt && (attempt === last || attempt.to !== null)) list.push(attempt);
    else if (i < n || task.state === 'queued') missing++;
  }
  return { list, missing };
}

// All attempts that are known: the last one of each task as the task tells it, those before as events told. They are
// looked at again when there is another `version`.
export function useAttempts(tasks: Tasks, version: string): Attempts {
  return useMemo(() => {
    const list: Attempt[] = [];
    let missing = 0;
    for (const task of tasks.list) {
      const only = task.attempt === 1 ? lastOf(task) : undefined; // as of nearly all
      if (only) {
        if (only.worker !== '') list.push(only);
        continue;
      }
      const own = attemptsOf(task, tasks.earlier);
      missing += own.missing;
      for (const attempt of own.list) if (attempt.worker !== '') list.push({ ...attempt, name: task.name });
    }
    return { list, missing };
  }, [version]);
}

// The attempts of one task as all events of its job that there are tell of them.
export async function readAttempts(jobId: string, { stage, task }: Task): Promise<Map<string, Attempt>> {
  const found = new Map<string, Attempt>();
  await readEvents(jobId, (event) => {
    if (event.stage === stage && event.task === task) noteAttempt(found, event);
  });
  return found;
}

// One task with its result: pages are read until it is found.
export async function readResult(jobId: string, wanted: Task): Promise<unknown> {
  let after: string | null = null;
  do {
    const page: { tasks: Task[]; next: string | null } = await api.tasks(jobId, { limit: PAGE, after });
    const found = page.tasks.find((task) => task.stage === wanted.stage && task.task === wanted.task);
    if (found) return found.result;
    after = page.next;
  } while (after !== null);
  return null;
}
