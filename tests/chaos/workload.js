// workload.js - clients that keep jobs coming, and write down what they asked and what they were told.
//
// Every job is planned before it is submitted: the history says what it does and how it must end. Commands leave lines in
// files of the ledger, so that what ran can be compared with what was committed.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { Client } from '../../examples/javascript/client.js';
import { Process, binary, command, grpcStatus, pause, sleep } from '../e2e/harness.js';
import { forced } from '../e2e/sql-cluster.js';
import { quote, reference } from '../e2e/sql-reference.js';
import { tableFromArrow } from '../e2e/sql-table.js';

const CALL_MS = 4000; // then nobody knows, and the next coordinator is asked
const CLI_TIMEOUT_MS = 30000; // for which a command line looks for a coordinator before it gives up
const GONE_MS = 10000; // a job that was acknowledged and is not known for so long is lost
const lower = (state) => state.replace(/^QUERY_STATE_/, '').toLowerCase();
const isEnd = (state) => ['succeeded', 'failed', 'canceled'].includes(state);

// ---- trees ----

// Says `what` in the file of this task: with the attempt's key and number, the time, and where: the folder is its worker's.
const say = (file) =>
  `say() { echo "$1 $CAPSTAN_IDEMPOTENCY_KEY $CAPSTAN_ATTEMPT $(date +%s%N) $HOME" >>'${file}'; }; say start; `;
const bodies = {
  ok: ({ seconds }) => `sleep ${seconds}; say end`,
  exclusive: ({ seconds }) =>
    `i=0; while [ $i -lt ${Math.ceil(seconds * 10)} ]; do sleep 0.1; say tick; i=$((i+1)); done; say end`,
  flaky: ({ seconds, runs, file }) =>
    `sleep ${seconds}; say end; [ $(grep -c ^start '${file}') -ge ${runs} ] || exit 1`,
  fail: ({ seconds }) => `sleep ${seconds}; say end; exit 3`,
};

// What a task prints: its attempt's key, and what it was told of those it depends on.
const print = `printf '{"key":"%s","saw":[' "$CAPSTAN_IDEMPOTENCY_KEY"; c=; for k in "$@"; do printf '%s"%s"' "$c" "$k"; c=,; done; printf ']}'`;

const keyOfResult = (name) => `\${results.${name}.json.key}`;
const kinds = 'ok ok ok ok ok flaky fail sleep exclusive exclusive sql witness witness'.split(' ');

function makeTask(random, tasks, i, job, ledger) {
  const name = `t${i}`;
  const does = random.any(kinds);
  const parents = tasks.filter(() => random.chance(0.3)).map(({ plan }) => plan);
  const requires = parents.filter(() => random.chance(0.8));
  const optional = parents.filter((parent) => !requires.includes(parent));
  const isCommand = (task) => !['sleep', 'sql'].includes(task.does);
  const file = path.join(ledger, `${job}.${name}`);
  // Some take longer than a lease; of the exclusive ones many, and much longer.
  const isLong = random.chance(does === 'exclusive' ? 0.5 : 0.2);
  const seconds = (isLong ? random.int(20, does === 'exclusive' ? 120 : 60) : random.int(0, 8)) / 10;
  const told = isCommand({ does }) ? requires.filter(isCommand).map((task) => task.name) : [];
  const plan = {
    name,
    does,
    requires: requires.map((task) => task.name),
    optional: optional.map((task) => task.name),
    told,
  };
  const more = {
    depends_on: [...plan.requires, ...plan.optional.map((task) => ({ task, required: false }))],
    retry: { max_attempts: does === 'fail' ? random.int(1, 3) : 1000, backoff_ms: 20 },
  };
  let task;
  if (does === 'sleep') task = sleep(name, seconds * 1000, more);
  else if (does === 'sql') {
    plan.value = random.int(1, 1e6);
    task = { name, executor: 'sql', inputs: { sql: `select ${plan.value} as n` }, depends_on: more.depends_on };
  } else if (does === 'witness') {
    task = { name, executor: 'witness', inputs: { told: told.map(keyOfResult) }, ...more };
  } else {
    const body = bodies[does]({ seconds, runs: random.int(2, 3), file });
    const argv = [
      'sh',
      '-c',
      `${say(file)}${body}; ${print}`,
      'sh',
      ...told.map(keyOfResult),
    ];
    task = command(name, '', { ...more, exclusive: does === 'exclusive', inputs: { argv } });
  }
  return { plan, task };
}

