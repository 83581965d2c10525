#!/usr/bin/env node
// worker.js - a worker: registers, sends heartbeats, pulls tasks, reports, drains at SIGTERM.
//
//   node worker.js [--join HOST:PORT[,...]] [--id ID] [--slots N] [--operator NAME]... [--capability NAME=VALUE]...
//
// It runs the executor `js` (inputs: { "code": "return inputs.a + 1", ... }), `sleep` and, for tests, `echo`. Give the
// class other executors and it is a worker of your own.
//
// The rules that any worker has to follow:
//  - One `incarnation` per start of the process. A coordinator that says `superseded` has met a newer process under the
//    same worker id: stop everything and end.
//  - Heartbeats come from their own timer and are delayed by nothing. Each one names every attempt, with its lease
//    token, from the assignment until the final report has been *answered*. An attempt that is not named is taken for
//    lost and given to somebody else.
//  - One GetTask is always open, with as much capacity as there are free slots, also 0: orders to stop come back with
//    it. Never cancel it because a slot got free, since its answer may be on the way with tasks. Open a second one instead:
//    the coordinator answers the first at once, and the two together ask for no more than the free slots.
//  - A report is sent again until it is answered, for ever. An answer `accepted: false` means that the attempt is not
//    current any more: forget it.
//  - What an order to stop names is ended at once, and not reported.
//  - A task that is `exclusive` must never run twice at the same time. It is stopped by the worker itself a little before
//    its lease is over, and given back. The lease counts from when the call that got it, or the heartbeat that renewed it,
//    left; a GetTask that was held at the coordinator has waited for `waited_ms` before that. The others go on without a
//    coordinator for `orphan_ms`.
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { Connection, grpc, wait } from './capstan.js';

const POLL_MS = 30000;

// An executor gets the inputs, an AbortSignal that is fired when the attempt has to stop, and the assignment. What it
// returns is the result. What it throws fails the attempt; with `notRetryable` there is no other attempt.
const AsyncFunction = async function () {}.constructor;
export const executors = {
  js: ({ code, ...inputs }, signal) => {
    let run;
    try {
      run = new AsyncFunction('inputs', 'signal', code);
    } catch (error) {
      throw Object.assign(error, { notRetryable: true });
    }
    return run(inputs, signal);
  },
  sleep: ({ ms }, signal) => wait(ms, signal),
  echo: (inputs) => inputs,
};

// How long before the end of a lease an exclusive task is told to stop, so that it is gone by then.
const marginOf = (leaseMs) => Math.min(leaseMs / 10, 2000);

const keyOf = (ref) => ref.lease_token.toString('hex');

export class Worker {
  #connection;
  #options;
  #incarnation = randomBytes(16).toString('hex');
  #settings = { heartbeat_interval_ms: 3000, lease_ms: 15000, orphan_ms: 600000, drain_timeout_ms: 60000 };
  #attempts = new Map(); // by token: { ref, abort, ... }, until the report has been answered
  #busy = 0; // slots
  #promised = 0; // capacity of the polls that are open
  #openPolls = 0;
  #quit = new AbortController(); // ends all calls
  #leaving = false;
  #wake = () => {}; // tells the poll loop to look again
  #ended;
  #heard = Date.now(); // when a coordinator last answered

  constructor({ servers, token, ...options }) {
    this.#options = { slots: 2, executors, operators: [], capabilities: {}, log: () => {}, ...options };
    this.#options.id ??= `${hostname()}-js`;
    this.#connection = new Connection(servers, { token });
  }

  get id() {
    return this.#options.id;
  }

  // Registers and works; the promise that it returns once it is registered is followed by `ended`.
  async start() {
    await this.#register();
    this.#ended = Promise.all([this.#heartbeats(), this.#polls()]).finally(() => this.#connection.close());
    return this;
  }

  // Settled when the worker has left.
  get ended() {
    return this.#ended;
  }

  #call(method, request, options = {}) {
    const { id: worker_id } = this.#options;
    const identity = { worker_id, incarnation: this.#incarnation };
    return this.#connection.call(method, { ...identity, ...request }, { signal: this.#quit.signal, ...options });
  }

