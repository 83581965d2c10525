// Counters that move only when something goes wrong. What an ordinary cluster moves is read in openapi.test.js; that
// docs/operations.md explains all of it, too.
import { execFileSync } from 'node:child_process';
import { assert, Cluster, scenario, sleep, until } from './harness.js';
import { readMetrics } from './metrics.js';

async function clusterWithHttp(world, settings) {
  const cluster = new Cluster(world, { settings });
  const coordinator = await cluster.startCoordinator({ args: ['--http', '127.0.0.1:0'] });
  const [, base] = await coordinator.line(/the HTTP API is at (http:\S+)/);
  cluster.client = world.client(cluster.address);
  return { cluster, base };
}

scenario('metrics: what workers say and is refused is counted by its reason', async (world) => {
  const { cluster, base } = await clusterWithHttp(world);
  const counts = async () => {
    const found = [...(await readMetrics(base))].map(([series, n]) => [/^capstan_stale_reports_total\{reason="(\w+)"\}$/.exec(series)?.[1], n]);
    return Object.fromEntries(found.filter(([reason]) => reason !== undefined));
  };
  const register = (worker_id, incarnation) =>
    cluster.client.call('RegisterWorker', { worker_id, incarnation, slots: 1, executor_types: ['sleep'], capabilities_json: '{}' });
  await register('raw', 'i1');
  await register('other', 'i1');
  const id = await cluster.submit([sleep('t', 1), sleep('next', 1, { depends_on: ['t'] })]);
  const me = { worker_id: 'raw', incarnation: 'i1' };
  const { tasks } = await cluster.client.call('GetTask', { ...me, capacity: 1, wait_ms: 30000 });
  const { query_id, stage_id, task_id, attempt, lease_token } = tasks[0];
  let expected = await counts();
  assert.ok(Object.keys(expected).length > 8 && Object.values(expected).every((n) => n === 0), JSON.stringify(expected));
  const refused = async (reason, change, more = {}, who = me) => {
    const ref = { query_id, stage_id, task_id, attempt, lease_token, ...change };
    const { outcomes } = await cluster.client.call('ReportTaskStatus', { ...who, reports: [{ ref, state: 'TASK_STATE_SUCCEEDED', ...more }] });
    assert.equal(outcomes[0].accepted, false);
    expected = { ...expected, [reason]: expected[reason] + 1 };
    assert.deepEqual(await counts(), expected, reason);
  };
  await refused('unknown_job', { query_id: 'none' });
  await refused('unknown_task', { task_id: 7 });
  await refused('stale_attempt', { attempt: attempt + 1 });
  await refused('wrong_token', { lease_token: Buffer.alloc(16, 7) });
  await refused('unknown_worker', {}, {}, { ...me, worker_id: 'never' });
  await refused('wrong_worker', {}, {}, { ...me, worker_id: 'other' });
  await cluster.client.cancel(id);
  await refused('job_ended', {});
  await register('raw', 'i2');
  await assert.rejects(register('raw', 'i1'), /superseded/);
  assert.deepEqual(await counts(), { ...expected, superseded: 1 });
});

scenario('metrics: what the store does not do is counted', async (world) => {
  const { cluster, base } = await clusterWithHttp(world, { history_ttl_ms: 1000 });
  const refusal = "CREATE TRIGGER keep BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'nothing is removed here'); END";
  execFileSync('sqlite3', ['-cmd', '.timeout 20000', cluster.store.replace('sqlite:', ''), refusal]);
  await cluster.startWorker({ id: 'w' });
  await cluster.run([sleep('t', 1)]);
  await until('errors are counted', async () => {
    const now = await readMetrics(base);
    return now.get('capstan_prune_errors_total') > 1 && now.get('capstan_store_errors_total') >= now.get('capstan_prune_errors_total');
  });
});

scenario('metrics: an attempt that is canceled or given back is not a lost one', async (world) => {
  const { cluster, base } = await clusterWithHttp(world, { drain_timeout_ms: 100 });
  const ended = async (outcome) => (await readMetrics(base)).get(`capstan_task_attempts_total{outcome="${outcome}"}`);
  const first = await cluster.startWorker({ id: 'w1' });
  const id = await cluster.submit([sleep('t', 600000)]);
  await cluster.reaches(id, 't', 'running');
  first.signal('SIGTERM');
  await until('it is given back', async () => (await ended('released')) === 1);
  await cluster.startWorker({ id: 'w2' });
  await cluster.reaches(id, 't', 'running');
  await cluster.client.cancel(id);
  assert.deepEqual([await ended('canceled'), await ended('released'), await ended('lost')], [1, 1, 0]);
});

scenario('metrics: a worker without a coordinator counts what it misses, gives back and cannot report', async (world) => {
  const cluster = await world.cluster({ settings: { heartbeat_interval_ms: 300, drain_timeout_ms: 500 } });
  const worker = await cluster.startWorker({ id: 'w', args: ['--http', '127.0.0.1:0'] });
  const [, base] = await worker.line(/health and metrics on (http:\S+)/);
  const id = await cluster.submit([sleep('t', 600000)]);
  await cluster.reaches(id, 't', 'running');
  const counts = async () => {
    const now = await readMetrics(base);
    return {
      released: now.get('capstan_task_attempts_total{outcome="released"}'),
      unreported: now.get('capstan_worker_unreported'),
      missed: now.get('capstan_worker_heartbeats_total{outcome="missed"}'),
    };
  };
  const { released, unreported } = await counts();
  assert.deepEqual([released, unreported], [0, 0]);
  cluster.coordinator.signal('SIGSTOP');
  worker.signal('SIGTERM');
  await until('all of it is counted', async () => {
    const now = await counts();
    return now.released === 1 && now.unreported === 1 && now.missed > 0;
  });
});
