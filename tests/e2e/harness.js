// harness.js - real processes for tests: coordinators, workers, a PostgreSQL server, a proxy that cuts connections.
//
//   scenario('name of the test', async (world) => {
//     const cluster = await world.cluster({ settings: { lease_ms: 1000 }, workers: 2 });
//     const id = await cluster.submit(tree);
//     ...
//   });
//
// Everything that a world starts is in folders of its own, on ports that were free, and is killed with it. When a
// scenario fails, the logs of its processes are printed. Nothing here sleeps for a time that is hoped to be enough:
// `until` asks again and again for a condition.
//
// CAPSTAN_BIN names the binary (else build/release/bin/capstan), CAPSTAN_E2E_ROUNDS how often chaos strikes,
// CAPSTAN_E2E_SEED what `world.random` begins with, so that a scenario chooses as it did when it failed.
import { execFileSync, spawn } from 'node:child_process';
import { randomInt, randomUUID } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { grpc } from '../../examples/javascript/capstan.js';
import { Client } from '../../examples/javascript/client.js';
import { Worker } from '../../examples/javascript/worker.js';

export { default as assert } from 'node:assert/strict';
export const grpcStatus = grpc.status;

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const binary = path.resolve(root, process.env.CAPSTAN_BIN ?? 'build/release/bin/capstan');
export const rounds = (usual) => Number(process.env.CAPSTAN_E2E_ROUNDS ?? usual);
export const isSoak = process.env.CAPSTAN_E2E_ROUNDS !== undefined;
// Sanitizers make everything slower; limits on times are multiplied by this.
export const slowness = /asan|tsan/.test(binary) ? 4 : 1;
export const stores = ['sqlite', 'postgres'];
const givenSeed = process.env.CAPSTAN_E2E_SEED;
if (givenSeed !== undefined && !/^\d{1,9}$/.test(givenSeed)) {
  throw new Error(`CAPSTAN_E2E_SEED: '${givenSeed}' is not a number of at most nine digits`);
}

// Limits on waiting are there for what hangs. A busy machine of few cores is several times slower than an idle one.
const PATIENCE = 3;
const UNTIL_MS = 30000 * PATIENCE * slowness;
const LOG_TAIL = 60; // lines of a log that a failure prints

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Asks until the answer is true-ish, and returns it. `what` is said when the time is up.
export async function until(what, ask, { ms = UNTIL_MS, every = 20 } = {}) {
  const end = Date.now() + ms;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not in ${ms} ms: ${what}`);
    await pause(every);
  }
}

// Settings under which the loss of a worker is noticed soon.
export const quick = {
  heartbeat_interval_ms: 300,
  lease_ms: 1500,
  worker_liveness_timeout_ms: 1500,
  node_stale_ms: 1500,
  node_dead_ms: 6000,
  retry_backoff_base_ms: 20,
};

// The same for tests that count executions: a worker that waits seconds for its turn on a busy machine is not lost.
export const lenient = {
  ...quick,
  heartbeat_interval_ms: 500,
  lease_ms: 5000,
  worker_liveness_timeout_ms: 5000,
  node_stale_ms: 5000,
  node_dead_ms: 15000,
};

// ---- processes ----

const living = new Set(); // of this node process; killed at its end, however that comes
const killAll = () => {
  for (const child of living) {
    try {
      process.kill(child.pid, 'SIGKILL');
    } catch {
      // it has gone already
    }
  }
};
const folders = new Set();
process.on('exit', () => {
  killAll();
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => process.exit(1));

// One process, with its log in memory. `line(pattern)` waits for a line that it writes.
export class Process {
  constructor(title, file, args, { env = {}, cwd, stdin } = {}) {
    this.title = title;
    this.stdout = '';
    this.stderr = '';
    this.isOver = false;
    this.child = spawn(file, args, {
      cwd,
      env: { PATH: process.env.PATH, HOME: cwd, LC_ALL: 'C', ...sanitizerOptions(), ...env },
      stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    living.add(this.child);
    if (stdin !== undefined) this.child.stdin.on('error', () => {}).end(stdin);
    this.child.stdout.setEncoding('utf8').on('data', (text) => (this.stdout += text));
    this.child.stderr.setEncoding('utf8').on('data', (text) => (this.stderr += text));
    this.ended = new Promise((resolve) => {
      this.child.on('error', (error) => {
        this.stderr += `${error.message}\n`;
        resolve({ code: null, signal: null });
      });
      this.child.on('close', (code, signal) => resolve({ code, signal }));
    }).then((how) => {
      living.delete(this.child);
      this.isOver = true;
      this.how = how;
      return how;
    });
  }

  get pid() {
    return this.child.pid;
  }

  get log() {
    return this.stdout + this.stderr;
  }

  signal(name) {
    if (!this.isOver) this.child.kill(name);
    return this;
  }

  async kill() {
    this.signal('SIGKILL');
    return this.ended;
  }

  // Ends it in the way of people, and says how it ended.
  async stop() {
    this.signal('SIGTERM');
    return this.ended;
  }

  line(pattern) {
    return until(`${this.title} says ${pattern}`, () => {
      const found = pattern.exec(this.log);
      if (!found && this.isOver) throw new Error(`${this.title} ended (${JSON.stringify(this.how)}):\n${this.log}`);
      return found;
    });
  }

  // Resident memory in bytes, and CPU time in seconds.
  usage() {
    const status = fs.readFileSync(`/proc/${this.pid}/status`, 'utf8');
    const stat = fs
      .readFileSync(`/proc/${this.pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    return {
      rss: Number(/VmRSS:\s+(\d+)/.exec(status)[1]) * 1024,
      cpu: (Number(stat[11]) + Number(stat[12])) / 100,
      threads: Number(/Threads:\s+(\d+)/.exec(status)[1]),
    };
  }
}

