// What is said about the HTTP API is what the server does: /openapi.json beside real answers. proto.test.js does the same
// for the .proto.
//
// The document is checked by a validator that knows OpenAPI. Then every route is called with every parameter that it
// describes, and every answer is checked by its schema, made strict: a member that is not described is an error. In the
// end every member of every schema must have been seen with a value other than nothing and zero, every parameter and
// member of a request must have been sent, and another value of each must have been refused or have changed the answer.
// Of every metric a value above 0 must have been seen, too.
import fs from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv from 'ajv/dist/2020.js';
import { assert, Cluster, command, endStates, root, scenario, sleep, until } from './harness.js';
import { Exported } from './metrics.js';

const TYPES = {
  json: 'application/json',
  csv: 'text/csv',
  arrow: 'application/vnd.apache.arrow.stream',
  parquet: 'application/vnd.apache.parquet',
};

// Schemas with nothing left open: objects have the members that are described, and no others.
function strict(value) {
  if (Array.isArray(value)) return value.map(strict);
  if (value === null || typeof value !== 'object') return value;
  const copy = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, strict(item)]));
  if (copy.type === 'object' && copy.properties && !('additionalProperties' in copy)) copy.additionalProperties = false;
  return copy;
}

const isNothing = (item) => [null, undefined, '', 0, false].includes(item) || item.length === 0;
const nameOf = (schema) => schema.$ref?.split('/').at(-1);
const IS_SENT = /^Tree/; // shapes of what is sent, not of what comes back

