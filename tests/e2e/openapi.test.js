// What is said about the interfaces is what the server does: /openapi.json and proto/capstan.proto beside real answers.
//
// The document is checked by a validator that knows OpenAPI. Then every route is called with every parameter that it
// describes, and every answer is checked by its schema, made strict: a member that is not described is an error. In the
// end every member of every schema, and every field of every answer of the .proto, must have been seen with a value.
import fs from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv from 'ajv/dist/2020.js';
import { assert, command, root, scenario, sleep, until } from './harness.js';
import protoLoader from '../../examples/javascript/node_modules/@grpc/proto-loader/build/src/index.js';

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

// Calls operations of the document by their id and checks what comes back.
class Described {
  constructor(base, api) {
    this.base = base;
    this.api = api;
    this.schemas = strict(api.components.schemas);
    this.ajv = new Ajv({ strict: false, allErrors: true });
    this.ajv.addSchema({ $id: 'api', components: { schemas: this.schemas } });
    this.operations = new Map();
    this.sent = new Map(); // operation → names of parameters and members that a successful call had
    this.called = new Set(); // operations that succeeded
    this.seen = new Set(); // 'Schema.member' that had a value
    for (const [path, item] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(item)) {
        this.operations.set(operation.operationId, { path, method: method.toUpperCase(), ...operation });
        this.sent.set(operation.operationId, new Set());
      }
    }
  }

  // Remembers which members of which schemas had values.
  note(value, schema) {
    if (schema.$ref) {
      const name = schema.$ref.split('/').at(-1);
      const { properties = {} } = this.schemas[name];
      for (const [member, item] of Object.entries(value)) {
        if (item !== null && item !== undefined) {
          this.seen.add(`${name}.${member}`);
          this.note(item, properties[member]);
        }
      }
    } else if (schema.type === 'array') {
      for (const item of value) this.note(item, schema.items);
    }
  }

  check(value, schema, where) {
    const $ref = schema.$ref ? `api${schema.$ref}` : undefined;
    const validate = this.ajv.compile($ref ? { $ref } : strict(schema));
    assert.ok(validate(value), `${where}: ${this.ajv.errorsText(validate.errors)}\n${JSON.stringify(value)}`);
    this.note(value, schema);
  }

  // { path: {...}, query: {...}, headers: {...}, body } → { status, type, text, json }
  async call(id, { path = {}, query = {}, headers = {}, body, status = 200 } = {}) {
    const operation = this.operations.get(id);
    assert.ok(operation, `the document has no ${id}`);
    const url = operation.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(path[name]));
    const search = new URLSearchParams(query).toString();
    const response = await fetch(`${this.base}${url}${search && `?${search}`}`, {
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
    if (described[name].schema && json) this.check(json, described[name].schema, id);
    if (status === 200) {
      this.called.add(id);
      const sent = this.sent.get(id);
      for (const part of [path, query, headers, body ?? {}])
        Object.keys(part).forEach((key) => sent.add(key.toLowerCase()));
    }
    return { type, text: bytes.toString(), json };
  }

  // What the document describes and no call has had.
  get missing() {
    const names = [...this.operations.keys()].filter((id) => !this.called.has(id));
    for (const [id, operation] of this.operations) {
      const body = operation.requestBody?.content[TYPES.json].schema.properties ?? {};
      const described = [...operation.parameters.map((parameter) => parameter.name), ...Object.keys(body)];
      const sent = this.sent.get(id);
      names.push(...described.filter((name) => !sent.has(name.toLowerCase())).map((name) => `${id}: ${name}`));
    }
    for (const [schema, { properties = {} }] of Object.entries(this.schemas)) {
      names.push(
        ...Object.keys(properties)
          .map((member) => `${schema}.${member}`)
          .filter((name) => !this.seen.has(name)),
      );
    }
    return names;
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

// Calls that submit something, in all the ways that are described.
async function submitEverything(door, { until: ready }) {
  const ended = async (job_id) => (await door.call('getJob', { path: { job_id }, query: { wait_ms: 30000 } })).json;
  const sql = { sql: 'select $a + 1 as n', params: { a: 41 }, priority: 0, job_id: 'q', idempotency_key: 'kq' };
  await door.call('submitQuery', { body: { ...sql, explain: false, options: { forced: false, partitions: 2 } } });
  await ended('q');
  const explained = (await door.call('submitQuery', { body: { sql: 'select 42 as n', explain: true } })).json.job_id;
  await ended(explained);
  const { rows } = (await door.call('getResults', { path: { job_id: explained } })).json;
  const plan = rows[0]
    .map((cell) => (typeof cell === 'string' ? cell : JSON.stringify(cell)))
    .find((cell) => /^\{/.test(cell));
  await door.call('submitQuery', { body: { plan: JSON.parse(plan), job_id: 'p' } });

  const failing = command('a', 'echo oh no >&2; exit 3', { retry: { max_attempts: 1 } });
  const tree = {
    name: 'both',
    tasks: [command('good', 'echo "[1]"'), failing, sleep('next', 1, { depends_on: ['a'] })],
  };
  await door.call('submitTree', { query: { job_id: 't', idempotency_key: 'kt' }, body: tree });
  assert.equal((await ended('t')).state, 'failed');
  const slow = { tasks: [sleep('slow', 600000), sleep('after', 1, { depends_on: ['slow'] })] };
  await door.call('submitTree', { query: { job_id: 's' }, body: slow });
  await ready('it runs', async () => (await door.call('getJob', { path: { job_id: 's' } })).json.state === 'running');
}

async function readEverything(door) {
  const pages = { limit: 1 };
  const { jobs, next } = (await door.call('listJobs', { query: { ...pages, name: 'both', state: 'failed' } })).json;
  assert.equal(jobs[0].job_id, 't');
  await door.call('listJobs', { query: { ...pages, ...(next ? { after: next } : {}) } });
  const page = (await door.call('listJobs', { query: pages })).json;
  await door.call('listJobs', { query: { ...pages, after: page.next } });
  await door.call('listTasks', { path: { job_id: 't' } });
  const tasks = (await door.call('listTasks', { path: { job_id: 't' }, query: pages })).json;
  await door.call('listTasks', { path: { job_id: 't' }, query: { after: tasks.next, state: 'failed' } });
  const bare = (await door.call('listTasks', { path: { job_id: 't' }, query: { without_results: true } })).json;
  assert.ok(bare.tasks.every(({ result }) => result === null));
  assert.match((await door.call('whyPending', { path: { job_id: 's' } })).json.reasons[0].reason, /waiting/);
  const described = Object.keys(door.operations.get('getResults').responses[200].content);
  assert.deepEqual(described.toSorted(), Object.values(TYPES).toSorted());
  for (const format of Object.keys(TYPES)) {
    const { type } = await door.call('getResults', { path: { job_id: 'q' }, query: { format } });
    assert.match(type, new RegExp(`^${TYPES[format].replaceAll('.', '\\.')}`));
  }
  const part = await door.call('getResults', { path: { job_id: 'q' }, query: { offset: 0, limit: 1 } });
  assert.deepEqual(part.json.rows, [[42]]);
  const watched = { job: 't', after: 1, follow: false };
  const { text } = await door.call('watchEvents', { query: watched, headers: { 'Last-Event-ID': '1' } });
  assert.match(text, /^data: \{"seq":\d+,/m);
  await door.call('watchEvents', { query: { last: 5, follow: false } });
  const plain = [
    'getLeader',
    'getOverview',
    'getMetrics',
    'getHealth',
    'getReadiness',
    'getLeadership',
    'getDescription',
  ];
  for (const id of plain) await door.call(id);
}

async function changeEverything(door) {
  const { nodes } = (await door.call('listNodes', { query: { executor: 'sleep' } })).json;
  await door.call('listNodes', { query: { operator: 'none' } });
  await door.call('listNodes', { query: { capability: 'cpu_cores=1000000' } });
  const { worker_id } = nodes[0];
  for (const id of ['drainNode', 'undrainNode', 'clearNode']) await door.call(id, { path: { worker_id } });
  await door.call('putTable', { body: { name: 't1', source: '/nowhere/*.csv', format: 'csv' } });
  await door.call('listTables');
  await door.call('deleteTable', { path: { name: 't1' } });
  await door.call('cancelJob', { path: { job_id: 's' }, body: { reason: 'enough' } });
  await door.call('retryJob', { path: { job_id: 't' }, body: { from_task: 'a' } });
}

async function failInEveryWay(door) {
  const wrong = (await door.call('submitQuery', { body: { sql: 5 }, status: 400 })).json.error;
  assert.equal(wrong.code, 'invalid_argument');
  await door.call('getJob', { path: { job_id: 'none' }, status: 404 });
  await door.call('submitTree', { query: { job_id: 't' }, body: { tasks: [sleep('other', 1)] }, status: 409 });
  await door.call('submitQuery', { body: { sql: 'selekt', job_id: 'bad' } });
  await door.call('getJob', { path: { job_id: 'bad' }, query: { wait_ms: 30000 } });
  await door.call('getResults', { path: { job_id: 'bad' }, status: 409 });
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

// Members that are not seen here: another coordinator that leads is in a test below, why speaks of attempts that have
// no number yet, and `detail` is kept for what may come.
const NOT_HERE = ['Error.leader', 'ErrorText.leader', 'ErrorText.detail', 'Reason.attempt'];

scenario(
  'openapi: every route is called with all it takes, and every member of every answer is seen',
  async (world) => {
    const { api, base } = await upWithHttp(world);
    const door = new Described(base, api);
    await submitEverything(door, { until });
    await readEverything(door);
    await changeEverything(door);
    await failInEveryWay(door);
    assert.deepEqual(
      door.missing.filter((name) => !NOT_HERE.includes(name)),
      [],
    );
  },
);

scenario('openapi: a write to an observer is refused with the address of the leader', async (world) => {
  const { ready, api } = await upWithHttp(world);
  const observer = world.capstan('observer', [
    'coordinator',
    ...['--role', 'observer', '--follow', ready.address, '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'],
  ]);
  const [, base] = await observer.line(/HTTP API is at (\S+)/);
  await until('it has a copy', async () => (await fetch(`${base}/v1/nodes`)).status === 200);
  const door = new Described(base, api);
  const body = { tasks: [sleep('a', 1)] };
  const refused = await door.call('submitTree', { body, status: 503 });
  assert.equal(refused.json.leader, ready.address);
  assert.equal(refused.json.error.leader, ready.address);
  await door.call('listNodes');
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

// ---- the .proto ----

const proto = protoLoader.loadSync(`${root}proto/capstan.proto`, { keepCase: true });
const messageOf = (name) => proto[`capstan.v1.${name.split('.').at(-1)}`]?.type;

scenario('proto: every method of the file is served', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const unserved = [];
  for (const [service, methods] of Object.entries(proto).filter(([, it]) => !it.type && !it.fileDescriptorProtos)) {
    for (const [method, { responseStream }] of Object.entries(methods)) {
      if (method === 'FetchShufflePartition') continue; // workers serve it
      const error = await (
        responseStream
          ? (async () => {
              const stream = cluster.client.stream(method, {});
              for await (const chunk of stream) return chunk && undefined;
            })()
          : cluster.client.once(method, {})
      ).then(
        () => undefined,
        (reason) => reason,
      );
      if (error?.code === 12) unserved.push(`${service}.${method}`);
    }
  }
  assert.deepEqual(unserved, []);
});

// Fields of answers that this run does not make. The first three are for observers, which have tests of their own.
const UNSEEN = {
  Event: ['resync', 'position', 'head', 'more'],
  GetLeaderResponse: ['staleness_ms'],
  AttemptRef: ['lease_token', 'task_id'], // the first never leaves the leader; the second is 0 in every tree
  Node: ['blacklisted', 'draining', 'failures', 'custom_operator_capabilities', 'running_tasks'],
  StageStatus: ['canceled', 'skipped', 'queued', 'running', 'fraction'],
  TaskStatus: ['bytes', 'rows'],
  GetOverviewResponse: ['jobs_queued', 'jobs_canceled', 'stuck_tasks', 'attempts_lost', 'nodes_stale', 'nodes_dead'],
};

// Which fields of a message had a value other than the one that stands for nothing.
function noteFields(type, value, seen) {
  for (const field of messageOf(type).field) {
    const item = value[field.name];
    const isEmpty = item === undefined || item === null || item === '' || item === 0 || item === false;
    if (isEmpty || (item.length === 0 && typeof item === 'object')) continue;
    if (field.type === 'TYPE_ENUM' && /_UNSPECIFIED$/.test(item)) continue;
    seen.add(`${type}.${field.name}`);
    if (field.type === 'TYPE_MESSAGE') {
      const name = field.typeName.split('.').at(-1);
      for (const one of [item].flat()) noteFields(name, one, seen);
    }
  }
}

scenario('proto: every field of what clients are answered has been seen with a value', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { max_task_attempts: 1 } });
  const { client } = cluster;
  const seen = new Set();
  const types = new Set();
  const call = async (method, request, type) => {
    const answer = await client.call(method, request);
    types.add(type);
    noteFields(type, answer, seen);
    return answer;
  };
  const tree = {
    name: 'tree',
    tasks: [command('a', 'exit 3'), command('b', 'echo 1'), sleep('c', 1, { depends_on: ['b'] })],
  };
  const request = { job_id: 'j', tree_json: Buffer.from(JSON.stringify(tree)) };
  await call('SubmitTasks', request, 'SubmitTasksResponse');
  await call('SubmitTasks', request, 'SubmitTasksResponse');
  await call('SubmitQuery', { query_id: 'q', sql: 'select 42 as n' }, 'SubmitQueryResponse');
  await call('SubmitQuery', { query_id: 'q', sql: 'select 42 as n' }, 'SubmitQueryResponse');
  for (const id of ['j', 'q']) {
    await cluster.end(id);
    await call('GetQueryStatus', { query_id: id }, 'GetQueryStatusResponse');
  }
  await call('ListJobs', { limit: 1 }, 'ListJobsResponse');
  await call('ListTasks', { query_id: 'j', limit: 2 }, 'ListTasksResponse');
  await call('ListTasks', { query_id: 'q' }, 'ListTasksResponse');
  const slow = { tasks: [sleep('slow', 600000), sleep('z', 1, { depends_on: ['slow'] })] };
  await call('SubmitTasks', { job_id: 's', tree_json: Buffer.from(JSON.stringify(slow)) }, 'SubmitTasksResponse');
  await cluster.reaches('s', 'slow', 'running');
  await call('WhyPending', { query_id: 's' }, 'WhyPendingResponse');
  await call('GetOverview', {}, 'GetOverviewResponse');
  await call('CancelQuery', { query_id: 's' }, 'CancelQueryResponse');
  await call('RetryJob', { query_id: 'j' }, 'RetryJobResponse');
  await call('GetLeader', {}, 'GetLeaderResponse');
  await call('ListNodes', {}, 'ListNodesResponse');
  await call('PutTable', { table: { name: 't', source: '/x/*.csv', format: 'csv' } }, 'PutTableResponse');
  await call('ListTables', {}, 'ListTablesResponse');
  types.add('Event');
  for (const event of await cluster.events('j')) noteFields('Event', event, seen);

  const unseen = [];
  const visited = new Set();
  const visit = (type) => {
    if (visited.has(type)) return;
    visited.add(type);
    for (const field of messageOf(type).field) {
      const isAllowed = UNSEEN[type]?.includes(field.name);
      if (!seen.has(`${type}.${field.name}`) && !isAllowed) unseen.push(`${type}.${field.name}`);
      if (field.type === 'TYPE_MESSAGE') visit(field.typeName.split('.').at(-1));
    }
  };
  types.forEach(visit);
  assert.deepEqual(unseen, []);
});