function sanitizerOptions() {
  return {
    ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? 'abort_on_error=0:exitcode=99',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  };
}

// A database of its own on the private PostgreSQL server: its URL.
export const freshDatabase = () => postgresUrl(`d${randomUUID().replaceAll('-', '')}`);

export const isAlive = (pid) => {
  try {
    return !/^State:\s+[ZX]/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};

// Below these the kernel gives ports to nobody who asks for just any; and below the others only to root.
const portsMax = Number(fs.readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim().split(/\s+/)[0]);
const portsMin = Math.max(1024, Math.floor(portsMax / 2));

// A port that nobody listens on now, for a process that needs to know it before it starts, or that is started again. It is
// below those that connections and port 0 get, so hardly anybody takes it meanwhile; if there are none, just any.
export async function freePort() {
  for (let tries = 0; tries < 100; tries++) {
    const wanted = portsMin < portsMax ? randomInt(portsMin, portsMax) : 0;
    const server = net.createServer();
    const port = await new Promise((resolve) => {
      server.once('error', () => resolve(0)).listen(wanted, '0.0.0.0', () => {
        const given = server.address().port;
        server.close(() => resolve(given));
      });
    });
    if (port > 0) return port;
  }
  throw new Error(`no port from ${portsMin} to below ${portsMax} is free`);
}

// The process ids of the children of a process.
export const childrenOf = (pid) =>
  fs.readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);

// ---- a proxy ----

// A TCP proxy in front of an address, or of a socket in the file system. `cut` breaks what is open and refuses what comes,
// `mute` keeps connections open and lets no answer through, `delay` holds answers back for a time; `heal` ends all of these.
export class Proxy {
  #target;
  #server;
  #pairs = new Set();
  #isCut = false;
  #isMute = false;
  #delayMs = 0;

