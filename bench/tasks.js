// tasks.js [--json] [--check] [--tls] [--store sqlite|postgres] [--tasks N] [--rounds N] - whole tasks through real processes, beside the bare
// engine that writes the same kind of rows, in turns, so that both see the same machine. Run through ./dev bench tasks.
//
// tasks_per_s   no-op tasks: submitted, durable, leased, run by worker processes, durable again (capstan bench tasks)
// bare          full lifecycles per second that the engine alone writes, in commits of 100 and of 1000 (bench-store)
//               one job per task there, a thousand tasks per job here
// latency       one task at a time, from the submit to its end being seen, beside the three commits that it needs
//
// --tls         instead of all that: the same tasks through processes that talk over TLS and through such that do not, in
//               turns; ratio_tls is the median with TLS by the median without
// --check leaves with an error if a bar is missed.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : process.argv[at + 1];
};
const asJson = process.argv.includes('--json');
const isTls = process.argv.includes('--tls');
const rounds = Number(option('rounds', 3));
const tasks = option('tasks', '150000');
const bin = path.resolve('build/release/bin');
const server = path.resolve('tests/integration/postgres/server.sh');

const run = (file, ...args) =>
  execFileSync(file, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });
const json = (...args) => JSON.parse(run(...args));
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

// Calls `body` with the arguments that name the store; a server lives as long as that.
function withStore(store, body) {
  const dir = path.join(os.tmpdir(), `capstan-bench-${process.pid}`);
  const place = store === 'postgres' ? ['--store', run('sh', server, 'start', dir, 'fsync=on').trim()] : [];
  try {
    return body(place);
  } finally {
    if (store === 'postgres') run('sh', server, 'remove', dir);
  }
}

const benchTasks = (...args) =>
  json(
    `${bin}/capstan`,
    ...['bench', 'tasks', '--json', '--tasks', tasks, '--slots', '500', '--batch', '1000', ...args],
  );

function measure(store) {
  const seen = { tasks_per_s: [], bare_100: [], bare_1000: [], p50_ms: [], commits_ms: [] };
  let limits;
  withStore(store, (place) => {
    for (let i = 0; i < rounds; i++) {
      const bare = json(`${bin}/bench-store`, '--json', '--quick', '--store', store, 'lifecycles');
      seen.bare_100.push(bare[`${store}_bare_100`]);
      seen.bare_1000.push(bare[`${store}_bare_1000`]);
      const many = benchTasks(...place);
      seen.tasks_per_s.push(many.tasks_per_s);
      limits = many.limits;
      const one = json(`${bin}/capstan`, 'bench', 'latency', '--json', ...place);
      seen.p50_ms.push(one.p50_ms);
      seen.commits_ms.push(one.commit_ms * one.commits_per_task);
    }
  });
  const figures = Object.fromEntries(Object.entries(seen).map(([name, list]) => [name, median(list)]));
  return {
    store,
    ...figures,
    ratio_to_bare_100: figures.tasks_per_s / figures.bare_100,
    ratio_to_bare_1000: figures.tasks_per_s / figures.bare_1000,
    p50_to_commits: median(seen.p50_ms.map((ms, i) => ms / seen.commits_ms[i])),
    all: seen,
    limits,
  };
}

// With tokens in both cases: capstan bench always asks for one. Whoever begins changes from round to round.
function measureTls(store) {
  const seen = { plain: [], tls: [] };
  withStore(store, (place) => {
    for (let i = 0; i < rounds; i++) {
      for (const kind of i % 2 === 0 ? ['plain', 'tls'] : ['tls', 'plain']) {
        seen[kind].push(benchTasks(...(kind === 'tls' ? ['--tls'] : []), ...place).tasks_per_s);
      }
    }
  });
  const [plain, tls] = [median(seen.plain), median(seen.tls)];
  return { store, tasks_per_s: plain, tls_tasks_per_s: tls, ratio_tls: tls / plain, all: seen };
}

const wantedPerSecond = { sqlite: 30000, postgres: 15000 };
const wantedRatioTls = 0.8;
function missed(r) {
  const bars = isTls
    ? { [`${(100 * r.ratio_tls).toFixed(0)} % with TLS, wanted ${100 * wantedRatioTls}`]: r.ratio_tls >= wantedRatioTls }
    : {
        [`${r.tasks_per_s.toFixed(0)} tasks/s, wanted ${wantedPerSecond[r.store]}`]: r.tasks_per_s >= wantedPerSecond[r.store],
        [`${(100 * r.ratio_to_bare_1000).toFixed(0)} % of the bare engine, wanted 40`]: r.ratio_to_bare_1000 >= 0.4,
        [`p50 ${r.p50_to_commits.toFixed(2)} x its commits, wanted 3`]: r.p50_to_commits <= 3,
      };
  return Object.keys(bars).filter((bar) => !bars[bar]).map((bar) => `${r.store}: ${bar}`);
}

const wanted = option('store');
const results = (wanted ? [wanted] : ['sqlite', 'postgres']).map(isTls ? measureTls : measure);
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
    console.log(`${r.store}: ${r.tasks_per_s.toFixed(0)} tasks/s; bare engine ${r.bare_100.toFixed(0)}/s at 100, ${r.bare_1000.toFixed(0)}/s at 1000 (${(100 * r.ratio_to_bare_100).toFixed(0)} %, ${(100 * r.ratio_to_bare_1000).toFixed(0)} %)`);
    console.log(`${' '.repeat(r.store.length)}  p50 ${r.p50_ms.toFixed(2)} ms = ${r.p50_to_commits.toFixed(2)} x the three bare commits of a task`);
  }
}
if (process.argv.includes('--check')) {
  for (const bar of results.flatMap(missed)) {
    console.error(`missed: ${bar}`);
    process.exitCode = 1;
  }
}
fs.rmSync(path.join(os.tmpdir(), `capstan-bench-${process.pid}`), { recursive: true, force: true });
