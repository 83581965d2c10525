// proto/capstan.proto beside what the server does: every method is served, every field of every answer has been seen with
// a value, and every field of every request is read.
//
// A field of a request is read if another value of it is refused, or changes what comes back. One table has them all:
// which fields a row is about, and what shows it. In the end every field must be in a row, or among the few below that
// nobody reads, with the reason. Fields of answers are noted by the same calls.
import { Connection, grpc } from '../../examples/javascript/capstan.js';
import protoLoader from '../../examples/javascript/node_modules/@grpc/proto-loader/build/src/index.js';
import { assert, command, root, scenario, sleep, until } from './harness.js';

const proto = protoLoader.loadSync(`${root}proto/capstan.proto`, { keepCase: true });
const messageOf = (name) => proto[`capstan.v1.${name.split('.').at(-1)}`]?.type;
const services = Object.entries(proto).filter(([, it]) => !it.type && !it.fileDescriptorProtos);
const methods = new Map(services.flatMap(([, service]) => Object.entries(service)));
const requestOf = (method) => methods.get(method).requestType.type.name;
const responseOf = (method) => methods.get(method).responseType.type.name;

scenario('proto: every method of the file is served', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const unserved = [];
  for (const [method, { responseStream }] of methods) {
    if (method === 'FetchShufflePartition') continue; // workers serve it
    const first = async () => {
      for await (const chunk of cluster.client.stream(method, {})) return chunk;
      return undefined;
    };
    const error = await (responseStream ? first() : cluster.client.once(method, {})).then(
      () => undefined,
      (reason) => reason,
    );
    if (error?.code === 12) unserved.push(method);
  }
  assert.deepEqual(unserved, []);
});

// ---- what is seen ----

const seen = new Set(); // 'Type.field' of answers that had a value other than the one that stands for nothing
const read = new Set(); // 'Type.field' of requests

const isNothing = (item) => [undefined, null, '', 0, '0', false].includes(item) || item.length === 0;

function note(type, value) {
  for (const { name, type: kind, typeName } of messageOf(type).field) {
    const item = value[name];
    if (isNothing(item) || (kind === 'TYPE_ENUM' && /_UNSPECIFIED$/.test(item))) continue;
    seen.add(`${type}.${name}`);
    if (kind === 'TYPE_MESSAGE') for (const one of [item].flat()) note(typeName.split('.').at(-1), one);
  }
}

// All fields of these messages and of those inside them.
function fieldsOf(types) {
  const names = new Set();
  const visited = new Set();
  const visit = (type) => {
    if (visited.has(type)) return;
    visited.add(type);
    for (const { name, type: kind, typeName } of messageOf(type).field) {
      names.add(`${type}.${name}`);
      if (kind === 'TYPE_MESSAGE') visit(typeName.split('.').at(-1));
    }
  };
  types.forEach(visit);
  return [...names];
}

// Calls as harness clients make them, and remembers the fields of what is answered.
class Calls {
  constructor(connection, identity = {}) {
    this.connection = connection;
    this.identity = identity;
  }

  async call(method, request = {}) {
    const answer = await this.connection.once(method, { ...this.identity, ...request });
    note(responseOf(method), answer);
    return answer;
  }

  // The messages of a stream, up to one that is enough.
  async all(method, request = {}, isEnough = () => false) {
    const found = [];
    const stream = this.connection.stream(method, request);
    try {
      for await (const message of stream) {
        note(responseOf(method), message);
        found.push(message);
        if (isEnough(message)) break;
      }
    } finally {
      stream.cancel();
    }
    return found;
  }

  // That it is refused, in words that fit.
  async refused(method, request, pattern) {
    const error = await this.call(method, request).then(
      (answer) => assert.fail(`${method} ${JSON.stringify(request)} was accepted: ${JSON.stringify(answer)}`),
      (reason) => reason,
    );
    assert.match(error.details ?? String(error), pattern);
  }

  ended(query_id) {
    return until(`${query_id} has ended`, async () => {
      const { status } = await this.call('GetQueryStatus', { query_id, wait_ms: 20000 });
      return /_(SUCCEEDED|FAILED|CANCELED)$/.test(status.state) && status;
    });
  }
}

// A connection that keeps all digits of numbers of 64 bits, for streams.
function exactly(address) {
  const options = { keepCase: true, longs: String, enums: String, bytes: Buffer, defaults: true };
  const { v1 } = grpc.loadPackageDefinition(protoLoader.loadSync(`${root}proto/capstan.proto`, options)).capstan;
  const stubs = Object.values(v1).flatMap((Service) => (Service.service ? [new Service(address, grpc.credentials.createInsecure())] : []));
  return {
    stream: (method, request) => stubs.find((stub) => stub[method])[method](request),
    close: () => stubs.forEach((stub) => stub.close()),
  };
}

