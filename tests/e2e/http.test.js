// The HTTP API as another program sees it: fetch() against `capstan up`.
import fs from 'node:fs';
import net from 'node:net';
import { DuckDBInstance } from '@duckdb/node-api';
import { tableFromIPC } from 'apache-arrow';
import { assert, childrenOf, command, endStates, scenario, sleep, slowness, until } from './harness.js';

const METRICS = [
  'capstan_tasks',
  'capstan_jobs',
  'capstan_task_attempts_total',
  'capstan_assign_seconds',
  'capstan_commit_seconds',
  'capstan_commit_batch_size',
  'capstan_leases',
  'capstan_lease_expired_total',
  'capstan_stale_reports_total',
  'capstan_nodes',
  'capstan_leader',
  'capstan_leader_changes_total',
  'capstan_stuck_tasks',
  'capstan_shuffle_bytes_total',
  'capstan_shuffle_fetch_seconds',
  'capstan_query_seconds',
  'capstan_worker_slots',
];

// `up` with its HTTP API, and a way to call that.
async function upWithHttp(world, args = []) {
  const up = world.capstan('up', [
    'up',
    ...['--data', `${world.folder('up')}/data`, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
    ...['--workers', '1', '--slots', '2', '--no-auth', '--json', ...args],
  ]);
  const [line] = await up.line(/^\{"ready":true.*$/m);
  const ready = JSON.parse(line);
  const base = `http://${ready.http}`;
  const call = async (path, options) => {
    const response = await fetch(base + path, options);
    const text = await response.text();
    const type = response.headers.get('content-type');
    return { status: response.status, type, text, json: type === 'application/json' ? JSON.parse(text) : undefined };
  };
  const post = (path, body) =>
    call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  const ended = (id) =>
    until(`${id} has ended`, async () => {
      const { json } = await call(`/v1/jobs/${id}?wait_ms=30000`);
      return endStates.has(json.state) && json;
    });
  return { up, ready, base, call, post, ended };
}

const isCoordinator = (pid) => fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] === 'coordinator';
const rss = (pid) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;

// Reads server-sent events until `enough` says so; then hangs up.
async function readEvents(url, enough, headers = {}) {
  const stop = new AbortController();
  const response = await fetch(url, { headers, signal: stop.signal });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get('content-type'), 'text/event-stream');
  const events = [];
  let text = '';
  try {
    for await (const bytes of response.body) {
      text += Buffer.from(bytes).toString();
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const lines = text.slice(0, end).split('\n');
        const data = lines.find((line) => line.startsWith('data: '));
        if (!data) continue; // a comment
        const event = JSON.parse(data.slice(6));
        assert.equal(lines.find((line) => line.startsWith('id: ')), `id: ${event.seq}`);
        events.push(event);
        if (enough(event)) return events;
      }
    }
  } finally {
    stop.abort();
  }
  return events;
}

scenario('http: a tree is submitted, watched and read', async (world) => {
  const { call, post, ended, base } = await upWithHttp(world);
  const tree = { name: 'nightly', tasks: [command('a', 'echo \'{"n":1}\''), sleep('b', 1, { depends_on: ['a'] })] };
  const submitted = (await post('/v1/jobs?idempotency_key=k', tree)).json;
  assert.equal(submitted.existed, false);
  assert.deepEqual((await post('/v1/jobs?idempotency_key=k', tree)).json.job_id, submitted.job_id);
  const events = await readEvents(
    `${base}/v1/events?job=${submitted.job_id}`,
    (event) => event.type === 'completed' && event.stage === null,
  );
  assert.equal(events[0].type, 'created');
  // A reader that comes back gets what it has not seen, and nothing twice.
  const later = await readEvents(
    `${base}/v1/events?job=${submitted.job_id}`,
    (event) => event.seq === events.at(-1).seq,
    { 'last-event-id': String(events[1].seq) },
  );
  assert.deepEqual(later, events.slice(2));

  assert.equal((await ended(submitted.job_id)).state, 'succeeded');
  const results = (await call(`/v1/jobs/${submitted.job_id}/results`)).json;
  assert.equal(results.a.json.n, 1);
  assert.deepEqual(Object.keys(results), ['a', 'b']);
  const { tasks } = (await call(`/v1/jobs/${submitted.job_id}/tasks`)).json;
  assert.deepEqual(
    tasks.map((task) => [task.name, task.state]),
    [['a', 'succeeded'], ['b', 'succeeded']],
  );
  const { jobs } = (await call('/v1/jobs?name=nightly')).json;
  assert.equal(jobs[0].job_id, submitted.job_id);
});

