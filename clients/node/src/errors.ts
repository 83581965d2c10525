// errors.ts - what can go wrong, as classes: each has a code of Capstan, and often a hint what to do.
import { Metadata, type ServiceError, status } from '@grpc/grpc-js';
import type { JobStatus } from './types.js';

/** The codes of Capstan, the same in every client, in HTTP answers and in the command line. */
export type ErrorCode =
  | 'invalid_argument'
  | 'not_found'
  | 'already_exists'
  | 'failed_precondition'
  | 'stale'
  | 'busy'
  | 'resource_exhausted'
  | 'unavailable'
  | 'deadline_exceeded'
  | 'canceled'
  | 'fenced'
  | 'permission_denied'
  | 'unauthenticated'
  | 'data_loss'
  | 'internal'
  | 'job_failed';

export interface ErrorDetails {
  /** What to do about it. */
  hint?: string | undefined;
  cause?: unknown;
}

/** Everything that this package throws, but for an abort: that throws the `reason` of its signal. */
export class CapstanError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, { hint, cause }: ErrorDetails = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = hint;
  }
}

/** The input is not valid: SQL that does not bind, a tree with errors, an unknown option. */
export class InvalidArgumentError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('invalid_argument', message, details);
  }
}
export class NotFoundError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('not_found', message, details);
  }
}
/** A job of that id exists and is another one. */
export class AlreadyExistsError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('already_exists', message, details);
  }
}
/** The state does not allow this: results of a job that runs, say. */
export class PreconditionError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('failed_precondition', message, details);
  }
}
export class ExhaustedError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('resource_exhausted', message, details);
  }
}
/** No coordinator answered, or none leads, for as long as there was patience. */
export class UnavailableError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('unavailable', message, details);
  }
}
/** `timeoutMs` is over. A job that was waited for goes on. */
export class DeadlineError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('deadline_exceeded', message, details);
  }
}
/** The token does not allow this. */
export class PermissionError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('permission_denied', message, details);
  }
}
/** There is no token, or a wrong one. */
export class UnauthenticatedError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('unauthenticated', message, details);
  }
}
/** Rows are lost with the worker that had them; a retry of the job makes them again. */
export class DataLossError extends CapstanError {
  constructor(message: string, details?: ErrorDetails) {
    super('data_loss', message, details);
  }
}
/** The job has ended, but not well: it failed or was canceled. */
export class JobFailedError extends CapstanError {
  /** How it ended. */
  readonly status: JobStatus;

  constructor(job: JobStatus) {
    const how = job.state === 'canceled' ? 'was canceled' : 'failed';
    super('job_failed', `job ${job.jobId} ${how}${job.message === '' ? '' : `: ${job.message}`}`);
    this.status = job;
  }
}

type ErrorClass = new (message: string, details?: ErrorDetails) => CapstanError;

const classes: Partial<Record<ErrorCode, ErrorClass>> = {
  invalid_argument: InvalidArgumentError,
  not_found: NotFoundError,
  already_exists: AlreadyExistsError,
  failed_precondition: PreconditionError,
  resource_exhausted: ExhaustedError,
  unavailable: UnavailableError,
  busy: UnavailableError,
  fenced: UnavailableError,
  deadline_exceeded: DeadlineError,
  permission_denied: PermissionError,
  unauthenticated: UnauthenticatedError,
  data_loss: DataLossError,
};

const codes: Partial<Record<status, ErrorCode>> = {
  [status.CANCELLED]: 'canceled',
  [status.INVALID_ARGUMENT]: 'invalid_argument',
  [status.OUT_OF_RANGE]: 'invalid_argument',
  [status.DEADLINE_EXCEEDED]: 'deadline_exceeded',
  [status.NOT_FOUND]: 'not_found',
  [status.ALREADY_EXISTS]: 'already_exists',
  [status.PERMISSION_DENIED]: 'permission_denied',
  [status.RESOURCE_EXHAUSTED]: 'resource_exhausted',
  [status.FAILED_PRECONDITION]: 'failed_precondition',
  [status.ABORTED]: 'stale',
  [status.UNAVAILABLE]: 'unavailable',
  [status.DATA_LOSS]: 'data_loss',
  [status.UNAUTHENTICATED]: 'unauthenticated',
};

export function makeError(code: ErrorCode, message: string, details?: ErrorDetails): CapstanError {
  const Class = classes[code];
  return Class ? new Class(message, details) : new CapstanError(code, message, details);
}

/** One text of the trailing metadata, in which bytes that are not plain ASCII travel as %XX. */
export function trailerOf(error: { metadata?: Metadata }, key: string): string | undefined {
  const value = error.metadata?.get(key)[0];
  if (value === undefined) return undefined;
  const text = value.toString();
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What a server of Capstan, or gRPC on its behalf, says. */
export function errorOf(error: ServiceError): CapstanError {
  const hint = trailerOf(error, 'capstan-hint');
  const missing = 'give the client a token: connect({ token })';
  const code = codes[error.code] ?? 'internal';
  return makeError(code, error.details || error.message, {
    hint: hint ?? (code === 'unauthenticated' ? missing : undefined),
    cause: error,
  });
}
