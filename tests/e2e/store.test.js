// `capstan store`: the schema's version, and the move from one machine to PostgreSQL.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { assert, command, freshDatabase, root, scenario, sleep } from './harness.js';

const json = ({ code, stdout, stderr }) => {
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
};

// How many rows each table has, as the engine's own client counts them.
const tables = [
  'jobs',
  'stages',
  'tasks',
  'task_leases',
  'map_outputs',
  'results',
  'payloads',
  'distributed_nodes',
  'execution_idempotency',
  'task_events',
  'data_sets',
  'inbox',
];
const counts = (store) => {
  const isFile = store.startsWith('sqlite:');
  const queries = tables.map((table) => `select '${table}', count(*) from ${isFile ? '' : 'capstan.'}${table};`);
  const [file, args] = isFile
    ? ['sqlite3', ['-batch', '-list', store.slice('sqlite:'.length)]]
    : ['psql', ['-qAt', '-v', 'ON_ERROR_STOP=1', store]];
  const lines = execFileSync(file, args, { input: queries.join('\n'), encoding: 'utf8' }).trim().split('\n');
  return Object.fromEntries(lines.map((line) => line.split('|')).map(([table, n]) => [table, Number(n)]));
};

scenario('a copied store goes on where the old one ended, with all of its history', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const ended = await cluster.run([
    command('a', `echo '{"n": 41}'`),
    command('b', 'cat', { depends_on: ['a'], inputs: { stdin: 'n is ${results.a.json.n}' } }),
  ]);
  assert.equal(ended.state, 'succeeded');
  await cluster.json('table', 'add', 'trips', '/data/*.parquet');
  const waiting = await cluster.submit([command('c', 'true', { placement: { allowed_nodes: ['w9'] } })]);
  const events = (await cluster.events(ended.id)).length;

  const target = freshDatabase();
  const copy = ['store', 'copy', '--store', cluster.store, '--to', target];
  const refused = await world.cli(copy, { cwd: cluster.dir });
  assert.notEqual(refused.code, 0, 'a coordinator uses the store');
  await cluster.coordinator.signal('SIGTERM').ended;
  const report = json(await world.cli([...copy, '--json'], { cwd: cluster.dir }));
  const expected = counts(cluster.store);
  assert.deepEqual(
    { ...expected, payloads: undefined, task_events: undefined },
    {
      jobs: 2,
      stages: 3, // one per task
      tasks: 3,
      task_leases: 0, // nothing runs
      map_outputs: 0,
      results: 0, // only queries have some
      payloads: undefined,
      distributed_nodes: 1,
      execution_idempotency: 2, // c was never tried
      task_events: undefined,
      data_sets: 1,
      inbox: 0,
    },
  );
  assert.ok(expected.payloads >= 5, 'three inputs, two results');
  assert.ok(expected.task_events > events, 'those of one job, and others');
  assert.deepEqual(counts(target), expected, 'every table has as many rows');
  for (const [table, n] of Object.entries(report.tables)) assert.equal(n, expected[table], `${table} in the report`);
  assert.deepEqual(Object.keys(report.tables).sort(), [...tables].sort(), 'and none is left out');
  const again = await world.cli(copy, { cwd: cluster.dir });
  assert.notEqual(again.code, 0, 'the target is not empty any more');

  await cluster.startCoordinator({ store: target });
  assert.equal((await cluster.end(ended.id)).state, 'succeeded');
  assert.deepEqual((await cluster.tasks(ended.id)).b.result.stdout, 'n is 41');
  assert.equal((await cluster.events(ended.id)).length, events);
  assert.deepEqual(
    (await cluster.json('table', 'list')).tables.map(({ name }) => name),
    ['trips'],
  );
  await cluster.startWorker({ id: 'w9' });
  assert.equal((await cluster.end(waiting)).state, 'succeeded', 'what was queued runs');
});

scenario('the schema goes up and down and up again, and says where it is', async (world) => {
  for (const store of [`sqlite:${world.folder()}/state.db`, freshDatabase()]) {
    const run = (...args) => world.cli(['store', ...args, '--store', store, '--json']);
    const version = async () => json(await run('status')).schema;
    const { version: newest } = json(await run('migrate'));
    assert.ok(Number.isInteger(newest) && newest >= 1, `${newest}`);
    assert.deepEqual(await version(), { version: newest, newest, state: 'current' });
    assert.deepEqual(json(await run('rollback', '--to', '0')), { before: newest, version: 0 });
    assert.deepEqual(await version(), { version: 0, newest, state: 'empty' });
    assert.deepEqual(json(await run('migrate')), { before: 0, version: newest });
    assert.deepEqual(json(await run('migrate')), { before: newest, version: newest }, 'nothing to do');
    assert.deepEqual(await version(), { version: newest, newest, state: 'current' });
    assert.ok(Object.values(counts(store)).every((n) => n === 0), 'every table is there, and empty');
  }
});

scenario('the schema cannot be taken away from a coordinator that leads', async (world) => {
  const cluster = await world.cluster({ store: 'postgres', workers: 1 });
  const { code, stderr } = await world.cli(['store', 'rollback', '--to', '0', '--store', cluster.store]);
  assert.notEqual(code, 0);
  assert.match(stderr, /leads|coordinator/);
  assert.equal((await cluster.run([sleep('a', 1)])).state, 'succeeded');
});

scenario('a store that is none is told with a hint', async (world) => {
  for (const store of ['mysql://x', 'sqlite:/nonexistent/folder/state.db', 'postgres://nobody@127.0.0.1:1/x']) {
    const { code, stderr } = await world.cli(['store', 'status', '--store', store]);
    assert.ok(code === 2 || code === 3, `${store}: ${code}`);
    assert.match(stderr, /^capstan: /);
  }
});

scenario('a coordinator waits for a database that is not there yet, and leads when it is', async (world) => {
  const script = path.join(root, 'tests/integration/postgres/server.sh');
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cap-pg-')); // short, for the socket, and open to its user
  fs.chmodSync(dir, 0o755);
  const store = `postgres://postgres@/postgres?host=${dir}&port=5432`;
  const args = ['coordinator', '--store', store, '--listen', '127.0.0.1:0'];
  try {
    const { code, stderr } = await world.cli([...args, '--store-wait', '300ms']);
    assert.equal(code, 3, 'the time is up');
    assert.match(stderr, /waiting for it/);
    assert.match(stderr, /hint: .*--store-wait/);

    const coordinator = world.capstan('coordinator', [...args, '--store-wait', '5m']);
    await coordinator.line(/cannot be reached, waiting for it/);
    assert.doesNotMatch(coordinator.log, /serving on|leads/, 'nobody is served meanwhile');
    execFileSync(script, ['start', dir, '--fsync=off'], { stdio: 'ignore' });
    await coordinator.line(/this coordinator leads/);
    const address = (await coordinator.line(/serving on (\S+),/))[1];
    const id = await world.client(address).submit({ tasks: [sleep('a', 1)] });
    assert.ok(id);
    assert.equal((await coordinator.stop()).code, 0);
  } finally {
    execFileSync(script, ['remove', dir], { stdio: 'ignore' });
  }
});

scenario('a coordinator that waits for its database can be stopped', async (world) => {
  const dir = world.folder();
  const coordinator = world.capstan('coordinator', [
    'coordinator',
    '--store',
    `postgres://postgres@/postgres?host=${dir}&port=5432`,
    '--listen',
    '127.0.0.1:0',
  ]);
  await coordinator.line(/waiting for it/);
  const begun = Date.now();
  await coordinator.stop();
  assert.ok(Date.now() - begun < 10000, 'not only when the time is up');
});
