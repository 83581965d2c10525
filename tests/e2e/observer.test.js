// Observers: processes without a store that answer reads from a copy of the leader's state.
import { assert, command, grpcStatus, pause, scenario, scenarioWithEachStore, sleep, slowness, until } from './harness.js';

// An observer of these coordinators, and a client that asks nobody else.
async function observe(world, follow) {
  const args = ['coordinator', '--role', 'observer', '--follow', follow.join(','), '--listen', '127.0.0.1:0'];
  const observer = world.capstan('observer', args);
  observer.address = (await observer.line(/serving on (\S+),/))[1];
  observer.client = world.client(observer.address);
  return observer;
}

const leaderOf = (client) => client.once('GetLeader', {});

// All that a client is told about jobs and their tasks. Cursors are each store's own.
async function everything({ client }) {
  const { jobs } = await client.once('ListJobs', { limit: 1000 });
  const told = [];
  for (const job of jobs) {
    const { tasks } = await client.once('ListTasks', { query_id: job.query_id, limit: 1000 });
    const { status } = await client.once('GetQueryStatus', { query_id: job.query_id });
    told.push({ job, tasks, status });
  }
  return told;
}

// Waits until the observer tells the same as the leader, and returns that.
async function equal(cluster, observer) {
  let told;
  await until('the observer tells the same as the leader', async () => {
    try {
      told = await everything(observer);
      assert.deepEqual(told, await everything(cluster));
      return true;
    } catch (error) {
      if (error.code !== 'ERR_ASSERTION' && error.code !== grpcStatus.UNAVAILABLE) throw error;
      return false;
    }
  });
  return told;
}

// Many tasks fail here, and that is nobody's fault.
const patient = { blacklist_failure_threshold: 1000000 };

const three = (mark) => [
  command('a', `echo '{"mark":"${mark}"}'`),
  sleep('b', 10, { depends_on: ['a'] }),
  command('c', 'exit 3', { depends_on: ['a'], retry: { max_attempts: 1 } }),
];

scenarioWithEachStore('an observer outlives its leader, and catches up when that comes back', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 2, settings: { leader_ttl_ms: 1000, ...patient } });
  const before = await cluster.run(three('before'));
  const observer = await observe(world, [cluster.address]);
  const during = await cluster.run(three('during'));
  const told = await equal(cluster, observer);
  assert.deepEqual(new Set(told.map(({ job }) => job.query_id)), new Set([before.id, during.id]));
  assert.deepEqual(await observer.client.results(during.id), await cluster.client.results(during.id));

  await cluster.coordinator.kill();
  const first = (await leaderOf(observer.client)).staleness_ms;
  await until('answers get older', async () => (await leaderOf(observer.client)).staleness_ms > first + 1000);
  assert.deepEqual(await everything(observer), told);
  const { role, address } = await leaderOf(observer.client);
  assert.deepEqual({ role, address }, { role: 'observer', address: cluster.address });

  await cluster.startCoordinator();
  const after = await cluster.run(three('after'));
  const more = await equal(cluster, observer);
  assert.equal(more.length, 3);
  assert.ok(more.some(({ job }) => job.query_id === after.id));
  await until('answers are new again', async () => (await leaderOf(observer.client)).staleness_ms < 1000 * slowness);
});

scenario('a write to an observer is refused with the address of the leader, where clients then go', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const observer = await observe(world, [cluster.address]);
  await equal(cluster, observer);
  const tree_json = Buffer.from(JSON.stringify({ tasks: [sleep('a', 0)] }));
  const refusal = await observer.client.once('SubmitTasks', { job_id: 'j', tree_json }).catch((error) => error);
  assert.equal(refusal.code, grpcStatus.FAILED_PRECONDITION);
  assert.deepEqual(refusal.metadata.get('capstan-leader'), [cluster.address]);
  assert.match(refusal.details, /observer/);
  const cancel = await observer.client.once('CancelQuery', { query_id: 'j' }).catch((error) => error);
  assert.deepEqual(cancel.metadata.get('capstan-leader'), [cluster.address]);

  const file = world.file('tree.json', JSON.stringify({ name: 'by-way', tasks: [sleep('a', 0)] }));
  const run = await cluster.cli(['run', file], { server: observer.address });
  assert.equal(run.code, 0, run.stderr);
  const jobs = await cluster.cli(['jobs', '--json'], { server: observer.address });
  assert.equal(jobs.code, 0, jobs.stderr);
  await until('the observer has the job', async () => {
    const { jobs: list } = await observer.client.once('ListJobs', { name: 'by-way' });
    return list.length === 1 && list[0].state === 'QUERY_STATE_SUCCEEDED';
  });
});