  static async open(target) {
    const proxy = new Proxy();
    proxy.#target = target;
    proxy.#server = net.createServer((from) => proxy.#accept(from));
    await new Promise((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get address() {
    return `127.0.0.1:${this.#server.address().port}`;
  }

  aim(target) {
    this.#target = target;
  }

  #accept(from) {
    if (this.#isCut) return from.destroy();
    const [host, port] = this.#target.split(':');
    const to = this.#target.startsWith('/') ? net.connect(this.#target) : net.connect(Number(port), host);
    const pair = { from, to };
    this.#pairs.add(pair);
    const end = () => {
      this.#pairs.delete(pair);
      from.destroy();
      to.destroy();
    };
    from
      .on('error', end)
      .on('close', end)
      .on('data', (bytes) => to.write(bytes));
    to.on('error', end)
      .on('close', end)
      .on('data', (bytes) => {
        if (this.#isMute) return;
        if (this.#delayMs > 0) setTimeout(() => from.write(bytes), this.#delayMs);
        else from.write(bytes);
      });
    return undefined;
  }

  cut() {
    this.#isCut = true;
    this.breakAll();
  }

  mute() {
    this.#isMute = true;
  }

  delay(ms) {
    this.#delayMs = ms;
  }

  // Connections that were mute have lost bytes, so they are broken.
  heal() {
    if (this.#isMute) this.breakAll();
    this.#isCut = false;
    this.#isMute = false;
    this.#delayMs = 0;
  }

  breakAll() {
    for (const { from, to } of this.#pairs) {
      from.destroy();
      to.destroy();
    }
  }

  close() {
    this.cut();
    this.#server.close();
  }
}

// ---- PostgreSQL ----

const serverScript = path.join(root, 'tests/integration/postgres/server.sh');
let postgres; // one server for this node process; a database for each cluster

function postgresUrl(name) {
  if (!postgres) {
    // The server runs as a user of its own, which must be able to enter the folder.
    postgres = fs.mkdtempSync(path.join(os.tmpdir(), 'cap-pg-'));
    fs.chmodSync(postgres, 0o755);
    process.on('exit', () => execFileSync(serverScript, ['remove', postgres], { stdio: 'ignore' }));
    execFileSync(serverScript, ['start', postgres, '--fsync=off', 'max_connections=200'], { stdio: 'ignore' });
  }
  sql('postgres', `create database ${name}`);
  return `postgres://postgres@/${name}?host=${postgres}&port=5432`;
}

// Runs SQL in a database of the server, and returns what it prints.
function sql(database, text) {
  const args = ['-h', postgres, '-p', '5432', '-U', 'postgres', '-d', database, '-qAt', '-v', 'ON_ERROR_STOP=1'];
  return execFileSync('psql', args, { input: text, encoding: 'utf8', stdio: ['pipe', 'pipe', 'ignore'] }).trim();
}

// ---- a cluster ----

export const command = (name, script, more = {}) => ({
  name,
  executor: 'command',
  ...more,
  inputs: { argv: ['sh', '-c', script], ...more.inputs },
});
export const sleep = (name, ms, more = {}) => ({ name, executor: 'sleep', inputs: { ms }, ...more });

// The states that a job ends in.
export const endStates = new Set(['succeeded', 'failed', 'canceled']);

const lower = (state) => state.replace(/^(QUERY|TASK)_STATE_/, '').toLowerCase();

export class Cluster {
  #world;
  #options;
  #names = 0;

  constructor(world, options) {
    this.#world = world;
    this.#options = options;
    this.dir = world.folder('cluster');
    this.database = `c${randomUUID().replaceAll('-', '')}`;
    const { store = 'sqlite' } = options;
    const ways = { sqlite: () => `sqlite:${this.dir}/state.db`, postgres: () => postgresUrl(this.database) };
    this.store = ways[store]?.() ?? store;
  }

  async start() {
    await this.startCoordinator();
    this.client = this.#world.client(this.address);
    const { workers = 0, slots } = this.#options;
    for (let i = 0; i < workers; i++) await this.startWorker({ id: `w${i + 1}`, slots });
    return this;
  }

  // Starts the coordinator, again at the same address if it ran before, and waits until it leads.
  async startCoordinator({ store = this.store, args = [], leads = true } = {}) {
    this.listen ??= `127.0.0.1:${await freePort()}`;
    const settings = Object.entries(this.#options.settings ?? {}).flatMap(([name, value]) => [
      '--set',
      `${name}=${value}`,
    ]);
    const coordinator = this.#world.capstan(
      'coordinator',
      ['coordinator', '--store', store, '--listen', this.listen, ...settings, ...args],
      { cwd: this.dir },
    );
    this.coordinator = coordinator;
    this.address = (await coordinator.line(/serving on (\S+),/))[1];
    this.listen = this.address;
    if (leads) await coordinator.line(/this coordinator leads/);
    return coordinator;
  }

  // Runs SQL in its PostgreSQL database.
  sql(text) {
    return sql(this.database, text);
  }

  // A worker in C. It is there when it has registered.
  async startWorker({ id = `w${++this.#names}`, slots = 2, join = this.address, args = [], data, awaits = true } = {}) {
    const folder = data ?? path.join(this.dir, `worker-${id}`);
    const worker = this.#world.capstan(
      `worker ${id}`,
      ['worker', '--join', join, '--id', id, '--slots', String(slots), '--data', folder, ...args],
      { cwd: this.dir },
    );
    worker.id = id;
    worker.folder = folder;
    if (awaits) await worker.line(/registered/);
    return worker;
  }

  // A worker in JavaScript, in this process.
  async startJsWorker(options) {
    const worker = await new Worker({ servers: [this.address], ...options }).start();
    this.#world.atEnd(() => worker.drain());
    return worker;
  }

  // The command line: { code, stdout, stderr }.
  async cli(args, options = {}) {
    const server = options.server ?? this.address;
    return this.#world.cli(args, { ...options, env: { CAPSTAN_SERVER: server, ...options.env } });
  }

  // The same with --json, which must succeed.
  async json(...args) {
    const { code, stdout, stderr } = await this.cli([...args, '--json']);
    if (code !== 0) throw new Error(`capstan ${args.join(' ')}: exit code ${code}\n${stderr}`);
    return JSON.parse(stdout);
  }

  submit(tree, options) {
    return this.client.submit(Array.isArray(tree) ? { tasks: tree } : tree, options);
  }

  // Waits for the end: { state, message, ... } with the state in lower case.
  async end(id) {
    const status = await this.client.end(id);
    return { ...status, state: lower(status.state) };
  }

  // Submits and waits; the tasks by name.
  async run(tree, options) {
    const id = await this.submit(tree, options);
    const { state, message } = await this.end(id);
    return { id, state, message, tasks: await this.tasks(id) };
  }

  async tasks(id) {
    const tasks = await this.client.tasks(id);
    const nice = ({ name, state, worker_id, message, ref, failures, result_json, started_at_ms, finished_at_ms }) => ({
      name,
      state: lower(state),
      worker: worker_id,
      message,
      attempt: ref.attempt,
      stage: ref.stage_id,
      failures,
      started: started_at_ms,
      finished: finished_at_ms,
      result: result_json.length > 0 ? JSON.parse(result_json.toString()) : null,
    });
    return Object.fromEntries(tasks.map((task) => [task.name, nice(task)]));
  }

  // Waits until the task is in the state.
  reaches(id, name, state) {
    return until(`${name} is ${state}`, async () => {
      const task = (await this.tasks(id))[name];
      return task.state === state && task;
    });
  }

  async events(id = '') {
    const events = [];
    for await (const event of this.client.stream('WatchEvents', { query_id: id })) events.push(event);
    return events;
  }

  async why(id) {
    const { reasons } = await this.client.call('WhyPending', { query_id: id });
    return reasons.map(({ reason }) => reason);
  }

  async nodes() {
    const { nodes } = await this.client.call('ListNodes');
    return Object.fromEntries(nodes.map((node) => [node.worker_id, node]));
  }
}

// ---- a world: what one scenario has ----

export class World {
  #processes = [];
  #ends = [];
  #dir = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-e2e-'));
  #folders = 0;
  #hasChosen = false;
  #drawn;

  constructor() {
    folders.add(this.#dir);
    this.seed = givenSeed === undefined ? randomInt(1e9) : Number(givenSeed);
    this.#drawn = this.seed;
  }

  // A number from 0 to below 1, in a sequence that the seed decides: a step of a Weyl sequence, and its bits mixed.
  random() {
    this.#hasChosen = true;
    this.#drawn = (this.#drawn + 0x9e3779b9) >>> 0;
    let bits = this.#drawn;
    for (const factor of [0x85ebca6b, 0xc2b2ae35]) bits = Math.imul(bits ^ (bits >>> 15), factor) >>> 0;
    return ((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32;
  }

  // One of a list.
  any(list) {
    return list[Math.floor(this.random() * list.length)];
  }

  // How to make the same choices again; nothing if none were made.
  get howToRepeat() {
    return this.#hasChosen ? `CAPSTAN_E2E_SEED=${this.seed}` : '';
  }

  folder(name = 'folder') {
    const made = path.join(this.#dir, `${name}-${++this.#folders}`);
    fs.mkdirSync(made);
    return made;
  }

  file(name, text) {
    const made = path.join(this.folder('file'), name);
    fs.writeFileSync(made, text);
    return made;
  }

  atEnd(what) {
    this.#ends.push(what);
  }

  start(title, file, args, options = {}) {
    const started = new Process(title, file, args, { cwd: this.#dir, ...options });
    this.#processes.push(started);
    return started;
  }

  capstan(title, args, options) {
    return this.start(title, binary, args, options);
  }

  async cli(args, options) {
    const run = this.capstan(`capstan ${args.join(' ')}`.slice(0, 100), args, options);
    run.isClient = true;
    run.isQuiet = options?.isQuiet ?? false;
    const { code, signal } = await run.ended;
    return { code: code ?? signal, stdout: run.stdout, stderr: run.stderr };
  }

  client(address, options) {
    const client = new Client([address], options);
    this.atEnd(() => client.close());
    return client;
  }

  async proxy(target) {
    const proxy = await Proxy.open(target);
    this.atEnd(() => proxy.close());
    return proxy;
  }

  // { store: 'sqlite' | 'postgres' | a URL, settings: { name: value }, workers: how many, slots: of each }
  cluster(options = {}) {
    return new Cluster(this, options).start();
  }

  // Sanitizers write what they find and end the process, maybe one that nobody looks at any more.
  complaints() {
    return this.#processes
      .filter(({ log }) => /ERROR: (Address|Leak|Thread)Sanitizer|runtime error:|assertion failed/i.test(log))
      .map(({ title, log }) => `${title}:\n${log.slice(-8000)}`);
  }

  logs() {
    return this.#processes
      .filter(({ isQuiet, isClient, isOver, how }) => !isQuiet && (!isClient || !isOver || how.code !== 0))
      .map(({ title, log, isOver, how }) => {
        const lines = log.trimEnd().split('\n').slice(-LOG_TAIL);
        return `---- ${title} (${isOver ? JSON.stringify(how) : 'runs'})\n${lines.join('\n')}\n`;
      })
      .join('');
  }

  // What still runs is stopped as people do it, so that leaks are found, and killed if it does not end.
  async end({ gently }) {
    const limit = (promise) => Promise.race([promise, pause(2000)]);
    await limit(
      Promise.all(
        this.#ends.map((end) =>
          limit(
            Promise.resolve()
              .then(end)
              .catch(() => {}),
          ),
        ),
      ),
    );
    for (const started of this.#processes) started.signal('SIGCONT').signal(gently ? 'SIGTERM' : 'SIGKILL');
    await Promise.race([
      Promise.all(this.#processes.map(({ ended }) => ended)),
      pause(gently ? 3000 * slowness : 1000),
    ]);
    await Promise.all(this.#processes.map((started) => started.kill()));
    fs.rmSync(this.#dir, { recursive: true, force: true, maxRetries: 5 });
    folders.delete(this.#dir);
  }
}

// A test with a world of its own. { ms } is how long it may take on a machine that is not busy, { if } leaves it out when false,
// and prints a line that says so if { why } gives a reason.
export function scenario(name, options, body = options) {
  const { ms = 60000, if: isWanted = true, why } = body === options ? {} : options;
  if (!isWanted) {
    if (why) console.log(`skipped: ${why}: ${name}`);
    return;
  }
  test(name, { timeout: ms * PATIENCE * slowness }, async () => {
    const world = new World();
    let isOk = false;
    try {
      await body(world);
      isOk = true;
    } catch (error) {
      console.log(world.logs());
      if (world.howToRepeat) console.log(`${name}: ${world.howToRepeat} makes the same choices again`);
      throw error;
    } finally {
      await world.end({ gently: isOk && slowness > 1 });
    }
    const complaints = world.complaints();
    if (complaints.length > 0) throw new Error(`a process complained\n${complaints.join('\n')}`);
  });
}

// The same test with each store; { store } is given to the body.
export function scenarioWithEachStore(name, options, body = options) {
  for (const store of stores) {
    scenario(`${name} (${store})`, body === options ? {} : options, (world) => body(world, store));
  }
}
