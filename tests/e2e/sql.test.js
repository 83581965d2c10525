// Distributed SQL beside one DuckDB: the same rows and types, and really distributed.
import fs from 'node:fs';
import { assert, isSoak, scenario } from './harness.js';
import { readMetrics } from './metrics.js';
import { broadcasting, forced, mixed, nothingLeft, Spills, Sql } from './sql-cluster.js';
import { dataOf, queriesOf, quote, reference } from './sql-reference.js';
import { assertSameTable } from './sql-table.js';

const tpch = () => dataOf('tpch', { scale: 0.05, row_group: 8192 });
const ugly = () => dataOf('ugly', { rows: 6000 });
const runsMax = 5; // workers race for tasks: a run in which one was always the first says nothing
const mayRunAgain = (runs, since) => runs < runsMax || Date.now() - since < 20000; // nor do many while the other is held up

async function clusterWith(world, tables, options = {}) {
  const cluster = await world.cluster(options);
  const workers = [];
  for (const id of ['w1', 'w2']) {
    const worker = await cluster.startWorker({ id, slots: 2, args: ['--http', '127.0.0.1:0'] });
    worker.http = (await worker.line(/metrics on (\S+)/))[1];
    workers.push(worker);
  }
  const sql = new Sql(cluster);
  await sql.tables(tables);
  return { cluster, workers, sql };
}

// What workers have fetched of map outputs from each other so far, as they count it themselves.
async function fetchedBetween(workers) {
  const sum = { bytes: 0, pieces: 0 };
  for (const { http } of workers) {
    const metrics = await readMetrics(http);
    sum.bytes += metrics.get('capstan_shuffle_bytes_total{direction="in"}');
    sum.pieces += metrics.get('capstan_shuffle_fetch_seconds_count');
  }
  return sum;
}

// From the job's own events and tasks: tasks of one scan stage ran on two workers, and an output of one of them that has rows,
// for one without has some bytes, too, was read on the other. Else says what was not so. Scan stages are those that read no
// others, unless `isScan` tells.
async function whyNotDistributed(sql, id, isScan) {
  const done = await sql.completions(id);
  const stages = (await sql.stages(id)).filter(({ name }) => /^s\d+$/.test(name));
  const dataStages = new Set(stages.map((stage) => stage.id));
  const isFirst = ({ parents }) => !parents.some((parent) => dataStages.has(parent));
  const scans = stages.filter(isScan ?? isFirst);
  const workersOf = (stage) => new Set(done.filter(({ stageId }) => stageId === stage).map(({ worker }) => worker));
  if (!scans.some(({ id: stage, tasks }) => tasks >= 2 && workersOf(stage).size >= 2)) {
    return `no scan ran on two workers: ${JSON.stringify(done)}`;
  }
  const isReadElsewhere = ({ stageId, worker }) =>
    stages.some(({ id: reader, parents }) => parents.includes(stageId) && [...workersOf(reader)].some((it) => it !== worker));
  const crossing = (await sql.tasks(id)).filter(({ rows }) => Number(rows) > 0).filter(isReadElsewhere);
  return crossing.length > 0 ? '' : `no rows of one worker were read by another: ${JSON.stringify(done)}`;
}

// One store is enough for each of these two: queries do not know where their jobs are kept.
scenario(
  'the 22 queries of TPC-H, cut by force, give what DuckDB alone gives, on two workers',
  { ms: 180000 },
  async (world) => {
    const expected = await reference();
    const { sql, workers } = await clusterWith(world, await tpch());
    const queries = queriesOf('tpch');
    assert.equal(queries.length, 22);
    for (const { name, sql: text, isOrdered } of queries) {
      const wanted = await expected.query(text);
      let why = 'it was not run';
      const since = Date.now();
      for (let runs = 0; why && mayRunAgain(runs, since); runs++) {
        const before = await fetchedBetween(workers); // nothing else runs
        const id = await sql.submit(text, { options: forced });
        assertSameTable(await sql.table(id), wanted, { ordered: isOrdered, what: name });
        const after = await fetchedBetween(workers);
        why = await whyNotDistributed(sql, id);
        assert.ok(why || after.bytes > before.bytes, `${name}: bytes crossed between the workers`);
        assert.ok(why || after.pieces > before.pieces, `${name}: it was measured how long that took`);
      }
      assert.equal(why, '', name);
    }
    await nothingLeft(...workers);
  },
);

