// Processes that are killed, frozen and cut off. Commands leave a line in a file per execution, so that what ran can be
// compared with what was committed. The number of rounds is CAPSTAN_E2E_ROUNDS, else a few.
import fs from 'node:fs';
import path from 'node:path';
import {
  assert,
  command,
  isAlive,
  isSoak,
  lenient,
  pause,
  quick,
  rounds,
  scenario,
  scenarioWithEachStore,
  sleep,
  until,
} from './harness.js';

// Patient with tasks that lose many workers, quick to notice it.
const patient = { ...quick, max_task_attempts: 1000, blacklist_failure_threshold: 1000000, leader_ttl_ms: 1000 };
// Here it is counted how often something ran, or who leads is known beforehand.
const counted = { ...patient, ...lenient, leader_ttl_ms: 2000 };
// The same with leases of another length.
const countedWith = (lease_ms, more = {}) => ({
  ...{ ...counted, lease_ms, worker_liveness_timeout_ms: lease_ms, node_stale_ms: lease_ms },
  ...more,
});

// A folder in which each execution of a task leaves a line with its attempt's key.
class Ledger {
  constructor(world) {
    this.dir = world.folder('ledger');
  }

  // `ms`: how long it takes; a text: the file that it waits for.
  task(name, ms = 0, more = {}) {
    const file = `${this.dir}/${name}`;
    const wait = typeof ms === 'number' ? `sleep ${ms / 1000}` : `until [ -e ${ms} ]; do sleep 0.02; done`;
    return command(
      name,
      `echo $CAPSTAN_IDEMPOTENCY_KEY >>${file}; ${wait}; echo "\\"$CAPSTAN_IDEMPOTENCY_KEY\\""`,
      more,
    );
  }

  runs(name) {
    const file = path.join(this.dir, name);
    return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').trimEnd().split('\n') : [];
  }

  // Every task of the ended job has one result, which is that of one of its executions. No attempt ran twice.
  check(tasks, executions) {
    for (const { name, state, result } of Object.values(tasks)) {
      const runs = this.runs(name);
      assert.equal(state, 'succeeded', name);
      assert.equal(new Set(runs).size, runs.length, `${name}: an attempt ran twice: ${runs}`);
      assert.ok(runs.includes(result.json), `${name}: the result ${result.json} is of none of ${runs}`);
      if (executions !== undefined) assert.equal(runs.length, executions, `executions of ${name}`);
    }
  }
}

const completions = async (cluster, id, name) => {
  const { stage } = (await cluster.tasks(id))[name];
  return (await cluster.events(id)).filter(
    ({ type, ref }) => type === 'completed' && ref.attempt > 0 && ref.stage_id === stage,
  );
};

scenarioWithEachStore(
  'workers that are killed and come back under their names lose nothing',
  { ms: 300000 },
  async (world, store) => {
    const cluster = await world.cluster({ store, settings: patient });
    const workers = {};
    for (const id of ['a', 'b', 'c']) workers[id] = await cluster.startWorker({ id, slots: 2 });
    const ledger = new Ledger(world);
    const n = rounds(5);
    for (let round = 0; round < n; round++) {
      // Half of them are there until the victim is dead: as many as there are slots, so that every worker gets one.
      const go = path.join(ledger.dir, `go-${round}`);
      const id = await cluster.submit(
        Array.from({ length: 12 }, (_, i) => ledger.task(`r${round}t${i}`, i % 2 === 0 ? 30 + 10 * i : go)),
      );
      const victim = 'abc'[round % 3];
      await until('the victim works', async () =>
        Object.values(await cluster.tasks(id)).some(({ state, worker }) => state === 'running' && worker === victim),
      );
      await workers[victim].kill();
      fs.writeFileSync(go, '');
      workers[victim] = await cluster.startWorker({ id: victim, slots: 2 });
      assert.equal((await cluster.end(id)).state, 'succeeded');
      ledger.check(await cluster.tasks(id));
    }
  },
);

scenario(
  'a worker that is restarted under its name gives its tasks back at once, and ends the commands of the dead one',
  async (world) => {
    // Leases are so long that one would be noticed here.
    const settings = { lease_ms: 120000, worker_liveness_timeout_ms: 120000, node_stale_ms: 120000, node_dead_ms: 600000 };
    const cluster = await world.cluster({ settings: { ...settings, retry_backoff_base_ms: 1 } });
    const first = await cluster.startWorker({ id: 'w', slots: 1 });
    const file = path.join(world.folder(), 'pids');
    const id = await cluster.submit([
      command('t', `echo $$ >>${file}; [ $(wc -l <${file}) -gt 1 ] || exec sleep 1000`),
    ]);
    await until('it runs', () => fs.existsSync(file));
    await first.kill();
    const started = Date.now();
    await cluster.startWorker({ id: 'w', slots: 1 });
    assert.equal((await cluster.end(id)).state, 'succeeded');
    assert.ok(Date.now() - started < 60000, `${Date.now() - started} ms`);
    const [orphan] = fs.readFileSync(file, 'utf8').trim().split('\n');
    await until('the command of the dead worker has gone', () => !isAlive(orphan));
  },
);

