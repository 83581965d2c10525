// The HTTP API, as docs/http-api.md describes it: types of what comes back, calls, the token.

export type JobState = 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';
export type TaskState = JobState | 'skipped';

export interface Stage {
  stage: number;
  name: string | null;
  parents: number[];
  tasks: number;
  queued: number;
  running: number;
  succeeded: number;
  failed: number;
  canceled: number;
  skipped: number;
  rows: number;
  bytes: number;
  fraction: number; // 0 to 1: how much of it is done, with what running tasks have done so far
}

export interface Job {
  job_id: string;
  state: JobState;
  kind: 'query' | 'tree';
  name: string | null;
  submitted_at_ms: number | null;
  started_at_ms: number | null;
  finished_at_ms: number | null;
  message: string | null;
  stages?: Stage[];
}

export interface Task {
  name: string | null;
  stage: number;
  task: number;
  attempt: number | null;
  state: TaskState;
  worker_id: string | null;
  message: string | null;
  started_at_ms: number | null;
  finished_at_ms: number | null;
  failures: number;
  rows: number;
  bytes: number;
  result: unknown;
}

export interface Node {
  worker_id: string;
  address: string | null;
  status: 'healthy' | 'stale' | 'dead';
  blacklisted: boolean;
  draining: boolean;
  slots: number;
  running_tasks: number;
  failures: number;
  last_seen_ms: number | null;
  executor_types: string[];
  capabilities: Record<string, unknown>;
  custom_operator_capabilities: string[];
  version: string | null;
}

export interface Leader {
  node_id: string | null;
  address: string | null;
  epoch: number;
  role: 'leader' | 'standby' | 'observer' | null;
  staleness_ms: number;
}

export interface Overview {
  jobs_queued: number;
  jobs_running: number;
  jobs_succeeded: number;
  jobs_failed: number;
  jobs_canceled: number;
  tasks_queued: number;
  tasks_running: number;
  stuck_tasks: number;
  leases: number;
  attempts_completed: number;
  attempts_failed: number;
  attempts_lost: number;
  nodes_healthy: number;
  nodes_stale: number;
  nodes_dead: number;
  slots: number;
  slots_busy: number;
}

export interface CapstanEvent {
  seq: number;
  at_ms: number;
  type: string;
  job_id: string | null;
  stage: number | null;
  task: number | null;
  attempt: number | null;
  worker_id: string | null;
  details: unknown;
  resync?: boolean;
}

export interface Reason {
  stage: number;
  task: number;
  attempt: number | null;
  reason: string;
  tasks: number;
}

export interface TableSet {
  name: string;
  source: string;
  format: string | null;
}

export interface Column {
  name: string;
  type: string;
}

export type Cell = string | number | boolean | null | Cell[] | { [name: string]: Cell };

export interface Rows {
  columns: Column[];
  rows: Cell[][];
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly detail: string | null;
  readonly hint: string | null;
  readonly leader: string | null;

  constructor(status: number, body: { code?: string; message?: string; detail?: string | null; hint?: string | null; leader?: string | null }) {
    super(body.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.code = body.code ?? 'unknown';
    this.detail = body.detail ?? null;
    this.hint = body.hint ?? null;
    this.leader = body.leader ?? null;
  }
}

// ---- the token ----

const TOKEN_KEY = 'capstan-token';
let onRefused: () => void = () => {};

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY),
  set: (value: string) => sessionStorage.setItem(TOKEN_KEY, value),
  forget: () => sessionStorage.removeItem(TOKEN_KEY),
  // Calls back when the server wants a token, or another one.
  whenRefused: (fn: () => void) => {
    onRefused = fn;
  },
};

// The address that `capstan up` prints carries the token behind the #, which browsers never send. It is taken out of the
// address at once, so that it stays in no history and on no screen.
export function takeTokenFromAddress(): void {
  const found = /^#token=([^&]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  token.set(decodeURIComponent(found[1]!));
  history.replaceState(null, '', `${location.pathname}#${found[2] ?? '/'}`);
}

// ---- calls ----

export function headers(more: Record<string, string> = {}): Record<string, string> {
  const own = token.get();
  return own ? { ...more, Authorization: `Bearer ${own}` } : more;
}

async function failure(response: Response): Promise<ApiError> {
  let body: { error?: object } = {};
  try {
    body = (await response.json()) as { error?: object };
  } catch {
    // not ours: a proxy, or a connection that broke
  }
  if (response.status === 401) onRefused();
  return new ApiError(response.status, body.error ?? {});
}

export async function request(path: string, options: RequestInit = {}): Promise<Response> {
  const init: RequestInit = { ...options, headers: headers(options.headers as Record<string, string> | undefined) };
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    throw new ApiError(0, { code: 'unreachable', message: 'the coordinator cannot be reached', hint: 'is it running?' });
  }
  if (!response.ok) throw await failure(response);
  return response;
}

type Signal = AbortSignal | undefined;

export async function get<T>(path: string, signal?: Signal): Promise<T> {
  return (await (await request(path, signal ? { signal } : {})).json()) as T;
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  const init = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  return (await (await request(path, init)).json()) as T;
}

export function query(values: Record<string, string | number | boolean | null | undefined>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== '') parts.set(name, String(value));
  }
  const text = parts.toString();
  return text === '' ? '' : `?${text}`;
}

const job = (id: string) => `/v1/jobs/${encodeURIComponent(id)}`;

export const api = {
  leader: (signal?: Signal) => get<Leader>('/v1/leader', signal),
  overview: (signal?: Signal) => get<Overview>('/v1/overview', signal),
  jobs: (filter: { state?: string; name?: string; limit?: number; after?: string | null }, signal?: Signal) =>
    get<{ jobs: Job[]; next: string | null }>(`/v1/jobs${query(filter)}`, signal),
  job: (id: string, signal?: Signal, waitMs?: number) => get<Job>(`${job(id)}${query({ wait_ms: waitMs })}`, signal),
  tasks: (
    id: string,
    filter: { state?: string; limit?: number; after?: string | null; without_results?: boolean },
    signal?: Signal,
  ) => get<{ tasks: Task[]; next: string | null }>(`${job(id)}/tasks${query(filter)}`, signal),
  why: (id: string, signal?: Signal) => get<{ reasons: Reason[] }>(`${job(id)}/why`, signal),
  rows: (id: string, offset: number, limit: number, signal?: Signal) =>
    get<Rows>(`${job(id)}/results${query({ offset, limit })}`, signal),
  results: (id: string, signal?: Signal) => get<Record<string, unknown>>(`${job(id)}/results`, signal),
  resultsPath: (id: string, format: string) => `${job(id)}/results?format=${format}`,
  cancel: (id: string) => post<{ state: JobState }>(`${job(id)}/cancel`, { reason: 'canceled in the dashboard' }),
  retry: (id: string, from?: string) =>
    post<{ state: JobState }>(`${job(id)}/retry`, from === undefined ? {} : { from_task: from }),
  submit: (body: { sql: string; explain?: boolean }) => post<{ job_id: string }>('/v1/queries', body),
  nodes: (signal?: Signal) => get<{ nodes: Node[] }>('/v1/nodes', signal),
  setNode: (id: string, what: 'drain' | 'undrain' | 'clear') =>
    post<Node | null>(`/v1/nodes/${encodeURIComponent(id)}/${what}`),
  tables: (signal?: Signal) => get<{ tables: TableSet[] }>('/v1/tables', signal),
};

export const hasEnded = (state: string) => state !== 'queued' && state !== 'running';
