#!/usr/bin/env node
// jobs.js [--json] [--check] [--store sqlite|postgres] [--jobs 5000000] [--rate 5000] [--reads 2000] - what a list of jobs costs
// when there is a long history: GET /v1/jobs while tasks run. Run through ./dev bench jobs.
//
// The history is one ended job, multiplied by SQL: so many jobs with one stage and one task each. Then a coordinator and a
// worker start on it, a little more than `rate` no-op tasks a second are submitted, and lists are read: the newest jobs, by
// state, by name, by both, page after page, and from anywhere in the history. The bar: p99 under 50 ms while `rate` tasks a
// second end. --check leaves with an error if it is missed.
// Needs the packages of examples/javascript (npm ci).
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Client } from '../examples/javascript/client.js';
import { options } from './lib/options.js';

const values = options({ jobs: '5000000', rate: '5000', reads: '2000', store: undefined, json: false, check: false });
const [jobs, rate, reads] = [values.jobs, values.rate, values.reads].map(Number);
const P99_MS_MAX = 50;
const SUBMITS_PER_S = 10;
const OFFERED = 1.05; // of the rate: the last ones are waited for, so what ends is always a little less than what comes
const binary = path.resolve('build/release/bin/capstan');
const server = path.resolve('tests/integration/postgres/server.sh');
const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

// Starts a program; `ready` is what it says on stderr when it is up.
async function start(args, ready) {
  const child = spawn(binary, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  children.add(child);
  let log = '';
  const found = await new Promise((resolve, reject) => {
    child.stderr.setEncoding('utf8').on('data', (text) => {
      log += text;
      if (log.length < 65536 && ready.test(log)) resolve(ready.exec(log));
    });
    child.on('exit', (code) => reject(new Error(`capstan ${args[0]} ended with ${code}:\n${log}`)));
  });
  const stop = () =>
    new Promise((resolve) => {
      child.removeAllListeners('exit').on('exit', resolve);
      child.kill('SIGTERM');
      children.delete(child);
    });
  return { found, stop };
}

const coordinator = (store) =>
  start(
    ['coordinator', '--store', store, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0', '--no-auth', '--set', 'max_concurrent_tasks_per_worker=1000', '--set', 'max_concurrent_tasks_per_query=100000'],
    /serving on (\S+),[\s\S]*(http:\/\/[\d.:]+)[\s\S]*this coordinator leads/,
  );

// Rows for so many jobs, from those of the one that there is.
function multiply(dir, url, isLite) {
  const schema = isLite ? '' : 'capstan.';
  const id = isLite ? "printf('history-%08d', s.i)" : "'history-' || lpad(s.i::text, 8, '0')";
  const name = isLite ? "printf('nightly-%d', s.i % 1000)" : "'nightly-' || s.i % 1000";
  const series = isLite
    ? `(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < ${jobs}) SELECT i FROM s)`
    : `generate_series(0::bigint, ${jobs - 1})`;
  const from = (table) => `FROM ${series} s${isLite ? '' : '(i)'} CROSS JOIN ${schema}${table} t WHERE t.job_id = 'one'`;
  const columns = (table) =>
    run(
      isLite
        ? `SELECT group_concat(name) FROM pragma_table_info('${table}')`
        : `SELECT string_agg(column_name, ',' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'capstan' AND table_name = '${table}'`,
    ).split(',');
  const copy = (table, changes) =>
    run(
      `INSERT INTO ${schema}${table} (${columns(table)}) SELECT ${columns(table).map((column) => changes[column] ?? `t.${column}`)} ${from(table)}`,
    );
  function run(sql) {
    const [file, args] = isLite ? ['sqlite3', [`${dir}/state.db`]] : ['psql', ['-qAt', '-v', 'ON_ERROR_STOP=1', url]];
    return execFileSync(file, args, { input: sql, encoding: 'utf8' }).trim();
  }
  // Ten a second; one in a hundred failed.
  const times = Object.fromEntries(
    ['submitted_at_ms', 'started_at_ms', 'finished_at_ms'].map((column) => [column, `t.${column} - (${jobs} - s.i) * 100`]),
  );
  copy('jobs', { job_id: id, name, ...times, state: 'CASE WHEN s.i % 100 = 0 THEN 3 ELSE t.state END' });
  copy('stages', { job_id: id });
  copy('tasks', { job_id: id });
  run(isLite ? 'PRAGMA wal_checkpoint(TRUNCATE); ANALYZE' : 'ANALYZE');
}

// Submits no-op tasks at a steady rate until it is told to stop; returns how many a second ended.
function load(client) {
  const started = Date.now();
  let isOver = false;
  let n = 0;
  const tree = { tasks: Array.from({ length: Math.ceil((rate * OFFERED) / SUBMITS_PER_S) }, (_, i) => ({ name: `t${i}`, executor: 'sleep', inputs: { ms: 0 } })) };
  const running = (async () => {
    while (!isOver) {
      const id = await client.submit(tree);
      n++;
      const due = started + (n * 1000) / SUBMITS_PER_S;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - Date.now())));
      if (isOver) await client.end(id);
    }
    return (n * tree.tasks.length * 1000) / (Date.now() - started);
  })();
  return () => {
    isOver = true;
    return running;
  };
}