// The names of the stages that scan lines by ranges of their orders, so that both meet where they are.
async function rangedStages(sql, text, options) {
  const [[, plan]] = await sql.rows(text, { options, explain: true });
  const { stages } = JSON.parse(plan);
  return stages.filter(({ what }) => what.includes('; a range of l_orderkey')).map(({ id }) => `s${id}`);
}

// Where rows that meet lie side by side, they do not move before they are joined. What comes of it does: tasks on both workers
// have rows, and whoever puts these together fetches those of the other.
scenario(
  'the 22 queries of TPC-H, some by ranges of keys, give what DuckDB alone gives, on two workers',
  async (world) => {
    const expected = await reference();
    const { sql, workers } = await clusterWith(world, await tpch(), { store: 'postgres' });
    const ranged = [];
    for (const { name, sql: text, isOrdered } of queriesOf('tpch')) {
      const wanted = await expected.query(text);
      const names = await rangedStages(sql, text, mixed);
      if (names.length > 0) ranged.push(name);
      // When sizes are known, scans may move to other stages. What does not scan has no more tasks than there are partitions.
      const isScan = (stage) => names.includes(stage.name) || stage.tasks > mixed.partitions;
      let why = 'it was not run';
      const since = Date.now();
      for (let runs = 0; why && mayRunAgain(runs, since); runs++) {
        const before = await fetchedBetween(workers);
        const id = await sql.submit(text, { options: mixed });
        assertSameTable(await sql.table(id), wanted, { ordered: isOrdered, what: name });
        why = await whyNotDistributed(sql, id, isScan);
        const { bytes } = await fetchedBetween(workers);
        assert.ok(why || bytes > before.bytes, `${name}: bytes crossed between the workers`);
      }
      assert.equal(why, '', name);
    }
    assert.ok(ranged.length >= 4, `by ranges: ${ranged}`);
    await nothingLeft(...workers);
  },
);

// Of the plan: whether a task that has a share of one table reads all of another for itself, and whether tables are read by
// ranges of a key.
async function habitsOf(sql, text, options) {
  const [[, plan]] = await sql.rows(text, { options, explain: true });
  const { stages } = JSON.parse(plan);
  const scansOf = ({ what }) => what.match(/^ *scan .*/gm) ?? [];
  const isWhole = (scan) => !scan.includes('; a range of ');
  return {
    replicated: stages.some((stage) => stage.splits?.length > 1 && scansOf(stage).filter(isWhole).length > 1),
    ranged: stages.some((stage) => !scansOf(stage).every(isWhole)),
  };
}

// Of the job: whether a stage with several tasks, which is not the only one beside the planning, has run on both workers, and
// whether the last stages have become one task. Workers race for tasks: a run in which one was always the first is done again.
async function runOf({ sql, workers }, { name, sql: text, isOrdered }, options, wanted) {
  const seen = [];
  const since = Date.now();
  while (mayRunAgain(seen.length, since)) {
    const before = await fetchedBetween(workers); // nothing else runs
    const id = await sql.submit(text, { options });
    const actual = await sql.table(id);
    const bytes = (await fetchedBetween(workers)).bytes - before.bytes;
    assertSameTable(actual, wanted, { ordered: isOrdered, what: `${name} with ${JSON.stringify(options)}` });
    const stages = (await sql.stages(id)).filter((stage) => stage.name !== 'plan');
    const several = stages.filter(({ tasks }) => tasks > 1);
    const tail = stages.at(-1)?.name === 'refine';
    if (stages.length < 2 || several.length === 0) return { shared: false, tail };
    const done = await sql.completions(id);
    const workersOf = (stage) => new Set(done.filter(({ stageId }) => stageId === stage).map(({ worker }) => worker));
    if (several.some((stage) => workersOf(stage.id).size > 1) && bytes > 0) return { shared: true, tail };
    seen.push({ done, bytes });
  }
  return assert.fail(`${name}: one worker has done it all, or no bytes crossed: ${JSON.stringify(seen.slice(-runsMax))}`);
}