// Runs the rows of a table one after the other; what is wrong with them is told together.
async function runTable(rows, context) {
  const wrong = [];
  for (const [names, body] of rows) {
    const fields = [names].flat().flatMap((name) => {
      const [type, list] = name.split(': ');
      return list.split(' ').map((field) => `${type}.${field}`);
    });
    for (const field of fields) {
      const [type, member] = field.split('.');
      if (!messageOf(type)?.field.some(({ name }) => name === member)) wrong.push(`there is no ${field}`);
      read.add(field);
    }
    await body(context).catch((error) => wrong.push(`${fields.join(', ')}: ${error.message}`));
  }
  assert.deepEqual(wrong, []);
}

// ---- what clients send ----

const json = (value) => Buffer.from(JSON.stringify(value));
const tree = (...tasks) => json({ tasks });
const rowsOf = async (calls, query_id, offset = 0) =>
  Buffer.concat((await calls.all('FetchQueryResults', { query_id, offset })).map(({ payload }) => payload));
const ONE = { stages: [{ id: 0, sql: 'select 1 as n', output: { exchange: 'result' } }] };
const names = ({ tasks }) => tasks.map(({ name }) => name);

const CLIENTS = [
  ['SubmitQueryRequest: query_id sql', async (c) => {
    const request = { query_id: 'q', sql: 'select 42 as n' };
    assert.equal((await c.call('SubmitQuery', request)).query_id, 'q');
    assert.equal((await c.call('SubmitQuery', request)).existed, true);
    assert.equal((await c.ended('q')).state, 'QUERY_STATE_SUCCEEDED');
    await c.refused('SubmitQuery', { ...request, sql: 'select 43 as n' }, /q/);
  }],
  ['SubmitQueryRequest: physical_plan_json', async (c) => {
    await c.refused('SubmitQuery', { physical_plan_json: Buffer.from('{}') }, /physical_plan_json: .*stages/);
    await c.call('SubmitQuery', { query_id: 'p', physical_plan_json: json(ONE) });
    assert.equal((await c.ended('p')).state, 'QUERY_STATE_SUCCEEDED');
  }],
  ['SubmitQueryRequest: priority priority_set', async (c) => {
    await c.refused('SubmitQuery', { sql: 'select 1', priority: 4, priority_set: true }, /^priority: must be at most 3/);
    await c.call('SubmitQuery', { sql: 'select 1', priority: 4, priority_set: false }); // then it is not looked at
  }],
  ['SubmitQueryRequest: idempotency_key', async (c) => {
    const request = { sql: 'select 7', idempotency_key: 'once' };
    const { query_id } = await c.call('SubmitQuery', request);
    assert.deepEqual(await c.call('SubmitQuery', request).then((again) => [again.query_id, again.existed]), [query_id, true]);
  }],
  ['SubmitQueryRequest: params_json', async (c) => {
    const of = async (id, params_json) => {
      await c.call('SubmitQuery', { query_id: id, sql: 'select $a + 1 as n', params_json });
      await c.ended(id);
      return rowsOf(c, id);
    };
    assert.notDeepEqual(await of('with1', '{"a":1}'), await of('with2', '{"a":2}'));
    await c.refused('SubmitQuery', { sql: 'select 1', params_json: '5' }, /params/);
  }],
  ['SubmitQueryRequest: explain', async (c) => {
    await c.call('SubmitQuery', { query_id: 'explained', sql: 'select 42 as n', explain: true });
    await c.ended('explained');
    assert.ok((await rowsOf(c, 'explained')).includes('explain'));
    assert.ok(!(await rowsOf(c, 'q')).includes('explain'));
  }],
  ['SubmitQueryRequest: options_json', async (c) => {
    await c.refused('SubmitQuery', { sql: 'select 1', options_json: '{"partitons":2}' }, /partitons/);
  }],
  ['SubmitTasksRequest: job_id tree_json idempotency_key', async (c) => {
    const failing = command('a', 'exit 3', { retry: { max_attempts: 1 } });
    const request = { job_id: 't', tree_json: tree(failing, command('b', 'echo 1'), sleep('c', 1, { depends_on: ['a'] })) };
    assert.equal((await c.call('SubmitTasks', request)).job_id, 't');
    assert.equal((await c.call('SubmitTasks', request)).existed, true);
    await c.refused('SubmitTasks', { job_id: 't', tree_json: tree(sleep('other', 1)) }, /t/);
    assert.equal((await c.ended('t')).state, 'QUERY_STATE_FAILED');
    const key = { tree_json: tree(sleep('a', 1)), idempotency_key: 'twice' };
    assert.equal((await c.call('SubmitTasks', key)).job_id, (await c.call('SubmitTasks', key)).job_id);
  }],
  ['GetQueryStatusRequest: query_id wait_ms', async (c) => {
    await c.refused('GetQueryStatus', { query_id: 'nobody' }, /there is no job 'nobody'/);
    await c.call('SubmitTasks', { job_id: 'napping', tree_json: tree(sleep('a', 3000)) });
    assert.notEqual((await c.call('GetQueryStatus', { query_id: 'napping' })).status.state, 'QUERY_STATE_SUCCEEDED');
    assert.equal((await c.ended('napping')).state, 'QUERY_STATE_SUCCEEDED');
  }],
  ['FetchQueryResultsRequest: query_id offset', async (c) => {
    await assert.rejects(rowsOf(c, 'nobody'), /there is no job 'nobody'/);
    const all = await rowsOf(c, 'q');
    assert.deepEqual(await rowsOf(c, 'q', 16), all.subarray(16));
  }],
  ['ListJobsRequest: state limit after name', async (c) => {
    const list = async (request) => (await c.call('ListJobs', request)).jobs.map(({ query_id }) => query_id);
    assert.deepEqual(await list({ state: 'failed' }), ['t']);
    await c.call('SubmitTasks', { job_id: 'named', tree_json: json({ name: 'name', tasks: [sleep('a', 1)] }) });
    await c.ended('named');
    assert.deepEqual(await list({ name: 'name' }), ['named']);
    const first = await c.call('ListJobs', { limit: 1 });
    assert.equal(first.jobs.length, 1);
    assert.notEqual((await list({ limit: 1, after: first.next }))[0], first.jobs[0].query_id);
  }],
  ['ListTasksRequest: query_id state limit after without_results', async (c) => {
    const list = (request) => c.call('ListTasks', { query_id: 't', ...request });
    assert.deepEqual(names(await list({ state: 'skipped' })), ['c']);
    const first = await list({ limit: 1 });
    assert.deepEqual(names(first), ['a']);
    assert.deepEqual(names(await list({ after: first.next })), ['b', 'c']);
    assert.ok((await list({})).tasks[1].result_json.length > 0);
    assert.equal((await list({ without_results: true })).tasks[1].result_json.length, 0);
    assert.deepEqual(names(await list({ query_id: 'napping' })), ['a']);
  }],
  ['RetryJobRequest: query_id from_task', async (c) => {
    await c.refused('RetryJob', { query_id: 'nobody' }, /there is no job 'nobody'/);
    await c.refused('RetryJob', { query_id: 't', from_task: 'nobody' }, /no task 'nobody'/);
    await c.call('RetryJob', { query_id: 't', from_task: 'b' });
    await c.ended('t');
    const { tasks } = await c.call('ListTasks', { query_id: 't' });
    assert.deepEqual(tasks.map(({ ref }) => ref.attempt), [2, 2, 0]);
  }],
  ['WhyPendingRequest: query_id', async (c) => {
    await c.refused('WhyPending', { query_id: 'nobody' }, /there is no job 'nobody'/);
    await c.call('SubmitTasks', { job_id: 'stuck', tree_json: tree({ name: 'a', executor: 'nobody', inputs: {} }, sleep('b', 1, { depends_on: ['a'] })) });
    const { reasons } = await c.call('WhyPending', { query_id: 'stuck' });
    assert.match(reasons[0].reason, /executor 'nobody'/);
    await until('it is called stuck', async () => (await c.call('GetOverview')).stuck_tasks === 1);
  }],
  ['CancelQueryRequest: query_id reason', async (c) => {
    await c.refused('CancelQuery', { query_id: 'nobody' }, /there is no job 'nobody'/);
    await c.call('CancelQuery', { query_id: 'stuck', reason: 'for no reason' });
    assert.equal((await c.ended('stuck')).message, 'for no reason');
    assert.ok((await c.call('GetOverview')).jobs_canceled >= 1);
  }],
  ['WatchEventsRequest: query_id after_seq follow last', async (c) => {
    const watch = (request) => c.all('WatchEvents', request);
    const all = await watch({ query_id: 't' });
    assert.ok(all.every(({ ref }) => ref.query_id === 't'));
    assert.deepEqual(await watch({ query_id: 't', after_seq: all[2].seq }), all.slice(3));
    assert.equal((await watch({ last: 2 })).length, 2);
    // One that follows gets what comes later; one that does not has ended by then.
    const following = c.all('WatchEvents', { follow: true, last: 1 }, ({ ref }) => ref?.query_id === 'late');
    await c.call('SubmitTasks', { job_id: 'late', tree_json: tree(sleep('a', 1)) });
    assert.equal((await following).at(-1).ref.query_id, 'late');
  }],
  ['WatchEventsRequest: rows feed position', async (c) => {
    const { feed, position } = (await c.exact.all('GetSnapshot')).at(-1);
    const next = String(BigInt(position) + 1n);
    const watch = (request, isEnough) => c.exact.all('WatchEvents', { rows: true, follow: true, feed, position, ...request }, isEnough);
    const following = watch({}, ({ details }) => details.includes('followed'));
    const far = { placement: { requires_capabilities: { zone: 'none' } } };
    const tasks = Array.from({ length: 3000 }, (_, i) => sleep(`t${i}`.padEnd(90, '-'), 1, far)); // more than fits into a message
    await c.call('SubmitTasks', { job_id: 'followed', tree_json: tree(...tasks) });
    await following;
    await watch({}, ({ more }) => more);
    assert.equal((await watch({}, () => true))[0].position, next);
    assert.notEqual((await watch({ position: next }, () => true))[0].position, next);
    assert.equal((await watch({ feed: '1' }, () => true))[0].resync, true);
    assert.equal((await c.exact.all('WatchEvents', { follow: true, last: 1 }, () => true))[0].position, '0'); // without rows
    await c.call('CancelQuery', { query_id: 'followed' });
  }],
  ['ListNodesRequest: executor capability operator', async (c) => {
    const list = async (request) => (await c.call('ListNodes', request)).nodes.map(({ worker_id }) => worker_id);
    assert.deepEqual(await list({ executor: 'sleep' }), ['w1']);
    for (const request of [{ executor: 'none' }, { capability: 'zone=none' }, { operator: 'none' }]) assert.deepEqual(await list(request), []);
    assert.deepEqual(await list({ capability: 'zone=here' }), ['w1']);
  }],
  ['SetNodeRequest: worker_id set_draining draining clear_blacklist', async (c) => {
    const set = async (request) => (await c.call('SetNode', { worker_id: 'w1', ...request })).node;
    await c.refused('SetNode', { worker_id: 'nobody', set_draining: true }, /there is no worker 'nobody'/);
    await c.refused('SetNode', { worker_id: 'w1', draining: true }, /one of them must be set/);
    assert.equal((await set({ set_draining: true, draining: true })).draining, true);
    assert.equal((await set({ clear_blacklist: true })).draining, true);
    assert.equal((await set({ set_draining: true })).draining, false);
    const bad = tree(command('bad', 'exit 1', { retry: { max_attempts: 1 } }));
    await until('it is blacklisted', async () => {
      await c.ended((await c.call('SubmitTasks', { tree_json: bad })).job_id);
      return (await c.call('ListNodes')).nodes[0].blacklisted;
    });
    assert.equal((await set({ set_draining: true })).blacklisted, true);
    assert.equal((await set({ clear_blacklist: true })).blacklisted, false);
  }],
  [['PutTableRequest: table', 'Table: name source format', 'DeleteTableRequest: name'], async (c) => {
    const table = { name: 't', source: '/nowhere/*.csv', format: 'csv' };
    await c.call('PutTable', { table });
    assert.deepEqual((await c.call('ListTables')).tables, [table]);
    await c.refused('PutTable', { table: { ...table, format: 'exe' } }, /^table\.format: /);
    await c.refused('DeleteTable', { name: 'nobody' }, /there is no table 'nobody'/);
    await c.call('DeleteTable', { name: 't' });
    assert.deepEqual((await c.call('ListTables')).tables, []);
  }],
];

