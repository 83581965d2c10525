// Small promises that are easily broken without anybody noticing: exit codes, modes of files, what children inherit, what
// the log says when something is away, and bounds.
import fs from 'node:fs';
import { assert, binary, childrenOf, command, freePort, lenient, pause, scenario, sleep, until } from './harness.js';

scenario('results of a job that failed are told on stderr, with exit code 1', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { max_task_attempts: 1 } });
  const failed = await cluster.run([command('a', 'exit 3')]);
  const told = await cluster.cli(['results', failed.id]);
  assert.equal(told.code, 1, told.stderr);
  assert.match(told.stderr, /failed/);
  const good = await cluster.run([command('a', 'echo 1')]);
  assert.equal((await cluster.cli(['results', good.id])).code, 0);
  const unknown = await cluster.cli(['results', '00000000-0000-4000-8000-000000000000']);
  assert.equal(unknown.code, 2);
});

scenario('a worker without a coordinator says so once, and works when one comes', async (world) => {
  const address = `127.0.0.1:${await freePort()}`;
  const worker = world.capstan('worker', ['worker', '--join', address, '--id', 'w', '--data', world.folder()]);
  await worker.line(/no coordinator that leads at any of 1 addresses/);
  const dir = world.folder();
  world.capstan('coordinator', ['coordinator', '--store', `sqlite:${dir}/state.db`, '--listen', address]);
  await worker.line(/registered/);
  assert.equal(worker.log.match(/no coordinator that leads/g).length, 1);
});

scenario('the state of an embedded store is for its owner only, whatever the umask', async (world) => {
  const dir = world.folder();
  const coordinator = world.start('coordinator', 'sh', [
    '-c',
    `umask 000 && exec "$0" coordinator --store "sqlite:$1/sub/state.db" --listen 127.0.0.1:0`,
    binary,
    dir,
  ]);
  await coordinator.line(/this coordinator leads/);
  const modes = Object.fromEntries(
    fs.readdirSync(`${dir}/sub`).map((name) => [name, fs.statSync(`${dir}/sub/${name}`).mode & 0o077]),
  );
  assert.ok('state.db' in modes, JSON.stringify(modes));
  assert.deepEqual(Object.values(modes).filter(Boolean), [], JSON.stringify(modes));
  assert.equal(fs.statSync(`${dir}/sub`).mode & 0o077, 0);
});

scenario("up's children get no variable that is meant for up alone", async (world) => {
  const dir = world.folder();
  const up = world.capstan('up', ['up', '--data', `${dir}/data`, '--listen', '127.0.0.1:0', '--json'], {
    cwd: dir,
    env: { CAPSTAN_HTTP: '127.0.0.1:0', CAPSTAN_WORKERS: '2', CAPSTAN_LOG_FORMAT: 'json', OTHER: 'stays' },
  });
  await up.line(/"ready":true/);
  const children = childrenOf(up.pid);
  assert.equal(children.length, 3);
  for (const pid of children) {
    const variables = fs.readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').filter(Boolean);
    const names = variables.map((variable) => variable.split('=')[0]);
    assert.ok(!names.includes('CAPSTAN_HTTP') && !names.includes('CAPSTAN_WORKERS'), names.join(' '));
    assert.ok(variables.includes('OTHER=stays') && variables.includes('CAPSTAN_LOG_FORMAT=json'), names.join(' '));
    assert.ok(names.includes('CAPSTAN_TOKEN'), 'the token reaches it by its environment');
    const line = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    const token = variables.find((variable) => variable.startsWith('CAPSTAN_TOKEN=')).slice(14);
    assert.ok(token.length > 0 && !line.includes(token), 'and not by its command line');
  }
});

scenario('a section for workers in a file of settings reaches the workers of up, and not up', async (world) => {
  const dir = world.folder();
  const config = world.file('capstan.ini', '[worker]\nhttp = 127.0.0.1:0\n');
  const up = world.capstan('up', [
    ...['up', '--data', `${dir}/data`, '--listen', '127.0.0.1:0', '--workers', '2', '--no-auth', '--json'],
    ...['--config', config],
  ]);
  await up.line(/"ready":true/);
  const id = await world.client(JSON.parse(up.stdout.split('\n')[0]).address).submit({ tasks: [sleep('a', 1)] });
  assert.match(id, /^[0-9a-f-]{36}$/);
});

