// Queries while workers are killed, frozen and run out of disk: the right rows or a clear failure, and no file left behind.
//
// Plans are physical ones, so that it is known what a task does; plugins/hold.c stops tasks at a gate until the fault has
// happened. So nothing here depends on how fast a query is.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {
  assert,
  binary,
  grpcStatus,
  isSoak,
  lenient,
  pause,
  quick,
  rounds,
  scenario,
  scenarioWithEachStore,
  slowness,
  until,
} from './harness.js';
import { readMetrics } from './metrics.js';
import { broadcasting, forced, Gate, nothingLeft, plugin, resultFiles, shuffleFiles, Sql } from './sql-cluster.js';
import { dataOf, queriesOf, reference } from './sql-reference.js';
import { assertSameTable } from './sql-table.js';

const patient = {
  ...quick,
  leader_ttl_ms: 1000,
  max_task_attempts: 1000,
  blacklist_failure_threshold: 1000000,
  max_fetch_recoveries: 64,
};
const counted = { ...patient, ...lenient, leader_ttl_ms: 3000 }; // where it is asserted which attempt of a task it was
const holds = ['--plugin', plugin('hold')];
const MAPS = 4;
const REDUCES = 3;
const ROWS = 20000; // of each map task

// Four tasks that map, three that aggregate what they get.
function aggregation({ map, reduce, deterministic = true } = {}) {
  return {
    stages: [
      {
        id: 0,
        sql: `SELECT {{task}} AS t, (i % 97)::INTEGER AS k, i AS v FROM range(${ROWS}) r(i)`,
        splits: Array.from({ length: MAPS }, () => ({ file: 'none' })),
        deterministic,
        ...(map && { custom: map.custom }),
        output: { exchange: 'hash', keys: ['k'], partitions: REDUCES },
      },
      {
        id: 1,
        inputs: { m: 0 },
        sql: 'SELECT {{task}} AS t, k, count(*) AS n, sum(v)::BIGINT AS s, sum(t)::BIGINT AS ts FROM m GROUP BY k',
        ...(reduce && { custom: reduce.custom }),
        output: { exchange: 'result' },
      },
    ],
  };
}

async function assertAggregated({ rows }) {
  const { rows: wanted } = await (
    await reference()
  ).query(
    `SELECT k, count(*) AS n, sum(v)::BIGINT AS s, sum(t)::BIGINT AS ts
     FROM (SELECT t, (i % 97)::INTEGER AS k, i AS v FROM range(${MAPS}) m(t), range(${ROWS}) r(i)) GROUP BY k ORDER BY k`,
  );
  const actual = rows.map(([, ...rest]) => rest).sort(([a], [b]) => a - b);
  assert.deepEqual(actual, wanted);
}

// A cluster with as many workers, by their names, all of which can hold.
async function start(world, ids, { store, settings = patient, slots = 2, args = holds } = {}) {
  const cluster = await world.cluster({ store, settings });
  const workers = {};
  for (const id of ids) workers[id] = await cluster.startWorker({ id, slots, args });
  return { cluster, workers, sql: new Sql(cluster) };
}

const byPid = (workers, pid) => Object.values(workers).find((worker) => worker.pid === pid);

// A worker that was killed starts again on its folder and removes what it finds there.
async function assertClean(cluster, workers) {
  for (const worker of Object.values(workers)) {
    if (worker.isOver) workers[worker.id] = await cluster.startWorker({ id: worker.id, data: worker.folder });
  }
  await nothingLeft(...Object.values(workers));
}

scenarioWithEachStore('a worker that is killed in the map stage costs nothing but time', async (world, store) => {
  const { cluster, workers, sql } = await start(world, ['w1', 'w2', 'w3'], { store });
  const gate = new Gate(world);
  const id = await sql.submit(aggregation({ map: gate }));
  for (let task = 0; task < MAPS; task++) await gate.arrived(task);
  await byPid(workers, gate.arrivals(0)[0]).kill();
  gate.open();
  await assertAggregated(await sql.table(id));
  assert.ok(gate.arrivals(0).length >= 2);
  await assertClean(cluster, workers);
});