scenario('of two live processes with one name the older ends', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const older = await cluster.startWorker({ id: 'w', slots: 1 });
  const file = path.join(world.folder(), 'pid');
  const id = await cluster.submit([command('t', `echo $$ >>${file}; [ $(wc -l <${file}) -gt 1 ] || exec sleep 1000`)]);
  await until('it runs', () => fs.existsSync(file));
  await cluster.startWorker({ id: 'w', slots: 1, data: world.folder('other') });
  const { code } = await older.ended;
  assert.notEqual(code, 0);
  assert.match(older.log, /superseded|another process/i);
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const [orphan] = fs.readFileSync(file, 'utf8').trim().split('\n');
  await until('its command has gone', () => !isAlive(orphan));
});

for (const when of ['while the next attempt runs', 'after the next attempt has ended']) {
  scenarioWithEachStore(
    `a worker that is frozen beyond its lease and woken ${when} is refused`,
    { ms: 120000 },
    async (world, store) => {
      const cluster = await world.cluster({ store, settings: countedWith(3000, { heartbeat_interval_ms: 800 }) });
      const proxy = await world.proxy(cluster.address);
      const frozen = await cluster.startWorker({
        id: 'frozen',
        slots: 1,
        join: proxy.address,
        args: ['--http', '127.0.0.1:0'],
      });
      const [, url] = await frozen.line(/health and metrics on (http:\S+)/);
      const refused = async () => {
        const metrics = await (await fetch(`${url}/metrics`)).text();
        return Number(/^capstan_stale_reports_total (\d+)$/m.exec(metrics)[1]);
      };
      const dir = world.folder();
      // Each run waits for a file of its own, whose number is fixed when it begins, and says when it ends.
      const script = `echo $CAPSTAN_IDEMPOTENCY_KEY >>${dir}/runs; n=$(wc -l <${dir}/runs); until [ -e ${dir}/go-$n ]; do sleep 0.02; done; echo "\\"$CAPSTAN_IDEMPOTENCY_KEY\\""; echo >${dir}/ended-$n`;
      const id = await cluster.submit([command('t', script)]);
      const runs = () =>
        fs.existsSync(`${dir}/runs`) ? fs.readFileSync(`${dir}/runs`, 'utf8').trim().split('\n') : [];
      await until('it runs', () => runs().length === 1);
      await cluster.startWorker({ id: 'heir', slots: 1 });
      assert.equal(await refused(), 0);
      // An order to stop that waits for it in the socket would end the attempt before it is reported, so nothing may
      // wait there; and answers take a while at first, so that the report is on its way before any order comes.
      frozen.signal('SIGSTOP');
      proxy.cut();
      await until('the heir runs it', () => runs().length === 2);
      // The command of the frozen worker is not frozen itself. It has ended well before the worker can look.
      fs.writeFileSync(`${dir}/go-1`, '');
      await until('the first run has ended', () => fs.existsSync(`${dir}/ended-1`));
      const wake = async () => {
        proxy.heal();
        proxy.delay(400); // A heartbeat is given up after its interval, 800 ms.
        frozen.signal('SIGCONT');
        await until('its report is refused', async () => (await refused()) > 0);
        proxy.heal();
        assert.match(frozen.log, /report: .* refused: stale attempt/);
        await until('it is back', async () => (await cluster.nodes()).frozen.status === 'healthy');
      };
      if (when.startsWith('while')) {
        await wake();
        assert.equal((await cluster.tasks(id)).t.state, 'running');
        fs.writeFileSync(`${dir}/go-2`, '');
      } else {
        fs.writeFileSync(`${dir}/go-2`, '');
        await cluster.end(id);
        await wake();
      }
      assert.equal((await cluster.end(id)).state, 'succeeded');
      const { t } = await cluster.tasks(id);
      assert.equal(t.worker, 'heir');
      assert.equal(t.result.json, runs()[1]);
      assert.equal((await completions(cluster, id, 't')).length, 1);
      // It is as good as new.
      const after = await cluster.run([sleep('after', 1, { placement: { allowed_nodes: ['frozen'] } })]);
      assert.equal(after.state, 'succeeded');
      assert.equal((await cluster.tasks(id)).t.result.json, runs()[1], 'and nothing has moved since');
    },
  );
}