// Nothing is forced; only the size below which a query is one task is out of the way. Then lines alone are so many that
// several tasks share them, which 17 queries read; smaller tables are read by each of these tasks, and what is left at the
// end is little. Orders are shared as well, by ranges, where they are more than may be sent to everybody.
scenario(
  'the 22 queries of TPC-H, cut as in a cluster that is in use, give what DuckDB alone gives, on two workers',
  { ms: 120000 },
  async (world) => {
    const expected = await reference();
    const cluster = await clusterWith(world, await tpch());
    const ways = [
      { options: { single_task_bytes: 0 }, bounds: { shared: 17, replicated: 9, tail: 11, ranged: 1 } },
      {
        options: { single_task_bytes: 0, broadcast_bytes: 1e6 },
        bounds: { shared: 17, replicated: 7, tail: 10, ranged: 8 },
      },
    ];
    const names = ways.map(() => ({ shared: [], replicated: [], tail: [], ranged: [] }));
    for (const query of queriesOf('tpch')) {
      const wanted = await expected.query(query.sql);
      for (const [i, { options }] of ways.entries()) {
        const facts = {
          ...(await habitsOf(cluster.sql, query.sql, options)),
          ...(await runOf(cluster, query, options, wanted)),
        };
        for (const [fact, isSo] of Object.entries(facts)) if (isSo) names[i][fact].push(query.name);
      }
    }
    for (const [i, { options, bounds }] of ways.entries()) {
      for (const [fact, least] of Object.entries(bounds)) {
        const are = names[i][fact];
        assert.ok(are.length >= least, `${fact} with ${JSON.stringify(options)}, at least ${least}: ${are}`);
      }
    }
    await nothingLeft(...cluster.workers);
  },
);

scenario(
  'TPC-H with small sides broadcast, with everything spilled, and as it comes, gives the same rows',
  async (world) => {
    const expected = await reference();
    const { sql, workers } = await clusterWith(world, await tpch(), { settings: { shuffle_memory_bytes: 1 } });
    const ways = [broadcasting, { ...forced, partitions: 5 }, undefined];
    const spills = new Spills(world, ...workers);
    for (const [i, { name, sql: text, isOrdered }] of queriesOf('tpch').entries()) {
      const options = ways[i % ways.length];
      const what = `${name} with ${JSON.stringify(options)}`;
      const id = await sql.submit(text, { options });
      assertSameTable(await sql.table(id), await expected.query(text), { ordered: isOrdered, what });
      assert.ok((await spills.assertSpilled(sql, id, what)) || options === undefined, `${what}: rows moved`);
    }
    await nothingLeft(...workers);
  },
);

// How the sides of joins get to their tasks, as the plan has it.
async function exchangesOf(sql, text, options) {
  const [[, plan]] = await sql.rows(text, { options, explain: true });
  return JSON.parse(plan).stages.map(({ output }) => output.exchange);
}

// Both sides are all lines, so neither is small beside the other one, and none of the keys is one that ranges are made of.
scenario('a side of a join that is not small is broadcast where all are, and only there', async (world) => {
  const expected = await reference();
  const { sql } = await clusterWith(world, await tpch());
  const text = `SELECT count(*) AS n, sum(a.l_quantity * b.l_linenumber) AS s, max(b.l_comment) AS c
                FROM lineitem a JOIN lineitem b ON a.l_orderkey + 1 = b.l_orderkey + 1 AND a.l_partkey = b.l_partkey`;
  assert.ok(!(await exchangesOf(sql, text, { ...forced, broadcast_bytes: 1e12 })).includes('broadcast'));
  assert.ok((await exchangesOf(sql, text, broadcasting)).includes('broadcast'));
  const id = await sql.submit(text, { options: broadcasting });
  assertSameTable(await sql.table(id), await expected.query(text));
  assert.equal(await sql.whyNotCut(id), '');
});

// The first plan, in the form of `ranOf`.
async function plannedOf(sql, text, options) {
  const [[shown, plan]] = await sql.rows(text, { options, explain: true });
  return Object.fromEntries(
    JSON.parse(plan).stages.map(({ id, inputs = {} }) => [
      `s${id}`,
      {
        tasks: Number(new RegExp(`stage ${id}: (\\d+) tasks?\\b`).exec(shown)[1]),
        reads: Object.values(inputs)
          .map((input) => `s${input}`)
          .sort(),
      },
    ]),
  );
}

