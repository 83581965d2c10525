// What a later release may meet: clients and workers of the first one, messages with fields and calls that nobody here
// knows, and a database with a schema of later. The builds of earlier releases are tried by ./dev soak upgrade.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { Client } from '../upgrade/first/client.js';
import { Worker } from '../upgrade/first/worker.js';
import { callUnknown, contractOf, Future } from '../upgrade/future.js';
import { assert, freshDatabase, grpcStatus, root, scenario, sleep, until } from './harness.js';

const frozen = path.join(root, 'tests/upgrade');

// All fields, enum values and methods of a .proto: { what: how it is declared }.
function partsOf(file) {
  const { services, messages, enums } = contractOf(file);
  const parts = {};
  for (const [service, methods] of Object.entries(services)) {
    for (const [name, { requestType, responseType, requestStream, responseStream }] of Object.entries(methods)) {
      const types = [requestType.type.name, requestStream, responseType.type.name, responseStream];
      parts[`${service}/${name}`] = types.join(' ');
    }
  }
  for (const [message, { field }] of Object.entries(messages)) {
    for (const { number, ...it } of field)
      parts[`${message}.${number}`] = `${it.label} ${it.type} ${it.typeName} ${it.name}`;
  }
  for (const [name, { value }] of Object.entries(enums)) {
    for (const { number, name: meaning } of value) parts[`${name}.${number}`] = meaning;
  }
  return parts;
}