scenario('a forged or late report moves nothing, whatever it says', async (world) => {
  const cluster = await world.cluster({ settings: { retry_backoff_base_ms: 1 } });
  const me = { worker_id: 'raw', incarnation: 'i1' };
  const register = (incarnation) =>
    cluster.client.call('RegisterWorker', {
      worker_id: 'raw',
      incarnation,
      slots: 1,
      executor_types: ['sleep'],
      capabilities_json: '{}',
    });
  await register('i1');
  const id = await cluster.submit([sleep('t', 1)]);
  const {
    tasks: [task],
  } = await cluster.client.call('GetTask', { ...me, capacity: 1, wait_ms: 5000 });
  const ref = {
    query_id: task.query_id,
    stage_id: task.stage_id,
    task_id: task.task_id,
    attempt: task.attempt,
    lease_token: task.lease_token,
  };
  const report = async (change, more = {}, who = me) => {
    const { outcomes } = await cluster.client.call('ReportTaskStatus', {
      ...who,
      reports: [
        { ref: { ...ref, ...change }, state: 'TASK_STATE_SUCCEEDED', result_json: Buffer.from('"forged"'), ...more },
      ],
    });
    return outcomes[0];
  };
  const before = await cluster.tasks(id);
  for (const change of [
    { attempt: 2 },
    { attempt: 0 },
    { stage_id: 1 },
    { task_id: 1 },
    { query_id: 'other' },
    { lease_token: Buffer.alloc(16) },
  ]) {
    const outcome = await report(change).catch((error) => ({ accepted: false, reason: error.details }));
    assert.equal(outcome.accepted, false, JSON.stringify(change));
    assert.notEqual(outcome.reason, '');
  }
  assert.deepEqual(await cluster.tasks(id), before);
  await cluster.client.cancel(id);
  for (const state of ['TASK_STATE_SUCCEEDED', 'TASK_STATE_FAILED', 'TASK_STATE_QUEUED']) {
    assert.equal((await report({}, { state })).accepted, false, `${state} after the cancel`);
  }
  assert.equal((await cluster.end(id)).state, 'canceled');
  assert.equal((await cluster.tasks(id)).t.state, 'canceled');
  await register('i2');
  const old = await cluster.client.call('Heartbeat', me);
  assert.equal(old.accepted, false);
  assert.match(old.reason, /superseded/);
});

scenarioWithEachStore('a worker that was silent for longer than its lease reports in vain', async (world, store) => {
  const cluster = await world.cluster({ store, settings: countedWith(4000) });
  const who = (name) => ({ worker_id: name, incarnation: `${name}-1` });
  const register = (name) =>
    cluster.client.call('RegisterWorker', {
      ...who(name),
      slots: 1,
      executor_types: ['sleep'],
      capabilities_json: '{}',
    });
  const take = async (name) => {
    const { tasks } = await cluster.client.call('GetTask', { ...who(name), capacity: 1, wait_ms: 20000 });
    return tasks[0];
  };
  const report = async (name, { query_id, stage_id, task_id, attempt, lease_token }, result) => {
    const ref = { query_id, stage_id, task_id, attempt, lease_token };
    const done = { ref, state: 'TASK_STATE_SUCCEEDED', result_json: Buffer.from(result) };
    return (await cluster.client.call('ReportTaskStatus', { ...who(name), reports: [done] })).outcomes[0];
  };
  await register('silent');
  const id = await cluster.submit([sleep('t', 1)]);
  const first = await take('silent');
  await until('it is lost', async () => (await cluster.events(id)).some(({ type }) => type === 'reassigned'));
  await register('heir');
  const second = await take('heir');
  assert.deepEqual([first.attempt, second.attempt], [1, 2]);
  assert.notDeepEqual(first.lease_token, second.lease_token);
  const late = await report('silent', first, '"late"');
  assert.equal(late.accepted, false);
  assert.match(late.reason, /^stale attempt/);
  assert.equal((await cluster.tasks(id)).t.state, 'running');
  assert.equal((await report('heir', second, '"heir"')).accepted, true);
  assert.equal((await report('silent', first, '"late"')).accepted, false, 'nor after the end');
  assert.equal((await report('heir', second, '"heir"')).accepted, true, 'the answer might have been lost');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.equal((await cluster.tasks(id)).t.result, 'heir');
  assert.equal((await completions(cluster, id, 't')).length, 1);
});

