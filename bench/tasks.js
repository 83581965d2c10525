// tasks.js [--json] [--check] [--store sqlite|postgres] [--tasks N] [--rounds N] - whole tasks through real processes, beside the bare
// engine that writes the same kind of rows, in turns, so that both see the same machine. Run through ./dev bench tasks.
//
// tasks_per_s   no-op tasks: submitted, durable, leased, run by worker processes, durable again (capstan bench tasks)
// bare          full lifecycles per second that the engine alone writes, in commits of 100 and of 1000 (bench-store)
//               one job per task there, a thousand tasks per job here
// latency       one task at a time, from the submit to its end being seen, beside the three commits that it needs
//
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
const rounds = Number(option('rounds', 3));
const tasks = option('tasks', '150000');
const bin = path.resolve('build/release/bin');
const server = path.resolve('tests/integration/postgres/server.sh');

const run = (file, ...args) =>
  execFileSync(file, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 1 << 26 });
const json = (...args) => JSON.parse(run(...args));
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];

function measure(store) {
  const dir = path.join(os.tmpdir(), `capstan-bench-${process.pid}`);
  const place = store === 'postgres' ? ['--store', run('sh', server, 'start', dir, 'fsync=on').trim()] : [];
  const seen = { tasks_per_s: [], bare_100: [], bare_1000: [], p50_ms: [], commits_ms: [] };
  let limits;
  try {
    for (let i = 0; i < rounds; i++) {
      const bare = json(`${bin}/bench-store`, '--json', '--quick', '--store', store, 'lifecycles');
      seen.bare_100.push(bare[`${store}_bare_100`]);
      seen.bare_1000.push(bare[`${store}_bare_1000`]);
      const many = json(
        `${bin}/capstan`,
        ...['bench', 'tasks', '--json', '--tasks', tasks, '--slots', '500', '--batch', '1000', ...place],
      );
      seen.tasks_per_s.push(many.tasks_per_s);
      limits = many.limits;
      const one = json(`${bin}/capstan`, 'bench', 'latency', '--json', ...place);
      seen.p50_ms.push(one.p50_ms);
      seen.commits_ms.push(one.commit_ms * one.commits_per_task);
    }
  } finally {
    if (store === 'postgres') run('sh', server, 'remove', dir);
  }
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

const wantedPerSecond = { sqlite: 30000, postgres: 15000 };
function missed(r) {
  const bars = {
    [`${r.tasks_per_s.toFixed(0)} tasks/s, wanted ${wantedPerSecond[r.store]}`]: r.tasks_per_s >= wantedPerSecond[r.store],
    [`${(100 * r.ratio_to_bare_1000).toFixed(0)} % of the bare engine, wanted 40`]: r.ratio_to_bare_1000 >= 0.4,
    [`p50 ${r.p50_to_commits.toFixed(2)} x its commits, wanted 3`]: r.p50_to_commits <= 3,
  };
  return Object.keys(bars).filter((bar) => !bars[bar]).map((bar) => `${r.store}: ${bar}`);
}

const wanted = option('store');
const results = (wanted ? [wanted] : ['sqlite', 'postgres']).map(measure);
const conditions = { rounds, tasks: Number(tasks), cores: os.cpus().length, load: os.loadavg()[0], workers: 2, slots: 500 };
if (asJson) {
  console.log(JSON.stringify({ bench: 'tasks', conditions, results }));
} else {
  console.log(`${rounds} rounds of ${tasks} tasks, 2 workers with 500 slots, ${conditions.cores} cores, load ${conditions.load.toFixed(1)}; medians`);
  for (const r of results) {
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