scenario('proto: every field that clients send is read', { ms: 120000 }, async (world) => {
  const cluster = await world.cluster({ settings: { stuck_task_warn_ms: 1000 } });
  await cluster.startWorker({ id: 'w1', args: ['--capability', 'zone=here'] });
  const calls = new Calls(cluster.client);
  const exact = exactly(cluster.address);
  world.atEnd(() => exact.close());
  calls.exact = new Calls(exact);
  await runTable(CLIENTS, calls);
  await calls.call('GetLeader');
  await calls.exact.all('GetSnapshot');
  const observer = world.capstan('observer', ['coordinator', '--role', 'observer', '--follow', cluster.address, '--listen', '127.0.0.1:0']);
  const [, address] = await observer.line(/serving on (\S+?),/);
  const looking = new Calls(world.client(address));
  await until('it is behind by some time', async () => (await looking.call('GetLeader').catch(() => ({}))).staleness_ms > 0);
});

// ---- what workers send ----

// A worker whose every message is written by hand.
class Hand extends Calls {
  constructor(connection, worker_id = 'hand', incarnation = `${worker_id}-1`) {
    super(connection, { worker_id, incarnation });
  }

  register(more) {
    const capabilities_json = '{"engine":"hand","zone":"here"}';
    return this.call('RegisterWorker', { slots: 8, executor_types: ['hand', 'sql'], capabilities_json, ...more });
  }