// Where pages in the middle of the history begin: the place that a page of it names, moved to another of its jobs. They are
// spread evenly, from the newest to the oldest.
async function placesIn(api) {
  const { next } = await (await fetch(`${api}/v1/jobs?name=nightly-7&limit=1`)).json();
  const [, at, i] = /^(\d+):history-(\d+)$/.exec(next).map(Number);
  return (part) => {
    const job = Math.floor((jobs - 1) * (1 - 0.99 * part));
    return `after=${encodeURIComponent(`${at - (i - job) * 100}:history-${String(job).padStart(8, '0')}`)}`;
  };
}

async function read(api) {
  const took = [];
  let next = '';
  const place = await placesIn(api);
  const named = 'name=nightly-7';
  const onward = () => next && `after=${encodeURIComponent(next)}`;
  const lists = [
    ...['', 'state=failed', 'state=succeeded', named, `state=succeeded&${named}`].map((filter) => () => filter),
    onward,
    ...['', 'state=failed', `state=succeeded&${named}`].map((filter) => (part) => `${place(part)}&${filter}`),
  ];
  for (let i = 0; i < reads; i++) {
    const list = lists[i % lists.length];
    const query = `limit=50&${list(i / reads)}`.replace(/&$/, '');
    const begun = performance.now();
    const answer = await fetch(`${api}/v1/jobs?${query}`);
    const body = await answer.json();
    took.push(performance.now() - begun);
    if (answer.status !== 200 || body.jobs.length === 0) throw new Error(`GET /v1/jobs?${query}: ${answer.status} ${JSON.stringify(body).slice(0, 200)}`);
    if (list === onward) next = body.next ?? '';
  }
  took.sort((a, b) => a - b);
  return { p50_ms: took[Math.floor(took.length / 2)], p99_ms: took[Math.floor(took.length * 0.99)], max_ms: took.at(-1) };
}

async function measure(store) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-bench-jobs-'));
  const isLite = store === 'sqlite';
  const place = path.join(os.tmpdir(), `capstan-bench-pg-${process.pid}`);
  const url = isLite ? `sqlite:${dir}/state.db` : execFileSync('sh', [server, 'start', place, 'fsync=on'], { encoding: 'utf8' }).trim();
  try {
    const join = (address) => start(['worker', '--join', address, '--id', 'w', '--slots', '500', '--data', `${dir}/worker`], /registered/);
    let node = await coordinator(url);
    let worker = await join(node.found[1]);
    let client = new Client([node.found[1]]);
    await client.end(await client.submit({ tasks: [{ name: 'a', executor: 'sleep', inputs: { ms: 0 } }] }, { id: 'one' }));
    client.close();
    await worker.stop();
    await node.stop();
    const begun = Date.now();
    multiply(dir, url, isLite);
    const fill_s = (Date.now() - begun) / 1000;
    node = await coordinator(url);
    worker = await join(node.found[1]);
    client = new Client([node.found[1]]);
    const stop = load(client);
    const figures = await read(node.found[2]);
    const tasks_per_s = await stop();
    client.close();
    await worker.stop();
    await node.stop();
    return { store, ...figures, tasks_per_s, fill_s };
  } finally {
    if (!isLite) execFileSync('sh', [server, 'remove', place]);
    fs.rmSync(dir, { recursive: true, force: true });
  }
}

const results = [];
for (const store of values.store ? [values.store] : ['sqlite', 'postgres']) results.push(await measure(store));
const conditions = { jobs, rate, reads, cores: os.cpus().length, load: os.loadavg()[0] };
if (values.json) console.log(JSON.stringify({ bench: 'jobs', conditions, results }));
else {
  for (const r of results) {
    console.log(
      `${r.store}: GET /v1/jobs with ${jobs} ended jobs while ${r.tasks_per_s.toFixed(0)} tasks/s run: p50 ${r.p50_ms.toFixed(1)} ms, p99 ${r.p99_ms.toFixed(1)} ms, longest ${r.max_ms.toFixed(1)} ms (${reads} reads, load ${conditions.load.toFixed(1)})`,
    );
  }
}
const missed = results.filter((r) => r.p99_ms >= P99_MS_MAX || r.tasks_per_s < rate);
if (values.check && missed.length > 0) {
  const figures = missed.map((r) => `${r.store} (${r.p99_ms.toFixed(1)} ms at ${r.tasks_per_s.toFixed(0)} tasks/s)`);
  console.error(`missed by ${figures.join(', ')}: p99 under ${P99_MS_MAX} ms at ${rate} tasks/s`);
  process.exitCode = 1;
}
