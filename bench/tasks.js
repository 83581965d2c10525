// tasks.js [--json] [--check] [--tls] [--store sqlite|postgres] [--tasks N] [--rounds N] - whole tasks through real processes, beside the bare
// engine that writes the same rows, in turns, so that both see the same machine. Run through ./dev bench tasks.
//
// tasks_per_s   no-op tasks: submitted, durable, leased, run by worker processes, durable again (capstan bench tasks)
// bare_tree     full lifecycles per second that the engine alone writes, in commits of 1000: jobs of a thousand tasks with
//               an input, as tasks_per_s has them (bench-store). ratio_to_bare is the part of it that is reached
// bare_100, bare_1000  the same with one job per task and no inputs, in commits of 100 and of 1000
// separate      tasks_per_s of a coordinator and workers that were started one by one, with tokens, as `capstan up` has
//               them; ratio_separate is the median of that by the median of tasks_per_s
// *_cpu_us      processor time per task of the client, the coordinator, the workers, and the server of PostgreSQL
// latency       one task at a time, from the submit to its end being seen, beside the three commits that it needs
//
// --tls         instead of all that: the same tasks through processes that talk over TLS and through such that do not, in
//               turns; ratio_tls is the median with TLS by the median without
// --check leaves with an error if a bar is missed.
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { options } from './lib/options.js';

const values = options({ json: false, check: false, tls: false, store: undefined, tasks: '150000', rounds: '3' });
const asJson = values.json;
const isTls = values.tls;
const rounds = Number(values.rounds);
const tasks = values.tasks;
const bin = path.resolve('build/release/bin');
const server = path.resolve('tests/integration/postgres/server.sh');

const run = (file, ...args) =>
  execFileSync(file, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });
const json = (...args) => JSON.parse(run(...args));
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-bench-'));
fs.chmodSync(scratch, 0o755); // the server of PostgreSQL runs as another user
const children = new Set();
let serverDir = null;
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  if (serverDir !== null) run('sh', server, 'remove', serverDir);
  fs.rmSync(scratch, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Calls `body` with the arguments that name the store; a server lives as long as that.
async function withStore(store, body) {
  serverDir = store === 'postgres' ? path.join(scratch, 'pg') : null; // removed here or at the exit
  const place = serverDir === null ? [] : ['--store', run('sh', server, 'start', serverDir, 'fsync=on').trim()];
  await body(place, serverDir);
  if (serverDir !== null) run('sh', server, 'remove', serverDir);
  serverDir = null;
}

// Microseconds of processor time that a server of PostgreSQL has used: its first process, those that it has, and those
// that have ended.
function serverCpuUs(dir) {
  const first = Number(fs.readFileSync(path.join(dir, 'data/postmaster.pid'), 'utf8').split('\n')[0]);
  const ticks = (pid, ended) => {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /s, '').split(' ').map(Number);
    return stat[11] + stat[12] + (ended ? stat[13] + stat[14] : 0);
  };
  const living = fs.readFileSync(`/proc/${first}/task/${first}/children`, 'utf8').split(' ').filter(Boolean);
  return living.reduce((sum, pid) => sum + ticks(pid, false), ticks(first, true)) * 10000;
}

const load = ['--tasks', tasks, '--batch', '1000'];
const benchTasks = (...args) => json(`${bin}/capstan`, 'bench', 'tasks', '--json', ...load, '--slots', '500', ...args);

// A process of the cluster; resolves with the first match in what it logs.
async function start(pattern, env, ...args) {
  const child = spawn(`${bin}/capstan`, args, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...env } });
  children.add(child);
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (log += text));
  while (!pattern.test(log)) {
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`capstan ${args[0]} ended: ${log}`);
    await wait(10);
  }
  return pattern.exec(log);
}

async function stopAll() {
  for (const child of [...children].reverse()) { // workers first
    const ended = new Promise((resolve) => child.once('exit', resolve));
    if (child.exitCode === null && child.signalCode === null && child.kill('SIGTERM')) await ended;
    children.delete(child);
  }
}