export function makeTree(random, job, ledger) {
  const tasks = [];
  for (let i = random.int(1, 7); i >= 0; i--) tasks.push(makeTask(random, tasks, tasks.length, job, ledger));
  const stops = random.chance(0.1);
  const tree = {
    priority: random.int(0, 3),
    on_failure: stops ? 'stop' : 'continue',
    tasks: tasks.map(({ task }) => task),
  };
  return { plan: { kind: 'tree', stops, tasks: tasks.map(({ plan }) => plan) }, tree };
}

// ---- queries ----

// Two tables in files. Values are whole numbers, decimals and texts: their sums do not depend on an order.
export async function makeData(folder) {
  const duck = await reference();
  fs.mkdirSync(folder);
  for (let file = 0; file < 4; file++) {
    await duck.run(`COPY (SELECT i AS id, CAST(hash(i) % 997 AS INTEGER) AS k, CAST(hash(i, 1) % 1000000 AS BIGINT) AS v,
      CAST((hash(i, 2) % 100000) / 100 AS DECIMAL(12, 2)) AS d, 'text ' || (hash(i, 3) % 5000) || repeat('.', i % 40) AS s
      FROM range(${file * 20000}, ${(file + 1) * 20000}) r(i)) TO ${quote(path.join(folder, `facts-${file}.parquet`))}`);
  }
  await duck.run(`COPY (SELECT CAST(i AS INTEGER) AS k, 'name ' || i AS name, CAST(i % 13 AS INTEGER) AS g
    FROM range(0, 1200) r(i)) TO ${quote(path.join(folder, 'dims.parquet'))}`);
  return {
    facts: `read_parquet(${quote(path.join(folder, 'facts-*.parquet'))})`,
    dims: `read_parquet(${quote(path.join(folder, 'dims.parquet'))})`,
  };
}

const queries = [
  (r, t) =>
    `SELECT k % ${r.int(5, 300)} AS g, count(*) AS c, sum(v) AS sv, sum(d) AS sd, min(s) AS lo, max(s) AS hi FROM ${t.facts} GROUP BY 1`,
  (r, t) =>
    `SELECT x.g, count(*) AS c, sum(f.v) AS sv FROM ${t.facts} f JOIN ${t.dims} x ON f.k = x.k WHERE f.id % 7 = ${r.int(0, 6)} GROUP BY 1`,
  (r, t) => `SELECT k % ${r.int(3, 20)} AS g, count(DISTINCT s) AS n FROM ${t.facts} GROUP BY 1`,
  (r, t) =>
    `SELECT x.name, count(f.k) AS c FROM ${t.dims} x LEFT JOIN ${t.facts} f ON x.k = f.k AND f.v > ${r.int(0, 999999)} GROUP BY 1`,
  (r, t) => `SELECT id, v, s FROM ${t.facts} WHERE k < ${r.int(10, 990)} ORDER BY v DESC, id LIMIT ${r.int(1, 200)}`,
  (r, t) =>
    `SELECT a.k % 11 AS g, count(*) AS c, sum(a.v + b.v) AS sv, max(a.s || b.s) AS hi FROM ${t.facts} a JOIN ${t.facts} b ON a.id = b.id + ${r.int(0, 999)} GROUP BY 1`,
  (r, t) =>
    `SELECT count(*) AS c, sum(v) AS sv FROM ${t.facts} WHERE k NOT IN (SELECT k FROM ${t.dims} WHERE g = ${r.int(0, 12)})`,
  // Few rows come out of these, but many go between workers.
  (r, t) =>
    `SELECT count(*) AS c, sum(n * n) AS sn, max(hi) AS hi FROM (SELECT s, k % ${r.int(2, 900)} AS g, count(*) AS n, max(v) AS hi FROM ${t.facts} GROUP BY ALL)`,
  (r, t) =>
    `SELECT a.g, count(*) AS c, min(a.s) AS lo FROM (SELECT s, id, k % ${r.int(2, 30)} AS g FROM ${t.facts}) a JOIN ${t.facts} b ON a.s = b.s AND a.id < b.id GROUP BY 1`,
];

