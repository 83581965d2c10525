// worker.ts - a worker with executors in JavaScript: registers, sends heartbeats, pulls tasks, reports, drains.
//
// What it keeps to, as every worker has to:
//  - One incarnation per start. A coordinator that says `superseded` has met a newer process of the same id: stop all.
//  - A heartbeat names every attempt from its assignment until its final report has been answered. One that is not named
//    is taken for lost, and given to somebody else.
//  - One GetTask is always open, with capacity 0 too: orders to stop come with it. It is never cancelled because a slot
//    got free, for its answer may be on the way; a second one asks for what the first does not.
//  - A report is sent again until it is answered. `accepted: false` means that the attempt is not current any more.
//  - What an order to stop names is ended at once and not reported.
//  - An exclusive task is stopped a little before the end of a lease that could not be renewed, and given back.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { Connection, type ConnectOptions, pause } from './connection.js';
import { CapstanError } from './errors.js';
import type { Json } from './types.js';

const POLL_MS = 30000;
const POLL_PAUSE_MS = 100;
const REPORTS_MAX = 100;
const DRAIN_TICK_MS = 20;
const GOODBYE_MS = 2000; // a coordinator that is not told notices by itself

/** A task as its executor sees it. */
export interface Task<Inputs = any> {
  inputs: Inputs;
  /**
   * Fired when the task has to stop: canceled, timed out, given to somebody else, or the worker leaves. An executor that
   * goes on wastes a slot; what it returns then is not used.
   */
  signal: AbortSignal;
  name: string;
  jobId: string;
  stage: number;
  task: number;
  /** Counts from 1, over failures and lost workers. */
  attempt: number;
  /** The same over all attempts: for recognising, outside, what was done before. */
  taskKey: string;
  /** Of this attempt. */
  idempotencyKey: string;
  /** Tells people how far it is: 0 to 1. */
  progress(fraction: number, more?: { rows?: number; bytes?: number }): void;
}

/** What it returns is the task's result, as JSON. What it throws fails the attempt; see TaskError. */
export type Executor = (task: Task) => unknown;

/** Thrown by an executor, it says whether another attempt makes sense. Any other error can be retried. */
export class TaskError extends Error {
  readonly retryable: boolean;

  constructor(message: string, { retryable = false, cause }: { retryable?: boolean; cause?: unknown } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'TaskError';
    this.retryable = retryable;
  }
}

export interface WorkerOptions extends Omit<ConnectOptions, 'patienceMs'> {
  /** By the name that tasks give as their `executor`. */
  executors: Record<string, Executor>;
  /** Stable over restarts, and one for each process that runs. */
  id?: string;
  /** How many tasks run at the same time: 4 if it is not given. */
  slots?: number;
  /** For placement: { zone: 'a', gpu: 'nvidia', labels: ['ml'] }. */
  capabilities?: Record<string, Json>;
  /** Names of `required_custom_ops` that its executors serve. */
  operators?: string[];
  /** Gets a line for what a person may want to know. */
  log?: (line: string) => void;
}

// Messages are checked by the server, and each is read in one place below.
type Message = any;

interface Attempt {
  ref: Message;
  abort: AbortController;
  isExclusive: boolean;
  leaseMs: number;
  leaseTimer?: NodeJS.Timeout;
  isRunning: boolean;
  isDead: boolean; // stopped by an order: nothing is reported
  isReleased: boolean; // given back
  hasTimedOut: boolean;
  progress?: { fraction: number; rows: number; bytes: number };
}

interface Report {
  attempt: Attempt;
  content: Message;
  isReplaced?: boolean;
}

const keyOf = (ref: Message): string => ref.leaseToken.toString('hex');
const marginOf = (leaseMs: number) => Math.min(leaseMs / 10, 2000);

function bytesOf(result: unknown): Buffer {
  try {
    return Buffer.from(JSON.stringify(result ?? null) ?? 'null');
  } catch (cause) {
    throw new TaskError(`the result cannot be written as JSON: ${textOf(cause)}`, { cause });
  }
}

const textOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

export class Worker {
  readonly id: string;
  /** Settled when the worker has left; rejected if a newer process took its id. */
  readonly ended: Promise<void>;
  readonly #options: Required<Pick<WorkerOptions, 'executors' | 'slots' | 'capabilities' | 'operators' | 'log'>>;
  readonly #connection: Connection;
  readonly #incarnation = randomBytes(16).toString('hex');
  readonly #quit = new AbortController(); // ends all calls
  readonly #attempts = new Map<string, Attempt>(); // by token, until the report has been answered
  readonly #reports: Report[] = [];
  #settings: Message = {};
  #busy = 0; // slots
  #promised = 0; // capacity of the polls that are open
  #openPolls = 0;
  #capacityMax = Infinity;
  #hasStarted = false;
  #isLeaving = false;
  #silentSince: number | undefined; // the first heartbeat that failed
  #failure: Error | undefined; // why it ended, if it was not asked to
  #wakePolls = () => {};
  #wakeReporter = () => {};
  #settle!: { resolve: () => void; reject: (error: Error) => void };

  constructor({
    executors,
    id,
    slots = 4,
    capabilities = {},
    operators = [],
    log = () => {},
    ...connect
  }: WorkerOptions) {
    this.id = id ?? `${hostname()}-${process.pid}`;
    this.#options = { executors, slots, capabilities, operators, log };
    this.#connection = new Connection(connect);
    this.ended = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.ended.catch(() => {}); // whoever is interested waits for it
  }

