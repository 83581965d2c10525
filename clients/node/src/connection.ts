// connection.ts - calls that find the leader by themselves.
//
// Of several coordinators one leads. The others refuse with FAILED_PRECONDITION and name it in the trailing metadata
// `capstan-leader`; one that is away answers UNAVAILABLE, or nothing. So a call goes from server to server until one
// serves it or the patience is over. Every call of the protocol may be sent again: ids are chosen by the client, and
// reports quote a lease.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import grpc, { type ServiceError } from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';
import {
  type CapstanError,
  DeadlineError,
  errorOf,
  InvalidArgumentError,
  trailerOf,
  UnavailableError,
} from './errors.js';
import { findToken } from './tokens.js';
import type { CallOptions } from './types.js';

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;
const TRY_MS = 30000; // for an answer that needs no waiting
const PAUSE_MS_MIN = 25;
const PAUSE_MS_MAX = 500;
const SERVERS_MAX = 64;
const ELECTION_PATIENCE = 3; // where somebody answers that nobody leads, the patience is so many times as long
const CONNECTED_MS = 6000; // a try that lasted longer had a connection, and waited for an answer

/** How to connect with TLS; texts or bytes of PEM files. `true` stands for the machine's own authorities. */
export interface TlsOptions {
  ca?: string | Buffer;
  cert?: string | Buffer;
  key?: string | Buffer;
}

export interface ConnectOptions {
  /** 'HOST:PORT,HOST:PORT...' or a list; else CAPSTAN_SERVER, else 127.0.0.1:7400. */
  servers?: string | readonly string[] | undefined;
  /** Else CAPSTAN_TOKEN, else the one that `capstan up` has left for this user; '' for none. */
  token?: string | undefined;
  tls?: boolean | TlsOptions | undefined;
  /** How long a call looks for a coordinator that leads and answers: 10 s if it is not given. */
  patienceMs?: number | undefined;
}

export interface Request extends CallOptions {
  /** How long the server may hold the call. */
  waitMs?: number;
  patienceMs?: number;
  /** One server, one try. */
  once?: boolean;
}

type Message = Record<string, unknown>;

const protoFile = fileURLToPath(new URL('./capstan.proto', import.meta.url));
const definitions = protoLoader.loadSync(protoFile, { longs: Number, enums: String, bytes: Buffer, defaults: true });
// Which path and codecs a method has: { SubmitTasks: { path, requestSerialize, ... }, ... }.
const methods = new Map<string, grpc.MethodDefinition<Message, Message>>(
  Object.values(definitions).flatMap((service) =>
    'format' in service
      ? []
      : Object.entries(service as unknown as Record<string, grpc.MethodDefinition<Message, Message>>),
  ),
);

export const pause = (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done);
  });

function serversOf(given: ConnectOptions['servers']): string[] {
  const text = given ?? process.env['CAPSTAN_SERVER'] ?? '127.0.0.1:7400';
  const servers = (typeof text === 'string' ? text.split(',') : [...text]).map((server) => server.trim());
  const wrong = servers.find((server) => !/^(\[[0-9a-fA-F:.]+\]|[^\s:[\]]+):\d{1,5}$/.test(server));
  if (servers.length === 0 || wrong !== undefined) {
    throw new InvalidArgumentError(`servers: '${wrong ?? ''}' is not an address`, { hint: 'give HOST:PORT, ...' });
  }
  return servers;
}

function credentialsOf(tls: ConnectOptions['tls']): grpc.ChannelCredentials {
  if (!tls) return grpc.credentials.createInsecure();
  const { ca, cert, key } = tls === true ? ({} as TlsOptions) : tls;
  if ((cert === undefined) !== (key === undefined)) throw new InvalidArgumentError('tls: cert and key belong together');
  const bytes = (pem: string | Buffer | undefined) => (pem === undefined ? null : Buffer.from(pem));
  return grpc.credentials.createSsl(bytes(ca), bytes(key), bytes(cert));
}

/** The file of the protocol, for those who speak it themselves. */
export const protocol = (): string => readFileSync(protoFile, 'utf8');

// The search for a server that serves one call.
interface Search {
  patienceMs: number;
  until: number;
  isElection: boolean; // somebody has said that it does not lead
  restarts: number; // because somebody who was there has gone
  pauseMs: number;
  tried: number; // servers since the last pause
  last?: CapstanError;
  isAnswered: boolean; // `last` is what a coordinator said
}

