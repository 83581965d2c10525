// witness.js - workers that the driver is itself, and that keep a diary: what they were given, under which lease, what they
// reported, and what they were told.
//
// What the database holds is what the coordinators say of themselves; a coordinator that takes the outcome of an old lease
// may well write rows that agree with each other. The diary does not come from it. And the witnesses do on purpose what
// other workers do only when a fault hits them at the right moment: some keep silent about an attempt until somebody else
// has the task, and then report it; some quote a lease that nobody has granted, or that of another worker; some report
// twice. All of that must be refused, or change nothing.
import { randomBytes } from 'node:crypto';
import { Connection, grpc, wait } from '../../examples/javascript/capstan.js';
import { settings, witnesses } from './plan.js';

const SLOTS = 3;
const CALL_MS = 3000; // then nobody knows, and the next coordinator is asked
const POLL_MS = 1500;
const SILENT_MS = 12000; // then an old attempt is reported even if nobody seems to have got the task
const TRIES_MAX = 5; // of a report that must be refused
const ATTEMPTS_MAX = 3; // from then on a task is done as it should be, so that it comes to its end

const idOf = ({ job, stage, task }) => `${job}/${stage}/${task}`;

class Witness {
  #all;
  #random;
  #connection;
  #incarnation = randomBytes(16).toString('hex');
  #named = new Map(); // by token: what the heartbeats name
  #busy = 0;
  #at = 0;
  #quit = new AbortController();
  #loops;

  constructor(all, name, random) {
    this.#all = all;
    this.name = name;
    this.#random = random;
    this.#turn();
  }

  start() {
    this.#loops = [this.#beats(), this.#polls()];
  }

  async close() {
    this.#quit.abort();
    await Promise.all(this.#loops ?? []);
    this.#connection.close();
  }

  get #isOver() {
    return this.#quit.signal.aborted;
  }

  #pause(low, high) {
    return wait(this.#random.int(low, high), this.#quit.signal);
  }