scenarioWithEachStore('a worker that is killed in the reduce stage costs nothing but time', async (world, store) => {
  const { cluster, workers, sql } = await start(world, ['w1', 'w2', 'w3'], { store });
  const gate = new Gate(world);
  const id = await sql.submit(aggregation({ reduce: gate }));
  for (let task = 0; task < REDUCES; task++) await gate.arrived(task);
  await byPid(workers, gate.arrivals(1)[0]).kill();
  gate.open();
  await assertAggregated(await sql.table(id));
  assert.ok(gate.arrivals(1).length >= 2);
  await assertClean(cluster, workers);
});

// Workers without the operator map; nobody can reduce until the fault is over.
scenarioWithEachStore('map outputs that died with their worker are made again', async (world, store) => {
  const { cluster, workers, sql } = await start(world, ['w1', 'w2'], { store, settings: counted, args: [] });
  const gate = new Gate(world);
  gate.open();
  const id = await sql.submit(aggregation({ reduce: gate }));
  const mapped = await sql.stageReaches(id, 's0', 'succeeded');
  const victim = workers[mapped[0].worker];
  const lost = mapped.filter(({ worker }) => worker === victim.id);
  await victim.kill();
  workers.w3 = await cluster.startWorker({ id: 'w3', args: holds });
  await assertAggregated(await sql.table(id));
  const again = await sql.tasksOf(id, 's0');
  // A worker that is not missed yet may be given an attempt that it does not get, so it is counted what was completed.
  const completions = (await sql.completions(id)).filter(({ stage }) => stage === 's0');
  const runs = (task) => completions.filter((completion) => completion.task === task).length;
  for (const { task } of lost) {
    assert.notEqual(again[task].worker, victim.id);
    assert.equal(runs(task), 2, `map ${task} ran once more`);
    assert.equal(again[task].failures, 0, 'a loss of outputs is no failure of the task');
  }
  for (const { task } of mapped.filter(({ worker }) => worker !== victim.id)) assert.equal(again[task].attempt, 1);
  await assertClean(cluster, workers);
});

scenario('a worker that comes back under its name has no outputs any more, and makes them again', async (world) => {
  const { cluster, workers, sql } = await start(world, ['w1'], { settings: counted, args: [] });
  const gate = new Gate(world);
  gate.open();
  const id = await sql.submit(aggregation({ reduce: gate }));
  await sql.stageReaches(id, 's0', 'succeeded');
  await workers.w1.kill();
  workers.w1 = await cluster.startWorker({ id: 'w1', data: workers.w1.folder, args: holds });
  await assertAggregated(await sql.table(id));
  const completions = (await sql.completions(id)).filter(({ stage }) => stage === 's0');
  const runs = Array.from({ length: MAPS }, (_, task) => completions.filter((done) => done.task === task).length);
  assert.deepEqual(runs, Array(MAPS).fill(2), 'every map ran once more');
  await assertClean(cluster, workers);
});

for (const stage of ['map', 'reduce']) {
  scenario(
    `a worker that is frozen beyond its lease in the ${stage} stage changes no row when it wakes`,
    async (world) => {
      const { cluster, workers, sql } = await start(world, ['w1', 'w2', 'w3']);
      const gate = new Gate(world);
      const id = await sql.submit(aggregation({ [stage]: gate }));
      for (let task = 0; task < (stage === 'map' ? MAPS : REDUCES); task++) await gate.arrived(task);
      const frozen = byPid(workers, gate.arrivals(0)[0]);
      frozen.signal('SIGSTOP');
      await gate.arrived(0, 2); // another attempt of the task is at the gate
      gate.open();
      if (stage === 'map') {
        await sql.stageReaches(id, 's0', 'succeeded');
        frozen.signal('SIGCONT'); // it finishes its old attempt while the others read
        await assertAggregated(await sql.table(id));
      } else {
        await assertAggregated(await sql.table(id));
        frozen.signal('SIGCONT');
      }
      await until('the frozen one is back', async () => (await cluster.nodes())[frozen.id].status === 'healthy');
      await nothingLeft(...Object.values(workers));
      await assertAggregated(await sql.query(aggregation()));
    },
  );
}