// ---- the coordinator ----

scenarioWithEachStore(
  'a coordinator that is killed in the middle of everything makes no command run again',
  { ms: 900000 },
  async (world, store) => {
    // Leases outlast all that is done to the workers here: only the coordinator is to blame for a second execution.
    // Heartbeats are far apart: a worker that misses the answer to one gives up the connection, on which it is to report.
    const settings = { ...countedWith(15000), heartbeat_interval_ms: 2000, node_dead_ms: 60000, leader_ttl_ms: 1000 };
    const cluster = await world.cluster({ store, settings });
    const proxy = await world.proxy(cluster.address);
    for (const id of ['a', 'b']) await cluster.startWorker({ id, slots: 3, join: proxy.address });
    const ledger = new Ledger(world);
    const jobs = [];
    let aimed = 0; // rounds in which a report should be committed and its answer lost
    let unanswered = 0; // rounds in which that was so
    const n = rounds(8);
    for (let round = 0; round < n; round++) {
      const name = (i) => `r${round}t${i}`;
      const how = ['at any moment', 'between commit and answer', 'right after the submit'][round % 3];
      // Those of the first kind end when the workers are not answered any more.
      const go = path.join(ledger.dir, `go-${round}`);
      const lengths = how === 'between commit and answer' ? [go, 0, go, 20] : [0, 20, 150, 400];
      const tree = Array.from({ length: 10 }, (_, i) =>
        ledger.task(name(i), lengths[i % 4], i > 6 ? { depends_on: [name(i - 6)] } : {}),
      );
      jobs.push(await cluster.submit(tree));
      if (how === 'at any moment') {
        await pause(world.random() * 300);
      } else if (how === 'between commit and answer') {
        const count = async (wanted) =>
          Object.values(await cluster.tasks(jobs.at(-1))).filter(({ state }) => state === wanted).length;
        // Five end by themselves, and four have begun to wait; of the jobs before, nothing is left. With any other report
        // under way the ones that are meant would stand behind it: a worker that hears no answer sends no more.
        for (const id of jobs.slice(0, -1)) await cluster.end(id);
        const waiting = [0, 2, 4, 6].map(name);
        await until(
          'only those are left that wait',
          async () => (await count('succeeded')) === 5 && waiting.every((task) => ledger.runs(task).length > 0),
        );
        // From now on what the workers report is committed, and they do not hear of it. Nor do they get what they are given.
        // They report at once, before they miss the answer to a heartbeat and look for another coordinator.
        const before = await count('succeeded');
        proxy.mute();
        fs.writeFileSync(go, '');
        const end = Date.now() + 3000;
        while ((await count('succeeded')) === before && Date.now() < end);
        aimed++;
        if ((await count('succeeded')) > before) unanswered++;
      }
      await cluster.coordinator.kill();
      await cluster.startCoordinator();
      proxy.heal();
    }
    for (const id of jobs) {
      const { state, message } = await cluster.end(id);
      assert.equal(state, 'succeeded', message);
      ledger.check(await cluster.tasks(id), 1);
    }
    assert.ok(unanswered * 2 >= aimed, `${unanswered} of ${aimed} kills came between commit and answer`);
  },
);

scenarioWithEachStore(
  'a submit that was answered survives a kill, and one that was not can be repeated',
  { ms: 300000 },
  async (world, store) => {
    const cluster = await world.cluster({ store, settings: patient });
    const proxy = await world.proxy(cluster.address);
    const through = world.client(proxy.address);
    const direct = cluster.client;
    const tree = { tasks: [sleep('t', 0)] };
    const n = rounds(4);
    for (let round = 0; round < n; round++) {
      await through.call('ListJobs'); // The connection is made before it goes mute.
      const acked = await direct.submit(tree, { id: `acked-${round}` });
      proxy.mute();
      const lost = through.once(
        'SubmitTasks',
        { job_id: `lost-${round}`, tree_json: Buffer.from(JSON.stringify(tree)) },
        { timeoutMs: 20000 },
      );
      lost.catch(() => {});
      await until('it is committed', () => direct.status(`lost-${round}`).catch(() => undefined));
      await cluster.coordinator.kill();
      await assert.rejects(lost);
      await cluster.startCoordinator();
      proxy.heal();
      assert.equal((await direct.status(acked)).state, 'QUERY_STATE_QUEUED');
      const again = await through.call('SubmitTasks', {
        job_id: `lost-${round}`,
        tree_json: Buffer.from(JSON.stringify(tree)),
      });
      assert.equal(again.existed, true);
    }
    await cluster.startWorker({ id: 'w', slots: 4 });
    for (let round = 0; round < n; round++) {
      for (const kind of ['acked', 'lost']) assert.equal((await cluster.end(`${kind}-${round}`)).state, 'succeeded');
    }
  },
);