  /** Registers, waiting for a coordinator as long as it takes, and works from then on. */
  async start({ signal }: { signal?: AbortSignal } = {}): Promise<this> {
    try {
      await this.#register(signal);
    } catch (error) {
      this.#connection.close();
      throw error;
    }
    this.#hasStarted = true;
    void Promise.all([this.#heartbeats(), this.#polls(), this.#reporter()])
      .finally(() => this.#connection.close())
      .then(
        () => (this.#failure ? this.#settle.reject(this.#failure) : this.#settle.resolve()),
        (error: Error) => this.#settle.reject(error),
      );
    return this;
  }

  /** How many tasks are under way. */
  get running(): number {
    return this.#attempts.size;
  }

  #call(method: string, request: object, options: object = {}): Promise<Message> {
    const identity = { workerId: this.id, incarnation: this.#incarnation };
    return this.#connection.call(method, { ...identity, ...request }, { signal: this.#quit.signal, ...options });
  }

  async #register(signal?: AbortSignal): Promise<void> {
    const { slots, operators, capabilities, executors } = this.#options;
    const request = {
      slots,
      executorTypes: Object.keys(executors),
      capabilitiesJson: JSON.stringify(capabilities),
      customOperatorCapabilities: operators,
      version: 'capstan-node',
    };
    this.#settings = await this.#call('RegisterWorker', request, {
      patienceMs: Infinity,
      ...(signal ? { signal } : {}),
    });
    this.#options.log(`registered as ${this.id}`);
  }

  // ---- heartbeats ----

  async #heartbeats(): Promise<void> {
    while (!this.#quit.signal.aborted) {
      const began = performance.now();
      try {
        await this.#beat();
        this.#silentSince = undefined;
      } catch (error) {
        this.#noteSilence(error);
      }
      await pause(began + this.#settings.heartbeatIntervalMs - performance.now(), this.#quit.signal);
    }
  }

  // Without a coordinator it goes on with what runs, for a time.
  #noteSilence(error: unknown): void {
    if (this.#quit.signal.aborted) return;
    this.#options.log(`heartbeat: ${textOf(error)}`);
    this.#silentSince ??= performance.now();
    if (performance.now() - this.#silentSince > this.#settings.orphanMs) {
      for (const attempt of this.#attempts.values()) if (attempt.isRunning) this.#release(attempt);
    }
  }

  async #beat(): Promise<void> {
    const named = [...this.#attempts.values()];
    const request = {
      atMs: Date.now(),
      runningTasks: this.#busy,
      running: named.map(({ ref }) => ref),
      progress: named.flatMap(({ ref, progress }) => (progress ? [{ ref, ...progress }] : [])),
      customOperatorCapabilities: this.#options.operators,
      load: Math.min(1, this.#busy / this.#options.slots),
      leaving: this.#isLeaving,
    };
    const sent = performance.now();
    const timeoutMs = Math.max(250, this.#settings.heartbeatIntervalMs);
    const answer = await this.#call('Heartbeat', request, { timeoutMs, once: true });
    if (answer.accepted) {
      this.#stop(answer.stop);
      for (const attempt of named) if (!attempt.isDead) this.#renew(attempt, sent);
    } else if (/superseded/.test(answer.reason)) {
      this.#supersede();
    } else if (/unknown worker/.test(answer.reason)) {
      await this.#register();
    }
  }

  #supersede(): void {
    this.#failure = new CapstanError('stale', `a newer process runs under the worker id ${this.id}`);
    this.#options.log(this.#failure.message);
    this.#stop([...this.#attempts.values()].map(({ ref }) => ref));
    this.#leave();
  }

  #leave(): void {
    this.#quit.abort();
    this.#wakePolls();
    this.#wakeReporter();
  }

  // ---- polls ----

  get #free(): number {
    return this.#isLeaving ? 0 : Math.max(0, this.#options.slots - this.#busy - this.#promised);
  }

  async #polls(): Promise<void> {
    while (!this.#quit.signal.aborted) {
      if (this.#openPolls === 0 || (this.#openPolls === 1 && this.#free > 0)) void this.#poll();
      await new Promise<void>((resolve) => {
        this.#wakePolls = resolve;
      });
    }
  }

  async #poll(): Promise<void> {
    const capacity = Math.min(this.#free, this.#capacityMax);
    const sent = performance.now();
    this.#promised += capacity;
    this.#openPolls++;
    try {
      const request = { capacity, waitMs: POLL_MS };
      const answer = await this.#call('GetTask', request, { waitMs: POLL_MS, once: true });
      this.#capacityMax = Infinity;
      this.#stop(answer.stop);
      for (const task of answer.tasks) void this.#take(task, sent + answer.waitedMs);
    } catch (error) {
      await this.#noteFailedPoll(error, capacity);
    }
    this.#promised -= capacity;
    this.#openPolls--;
    this.#wakePolls();
  }

  async #noteFailedPoll(error: unknown, capacity: number): Promise<void> {
    if (this.#quit.signal.aborted) return;
    const code = error instanceof CapstanError ? error.code : 'internal';
    if (code === 'stale' && /superseded/.test(textOf(error))) return this.#supersede();
    if (code !== 'unavailable') this.#options.log(`poll: ${textOf(error)}`);
    // Perhaps the answer was too large to be sent: its tasks come back, and then not all at once.
    if (code === 'resource_exhausted') this.#capacityMax = Math.max(1, Math.floor(capacity / 2));
    if (code === 'not_found') await this.#register().catch(() => {});
    await pause(POLL_PAUSE_MS, this.#quit.signal);
  }

  // ---- attempts ----

  async #take(assigned: Message, leaseFrom: number): Promise<void> {
    const { queryId, stageId, taskId, attempt: number, leaseToken } = assigned;
    const attempt: Attempt = {
      ref: { queryId, stageId, taskId, attempt: number, leaseToken },
      abort: new AbortController(),
      isExclusive: assigned.exclusive,
      leaseMs: assigned.leaseMs || this.#settings.leaseMs,
      isRunning: true,
      isDead: false,
      isReleased: false,
      hasTimedOut: false,
    };
    this.#attempts.set(keyOf(attempt.ref), attempt);
    this.#busy++;
    this.#renew(attempt, leaseFrom);
    const run = this.#run(assigned, attempt);
    const content = await this.#unlessStuck(run, attempt);
    attempt.isRunning = false;
    clearTimeout(attempt.leaseTimer);
    if (attempt.isDead) this.#attempts.delete(keyOf(attempt.ref));
    else this.#report({ attempt, content: this.#outcomeOf(attempt, assigned) ?? content });
    await run; // an executor that does not stop keeps its slot
    this.#busy--;
    this.#wakePolls();
  }

  // What became of an attempt that was told to stop; undefined: what its executor says.
  #outcomeOf(attempt: Attempt, { timeoutMs }: Message): Message | undefined {
    if (attempt.isReleased) return { state: 'TASK_STATE_QUEUED' };
    if (attempt.hasTimedOut) return { state: 'TASK_STATE_FAILED', message: `timed out after ${timeoutMs} ms` };
    return undefined;
  }