// Outputs are asked for by attempt, and only a finished one is handed out.
scenario('trap_08_a_map_output_is_read_by_its_exact_attempt_and_by_no_other_name', async (world) => {
  const { cluster, sql } = await start(world, ['w1'], { args: [] });
  const gate = new Gate(world);
  const id = await sql.submit(aggregation({ reduce: gate }));
  const [mapped] = await sql.stageReaches(id, 's0', 'succeeded');
  const worker = world.client((await cluster.nodes()).w1.address);
  const fetch = async (more) => {
    const key = { query_id: id, stage_id: mapped.stageId, map_task: 0, attempt: mapped.attempt, reduce_partition: 0 };
    const chunks = [];
    for await (const { payload } of worker.stream('FetchShufflePartition', { ...key, ...more })) chunks.push(payload);
    return Buffer.concat(chunks);
  };
  assert.ok((await fetch({})).length > 1000);
  for (const other of [{ attempt: mapped.attempt + 1 }, { map_task: MAPS }, { query_id: 'other' }, { stage_id: 77 }]) {
    await assert.rejects(fetch(other), (error) => {
      assert.match(error.details, /map output not registered for requested attempt/);
      return true;
    });
  }
  await assert.rejects(fetch({ reduce_partition: REDUCES }), { code: grpcStatus.INVALID_ARGUMENT });
  await cluster.client.cancel(id);
  await until('the outputs of a canceled job are gone', () =>
    fetch({}).then(
      () => false,
      () => true,
    ),
  );
});

// One task makes random numbers, three read all of them. What they say must be of one attempt.
scenarioWithEachStore(
  'trap_28_a_random_map_that_is_made_again_is_read_anew_by_all_also_by_those_that_had_finished',
  async (world, store) => {
    const { cluster, workers, sql } = await start(world, ['w1'], { store, args: [] });
    const gate = new Gate(world);
    const id = await sql.submit({
      stages: [
        {
          id: 0,
          sql: 'SELECT random() AS r FROM range(1000)',
          deterministic: false,
          output: { exchange: 'broadcast' },
        },
        {
          id: 1,
          inputs: { m: 0 },
          sql: 'SELECT {{task}} AS t, sum(r) AS s, hash(list(r ORDER BY r)) AS h FROM m',
          splits: [{ file: 'none' }, { file: 'none' }, { file: 'none' }],
          custom: gate.custom,
          output: { exchange: 'result' },
        },
      ],
    });
    await sql.stageReaches(id, 's0', 'succeeded');
    workers.w2 = await cluster.startWorker({ id: 'w2', slots: 1, args: holds });
    // One has finished, one has read and waits, one has not begun.
    gate.open(0);
    await gate.arrived(1);
    // A worker begins its next task before the report on the last one has arrived.
    await until('the first has finished', async () => (await sql.tasksOf(id, 's1'))[0].state === 'succeeded');
    await workers.w1.kill();
    workers.w3 = await cluster.startWorker({ id: 'w3', slots: 1, args: [] });
    gate.open();
    const { rows } = await sql.table(id);
    assert.equal(rows.length, 3);
    assert.equal(new Set(rows.map(([, sum, hash]) => `${sum} ${hash}`)).size, 1, JSON.stringify(rows));
    assert.ok(gate.arrivals(0).length >= 2, 'the one that had finished reads anew, too');
    await nothingLeft(workers.w2, workers.w3);
  },
);

// Every map output is a file; one of them loses a bit, its end, or all of it.
function damageOne(world, worker, where) {
  const files = shuffleFiles(worker);
  assert.equal(files.length, MAPS, `everything is spilled: ${files}`);
  const victim = world.any(files);
  const bytes = fs.readFileSync(victim);
  if (where === 'all of it') {
    fs.rmSync(victim);
  } else if (where === 'at the end') {
    fs.truncateSync(victim, bytes.length - 1);
  } else {
    bytes[Math.floor(bytes.length / 2)] ^= 1 << Math.floor(world.random() * 8);
    fs.writeFileSync(victim, bytes);
  }
}

// Nobody had read what was damaged, and so nobody had it open.
async function assertOneMadeAgain(sql, id) {
  const attempts = (await sql.tasksOf(id, 's0')).map(({ attempt }) => attempt).sort();
  assert.deepEqual(attempts, [1, 1, 1, 2]);
}