for (const how of ['killed', 'frozen']) {
  const name = `of two coordinators on PostgreSQL the other leads when one is ${how}, and no command runs again`;
  scenario(name, { ms: 300000 }, async (world) => {
    const cluster = await world.cluster({ store: 'postgres', settings: counted });
    const member = () => ({
      process: cluster.coordinator,
      address: cluster.address,
      client: world.client(cluster.address),
    });
    let leader = member();
    cluster.listen = undefined; // elsewhere
    await cluster.startCoordinator({ leads: false });
    let standby = member();
    const join = `${leader.address},${standby.address}`;
    for (const id of ['a', 'b']) await cluster.startWorker({ id, slots: 3, join });
    const ledger = new Ledger(world);
    const n = Math.max(2, Math.ceil(rounds(8) / 4));
    for (let round = 0; round < n; round++) {
      cluster.client = leader.client;
      const id = await cluster.submit(Array.from({ length: 8 }, (_, i) => ledger.task(`r${round}t${i}`, 50 * i)));
      await until('some run', async () =>
        Object.values(await cluster.tasks(id)).some(({ state }) => state === 'running'),
      );
      if (how === 'killed') await leader.process.kill();
      else leader.process.signal('SIGSTOP');
      await until('the other leads', async () => (await standby.client.once('GetLeader')).role === 'leader');
      cluster.client = standby.client;
      assert.equal((await cluster.end(id)).state, 'succeeded');
      ledger.check(await cluster.tasks(id), 1);
      if (how === 'killed') {
        cluster.listen = leader.address;
        leader.process = await cluster.startCoordinator({ leads: false });
      } else {
        leader.process.signal('SIGCONT');
      }
      [leader, standby] = [standby, leader];
      const news = await until('it knows the new leader', async () => {
        const told = await standby.client.once('GetLeader');
        return told.address === leader.address && told;
      });
      assert.equal(news.role, 'standby');
      assert.ok(await standby.client.submit({ tasks: [sleep('t', 0)] }), 'a write to the standby finds the leader');
      standby.client = world.client(standby.address);
    }
  });
}

// ---- the network ----

scenarioWithEachStore('a short cut between worker and coordinator is not noticed by a task', async (world, store) => {
  const cluster = await world.cluster({
    store,
    settings: { ...patient, lease_ms: 4000, worker_liveness_timeout_ms: 4000, node_stale_ms: 4000 },
  });
  const proxy = await world.proxy(cluster.address);
  await cluster.startWorker({ id: 'w', slots: 2, join: proxy.address });
  const ledger = new Ledger(world);
  const n = rounds(3);
  for (let round = 0; round < n; round++) {
    const id = await cluster.submit([ledger.task(`r${round}a`, 300), ledger.task(`r${round}b`, 900)]);
    await until('it runs', () => ledger.runs(`r${round}b`).length === 1);
    const [strike] = [() => proxy.cut(), () => proxy.mute(), () => proxy.delay(300)].slice(round % 3);
    strike();
    await pause(600); // The time of the cut itself: longer than two heartbeats, shorter than the lease.
    proxy.heal();
    assert.equal((await cluster.end(id)).state, 'succeeded');
    ledger.check(await cluster.tasks(id), 1);
  }
});

scenarioWithEachStore(
  'a worker that is cut off for longer than its lease loses its task, and an exclusive one never runs twice at a time',
  async (world, store) => {
    // A worker stops what is exclusive a tenth of the lease before its end: half a second.
    const cluster = await world.cluster({ store, settings: counted });
    const proxy = await world.proxy(cluster.address);
    await cluster.startWorker({ id: 'cut', slots: 2, join: proxy.address });
    const dir = world.folder();
    // Each says when it began, and while it runs, in a file of its own.
    const script = (name) =>
      `n=$(ls ${dir} | grep -c ^${name}); f=${dir}/${name}$n; : >$f; while [ $n -eq 0 ] || [ $(wc -l <$f) -lt 5 ]; do date +%s%N >>$f; sleep 0.02; done; echo '"by '$n'"'`;
    const id = await cluster.submit([
      command('plain', script('plain')),
      command('alone', script('alone'), { exclusive: true }),
    ]);
    await until('both run', () => fs.readdirSync(dir).length === 2);

    await cluster.startWorker({ id: 'other', slots: 2 });
    proxy.cut();
    assert.equal((await cluster.end(id)).state, 'succeeded');
    const tasks = await cluster.tasks(id);
    assert.deepEqual([tasks.plain.worker, tasks.alone.worker], ['other', 'other']);
    const times = (name) => fs.readFileSync(`${dir}/${name}`, 'utf8').trim().split('\n').map(Number);
    assert.ok(times('alone0').at(-1) < times('alone1')[0], 'the first was over before the second began');
    proxy.heal();
    await until('it is back', async () => (await cluster.nodes()).cut.status === 'healthy');
    await until('and stops what it lost', () => {
      const before = times('plain0').length;
      return pause(200).then(() => times('plain0').length === before);
    });
    assert.deepEqual(await cluster.tasks(id), tasks);
  },
);

