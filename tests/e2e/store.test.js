// `capstan store`: the schema's version, and the move from one machine to PostgreSQL.
import { assert, command, freshDatabase, scenario, sleep } from './harness.js';

const json = ({ code, stdout, stderr }) => {
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
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
  assert.ok(JSON.stringify(report).includes('jobs'), JSON.stringify(report));
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
    json(await run('migrate'));
    const newest = json(await run('status'));
    assert.ok(JSON.stringify(newest).includes('version') || newest.schema !== undefined, JSON.stringify(newest));
    assert.equal(JSON.stringify(newest).includes('password'), false);
    json(await run('rollback', '--to', '0'));
    json(await run('migrate'));
    assert.deepEqual(json(await run('status')).schema, newest.schema);
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