export class Connection {
  readonly #servers: string[];
  readonly #given: string;
  readonly #credentials: grpc.ChannelCredentials;
  readonly #metadata = new grpc.Metadata();
  readonly #patienceMs: number;
  readonly #channels = new Map<string, grpc.Client>();
  #current = 0; // the server that is asked
  #turn = 0; // the one that was last asked because it was its turn, not because somebody named it

  constructor({ servers, token = process.env['CAPSTAN_TOKEN'], tls, patienceMs = 10000 }: ConnectOptions = {}) {
    this.#servers = serversOf(servers);
    this.#given = this.#servers.join(',');
    this.#credentials = credentialsOf(tls);
    this.#patienceMs = patienceMs;
    token ??= findToken(this.#servers);
    if (token) this.#metadata.set('authorization', `Bearer ${token}`);
  }

  /** Who is asked at the moment. */
  get server(): string {
    return this.#servers[this.#current] as string;
  }

  close(): void {
    for (const channel of this.#channels.values()) channel.close();
    this.#channels.clear();
  }

  #channel(): grpc.Client {
    let channel = this.#channels.get(this.server);
    if (channel === undefined) {
      channel = new grpc.Client(this.server, this.#credentials, {
        'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
        'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
        'grpc.initial_reconnect_backoff_ms': 100,
        'grpc.max_reconnect_backoff_ms': 1000,
        'grpc.keepalive_time_ms': 10000,
        'grpc.keepalive_timeout_ms': 10000,
        // A connection of its own, so that a worker's heartbeats do not wait behind what others send.
        'grpc.use_local_subchannel_pool': 1,
      });
      this.#channels.set(this.server, channel);
    }
    return channel;
  }

  // ---- one try ----