// The names of all that today's build is tried with: each has its contract frozen here.
const releases = fs
  .readFileSync(`${frozen}/releases.txt`, 'utf8')
  .split('\n')
  .filter((line) => /^[^#\s]/.test(line))
  .map((line) => line.split(/\s+/)[0]);

scenario('the contract of every earlier release is a part of that of today', async () => {
  const today = partsOf(path.join(root, 'proto/capstan.proto'));
  assert.ok(releases.length >= 2, releases.join());
  for (const release of releases) {
    const then = partsOf(`${frozen}/${release}/capstan.proto`);
    assert.ok(Object.keys(then).length > 150, `${release}: ${Object.keys(then).length} parts`);
    for (const [part, text] of Object.entries(then)) assert.equal(today[part], text, `${part} of ${release}`);
  }
});

scenario('steps of the schema that a release has carried have not changed', async () => {
  const lines = fs.readFileSync(`${frozen}/migrations.sha256`, 'utf8').split('\n');
  const sums = lines.filter((line) => /^[0-9a-f]{64} /.test(line)).map((line) => line.split(/ +/));
  assert.ok(sums.length >= 4);
  for (const [sum, file] of sums) {
    const bytes = fs.readFileSync(path.join(root, 'src/store/migrations', file));
    assert.equal(
      createHash('sha256').update(bytes).digest('hex'),
      sum,
      `${file}: a change of the schema is a new step`,
    );
  }
});

scenario('a client and a worker of the first release work with the coordinator of today', async (world) => {
  const cluster = await world.cluster({ settings: { blacklist_failure_threshold: 100 } });
  const worker = await new Worker({ servers: [cluster.address], id: 'first', slots: 2 }).start();
  world.atEnd(() => worker.drain());
  const client = new Client([cluster.address]);
  world.atEnd(() => client.close());
  const js = (name, code, more = {}) => ({ name, executor: 'js', inputs: { code }, ...more });

  const id = await client.submit({
    tasks: [js('a', 'return 20'), js('b', 'return 1 + inputs.results.a', { depends_on: ['a'] })],
  });
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  assert.deepEqual(await client.results(id), { a: 20, b: 21 });
  assert.deepEqual(
    (await client.tasks(id)).map(({ name, worker_id }) => [name, worker_id]),
    [
      ['a', 'first'],
      ['b', 'first'],
    ],
  );
  const events = [];
  for await (const { type, seq } of client.stream('WatchEvents', { query_id: id })) events.push([type, seq]);
  assert.deepEqual([events[0][0], events.at(-1)[0]], ['created', 'completed']);

  const flaky = 'if (inputs.results) return 1; throw new Error("no")';
  const failing = await client.submit({ tasks: [js('a', flaky, { retry: { max_attempts: 2, backoff_ms: 1 } })] });
  assert.equal((await client.end(failing)).state, 'QUERY_STATE_FAILED');
  assert.equal((await client.tasks(failing))[0].ref.attempt, 2);
  assert.match((await client.call('RetryJob', { query_id: failing })).state, /^QUERY_STATE_(QUEUED|RUNNING)$/);

  const long = await client.submit({ tasks: [sleep('a', 600000)] });
  await until('it runs', async () => (await client.tasks(long))[0].state === 'TASK_STATE_RUNNING');
  await client.cancel(long, 'enough');
  assert.equal((await client.end(long)).state, 'QUERY_STATE_CANCELED');
  await until('its slot is free', async () => (await client.call('ListNodes')).nodes[0].running_tasks === 0);

  // SQL asks for workers that can run it, so that one of the first release does not get any.
  await client.call('SubmitQuery', { query_id: 'sql', sql: 'select 42 as n' });
  const { reasons } = await client.call('WhyPending', { query_id: 'sql' });
  assert.match(reasons[0].reason, /^no live worker /);
  await cluster.startWorker({ id: 'today' });
  assert.equal((await client.end('sql')).state, 'QUERY_STATE_SUCCEEDED');
});

scenario('fields and calls of a later release are no trouble, on either side', async (world) => {
  const cluster = await world.cluster();
  const future = await Future.open(cluster.address);
  world.atEnd(() => future.close());
  await cluster.startWorker({ id: 'w1', join: future.address });
  const later = { server: future.address };
  const tree = world.file(
    'tree.json',
    JSON.stringify({ tasks: [sleep('a', 1), sleep('b', 1, { depends_on: ['a'] })] }),
  );
  const run = await cluster.cli(['run', tree, '--id', 'tree'], later);
  assert.equal(run.code, 0, run.stderr);
  const sql = await cluster.cli(['sql', 'select count(*) as n from range(1000)', '-o', 'csv'], later);
  assert.deepEqual([sql.code, sql.stdout], [0, 'n\n1000\n'], sql.stderr);
  for (const verb of [
    ['jobs'],
    ['job', 'tree'],
    ['tasks', 'tree'],
    ['events', 'tree'],
    ['results', 'tree'],
    ['nodes'],
    ['leader'],
  ]) {
    const { code, stderr } = await cluster.cli([...verb, '--json'], later);
    assert.equal(code, 0, `${verb}: ${stderr}`);
  }
  const observer = world.capstan('observer', [
    'coordinator',
    '--role',
    'observer',
    '--follow',
    future.address,
    '--listen',
    '127.0.0.1:0',
  ]);
  const [, address] = await observer.line(/serving on (\S+),/);
  await until(
    'the observer has its copy',
    async () => (await cluster.cli(['job', 'tree'], { server: address })).code === 0,
  );
  assert.ok(future.messages > 50, `${future.messages} messages`);

  for (const method of ['/capstan.v1.ControlPlane/MoveJob', '/capstan.v9.Later/Anything']) {
    assert.equal((await callUnknown(cluster.address, method)).code, grpcStatus.UNIMPLEMENTED, method);
  }
});

// Writes down that somebody has taken the schema to this version.
function pretend(store, version) {
  if (store.startsWith('sqlite:')) {
    const insert = `insert into schema_migrations (version, name, applied_at_ms) values (${version}, 'later', 0)`;
    execFileSync('sqlite3', [store.slice('sqlite:'.length), insert]);
  } else {
    execFileSync('psql', ['-q', store, '-c', `insert into capstan.schema_migrations values (${version}, 'later')`]);
  }
}

scenario('a schema of later is refused with what to do, and left alone', async (world) => {
  for (const store of [`sqlite:${world.folder()}/state.db`, freshDatabase()]) {
    const json = async (...args) => {
      const { code, stdout, stderr } = await world.cli(['store', ...args, '--store', store, '--json']);
      assert.equal(code, 0, stderr);
      return JSON.parse(stdout);
    };
    const { version } = await json('migrate');
    pretend(store, version + 1);
    const { code, stderr } = await world.cli(['coordinator', '--store', store, '--listen', '127.0.0.1:0']);
    assert.notEqual(code, 0);
    assert.match(stderr, new RegExp(`schema has version ${version + 1}, this program knows up to ${version}`));
    assert.match(stderr, /hint: use a newer program/);
    assert.doesNotMatch(stderr, /serving on/);
    assert.deepEqual((await json('status')).schema, {
      version: version + 1,
      newest: version,
      state: 'newer than this program',
    });
    for (const verb of ['migrate', 'rollback']) {
      const refused = await world.cli(['store', verb, '--store', store]);
      assert.notEqual(refused.code, 0, verb);
      assert.match(refused.stderr, new RegExp(`version ${version + 1}\\b`), verb);
    }
    assert.equal((await json('status')).schema.version, version + 1);
  }
});