scenario('http: a job is canceled, explained and tried again', async (world) => {
  const { call, post, ended } = await upWithHttp(world);
  const tree = { tasks: [sleep('long', 600000), sleep('next', 1, { depends_on: ['long'] })] };
  const { job_id: id } = (await post('/v1/jobs', tree)).json;
  await until('it runs', async () => (await call(`/v1/jobs/${id}`)).json.state === 'running');
  const { reasons } = (await call(`/v1/jobs/${id}/why`)).json;
  assert.match(reasons[0].reason, /waiting/);
  assert.equal((await post(`/v1/jobs/${id}/cancel`, { reason: 'enough' })).json.state, 'canceled');
  assert.equal((await ended(id)).message, 'enough');
  assert.equal((await post(`/v1/jobs/${id}/retry`, { from: 'next' })).status, 400); // it is called from_task
  assert.equal((await call(`/v1/jobs/${id}/retry`, { method: 'POST' })).json.state, 'queued');
  assert.equal((await post(`/v1/jobs/${id}/cancel`, {})).status, 200);
});

scenario('http: a query is tried again from one of its stages, and what that reads is computed again', async (world) => {
  const { call, post, ended, ready } = await upWithHttp(world);
  const made = await post('/v1/queries', { sql: 'create table numbers as select i, i % 3 as k from range(200000) r(i)' });
  assert.equal((await ended(made.json.job_id)).state, 'succeeded');
  const sql = 'select k, count(*) as n from numbers group by k order by k';
  const { job_id: id } = (await post('/v1/queries', { sql, options: { forced: true, partitions: 2 } })).json;
  assert.equal((await ended(id)).state, 'succeeded');
  const rows = (await call(`/v1/jobs/${id}/results`)).json;
  const attempts = async () => (await call(`/v1/jobs/${id}/tasks`)).json.tasks.map(({ attempt }) => attempt);
  assert.ok((await attempts()).every((attempt) => attempt === 1));
  assert.equal((await post(`/v1/jobs/${id}/retry`, { from_task: 's9' })).status, 400);
  assert.equal((await post(`/v1/jobs/${id}/retry`, {})).status, 409); // all of it succeeded
  assert.equal((await post(`/v1/jobs/${id}/retry`, { from_task: 's1' })).status, 200);
  assert.equal((await ended(id)).state, 'succeeded');
  const [plan, ...others] = await attempts();
  assert.equal(plan, 1);
  assert.ok(others.every((attempt) => attempt === 2), String(others));
  assert.deepEqual((await call(`/v1/jobs/${id}/results`)).json, rows);
  for (const stage of ['s0', 'plan']) {
    assert.equal((await world.cli(['retry', id, '--from', stage, '--server', ready.address])).code, 0);
    assert.equal((await ended(id)).state, 'succeeded', stage);
  }
  assert.ok((await attempts()).slice(1).every((attempt) => attempt === 4));
  assert.deepEqual((await call(`/v1/jobs/${id}/results`)).json, rows);
});

scenario('http: the rows of a query come in every format, and the same as on the command line', async (world) => {
  const { call, post, ended, base, ready } = await upWithHttp(world);
  const sql = "select i, i * 1.5 as x, 'a,\"' || i as t, null as n from range(3) r(i) order by i";
  const { job_id: id } = (await post('/v1/queries', { sql })).json;
  assert.equal((await ended(id)).state, 'succeeded');
  const json = await call(`/v1/jobs/${id}/results`);
  assert.deepEqual(json.json.columns.map((column) => column.name), ['i', 'x', 't', 'n']);
  assert.deepEqual(json.json.rows[2], [2, '3.0', 'a,"2', null]);
  const csv = await call(`/v1/jobs/${id}/results?format=csv`);
  assert.equal(csv.type, 'text/csv; charset=utf-8');
  assert.equal(csv.text.split('\n')[3], '2,3.0,"a,""2",');
  for (const [format, text] of [['json', json.text], ['csv', csv.text]]) {
    const printed = await world.cli(['results', id, '-o', format, '--server', ready.address]);
    assert.equal(printed.stdout, text);
  }
  const arrow = await fetch(`${base}/v1/jobs/${id}/results?format=arrow`);
  assert.equal(tableFromIPC(new Uint8Array(await arrow.arrayBuffer())).numRows, 3);
  assert.equal((await call(`/v1/jobs/${id}/results?format=xml`)).status, 400);

  const query = { sql: 'select $a + 1 as n', params: { a: 41 }, priority: 0 };
  const { job_id: named } = (await post('/v1/queries', query)).json;
  await ended(named);
  assert.deepEqual((await call(`/v1/jobs/${named}/results`)).json.rows, [[42]]);
  const { job_id: bad } = (await post('/v1/queries', { sql: 'selekt' })).json;
  assert.equal((await ended(bad)).state, 'failed');
  assert.equal((await call(`/v1/jobs/${bad}/results`)).status, 409);
});