for (const where of ['in the middle', 'at the end', 'all of it']) {
  scenario(`a spilled map output that is damaged (${where}) is noticed and made again`, async (world) => {
    const settings = { ...counted, shuffle_memory_bytes: 1 };
    const { cluster, workers, sql } = await start(world, ['w1'], { settings, args: [] });
    const gate = new Gate(world);
    gate.open();
    const id = await sql.submit(aggregation({ reduce: gate }));
    await sql.stageReaches(id, 's0', 'succeeded');
    damageOne(world, workers.w1, where);
    workers.w2 = await cluster.startWorker({ id: 'w2', args: holds });
    await assertAggregated(await sql.table(id));
    await assertOneMadeAgain(sql, id);
    await nothingLeft(workers.w1, workers.w2);
  });

  // A worker reads its own files without a connection. The reduce tasks begin when both stages that they read are done.
  scenario(`a worker notices its own map output that is damaged (${where}), and makes it again`, async (world) => {
    const settings = { ...counted, shuffle_memory_bytes: 1 };
    const args = [...holds, '--http', '127.0.0.1:0'];
    const { workers, sql } = await start(world, ['w1'], { settings, args });
    const [, http] = await workers.w1.line(/metrics on (\S+)/);
    const gate = new Gate(world);
    const { stages } = aggregation();
    const [map, reduce] = stages;
    const waiting = { id: 2, sql: 'SELECT 0 AS who', custom: gate.custom, output: { exchange: 'broadcast' } };
    reduce.inputs.w = waiting.id;
    reduce.sql = reduce.sql.replace('FROM m ', 'FROM m, w ');
    const id = await sql.submit({ stages: [map, waiting, reduce] });
    await gate.arrived(0);
    await sql.stageReaches(id, 's0', 'succeeded');
    damageOne(world, workers.w1, where);
    gate.open();
    await assertAggregated(await sql.table(id));
    await assertOneMadeAgain(sql, id);
    assert.equal((await readMetrics(http)).get('capstan_shuffle_bytes_total{direction="in"}'), 0, 'all was read here');
    await nothingLeft(workers.w1);
  });
}

scenario('outputs that are damaged again and again end the query clearly', async (world) => {
  const settings = { ...quick, shuffle_memory_bytes: 1, max_fetch_recoveries: 2 };
  const { cluster, workers, sql } = await start(world, ['w1'], { settings, args: [] });
  const gate = new Gate(world);
  gate.open();
  // Whatever is written is cut off at once; a reader may be faster, and then has right rows.
  const breaker = setInterval(() => {
    for (const file of shuffleFiles(workers.w1)) {
      try {
        if (fs.statSync(file).size > 100) fs.truncateSync(file, 100);
      } catch {
        // gone in between
      }
    }
  }, 1);
  world.atEnd(() => clearInterval(breaker));
  workers.w2 = await cluster.startWorker({ id: 'w2', args: holds });
  let failure;
  for (let round = 0; round < 20 && !failure; round++) {
    const id = await sql.submit(aggregation({ reduce: gate }));
    const { state, message } = await cluster.end(id);
    if (state === 'failed') failure = message;
    else await assertAggregated(await sql.table(id));
  }
  clearInterval(breaker);
  assert.match(failure, /fetch|recover|map output/i);
  await nothingLeft(workers.w1, workers.w2);
});

// ---- a full disk ----

// A worker whose data lies on a small disk: a file system of its own if this may be had, else files that cannot grow.
async function startOnSmallDisk(world, cluster, id, bytes, args = []) {
  const folder = world.folder(`small-${id}`); // messages have it, so it has no word that is looked for in them
  const canMount = (() => {
    try {
      execFileSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], { stdio: 'ignore' });
      return true;
    } catch {
      return false;
    }
  })();
  const worker = [binary, 'worker', '--join', cluster.address, '--id', id, '--slots', '2', '--data', folder, ...args];
  const started = canMount
    ? world.start(`worker ${id}`, 'unshare', [
        '-rm',
        'sh',
        '-c',
        `mount -t tmpfs -o size=${bytes} tmpfs "$0" && exec "$@"`,
        folder,
        ...worker,
      ])
    : world.start(`worker ${id}`, 'sh', ['-c', `trap '' XFSZ; ulimit -f ${bytes / 512}; exec "$@"`, 'sh', ...worker]);
  await started.line(/registered/);
  // Seen as the worker sees it.
  return Object.assign(started, { id, folder: canMount ? `/proc/${started.pid}/root${folder}` : folder });
}