// Calls operations of the document by their id and checks what comes back.
class Described {
  constructor(base, api) {
    this.base = base;
    this.api = api;
    this.schemas = strict(api.components.schemas);
    this.ajv = new Ajv({ strict: false, allErrors: true });
    this.ajv.addSchema({ $id: 'api', components: { schemas: this.schemas } });
    this.operations = new Map();
    this.sent = new Set(); // 'operation: parameter' and 'Schema.member' that a successful call had
    this.called = new Set(); // operations that succeeded
    this.seen = new Set(); // 'Schema.member' that had a value
    for (const [path, item] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(item)) {
        this.operations.set(operation.operationId, { path, method: method.toUpperCase(), ...operation });
      }
    }
  }

  // Remembers which members of which schemas had values.
  note(value, schema, where) {
    if (isNothing(value)) return;
    const name = nameOf(schema);
    if (name !== undefined) {
      for (const [member, item] of Object.entries(value)) {
        if (isNothing(item)) continue;
        where.add(`${name}.${member}`);
        this.note(item, this.schemas[name].properties[member], where);
      }
    } else if (schema.items) {
      for (const item of value) this.note(item, schema.items, where);
    } else if (schema.anyOf) {
      this.note(value, schema.anyOf.find(nameOf), where); // the others are null, or have no members
    }
  }

  check(value, schema, what) {
    const validate = this.ajv.compile(schema.$ref ? { $ref: `api${schema.$ref}` } : strict(schema.anyOf ? this.absolute(schema) : schema));
    assert.ok(validate(value), `${what}: ${this.ajv.errorsText(validate.errors)}\n${JSON.stringify(value)}`);
    this.note(value, schema, this.seen);
  }

  absolute({ anyOf }) {
    return { anyOf: anyOf.map((one) => (one.$ref ? { $ref: `api${one.$ref}` } : one)) };
  }

  // Rows and the results of a tree have the same route; who asks knows which it is.
  schemaOf(described, as) {
    const { schema } = described;
    return as ? schema.anyOf.find((one) => (nameOf(one) ?? 'Tree') === as) : schema;
  }

  // { path: {...}, query: {...}, headers: {...}, body, status, as } → { type, text, json }
  async call(id, { path = {}, query = {}, headers = {}, body, status = 200, as, base = this.base } = {}) {
    const operation = this.operations.get(id);
    assert.ok(operation, `the document has no ${id}`);
    const url = operation.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name]));
    const search = new URLSearchParams(query).toString();
    const response = await fetch(`${base}${url}${search && `?${search}`}`, {
      method: operation.method,
      headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const type = response.headers.get('content-type');
    const bytes = Buffer.from(await response.arrayBuffer());
    assert.equal(response.status, status, `${id}: ${bytes.toString().slice(0, 500)}`);
    const described = (operation.responses[status] ?? operation.responses.default).content;
    const name = type.split(';')[0];
    assert.ok(name in described, `${id} answers with ${type}, the document says ${Object.keys(described)}`);
    const json = name === TYPES.json ? JSON.parse(bytes.toString()) : undefined;
    assert.ok(described[name].schema, `${id} has no schema for ${name}`);
    if (json !== undefined) this.check(json, this.schemaOf(described[name], as), id);
    if (name === 'text/event-stream') this.checkEvents(bytes.toString(), described[name].schema.contentSchema.items.anyOf, id);
    if (status === 200) {
      this.called.add(id);
      for (const key of [path, query, headers].flatMap(Object.keys)) this.sent.add(`${id}: ${key.toLowerCase()}`);
      this.noteBody(id, body);
    }
    return { type, text: bytes.toString(), json };
  }

  noteBody(id, body) {
    if (body === undefined) return;
    const { schema } = this.operations.get(id).requestBody.content[TYPES.json];
    if (nameOf(schema)) this.note(body, schema, this.sent);
    else for (const key of Object.keys(body)) this.sent.add(`${id}: ${key}`);
    const validate = this.ajv.compile(schema.$ref ? { $ref: `api${schema.$ref}` } : schema);
    assert.ok(validate(body), `${id} takes what the document does not: ${this.ajv.errorsText(validate.errors)}`);
  }

  checkEvents(text, [ofEvent, ofEnd], id) {
    for (const frame of text.split('\n\n').filter((one) => /^data: /m.test(one))) {
      const data = JSON.parse(/^data: (.*)$/m.exec(frame)[1]);
      this.check(data, /^event: end$/m.test(frame) ? ofEnd : ofEvent, id);
    }
  }

  // All that can be sent: 'operation: parameter', and 'Schema.member' of what is sent as a whole.
  get sendable() {
    const found = [];
    for (const [id, operation] of this.operations) {
      const body = operation.requestBody?.content[TYPES.json].schema.properties ?? {};
      const described = [...operation.parameters.map(({ name }) => name.toLowerCase()), ...Object.keys(body)];
      found.push(...described.map((name) => `${id}: ${name}`));
    }
    return [...found, ...this.members.filter((name) => IS_SENT.test(name))];
  }

  get members() {
    return Object.entries(this.schemas).flatMap(([schema, { properties = {} }]) => Object.keys(properties).map((member) => `${schema}.${member}`));
  }

  // What the document describes and no call has had.
  get missing() {
    return [
      ...[...this.operations.keys()].filter((id) => !this.called.has(id)),
      ...this.sendable.filter((name) => !this.sent.has(name)),
      ...this.members.filter((name) => !IS_SENT.test(name) && !this.seen.has(name)),
    ];
  }
}