scenario('a database that goes away and comes back is told once each, and jobs are taken again', async (world) => {
  const cluster = await world.cluster({ store: 'postgres', settings: { leader_ttl_ms: 2000 } });
  const socket = /host=([^&]+)/.exec(cluster.store)[1];
  const proxy = await world.proxy(`${socket}/.s.PGSQL.5432`);
  await cluster.coordinator.stop();
  const store = `postgres://postgres@${proxy.address}/${cluster.database}`;
  const coordinator = await cluster.startCoordinator({ store });
  proxy.cut();
  await coordinator.line(/the store does not answer; this coordinator does not lead until it does: /);
  proxy.heal();
  await coordinator.line(/the store answers/);
  await cluster.submit([sleep('a', 1)]); // taken, in the same term or in the next
  assert.equal(coordinator.log.match(/the store does not answer/g).length, 1);
  assert.equal(coordinator.log.match(/the store answers/g).length, 1);
});

// Holds a lock that every commit with a job needs, until it is killed.
async function lockJobs(world, cluster) {
  const socket = /host=([^&]+)/.exec(cluster.store)[1];
  const psql = world.start('psql', 'psql', ['-h', socket, '-U', 'postgres', '-d', cluster.database, '-qAt'], {
    stdin: "begin; lock table capstan.jobs in exclusive mode; select 'locked'; select pg_sleep(600);",
  });
  await psql.line(/locked/);
  const holder = "select pid from pg_locks where mode = 'ExclusiveLock' and granted and relation = 'capstan.jobs'::regclass";
  return () => cluster.sql(`select pg_terminate_backend(pid) from (${holder}) holder`);
}

// Renewals do not wait for the store: leases outlive a commit that takes longer than they last.
scenario('a commit slower than lease_ms costs no lease', async (world) => {
  const settings = { ...lenient, lease_ms: 4000, worker_liveness_timeout_ms: 4000, leader_ttl_ms: 15000 };
  const cluster = await world.cluster({ store: 'postgres', workers: 1, settings });
  const id = await cluster.submit([sleep('long', 9000)]);
  await cluster.reaches(id, 'long', 'running');
  const unlock = await lockJobs(world, cluster);
  const other = cluster.submit([sleep('a', 1)]);
  await pause(settings.lease_ms * 1.5); // The store itself gives up a lock after 10 s.
  unlock();
  await other;
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const { long } = await cluster.tasks(id);
  assert.deepEqual([long.attempt, long.failures], [1, 0]);
});

// The keeper: it renews while the writer is in the middle of a commit.
scenario('a commit slower than leader_ttl_ms keeps its leader; one that hangs ends the term', async (world) => {
  const ttl = 4500; // The store itself gives up a lock after 10 s, which is not to be what ends the term.
  const cluster = await world.cluster({ store: 'postgres', workers: 1, settings: { leader_ttl_ms: ttl } });
  const epoch = async () => Number((await cluster.client.call('GetLeader')).epoch);
  const before = await epoch();
  let unlock = await lockJobs(world, cluster);
  const slow = cluster.submit([sleep('a', 1)]);
  await pause(ttl * 1.1);
  unlock();
  assert.equal((await cluster.end(await slow)).state, 'succeeded');
  assert.equal(await epoch(), before, 'the same term');
  assert.doesNotMatch(cluster.coordinator.log, /does not lead any more/);
  unlock = await lockJobs(world, cluster);
  const lost = cluster.submit([sleep('b', 1)]).catch((error) => error);
  await cluster.coordinator.line(/does not lead any more/);
  unlock();
  await lost; // refused, or taken by the next term
  await until('it leads again', async () => (await epoch().catch(() => 0)) > before);
});

scenario('there is a bound to the number of tables, and one that exists can still be changed', async (world) => {
  const cluster = await world.cluster({ store: 'postgres' });
  await cluster.sql("insert into capstan.data_sets (name, source, format) select 't' || i, '/x', 'csv' from generate_series(1, 10000) i");
  const more = await cluster.cli(['table', 'add', 'one_more', '/x/*.csv']);
  assert.equal(more.code, 2, more.stderr);
  assert.match(more.stderr, /there are 10000 tables, and no more than 10000 can be\n {2}hint: /);
  assert.equal((await cluster.cli(['table', 'add', 't7', '/y/*.csv'])).code, 0);
  assert.equal((await cluster.cli(['table', 'rm', 't8'])).code, 0);
  assert.equal((await cluster.cli(['table', 'add', 'one_more', '/x/*.csv'])).code, 0);
});

scenario('history is pruned while jobs are coming, until nothing old is left', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { history_ttl_ms: 1500 } });
  const old = [];
  for (let i = 0; i < 200; i++) old.push(await cluster.submit([sleep('a', 0)]));
  for (const id of old) await cluster.end(id);
  await until('the old ones are gone', async () => {
    const id = await cluster.submit([sleep('b', 0)]);
    assert.equal((await cluster.end(id)).state, 'succeeded');
    const { jobs } = await cluster.json('jobs', '--limit', '1000');
    return !jobs.some(({ job_id }) => old.includes(job_id));
  });
});