scenario('a full disk fails the query clearly and leaves nothing behind', async (world) => {
  const settings = { ...lenient, shuffle_memory_bytes: 1, max_task_attempts: 2, blacklist_failure_threshold: 100 };
  const { cluster, sql } = await start(world, [], { settings });
  const small = await startOnSmallDisk(world, cluster, 'small', 4 << 20);
  const { stages } = aggregation();
  stages[0].sql = `SELECT {{task}} AS t, (i % 97)::INTEGER AS k, i AS v, repeat('z', 50) || hash(i) AS s FROM range(200000) r(i)`;
  const id = await sql.submit({ stages });
  const { state, message } = await cluster.end(id);
  assert.equal(state, 'failed');
  assert.match(message, /No space left on device|File too large/);
  await nothingLeft(small);
  await assertAggregated(await sql.query(aggregation())); // what fits still runs there
  await nothingLeft(small);
});

scenario(
  'a query that needs more memory and disk than there are fails clearly and leaves nothing behind',
  async (world) => {
    const { cluster, sql } = await start(world, [], { settings: { ...lenient, max_task_attempts: 1 } });
    const small = await startOnSmallDisk(world, cluster, 'small', 16 << 20, ['--memory', '128MB']);
    const id = await sql.submit(
      'SELECT count(*) AS n FROM (SELECT DISTINCT hash(i) AS h, i::VARCHAR AS s FROM range(10000000) r(i))',
    );
    const { state, message } = await cluster.end(id);
    assert.equal(state, 'failed');
    assert.match(message, /Out of Memory Error|No space left on device|File too large/);
    await nothingLeft(small);
    await assertAggregated(await sql.query(aggregation()));
  },
);

// DuckDB keeps to what was free when it first spilled, so it learns of this from the disk itself.
scenario('a disk that others fill while queries spill to it has nothing of theirs in the end', async (world) => {
  const { cluster, sql } = await start(world, [], { settings: { ...lenient, max_task_attempts: 1 } });
  const small = await startOnSmallDisk(world, cluster, 'small', 200 << 20, ['--memory', '128MB']);
  const distinct = (rows) =>
    `SELECT count(*) AS n FROM (SELECT DISTINCT hash(i) AS h, i::VARCHAR AS s FROM range(${rows}) r(i))`;
  assert.deepEqual((await sql.query(distinct(2000000))).rows, [['2000000']]);
  const filler = path.join(small.folder, 'of-others');
  fs.writeFileSync(filler, Buffer.alloc(190 << 20));
  const { state, message } = await cluster.end(await sql.submit(distinct(10000000)));
  assert.equal(state, 'failed');
  assert.match(message, /No space left on device|File too large/);
  await nothingLeft(small);
  fs.rmSync(filler);
  assert.deepEqual((await sql.query(distinct(2000000))).rows, [['2000000']]);
  await nothingLeft(small);
});

scenario('what does not fit on one disk runs where it does', async (world) => {
  const settings = { ...patient, shuffle_memory_bytes: 1 };
  const { cluster, workers, sql } = await start(world, [], { settings });
  const small = await startOnSmallDisk(world, cluster, 'small', 1 << 20);
  const { stages } = aggregation();
  stages[0].sql = `SELECT {{task}} AS t, (i % 97)::INTEGER AS k, i AS v, repeat('z', 50) || hash(i) AS s FROM range(${ROWS * 5}) r(i)`;
  stages[1].sql = 'SELECT k, count(*) AS n, count(DISTINCT s) AS d FROM m GROUP BY k ORDER BY k';
  const id = await sql.submit({ stages });
  // Nobody else is there before it has failed.
  const failedOnSmall = async () =>
    (await cluster.events(id)).filter(({ type, worker_id }) => type === 'failed' && worker_id === 'small');
  await until('an attempt has failed on the small disk', async () => (await failedOnSmall()).length > 0);
  workers.large = await cluster.startWorker({ id: 'large' });
  const { rows } = await sql.table(id);
  assert.equal(rows.length, 97);
  assert.equal(
    rows.reduce((sum, [, n]) => sum + Number(n), 0),
    MAPS * ROWS * 5,
  );
  await nothingLeft(small, workers.large);
});