// The same tasks through a coordinator and workers that were started by hand: what `up` starts, with the settings of
// `capstan bench tasks`.
async function benchSeparate(place, limits) {
  const dir = fs.mkdtempSync(path.join(scratch, 'separate-'));
  const token = createHash('sha256').update(dir + process.hrtime.bigint()).digest('hex');
  const env = { CAPSTAN_TOKEN: token };
  const tokens = path.join(dir, 'auth-tokens');
  fs.writeFileSync(tokens, `${createHash('sha256').update(token).digest('hex')} bench read,submit,worker,admin\n`, { mode: 0o600 });
  const settings = Object.entries(limits).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
  const store = place.length > 0 ? place : ['--store', `sqlite:${dir}/state.db`];
  try {
    const coordinator = ['coordinator', ...store, '--listen', '127.0.0.1:0', '--auth-tokens', tokens, ...settings];
    const [, address] = await start(/serving on (\S+),[^]*this coordinator leads/, env, ...coordinator);
    for (const id of ['bench-1', 'bench-2']) {
      const worker = ['worker', '--join', address, '--id', id, '--slots', '500', '--listen', '127.0.0.1:0'];
      await start(/registered as /, env, ...worker, '--data', path.join(dir, id));
    }
    process.env.CAPSTAN_TOKEN = token;
    const seen = json(`${bin}/capstan`, 'bench', 'tasks', '--json', ...load, '--server', address);
    if (seen.workers !== 2 || seen.slots !== 1000) throw new Error(`${seen.workers} workers with ${seen.slots} slots`);
    return seen;
  } finally {
    delete process.env.CAPSTAN_TOKEN;
    await stopAll();
  }
}

async function measure(store) {
  const seen = {};
  const note = (figures) => Object.entries(figures).forEach(([name, value]) => (seen[name] ??= []).push(value));
  let limits;
  await withStore(store, async (place, dir) => {
    for (let i = 0; i < rounds; i++) {
      const bare = json(`${bin}/bench-store`, '--json', '--quick', '--store', store, 'lifecycles');
      note({ bare_tree: bare[`${store}_bare_tree_1000`] });
      note({ bare_100: bare[`${store}_bare_100`], bare_1000: bare[`${store}_bare_1000`] });
      // Whoever begins changes from round to round.
      if (i % 2 === 1) note({ separate_tasks_per_s: (await benchSeparate(place, limits)).tasks_per_s });
      const before = dir === null ? 0 : serverCpuUs(dir);
      const many = benchTasks(...place);
      if (dir !== null) note({ server_cpu_us: (serverCpuUs(dir) - before) / Number(tasks) });
      const { tasks_per_s, client_cpu_us, coordinator_cpu_us, workers_cpu_us } = many;
      note({ tasks_per_s, client_cpu_us, coordinator_cpu_us, workers_cpu_us });
      limits = many.limits;
      if (i % 2 === 0) note({ separate_tasks_per_s: (await benchSeparate(place, limits)).tasks_per_s });
      const one = json(`${bin}/capstan`, 'bench', 'latency', '--json', ...place);
      note({ p50_ms: one.p50_ms, commits_ms: one.commit_ms * one.commits_per_task });
    }
  });
  const figures = Object.fromEntries(Object.entries(seen).map(([name, list]) => [name, median(list)]));
  return {
    store,
    ...figures,
    ratio_to_bare: figures.tasks_per_s / figures.bare_tree,
    ratio_to_bare_100: figures.tasks_per_s / figures.bare_100,
    ratio_to_bare_1000: figures.tasks_per_s / figures.bare_1000,
    ratio_separate: figures.separate_tasks_per_s / figures.tasks_per_s,
    p50_to_commits: median(seen.p50_ms.map((ms, i) => ms / seen.commits_ms[i])),
    all: seen,
    limits,
  };
}

// TLS and tokens against neither. Whoever begins changes from round to round.
async function measureTls(store) {
  const seen = { plain: [], tls: [] };
  await withStore(store, (place) => {
    for (let i = 0; i < rounds; i++) {
      for (const kind of i % 2 === 0 ? ['plain', 'tls'] : ['tls', 'plain']) {
        seen[kind].push(benchTasks(kind === 'tls' ? '--tls' : '--no-auth', ...place).tasks_per_s);
      }
    }
  });
  const [plain, tls] = [median(seen.plain), median(seen.tls)];
  return { store, tasks_per_s: plain, tls_tasks_per_s: tls, ratio_tls: tls / plain, all: seen };
}