  beat(more) {
    return this.call('Heartbeat', { at_ms: Date.now(), ...more });
  }

  // The next tasks; at least one.
  async take(capacity = 1, more = {}) {
    const { tasks } = await this.call('GetTask', { capacity, wait_ms: 10000, ...more });
    assert.ok(tasks.length > 0, 'there is no task');
    return tasks;
  }

  async report(ref, more = {}) {
    const { outcomes } = await this.call('ReportTaskStatus', { reports: [{ ref, state: 'TASK_STATE_SUCCEEDED', ...more }] });
    return outcomes[0];
  }

  async submit(job_id, ...tasks) {
    await this.connection.once('SubmitTasks', { job_id, tree_json: tree(...tasks) });
  }

  async task(query_id, at = 0) {
    return (await this.call('ListTasks', { query_id })).tasks[at];
  }

  async node() {
    return (await this.call('ListNodes')).nodes.find(({ worker_id }) => worker_id === this.identity.worker_id);
  }
}

const hand = (name, more = {}) => ({ name, executor: 'hand', inputs: { a: 1 }, ...more });
const refOf = ({ query_id, stage_id, task_id, attempt, lease_token }) => ({ query_id, stage_id, task_id, attempt, lease_token });
const partitions = [0, 1].map((reduce_partition) => ({ reduce_partition, bytes: 80, rows: 4 + reduce_partition, batches: 1, checksum: 7 }));

