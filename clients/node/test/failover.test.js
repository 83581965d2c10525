// failover.test.js - a client and a worker while the leader is killed: two coordinators on one PostgreSQL.
import { connect, Worker } from 'capstan';
import { assert, quick, scenario, sleep, until } from '../../../tests/e2e/harness.js';

// Two coordinators, of which the first leads.
async function pair(world) {
  const cluster = await world.cluster({
    store: 'postgres',
    settings: {
      ...quick,
      lease_ms: 6000,
      worker_liveness_timeout_ms: 6000,
      node_stale_ms: 6000,
      node_dead_ms: 60000,
      leader_ttl_ms: 1500,
    },
  });
  const leader = { process: cluster.coordinator, address: cluster.address };
  cluster.listen = '127.0.0.1:0';
  await cluster.startCoordinator({ leads: false });
  return { cluster, leader, standby: { process: cluster.coordinator, address: cluster.address } };
}

scenario(
  'a killed leader: waits, submits, events and a worker of this process go on, nothing runs twice',
  async (world) => {
    const { leader, standby } = await pair(world);
    const servers = [leader.address, standby.address];
    const runs = [];
    let finish;
    const gate = new Promise((resolve) => {
      finish = resolve;
    });
    const worker = await new Worker({
      servers,
      id: 'js',
      slots: 2,
      executors: {
        hold: async ({ name }) => {
          runs.push(name);
          await gate;
          return { name };
        },
        echo: ({ inputs }) => inputs,
      },
    }).start();
    world.atEnd(() => worker.close({ now: true }));
    const client = connect({ servers, patienceMs: 20000 });
    world.atEnd(() => client.close());
    const job = await client.submit({ tasks: [{ name: 'held', executor: 'hold', inputs: {} }] });
    await until('it runs', () => runs.length === 1);
    const waiting = job.wait();
    const seen = [];
    const following = (async () => {
      for await (const event of job.events({ follow: true })) seen.push(event);
    })();
    await until('it was seen to be assigned', () => seen.some(({ type }) => type === 'assigned'));
    await leader.process.kill();
    // A submit finds the new leader; its id lets it be repeated without harm.
    const second = await client.submit(
      { tasks: [{ name: 'e', executor: 'echo', inputs: { a: 1 } }] },
      { id: 'second' },
    );
    assert.equal(second.id, 'second');
    finish();
    assert.equal((await waiting).state, 'succeeded');
    assert.deepEqual(await job.results(), { held: { name: 'held' } });
    await second.wait();
    assert.deepEqual(await second.results(), { e: { a: 1 } });
    await following;
    assert.deepEqual(runs, ['held'], 'nothing is executed again because a coordinator died');
    const numbers = seen.map(({ seq }) => seq);
    assert.deepEqual(
      numbers,
      [...new Set(numbers)].sort((a, b) => a - b),
      'every event once, in order',
    );
    assert.deepEqual([seen[0].type, seen.at(-1).type], ['created', 'completed']);
    assert.equal((await client.leader()).address, standby.address);
    await worker.close();
  },
);

scenario('a client that knows only a standby is led to the leader', async (world) => {
  const { cluster, standby, leader } = await pair(world);
  await cluster.startWorker({ id: 'w', join: leader.address });
  const client = connect({ servers: standby.address });
  world.atEnd(() => client.close());
  const job = await client.submit({ tasks: [sleep('t', 1)] });
  assert.equal((await job.wait()).state, 'succeeded');
  assert.equal(client.server, leader.address);
});