const wantedPerSecond = { sqlite: 30000, postgres: 15000 };
const wantedRatioTls = 0.8;
const wantedRatioSeparate = 0.9;
function missed(r) {
  const bars = isTls
    ? { [`${(100 * r.ratio_tls).toFixed(0)} % with TLS, wanted ${100 * wantedRatioTls}`]: r.ratio_tls >= wantedRatioTls }
    : {
        [`${r.tasks_per_s.toFixed(0)} tasks/s, wanted ${wantedPerSecond[r.store]}`]: r.tasks_per_s >= wantedPerSecond[r.store],
        [`${(100 * r.ratio_to_bare).toFixed(0)} % of the bare engine, wanted 40`]: r.ratio_to_bare >= 0.4,
        [`${(100 * r.ratio_separate).toFixed(0)} % in separate processes, wanted ${100 * wantedRatioSeparate}`]:
          r.ratio_separate >= wantedRatioSeparate,
        [`p50 ${r.p50_to_commits.toFixed(2)} x its commits, wanted 3`]: r.p50_to_commits <= 3,
      };
  return Object.keys(bars).filter((bar) => !bars[bar]).map((bar) => `${r.store}: ${bar}`);
}

const wanted = values.store;
const results = [];
for (const store of wanted ? [wanted] : ['sqlite', 'postgres']) {
  results.push(await (isTls ? measureTls : measure)(store));
}
const conditions = { rounds, tasks: Number(tasks), cores: os.cpus().length, load: os.loadavg()[0], workers: 2, slots: 500 };
if (asJson) {
  console.log(JSON.stringify({ bench: isTls ? 'tasks-tls' : 'tasks', conditions, results }));
} else {
  console.log(`${rounds} rounds of ${tasks} tasks, 2 workers with 500 slots, ${conditions.cores} cores, load ${conditions.load.toFixed(1)}; medians`);
  for (const r of results) {
    if (isTls) {
      console.log(`${r.store}: ${r.tasks_per_s.toFixed(0)} tasks/s without TLS, ${r.tls_tasks_per_s.toFixed(0)} with it: ${r.ratio_tls.toFixed(2)}`);
      continue;
    }
    const indent = ' '.repeat(r.store.length);
    const parts = ['client', 'coordinator', 'workers', 'server'].filter((part) => `${part}_cpu_us` in r);
    const all = parts.reduce((sum, part) => sum + r[`${part}_cpu_us`], 0);
    const cpu = parts.map((part) => `${part} ${r[`${part}_cpu_us`].toFixed(1)} (${((100 * r[`${part}_cpu_us`]) / all).toFixed(0)} %)`);
    console.log(`${r.store}: ${r.tasks_per_s.toFixed(0)} tasks/s, wanted ${wantedPerSecond[r.store]}; bare engine with the same rows ${r.bare_tree.toFixed(0)}/s (${(100 * r.ratio_to_bare).toFixed(0)} %, wanted 40)`);
    console.log(`${indent}  bare engine with one job per task ${r.bare_100.toFixed(0)}/s at 100, ${r.bare_1000.toFixed(0)}/s at 1000 (${(100 * r.ratio_to_bare_100).toFixed(0)} %, ${(100 * r.ratio_to_bare_1000).toFixed(0)} %)`);
    console.log(`${indent}  separate processes ${r.separate_tasks_per_s.toFixed(0)} tasks/s (${(100 * r.ratio_separate).toFixed(0)} % of up, wanted 90)`);
    console.log(`${indent}  microseconds of processor time per task: ${cpu.join(', ')}`);
    console.log(`${indent}  p50 ${r.p50_ms.toFixed(2)} ms = ${r.p50_to_commits.toFixed(2)} x the three bare commits of a task`);
  }
}
if (values.check) {
  for (const bar of results.flatMap(missed)) {
    console.error(`missed: ${bar}`);
    process.exitCode = 1;
  }
}