  // What the executor says, or nothing when it was told to stop and has not done so for the time that a process would have.
  // One that must never run twice at the same time is waited for.
  async #unlessStuck(run: Promise<Message>, { abort: { signal }, isExclusive }: Attempt): Promise<Message | undefined> {
    if (isExclusive) return run;
    let timer: NodeJS.Timeout | undefined;
    let wait = () => {};
    const stuck = new Promise<undefined>((resolve) => {
      wait = () => {
        timer = setTimeout(() => resolve(undefined), this.#settings.killGraceMs);
      };
    });
    signal.addEventListener('abort', wait);
    try {
      return await Promise.race([run, stuck]);
    } finally {
      signal.removeEventListener('abort', wait);
      clearTimeout(timer);
    }
  }

  // Runs it; what to report if nobody stops it.
  async #run(assigned: Message, attempt: Attempt): Promise<Message> {
    const { timeoutMs } = assigned;
    const expire = () => {
      attempt.hasTimedOut = true;
      attempt.abort.abort(new Error(`timed out after ${timeoutMs} ms`));
    };
    const timer = timeoutMs > 0 ? setTimeout(expire, Math.min(timeoutMs, 2 ** 31 - 1)) : undefined;
    try {
      const execute = this.#options.executors[assigned.executor];
      const missing = assigned.requiredCustomOps.find((name: string) => !this.#options.operators.includes(name));
      if (missing) throw new Error(`custom physical operator '${missing}' is not registered on worker`);
      if (!execute) throw new Error(`there is no executor '${assigned.executor}' here`);
      const result = await execute(this.#taskOf(assigned, attempt));
      return { state: 'TASK_STATE_SUCCEEDED', resultJson: bytesOf(result) };
    } catch (error) {
      const notRetryable = error instanceof TaskError && !error.retryable;
      return { state: 'TASK_STATE_FAILED', message: textOf(error), notRetryable };
    } finally {
      clearTimeout(timer);
    }
  }

  #taskOf(assigned: Message, attempt: Attempt): Task {
    return {
      inputs: JSON.parse(assigned.planFragmentJson.toString() || '{}'),
      signal: attempt.abort.signal,
      name: assigned.name,
      jobId: assigned.queryId,
      stage: assigned.stageId,
      task: assigned.taskId,
      attempt: assigned.attempt,
      taskKey: assigned.taskKey,
      idempotencyKey: assigned.idempotencyKey,
      progress: (fraction, { rows = 0, bytes = 0 } = {}) => {
        const within = Math.min(1, Math.max(0, Number(fraction) || 0));
        attempt.progress = {
          fraction: within,
          rows: Math.max(0, Math.floor(rows)),
          bytes: Math.max(0, Math.floor(bytes)),
        };
      },
    };
  }