  #unary(method: grpc.MethodDefinition<Message, Message>, message: Message, deadline: number, signal?: AbortSignal) {
    return new Promise<Message>((resolve, reject) => {
      const call = this.#channel().makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        message,
        this.#metadata,
        { deadline },
        (error, answer) => {
          signal?.removeEventListener('abort', cancel);
          if (error) reject(error);
          else resolve(answer as Message);
        },
      );
      const cancel = () => call.cancel();
      signal?.addEventListener('abort', cancel);
    });
  }

  // ---- the search ----

  #begin({ patienceMs = this.#patienceMs, once }: Request): Search {
    const until = once ? 0 : performance.now() + patienceMs;
    return { patienceMs, until, pauseMs: PAUSE_MS_MIN, tried: 0, restarts: 0, isElection: false, isAnswered: false };
  }

  // A try that had a connection for a while was spent waiting, not looking for a server: the search begins now. A call does
  // so once per server at most, so that it ends.
  #restart(search: Search, began: number, { once }: Request): void {
    if (once || performance.now() - began <= CONNECTED_MS || search.restarts >= this.#servers.length) return;
    search.restarts++;
    search.until = performance.now() + search.patienceMs;
    search.pauseMs = PAUSE_MS_MIN;
    search.tried = 0;
  }

  // Looks at a failure: returns if the call is to be tried again, with the server that is current now.
  // `asked` is who failed: if others have moved on meanwhile, there is no need to.
  async #next(search: Search, failure: ServiceError, asked: number, { signal, once }: Request): Promise<void> {
    signal?.throwIfAborted();
    const error = errorOf(failure);
    const leader = trailerOf(failure, 'capstan-leader');
    const leadsNot =
      error.code === 'failed_precondition' &&
      (leader !== undefined || error.message.startsWith('this coordinator does not lead'));
    // A server that stops cancels the calls that it holds; one that hangs lets a try run into its deadline.
    const isAway = error.code === 'unavailable' || error.code === 'canceled' || error.code === 'deadline_exceeded';
    if (!leadsNot && !isAway) throw error;
    const isAnswered = trailerOf(failure, 'capstan-code') !== undefined;
    if (isAnswered || !search.isAnswered) {
      search.last = error;
      search.isAnswered = isAnswered;
    }
    if (leadsNot && !search.isElection && !once) {
      // The cluster is there and has to elect a leader, which may take it longer than finding a server does.
      search.isElection = true;
      search.patienceMs *= ELECTION_PATIENCE;
      search.until = performance.now() + search.patienceMs;
    }
    const isOver = performance.now() >= search.until;
    search.tried++;
    const isNamed = leadsNot && leader !== undefined && this.#follow(leader);
    if (!isNamed && this.#current === asked) {
      this.#turn = (this.#turn + 1) % this.#servers.length;
      this.#current = this.#turn;
    }
    if (isOver) throw once ? error : this.#giveUp(search);
    // A leader that has just died is named for a while: hence no more than a round without a pause.
    if (search.tried < this.#servers.length || (isNamed && search.tried === this.#servers.length)) return;
    search.tried = 0;
    await pause(Math.min(search.pauseMs, search.until - performance.now()), signal);
    signal?.throwIfAborted();
    search.pauseMs = Math.min(search.pauseMs * 2, PAUSE_MS_MAX);
  }

  // Makes the named leader the current server. False if it is no address, or there is no room for it.
  #follow(leader: string): boolean {
    let at = this.#servers.indexOf(leader);
    if (at < 0) {
      if (this.#servers.length >= SERVERS_MAX || !/:\d+$/.test(leader)) return false;
      at = this.#servers.push(leader) - 1;
    }
    this.#current = at;
    return true;
  }

  #giveUp({ last, isAnswered }: Search): CapstanError {
    const cause = last;
    if (last?.code === 'failed_precondition') {
      return new UnavailableError(`no coordinator leads at the moment (asked ${this.#given})`, {
        hint: 'is its store reachable? its log says more',
        cause,
      });
    }
    if (isAnswered) {
      return new UnavailableError(`the coordinator answers, but cannot serve this at the moment: ${last?.message}`, {
        hint: last?.hint ?? 'is its store reachable? its log says more',
        cause,
      });
    }
    return new UnavailableError(`cannot reach a coordinator at ${this.#given}: ${last?.message}`, {
      hint: "start one with 'capstan up', or say where it is: connect({ servers })",
      cause,
    });
  }

  // ---- calls ----

  static #methodOf(name: string): grpc.MethodDefinition<Message, Message> {
    const method = methods.get(name);
    if (method === undefined) throw new InvalidArgumentError(`there is no method ${name}`);
    return method;
  }

  /** A call to whoever leads. */
  async call(name: string, message: object = {}, request: Request = {}): Promise<Message> {
    const method = Connection.#methodOf(name);
    const { signal, waitMs = 0, timeoutMs } = request;
    const search = this.#begin(request);
    const end = timeoutMs === undefined ? Infinity : Date.now() + timeoutMs;
    for (;;) {
      const asked = this.#current;
      const began = performance.now();
      signal?.throwIfAborted();
      try {
        return await this.#unary(method, message as Message, Math.min(end, Date.now() + waitMs + TRY_MS), signal);
      } catch (error) {
        if (Date.now() >= end) throw new DeadlineError(`${name} took longer than ${timeoutMs} ms`, { cause: error });
        this.#restart(search, began, request);
        await this.#next(search, error as ServiceError, asked, request);
      }
    }
  }

  /**
   * A stream of messages, taken up again where it broke: `message` is asked for what to send each time. A connection that
   * brought something has the whole patience again.
   */
  async *stream(name: string, message: () => object, request: Request = {}): AsyncGenerator<Message, void, void> {
    const method = Connection.#methodOf(name);
    const { signal, timeoutMs } = request;
    const end = timeoutMs === undefined ? Infinity : Date.now() + timeoutMs;
    let search = this.#begin(request);
    for (;;) {
      signal?.throwIfAborted();
      const asked = this.#current;
      const began = performance.now();
      const options = end === Infinity ? {} : { deadline: end };
      const call = this.#channel().makeServerStreamRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        message() as Message,
        this.#metadata,
        options,
      );
      const cancel = () => call.cancel();
      signal?.addEventListener('abort', cancel);
      try {
        for await (const answer of call) {
          search = this.#begin(request);
          yield answer as Message;
        }
        signal?.throwIfAborted();
        return;
      } catch (error) {
        if (Date.now() >= end) throw new DeadlineError(`${name} took longer than ${timeoutMs} ms`, { cause: error });
        if (!(error instanceof Error && 'metadata' in error)) throw error;
        if (trailerOf(error as ServiceError, 'capstan-code') === undefined) search.restarts = 0; // it may be silent for hours
        this.#restart(search, began, request);
        await this.#next(search, error as ServiceError, asked, request);
      } finally {
        signal?.removeEventListener('abort', cancel);
        call.cancel();
      }
    }
  }
}
