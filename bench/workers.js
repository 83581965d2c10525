#!/usr/bin/env node
// workers.js - what a thousand idle workers cost a coordinator: real connections, heartbeats and long polls.
//
//   node bench/workers.js [--workers 1000] [--seconds 20] [--binary build/release/bin/capstan] [--store URL]
//                             [--json]
//
// Each worker is the one of examples/javascript, with two connections of its own, as processes of their own would have.
// Prints the CPU and the memory of the coordinator while nothing is to be done, then how long a fan of one task per
// worker takes. The bars: under 30 % of a core and under 200 MB. Needs the packages of examples/javascript (npm ci).
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Client } from '../examples/javascript/client.js';
import { Worker } from '../examples/javascript/worker.js';
import { options } from './lib/options.js';

const values = options({
  workers: '1000',
  seconds: '20',
  binary: 'build/release/bin/capstan',
  store: undefined,
  json: false,
});
const CPU_PERCENT_MAX = 30;
const RSS_BYTES_MAX = 200e6;
const TICKS_PER_S = 100;

const n = Number(values.workers);
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-bench-'));
const store = values.store ?? `sqlite:${dir}/state.db`;
const limits = ['--set', 'max_concurrent_tasks_per_query=100000'];
const coordinator = spawn(values.binary, ['coordinator', '--store', store, '--listen', '127.0.0.1:0', ...limits]);
let log = '';
coordinator.stderr.setEncoding('utf8').on('data', (text) => (log += text));
process.on('exit', () => {
  coordinator.kill('SIGKILL');
  fs.rmSync(dir, { recursive: true, force: true });
});
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// CPU seconds since the start, and bytes.
function usage() {
  const stat = fs
    .readFileSync(`/proc/${coordinator.pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  const status = fs.readFileSync(`/proc/${coordinator.pid}/status`, 'utf8');
  const kib = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)[1]) * 1024;
  return { cpu: (Number(stat[11]) + Number(stat[12])) / TICKS_PER_S, rss: kib('VmRSS'), peak: kib('VmHWM') };
}

while (!/this coordinator leads/.test(log)) {
  if (coordinator.exitCode !== null) throw new Error(log);
  await wait(20);
}
const [, address] = /serving on (\S+),/.exec(log);
const client = new Client([address]);
const alone = usage();

const executors = { nothing: () => null };
const joining = Date.now();
const workers = [];
for (let i = 0; i < n; i += 50) {
  const batch = Array.from({ length: Math.min(50, n - i) }, (_, k) =>
    new Worker({ servers: [address], id: `bench-${i + k}`, slots: 1, executors }).start(),
  );
  workers.push(...(await Promise.all(batch)));
}
const joined = Date.now() - joining;
await wait(4000); // Until the first heartbeats are spread over their interval.

const before = usage();
const started = Date.now();
await wait(Number(values.seconds) * 1000);
const after = usage();
const cpuPercent = ((after.cpu - before.cpu) / ((Date.now() - started) / 1000)) * 100;
const { nodes } = await client.call('ListNodes');
const healthy = nodes.filter(({ status }) => status === 'healthy').length;

const fanStarted = Date.now();
const id = await client.submit({
  tasks: Array.from({ length: n }, (_, i) => ({ name: `t${i}`, executor: 'nothing', inputs: {} })),
});
const { state } = await client.end(id);
const fanMs = Date.now() - fanStarted;
const used = new Set((await client.tasks(id)).map(({ worker_id }) => worker_id)).size;

const figures = {
  bench: 'workers',
  workers: n,
  healthy,
  connections: 2 * n,
  store: store.replace(/:.*/, ''),
  cores: os.cpus().length,
  seconds: Number(values.seconds),
  join_ms: joined,
  cpu_percent: Math.round(cpuPercent * 10) / 10,
  rss_mb: Math.round(after.rss / 1e6),
  rss_alone_mb: Math.round(alone.rss / 1e6),
  peak_mb: Math.round(usage().peak / 1e6),
  fan_ms: fanMs,
  fan_state: state,
  fan_workers: used,
  bars: { cpu_percent: CPU_PERCENT_MAX, rss_mb: RSS_BYTES_MAX / 1e6 },
};
const isGood =
  healthy === n && cpuPercent < CPU_PERCENT_MAX && after.rss < RSS_BYTES_MAX && state === 'QUERY_STATE_SUCCEEDED';
if (values.json) {
  console.log(JSON.stringify(figures));
} else {
  console.log(
    `${n} workers, ${2 * n} connections, joined in ${joined} ms, ${healthy} healthy after ${values.seconds} s without work`,
  );
  console.log(
    `coordinator: ${figures.cpu_percent} % of a core (bar ${CPU_PERCENT_MAX} %), ${figures.rss_mb} MB (bar ${RSS_BYTES_MAX / 1e6} MB; ${figures.rss_alone_mb} MB alone)`,
  );
  console.log(`a fan of ${n} tasks: ${fanMs} ms, on ${used} workers`);
  console.log(isGood ? 'within the bars' : 'NOT within the bars');
}
process.exit(isGood ? 0 : 1);