// ---- cancel ----

const tpch = () => dataOf('tpch', { scale: 0.02, row_group: 4096 });

scenario(
  'a query that is canceled at any moment ends, frees its slots and leaves nothing',
  { ms: 240000 },
  async (world) => {
    const { cluster, workers, sql } = await start(world, ['w1', 'w2'], {
      settings: { ...quick, shuffle_memory_bytes: 100000 },
    });
    await sql.tables(await tpch());
    const queries = queriesOf('tpch');
    const ends = { canceled: 0, succeeded: 0 };
    let midway = 0; // canceled when some of their own stages' tasks had ended
    for (let round = 0; round < rounds(12) || (midway === 0 && round < 100); round++) {
      const { name, sql: text, isOrdered } = world.any(queries);
      const id = await sql.submit(text, { options: forced });
      // The moment is the subject. The first one is too soon for any answer, every other by the clock, the rest by what has
      // been done: as many tasks have ended, and so others run.
      if (round % 2 === 0) await pause(round === 0 ? 0 : world.random() * 300 * slowness);
      else await sql.manyReach(id, 1 + Math.floor(world.random() * 6), 'succeeded');
      await cluster.client.cancel(id, 'the test wants it').catch((error) => {
        assert.equal(error.code, grpcStatus.FAILED_PRECONDITION, error.details);
      });
      const { state, message } = await cluster.end(id);
      assert.ok(state in ends, `${name}: ${state}: ${message}`);
      ends[state]++;
      if (state === 'canceled') {
        midway += (await sql.stageTasks(id)).some((task) => task.state === 'succeeded') ? 1 : 0;
      }
      if (state === 'succeeded') {
        assertSameTable(await sql.table(id), await (await reference()).query(text), { ordered: isOrdered, what: name });
      }
    }
    assert.ok(midway > 0, `nothing was canceled in the middle: ${JSON.stringify(ends)}`);
    await nothingLeft(workers.w1, workers.w2);
    await until('all slots are free', async () =>
      Object.values(await cluster.nodes()).every(({ running_tasks }) => running_tasks === 0),
    );
    await assertAggregated(await sql.query(aggregation()));
  },
);

// Far too much to compute: ends only if DuckDB is interrupted.
const endless = 'SELECT sum(hash(a.i + b.i * 7)) AS s FROM range(100000000) a(i), range(100000) b(i)';

scenario('cancel interrupts what DuckDB computes', async (world) => {
  const { cluster, workers, sql } = await start(world, ['w1'], { args: [] });
  const id = await sql.submit(endless);
  await until('it runs', async () => (await cluster.nodes()).w1.running_tasks > 0);
  await until('it computes', () => workers.w1.usage().cpu > 1);
  await cluster.client.cancel(id);
  assert.equal((await cluster.end(id)).state, 'canceled');
  await until('the slot is free', async () => (await cluster.nodes()).w1.running_tasks === 0);
  assert.deepEqual(await sql.rows('SELECT 42 AS n'), [['42']]);
  const before = workers.w1.usage().cpu;
  await pause(500); // the time is the subject: an idle worker uses none of it
  assert.ok(workers.w1.usage().cpu - before < 0.4, 'nothing goes on computing');
});

// A client that is interrupted does not leave its query running.
scenario('trap_12_ctrl_c_at_the_command_line_cancels_the_query_on_the_cluster', async (world) => {
  const { cluster, workers } = await start(world, ['w1'], { args: [] });
  for (const signal of ['SIGINT', 'SIGTERM']) {
    const client = world.capstan('sql', ['sql', endless], { env: { CAPSTAN_SERVER: cluster.address } });
    client.isClient = true;
    const job = await until('it runs', async () => {
      const { jobs } = await cluster.client.call('ListJobs', { state: 'running', limit: 10 });
      return jobs[0] && (await cluster.nodes()).w1.running_tasks > 0 && jobs[0];
    });
    client.signal(signal);
    const { code } = await client.ended;
    assert.equal(code, 130, client.stderr);
    assert.equal((await cluster.end(job.query_id)).state, 'canceled');
    await until('the slot is free', async () => (await cluster.nodes()).w1.running_tasks === 0);
  }
  await nothingLeft(workers.w1);
});