  // The next coordinator is asked first from now on.
  #turn() {
    const { servers } = this.#all.cluster;
    this.#connection?.close();
    this.#connection = new Connection(servers.map((_, i) => servers[(i + this.#at) % servers.length]));
    this.#at++;
  }

  // One try. Who it fails at is not asked again next.
  async #call(method, request, timeoutMs = CALL_MS) {
    const identity = { worker_id: this.name, incarnation: this.#incarnation };
    const connection = this.#connection;
    try {
      return await connection.call(
        method,
        { ...identity, ...request },
        { timeoutMs, patienceMs: 0, signal: this.#quit.signal },
      );
    } catch (error) {
      const isLate = error.code === grpc.status.DEADLINE_EXCEEDED;
      if (isLate && connection === this.#connection && !this.#isOver) this.#turn();
      throw error;
    }
  }

  async #register() {
    await this.#call('RegisterWorker', { slots: SLOTS, executor_types: ['witness'], version: 'witness' });
  }

  async #beats() {
    while (!this.#isOver) {
      try {
        const running = [...this.#named.values()].map(({ ref }) => ref);
        const beat = { at_ms: Date.now(), running_tasks: running.length, running };
        const answer = await this.#call('Heartbeat', beat, 1500);
        for (const ref of answer.stop) this.#named.delete(ref.lease_token.toString('hex'));
        if (!answer.accepted) await this.#register();
      } catch {
        // Nobody has heard it, or the registration: the next one comes soon.
      }
      await wait(settings.heartbeat_interval_ms, this.#quit.signal);
    }
  }

  async #polls() {
    while (!this.#isOver) {
      const capacity = SLOTS - this.#busy;
      if (capacity <= 0) {
        await wait(50, this.#quit.signal);
        continue;
      }
      try {
        const { tasks } = await this.#call('GetTask', { capacity, wait_ms: POLL_MS }, POLL_MS + CALL_MS);
        for (const task of tasks) this.#take(task);
      } catch {
        await this.#pause(50, 300);
      }
    }
  }

  async #take(task) {
    const { query_id: job, stage_id, task_id, attempt, lease_token, idempotency_key: key, name } = task;
    const ref = { query_id: job, stage_id, task_id, attempt, lease_token };
    const token = lease_token.toString('hex');
    const own = { job, stage: stage_id, task: task_id, attempt, token, key, name, ref };
    const saw = JSON.parse(task.plan_fragment_json.toString()).told ?? [];
    own.result = Buffer.from(JSON.stringify({ json: { key, saw } }));
    this.#all.history.add('assigned', { worker: this.name, job, stage: stage_id, task: task_id, attempt, token, key });
    this.#all.isAssigned(own);
    this.#say('start', own);
    const manner = attempt > ATTEMPTS_MAX ? 'honest' : this.#random.any(manners);
    if (manner === 'late') await this.#late(own);
    else await this.#work(own, manner);
  }

  #say(what, { job, name, key, attempt }) {
    this.#all.history.add('run', { job, task: name, what, key, attempt, at: Date.now(), worker: this.name });
  }

  // As a worker should: it names the attempt until its report has been answered.
  async #work(own, manner) {
    this.#busy++;
    this.#named.set(own.token, own);
    if (this.#random.chance(0.1)) await this.#pause(2000, 5000);
    else await this.#pause(50, 600);
    if (manner === 'forge') await this.#forge(own);
    const state = manner === 'fail' ? 'failed' : 'succeeded';
    if (this.#named.has(own.token)) this.#say('end', own);
    while (this.#named.has(own.token) && !this.#isOver && (await this.report(own, state)) === undefined)
      await this.#pause(50, 300);
    if (manner === 'twice' && !this.#isOver) await this.report(own, state);
    this.#named.delete(own.token);
    this.#busy--;
  }

  // It does not name the attempt, so that it counts as lost, and reports it when the task has another lease.
  async #late(own) {
    const until = Date.now() + SILENT_MS;
    while (this.#all.newest(own) === own.attempt && Date.now() < until && !this.#isOver) await this.#pause(20, 60);
    await this.#pause(0, 150);
    this.#say('end', own);
    const state = this.#random.any(['succeeded', 'failed']);
    for (let i = 0; i < TRIES_MAX && !this.#isOver; i++) {
      if ((await this.report(own, state)) !== undefined) return;
      await this.#pause(50, 300);
    }
  }

  // The right attempt with a lease that nobody has, and with the right lease in the name of another.
  async #forge(own) {
    const token = randomBytes(16);
    await this.report({ ...own, token: token.toString('hex'), ref: { ...own.ref, lease_token: token } }, 'succeeded');
    await this.#all.other(this).report(own, 'succeeded');
  }

  // One try: whether it was accepted; undefined: nobody knows.
  async report({ job, stage, task, attempt, token, ref, result }, state) {
    const call = this.#all.nextCall();
    this.#all.history.add('report', { call, worker: this.name, job, stage, task, attempt, token, state });
    const isSuccess = state === 'succeeded';
    const report = isSuccess
      ? { ref, state: 'TASK_STATE_SUCCEEDED', result_json: result }
      : { ref, state: 'TASK_STATE_FAILED', message: 'the witness fails on purpose' };
    try {
      const { outcomes } = await this.#call('ReportTaskStatus', { reports: [report] });
      const [{ accepted, reason }] = outcomes;
      this.#all.history.add('answer', { call, accepted, reason });
      return accepted;
    } catch {
      return undefined;
    }
  }
}

const manners = ['honest', 'honest', 'honest', 'fail', 'twice', 'forge', 'late', 'late', 'late'];

export class Witnesses {
  #calls = 0;
  #newest = new Map(); // of each task: the newest attempt that any of them was given
  #all;

  constructor(cluster, history, random) {
    this.cluster = cluster;
    this.history = history;
    this.#all = witnesses.map((name) => new Witness(this, name, random.fork(name)));
  }

  start() {
    for (const one of this.#all) one.start();
  }

  async close() {
    await Promise.all(this.#all.map((one) => one.close()));
  }

  nextCall() {
    return ++this.#calls;
  }

  isAssigned(own) {
    this.#newest.set(idOf(own), Math.max(own.attempt, this.newest(own)));
  }

  newest(own) {
    return this.#newest.get(idOf(own)) ?? 0;
  }

  other(one) {
    return this.#all.find((it) => it !== one);
  }
}
