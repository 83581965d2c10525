// Builds of earlier releases beside today's, and today's beside the next: whatever is mixed during an upgrade works, and what
// cannot work says so. Run through ./dev soak upgrade, which builds them (build.sh).
import fs from 'node:fs';
import path from 'node:path';
import { Client } from '../../examples/javascript/client.js';
import { Held, Trio } from '../e2e/failover-cluster.js';
import { assert, binary, command, root, scenario, sleep, until } from '../e2e/harness.js';
import { forced, Sql } from '../e2e/sql-cluster.js';

const builtAt = (name) => path.join(root, 'build/upgrade', name, 'build/release/bin/capstan');
const releases = fs
  .readFileSync(new URL('releases.txt', import.meta.url), 'utf8')
  .split('\n')
  .filter((line) => /^\w/.test(line))
  .map((line) => line.split(/ +/))
  .map(([name, commit, ...abilities]) => ({
    name,
    commit,
    file: builtAt(name),
    can: (what) => abilities.includes(what),
  }));
const next = { name: 'next', file: builtAt('next') };
const today = { name: 'today', file: binary };

const isDone = { code: 0, signal: null };

// A coordinator of one release on SQLite, and whatever else of which.
async function start(world, { file }) {
  const dir = world.folder();
  const args = ['coordinator', '--store', `sqlite:${dir}/state.db`, '--listen', '127.0.0.1:0'];
  const coordinator = world.start('coordinator', file, args, { cwd: dir });
  const address = (await coordinator.line(/serving on (\S+),/))[1];
  await coordinator.line(/this coordinator leads/);
  const client = world.client(address);
  const worker = async (id, release) => {
    const flags = ['worker', '--join', address, '--id', id, '--slots', '2', '--data', `${dir}/${id}`];
    const started = world.start(`worker ${id} of ${release.name}`, release.file, flags, { cwd: dir });
    await started.line(/registered/);
    return started;
  };
  // The command line of a release.
  const cli = async (release, ...words) => {
    const run = world.start(`capstan ${words[0]} of ${release.name}`, release.file, words, {
      cwd: dir,
      env: { CAPSTAN_SERVER: address },
    });
    run.isClient = true;
    const { code } = await run.ended;
    return { code, stdout: run.stdout, stderr: run.stderr };
  };
  return { dir, address, client, coordinator, worker, cli };
}

// All that people do with a tree, from the command line of a release.
async function useTrees(world, { cli }, release) {
  const tree = {
    tasks: [
      command('a', 'echo 20'),
      command('b', 'cat', { depends_on: ['a'], inputs: { stdin: '${results.a.json}1' } }),
    ],
  };
  const file = world.file('tree.json', JSON.stringify(tree));
  const run = await cli(release, 'run', file, '--id', 'tree', '--json');
  assert.equal(run.code, 0, run.stderr);
  const results = await cli(release, 'results', 'tree');
  assert.equal(JSON.parse(results.stdout).b.json, 201, results.stdout);
  for (const words of [
    ['jobs'],
    ['job', 'tree'],
    ['tasks', 'tree'],
    ['events', 'tree'],
    ['nodes'],
    ['leader'],
    ['table', 'list'],
  ]) {
    const { code, stdout, stderr } = await cli(release, ...words, '--json');
    assert.equal(code, 0, `${words}: ${stderr}`);
    for (const line of stdout.trim().split('\n')) JSON.parse(line);
  }
  const bad = world.file(
    'bad.json',
    JSON.stringify({ tasks: [command('a', 'exit 3', { retry: { max_attempts: 1 } })] }),
  );
  assert.equal((await cli(release, 'run', bad, '--id', 'bad')).code, 1);
  assert.equal((await cli(release, 'retry', 'bad')).code, 0);
  const long = world.file('long.json', JSON.stringify({ tasks: [command('a', 'exec sleep 600')] }));
  assert.equal((await cli(release, 'submit', long, '--id', 'long')).code, 0);
  assert.equal((await cli(release, 'cancel', 'long')).code, 0);
  assert.match((await cli(release, 'job', 'long', '--json')).stdout, /"state":"canceled"/);
}

// A join, an aggregate and an order over several stages, whose tasks go to whoever is free.
const query = `SELECT a.i % 7 AS k, count(*) AS n, sum(a.i + b.j)::BIGINT AS s
  FROM range(5000) a(i) JOIN range(0, 5000, 2) b(j) ON a.i = b.j GROUP BY ALL ORDER BY k`;

async function assertQueries(client, times) {
  const sql = new Sql({
    client,
    end: async (id) => {
      const { state, message } = await client.end(id);
      return { state: state.replace('QUERY_STATE_', '').toLowerCase(), message };
    },
  });
  const plain = Array.from({ length: 7 }, (_, k) => {
    const numbers = Array.from({ length: 2500 }, (_, i) => 2 * i).filter((i) => i % 7 === k);
    return [k, numbers.length, numbers.reduce((sum, i) => sum + 2 * i, 0)].map(String);
  });
  for (let i = 0; i < times; i++) {
    const { rows } = await sql.query(query, { options: i % 2 ? forced : undefined });
    assert.deepEqual(
      rows.map((row) => row.map(String)),
      plain,
    );
  }
}