scenario('nor does an exclusive task of a worker in JavaScript that is cut off', async (world) => {
  const settings = countedWith(3000);
  const cluster = await world.cluster({ settings });
  const proxy = await world.proxy(cluster.address);
  let isOver = false; // then nothing may keep this process
  world.atEnd(() => (isOver = true));
  const runs = { plain: [], alone: [] }; // of each execution, whose it was and when it was seen to run
  const beat = (id) => async ({ name }, signal) => {
    const run = { id, from: performance.now(), last: performance.now() };
    runs[name].push(run);
    for (let n = 0; !isOver && !signal.aborted && (id === 'cut' || n < 5); n++) {
      await pause(20);
      if (!signal.aborted) run.last = performance.now();
    }
    return id;
  };
  const options = { id: 'cut', slots: 2, servers: [proxy.address], executors: { beat: beat('cut') } };
  const cut = await cluster.startJsWorker(options);
  const task = (name, more) => ({ name, executor: 'beat', inputs: { name }, ...more });
  const id = await cluster.submit([task('plain'), task('alone', { exclusive: true })]);
  await until('both run', () => runs.plain.length === 1 && runs.alone.length === 1);
  // Beyond the lease that came with the task.
  await until('they go on', () => runs.alone[0].last - runs.alone[0].from > 1.2 * settings.lease_ms);

  await cluster.startJsWorker({ id: 'other', slots: 2, executors: { beat: beat('other') } });
  proxy.cut();
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const tasks = await cluster.tasks(id);
  assert.deepEqual([tasks.plain.result, tasks.alone.result], ['other', 'other']);
  const [first, second] = runs.alone;
  assert.deepEqual([runs.alone.length, first.id, second.id], [2, 'cut', 'other']);
  assert.ok(first.last < second.from, 'the first was over before the second began');
  assert.ok(runs.plain[0].last > runs.plain[1].from, 'which is not so for one that is not exclusive');
  proxy.heal();
  await until('it is back', async () => (await cluster.nodes()).cut.status === 'healthy');
  await until('and stops what it lost', () => {
    const before = runs.plain[0].last;
    return pause(200).then(() => runs.plain[0].last === before);
  });
  assert.deepEqual(await cluster.tasks(id), tasks);
  await cut.drain(); // as long as there is a way
});

scenario('an exclusive command of a worker that is frozen is gone before another may run it', async (world) => {
  const cluster = await world.cluster({ settings: counted });
  const frozen = await cluster.startWorker({ id: 'frozen', slots: 1 });
  const dir = world.folder();
  const script = `n=$(ls ${dir} | wc -l); f=${dir}/$n; : >$f; while [ $n -eq 0 ] || [ $(wc -l <$f) -lt 5 ]; do date +%s%N >>$f; sleep 0.02; done`;
  const id = await cluster.submit([command('alone', script, { exclusive: true })]);
  await until('it runs', () => fs.readdirSync(dir).length === 1);
  await cluster.startWorker({ id: 'other', slots: 1 });
  // The command is not frozen itself: left alone, it would run for ever.
  frozen.signal('SIGSTOP');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const { alone } = await cluster.tasks(id);
  assert.equal(alone.worker, 'other');
  const times = (name) => fs.readFileSync(`${dir}/${name}`, 'utf8').trim().split('\n').map(Number);
  assert.ok(times('0').at(-1) < times('1')[0], 'the first was over before the second began');
  frozen.signal('SIGCONT');
  await until('it is back', async () => (await cluster.nodes()).frozen.status === 'healthy');
  assert.deepEqual((await cluster.tasks(id)).alone, alone, 'and what it has to say changes nothing');
});