// What has run, by the job's own events and stages: { name of a stage: { tasks: how many, reads: names of stages } }.
async function ranOf(sql, id) {
  const [stages, done] = [await sql.stages(id), await sql.completions(id)];
  const names = new Map(stages.map((stage) => [stage.id, stage.name]));
  const tasksOf = (stage) => new Set(done.filter(({ stageId }) => stageId === stage.id).map(({ task }) => task));
  return Object.fromEntries(
    stages
      .filter(({ name }) => /^s\d+$/.test(name))
      .map((stage) => [
        stage.name,
        { tasks: tasksOf(stage).size, reads: stage.parents.map((parent) => names.get(parent)).sort() },
      ]),
  );
}

// One that plans everything, so that no two of them know different things about the files.
async function clusterOfOne(world) {
  const cluster = await world.cluster();
  const worker = await cluster.startWorker({ id: 'w1', slots: 4 });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const run = async (text, options) => {
    const id = await sql.submit(text, { options });
    assertSameTable(await sql.table(id), await (await reference()).query(text), { what: text });
    return id;
  };
  return { sql, worker, run };
}

// What of orders is read is guessed to be too much for broadcasting, by a condition of which the files do not tell how many
// rows it leaves. Neither side can be read by ranges: the keys are not what lies there.
const joinedIf = (condition) =>
  `SELECT l_linenumber AS n, count(*) AS c, sum(l_extendedprice) AS p, sum(l_partkey) AS k, sum(l_suppkey) AS s,
          max(l_shipdate) AS d, max(l_commitdate) AS e, max(l_receiptdate) AS f, max(l_comment) AS t
   FROM lineitem JOIN (SELECT o_orderkey + 1 AS k FROM orders WHERE o_comment LIKE ${condition}) o ON l_orderkey + 1 = k
   GROUP BY l_linenumber`;
const choosing = { ...forced, broadcast_bytes: 30000 };

scenario('a join whose small side turns out to be small runs without the exchange of the other one', async (world) => {
  const { sql, run } = await clusterOfOne(world);
  for (const [condition, isSmall] of [
    ["'%pending deposits%'", true],
    ["'%e%'", false],
  ]) {
    const planned = await plannedOf(sql, joinedIf(condition), choosing);
    const { s0, s1, s2, s3 } = planned;
    assert.deepEqual([s0.reads, s1.reads, s2.reads, s3.reads], [[], [], ['s0', 's1'], ['s2']]);
    assert.ok(s0.tasks > 3 && s1.tasks > 1 && s2.tasks === 3 && s3.tasks === 3, JSON.stringify(planned));
    const id = await run(joinedIf(condition), choosing);
    const rows = (await sql.tasksOf(id, 's1')).reduce((sum, task) => sum + Number(task.rows), 0);
    assert.ok(rows > 0 && (rows < 2000) === isSmall, `${rows} rows of orders`);
    // Lines stay where they are read: these tasks join them, and no stage hands them on.
    const ran = { s1, s2: { tasks: s0.tasks, reads: ['s1'] }, s3 };
    assert.deepEqual(await ranOf(sql, id), isSmall ? ran : planned);
  }
  // Where there is nothing to choose, a small side changes nothing.
  const text = joinedIf("'%pending deposits%'");
  assert.deepEqual(await ranOf(sql, await run(text, forced)), await plannedOf(sql, text, forced));
});

// What a process has got from read() and its like, as the kernel counts it.
const bytesReadBy = ({ pid }) => Number(/rchar: (\d+)/.exec(fs.readFileSync(`/proc/${pid}/io`, 'utf8'))[1]);

scenario('stages of which it turns out that they have no rows are one task, which reads none', async (world) => {
  const { sql, worker, run } = await clusterOfOne(world);
  const { lineitem } = await tpch();
  const [[columns]] = (
    await (
      await reference()
    ).query(`SELECT sum(total_compressed_size)::BIGINT AS n FROM parquet_metadata(${quote(lineitem)})
             WHERE contains(${quote(joinedIf(''))}, path_in_schema)`)
  ).rows;
  const read = {};
  for (const [what, condition] of [
    ['nothing', "'%nobody says that%'"],
    ['something', "'%pending deposits%'"],
  ]) {
    const text = joinedIf(condition);
    const { s0, s1, s3 } = await plannedOf(sql, text, choosing);
    assert.ok(s0.tasks > 1 && s3.tasks === 3);
    const before = bytesReadBy(worker);
    const id = await run(text, choosing);
    read[what] = bytesReadBy(worker) - before;
    const tasks = what === 'nothing' ? { s2: 1, s3: 1 } : { s2: s0.tasks, s3: s3.tasks };
    const ran = { s1, s2: { tasks: tasks.s2, reads: ['s1'] }, s3: { tasks: tasks.s3, reads: ['s2'] } };
    assert.deepEqual(await ranOf(sql, id), ran, what);
  }
  // Besides the lines there are orders and the ends of files.
  const seen = `${JSON.stringify(read)}, and lines have ${columns}`;
  assert.ok(read.nothing < Number(columns) / 4, seen);
  assert.ok(read.something >= Number(columns), seen);
});