for (const old of releases) {
  for (const [boss, hands] of [
    [old, today],
    [today, old],
  ]) {
    scenario(
      `${old.name}: a coordinator of ${boss.name} with workers of ${hands.name} and both command lines`,
      async (world) => {
        for (const user of [old, today]) {
          const cluster = await start(world, boss);
          await cluster.worker('w1', hands);
          await useTrees(world, cluster, user);
          if (!old.can('sql')) continue;
          const { code, stdout, stderr } = await cluster.cli(user, 'sql', query, '-o', 'csv');
          assert.equal(code, 0, stderr);
          assert.equal(stdout.split('\n').length, 9, stdout);
        }
      },
    );
  }

  scenario(
    `${old.name}: workers of two releases share the stages of queries`,
    { if: old.can('sql') },
    async (world) => {
      for (const boss of [old, today]) {
        const cluster = await start(world, boss);
        const workers = [await cluster.worker('old', old), await cluster.worker('new', today)];
        await assertQueries(cluster.client, 12);
        const { nodes } = await cluster.client.call('ListNodes');
        assert.equal(nodes.length, workers.length);
      }
    },
  );

  scenario(
    `${old.name}: coordinators and workers are replaced one by one, and back, while tasks run`,
    async (world) => {
      const trio = await Trio.start(world, { file: old.file, settings: { leader_ttl_ms: 2000 } });
      const servers = trio.servers.split(',');
      const client = new Client(servers);
      world.atEnd(() => client.close());
      const held = new Held(world);
      await client.submit({ tasks: [held.task('a'), held.task('b')] }, { id: 'held' });
      await held.running('a', 'b');

      let isOver = false;
      const ids = [];
      const flow = (async () => {
        while (!isOver) {
          ids.push(await client.submit({ tasks: [sleep('x', 1), command('y', 'echo 1', { depends_on: ['x'] })] }));
          assert.equal((await client.end(ids.at(-1))).state, 'QUERY_STATE_SUCCEEDED');
        }
      })();
      const replace = async (file) => {
        for (const member of trio.members) {
          assert.deepEqual(await member.process.stop(), isDone);
          await trio.startCoordinator(member, { file });
          const n = ids.length;
          await until('jobs go on', () => ids.length > n + 2);
        }
      };
      await replace(today.file);
      assert.equal(held.runs('a') + held.runs('b'), 2);
      // The same schema: the way back is the way there. One that has grown is another scenario.
      const { version } = JSON.parse(await status(world, today, trio.store)).schema;
      const isSame = JSON.parse(await status(world, old, trio.store)).schema.newest === version;
      if (isSame) {
        await replace(old.file);
        await replace(today.file);
      }
      for (const id of ['w1', 'w2']) await trio.startWorker({ id: `new-${id}` });
      held.release();
      assert.equal((await client.end('held')).state, 'QUERY_STATE_SUCCEEDED');
      for (const worker of Object.values(trio.workers)) assert.deepEqual(await worker.stop(), isDone);
      const n = ids.length;
      await until('jobs go on with the new workers', () => ids.length > n + 2);
      isOver = true;
      await flow;
      assert.equal(held.runs('a') + held.runs('b'), 2, 'no change of coordinators made a task run again');
      trio.assertBegunOnce('held');
    },
  );

  scenario(`${old.name}: its database is taken over, and given back`, async (world) => {
    const trio = await Trio.start(world, { file: old.file, workers: 0 });
    await trio.members[0].client.call('SubmitTasks', {
      job_id: 'before',
      tree_json: Buffer.from(JSON.stringify({ tasks: [sleep('a', 1)] })),
    });
    for (const { process } of trio.members) await process.stop();
    const [member] = trio.members;
    await trio.startCoordinator(member);
    await trio.leader();
    assert.equal((await member.client.status('before')).state, 'QUERY_STATE_QUEUED');
    await member.process.stop();
    const oldNewest = JSON.parse(await status(world, old, trio.store)).schema.newest;
    const { version } = JSON.parse(await status(world, today, trio.store)).schema;
    if (version > oldNewest) {
      await assertRefused(world, trio, old);
      await cli(world, today, 'store', 'rollback', '--to', String(oldNewest), '--store', trio.store);
    }
    await trio.startCoordinator(member, { file: old.file });
    await trio.startWorker({ id: 'w1', file: old.file });
    assert.equal((await member.client.end('before')).state, 'QUERY_STATE_SUCCEEDED');
  });

  for (const [boss, watcher] of [
    [old, today],
    [today, old],
  ]) {
    scenario(
      `${old.name}: an observer of ${watcher.name} follows a leader of ${boss.name}`,
      { if: old.can('observers') },
      async (world) => {
        const cluster = await start(world, boss);
        await cluster.worker('w1', boss);
        const flags = ['coordinator', '--role', 'observer', '--follow', cluster.address, '--listen', '127.0.0.1:0'];
        const observer = world.start('observer', watcher.file, flags);
        const [, address] = await observer.line(/serving on (\S+),/);
        await assertQueries(cluster.client, 1);
        const id = await cluster.client.submit({
          tasks: [command('a', 'echo 1'), sleep('b', 1, { depends_on: ['a'] })],
        });
        await cluster.client.end(id);
        const copy = world.client(address);
        const told = async (client) => {
          const { tasks } = await client.once('ListTasks', { query_id: id, limit: 100 });
          return JSON.stringify(tasks.map(({ name, state, ref, worker_id }) => [name, state, ref.attempt, worker_id]));
        };
        const wanted = await told(cluster.client);
        await until('the observer tells the same', async () => (await told(copy).catch(() => '')) === wanted);
      },
    );
  }
}

