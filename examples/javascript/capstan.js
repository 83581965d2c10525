// capstan.js - the connection that client.js and worker.js share: calls by name, which find the leader by themselves.
//
// Everything that is known about Capstan here comes from proto/capstan.proto. Three things are worth knowing for other
// languages:
//  - Of several coordinators one leads. The others refuse writes with FAILED_PRECONDITION and name the leader in the
//    trailing metadata `capstan-leader`.
//  - A coordinator that is away answers UNAVAILABLE, one that stops maybe CANCELLED. Every call may be sent again: reports
//    quote a lease token, and submits an id, so that a repetition is recognised.
//  - A token, if the cluster wants one, travels as `authorization: Bearer TOKEN`.
import { fileURLToPath } from 'node:url';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

export { grpc };

const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;
const PAUSE_MS_MIN = 50;
const PAUSE_MS_MAX = 1000;

const protoFile = fileURLToPath(new URL('../../proto/capstan.proto', import.meta.url));
const { v1 } = grpc.loadPackageDefinition(
  protoLoader.loadSync(protoFile, { keepCase: true, longs: Number, enums: String, bytes: Buffer, defaults: true }),
).capstan;

// Which service a method belongs to: { SubmitTasks: 'ControlPlane', Heartbeat: 'HeartbeatService', ... }.
const serviceOf = Object.fromEntries(
  Object.entries(v1).flatMap(([name, it]) =>
    it.service ? Object.keys(it.service).map((method) => [method, name]) : [],
  ),
);

export const wait = (ms, signal) =>
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

export class Connection {
  #servers;
  #current = 0;
  #stubs = new Map();
  #metadata = new grpc.Metadata();
  #credentials;

  // servers: ['127.0.0.1:7400', ...], the coordinators. credentials: gRPC's, for those with TLS.
  constructor(servers, { token, credentials = grpc.credentials.createInsecure() } = {}) {
    this.#servers = [...servers];
    this.#credentials = credentials;
    if (token) this.#metadata.set('authorization', `Bearer ${token}`);
  }

  get server() {
    return this.#servers[this.#current];
  }

  #stub(method) {
    const service = serviceOf[method];
    if (!service) throw new Error(`there is no method ${method}`);
    const key = `${this.server} ${service}`;
    if (!this.#stubs.has(key)) {
      const options = {
        'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
        'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
        'grpc.initial_reconnect_backoff_ms': 100,
        'grpc.max_reconnect_backoff_ms': 1000,
        // A TCP connection of its own, so that workers in one process do not share one.
        'grpc.use_local_subchannel_pool': 1,
      };
      this.#stubs.set(key, new v1[service](this.server, this.#credentials, options));
    }
    return this.#stubs.get(key);
  }

  // One call to one server. Rejects with gRPC's error: `code`, `details`, `metadata`. The field `signal` of the options
  // is an AbortSignal that cancels the call.
  once(method, request = {}, { timeoutMs = 30000, signal } = {}) {
    return new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + timeoutMs };
      const call = this.#stub(method)[method](request, this.#metadata, options, (error, answer) => {
        signal?.removeEventListener('abort', cancel);
        if (error) reject(error);
        else resolve(answer);
      });
      const cancel = () => call.cancel();
      if (signal?.aborted) cancel();
      else signal?.addEventListener('abort', cancel);
    });
  }

  // Turns to the leader that a refusal names, or to the next server. False: trying again makes no sense.
  #moveOn(error) {
    const leader = error.metadata?.get('capstan-leader')[0];
    if (error.code === grpc.status.FAILED_PRECONDITION && (leader || /does not lead/.test(error.details))) {
      if (leader && !this.#servers.includes(leader)) this.#servers.push(leader);
      this.#current = leader ? this.#servers.indexOf(leader) : (this.#current + 1) % this.#servers.length;
      return true;
    }
    // A coordinator that stops cancels calls that have reached it and that it has not begun.
    if (error.code !== grpc.status.UNAVAILABLE && error.code !== grpc.status.CANCELLED) return false;
    this.#current = (this.#current + 1) % this.#servers.length;
    return true;
  }

  // A call to whoever leads, tried again for up to `patienceMs` while nobody does or answers: longer than an election takes.
  async call(method, request = {}, { patienceMs = 20000, signal, ...options } = {}) {
    const until = Date.now() + patienceMs;
    for (let pause = PAUSE_MS_MIN; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      try {
        return await this.once(method, request, { signal, ...options });
      } catch (error) {
        if (signal?.aborted || !this.#moveOn(error) || Date.now() >= until) throw error;
        await wait(pause * (0.8 + 0.4 * Math.random()), signal);
      }
    }
  }

  // A streaming call: an async iterable of messages, with a method `cancel`.
  stream(method, request = {}) {
    return this.#stub(method)[method](request, this.#metadata);
  }

  close() {
    for (const stub of this.#stubs.values()) stub.close();
    this.#stubs.clear();
  }
}