const digestOf = (rows, isOrdered) => {
  const texts = rows.map((row) => JSON.stringify(row));
  if (!isOrdered) texts.sort();
  return createHash('sha256').update(texts.join('\n')).digest('hex').slice(0, 32);
};

// ---- clients ----

export class Workload {
  #isOver = false;
  #jobs = 0;
  #all = [];

  // `eager` clients ask for nothing but acknowledgements, as fast as they can.
  constructor(cluster, history, random, tables, { eager = 0 } = {}) {
    this.eager = eager;
    this.cluster = cluster;
    this.history = history;
    this.random = random;
    this.tables = tables;
    this.counts = { trees: 0, queries: 0, tasks: 0, cli: 0 };
    this.open = new Map(); // jobs that some client still waits for: what it does now
  }

  start() {
    const does = {
      tree: (it) => it.tree(),
      sql: (it) => it.query(),
      cli: (it) => it.shell(),
      ack: (it) => it.acknowledgements(300, 1500),
      eager: (it) => it.acknowledgements(0, 30),
    };
    const names = ['tree1', 'tree2', 'tree3', 'tree4', 'tree5', 'sql1', 'sql2', 'cli1', 'cli2', 'ack1'];
    for (let i = 1; i <= this.eager; i++) names.push(`eager${i}`);
    for (const name of names) {
      const next = does[name.slice(0, -1)];
      const one = new One(this, name, this.random.fork(name));
      this.#all.push(
        (async () => {
          while (!this.#isOver) {
            await next(one);
          }
          one.close();
        })(),
      );
    }
  }

  nextJob(client) {
    return `${client}-${++this.#jobs}`;
  }

  // No new jobs. True if everybody got to the end of theirs in time.
  async finish(ms) {
    this.#isOver = true;
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, false)));
    const isDone = await Promise.race([Promise.all(this.#all).then(() => true), late]);
    clearTimeout(timer);
    return isDone;
  }
}

// One client: one job after the other.
class One {
  constructor(workload, name, random) {
    this.workload = workload;
    this.history = workload.history;
    this.cluster = workload.cluster;
    this.name = name;
    this.random = random;
    this.turn();
  }

  // The next coordinator is asked first from now on.
  turn() {
    this.at = (this.at ?? -1) + 1;
    this.close();
    const { servers } = this.cluster;
    this.client = new Client(servers.map((_, i) => servers[(i + this.at) % servers.length]));
  }

  close() {
    this.client?.close();
  }

  // Asks until there is an answer. Only what can never succeed is given up, and jobs that nobody knows: undefined then.
  async ask(op, fields, ask) {
    const refusals = [
      grpcStatus.INVALID_ARGUMENT,
      grpcStatus.ALREADY_EXISTS,
      grpcStatus.PERMISSION_DENIED,
      grpcStatus.UNAUTHENTICATED,
    ];
    let unknownSince = Infinity;
    for (;;) {
      try {
        this.workload.open.set(fields.job, `${this.name}: ${op}`);
        return await this.history.call(this.name, op, fields, async () => {
          try {
            return await ask(this.client);
          } catch (error) {
            if (error.code === grpcStatus.NOT_FOUND) unknownSince = Math.min(unknownSince, Date.now());
            error.isRefusal ||= refusals.includes(error.code) || Date.now() - unknownSince > GONE_MS;
            throw error;
          }
        });
      } catch (error) {
        if (error.isRefusal) {
          this.workload.open.delete(fields.job);
          return undefined;
        }
        await pause(this.random.int(50, 500));
        this.turn();
      }
    }
  }

  async end(job) {
    for (;;) {
      const answer = await this.ask('status', { job }, async (client) => {
        const { status } = await client.call(
          'GetQueryStatus',
          { query_id: job, wait_ms: CALL_MS / 2 },
          { timeoutMs: CALL_MS },
        );
        return { said: { state: lower(status.state), message: status.message } };
      });
      if (!answer || isEnd(answer.said.state)) return answer?.said;
    }
  }

  async maybeCancel(job) {
    if (!this.random.chance(0.07)) return;
    await pause(this.random.int(0, 700));
    await this.cancel(job);
  }

  async cancel(job) {
    await this.ask('cancel', { job }, async (client) => {
      const { state } = await client.call('CancelQuery', { query_id: job, reason: 'chaos' }, { timeoutMs: CALL_MS });
      return { said: { state: lower(state) } };
    });
  }

  submit(job, tree) {
    return this.ask('submit', { job }, async (client) => {
      const request = { job_id: job, tree_json: Buffer.from(JSON.stringify(tree)) };
      return { said: { existed: (await client.call('SubmitTasks', request, { timeoutMs: CALL_MS })).existed } };
    });
  }

  async tree() {
    const job = this.workload.nextJob(this.name);
    const { plan, tree } = makeTree(this.random, job, path.join(this.cluster.dir, 'ledger'));
    this.history.add('plan', { job, ...plan });
    if (!(await this.submit(job, tree))) return;
    await this.maybeCancel(job);
    const end = await this.end(job);
    if (end?.state === 'succeeded') {
      await this.ask('results', { job }, async (client) => ({ said: { results: keysOf(await client.results(job)) } }));
    }
    this.workload.open.delete(job);
    this.workload.counts.trees++;
    this.workload.counts.tasks += plan.tasks.length;
    await pause(this.random.int(50, 600));
  }

  // Two acknowledgements for little work: a job is submitted and canceled.
  async acknowledgements(pauseMin, pauseMax) {
    const job = this.workload.nextJob(this.name);
    const task = { name: 't0', does: 'sleep', requires: [], optional: [], told: [] };
    this.history.add('plan', { job, kind: 'tree', stops: false, tasks: [task] });
    await this.submit(job, { priority: 3, tasks: [sleep('t0', 100)] });
    await this.cancel(job);
    this.workload.open.delete(job);
    this.workload.counts.trees++;
    this.workload.counts.tasks++;
    await pause(this.random.int(pauseMin, pauseMax));
  }

  async planQuery(job) {
    const sql = this.random.any(queries)(this.random, this.workload.tables);
    const isOrdered = / ORDER BY /.test(sql);
    const { rows } = await (await reference()).query(sql);
    this.history.add('plan', { job, kind: 'query', sql, rows: rows.length, expected: digestOf(rows, isOrdered) });
    return { sql, isOrdered };
  }

  async query() {
    const job = this.workload.nextJob(this.name);
    const { sql, isOrdered } = await this.planQuery(job);
    const options = {
      ...forced,
      partitions: this.random.int(2, 5),
      broadcast_bytes: this.random.chance(0.2) ? 1e12 : 0,
    };
    const isKnown = await this.ask('submit', { job }, async (client) => {
      const request = { query_id: job, sql, options_json: JSON.stringify(options) };
      return { said: { existed: (await client.call('SubmitQuery', request, { timeoutMs: CALL_MS })).existed } };
    });
    if (!isKnown) return;
    await this.maybeCancel(job);
    const end = await this.end(job);
    if (end?.state === 'succeeded') {
      await this.ask('rows', { job }, async (client) => {
        const bytes = await fetchBytes(client, job);
        const { rows } = whole(() => tableFromArrow(bytes));
        return { said: { digest: digestOf(rows, isOrdered), rows: rows.length } };
      });
    }
    this.workload.open.delete(job);
    this.workload.counts.queries++;
    await pause(this.random.int(50, 600));
  }

  // The command line does all of it in one process: it must not notice more than a pause.
  async shell() {
    const job = this.workload.nextJob(this.name);
    const isQuery = this.random.chance(0.4);
    let args;
    let plan;
    let stdin;
    let isOrdered = false;
    if (isQuery) {
      let sql;
      ({ sql, isOrdered } = await this.planQuery(job));
      args = [
        'sql',
        sql,
        '--id',
        job,
        '-o',
        'arrow',
        '--set',
        'forced=true',
        '--set',
        'single_task_bytes=0',
        '--out',
        path.join(this.cluster.dir, `${job}.arrow`),
      ];
    } else {
      let tree;
      ({ plan, tree } = makeTree(this.random, job, path.join(this.cluster.dir, 'ledger')));
      this.history.add('plan', { job, ...plan });
      stdin = JSON.stringify(tree);
      args = ['run', '-', '--id', job, '--quiet'];
    }
    await this.ask('cli', { job }, () => this.#cli(args, stdin, { job, isQuery, isOrdered }));
    this.workload.open.delete(job);
    this.workload.counts.cli++;
    this.workload.counts[isQuery ? 'queries' : 'trees']++;
    this.workload.counts.tasks += plan?.tasks.length ?? 0;
    await pause(this.random.int(50, 600));
  }

  async #cli(args, stdin, { job, isQuery, isOrdered }) {
    const server = this.cluster.servers.join(',');
    const run = new Process('cli', binary, [...args, '--server', server, '--timeout', `${CLI_TIMEOUT_MS / 1000}s`], {
      cwd: this.cluster.dir,
      stdin,
    });
    const { code, signal } = await run.ended;
    // 0: it succeeded; 1: it failed, as it may have to. Everything else is no answer; check.js looks at which.
    if (code !== 0 && code !== 1) {
      throw Object.assign(new Error(`exit code ${code ?? signal}: ${run.stderr.slice(-300)}`), {
        code: `exit ${code ?? signal}`,
      });
    }
    const state = code === 0 ? 'succeeded' : 'failed';
    if (!isQuery)
      return {
        said: {
          state,
          message: run.stderr.slice(-300),
          results: code === 0 ? whole(() => keysOf(JSON.parse(run.stdout))) : undefined,
        },
      };
    const file = path.join(this.cluster.dir, `${job}.arrow`);
    if (code !== 0) return { said: { state, message: run.stderr.slice(-300) } };
    const { rows } = whole(() => tableFromArrow(fs.readFileSync(file)));
    fs.rmSync(file);
    return { said: { state, digest: digestOf(rows, isOrdered), rows: rows.length } };
  }
}

// What was answered as complete must be whole: that it cannot be read is for certain, and no reason to ask again.
function whole(read) {
  try {
    return read();
  } catch (error) {
    throw Object.assign(error, { isRefusal: true, code: 'broken' });
  }
}

// Of the results of a tree: what each command printed.
const keysOf = (results) =>
  Object.fromEntries(Object.entries(results).map(([name, result]) => [name, result?.json?.key ?? null]));

async function fetchBytes(client, job) {
  const chunks = [];
  const stream = client.stream('FetchQueryResults', { query_id: job });
  const timer = setTimeout(() => stream.cancel(), CALL_MS * 3);
  try {
    for await (const { payload } of stream) chunks.push(payload);
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(chunks);
}