scenario('an assignment that takes long to put together is not taken for lost', async (world) => {
  const settings = countedWith(2500);
  const cluster = await world.cluster({ store: 'postgres', settings });
  const id = await cluster.submit([sleep('t', 1)]);
  // The next one has nothing in its cache: what the task gets has to come from the database, which takes its time.
  await cluster.coordinator.kill();
  await cluster.startCoordinator();
  const me = { worker_id: 'raw', incarnation: 'i1' };
  const call = (method, request) => cluster.client.call(method, { ...me, ...request });
  const table = "relation = 'capstan.payloads'::regclass";
  // What a leader does of itself in that table, it has done when somebody has joined.
  await call('RegisterWorker', { slots: 1, executor_types: ['sleep'], capabilities_json: '{}' });
  // Held until somebody has waited to read it for longer than a lease, but not for the 5 s after which a database is given up.
  const heldMs = 1.5 * settings.lease_ms;
  world.start('psql', 'psql', [
    cluster.store,
    '-c',
    `begin; lock table capstan.payloads in access exclusive mode; do $$ begin
     while not exists (select from pg_locks where ${table} and not granted and mode = 'AccessShareLock') loop
       perform pg_sleep(0.01);
     end loop;
     perform pg_sleep(${heldMs / 1000}); end $$; commit`,
  ]);
  await until('the table is locked', async () => {
    await call('Heartbeat');
    return /1/.test(
      cluster.sql(`select count(*) from pg_locks where ${table} and granted and mode = 'AccessExclusiveLock'`),
    );
  });
  let isBack = false;
  const since = Date.now();
  const answer = call('GetTask', { capacity: 1, wait_ms: 100 }).finally(() => (isBack = true));
  // All this time, for longer than a lease, its heartbeats cannot name what it has not got.
  while (!isBack) {
    await call('Heartbeat');
    await pause(50);
  }
  assert.ok(Date.now() - since >= heldMs, `it came after ${Date.now() - since} ms`);
  const {
    tasks: [{ query_id, stage_id, task_id, attempt, lease_token }],
  } = await answer;
  assert.equal(attempt, 1);
  const ref = { query_id, stage_id, task_id, attempt, lease_token };
  assert.deepEqual((await call('Heartbeat', { running: [ref] })).stop, []);
  const reports = [{ ref, state: 'TASK_STATE_SUCCEEDED', result_json: Buffer.from('1') }];
  const { outcomes } = await call('ReportTaskStatus', { reports });
  assert.equal(outcomes[0].accepted, true, outcomes[0].reason);
  assert.equal((await cluster.end(id)).state, 'succeeded');
});

scenario('without any coordinator a worker gives up after orphan_ms, and not before', async (world) => {
  const cluster = await world.cluster({ settings: { ...patient, orphan_ms: 2500 } });
  await cluster.startWorker({ id: 'w', slots: 1 });
  const file = path.join(world.folder(), 'alive');
  const id = await cluster.submit([command('t', `echo $$ >${file}; exec sleep 1000`)]);
  await until('it runs', () => fs.existsSync(file) && fs.readFileSync(file, 'utf8').endsWith('\n'));
  assert.equal((await cluster.tasks(id)).t.state, 'running');
  const pid = fs.readFileSync(file, 'utf8').trim();
  const killed = Date.now();
  await cluster.coordinator.kill();
  await until('it is stopped', () => !isAlive(pid));
  assert.ok(Date.now() - killed >= 1500, `${Date.now() - killed} ms`);
});

// In a soak with the usual settings, where leases last 15 s, and away for minutes.
scenarioWithEachStore(
  'a coordinator that is away for many leases finds its commands as it left them, and none ran twice',
  { ms: 300000 },
  async (world, store) => {
    const settings = countedWith(3000);
    const cluster = await world.cluster({ store, workers: 2, settings: isSoak ? {} : settings });
    const ledger = new Ledger(world);
    const gate = path.join(world.folder(), 'go');
    const wait = (name) =>
      command(name, `echo x >>${ledger.dir}/${name}; until [ -e ${gate} ]; do sleep 0.05; done; echo '"${name}"'`);
    const id = await cluster.submit([wait('a'), wait('b'), ledger.task('c', 0, { depends_on: ['a', 'b'] })]);
    await until('both run', () => ['a', 'b'].every((name) => ledger.runs(name).length === 1));
    await cluster.coordinator.kill();
    await pause(isSoak ? 150000 : 2 * settings.lease_ms);
    await cluster.startCoordinator();
    fs.writeFileSync(gate, '');
    assert.equal((await cluster.end(id)).state, 'succeeded');
    const tasks = await cluster.tasks(id);
    for (const name of ['a', 'b', 'c']) {
      assert.equal(tasks[name].attempt, 1, name);
      assert.equal(ledger.runs(name).length, 1, name);
    }
  },
);