// All keys are different, so partitions are alike. With less than 2 MiB, tasks are not worth it (src/query/refine.c).
scenario('as many tasks aggregate as the bytes of partitions are worth', async (world) => {
  const { sql, run } = await clusterOfOne(world);
  const text = 'SELECT -l_orderkey AS k, count(*) AS n, max(l_comment) AS c FROM lineitem GROUP BY 1';
  const partitions = 8;
  const seen = [];
  for (const partition_bytes of [undefined, 1300000, 1]) {
    // Sizes are looked at if it is to be seen whether one task can do the rest.
    const options = { forced: true, partitions, tail_bytes: 1, ...(partition_bytes && { partition_bytes }) };
    const { s0, s1 } = await plannedOf(sql, text, options);
    assert.equal(s1.tasks, partitions);
    const id = await run(text, options);
    const written = (await sql.tasksOf(id, 's0')).reduce((sum, { bytes }) => sum + Number(bytes), 0);
    const wanted = Math.min(2 << 20, partition_bytes ?? Infinity);
    const each = Math.max(1, Math.floor(wanted / (written / partitions))); // partitions of one task
    const tasks = Math.ceil(partitions / each);
    assert.deepEqual(await ranOf(sql, id), { s0, s1: { tasks, reads: ['s0'] } }, JSON.stringify(options));
    seen.push(tasks);
  }
  assert.ok(seen[0] > 1 && seen[0] < seen[1] && seen[1] < seen[2] && seen[2] === partitions, `${seen}`);
});

// Joins that keep rows without a partner, over NULL keys, an empty table and one huge group.
const joins = {
  left: 'FROM facts f LEFT JOIN dims d ON f.k = d.k',
  right: 'FROM facts f RIGHT JOIN dims d ON f.k = d.k',
  full: 'FROM facts f FULL JOIN dims d ON f.k = d.k',
  'left to none': 'FROM facts f LEFT JOIN (SELECT k, txt AS name, NULL AS score FROM none) d ON f.k = d.k',
  'right to none': 'FROM (SELECT id, k FROM none) f RIGHT JOIN dims d ON f.k = d.k',
  'full with a residue': 'FROM facts f FULL JOIN dims d ON f.k = d.k AND f.id % 2 = 0',
};
const filters = {
  semi: 'SELECT f.id, f.k FROM facts f WHERE EXISTS (SELECT 1 FROM dims d WHERE d.k = f.k AND d.cls < 2)',
  anti: 'SELECT f.id, f.k FROM facts f WHERE NOT EXISTS (SELECT 1 FROM dims d WHERE d.k = f.k AND d.cls < 2)',
  'anti from small': 'SELECT d.name FROM dims d WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE d.k = f.k)',
  in: 'SELECT f.id FROM facts f WHERE f.k IN (SELECT k FROM dims WHERE cls = 1)',
  'not in with NULLs': 'SELECT f.id FROM facts f WHERE f.k NOT IN (SELECT k FROM dims)',
  'not in without NULLs': 'SELECT f.id FROM facts f WHERE f.k NOT IN (SELECT k FROM dims WHERE k IS NOT NULL)',
  'not in nothing': 'SELECT f.id FROM facts f WHERE f.k NOT IN (SELECT k FROM none)',
};
scenario('trap_09_joins_that_keep_rows_without_a_partner_do_so_when_they_are_distributed', async (world) => {
  const expected = await reference();
  const { sql } = await clusterWith(world, await ugly());
  const queries = {
    ...Object.fromEntries(
      Object.entries(joins).map(([name, from]) => [name, `SELECT f.id, f.k, d.k AS dk, d.name, d.score ${from}`]),
    ),
    ...filters,
  };
  for (const [name, text] of Object.entries(queries)) {
    const wanted = await expected.query(text);
    assert.ok(wanted.rows.length > 0 || name === 'not in with NULLs', `${name} has rows`);
    for (const options of [forced, broadcasting]) {
      const what = `${name} with ${JSON.stringify(options)}`;
      const id = await sql.submit(text, { options });
      assertSameTable(await sql.table(id), wanted, { what });
      assert.equal(await sql.whyNotCut(id), '', what);
    }
  }
});