async function upWithHttp(world, args = []) {
  const up = world.capstan('up', [
    'up',
    ...['--data', `${world.folder('up')}/data`, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
    ...['--workers', '1', '--slots', '2', '--no-auth', '--json', ...args],
  ]);
  const ready = JSON.parse((await up.line(/^\{"ready":true.*$/m))[0]);
  const base = `http://${ready.http}`;
  return { up, ready, base, api: await (await fetch(`${base}/openapi.json`)).json() };
}

// A coordinator under which workers are soon missed, with one that runs things, one with an operator, and one that is lost
// with a task.
async function richCluster(world) {
  const settings = {
    // A lease runs out before its worker is missed, so that both are counted.
    ...{ heartbeat_interval_ms: 300, lease_ms: 4000, worker_liveness_timeout_ms: 6500, node_stale_ms: 4000, node_dead_ms: 8000 },
    ...{ retry_backoff_base_ms: 20, stuck_task_warn_ms: 1000 },
  };
  const cluster = new Cluster(world, { settings });
  const coordinator = await cluster.startCoordinator({ args: ['--http', '127.0.0.1:0'] });
  const [, base] = await coordinator.line(/the HTTP API is at (http:\S+)/);
  cluster.client = world.client(cluster.address);
  const door = new Described(base, await (await fetch(`${base}/openapi.json`)).json());
  const lost = await cluster.startWorker({ id: 'lost' });
  await door.call('submitTree', { query: { job_id: 'l' }, body: { tasks: [sleep('a', 600000)] } });
  await cluster.reaches('l', 'a', 'running');
  const w1 = await cluster.startWorker({ id: 'w1', slots: 3, args: ['--capability', 'zone=here', '--http', '127.0.0.1:0'] });
  const [, health] = await w1.line(/health and metrics on (http:\S+)/);
  await cluster.startJsWorker({ id: 'js', operators: ['op'], executors: { echo: (inputs) => inputs } });
  await lost.kill();
  await until('it is stale', async () => (await door.call('getOverview')).json.nodes_stale > 0);
  return { cluster, door, health };
}

const ended = (door, job_id) =>
  until(`${job_id} has ended`, async () => {
    const { json } = await door.call('getJob', { path: { job_id }, query: { wait_ms: 30000 } });
    return endStates.has(json.state) && json;
  });

// A tree in which everything is said that can be.
const everything = {
  ...sleep('said', 1, { depends_on: ['good'], timeout_ms: 60000, exclusive: true }),
  retry: { max_attempts: 2, backoff_ms: 10 },
  placement: {
    ...{ requires_executors: ['sleep'], requires_capabilities: { zone: 'here' }, allowed_nodes: ['w1'] },
    ...{ forbidden_nodes: ['w9'], max_parallel_per_node: 2 },
  },
};

// Calls that submit something, in all the ways that are described.
async function submitEverything(door) {
  const sql = { sql: 'select $a + 1 as n', params: { a: 41 }, priority: 0, job_id: 'q', idempotency_key: 'kq' };
  const body = { ...sql, explain: false, options: { forced: false, partitions: 2 } };
  await door.call('submitQuery', { body });
  await ended(door, 'q');
  assert.equal((await door.call('submitQuery', { body })).json.existed, true);
  const explained = (await door.call('submitQuery', { body: { sql: 'select 42 as n', explain: true } })).json.job_id;
  await ended(door, explained);
  const { rows } = (await door.call('getResults', { path: { job_id: explained }, as: 'Rows' })).json;
  const plan = rows[0].map((cell) => (typeof cell === 'string' ? cell : JSON.stringify(cell))).find((cell) => /^\{/.test(cell));
  await door.call('submitQuery', { body: { plan: JSON.parse(plan), job_id: 'p' } });

  const failing = command('a', 'echo oh no >&2; exit 3', { retry: { max_attempts: 1 } });
  const tasks = [command('good', 'echo "[1]"'), failing, sleep('next', 1, { depends_on: ['a'] }), everything];
  const tree = { name: 'both', priority: 'high', on_failure: 'continue', tasks };
  await door.call('submitTree', { query: { job_id: 't', idempotency_key: 'kt' }, body: tree });
  assert.equal((await ended(door, 't')).state, 'failed');
  const ops = { tasks: [{ name: 'o', executor: 'echo', inputs: {}, required_custom_ops: ['op'] }] };
  await door.call('submitTree', { query: { job_id: 'o' }, body: ops });
  assert.equal((await ended(door, 'o')).state, 'succeeded');
  const lasts = [sleep('slow', 600000), sleep('after', 1, { depends_on: ['slow'] })];
  const others = [sleep('done', 1), command('bad', 'exit 1', { retry: { max_attempts: 1 } }), sleep('never', 1, { depends_on: ['bad'] })];
  await door.call('submitTree', { query: { job_id: 's' }, body: { on_failure: 'continue', tasks: [...lasts, ...others] } });
  await until('it runs', async () => (await door.call('getJob', { path: { job_id: 's' } })).json.state === 'running');
  const nobody = { tasks: [{ name: 'n', executor: 'nobody', inputs: {} }] };
  await door.call('submitTree', { query: { job_id: 'n' }, body: nobody });
  await door.call('submitQuery', { body: { sql: 'select i from range(300000) t(i)', job_id: 'b' } }); // rows that stay on their worker
  assert.equal((await ended(door, 'b')).state, 'succeeded');
  // A stage with several tasks that all run, and one of which one task runs and others wait.
  const short = [{ id: 0, sql: 'select {{split}} as n', splits: [1, 2].map((i) => ({ file: `/${i}` })), output: { exchange: 'result' } }];
  await door.call('submitQuery', { body: { plan: { stages: short }, job_id: 'v' } });
  assert.equal((await ended(door, 'v')).state, 'succeeded');
  const long = "select count(*) as n from range(100000000) t(i) where {{split}} || i::varchar = ''";
  const stages = [{ id: 0, sql: long, splits: [1, 2, 3, 4].map((i) => ({ file: `/${i}` })), output: { exchange: 'result' } }];
  await door.call('submitQuery', { body: { plan: { stages }, job_id: 'w' } });
  await until('one of its tasks waits', async () => {
    const { reasons } = (await door.call('whyPending', { path: { job_id: 'w' } })).json;
    return reasons.some(({ task }) => task > 0);
  });
  await door.call('cancelJob', { path: { job_id: 'w' }, body: { reason: 'enough' } });
  await door.call('getJob', { path: { job_id: 'w' } });
}

// A query whose first stage has ended and whose second runs until `isSeen`: rows lie between them.
async function holdRows(door, isSeen) {
  const slow = "select count(*) as n from a, range(1000000000) t(j) where j::varchar = ''";
  const stages = [
    { id: 0, sql: 'select i from range(1000) t(i)', output: { exchange: 'gather' } },
    { id: 1, inputs: { a: 0 }, sql: slow, output: { exchange: 'result' } },
  ];
  await door.call('submitQuery', { body: { plan: { stages }, job_id: 'm' } });
  await until('rows are held in memory', isSeen);
  await door.call('cancelJob', { path: { job_id: 'm' }, body: { reason: 'enough' } });
}

async function readEverything(door) {
  const pages = { limit: 1 };
  const { jobs, next } = (await door.call('listJobs', { query: { ...pages, name: 'both', state: 'failed' } })).json;
  assert.equal(jobs[0].job_id, 't');
  await door.call('listJobs', { query: { ...pages, ...(next ? { after: next } : {}) } });
  const page = (await door.call('listJobs', { query: pages })).json;
  await door.call('listJobs', { query: { ...pages, after: page.next } });
  await door.call('listTasks', { path: { job_id: 't' } });
  await door.call('listTasks', { path: { job_id: 'q' } });
  await door.call('listTasks', { path: { job_id: 'w' } });
  const tasks = (await door.call('listTasks', { path: { job_id: 't' }, query: pages })).json;
  await door.call('listTasks', { path: { job_id: 't' }, query: { after: tasks.next, state: 'failed' } });
  const bare = (await door.call('listTasks', { path: { job_id: 't' }, query: { without_results: true } })).json;
  assert.ok(bare.tasks.every(({ result }) => result === null));
  assert.match((await door.call('whyPending', { path: { job_id: 's' } })).json.reasons[0].reason, /waiting/);
  const described = Object.keys(door.operations.get('getResults').responses[200].content);
  assert.deepEqual(described.toSorted(), Object.values(TYPES).toSorted());
  for (const format of Object.keys(TYPES)) {
    const { type } = await door.call('getResults', { path: { job_id: 'q' }, query: { format }, as: format === 'json' ? 'Rows' : undefined });
    assert.match(type, new RegExp(`^${TYPES[format].replaceAll('.', '\\.')}`));
  }
  const part = await door.call('getResults', { path: { job_id: 'q' }, query: { offset: 0, limit: 1 }, as: 'Rows' });
  assert.deepEqual(part.json.rows, [[42]]);
  const far = await door.call('getResults', { path: { job_id: 'b' }, query: { offset: 299999 }, as: 'Rows' });
  assert.equal(far.json.rows.length, 1);
  const results = (await door.call('getResults', { path: { job_id: 'o' }, as: 'Tree' })).json;
  assert.deepEqual(Object.keys(results), ['o']);
  const watched = { job: 't', after: 1, follow: false };
  const { text } = await door.call('watchEvents', { query: watched, headers: { 'Last-Event-ID': '1' } });
  assert.match(text, /^data: \{"seq":\d+,/m);
  await door.call('watchEvents', { query: { last: 1000, follow: false } });
  for (const id of ['getLeader', 'getMetrics', 'getHealth', 'getReadiness', 'getLeadership', 'getDescription']) await door.call(id);
  const counts = async (name) => (await door.call('getOverview')).json[name] > 0;
  for (const name of ['nodes_dead', 'stuck_tasks', 'attempts_lost', 'jobs_canceled']) await until(`${name} counts`, () => counts(name));
}

async function changeEverything(door) {
  await door.call('listNodes', { query: { executor: 'sleep' } });
  await door.call('listNodes', { query: { operator: 'none' } });
  await door.call('listNodes', { query: { capability: 'cpu_cores=1000000' } });
  const path = { worker_id: 'w1' };
  await door.call('drainNode', { path });
  await door.call('undrainNode', { path });
  const bad = { tasks: [command('bad', 'exit 1', { retry: { max_attempts: 1 } })] };
  await until('it is blacklisted', async () => {
    await ended(door, (await door.call('submitTree', { body: bad })).json.job_id);
    return (await door.call('listNodes')).json.nodes.some(({ blacklisted }) => blacklisted);
  });
  assert.equal((await door.call('clearNode', { path })).json.blacklisted, false);
  await door.call('putTable', { body: { name: 't1', source: '/nowhere/*.csv', format: 'csv' } });
  await door.call('listTables');
  await door.call('deleteTable', { path: { name: 't1' } });
  await door.call('cancelJob', { path: { job_id: 's' }, body: { reason: 'enough' } });
  await door.call('retryJob', { path: { job_id: 't' }, body: { from_task: 'a' } });
  await ended(door, 't');
}

async function failInEveryWay(door) {
  const several = (await door.call('submitTree', { body: { tasks: [{ nam: 'a' }] }, status: 400 })).json.error;
  assert.match(several.message, /^tasks\[0\]\.nam: [^\n]*$/);
  assert.match(several.detail, /^tasks\[0\]: "name" is missing\n/);
  await door.call('getJob', { path: { job_id: 'none' }, status: 404 });
  await door.call('submitTree', { query: { job_id: 't' }, body: { tasks: [sleep('other', 1)] }, status: 409 });
  await door.call('submitQuery', { body: { sql: 'selekt', job_id: 'bad' } });
  await ended(door, 'bad');
  await door.call('getResults', { path: { job_id: 'bad' }, status: 409 });
}

// An observer leaves writes to the leader, whose address it tells, and does not lead.
async function askAnObserver(door, world, address) {
  const observer = world.capstan('observer', [
    'coordinator',
    ...['--role', 'observer', '--follow', address, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
  ]);
  const [, base] = await observer.line(/HTTP API is at (\S+)/);
  await until('it has a copy', async () => (await fetch(`${base}/v1/nodes`)).status === 200);
  const refused = (await door.call('submitTree', { body: { tasks: [sleep('a', 1)] }, status: 503, base })).json;
  assert.deepEqual([refused.leader, refused.error.leader], [address, address]);
  assert.equal((await door.call('getLeadership', { status: 503, base })).json.status, 'does not lead');
  await door.call('listNodes', { base });
  await until('it is behind by some time', async () => (await door.call('getLeader', { base })).json.staleness_ms > 0);
}

scenario('openapi: the document is what OpenAPI 3.1 says', async (world) => {
  const { api } = await upWithHttp(world);
  const { valid, errors } = await new Validator().validate(structuredClone(api));
  assert.ok(valid, JSON.stringify(errors, null, 1));
  assert.equal(api.openapi, '3.1.0');
  const broken = structuredClone(api);
  delete broken.paths['/v1/jobs'].get.responses;
  broken.paths['/v1/jobs'].get.parameters = {};
  assert.equal((await new Validator().validate(broken)).valid, false, 'the validator finds nothing');
});

// Members that no answer here can have.
const NOT_HERE = [
  'Reason.attempt', // of a task that waits: it has none yet
  'Event.resync', // only when events were pruned in the middle of a stream
];

// Metrics that may stay at 0 here, and why.
const MISTAKES = ['job_ended', 'stale_attempt', 'superseded', 'unknown_job', 'unknown_task', 'unknown_worker', 'wrong_token', 'wrong_worker'];
const NEED_NOT_MOVE = [
  // metrics.test.js moves them
  ...MISTAKES.map((reason) => `coordinator: capstan_stale_reports_total{reason="${reason}"}`),
  'coordinator: capstan_prune_errors_total',
  'coordinator: capstan_store_errors_total',
  'coordinator: capstan_task_attempts_total{outcome="released"}',
  'worker: capstan_task_attempts_total{outcome="released"}',
  'worker: capstan_worker_heartbeats_total{outcome="missed"}',
  'worker: capstan_worker_unreported',
  // our workers do not make these mistakes
  'coordinator: capstan_stale_reports_total{reason="bad_output"}',
  'coordinator: capstan_stale_reports_total{reason="inline_limit"}',
  'coordinator: capstan_tasks{state="canceled"}', // a job with such tasks has ended
  'worker: capstan_shuffle_bytes_total{direction="in"}', // sql.test.js
  'worker: capstan_shuffle_fetch_seconds_count', // sql.test.js
  'worker: capstan_shuffle_fetch_seconds_sum', // sql.test.js
  'worker: capstan_stale_reports_total', // chaos.test.js
];

// What is not taken, by the kind of value that is described.
const wrongOf = ({ type, enum: words, $ref, anyOf }) => {
  if ($ref || anyOf) return 5;
  const kind = [type].flat()[0];
  return words ? 'nobody' : { string: 5, integer: 'x', boolean: 'maybe', array: 5, object: 5 }[kind];
};

// Texts in the address can be anything. What another one leads to: another status, or other members in the answer.
const OTHER_TEXTS = {
  'listJobs: state': { status: 400, text: 'bad' },
  'listJobs: after': { status: 400, text: 'zzz' },
  'listJobs: name': { text: 'nobody', is: ({ jobs }) => jobs.length === 0 },
  'listTasks: state': { status: 400, text: 'bad' },
  'listTasks: after': { status: 400, text: 'zzz' },
  'listNodes: executor': { text: 'nobody', is: ({ nodes }) => nodes.length === 0 },
  'listNodes: operator': { text: 'op', is: ({ nodes }) => nodes.length === 1 },
  'listNodes: capability': { status: 400, text: 'x' },
  'watchEvents: job': { status: 404, text: 'nobody' },
  'submitTree: job_id': { status: 400, text: 'a b' },
  'submitTree: idempotency_key': { status: 429, text: 'x'.repeat(600) },
};

// Each thing that can be sent, with another value: which of them made no difference.
async function changeEachValue(door) {
  const without = [];
  const expect = async (name, options, is = () => true) => {
    const [id] = name.split(': ');
    const found = await door.call(id, options).then(({ json }) => is(json), (error) => (console.log(`${name}: ${error.message}`), false));
    if (!found) without.push(name);
  };
  for (const [id, { parameters, requestBody }] of door.operations) {
    const inPath = parameters.find((one) => one.in === 'path');
    const path = inPath ? { [inPath.name]: inPath.name === 'worker_id' ? 'w1' : 'q' } : {};
    for (const { name, in: place, schema } of parameters) {
      const field = `${id}: ${name.toLowerCase()}`;
      const isFree = schema.type === 'string' && !schema.enum;
      const inAddress = isFree ? OTHER_TEXTS[field] : { status: 400, text: wrongOf(schema) };
      const other = place === 'path' ? { status: 404, text: 'nobody' } : inAddress;
      assert.ok(other, `what does another ${field} lead to?`);
      const [where, key] = { path: ['path', name], query: ['query', name], header: ['headers', name] }[place];
      const body = id === 'submitTree' ? { tasks: [sleep('a', 1)] } : undefined;
      await expect(field, { path, body, status: other.status, [where]: { ...(where === 'path' ? path : {}), [key]: other.text } }, other.is);
    }
    const members = requestBody?.content[TYPES.json].schema.properties ?? {};
    for (const [name, schema] of Object.entries(members)) {
      const says = ({ error }) => error.message.startsWith(name);
      await expect(`${id}: ${name}`, { path, body: { [name]: wrongOf(schema) }, status: 400 }, says);
    }
  }
  return without;
}

// The same for the members of a tree: each is refused by its place.
async function changeEachMember(door) {
  const without = [];
  const good = { name: 'tree', tasks: [{ ...sleep('a', 1), retry: {}, placement: {} }] };
  const places = { Tree: [], TreeTask: ['tasks', 0], TreeRetry: ['tasks', 0, 'retry'], TreePlacement: ['tasks', 0, 'placement'] };
  for (const [shape, place] of Object.entries(places)) {
    for (const [member, schema] of Object.entries(door.schemas[shape].properties)) {
      const body = structuredClone(good);
      place.reduce((at, key) => at[key], body)[member] = wrongOf(schema) ?? {};
      const { message, detail } = (await door.call('submitTree', { body, status: 400 })).json.error;
      const wanted = [...place, member].map((key) => (typeof key === 'number' ? `[${key}]` : `.${key}`)).join('').slice(1);
      if (!`${message}\n${detail}`.includes(wanted)) without.push(`${shape}.${member}: ${message}`);
    }
  }
  assert.deepEqual(Object.keys(door.schemas).filter((name) => IS_SENT.test(name)).sort(), Object.keys(places).sort());
  return without;
}

scenario('openapi: every route, parameter and member of a request and of an answer is used', { ms: 120000 }, async (world) => {
  const { cluster, door, health } = await richCluster(world);
  const exported = new Exported();
  const readBoth = async () => [await exported.read('coordinator', door.base), await exported.read('worker', health)];
  await readBoth();
  await submitEverything(door);
  await holdRows(door, async () => (await readBoth())[1].get('capstan_shuffle_memory_bytes') > 0);
  await readEverything(door);
  await until('tasks are in all states', async () => {
    const [now] = await readBoth();
    return ['succeeded', 'failed', 'skipped'].every((state) => now.get(`capstan_tasks{state="${state}"}`) > 0);
  });
  await changeEverything(door);
  await failInEveryWay(door);
  await askAnObserver(door, world, cluster.address);
  assert.deepEqual(door.missing.filter((name) => !NOT_HERE.includes(name)), []);
  assert.deepEqual(door.missing.toSorted(), NOT_HERE.toSorted(), 'what is seen needs no excuse');
  assert.deepEqual(await changeEachValue(door), []);
  assert.deepEqual(await changeEachMember(door), []);
  await readBoth();
  assert.deepEqual(exported.silent.filter((name) => !NEED_NOT_MOVE.includes(name)), [], 'metrics that have always been 0');
});

scenario('metrics: docs/operations.md explains what is exported, and nothing else', async (world) => {
  const { base, ready } = await upWithHttp(world);
  const worker = world.capstan('worker', [
    ...['worker', '--join', ready.address, '--data', world.folder('w'), '--http', '127.0.0.1:0'],
  ]);
  const [, address] = await worker.line(/(http:\/\/127\.0\.0\.1:\d+)/);
  const exported = new Set();
  for (const from of [base, address]) {
    const text = await (await fetch(`${from}/metrics`)).text();
    for (const [, name] of text.matchAll(/^# TYPE (\w+) /gm)) exported.add(name);
  }
  const page = fs.readFileSync(`${root}docs/operations.md`, 'utf8');
  const rows = page.match(/^\| `capstan_.*$/gm).join('\n');
  const explained = new Set([...rows.matchAll(/^\| ([^|]*)\|/gm)].flatMap(([, cell]) => cell.match(/capstan_\w+/g)));
  assert.deepEqual([...explained].sort(), [...exported].sort());
});