scenario('an observer follows the standby that takes over from a frozen leader', async (world) => {
  const settings = { leader_ttl_ms: 4000, ...patient };
  const cluster = await world.cluster({ store: 'postgres', workers: 0, settings });
  const first = cluster.coordinator;
  const addresses = [cluster.address];
  cluster.listen = undefined; // elsewhere
  const second = await cluster.startCoordinator({ leads: false });
  addresses.push(cluster.address);
  const observer = await observe(world, addresses);
  await cluster.startWorker({ id: 'w1', join: addresses.join(',') });
  const both = world.client(addresses[0]);
  const submit = async () => {
    const id = await both.submit({ tasks: three('x') });
    await both.end(id);
    return id;
  };
  await submit();
  await equal({ client: world.client(addresses[0]) }, observer);

  first.signal('SIGSTOP');
  await second.line(/this coordinator leads/);
  const another = world.client(addresses[1]);
  const id = await another.submit({ tasks: three('y') });
  await another.end(id);
  const told = await equal({ client: another }, observer);
  assert.equal(told.length, 2);
  assert.equal((await leaderOf(observer.client)).address, addresses[1]);
  first.signal('SIGCONT');
});

scenario('connections that break while jobs come and go leave no difference', async (world) => {
  const cluster = await world.cluster({ workers: 2, settings: patient });
  const proxy = await world.proxy(cluster.address);
  const observer = await observe(world, [proxy.address]);
  const ids = [];
  let isOver = false;
  const breaking = (async () => {
    while (!isOver) {
      proxy.breakAll();
      await pause(50 + world.random() * 200);
    }
  })();
  for (let round = 0; round < 20; round++) {
    ids.push(await cluster.submit(three(`r${round}`)));
    if (round % 4 === 3) await cluster.client.cancel(ids.at(-1), 'not wanted any more');
  }
  for (const id of ids) await cluster.end(id);
  isOver = true;
  await breaking;
  const told = await equal(cluster, observer);
  assert.equal(told.length, ids.length);
  assert.deepEqual(await observer.client.once('ListTables', {}), await cluster.client.once('ListTables', {}));
});

// What is late is told to be: an observer knows it by the leader's clock. Should noise have made it begin anew in between,
// it has nothing to compare with, and the round says nothing.
scenario('an observer whose news come late says how late', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const proxy = await world.proxy(cluster.address);
  const observer = await observe(world, [proxy.address]);
  const streams = () => observer.log.match(/observer: (no leader can be followed|a new copy)/g)?.length ?? 0;
  const age = async () => (await leaderOf(observer.client)).staleness_ms;
  for (let round = 0; ; round++) {
    await equal(cluster, observer);
    await until('news come in time', async () => (await age()) < 1000);
    const before = streams();
    proxy.delay(1500);
    const { id } = await cluster.run([sleep('a', 0)]);
    await until('the job is known, late', async () => {
      const { jobs } = await observer.client.once('ListJobs', { limit: 1000 });
      return jobs.some(({ query_id }) => query_id === id);
    });
    const ages = [];
    for (let i = 0; i < 10; i++) {
      ages.push(await age());
      await pause(100);
    }
    proxy.heal();
    if (streams() === before || round === 4) {
      assert.ok(Math.min(...ages) > 1000, `late by 1500 ms, and said to be old by ${ages} ms`);
      break;
    }
  }
});

scenario('the rows of a query come through an observer, from the copy and from workers', async (world) => {
  const cluster = await world.cluster({ workers: 2 });
  const observer = await observe(world, [cluster.address]);
  const fetch = async (client, id) => {
    const chunks = [];
    for await (const { payload } of client.stream('FetchQueryResults', { query_id: id })) chunks.push(payload);
    return Buffer.concat(chunks);
  };
  for (const [id, sql] of [
    ['small', 'select 42 as answer'],
    ['large', 'select range as n, repeat(md5(range::varchar), 4) as t from range(200000)'],
  ]) {
    await cluster.client.call('SubmitQuery', { query_id: id, sql });
    const { state, message } = await cluster.end(id);
    assert.equal(state, 'succeeded', message);
    await until(`the observer knows that '${id}' has ended`, async () => {
      const answer = await observer.client.once('GetQueryStatus', { query_id: id }).catch(({ code }) => ({ code }));
      return answer.status?.state === 'QUERY_STATE_SUCCEEDED';
    });
    const rows = await fetch(observer.client, id);
    assert.ok(rows.length > 0);
    assert.ok(rows.equals(await fetch(cluster.client, id)));
  }
  // When a worker was last seen is told to observers only together with something else.
  const nodesOf = async ({ client }) =>
    (await client.once('ListNodes', {})).nodes.map((node) => ({ ...node, last_seen_ms: 0 }));
  assert.deepEqual(await nodesOf(observer), await nodesOf(cluster));
});
