// types.ts - what goes in and what comes out. Names follow proto/capstan.proto in camel case; a query's id is a job's id.

export type JobState = 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';
export type TaskState = JobState | 'skipped';

/** Any value that JSON can hold. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** 0 urgent, 1 high, 2 normal, 3 low. */
export type Priority = 0 | 1 | 2 | 3;

/** A task of a tree; docs/task-trees.md explains every field. */
export interface TreeTask {
  name: string;
  executor: string;
  inputs?: Record<string, unknown>;
  depends_on?: (string | { task: string; required?: boolean })[];
  timeout_ms?: number;
  exclusive?: boolean;
  retry?: { max_attempts?: number; backoff_ms?: number };
  placement?: {
    requires_executors?: string[];
    requires_capabilities?: Record<string, string | number | boolean>;
    allowed_nodes?: string[];
    forbidden_nodes?: string[];
    max_parallel_per_node?: number;
  };
  required_custom_ops?: string[];
  [more: string]: unknown;
}

export interface Tree {
  name?: string;
  priority?: Priority;
  on_failure?: 'continue' | 'stop';
  tasks: TreeTask[];
  [more: string]: unknown;
}

export interface StageStatus {
  stageId: number;
  name: string;
  parents: number[];
  tasks: number;
  queued: number;
  running: number;
  succeeded: number;
  failed: number;
  canceled: number;
  skipped: number;
  /** Of what is done, and of what running tasks told with the last heartbeat. */
  rows: number;
  bytes: number;
  /** 0 to 1: how much of its tasks is done. */
  fraction: number;
}

/** Times are milliseconds since 1970; 0: not yet. */
export interface JobStatus {
  jobId: string;
  kind: 'query' | 'tree';
  name: string;
  state: JobState;
  message: string;
  submittedAtMs: number;
  startedAtMs: number;
  finishedAtMs: number;
  /** Only where one job is asked for, and it has not more than 1,000. */
  stages: StageStatus[];
}

export interface TaskStatus {
  jobId: string;
  stage: number;
  task: number;
  attempt: number;
  name: string;
  state: TaskState;
  workerId: string;
  message: string;
  startedAtMs: number;
  finishedAtMs: number;
  failures: number;
  rows: number;
  bytes: number;
  /** What its executor returned; undefined if there is nothing. */
  result: Json | undefined;
}

export interface PendingReason {
  stage: number;
  task: number;
  /** How many tasks wait for this. */
  tasks: number;
  reason: string;
}

export interface JobEvent {
  /** Only grows: events after this one are asked for with `after: seq`. */
  seq: number;
  atMs: number;
  /** created, pending, assigned, started, completed, failed, reassigned, cancelled, retried, skipped, stuck, ... */
  type: string;
  /** '' for events of nodes. */
  jobId: string;
  /** Events of a job as a whole have attempt 0. */
  stage: number;
  task: number;
  attempt: number;
  workerId: string;
  details: Json | undefined;
  /** Events before this one were removed, and were not seen. */
  resync: boolean;
}

export interface Node {
  workerId: string;
  address: string;
  status: 'healthy' | 'stale' | 'dead';
  blacklisted: boolean;
  draining: boolean;
  slots: number;
  runningTasks: number;
  failures: number;
  lastSeenMs: number;
  executorTypes: string[];
  capabilities: Json | undefined;
  operators: string[];
  version: string;
}

export interface Leader {
  nodeId: string;
  address: string;
  epoch: number;
  role: string;
}

export interface Table {
  name: string;
  /** A path, glob or URL. */
  source: string;
  format: string;
}

/** For every call. */
export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. What was asked for may still happen. */
  signal?: AbortSignal | undefined;
  /** For the call as a whole, with all that is tried again. */
  timeoutMs?: number | undefined;
}
