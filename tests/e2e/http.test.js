// The HTTP API as another program sees it: fetch() against `capstan up`.
import fs from 'node:fs';
import { tableFromIPC } from 'apache-arrow';
import { assert, childrenOf, command, root, scenario, sleep, slowness, until } from './harness.js';

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
  const ended = async (id) => (await call(`/v1/jobs/${id}?wait_ms=30000`)).json;
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
  assert.equal((await call(`/v1/jobs/${id}/results?format=parquet`)).status, 501);

  const query = { sql: 'select $a + 1 as n', params: { a: 41 }, priority: 0 };
  const { job_id: named } = (await post('/v1/queries', query)).json;
  await ended(named);
  assert.deepEqual((await call(`/v1/jobs/${named}/results`)).json.rows, [[42]]);
  const { job_id: bad } = (await post('/v1/queries', { sql: 'selekt' })).json;
  assert.equal((await ended(bad)).state, 'failed');
  assert.equal((await call(`/v1/jobs/${bad}/results`)).status, 409);
});

scenario('http: a slow reader of two million rows costs no memory and holds up nobody', { ms: 120000 }, async (world) => {
  const { up, call, post, ended, base } = await upWithHttp(world);
  const sql = "select i, repeat('x', 20) as t from range(2000000) r(i)";
  const { job_id: id } = (await post('/v1/queries', { sql })).json;
  assert.equal((await ended(id)).state, 'succeeded');
  const memory = () => Math.max(...childrenOf(up.pid).filter(isCoordinator).map(rss));
  const before = memory();
  const response = await fetch(`${base}/v1/jobs/${id}/results`);
  const reader = response.body.getReader();
  await reader.read();
  assert.equal((await call('/healthz')).status, 200);
  let bytes = 0;
  for (let piece; !(piece = await reader.read()).done; ) bytes += piece.value.length;
  assert.ok(bytes > 2000000 * 30, `${bytes} bytes`);
  const grown = memory() - before;
  assert.ok(grown < 100e6 * slowness, `the coordinator has grown by ${grown} bytes`);
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

scenario('http: openapi.json describes every route, and what comes back is what it says', async (world) => {
  const { call, post, ended } = await upWithHttp(world);
  const id = (await post('/v1/jobs', { tasks: [sleep('a', 1)] })).json.job_id;
  await ended(id);
  const { json: api } = await call('/openapi.json');
  const shape = (schema) => (schema.$ref ? api.components.schemas[schema.$ref.split('/').at(-1)] : schema);
  const fits = (value, given, where) => {
    const schema = shape(given);
    const types = schema.type === undefined ? undefined : [schema.type].flat();
    const whole = Number.isInteger(value) ? 'integer' : typeof value;
    const is = value === null ? 'null' : Array.isArray(value) ? 'array' : whole;
    if (types) assert.ok(types.includes(is), `${where} is ${is}, not ${types}`);
    if (is === 'array') value.forEach((item, i) => fits(item, schema.items, `${where}[${i}]`));
    if (is !== 'object' || !schema.properties) return;
    for (const name of schema.required ?? []) assert.ok(name in value, `${where}.${name} is missing`);
    for (const [name, item] of Object.entries(value)) {
      assert.ok(name in schema.properties, `${where}.${name} is not described`);
      fits(item, schema.properties[name], `${where}.${name}`);
    }
  };
  let n = 0;
  for (const [path, item] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(item)) {
      n++;
      const names = [...path.matchAll(/\{(\w+)\}/g)].map((found) => found[1]);
      const described = operation.parameters.filter((parameter) => parameter.in === 'path');
      assert.deepEqual(described.map((parameter) => parameter.name), names);
      const url = path.replace('{job_id}', id).replace('{name}', 'none').replace('{worker_id}', 'none');
      const answer = await call(url === '/v1/events' ? `${url}?follow=false` : url, { method: method.toUpperCase() });
      assert.notEqual(answer.status, 405, `${method} ${path}`);
      const schema = answer.status === 200 ? operation.responses[200].content['application/json']?.schema : undefined;
      if (schema) fits(answer.json, schema, `${method} ${path}`);
      if (answer.status !== 200) fits(answer.json, { $ref: '#/components/schemas/Error' }, `${method} ${path}`);
    }
  }
  assert.equal(n, 23);
});

scenario('http: the examples of docs/http-api.md do what it says', async (world) => {
  const { base, ready } = await upWithHttp(world);
  const text = fs.readFileSync(`${root}docs/http-api.md`, 'utf8');
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```\n(?:```json\n(.*?)^```\n)?/gms)];
  assert.ok(blocks.length >= 8);
  for (const [, script, expected] of blocks) {
    const run = world.start('example', 'sh', ['-euc', script], { env: { CAPSTAN_HTTP: base } });
    assert.equal((await run.ended).code, 0, script);
    assert.doesNotMatch(run.stdout, /"error"/, script);
    if (!expected) continue;
    const [is, was] = [JSON.parse(run.stdout), JSON.parse(expected)];
    assert.deepEqual(Object.keys(is), Object.keys(was), script);
    for (const name of ['state', 'rows', 'columns', 'hello']) assert.deepEqual(is[name], was[name], script);
  }
  assert.ok(ready.http);
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