  async #register() {
    const { slots, operators, capabilities, executors } = this.#options;
    this.#settings = await this.#call(
      'RegisterWorker',
      {
        slots,
        executor_types: Object.keys(executors),
        capabilities_json: JSON.stringify(capabilities),
        custom_operator_capabilities: operators,
        version: 'js-1',
      },
      { patienceMs: Infinity },
    );
    this.#heard = Date.now();
    this.#options.log(`registered as ${this.id}`);
  }

  // ---- heartbeats ----

  async #heartbeats() {
    while (!this.#quit.signal.aborted) {
      const next = Date.now() + this.#settings.heartbeat_interval_ms;
      try {
        await this.#beat();
      } catch (error) {
        if (!this.#quit.signal.aborted) this.#options.log(`heartbeat: ${error.details ?? error.message}`);
        if (Date.now() - this.#heard > this.#settings.orphan_ms) this.#stopAll();
      }
      await wait(next - Date.now(), this.#quit.signal);
    }
  }

  async #beat() {
    const named = [...this.#attempts.values()];
    const request = {
      at_ms: Date.now(),
      running_tasks: this.#busy,
      running: named.map(({ ref }) => ref),
      custom_operator_capabilities: this.#options.operators,
      load: this.#busy / this.#options.slots,
      leaving: this.#leaving,
    };
    const timeoutMs = Math.max(250, this.#settings.heartbeat_interval_ms);
    const sent = performance.now();
    const answer = await this.#call('Heartbeat', request, { timeoutMs, patienceMs: 0 });
    this.#heard = Date.now();
    if (answer.accepted) {
      this.#stop(answer.stop);
      for (const own of named) if (!own.dead) this.#renew(own, sent);
    } else if (/superseded/.test(answer.reason)) {
      this.#options.log('superseded by a newer process of the same name');
      this.#stopAll();
      this.#quit.abort();
    } else if (/unknown worker/.test(answer.reason)) {
      await this.#register();
    }
  }

  // ---- polls ----

  get #free() {
    return this.#leaving ? 0 : Math.max(0, this.#options.slots - this.#busy - this.#promised);
  }

  // A second poll is opened only to ask for what the open one does not: see the rules above.
  async #polls() {
    while (!this.#quit.signal.aborted) {
      if (this.#openPolls === 0 || (this.#openPolls === 1 && this.#free > 0)) this.#poll();
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  async #poll() {
    const capacity = this.#free;
    this.#promised += capacity;
    this.#openPolls++;
    const sent = performance.now();
    try {
      const request = { capacity, wait_ms: POLL_MS };
      const answer = await this.#call('GetTask', request, { timeoutMs: POLL_MS + 10000, patienceMs: 0 });
      this.#heard = Date.now();
      this.#stop(answer.stop);
      for (const task of answer.tasks) this.#take(task, sent + answer.waited_ms);
    } catch (error) {
      if (!this.#quit.signal.aborted) {
        this.#options.log(`poll: ${error.details ?? error.message}`);
        if (error.code === grpc.status.NOT_FOUND) await this.#register().catch(() => {});
        await wait(100, this.#quit.signal);
      }
    }
    this.#promised -= capacity;
    this.#openPolls--;
    this.#wake();
  }

  // ---- attempts ----

  async #take(task, leaseFrom) {
    const { query_id, stage_id, task_id, attempt, lease_token } = task;
    const own = {
      ref: { query_id, stage_id, task_id, attempt, lease_token },
      abort: new AbortController(),
      exclusive: task.exclusive,
      leaseMs: task.lease_ms || this.#settings.lease_ms,
      running: true,
    };
    this.#attempts.set(keyOf(own.ref), own);
    this.#busy++;
    this.#renew(own, leaseFrom);
    const report = await this.#run(task, own);
    own.running = false;
    clearTimeout(own.leaseTimer);
    this.#busy--;
    this.#wake();
    if (report) await this.#report(own, report);
    this.#attempts.delete(keyOf(own.ref));
  }

  // The lease is good from `from` on: an exclusive task runs until shortly before its end.
  #renew(own, from) {
    if (!own.exclusive || !own.running) return;
    clearTimeout(own.leaseTimer);
    const until = from + own.leaseMs - marginOf(own.leaseMs);
    own.leaseTimer = setTimeout(
      () => {
        this.#options.log(`${own.ref.query_id}: an exclusive task is stopped, its lease could not be renewed`);
        own.released = true;
        own.abort.abort();
      },
      Math.max(0, until - performance.now()),
    );
  }

  // Runs it and says what to report; nothing for an attempt that was stopped.
  async #run(task, own) {
    const { executors } = this.#options;
    const missing = task.required_custom_ops.find((name) => !this.#options.operators.includes(name));
    let timer;
    let timedOut = false;
    try {
      if (missing) throw new Error(`custom physical operator '${missing}' is not registered on worker`);
      if (!executors[task.executor]) throw new Error(`there is no executor '${task.executor}' here`);
      if (task.timeout_ms > 0) {
        timer = setTimeout(() => {
          timedOut = true;
          own.abort.abort();
        }, task.timeout_ms);
      }
      const inputs = JSON.parse(task.plan_fragment_json.toString());
      const result = await executors[task.executor](inputs, own.abort.signal, task);
      if (timedOut) throw new Error(`timed out after ${task.timeout_ms} ms`);
      if (own.released) return { state: 'TASK_STATE_QUEUED' };
      if (own.abort.signal.aborted) return undefined;
      return { state: 'TASK_STATE_SUCCEEDED', result_json: Buffer.from(JSON.stringify(result ?? null)) };
    } catch (error) {
      if (own.released) return { state: 'TASK_STATE_QUEUED' };
      if (own.abort.signal.aborted && !timedOut) return undefined;
      return { state: 'TASK_STATE_FAILED', message: String(error.message), not_retryable: error.notRetryable === true };
    } finally {
      clearTimeout(timer);
    }
  }

  // Until somebody has answered: the attempt stays in the heartbeats meanwhile.
  async #report(own, report) {
    while (!this.#quit.signal.aborted && !own.dead) {
      try {
        const request = { reports: [{ ref: own.ref, ...report }] };
        const { outcomes } = await this.#call('ReportTaskStatus', request, { patienceMs: Infinity });
        if (!outcomes[0].accepted) this.#options.log(`refused: ${outcomes[0].reason}`);
        return outcomes[0];
      } catch (error) {
        this.#options.log(`report: ${error.details ?? error.message}`);
        await wait(200, this.#quit.signal);
      }
    }
    return undefined;
  }

  #stop(refs) {
    for (const ref of refs) {
      const own = this.#attempts.get(keyOf(ref));
      if (!own) continue;
      own.dead = true;
      own.abort.abort();
    }
  }

  #stopAll() {
    this.#stop([...this.#attempts.values()].map(({ ref }) => ref));
  }

  // ---- the end ----

  // Takes no more tasks, lets the running ones end or, when the time is up, gives them back; then says goodbye.
  async drain() {
    if (this.#leaving) return this.#ended;
    this.#leaving = true;
    this.#options.log('leaving');
    await this.#call('Heartbeat', {
      running: [...this.#attempts.values()].map(({ ref }) => ref),
      custom_operator_capabilities: this.#options.operators,
      leaving: true,
    }).catch(() => {});
    const until = Date.now() + this.#settings.drain_timeout_ms;
    while (this.#attempts.size > 0) {
      if (Date.now() > until) {
        for (const own of this.#attempts.values()) {
          own.released = true;
          own.abort.abort();
        }
      }
      await wait(20);
    }
    await this.#call('DeregisterWorker', {}).catch(() => {});
    this.#quit.abort();
    this.#wake();
    return this.#ended;
  }
}

async function main() {
  const list = { type: 'string', multiple: true, default: [] };
  const { values } = parseArgs({
    options: {
      join: { type: 'string', default: '127.0.0.1:7400' },
      id: { type: 'string' },
      slots: { type: 'string', default: '2' },
      operator: list,
      capability: list,
    },
  });
  const worker = new Worker({
    servers: values.join.split(','),
    token: process.env.CAPSTAN_TOKEN,
    id: values.id,
    slots: Number(values.slots),
    operators: values.operator,
    capabilities: Object.fromEntries(values.capability.map((pair) => pair.split('=', 2))),
    log: (line) => console.error(`${new Date().toISOString()} ${line}`),
  });
  process.once('SIGTERM', () => worker.drain());
  process.once('SIGINT', () => worker.drain());
  await worker.start();
  await worker.ended;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) await main();