// ---- the coordinator ----

scenarioWithEachStore(
  'a coordinator that is killed in the middle of a query does not cost an attempt',
  async (world, store) => {
    const { cluster, workers, sql } = await start(world, ['w1', 'w2'], { store, settings: counted });
    const [map, reduce] = [new Gate(world), new Gate(world)];
    const id = await sql.submit(aggregation({ map, reduce }));
    for (let task = 0; task < MAPS; task++) await map.arrived(task);
    await cluster.coordinator.kill();
    await cluster.startCoordinator();
    map.open();
    for (let task = 0; task < REDUCES; task++) await reduce.arrived(task);
    await cluster.coordinator.kill();
    reduce.open();
    await cluster.startCoordinator();
    await assertAggregated(await sql.table(id));
    for (const { stage, task, attempt } of await sql.tasks(id)) assert.equal(attempt, 1, `${stage} ${task}`);
    await nothingLeft(workers.w1, workers.w2);
  },
);

scenarioWithEachStore('a new coordinator knows which input is which', async (world, store) => {
  const { cluster, workers, sql } = await start(world, ['w1'], { store, args: [] });
  const gate = new Gate(world);
  gate.open();
  const to = { exchange: 'hash', keys: ['k'], partitions: 2 };
  const id = await sql.submit({
    stages: [
      { id: 0, sql: 'SELECT i AS k, i * 2 AS twice FROM range(100) r(i)', output: to },
      { id: 1, sql: "SELECT i AS k, 'n' || i AS name FROM range(100) r(i)", output: to },
      { id: 2, sql: 'SELECT 7 AS plus', output: { exchange: 'broadcast' } },
      {
        id: 3,
        inputs: { c: 2, b: 1, a: 0 },
        sql: 'SELECT {{task}} AS t, a.k, twice + plus AS n, name FROM a JOIN b USING (k), c',
        custom: gate.custom,
        output: { exchange: 'result' },
      },
    ],
  });
  for (const stage of ['s0', 's1', 's2']) await sql.stageReaches(id, stage, 'succeeded');
  await cluster.coordinator.kill();
  await cluster.startCoordinator();
  workers.w2 = await cluster.startWorker({ id: 'w2', args: holds });
  const { rows } = await sql.table(id);
  assert.deepEqual(
    rows.map(([, ...rest]) => rest).sort(([a], [b]) => a - b),
    Array.from({ length: 100 }, (_, i) => [String(i), String(2 * i + 7), `n${i}`]),
  );
  await nothingLeft(workers.w1, workers.w2);
});

// ---- large results ----

const LARGE = 400000; // rows, of some megabytes

// Nobody is to lose a lease here, neither the worker, so that tasks keep their order, nor the leader.
const unhurried = { slots: 1, args: [], settings: { ...counted, leader_ttl_ms: 15000 } };

// The first task leaves a file, then the second does what is asked for. With one slot they run in this order.
const large = (from, column = "'x'") => ({
  stages: [
    {
      id: 0,
      sql: `SELECT i, {{task}} AS t, ${column} AS x FROM range(${from}) r(i) WHERE i < ${LARGE}`,
      splits: [{ file: 'none' }, { file: 'none' }],
      output: { exchange: 'result' },
    },
  ],
});

const resultsAre = (n, worker) =>
  until(`${n} files of results`, () => resultFiles(worker).filter((file) => file.endsWith('.arrows')).length === n);