// Two map tasks, whose partitions two others read.
const SHUFFLED = {
  stages: [
    { id: 0, sql: 'select 1 as k', splits: [{ file: '/a' }, { file: '/b' }], output: { exchange: 'hash', keys: ['k'], partitions: 2 } },
    { id: 1, inputs: { m: 0 }, sql: 'select k from m', output: { exchange: 'result' } },
  ],
};

const WORKERS = [
  ['RegisterWorkerRequest: worker_id address slots executor_types capabilities_json custom_operator_capabilities version', async (w) => {
    const told = { address: '127.0.0.1:9', slots: 3, executor_types: ['hand', 'x'], custom_operator_capabilities: ['op'], version: 'by hand' };
    await w.register({ ...told, capabilities_json: '{"zone":"far"}' });
    const node = await w.node();
    assert.deepEqual(Object.fromEntries(Object.keys(told).map((key) => [key, node[key]])), told);
    assert.deepEqual(JSON.parse(node.capabilities_json), { zone: 'far' });
    await w.register();
    assert.equal((await w.node()).slots, 8);
  }],
  [['GetTaskRequest: worker_id capacity wait_ms', 'ReportTaskStatusRequest: worker_id reports', 'TaskReport: ref state result_json'], async (w) => {
    await w.submit('two', hand('a', { timeout_ms: 5000, exclusive: true }), hand('b'), hand('c', { depends_on: ['a'] }));
    assert.equal((await w.call('GetTask', { capacity: 0, wait_ms: 0 })).tasks.length, 0);
    const [first] = await w.take(1);
    const [second] = await w.take(5);
    assert.deepEqual([first.name, second.name], ['a', 'b']);
    assert.equal((await w.call('GetTask', { capacity: 5, wait_ms: 0 })).tasks.length, 0);
    assert.ok((await w.call('GetTask', { capacity: 5, wait_ms: 50 })).waited_ms >= 50);
    await w.refused('GetTask', { worker_id: 'nobody', capacity: 1 }, /worker/);
    await w.refused('ReportTaskStatus', { worker_id: 'a b' }, /^worker_id: /);
    assert.equal((await w.report(refOf(second), { state: 'TASK_STATE_RUNNING' })).accepted, true);
    assert.equal((await w.report(refOf(first), { result_json: json({ found: 1 }) })).accepted, true);
    assert.deepEqual(JSON.parse((await w.task('two')).result_json), { found: 1 });
    assert.equal((await w.report(refOf(second), { state: 'TASK_STATE_QUEUED' })).accepted, true); // given back
    for (const task of await w.take(5)) await w.report(refOf(task));
    await until('both others', async () => {
      const { tasks } = await w.call('GetTask', { capacity: 5, wait_ms: 100 });
      for (const task of tasks) await w.report(refOf(task));
      return (await w.call('GetQueryStatus', { query_id: 'two' })).status.state === 'QUERY_STATE_SUCCEEDED';
    });
  }],
  ['AttemptRef: query_id stage_id task_id attempt lease_token', async (w) => {
    await w.submit('other', hand('z'));
    await w.submit('named', hand('a'));
    const tasks = await w.take(2);
    const more = tasks.length < 2 ? await w.take(1) : [];
    const [other, own] = [...tasks, ...more].sort((a, b) => (a.query_id < b.query_id ? 1 : -1)).map(refOf);
    const changed = { query_id: 'other', stage_id: 1, task_id: 1, attempt: 2, lease_token: Buffer.alloc(16, 9) };
    for (const [name, value] of Object.entries(changed)) {
      const outcome = await w.report({ ...own, [name]: value });
      assert.equal(outcome.accepted, false, name);
      assert.notEqual(outcome.reason, '', name);
    }
    for (const ref of [own, other]) assert.equal((await w.report(ref)).accepted, true);
  }],
  ['TaskReport: message not_retryable', async (w) => {
    for (const not_retryable of [false, true]) {
      const id = `failing-${not_retryable}`;
      await w.submit(id, hand('a', { retry: { max_attempts: 5, backoff_ms: 30000 } }));
      const [task] = await w.take();
      await w.report(refOf(task), { state: 'TASK_STATE_FAILED', message: 'by hand', not_retryable });
      assert.equal((await w.task(id)).state, not_retryable ? 'TASK_STATE_FAILED' : 'TASK_STATE_QUEUED');
      assert.match((await w.task(id)).message, /by hand/);
    }
    await w.call('CancelQuery', { query_id: 'failing-false' });
    await w.call('SetNode', { worker_id: 'hand', clear_blacklist: true });
  }],
  [['HeartbeatRequest: worker_id custom_operator_capabilities running load progress', 'AttemptProgress: ref fraction rows bytes'], async (w) => {
    assert.equal((await w.beat({ worker_id: 'nobody' })).accepted, false);
    await w.beat({ custom_operator_capabilities: ['later'] });
    assert.deepEqual((await w.node()).custom_operator_capabilities, ['later']);
    await w.refused('Heartbeat', { load: -1 }, /^load: /);
    await w.submit('going', hand('a'));
    const ref = refOf((await w.take())[0]);
    await w.beat({ running: [ref], load: 0.5, progress: [{ ref, fraction: 0.25, rows: 11, bytes: 12 }] });
    const { stages } = (await w.call('GetQueryStatus', { query_id: 'going' })).status;
    assert.deepEqual([stages[0].fraction, stages[0].rows, stages[0].bytes, stages[0].running], [0.25, 11, 12, 1]);
    assert.equal((await w.node()).running_tasks, 1);
    await w.call('GetOverview');
    // What it names and has not got is to be ended.
    const unknown = { ...ref, attempt: 9 };
    assert.deepEqual((await w.beat({ running: [ref, unknown] })).stop.map(({ attempt }) => attempt), [9]);
    const poll = w.call('GetTask', { capacity: 0, wait_ms: 10000 });
    await w.call('CancelQuery', { query_id: 'going' });
    const stopped = [...(await poll).stop, ...(await w.beat({ running: [ref] })).stop];
    assert.ok(stopped.some(({ query_id }) => query_id === 'going'));
  }],
  [[
    'GetTaskRequest: known_fragments',
    'RegisterMapOutputRequest: query_id stage_id map_task attempt partitions lease_token worker_id',
    'MapOutputPartition: reduce_partition bytes rows batches checksum',
    'TaskReport: map_output fetch_failed rows bytes',
    'HeartbeatRequest: held_jobs leaving',
  ], async (w) => {
    await w.call('SubmitQuery', { query_id: 'shuffled', physical_plan_json: json(SHUFFLED) });
    const [first] = await w.take(1);
    assert.ok(first.plan_fragment_json.length > 0);
    const [second] = await w.take(1, { known_fragments: [first.fragment] });
    assert.equal(second.plan_fragment_json.length, 0);
    const { query_id, stage_id, task_id, attempt, lease_token } = first;
    const output = { query_id, stage_id, map_task: task_id, attempt, lease_token, partitions };
    for (const [name, value] of Object.entries({ query_id: 'other', stage_id: 7, map_task: 7, attempt: 7, lease_token: Buffer.alloc(16, 9), worker_id: 'nobody' })) {
      const { accepted, reason } = await w.call('RegisterMapOutput', { ...output, [name]: value });
      assert.ok(!accepted && reason !== '', name);
    }
    await w.refused('RegisterMapOutput', { ...output, partitions: [partitions[0], partitions[0]] }, /^partitions/);
    assert.equal((await w.call('RegisterMapOutput', output)).accepted, true);
    assert.equal((await w.report(refOf(first), { rows: 9, bytes: 160 })).accepted, true);
    assert.equal((await w.report(refOf(second), { map_output: partitions, rows: 9, bytes: 160 })).accepted, true);
    const readers = await w.take(1);
    if (readers.length < 2) readers.push(...(await w.take(1)));
    // Who reads is told what was registered for him.
    for (const { stage_id: stage, task_id: own, sources } of readers) {
      const sizes = sources.flatMap((source) => source.partitions);
      assert.deepEqual([stage, sizes], [1, [partitions[own], partitions[own]]]);
    }
    const [reader] = readers;
    const done = (await w.call('GetQueryStatus', { query_id: 'shuffled' })).status.stages[0];
    assert.deepEqual([done.rows, done.bytes], [18, 320]);
    assert.equal((await w.task('shuffled', 1)).ref.task_id, 1);
    assert.deepEqual([(await w.task('shuffled')).rows, (await w.task('shuffled')).bytes], [9, 160]);
    // One that cannot be read is made again.
    const lost = reader.sources[1].ref;
    await w.report(refOf(reader), { state: 'TASK_STATE_FAILED', message: 'cannot fetch', fetch_failed: [lost] });
    const again = (await w.take(1)).find((task) => task.stage_id === 0);
    assert.deepEqual([again.task_id, again.attempt], [lost.task_id, 2]);
    await w.report(refOf(again), { map_output: partitions, rows: 9, bytes: 160 });
    const answer = await w.beat({ held_jobs: ['shuffled', 'two'], leaving: true });
    assert.deepEqual(answer.ended_jobs, ['two']);
    assert.deepEqual(answer.failed_jobs, []);
    assert.ok(answer.outputs_needed > 0);
    assert.equal((await w.beat({ held_jobs: ['shuffled'] })).outputs_needed, 0); // nobody asks
  }],
  [['RegisterQueryResultsRequest: ref ipc_payload bytes rows worker_id', 'TaskReport: query_results', 'TaskRows: ipc_payload bytes rows'], async (w) => {
    await w.call('CancelQuery', { query_id: 'shuffled' });
    const { ended_jobs, failed_jobs } = await w.beat({ held_jobs: ['shuffled', 'two'] });
    assert.deepEqual([ended_jobs, failed_jobs], [['shuffled', 'two'], ['shuffled']]);
    const physical_plan_json = json({ stages: [{ ...ONE.stages[0], splits: [{ file: '/a' }, { file: '/b' }] }] });
    await w.call('SubmitQuery', { query_id: 'rows', physical_plan_json });
    const [first] = await w.take(1);
    const [second] = await w.take(1);
    const rows = { ref: refOf(first), ipc_payload: Buffer.from('four'), bytes: 4, rows: 3 };
    await w.refused('RegisterQueryResults', { ...rows, bytes: 5 }, /^bytes: is 5, but ipc_payload has 4/);
    for (const change of [{ worker_id: 'nobody' }, { ref: { ...rows.ref, attempt: 7 } }]) {
      const { accepted, reason } = await w.call('RegisterQueryResults', { ...rows, ...change });
      assert.ok(!accepted && reason !== '');
    }
    assert.equal((await w.call('RegisterQueryResults', rows)).accepted, true);
    assert.equal((await w.report(refOf(first))).accepted, true);
    const wrong = { ref: refOf(second), state: 'TASK_STATE_SUCCEEDED', query_results: { ipc_payload: Buffer.from('four'), bytes: 5 } };
    await w.refused('ReportTaskStatus', { reports: [wrong] }, /query_results\.bytes: is 5/);
    assert.equal((await w.report(refOf(second), { query_results: { ipc_payload: Buffer.from('fives'), bytes: 5, rows: 4 } })).accepted, true);
    const { stages, state } = (await w.call('GetQueryStatus', { query_id: 'rows' })).status;
    assert.deepEqual([state, stages[0].rows, stages[0].bytes], ['QUERY_STATE_SUCCEEDED', 7, 9]);
  }],
  ['TaskReport: plan_json table', async (w) => {
    const plans = async (query_id) => {
      await w.call('SubmitQuery', { query_id, sql: 'create table made as select 1 as n' });
      return refOf((await w.take())[0]);
    };
    await w.report(await plans('misplanned'), { plan_json: Buffer.from('{') });
    const failed = await w.ended('misplanned');
    assert.deepEqual([failed.state, /JSON/.test(failed.message)], ['QUERY_STATE_FAILED', true], failed.message);
    const planner = await plans('planned');
    const table = { name: 'made', source: '/made/*.parquet', format: 'parquet' };
    await w.report(planner, { plan_json: json({ ...ONE, first_job_stage: 1 }) });
    const [added] = await w.take();
    assert.equal(added.stage_id, 1);
    await w.report(refOf(added), { query_results: { ipc_payload: Buffer.from('x'), bytes: 1, rows: 1 }, table });
    assert.equal((await w.ended('planned')).state, 'QUERY_STATE_SUCCEEDED');
    assert.deepEqual((await w.call('ListTables')).tables, [table]);
  }],
  [[
    ...['RegisterWorkerRequest: incarnation', 'HeartbeatRequest: incarnation', 'GetTaskRequest: incarnation'],
    ...['ReportTaskStatusRequest: incarnation', 'DeregisterWorkerRequest: worker_id incarnation'],
  ], async (w) => {
    await w.call('SetNode', { worker_id: 'hand', set_draining: true, draining: true });
    assert.equal((await w.beat()).drain, true);
    const later = new Hand(w.connection, 'hand', 'hand-2');
    await later.register();
    const refusal = await w.beat();
    assert.equal(refusal.accepted, false);
    assert.match(refusal.reason, /superseded/);
    await w.refused('GetTask', { capacity: 1 }, /superseded|incarnation|newer/);
    await w.refused('ReportTaskStatus', { incarnation: '' }, /^incarnation: /);
    await w.call('DeregisterWorker').catch(() => {}); // of the one before: it is not that one any more
    assert.notEqual((await w.node()).status, 'dead');
    await w.refused('DeregisterWorker', { worker_id: '' }, /^worker_id: /);
    await later.call('DeregisterWorker');
    assert.ok(['dead', undefined].includes((await w.node())?.status));
  }],
];

