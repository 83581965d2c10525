// Capstan for Node.js: jobs for a cluster, and workers of one's own. README.md has examples.
export { loadArrow, type Row, type RowOptions, rowsOf } from './arrow.js';
export {
  Client,
  connect,
  type EventOptions,
  Job,
  newId,
  type Params,
  type QueryOptions,
  type SubmitOptions,
  type WaitOptions,
} from './client.js';
export { type ConnectOptions, protocol, type TlsOptions } from './connection.js';
export {
  AlreadyExistsError,
  CapstanError,
  DataLossError,
  DeadlineError,
  type ErrorCode,
  type ErrorDetails,
  ExhaustedError,
  InvalidArgumentError,
  JobFailedError,
  NotFoundError,
  PermissionError,
  PreconditionError,
  UnauthenticatedError,
  UnavailableError,
} from './errors.js';
export type * from './types.js';
export { type Executor, type Task, TaskError, Worker, type WorkerOptions } from './worker.js';