// ---- the release after today's, which has one more step of the schema ----

async function cli(world, release, ...words) {
  const run = world.start(`capstan ${words[0]} of ${release.name}`, release.file, words);
  run.isClient = true;
  const { code } = await run.ended;
  assert.equal(code, 0, `${words}: ${run.stderr}`);
  return run.stdout;
}

const status = (world, release, store) => cli(world, release, 'store', 'status', '--store', store, '--json');

// A coordinator of that release does not touch a schema of later.
async function assertRefused(world, trio, release) {
  const args = ['coordinator', '--store', trio.store, '--listen', '127.0.0.1:0'];
  const refused = world.start(`coordinator of ${release.name}`, release.file, args);
  assert.notEqual((await refused.ended).code, 0);
  assert.match(refused.stderr, /schema .*version/);
  assert.match(refused.stderr, /hint: /);
}

scenario(
  'next: the schema goes along with the leadership, and nobody of today leads on one of later',
  async (world) => {
    const trio = await Trio.start(world, { workers: 1 });
    const version = async () => JSON.parse(await status(world, today, trio.store)).schema.version;
    const before = await version();
    const [c1, c2, c3] = trio.members;
    const first = await trio.leader();
    assert.equal(first, c1, 'it was the first to start');
    await c3.process.stop();
    await trio.startCoordinator(c3, { file: next.file });
    await c3.process.line(
      new RegExp(`the schema stays at version ${before} until a coordinator of this release leads`),
    );
    assert.equal(await version(), before);
    const refused = world.start('migrate', next.file, ['store', 'migrate', '--store', trio.store]);
    assert.notEqual((await refused.ended).code, 0);
    assert.match(refused.stderr, /c1 leads, with the schema of an earlier release\n {2}hint: /);

    // A task runs through all of it.
    const client = new Client(trio.servers.split(','));
    world.atEnd(() => client.close());
    const held = new Held(world);
    await client.submit({ tasks: [held.task('a')] }, { id: 'held' });
    await held.running('a');
    // Reads find somebody who can answer, whoever is asked first.
    const list = async () => assert.equal((await client.call('ListJobs', {})).jobs.length, 1);
    await list();

    c2.process.signal('SIGSTOP'); // so that it is not elected
    await c1.process.stop();
    assert.equal(await trio.leader(first.epoch), c3);
    await c3.process.line(new RegExp(`the schema has been brought from version ${before} to ${before + 1}`));
    c2.process.signal('SIGCONT');
    await until('c2 stands by', async () => (await c2.client.once('GetLeader')).address === c3.address);
    assert.equal((await trio.cli(['jobs', '--server', `${c2.address},${c3.address}`])).code, 0);

    const { epoch } = await trio.leader();
    await c3.process.kill();
    await c2.process.line(/schema is version \d+, newer than this program's \d+/);
    assert.notEqual((await c2.client.once('GetLeader')).role, 'leader');
    await assertRefused(world, trio, today);
    await trio.startCoordinator(c3, { file: next.file });
    assert.equal(await trio.leader(epoch), c3);
    held.release();
    assert.equal((await client.end('held')).state, 'QUERY_STATE_SUCCEEDED');
    assert.equal(held.runs('a'), 1);

    // The way back: everything of the next release stops, the schema goes down, and that of today goes on.
    for (const { process } of [c2, c3]) await process.stop();
    await cli(world, next, 'store', 'rollback', '--store', trio.store);
    assert.equal(await version(), before);
    await trio.startCoordinator(c1);
    assert.equal((await c1.client.status('held')).state, 'QUERY_STATE_SUCCEEDED');
    await c1.client.submit({ tasks: [sleep('b', 1)] }, { id: 'after' });
    assert.equal((await c1.client.end('after')).state, 'QUERY_STATE_SUCCEEDED');
  },
);