scenario('proto: every field that workers send is read', { ms: 120000 }, async (world) => {
  const patient = { worker_liveness_timeout_ms: 60000, lease_ms: 60000, node_stale_ms: 60000, node_dead_ms: 120000 };
  const cluster = await world.cluster({ settings: { ...patient, retry_backoff_base_ms: 20, shuffle_memory_bytes: 100000000 } });
  await runTable(WORKERS, new Hand(cluster.client));
});

scenario('proto: workers that are not heard of are counted', async (world) => {
  const settings = { heartbeat_interval_ms: 200, lease_ms: 2000, worker_liveness_timeout_ms: 2000, node_stale_ms: 2000, node_dead_ms: 6000 };
  const cluster = await world.cluster({ settings });
  const silent = new Hand(cluster.client, 'silent');
  await silent.register();
  await silent.submit('lost', hand('a'));
  await silent.take();
  const wanted = new Set(['attempts_lost', 'nodes_stale', 'nodes_dead']);
  await until('all of them were counted', async () => {
    const overview = await silent.call('GetOverview');
    for (const name of wanted) if (overview[name] === 1) wanted.delete(name);
    return wanted.size === 0;
  });
});

// ---- what workers are asked by others ----

const SHUFFLE = [
  ['FetchShufflePartitionRequest: query_id stage_id map_task attempt reduce_partition offset', async ({ from, request }) => {
    const fetch = async (more) => Buffer.concat((await from.all('FetchShufflePartition', { ...request, ...more })).map(({ payload }) => payload));
    const all = await fetch();
    assert.ok(all.length > 64);
    assert.deepEqual(await fetch({ offset: 64 }), all.subarray(64));
    assert.notDeepEqual(await fetch({ reduce_partition: 1 }), all);
    for (const change of [{ query_id: 'nobody' }, { stage_id: 7 }, { map_task: 7 }, { attempt: 7 }, { reduce_partition: 7 }]) {
      await assert.rejects(fetch(change), JSON.stringify(change));
    }
  }],
];

