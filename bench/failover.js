#!/usr/bin/env node
// failover.js - how long nobody leads: three coordinators on one PostgreSQL, and a fleet that runs 10,000 tasks meanwhile.
//
//   node bench/failover.js [--rounds 50] [--tasks 10000] [--ttl 10000] [--only graceful|crash]
//                          [--binary build/release/bin/capstan] [--json]
//
// In each round the leader is stopped (SIGTERM) or killed (SIGKILL), and the time is taken from that moment until one of the
// other two has answered a submit, which it does when the job is durable. Then the one that has gone is started again, and
// all workers have to show up at the new leader before the next round. None of the tasks that run ends, and none may be
// begun a second time. The bars: a second after a stop; `leader_ttl_ms` and a second after a kill; nothing executed again.
// Run through ./dev bench failover. Needs the packages of examples/javascript (npm ci).
import { execFileSync, fork, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from '../examples/javascript/client.js';
import { Worker } from '../examples/javascript/worker.js';
import { options } from './lib/options.js';

const SLOTS = 1000; // of each worker
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---- the fleet, in a process of its own so that it does not disturb the clock ----

async function runFleet([servers, n]) {
  const begun = new Map(); // task key → how often
  const executors = {
    nothing: () => null,
    hold: (inputs, signal, { task_key }) => {
      begun.set(task_key, (begun.get(task_key) ?? 0) + 1);
      return new Promise((resolve) => signal.addEventListener('abort', () => resolve(null)));
    },
  };
  process.on('message', () => {
    const counts = [...begun.values()];
    process.send({ tasks: counts.length, again: counts.reduce((sum, count) => sum + count - 1, 0) });
  });
  process.on('disconnect', () => process.exit());
  for (let i = 0; i < Number(n); i++) {
    await new Worker({ servers: servers.split(','), id: `fleet-${i}`, slots: SLOTS, executors }).start();
  }
}

class Fleet {
  constructor(servers, n) {
    this.n = n;
    this.child = fork(fileURLToPath(import.meta.url), ['--fleet', servers.join(','), String(n)]);
  }

  count() {
    return new Promise((resolve) => {
      this.child.once('message', resolve);
      this.child.send('count');
    });
  }
}

// ---- the cluster ----

class Coordinator {
  #args;
  #listen = '127.0.0.1:0';

  constructor(args) {
    this.#args = args;
  }

  async start() {
    this.log = '';
    this.process = spawn(values.binary, [...this.#args, '--listen', this.#listen], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.process.stderr.setEncoding('utf8').on('data', (text) => (this.log += text));
    await until('it serves', () => {
      if (this.process.exitCode !== null) throw new Error(`a coordinator ended:\n${this.log}`);
      return /serving on (\S+),/.exec(this.log);
    });
    this.address = /serving on (\S+),/.exec(this.log)[1];
    this.#listen = this.address;
    this.client ??= new Client([this.address]);
    return this;
  }

  leads() {
    return this.client.once('GetLeader', {}, { timeoutMs: 2000 }).then(
      ({ role }) => role === 'leader',
      () => false,
    );
  }

  end(signal) {
    const ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill(signal);
    return ended;
  }
}

async function until(what, ask, ms = 60000) {
  for (const end = Date.now() + ms; ;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not in ${ms} ms: ${what}`);
    await wait(20);
  }
}

async function leaderOf(coordinators) {
  return until('one leads', async () => {
    for (const coordinator of coordinators) if (await coordinator.leads()) return coordinator;
    return undefined;
  });
}

// ---- a round ----

let submits = 0;

// Asks one coordinator again and again until it takes a job, or somebody else has.
async function write({ client }, state) {
  const tree_json = Buffer.from(JSON.stringify({ tasks: [{ name: 't', executor: 'nothing', inputs: {} }] }));
  while (!state.isOver) {
    try {
      await client.once('SubmitTasks', { job_id: `write-${++submits}`, tree_json }, { timeoutMs: 20000 });
      if (!state.isOver) state.took = performance.now() - state.from;
      state.isOver = true;
    } catch {
      await wait(2);
    }
  }
}

// The milliseconds until the first write, and until all workers were seen by the new leader.
async function strike(coordinators, fleet, signal) {
  const leader = await leaderOf(coordinators);
  const others = coordinators.filter((coordinator) => coordinator !== leader);
  const state = { from: performance.now(), isOver: false };
  const ended = leader.end(signal);
  await Promise.all(others.map((other) => write(other, state)));
  const next = await leaderOf(others);
  const { nodes } = await next.client.once('ListNodes');
  const before = new Map(nodes.map(({ worker_id, last_seen_ms }) => [worker_id, last_seen_ms]));
  await until('all workers are back', async () => {
    const now = (await next.client.once('ListNodes')).nodes;
    return now.length === fleet.n && now.every((node) => node.last_seen_ms > before.get(node.worker_id));
  });
  const reattached = performance.now() - state.from;
  await ended;
  await leader.start();
  return { ms: state.took, reattached };
}

const sorted = (list) => [...list].sort((a, b) => a - b);
const figures = (rounds) => {
  const [ms, reattached] = ['ms', 'reattached'].map((name) => sorted(rounds.map((round) => round[name])));
  const middle = (list) => Math.round(list[Math.floor((list.length - 1) / 2)]);
  return {
    rounds: rounds.length,
    p50_ms: middle(ms),
    max_ms: Math.round(ms.at(-1)),
    reattached_p50_ms: middle(reattached),
    reattached_max_ms: Math.round(reattached.at(-1)),
  };
};

// ---- all of it ----

async function measure(dir) {
  const server = path.resolve('tests/integration/postgres/server.sh');
  const store = execFileSync('sh', [server, 'start', `${dir}/pg`], { encoding: 'utf8' }).trim();
  const n = Number(values.tasks);
  const ttl = Number(values.ttl);
  const settings = {
    leader_ttl_ms: ttl,
    max_concurrent_tasks_per_worker: SLOTS,
    max_concurrent_tasks_per_query: 1000000,
  };
  const args = [
    'coordinator',
    '--store',
    store,
    ...Object.entries(settings).flatMap((pair) => ['--set', pair.join('=')]),
  ];
  const coordinators = [];
  for (const name of ['a', 'b', 'c']) {
    coordinators.push(await new Coordinator([...args, '--node-id', name]).start());
    processes.push(coordinators.at(-1));
  }
  const servers = coordinators.map(({ address }) => address);
  const client = new Client(servers);
  const fleet = new Fleet(servers, Math.ceil(n / SLOTS) + 1); // one more than needed, for the writes
  processes.push({ process: fleet.child });
  await until('the fleet is there', async () => (await client.call('ListNodes')).nodes.length === fleet.n);
  const tasks = Array.from({ length: n }, (_, i) => ({ name: `t${i}`, executor: 'hold', inputs: {} }));
  const id = await client.submit({ tasks });
  await until('all tasks run', async () => (await fleet.count()).tasks === n, 300000);

  const results = {};
  for (const [kind, signal] of [
    ['graceful', 'SIGTERM'],
    ['crash', 'SIGKILL'],
  ]) {
    if (values.only && values.only !== kind) continue;
    const rounds = [];
    for (let round = 0; round < Number(values.rounds); round++) {
      rounds.push(await strike(coordinators, fleet, signal));
      if (process.stderr.isTTY) process.stderr.write(`\r${kind} ${round + 1}: ${Math.round(rounds.at(-1).ms)} ms   `);
    }
    results[kind] = { ...figures(rounds), bar_ms: kind === 'crash' ? ttl + 1000 : 1000 };
  }
  const { again } = await fleet.count();
  const held = (await new Client(servers).tasks(id)).filter(({ state }) => state === 'TASK_STATE_RUNNING');
  const retried = held.filter(({ ref }) => ref.attempt !== 1).length;
  client.close();
  return { ...results, live_tasks: held.length, executed_again: again, attempts_above_one: retried };
}

const processes = [];
let values;
if (process.argv[2] === '--fleet') {
  await runFleet(process.argv.slice(3));
} else {
  values = options({
    rounds: '50',
    tasks: '10000',
    ttl: '10000',
    only: undefined,
    binary: 'build/release/bin/capstan',
    json: false,
  });
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-bench-'));
  fs.chmodSync(dir, 0o755); // the server runs as a user of its own
  process.on('exit', () => {
    for (const one of processes) one.process.kill('SIGKILL');
    execFileSync('sh', [path.resolve('tests/integration/postgres/server.sh'), 'remove', `${dir}/pg`], {
      stdio: 'ignore',
    });
    fs.rmSync(dir, { recursive: true, force: true });
  });
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));
  const load = os.loadavg()[0];
  const result = await measure(dir);
  const kinds = Object.entries(result).filter(([, value]) => value?.bar_ms);
  const isGood =
    result.executed_again === 0 &&
    result.attempts_above_one === 0 &&
    result.live_tasks === Number(values.tasks) &&
    kinds.every(([, { max_ms, bar_ms }]) => max_ms <= bar_ms);
  const conditions = {
    cores: os.cpus().length,
    load_before: load,
    load_after: os.loadavg()[0],
    leader_ttl_ms: Number(values.ttl),
  };
  if (values.json) {
    console.log(JSON.stringify({ bench: 'failover', ...result, conditions, is_good: isGood }));
  } else {
    for (const [kind, it] of kinds) {
      console.log(
        `${kind.padEnd(8)} ${it.rounds} rounds: first write after p50 ${it.p50_ms} ms, max ${it.max_ms} ms (bar ${it.bar_ms} ms); all workers back after p50 ${it.reattached_p50_ms} ms, max ${it.reattached_max_ms} ms`,
      );
    }
    console.log(
      `${result.live_tasks} tasks ran all the time, ${result.executed_again} were executed again, ${result.attempts_above_one} have another attempt`,
    );
    console.log(
      `leader_ttl_ms ${values.ttl}, ${conditions.cores} cores, load ${load.toFixed(1)} before, ${conditions.load_after.toFixed(1)} after`,
    );
    console.log(isGood ? 'within the bars' : 'NOT within the bars');
  }
  process.exit(isGood ? 0 : 1);
}
