// client.ts - jobs: submit, wait, results, events; and what a cluster has.
import { randomBytes } from 'node:crypto';
import type * as Arrow from 'apache-arrow';
import { type ArrowModule, loadArrow, type Row, type RowOptions, rowsOf } from './arrow.js';
import { Connection, type ConnectOptions, pause } from './connection.js';
import { DeadlineError, InvalidArgumentError, JobFailedError } from './errors.js';
import type {
  CallOptions,
  JobEvent,
  JobState,
  JobStatus,
  Json,
  Leader,
  Node,
  PendingReason,
  Priority,
  StageStatus,
  Table,
  TaskState,
  TaskStatus,
  Tree,
} from './types.js';

const WAIT_MS = 20000; // how long a coordinator holds a call that waits
const PATIENCE_MS = 60000; // with coordinators that were there before
const PAGE = 1000;
const REOPEN_MS = 200;

// ---- from messages ----

// Messages are checked by the server, and each is read in one place below.
type Message = any;

const stateOf = (text: string): TaskState => text.replace(/^(QUERY|TASK)_STATE_/, '').toLowerCase() as TaskState;

function jsonOf(bytes: Buffer | string): Json | undefined {
  if (bytes.length === 0) return undefined;
  const text = bytes.toString();
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

function jobOf({ queryId, state, kind, name, message, submittedAtMs, startedAtMs, finishedAtMs, stages }: Message) {
  const status: JobStatus = {
    jobId: queryId,
    kind,
    name,
    state: stateOf(state) as JobState,
    message,
    submittedAtMs,
    startedAtMs,
    finishedAtMs,
    stages: stages as StageStatus[],
  };
  return status;
}

function taskOf(message: Message): TaskStatus {
  const { ref, state, resultJson, ...rest } = message;
  const { queryId: jobId, stageId: stage, taskId: task, attempt } = ref;
  return { jobId, stage, task, attempt, ...rest, state: stateOf(state), result: jsonOf(resultJson) };
}

function eventOf({ seq, atMs, type, ref, workerId, details, resync }: Message): JobEvent {
  const { queryId = '', stageId = 0, taskId = 0, attempt = 0 } = ref ?? {};
  return {
    seq,
    atMs,
    type,
    jobId: queryId,
    stage: stageId,
    task: taskId,
    attempt,
    workerId,
    details: jsonOf(details),
    resync,
  };
}

const hasEnded = (state: JobState) => state === 'succeeded' || state === 'failed' || state === 'canceled';

// The event that says that a job has ended is about no attempt.
const isEnd = ({ type, attempt }: JobEvent) => attempt === 0 && /^(completed|failed|cancelled)$/.test(type);

/**
 * JSON with whole numbers of any size and with dates: what `JSON.stringify` makes of all other values. Parameters of SQL
 * go this way.
 */
export function toJson(value: unknown): string {
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new InvalidArgumentError(`${value} is not a number that JSON can hold`, {
      hint: `give it as the text '${value}'`,
    });
  }
  if (Array.isArray(value)) return `[${value.map((item) => toJson(item ?? null)).join(',')}]`;
  if (typeof value === 'object' && value !== null && !('toJSON' in value)) {
    const pairs = Object.entries(value).filter(([, item]) => item !== undefined);
    return `{${pairs.map(([name, item]) => `${JSON.stringify(name)}:${toJson(item)}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}

/** A UUID of version 7: its beginning is the time, so that ids sort by it. */
export function newId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

// ---- options ----

export interface SubmitOptions extends CallOptions {
  /** Made here if it is not given, so that a submit whose answer is lost finds its job when it is sent again. */
  id?: string;
  /** A second submit with the same key returns the first one's job, for 24 hours. */
  key?: string;
}

export interface QueryOptions extends SubmitOptions {
  priority?: Priority;
  /** Settings of this query instead of the coordinator's: partitions, single_task_bytes, ... */
  settings?: Record<string, unknown>;
  /** Only the plan: one row, with the columns `explain` and `plan`. */
  explain?: boolean;
}

/** By place ($1) or by name ($name). */
export type Params = readonly unknown[] | Record<string, unknown>;

export interface WaitOptions extends CallOptions {
  /** After an abort or when the time is up, cancel the job instead of leaving it running. */
  cancelOnAbort?: boolean;
  /** Also return if the job failed or was canceled, instead of throwing JobFailedError. */
  orFailure?: boolean;
}

export interface EventOptions extends CallOptions {
  /** Only events with a larger number. */
  after?: number;
  /** Go on with what happens from now on: of one job until it has ended, else until the signal. */
  follow?: boolean;
}

// ---- a job ----

/** One job of the cluster, whoever submitted it. It costs nothing to make one: `client.job(id)`. */
export class Job {
  readonly id: string;
  /** Whether the submit found a job that was there before. */
  readonly existed: boolean;
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, id: string, existed = false) {
    this.#connection = connection;
    this.id = id;
    this.existed = existed;
  }

  async status(options: CallOptions = {}): Promise<JobStatus> {
    return this.#ask(0, options);
  }

  async #ask(waitMs: number, options: CallOptions): Promise<JobStatus> {
    const { status } = (await this.#connection.call(
      'GetQueryStatus',
      { queryId: this.id, waitMs },
      { ...options, waitMs, ...(waitMs > 0 ? { patienceMs: PATIENCE_MS } : {}) },
    )) as Message;
    return jobOf(status);
  }

  /** Waits until the job has ended, however long that takes; throws JobFailedError if it ended badly. */
  async wait({ cancelOnAbort = false, orFailure = false, signal, timeoutMs }: WaitOptions = {}): Promise<JobStatus> {
    const end = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    try {
      for (;;) {
        const left = end - performance.now();
        if (left <= 0) throw new DeadlineError(`job ${this.id} has not ended in ${timeoutMs} ms`);
        const status = await this.#ask(Math.ceil(Math.min(WAIT_MS, left)), { signal });
        if (!hasEnded(status.state)) continue;
        if (status.state !== 'succeeded' && !orFailure) throw new JobFailedError(status);
        return status;
      }
    } catch (error) {
      if (cancelOnAbort && (signal?.aborted || error instanceof DeadlineError)) await this.cancel('the client gave up');
      throw error;
    }
  }

  async cancel(reason = '', options: CallOptions = {}): Promise<JobState> {
    const answer = (await this.#connection.call('CancelQuery', { queryId: this.id, reason }, options)) as Message;
    return stateOf(answer.state) as JobState;
  }

  /** Runs what failed and was skipped once more; `fromTask`: that task and all that depend on it. */
  async retry(fromTask = '', options: CallOptions = {}): Promise<JobState> {
    const answer = (await this.#connection.call('RetryJob', { queryId: this.id, fromTask }, options)) as Message;
    return stateOf(answer.state) as JobState;
  }

  /** Why its queued tasks are not running. */
  async why(options: CallOptions = {}): Promise<PendingReason[]> {
    const { reasons } = (await this.#connection.call('WhyPending', { queryId: this.id }, options)) as Message;
    return reasons.map(({ ref, reason, tasks }: Message) => ({
      stage: ref?.stageId ?? 0,
      task: ref?.taskId ?? 0,
      tasks,
      reason,
    }));
  }

  async *tasks({ state = '', ...options }: CallOptions & { state?: TaskState | '' } = {}): AsyncGenerator<TaskStatus> {
    let after = '';
    do {
      const request = { queryId: this.id, state, limit: PAGE, after };
      const page = (await this.#connection.call('ListTasks', request, options)) as Message;
      for (const task of page.tasks) yield taskOf(task);
      after = page.next;
    } while (after !== '');
  }

  /**
   * What happened, oldest first; with `follow` until the job has ended and nobody has retried it. Goes on by itself where a
   * connection broke.
   */
  async *events(options: EventOptions = {}): AsyncGenerator<JobEvent> {
    for await (const event of eventsOf(this.#connection, this.id, options)) {
      yield event;
      if (options.follow && isEnd(event) && !(await this.#isUndone(event, options))) return;
    }
  }

  // Whether the job was retried after this end of it: then the events behind it say so.
  async #isUndone(end: JobEvent, { signal, timeoutMs }: EventOptions): Promise<boolean> {
    let afterSeq = end.seq;
    const request = () => ({ queryId: this.id, afterSeq, follow: false });
    const options = { signal, timeoutMs, patienceMs: PATIENCE_MS };
    for await (const message of this.#connection.stream('WatchEvents', request, options)) {
      const { seq, type, attempt } = eventOf(message);
      if (attempt === 0 && type === 'retried') return true;
      afterSeq = seq;
    }
    return false;
  }

  /** The bytes of the result as they come: of a query one Arrow stream, of a tree one JSON object. */
  async *bytes(options: CallOptions = {}): AsyncGenerator<Uint8Array> {
    let offset = 0;
    const chunks = this.#connection.stream('FetchQueryResults', () => ({ queryId: this.id, offset }), options);
    for await (const { payload } of chunks as AsyncIterable<Message>) {
      offset += payload.length;
      yield payload as Uint8Array;
    }
  }

  /** Of a tree: what its tasks returned, by their names. */
  async results<T = Record<string, Json>>(options: CallOptions = {}): Promise<T> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.bytes(options)) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    if (bytes[0] !== 0x7b) {
      throw new InvalidArgumentError(`job ${this.id} is a query`, { hint: 'ask for its rows() or toArray()' });
    }
    return JSON.parse(bytes.toString()) as T;
  }

  /** Of a query: a reader of Arrow's record batches. Needs the package apache-arrow. */
  async arrow(options: CallOptions = {}): Promise<Arrow.AsyncRecordBatchStreamReader> {
    const arrow: ArrowModule = await loadArrow();
    const reader = await arrow.RecordBatchReader.from(this.bytes(options));
    return (await reader.open()) as Arrow.AsyncRecordBatchStreamReader;
  }

  /**
   * Of a query: its rows as objects, as they come, a few thousand at a time; memory stays flat. Needs the package
   * apache-arrow.
   */
  async *batches<T extends object = Row>({ bigints, ...options }: CallOptions & RowOptions = {}): AsyncGenerator<T[]> {
    const arrow = await loadArrow();
    for await (const batch of await this.arrow(options)) {
      yield rowsOf(arrow, batch, bigints === undefined ? {} : { bigints }) as T[];
    }
  }

  /** The same one by one. Of many rows, `batches` is faster. */
  async *rows<T extends object = Row>(options: CallOptions & RowOptions = {}): AsyncGenerator<T> {
    for await (const batch of this.batches<T>(options)) {
      for (const row of batch) yield row;
    }
  }

  /** Of a query: all rows at once. */
  async toArray<T extends object = Row>(options: CallOptions & RowOptions = {}): Promise<T[]> {
    const rows: T[] = [];
    for await (const batch of this.batches<T>(options)) for (const row of batch) rows.push(row);
    return rows;
  }
}

async function* eventsOf(
  connection: Connection,
  queryId: string,
  { after = 0, follow = false, ...options }: EventOptions,
) {
  let afterSeq = after;
  for (;;) {
    const request = () => ({ queryId, afterSeq, follow });
    const patience = follow && afterSeq > after ? { patienceMs: PATIENCE_MS } : {};
    for await (const message of connection.stream('WatchEvents', request, { ...options, ...patience })) {
      const event = eventOf(message);
      if (event.seq > afterSeq) afterSeq = event.seq;
      yield event;
    }
    if (!follow) return;
    await pause(REOPEN_MS, options.signal); // its coordinator leads no more, and ended the stream
    options.signal?.throwIfAborted();
  }
}

// ---- the client ----

export class Client {
  readonly #connection: Connection;

  constructor(options: ConnectOptions = {}) {
    this.#connection = new Connection(options);
  }

  /** The coordinator that is asked at the moment. */
  get server(): string {
    return this.#connection.server;
  }

  /** Ends all connections, and what is under way over them. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Submits a task tree. When this returns, the job is durable. */
  async submit(tree: Tree, { id = newId(), key = '', ...options }: SubmitOptions = {}): Promise<Job> {
    const request = { jobId: id, treeJson: Buffer.from(toJson(tree)), idempotencyKey: key };
    const { jobId, existed } = (await this.#connection.call('SubmitTasks', request, options)) as Message;
    return new Job(this.#connection, jobId, existed);
  }

  /** Submits SQL. When this returns, the job is durable; its rows are there when it has ended. */
  async query(sql: string, params?: Params, options: QueryOptions = {}): Promise<Job> {
    return this.#submitQuery({ sql }, params, options);
  }

  /** Submits a physical plan, such as `capstan sql --explain -o json` prints. */
  async plan(plan: object, options: QueryOptions = {}): Promise<Job> {
    return this.#submitQuery({ physicalPlanJson: Buffer.from(toJson(plan)) }, undefined, options);
  }

  async #submitQuery(what: object, params: Params | undefined, given: QueryOptions): Promise<Job> {
    const { id = newId(), key = '', priority, settings, explain = false, ...options } = given;
    const request = {
      ...what,
      queryId: id,
      idempotencyKey: key,
      paramsJson: params === undefined ? '' : toJson(params),
      optionsJson: settings === undefined ? '' : toJson(settings),
      prioritySet: priority !== undefined,
      priority: priority ?? 0,
      explain,
    };
    const { queryId, existed } = (await this.#connection.call('SubmitQuery', request, options)) as Message;
    return new Job(this.#connection, queryId, existed);
  }

  /** Submits a tree, waits for its end, and returns what its tasks returned. An abort cancels the job. */
  async run<T = Record<string, Json>>(tree: Tree, options: SubmitOptions = {}): Promise<T> {
    const job = await this.submit(tree, options);
    await job.wait({ ...options, cancelOnAbort: true });
    return job.results<T>({ signal: options.signal });
  }

  /** Submits SQL, waits for its end, and returns all rows. An abort cancels the query. Needs the package apache-arrow. */
  async sql<T extends object = Row>(
    sql: string,
    params?: Params,
    options: QueryOptions & RowOptions = {},
  ): Promise<T[]> {
    const { bigints, ...rest } = options;
    await loadArrow(); // before anything runs
    const job = await this.query(sql, params, rest);
    await job.wait({ ...rest, cancelOnAbort: true });
    return job.toArray<T>({ signal: options.signal, ...(bigints === undefined ? {} : { bigints }) });
  }

  /** The job of that id, which is not asked for. */
  job(id: string): Job {
    return new Job(this.#connection, id);
  }

  /** Jobs, the newest first, page by page as they are read. */
  async *jobs(filter: CallOptions & { state?: JobState; name?: string } = {}): AsyncGenerator<JobStatus> {
    const { state = '', name = '', ...options } = filter;
    let after = '';
    do {
      const request = { state, name, limit: PAGE, after };
      const page = (await this.#connection.call('ListJobs', request, options)) as Message;
      for (const job of page.jobs) yield jobOf(job);
      after = page.next;
    } while (after !== '');
  }

  /** Events of all jobs and nodes. */
  events(options: EventOptions = {}): AsyncGenerator<JobEvent> {
    return eventsOf(this.#connection, '', options);
  }

  async nodes(
    filter: CallOptions & { executor?: string; capability?: string; operator?: string } = {},
  ): Promise<Node[]> {
    const { executor = '', capability = '', operator = '', ...options } = filter;
    const request = { executor, capability, operator };
    const { nodes } = (await this.#connection.call('ListNodes', request, options)) as Message;
    return nodes.map(({ capabilitiesJson, customOperatorCapabilities, ...node }: Message) => ({
      ...node,
      capabilities: jsonOf(capabilitiesJson),
      operators: customOperatorCapabilities,
    }));
  }

  /** Takes a node out of use when it has finished what it does, or back into use. */
  async drain(workerId: string, draining = true, options: CallOptions = {}): Promise<void> {
    await this.#connection.call('SetNode', { workerId, setDraining: true, draining }, options);
  }

  /** Forgets the failures for which a node was blacklisted. */
  async clear(workerId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call('SetNode', { workerId, clearBlacklist: true }, options);
  }

  async leader(options: CallOptions = {}): Promise<Leader> {
    const { nodeId, address, epoch, role } = (await this.#connection.call('GetLeader', {}, options)) as Message;
    return { nodeId, address, epoch, role };
  }

  /** Named data sets, which SQL can use as tables. */
  async tables(options: CallOptions = {}): Promise<Table[]> {
    return ((await this.#connection.call('ListTables', {}, options)) as Message).tables;
  }

  async putTable(name: string, source: string, { format = '', ...options }: CallOptions & { format?: string } = {}) {
    await this.#connection.call('PutTable', { table: { name, source, format } }, options);
  }

  async deleteTable(name: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call('DeleteTable', { name }, options);
  }
}

/** A client. It connects at its first call. */
export const connect = (options: ConnectOptions = {}): Client => new Client(options);