  // A lease counts from before the call that got it left.
  #renew(attempt: Attempt, from: number): void {
    if (!attempt.isExclusive || !attempt.isRunning) return;
    clearTimeout(attempt.leaseTimer);
    const until = from + attempt.leaseMs - marginOf(attempt.leaseMs);
    attempt.leaseTimer = setTimeout(
      () => {
        this.#options.log(`${attempt.ref.queryId}: an exclusive task is stopped, its lease could not be renewed`);
        this.#release(attempt);
      },
      Math.max(0, until - performance.now()),
    );
  }

  #release(attempt: Attempt): void {
    attempt.isReleased = true;
    attempt.abort.abort(new Error('given back'));
  }

  #stop(refs: Message[]): void {
    for (const ref of refs) {
      const attempt = this.#attempts.get(keyOf(ref));
      if (!attempt) continue;
      attempt.isDead = true;
      attempt.abort.abort(new Error('stopped by the coordinator'));
      if (!attempt.isRunning) this.#attempts.delete(keyOf(ref));
    }
  }

  // ---- reports ----

  #report(report: Report): void {
    this.#reports.push(report);
    this.#wakeReporter();
  }

  async #reporter(): Promise<void> {
    while (!this.#quit.signal.aborted) {
      const batch = this.#reports.splice(0, REPORTS_MAX);
      if (batch.length > 0) {
        await this.#send(batch);
        continue;
      }
      await new Promise<void>((resolve) => {
        this.#wakeReporter = resolve;
      });
    }
  }

  // Until somebody has answered; meanwhile the attempts stay in the heartbeats.
  async #send(given: Report[]): Promise<void> {
    const batch = given.filter(({ attempt }) => !attempt.isDead);
    if (batch.length === 0) return;
    try {
      const reports = batch.map(({ attempt, content }) => ({ ref: attempt.ref, ...content }));
      const { outcomes } = await this.#call('ReportTaskStatus', { reports }, { patienceMs: Infinity });
      batch.forEach(({ attempt }, i) => {
        this.#attempts.delete(keyOf(attempt.ref));
        if (!outcomes[i]?.accepted) this.#options.log(`${attempt.ref.queryId}: refused: ${outcomes[i]?.reason}`);
      });
    } catch (error) {
      if (!this.#quit.signal.aborted) await this.#takeApart(batch, error);
    }
  }

  // A batch that is refused as a whole is sent one by one; the one that is to blame becomes a failure that says so.
  async #takeApart(batch: Report[], error: unknown): Promise<void> {
    const code = error instanceof CapstanError ? error.code : 'internal';
    this.#options.log(`report: ${textOf(error)}`);
    if (batch.length > 1) {
      for (const report of batch) await this.#send([report]);
      return;
    }
    const report = batch[0] as Report;
    if ((code === 'invalid_argument' || code === 'resource_exhausted') && !report.isReplaced) {
      report.isReplaced = true;
      report.content = {
        state: 'TASK_STATE_FAILED',
        message: `the result was refused: ${textOf(error)}`,
        notRetryable: true,
      };
    } else {
      await pause(POLL_PAUSE_MS * 2, this.#quit.signal);
    }
    this.#reports.push(report);
  }

  // ---- the end ----

  /**
   * Takes no more tasks, lets those that run end, or gives them back when `drain_timeout_ms` of the cluster is over (`now`:
   * at once), sees that every report is answered, and leaves.
   */
  async close({ now = false }: { now?: boolean } = {}): Promise<void> {
    if (!this.#hasStarted) {
      this.#connection.close();
      return;
    }
    if (!this.#isLeaving) {
      this.#isLeaving = true;
      this.#options.log('leaving');
      await this.#beat().catch(() => {});
      const until = performance.now() + (now ? 0 : this.#settings.drainTimeoutMs);
      const last = until + 2 * this.#settings.killGraceMs; // for executors that do not stop
      while (this.#attempts.size > 0 && performance.now() < last && !this.#quit.signal.aborted) {
        if (performance.now() >= until) {
          for (const attempt of this.#attempts.values()) if (attempt.isRunning) this.#release(attempt);
        }
        await pause(DRAIN_TICK_MS, this.#quit.signal);
      }
      if (!this.#quit.signal.aborted)
        await this.#call('DeregisterWorker', {}, { timeoutMs: GOODBYE_MS }).catch(() => {});
      this.#leave();
    }
    return this.ended;
  }
}