// Structs without names have no plain form here, and SUMMARIZE cannot be described: these are compared as texts.
const odd = new Set(
  'constants-of-time constants-nested constant-row structs lists aggregates-other unions bits summarize'.split(' '),
);
const asTexts = (text) => `SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (${text})`;

// Whole processes, with the rows in memory and with all of them in files. tests/integration/query and
// tests/integration/sql compare more of them, inside of one process; here it is a tenth, chosen anew each time, and all of
// them, in all ways, in ./dev soak sql.
const allWays = [0, broadcasting.broadcast_bytes].flatMap((broadcast_bytes) =>
  [2, 5].map((partitions) => ({ ...forced, broadcast_bytes, partitions })),
);
for (const [what, memory] of [
  ['with all rows spilled', 1],
  ['with rows in memory', 1 << 30],
]) {
  scenario(
    `queries of TPC-H and over all features of the dialect, over workers ${what}, give what DuckDB alone gives`,
    { ms: isSoak ? 1800000 : 120000 },
    async (world) => {
      const expected = await reference();
      const tables = { ...(await tpch()), ...(await ugly()) };
      const { sql, workers } = await clusterWith(world, tables, { settings: { shuffle_memory_bytes: memory } });
      const folder = tables.facts.replace(/\/[^/]*$/, '');
      const queries = [...queriesOf('tpch'), ...queriesOf('wide').filter(({ isVolatile }) => !isVolatile)];
      const spills = new Spills(world, ...workers);
      let moved = 0;
      assert.ok(queries.length >= 22 + 150);
      const chosen = queries.filter(() => isSoak || world.random() < 0.1);
      for (const { name, sql: text, isOrdered, isEmpty } of chosen) {
        const filled = text.replaceAll('{ugly}', folder);
        const asked = odd.has(name) ? asTexts(filled) : filled;
        const wanted = await expected.query(asked);
        assert.equal(wanted.rows.length === 0, isEmpty, `${name} has rows, if it is not marked as empty`);
        for (const options of isSoak ? allWays : [world.any(allWays)]) {
          const what = `${name} with ${JSON.stringify(options)}`;
          const id = await sql.submit(asked, { options });
          assertSameTable(await sql.table(id), wanted, { ordered: isOrdered, what });
          if (memory === 1) moved += await spills.assertSpilled(sql, id, what);
          else assert.deepEqual(spills.of(id), [], what);
        }
      }
      assert.ok(memory !== 1 || moved > 0, 'rows of some queries lay in files');
      await nothingLeft(...workers);
    },
  );
}

scenario('rows between workers may be compressed, and are the same', async (world) => {
  const expected = await reference();
  const written = {};
  for (const compression of ['none', 'lz4']) {
    const cluster = await world.cluster({ settings: { shuffle_memory_bytes: compression === 'lz4' ? 1 : 0 } });
    for (const id of ['w1', 'w2']) {
      await cluster.startWorker({ id, slots: 2, args: ['--shuffle-compression', compression] });
    }
    const sql = new Sql(cluster);
    await sql.tables(await tpch());
    // The words of comments shrink; nothing of it can be left out.
    const text = `SELECT o_orderkey, o_comment, l_comment, l_quantity FROM orders JOIN lineitem ON o_orderkey = l_orderkey
                  WHERE l_shipdate < DATE '1993-01-01'`;
    const id = await sql.submit(text, { options: forced });
    assertSameTable(await sql.table(id), await expected.query(text), { what: compression });
    const maps = (await sql.tasks(id)).filter(({ stage }) => stage === 's0' || stage === 's1');
    written[compression] = maps.reduce((sum, { bytes }) => sum + Number(bytes), 0);
    await cluster.coordinator.stop();
  }
  assert.ok(written.none > 0 && written.lz4 < 0.8 * written.none, JSON.stringify(written));
});