// One column of each type that becomes one of Parquet's own, then some that become texts; every fifth row is NULL.
const TYPED = `select if(i % 5 = 0, null, columns(*)) from (select i, i % 2 = 0 as b, (i % 200 - 100)::tinyint as t,
  (i % 200)::utinyint as ut, (i % 60000 - 30000)::smallint as s, (i % 60000)::usmallint as us, i::integer as n,
  i::uinteger as un, (i * 10000000000 - 5)::bigint as l, 18446744073709551615::ubigint - i::ubigint as ul, (i / 7)::float as f,
  i / 7 as g, (i / 4)::decimal(9, 2) as d, -i::decimal(38, 3) as dd, 'text ä ' || i as u, ('\\x00\\xff' || i)::blob as z,
  date '1969-01-01' + i::integer as day, time '01:02:03.000004' as at, timestamp '1969-12-31 23:59:59.999999' + to_seconds(i) as ts,
  (timestamp '2026-01-02 03:04:05')::timestamptz as tz, (timestamp '2026-01-02 03:04:05.000000006')::timestamp_ns as ns,
  (timestamp '2026-01-02 03:04:05')::timestamp_ms as ms, i::hugeint * 100000000000000000000 as h,
  '00000000-0000-0000-0000-000000000001'::uuid as id, [i, null] as list, {'a': i, 'b': 'x'} as record,
  interval '1 day' as span, null as nothing from range(3000) r(i))`;