scenario('a large result of a query that fails is gone, and made again if it is tried again', async (world) => {
  const { cluster, workers, sql } = await start(world, ['w1'], unhurried);
  const flag = path.join(world.folder('flags'), 'flag');
  const isMissing = `(SELECT count(*) FROM glob('${flag}*')) = 0`;
  const id = await sql.submit(large(LARGE, `CASE WHEN {{task}} = 1 AND ${isMissing} THEN error('not yet') ELSE 'x' END`));
  await sql.manyReach(id, 1, 'succeeded');
  const { state, message } = await cluster.end(id);
  assert.equal(state, 'failed');
  assert.match(message, /not yet/);
  const [first] = await sql.tasksOf(id, 's0');
  assert.equal(first.state, 'succeeded');
  assert.ok(Number(first.bytes) > 1048576, 'it is too large for the store');
  await resultsAre(0, workers.w1);

  fs.writeFileSync(flag, '');
  await cluster.client.call('RetryJob', { query_id: id });
  const { rows } = await sql.table(id);
  assert.equal(rows.length, 2 * LARGE);
  const [again] = await sql.tasksOf(id, 's0');
  assert.ok(again.attempt > first.attempt, `attempt ${again.attempt} after ${first.attempt}`);
  const made = (await sql.completions(id)).filter(({ stage, task }) => stage === 's0' && task === 0);
  assert.equal(made.length, 2, 'it was made once more');
  await resultsAre(2, workers.w1);

  // Those of a later failure go, by the answers to heartbeats that named both jobs; these stay, and can be fetched again.
  const failing = await sql.submit(large(LARGE, "CASE WHEN {{task}} = 1 THEN error('never') ELSE 'x' END"));
  await sql.manyReach(failing, 1, 'succeeded');
  assert.equal((await cluster.end(failing)).state, 'failed');
  await until('the file of the failed one is gone', () => !resultFiles(workers.w1).some((file) => file.includes(failing)));
  assert.equal((await sql.table(id)).rows.length, 2 * LARGE);
  await nothingLeft(workers.w1);
});

scenario('a large result of a query that is canceled is gone', async (world) => {
  const { cluster, workers, sql } = await start(world, ['w1'], unhurried);
  const id = await sql.submit(large(`${LARGE} + {{task}} * 10000000000000`)); // the second does not end
  await sql.manyReach(id, 1, 'succeeded');
  await resultsAre(1, workers.w1);
  await cluster.client.cancel(id);
  assert.equal((await cluster.end(id)).state, 'canceled');
  await until('nothing is left', () => resultFiles(workers.w1).length === 0);
  await nothingLeft(workers.w1);
});

// ---- everything at random ----

scenarioWithEachStore(
  'queries are right while workers are killed and frozen at random',
  { ms: 300000 },
  async (world, store) => {
    const { cluster, workers, sql } = await start(world, ['w1', 'w2', 'w3'], {
      store,
      settings: { ...patient, shuffle_memory_bytes: 200000 },
    });
    await sql.tables(await tpch());
    const queries = queriesOf('tpch');
    let isOver = false;
    let strikes = 0; // since the query began
    let id = '';
    const strike = async () => {
      while (!isOver) {
        // More and more rarely, until the query has the time that it needs. Mostly somebody who has a task of it is hit.
        await pause((100 + world.random() * 400) * (1 + strikes++ / 10));
        const busy = (await sql.stageTasks(id)).filter(({ state }) => state === 'running').map(({ worker }) => worker);
        const victim = workers[world.any(busy.length > 0 && world.random() < 0.8 ? busy : ['w1', 'w2', 'w3'])];
        if (world.random() < 0.6) {
          await victim.kill();
          workers[victim.id] = await cluster.startWorker({ id: victim.id, data: victim.folder, args: holds });
        } else {
          victim.signal('SIGSTOP');
          await pause(world.random() * 2500); // up to beyond its lease
          victim.signal('SIGCONT');
        }
      }
    };
    let struck;
    let repeated = 0; // tasks that had to run more than once
    const least = rounds(store === 'sqlite' || isSoak ? 6 : 3);
    try {
      for (let round = 0; round < least || (repeated === 0 && round < 10 * least); round++) {
        const { name, sql: text, isOrdered } = world.any(queries);
        strikes = 0;
        id = await sql.submit(text, { options: world.any([forced, broadcasting]) });
        struck ??= strike();
        const actual = await Promise.race([sql.table(id), struck]); // strikes end before the rows only if they fail
        assertSameTable(actual, await (await reference()).query(text), { ordered: isOrdered, what: name });
        repeated += (await sql.repeated(id)).length;
      }
      assert.ok(repeated > 0, 'no fault has cost an attempt');
    } finally {
      isOver = true;
      await struck;
    }
    await nothingLeft(...Object.values(workers));
  },
);