scenario('proto: every field that workers send each other is read', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const calls = new Calls(cluster.client);
  // The second stage needs an operator that nobody has, so the output of the first is kept.
  const file = world.file('rows.csv', 'k\n1\n2\n3\n4\n5\n6\n7\n8\n');
  const [map, reduce] = SHUFFLED.stages;
  const stages = [{ ...map, sql: 'select k from read_csv({{split}})', splits: [{ file }] }, { ...reduce, custom: { op: 'nobody', config: {} } }];
  await calls.call('SubmitQuery', { query_id: 'kept', physical_plan_json: json({ stages }) });
  await until('the first stage is done', async () => (await calls.call('GetQueryStatus', { query_id: 'kept' })).status.stages[0].succeeded === 1);
  const connection = new Connection([(await calls.call('ListNodes')).nodes[0].address]);
  world.atEnd(() => connection.close());
  await runTable(SHUFFLE, { from: new Calls(connection), request: { query_id: 'kept', stage_id: 0, map_task: 0, attempt: 1, reduce_partition: 0 } });
  const held = new Hand(cluster.client, 'w2');
  const { capabilities_json } = (await calls.call('ListNodes')).nodes[0]; // of the other one: they share an engine
  await held.register({ custom_operator_capabilities: ['nobody'], capabilities_json });
  assert.deepEqual((await held.take())[0].required_custom_ops, ['nobody']);
});

// ---- all of it ----

// Fields of requests that are there for people who look at what is sent, and for releases to come.
const UNREAD = ['HeartbeatRequest.at_ms', 'HeartbeatRequest.running_tasks'];

scenario('proto: no field of a request and of an answer is left out by the tests above', async () => {
  const requests = fieldsOf([...methods.keys()].map(requestOf));
  assert.deepEqual(requests.filter((name) => !read.has(name) && !UNREAD.includes(name)), []);
  assert.deepEqual(UNREAD.filter((name) => read.has(name)), []);
  const answers = fieldsOf([...methods.keys()].map(responseOf));
  assert.deepEqual(answers.filter((name) => !seen.has(name)), []);
});