scenario('http: a Parquet file has the rows of the query, and their types', async (world) => {
  const { base, post, ended } = await upWithHttp(world);
  const duck = await (await DuckDBInstance.create(':memory:')).connect();
  const all = async (sql) => (await duck.runAndReadAll(sql)).getRowsJson();
  for (const sql of [TYPED, 'select 1 as a, 2 as a where false', 'select i from range(300000) r(i)']) {
    const { job_id: id } = (await post('/v1/queries', { sql })).json;
    assert.equal((await ended(id)).state, 'succeeded', sql);
    const response = await fetch(`${base}/v1/jobs/${id}/results?format=parquet`);
    assert.equal(response.headers.get('content-type'), 'application/vnd.apache.parquet');
    const file = world.file('rows.parquet', Buffer.from(await response.arrayBuffer()));
    await duck.run("set timezone = 'UTC'");
    const text = (from) => all(`select columns(*)::varchar from ${from}`);
    assert.deepEqual(await text(`'${file}'`), await text(`(${sql})`));
    const types = async (from) => (await all(`describe from ${from}`)).map(([, type]) => type);
    const isOwn = (type) => !/HUGEINT|UUID|\[|STRUCT|INTERVAL|"NULL"|_MS/.test(type);
    const expected = (await types(`(${sql})`)).map((type) => (type === 'TIMESTAMP_MS' ? 'TIMESTAMP' : isOwn(type) ? type : 'VARCHAR'));
    assert.deepEqual(await types(`'${file}'`), expected);
  }
});

// Readers that ask for a path, take the first bytes of the answer and then no more.
async function stalledReaders(world, address, path, n) {
  const [host, port] = address.split(':');
  for (let i = 0; i < n; i++) {
    const socket = net.connect({ host, port: Number(port) });
    world.atEnd(() => socket.destroy());
    socket.on('error', () => {});
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${address}\r\n\r\n`);
    const first = await new Promise((resolve) => socket.once('data', resolve));
    socket.pause();
    assert.match(first.toString('latin1'), /^HTTP\/1\.1 200 /);
  }
}

scenario('http: readers of a large result that stop reading cost little memory and hold up nobody', { ms: 120000 }, async (world) => {
  const READERS = 8;
  const { up, ready, call, post, ended, base } = await upWithHttp(world);
  const sql = "select i, repeat('x', 60) as t from range(1500000) r(i)";
  const { job_id: id } = (await post('/v1/queries', { sql })).json;
  assert.equal((await ended(id)).state, 'succeeded');
  const memory = () => Math.max(...childrenOf(up.pid).filter(isCoordinator).map(rss));
  const before = memory();
  await stalledReaders(world, ready.http, `/v1/jobs/${id}/results`, READERS);
  assert.equal((await call('/healthz')).status, 200);
  // One who reads on gets all of it; meanwhile a server that does not wait for the others would have kept their rows, too.
  const response = await fetch(`${base}/v1/jobs/${id}/results`);
  let bytes = 0;
  for await (const piece of response.body) bytes += piece.length;
  assert.ok(bytes > 1500000 * 70, `${bytes} bytes`);
  const grown = memory() - before;
  console.log(`readers of results that stopped: grown by ${Math.round(grown / 1e6)} MB; ${Math.round((READERS * bytes) / 1e6)} MB were asked for`);
  // Sanitizers keep what was freed for a while.
  assert.ok(grown < (READERS * bytes) / (slowness > 1 ? 2 : 4), `the coordinator has grown by ${grown} bytes`);
});

scenario('http: nodes, tables, leader and health', async (world) => {
  const { call, post, ready } = await upWithHttp(world);
  const { nodes } = (await call('/v1/nodes')).json;
  assert.equal(nodes[0].worker_id, ready.workers[0]);
  assert.equal((await post(`/v1/nodes/${nodes[0].worker_id}/drain`, {})).json.draining, true);
  assert.equal((await post(`/v1/nodes/${nodes[0].worker_id}/undrain`, {})).json.draining, false);
  assert.equal((await post(`/v1/nodes/${nodes[0].worker_id}/clear`, {})).json.blacklisted, false);
  await post('/v1/tables', { name: 't', source: '/data/*.csv', format: 'csv' });
  assert.deepEqual((await call('/v1/tables')).json, { tables: [{ name: 't', source: '/data/*.csv', format: 'csv' }] });
  assert.equal((await call('/v1/tables/t', { method: 'DELETE' })).status, 200);
  assert.equal((await call('/v1/leader')).json.address, ready.address);
  for (const path of ['/healthz', '/readyz', '/leaderz']) assert.equal((await call(path)).status, 200);
});

scenario('http: /metrics has every metric, and Prometheus can read it', async (world) => {
  const { call, post, ended } = await upWithHttp(world);
  await ended((await post('/v1/queries', { sql: 'select 1' })).json.job_id);
  const { text, type } = await call('/metrics');
  assert.match(type, /^text\/plain; version=0\.0\.4/);
  for (const name of METRICS) assert.match(text, new RegExp(`^# TYPE ${name} (counter|gauge|histogram)$`, 'm'));
  for (const line of text.trim().split('\n')) {
    assert.match(line, /^(# (HELP|TYPE) capstan_\w+ .+|capstan_\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-+.e\d]+)$/, line);
  }
  assert.match(text, /^capstan_query_seconds_count 1$/m);
  assert.match(text, /^capstan_jobs\{state="succeeded"\} 1$/m);
  assert.doesNotMatch(text, /job_id/);
});

scenario('http: a page of another site cannot call it, and wrong requests are told what is wrong', async (world) => {
  const { call, post, base } = await upWithHttp(world);
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ tasks: [sleep('a', 1)] });
  for (const origin of ['http://evil.example', 'null', 'http://127.0.0.1:1']) {
    assert.equal((await call('/v1/jobs', { method: 'POST', headers: { ...headers, origin }, body })).status, 403);
  }
  assert.equal((await call('/v1/jobs', { method: 'POST', headers: { ...headers, origin: base }, body })).status, 200);
  assert.equal((await call('/v1/jobs', { method: 'POST', headers: { 'content-type': 'text/plain' }, body })).status, 415);
  const wrong = await post('/v1/queries', { sql: 5 });
  assert.equal(wrong.status, 400);
  const error = { code: 'invalid_argument', message: 'sql: must be a text', detail: null, hint: null };
  assert.deepEqual(wrong.json, { error });
  assert.equal((await call('/v1/jobs/none')).status, 404);
  assert.equal((await call('/v1/jobs', { method: 'PUT' })).status, 405);
});

scenario('http: a port that is taken is told, and other ups do not ask for the default one', async (world) => {
  const { ready } = await upWithHttp(world);
  const second = await world.cli([
    'up',
    ...['--data', `${world.folder('second')}/data`, '--listen', '127.0.0.1:0', '--http', ready.http, '--no-auth'],
  ]);
  assert.notEqual(second.code, 0);
  assert.match(second.stderr, new RegExp(`cannot listen on ${ready.http}`));
  assert.match(second.stderr, /--http/);
  const third = world.capstan('third', [
    'up',
    ...['--data', `${world.folder('third')}/data`, '--listen', '127.0.0.1:0', '--no-auth', '--json', '--workers', '1'],
  ]);
  const [line] = await third.line(/^\{"ready":true.*$/m);
  assert.equal(JSON.parse(line).http, null);
});