// ---- races ----

scenarioWithEachStore(
  'five workers race for one task a thousand times, and each is executed once',
  { ms: 180000 },
  async (world, store) => {
    const cluster = await world.cluster({ store });
    const executed = new Map();
    const winners = new Set();
    for (const id of ['a', 'b', 'c', 'd', 'e']) {
      const count = ({ n }, signal, { query_id }) => {
        executed.set(query_id, (executed.get(query_id) ?? 0) + 1);
        winners.add(id);
        return n;
      };
      await cluster.startJsWorker({ id, slots: 1, executors: { count } });
    }
    // One task at a time: the other four are idle, and the winner asks again before it reports.
    for (let n = 0; n < 1000; n++) {
      const id = await cluster.submit([{ name: 't', executor: 'count', inputs: { n } }]);
      assert.equal((await cluster.end(id)).state, 'succeeded');
      const { t } = await cluster.tasks(id);
      assert.deepEqual([t.attempt, t.result], [1, n]);
    }
    assert.equal(executed.size, 1000);
    assert.deepEqual([...new Set(executed.values())], [1]);
    assert.ok(winners.size > 1, `only ${[...winners]} has won`);
  },
);

scenarioWithEachStore(
  'five workers in C race for one task, and each is executed once',
  { ms: 300000 },
  async (world, store) => {
    const cluster = await world.cluster({ store, workers: 5, slots: 1 });
    const ledger = new Ledger(world);
    const winners = new Set();
    const n = isSoak ? 1000 : 100;
    for (let i = 0; i < n; i++) {
      const { tasks } = await cluster.run([ledger.task(`t${i}`)]);
      ledger.check(tasks, 1);
      assert.equal(tasks[`t${i}`].attempt, 1);
      winners.add(tasks[`t${i}`].worker);
    }
    assert.ok(winners.size > 1, `only ${[...winners]} has won`);
  },
);

// ---- everything at once ----

scenarioWithEachStore(
  'with everything failing at once, every job that was accepted ends, with one result per task',
  { ms: 900000 },
  async (world, store) => {
    const cluster = await world.cluster({ store, settings: patient });
    const proxy = await world.proxy(cluster.address);
    const workers = {};
    const names = ['a', 'b', 'c'];
    const start = async (id) =>
      (workers[id] = await cluster.startWorker({
        id,
        slots: 2,
        join: id === 'a' ? proxy.address : cluster.address,
        awaits: false,
      }));
    for (const id of names) await start(id);
    const ledger = new Ledger(world);
    const jobs = [];
    const any = (list) => world.any(list);
    console.log(`everything fails with CAPSTAN_E2E_SEED=${world.seed} (${store})`);
    const strikes = {
      killWorker: async () => {
        const id = any(names);
        await workers[id].kill();
        await start(id);
      },
      freezeWorker: async () => {
        const victim = workers[any(names)];
        victim.signal('SIGSTOP');
        setTimeout(() => victim.signal('SIGCONT'), any([100, 1000, 2500]));
      },
      killCoordinator: async () => {
        await cluster.coordinator.kill();
        await cluster.startCoordinator();
      },
      freezeCoordinator: async () => {
        cluster.coordinator.signal('SIGSTOP');
        await pause(any([50, 500, 1500]));
        cluster.coordinator.signal('SIGCONT');
      },
      cut: async () => {
        proxy.cut();
        setTimeout(() => proxy.heal(), any([100, 1000, 2500]));
      },
      mute: async () => {
        proxy.mute();
        setTimeout(() => proxy.heal(), any([100, 1000]));
      },
    };
    const n = rounds(8);
    const order = Object.keys(strikes);
    for (let round = 0; round < n; round++) {
      const name = (i) => `r${round}t${i}`;
      const tree = Array.from({ length: 8 }, (_, i) =>
        ledger.task(name(i), any([0, 50, 300]), i > 4 ? { depends_on: [name(i - 4)] } : {}),
      );
      jobs.push(await cluster.submit(tree));
      await pause(world.random() * 200);
      const strike = round < order.length ? order[round] : any(order);
      await strikes[strike]();
    }
    proxy.heal();
    for (const id of jobs) {
      const { state, message } = await cluster.end(id);
      assert.equal(state, 'succeeded', message);
      ledger.check(await cluster.tasks(id));
      for (const name of Object.keys(await cluster.tasks(id)))
        assert.equal((await completions(cluster, id, name)).length, 1, name);
    }
  },
);
