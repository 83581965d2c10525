// SQL from the command line and in trees: formats, parameters, explain, named tables, COPY and CREATE TABLE.
import fs from 'node:fs';
import path from 'node:path';
import {
  assert,
  command,
  quick,
  root,
  rounds,
  scenario,
  scenarioWithEachStore,
  sleep,
  until,
} from './harness.js';
import { Sql } from './sql-cluster.js';
import { dataOf, queriesOf, quote, Reference, reference } from './sql-reference.js';
import { assertSameTable, tableFromArrow } from './sql-table.js';

const tpch = () => dataOf('tpch', { scale: 0.02, row_group: 4096 });

// What succeeds: its stdout.
async function ok(cluster, args, options) {
  const { code, stdout, stderr } = await cluster.cli(args, options);
  assert.equal(code, 0, `capstan ${args.join(' ')}: ${stderr}`);
  return stdout;
}

async function fails(cluster, args, code, pattern, options) {
  const ended = await cluster.cli(args, options);
  assert.equal(ended.code, code, `capstan ${args.join(' ')}: ${ended.stdout}${ended.stderr}`);
  assert.match(ended.stderr, /^capstan: /m);
  assert.match(ended.stderr, pattern);
  return ended;
}

const mixed = `SELECT * FROM (VALUES (1, 'a,"b"', true, 1.50::DECIMAL(5, 2), DATE '2020-02-29', 9223372036854775807),
                                     (2, NULL, false, -0.05, NULL, -1)) t(n, s, b, d, day, big) ORDER BY n`;

scenario('capstan sql prints each format', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const table = await ok(cluster, ['sql', mixed]);
  for (const text of ['n', 'day', 'a,"b"', '1.50', '-0.05', '2020-02-29', '9223372036854775807']) {
    assert.ok(table.includes(text), `${text} is in\n${table}`);
  }
  assert.equal(
    await ok(cluster, ['sql', mixed, '-o', 'csv']),
    'n,s,b,d,day,big\n1,"a,""b""",true,1.50,2020-02-29,9223372036854775807\n2,,false,-0.05,,-1\n',
  );
  assert.deepEqual(JSON.parse(await ok(cluster, ['sql', mixed, '-o', 'json'])), {
    columns: [
      { name: 'n', type: 'INTEGER' },
      { name: 's', type: 'VARCHAR' },
      { name: 'b', type: 'BOOLEAN' },
      { name: 'd', type: 'DECIMAL(5,2)' },
      { name: 'day', type: 'DATE' },
      { name: 'big', type: 'BIGINT' },
    ],
    rows: [
      [1, 'a,"b"', true, '1.50', '2020-02-29', '9223372036854775807'],
      [2, null, false, '-0.05', null, -1],
    ],
  });
  const lines = (await ok(cluster, ['sql', mixed, '-o', 'jsonl']))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual(lines[1], { n: 2, s: null, b: false, d: '-0.05', day: null, big: -1 });
  const expected = await reference();
  const file = path.join(world.folder(), 'rows.parquet');
  await ok(cluster, ['sql', mixed, '-o', 'parquet', '--out', file]);
  assertSameTable(await expected.query(`FROM ${quote(file)}`), await expected.query(mixed), { ordered: true });
  const arrow = path.join(world.folder(), 'rows.arrow');
  await ok(cluster, ['sql', mixed, '-o', 'arrow', '--out', arrow]);
  assertSameTable(tableFromArrow(fs.readFileSync(arrow)), await expected.query(mixed), { ordered: true });
});

// The worker that has the rows is stopped once some have come, so that there is always a middle in which to interrupt. They come
// through this process: if it is held up, so are they.
scenario('Ctrl-C while rows are written leaves no part of a file, and says so once', async (world) => {
  const cluster = await world.cluster();
  const { address } = await world.proxy(cluster.address);
  const worker = await cluster.startWorker({ id: 'w1', args: ['--slots', '1'] });
  const text = 'SELECT i, hash(i) AS h, i::VARCHAR AS s FROM range(4000000) r(i)';
  const id = (await ok(cluster, ['sql', text, '--detach'])).trim();
  await cluster.end(id);
  const cases = [
    ['results', id, 'csv', 'SIGINT', /^capstan: interrupted\n$/],
    ['results', id, 'arrow', 'SIGTERM', /^capstan: interrupted\n$/],
    ['results', id, 'parquet', 'SIGINT', /^capstan: interrupted\n$/],
    ['sql', text, 'csv', 'SIGINT', /^capstan: interrupted; job \S+ is succeeded\n$/],
  ];
  for (const [verb, what, format, signal, said] of cases) {
    const folder = world.folder(`${verb}-${format}`);
    const sizeOf = (name) => fs.statSync(path.join(folder, name), { throwIfNoEntry: false })?.size ?? 0;
    const bytes = () => fs.readdirSync(folder).reduce((sum, name) => sum + sizeOf(name), 0);
    const client = world.capstan(verb, [verb, what, '-o', format, '--out', path.join(folder, 'rows')], {
      env: { CAPSTAN_SERVER: address },
    });
    client.isClient = true;
    await until('some of it is written', () => bytes() > 0);
    worker.signal('SIGSTOP');
    client.signal(signal);
    const { code } = await client.ended;
    worker.signal('SIGCONT');
    assert.equal(code, 130, `${verb} ${format}: ${client.stderr}`);
    assert.match(client.stderr, said, `${verb} ${format}`);
    assert.deepEqual(fs.readdirSync(folder), [], `${verb} ${format}`);
  }
});

scenario('capstan sql takes SQL from an argument, a file or stdin, and parameters', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const csv = ['-o', 'csv'];
  const file = world.file('q.sql', '-- a comment\nSELECT 2 AS n;\n');
  assert.equal(await ok(cluster, ['sql', '-f', file, ...csv]), 'n\n2\n');
  assert.equal(await ok(cluster, ['sql', ...csv], { stdin: 'SELECT 3 AS n' }), 'n\n3\n');
  assert.equal(
    await ok(cluster, ['sql', 'SELECT $a::INTEGER + 1 AS n, $b AS s', '--param', 'a=41', '--param', "b=it's", ...csv]),
    "n,s\n42,it's\n",
  );
  await fails(cluster, ['sql', 'SELECT $a AS n'], 1, /parameter/i);
  await fails(cluster, ['sql', 'SELEKT 1'], 1, /SELEKT/);
  await fails(cluster, ['sql', 'SELECT 1', '-o', 'papyrus'], 2, /papyrus/);
  await fails(cluster, ['sql', '-f', `${file}.nope`], 2, /nope/);
  const id = (await ok(cluster, ['sql', 'SELECT 5 AS n', '--detach'])).trim();
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.equal(await ok(cluster, ['results', id, ...csv]), 'n\n5\n');
});

scenario('explain shows the stages, analyze what they did', async (world) => {
  const cluster = await world.cluster({ workers: 2, settings: { single_task_bytes: 0 } });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const [q1, q3] = [queriesOf('tpch')[0], queriesOf('tpch')[2]];
  const shown = await ok(cluster, ['sql', q3.sql, '--explain']);
  assert.match(shown, /stage \d+: .*result/);
  assert.match(shown, /hash by|broadcast/);
  assert.match(shown, /scan lineitem/);
  const { stages } = JSON.parse(await ok(cluster, ['sql', q1.sql, '--explain', '-o', 'json']));
  assert.ok(stages.length >= 2);
  assert.deepEqual((await cluster.client.call('ListTables')).tables.length, 8);
  const analyzed = await cluster.cli(['sql', q1.sql, '--analyze']);
  assert.equal(analyzed.code, 0, analyzed.stderr);
  assert.match(analyzed.stdout + analyzed.stderr, /rows/);
  assert.match(analyzed.stdout + analyzed.stderr, /ms/);
  assert.match(analyzed.stdout, /stage \d+: 1 task, 4 rows, [^\n]*result/);
  assert.doesNotMatch(analyzed.stdout, /not run/);
  // A query that is one task says why.
  const one = await ok(cluster, ['sql', 'SELECT 42 AS n', '--explain']);
  assert.match(one, /^one task: it reads no files\nstage \d+: 1 task; result/);
});

// What cannot be cut has the rows of one DuckDB; what is no query, and what it would have made known, is refused clearly.
scenario('EXPLAIN and a database file are for one task, ATTACH and its tables are refused', async (world) => {
  const expected = await reference();
  const cluster = await world.cluster({ workers: 2 });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const options = { forced: true, single_task_bytes: 0 };
  const isOneTask = async (text, why) => {
    const id = await sql.submit(text, { options });
    const { rows } = await sql.table(id);
    assert.deepEqual((await sql.stages(id)).map(({ name, tasks }) => ({ name, tasks })), [{ name: 'plan', tasks: 1 }]);
    const [[shown]] = await sql.rows(text, { options, explain: true });
    assert.ok(shown.startsWith(`one task: ${why}\n`), shown);
    return rows;
  };
  const [[key, plan]] = await isOneTask('EXPLAIN SELECT count(*) FROM orders', 'it is not a plain SELECT');
  assert.equal(key, 'physical_plan');
  assert.match(plan, /AGGREGATE[^]*PARQUET/);
  const file = path.join(world.folder('data'), 'local.duckdb');
  await expected.run(`ATTACH ${quote(file)} AS made; CREATE TABLE made.t AS SELECT i FROM range(1000) r(i); DETACH made`);
  assert.deepEqual(await isOneTask(`SELECT count(*) AS n, sum(i)::BIGINT AS s FROM ${quote(file)}`, 'it reads no files'), [
    ['1000', '499500'],
  ]);
  await fails(cluster, ['sql', `ATTACH ${quote(file)} AS local`], 1, /ATTACH: statements of this kind cannot be run/);
  await fails(cluster, ['sql', 'SELECT count(*) FROM local.t'], 1, /Table with name "local.t" does not exist/);
});

// By what the job's tasks say themselves, for each stage of the plan: the slowest task's time by the median one's, or null.
async function skewsOf(cluster, id) {
  const { stages } = await cluster.client.status(id);
  const tasks = await cluster.client.tasks(id);
  const ratio = (stage) => {
    const took = tasks
      .filter(({ ref }) => ref.stage_id === stage.stage_id)
      .map(({ started_at_ms, finished_at_ms }) => Number(finished_at_ms) - Number(started_at_ms))
      .sort((a, b) => a - b);
    const median = (took[(took.length - 1) >> 1] + took[took.length >> 1]) / 2;
    return took.length > 1 && median > 0 ? took.at(-1) / median : null;
  };
  return Object.fromEntries(stages.map((stage) => [stage.name, ratio(stage)]));
}

// Sorted by partition: all rows of a key are one task's work. With one key for nearly all rows, that task is slow.
scenario('analyze says how much slower than others the slowest task of a stage was', async (world) => {
  const expected = await reference();
  const folder = world.folder('data');
  const cluster = await world.cluster({ workers: 2 });
  const settings = ['forced=true', 'partitions=3', 'broadcast_bytes=0'].flatMap((setting) => ['--set', setting]);
  for (const [name, key] of [
    ['even', 'i % 300'],
    ['uneven', 'CASE WHEN i % 100 = 0 THEN i % 300 ELSE 7 END'],
  ]) {
    const file = quote(`${folder}/${name}.parquet`);
    await expected.run(`COPY (SELECT ${key} AS k, i AS v FROM range(300000) r(i)) TO ${file} (ROW_GROUP_SIZE 20480)`);
    const text = `SELECT k, n FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY md5(v::VARCHAR)) AS n
                  FROM ${file}) WHERE n % 100 = 1`;
    // Where one task has nearly all rows, it takes longer than others, unless these are held up: then it is run again.
    const { id, stages, sorting } = await until(`${name}: the slowest task is seen`, async () => {
      const { job_id, stages: all } = await cluster.json('sql', text, '--analyze', ...settings);
      const found = all.find(({ what }) => /window/.test(what));
      return (name === 'even' || found.skew > 2) && { id: job_id, stages: all, sorting: found };
    });
    const wanted = await skewsOf(cluster, id);
    assert.deepEqual(
      stages.map((stage) => [`s${stage.id}`, stage.skew?.toFixed(6)]),
      stages.map((stage) => [`s${stage.id}`, wanted[`s${stage.id}`]?.toFixed(6)]),
    );
    assert.equal(sorting.tasks, 3);
    const rows = (await new Sql(cluster).tasksOf(id, `s${sorting.id}`)).map((task) => Number(task.rows));
    const share = Math.max(...rows) / rows.reduce((sum, n) => sum + n);
    assert.ok(name === 'even' ? share < 0.6 : share > 0.9, `${name}: ${rows}`);
    // For people, with one digit behind the point, and only where there are several tasks.
    const shown = await ok(cluster, ['sql', text, '--analyze', ...settings]);
    const again = await skewsOf(cluster, /^job (\S+) took/.exec(shown)[1]);
    const lines = [...shown.matchAll(/stage (\d+): \d+ tasks?, [^;\n]*?(?:, skew ([\d.]+))?;/g)];
    assert.equal(lines.length, stages.length, shown);
    for (const [line, stage, skew] of lines) {
      const is = again[`s${stage}`];
      assert.ok(is === null ? skew === undefined : Math.abs(Number(skew) - is) < 0.0501, `${line} ${is}`);
    }
  }
});

scenarioWithEachStore('named tables: add, list, use, replace, remove', async (world, store) => {
  const expected = await reference();
  const folder = world.folder('data');
  await expected.run(`COPY (SELECT i AS a FROM range(10) r(i)) TO ${quote(`${folder}/one.parquet`)}`);
  await expected.run(`COPY (SELECT i AS a FROM range(10, 30) r(i)) TO ${quote(`${folder}/two.parquet`)}`);
  await expected.run(`COPY (SELECT i AS a, 'x' AS b FROM range(7) r(i)) TO ${quote(`${folder}/rows.csv`)} (HEADER)`);
  fs.writeFileSync(path.join(folder, 'rows.json'), '{"a":1}\n{"a":2}\n');
  const cluster = await world.cluster({ store, workers: 1, settings: { leader_ttl_ms: 1000 } });
  const count = async (table) =>
    ok(cluster, ['sql', `SELECT count(*) AS n, sum(a)::BIGINT AS s FROM ${table}`, '-o', 'csv']);
  await ok(cluster, ['table', 'add', 'numbers', `${folder}/*.parquet`]);
  await ok(cluster, ['table', 'add', 'lines', `${folder}/rows.csv`, '--format', 'csv']);
  await ok(cluster, ['table', 'add', 'objects', `${folder}/rows.json`, '--format', 'json']);
  assert.equal(await count('numbers'), 'n,s\n30,435\n');
  assert.equal(await count('lines'), 'n,s\n7,21\n');
  assert.equal(await count('objects'), 'n,s\n2,3\n');
  const { tables } = await cluster.json('table', 'list');
  assert.deepEqual(tables.map(({ name }) => name).sort(), ['lines', 'numbers', 'objects']);
  // They outlive the coordinator.
  await cluster.coordinator.kill();
  await cluster.startCoordinator();
  assert.equal(await count('numbers'), 'n,s\n30,435\n');
  await ok(cluster, ['table', 'add', 'numbers', `${folder}/one.parquet`]);
  assert.equal(await count('numbers'), 'n,s\n10,45\n');
  await ok(cluster, ['table', 'rm', 'numbers']);
  await fails(cluster, ['sql', 'SELECT * FROM numbers'], 1, /numbers/);
  await fails(cluster, ['table', 'rm', 'numbers'], 2, /numbers/);
});

// ---- trees ----

const query = (name, sql, more = {}) => ({ name, executor: 'sql', inputs: { sql }, ...more });

scenarioWithEachStore('SQL in a tree: rows go on to the next tasks', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 1 });
  const { state, message, tasks } = await cluster.run([
    command('extract', 'echo \'{"rows": 3}\''),
    query('count', "SELECT 41 + 1 AS n, DATE '2020-01-01' AS day, 1.5::DECIMAL(3,1) AS d, NULL AS nothing", {
      depends_on: ['extract'],
    }),
    { ...command('say', '', { depends_on: ['count'] }), inputs: { argv: ['echo', '[${results.count.rows[0].n}]'] } },
    query('chained', 'SELECT ${results.count.rows[0].n} * 2 AS n', { depends_on: ['count'] }),
    query('many', 'SELECT i FROM range(100000) r(i)'),
  ]);
  assert.equal(state, 'succeeded', message);
  assert.equal(tasks.count.result.row_count, 1);
  assert.equal(tasks.count.result.rows[0].n, 42);
  assert.equal(tasks.count.result.rows[0].day, '2020-01-01');
  assert.equal(tasks.count.result.rows[0].nothing, null);
  assert.equal(tasks.say.result.json[0], 42);
  assert.equal(tasks.chained.result.rows[0].n, 84);
  // All rows are counted, not all are kept in the tree; the child job has them.
  assert.equal(tasks.many.result.row_count, 100000);
  assert.ok(tasks.many.result.rows.length < 100000);
  const sql = new Sql(cluster);
  assert.equal((await sql.table(tasks.many.result.job_id)).rows.length, 100000);
});

scenario('SQL in a tree takes no slot: a tree of it runs on one', async (world) => {
  const cluster = await world.cluster();
  await cluster.startWorker({ id: 'w1', slots: 1 });
  const { state, message } = await cluster.run(
    Array.from({ length: 20 }, (_, i) =>
      query(`q${i}`, `SELECT ${i} AS n`, i > 0 ? { depends_on: [`q${Math.floor(i / 2)}`] } : {}),
    ),
  );
  assert.equal(state, 'succeeded', message);
});

scenario('failure and cancel travel between a tree and its query, both ways', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: quick });
  // The query fails: its task fails, with its words, and what depends on it is skipped.
  const failed = await cluster.run([query('bad', 'SELECT * FROM nowhere'), sleep('after', 1, { depends_on: ['bad'] })]);
  assert.equal(failed.state, 'failed');
  assert.match(failed.tasks.bad.message, /nowhere/);
  assert.equal(failed.tasks.after.state, 'skipped');
  const endless = 'SELECT sum(hash(a.i + b.i * 7)) AS s FROM range(100000000) a(i), range(100000) b(i)';
  const childOf = async () =>
    until('the query runs', async () => {
      const { jobs } = await cluster.client.call('ListJobs', { state: 'running', limit: 10 });
      return jobs.find(({ kind }) => kind === 'query');
    });
  // The tree is canceled: so is its query.
  const tree = await cluster.submit([query('long', endless)]);
  const child = await childOf();
  await cluster.client.cancel(tree);
  assert.equal((await cluster.end(child.query_id)).state, 'canceled');
  // The query is canceled: its task fails.
  const other = await cluster.submit([query('long', endless)]);
  await cluster.client.cancel((await childOf()).query_id, 'by hand');
  assert.equal((await cluster.end(other)).state, 'failed');
  assert.match((await cluster.tasks(other)).long.message, /cancel/);
  // Its time is over: so is the query's.
  const timed = await cluster.submit([query('long', endless, { timeout_ms: 5000, retry: { max_attempts: 1 } })]);
  const timedChild = await childOf();
  assert.equal((await cluster.end(timed)).state, 'failed');
  assert.match((await cluster.tasks(timed)).long.message, /timed out after 5000 ms/);
  assert.equal((await cluster.end(timedChild.query_id)).state, 'canceled');
  await until('all slots are free', async () => (await cluster.nodes()).w1.running_tasks === 0);
});

scenario('a coordinator that is killed finds the query of a tree again', async (world) => {
  const cluster = await world.cluster({ settings: quick });
  const id = await cluster.submit([query('q', 'SELECT 6 * 7 AS n')]);
  await until('the query waits for a worker', async () => {
    const { jobs } = await cluster.client.call('ListJobs', { limit: 10 });
    return jobs.some(({ kind }) => kind === 'query');
  });
  await cluster.coordinator.kill();
  await cluster.startCoordinator();
  await cluster.startWorker({ id: 'w1' });
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.equal((await cluster.tasks(id)).q.result.rows[0].n, 42);
  const { jobs } = await cluster.client.call('ListJobs', { limit: 10 });
  assert.equal(jobs.length, 2, 'one tree, one query');
});

// The same files as those that the planner's own tests are compared with (tests/integration/query). One worker plans, for
// what DuckDB thinks of a file also depends on whether it has seen it before; so none may be so new that it is planned twice.
scenario('capstan sql --explain shows the plans of TPC-H as in the golden files', async (world) => {
  const folder = world.folder('tpch');
  const tables = await (await Reference.open()).generate('tpch', folder, { scale: 0.01, row_group: 4096 });
  const files = [folder, ...fs.readdirSync(folder).map((name) => path.join(folder, name))];
  await until('the files have settled', () => files.every((file) => Date.now() - fs.statSync(file).ctimeMs > 2100));
  const cluster = await world.cluster();
  await cluster.startWorker({ id: 'w1', slots: 4 });
  await new Sql(cluster).tables(tables);
  const settings = ['forced=true', 'partitions=4', 'broadcast_bytes=65536'].flatMap((setting) => ['--set', setting]);
  const queries = queriesOf('tpch');
  assert.equal(queries.length, 22);
  for (const { name, sql } of queries) {
    const golden = fs.readFileSync(path.join(root, `tests/data/explain/${name}.txt`), 'utf8');
    assert.equal(await ok(cluster, ['sql', sql, '--explain', ...settings]), golden, name);
  }
});

// ---- writing ----

scenario('COPY TO writes all or nothing', async (world) => {
  const expected = await reference();
  const cluster = await world.cluster({ workers: 2, settings: { ...quick, single_task_bytes: 0 } });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const folder = world.folder('out');
  const text = 'SELECT o_orderkey, o_totalprice, o_orderdate FROM orders WHERE o_orderkey % 3 = 0';
  await ok(cluster, ['sql', `COPY (${text}) TO ${quote(`${folder}/good`)} (FORMAT parquet)`]);
  assertSameTable(
    await expected.query(`FROM read_parquet(${quote(`${folder}/good/*.parquet`)})`),
    await expected.query(text),
  );
  // So does what is one task.
  const small = `${folder}-of-one-task`;
  await ok(cluster, ['sql', `COPY (FROM nation) TO ${quote(small)} (FORMAT parquet)`, '--set', 'single_task_bytes=1000000']);
  assertSameTable(await expected.query(`FROM read_parquet(${quote(`${small}/*.parquet`)})`), await expected.query('FROM nation'));
  // The target must not exist; what is there stays.
  await fails(cluster, ['sql', `COPY (${text}) TO ${quote(`${folder}/good`)} (FORMAT parquet)`], 1, /exist/);
  assertSameTable(
    await expected.query(`FROM read_parquet(${quote(`${folder}/good/*.parquet`)})`),
    await expected.query(text),
  );
  // One bad row: nothing at all.
  const bad = "SELECT CASE WHEN o_orderkey = 999 THEN error('a bad row') ELSE o_orderkey END AS k FROM orders";
  await fails(cluster, ['sql', `COPY (${bad}) TO ${quote(`${folder}/bad`)} (FORMAT parquet)`], 1, /a bad row/);
  await until('nothing is left beside the good one', () => fs.readdirSync(folder).join() === 'good').catch((error) => {
    throw new Error(`${error.message}: ${fs.readdirSync(folder, { recursive: true })}`);
  });
});

scenario('COPY TO is whole while workers are killed', { ms: 180000 }, async (world) => {
  const expected = await reference();
  const settings = { ...quick, single_task_bytes: 0, max_task_attempts: 1000, blacklist_failure_threshold: 1000000 };
  const cluster = await world.cluster({ settings: { ...settings, max_fetch_recoveries: 64 } });
  const workers = {};
  for (const id of ['w1', 'w2', 'w3']) workers[id] = await cluster.startWorker({ id });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const folder = world.folder('out');
  const text =
    'SELECT o_orderkey, count(*) AS n, sum(l_quantity) AS q FROM orders, lineitem WHERE o_orderkey = l_orderkey GROUP BY ALL';
  const wanted = await expected.query(text);
  let round = 0;
  let repeated = 0; // tasks that had to run more than once
  for (; round < rounds(3) || (repeated === 0 && round < 30); round++) {
    const id = await sql.submit(`COPY (${text}) TO ${quote(`${folder}/r${round}`)} (FORMAT parquet)`, {
      options: { forced: true, single_task_bytes: 0, partitions: 4, broadcast_bytes: 0 },
    });
    // The moment is the subject: some tasks have ended, and somebody who has another one is hit.
    const ended = Math.floor(world.random() * 8);
    await sql.manyReach(id, ended, 'succeeded');
    const busy = (await sql.manyReach(id, 1, 'running')).map(({ worker }) => worker);
    const victim = workers[world.any(busy.length > 0 ? busy : Object.keys(workers))];
    await victim.kill();
    workers[victim.id] = await cluster.startWorker({ id: victim.id, data: victim.folder });
    const { state, message } = await cluster.end(id);
    assert.equal(state, 'succeeded', message);
    assertSameTable(await expected.query(`FROM read_parquet(${quote(`${folder}/r${round}/*.parquet`)})`), wanted);
    repeated += (await sql.repeated(id)).length;
  }
  assert.ok(repeated > 0, 'no worker that was killed has cost an attempt');
  const names = () => fs.readdirSync(folder).sort().join();
  const all = Array.from({ length: round }, (_, i) => `r${i}`)
    .sort()
    .join();
  await until(`only whole folders are there: ${all}`, () => names() === all).catch((error) => {
    throw new Error(`${error.message}: ${names()}`);
  });
});

// Two tasks that write. The second tries again and again until its file is there, and the job is not over until then.
async function copyThatWaits(world) {
  const [data, out] = [world.folder('data'), world.folder('out')];
  const file = (name) => path.join(data, `${name}.parquet`);
  await (await reference()).run(`COPY (SELECT i AS k FROM range(1000) r(i)) TO ${quote(file('a'))}`);
  const to = path.join(out, 'made');
  const plan = {
    stages: [
      {
        id: 0,
        sql: 'SELECT * FROM read_parquet({{split}})',
        splits: [{ file: file('a') }, { file: file('b') }],
        write: { to, format: 'parquet' },
        output: { exchange: 'gather' },
      },
      { id: 1, inputs: { files: 0 }, sql: 'SELECT file, rows FROM files', publish: { to }, output: { exchange: 'result' } },
    ],
  };
  const settings = { ...quick, max_task_attempts: 1000, blacklist_failure_threshold: 1000000 };
  const cluster = await world.cluster({ settings: { ...settings, max_fetch_recoveries: 64 } });
  const sql = new Sql(cluster);
  // The worker of the first task, when that has written its file.
  const written = (id) =>
    until('the first task has written', async () => {
      const [task] = await sql.tasksOf(id, 's0');
      return task?.state === 'succeeded' && task.worker;
    });
  return { cluster, sql, plan, out, last: file('b'), written };
}

scenario('what a COPY has left goes when its worker was killed and its job has failed', async (world) => {
  const { cluster, sql, plan, out, last, written } = await copyThatWaits(world);
  const workers = {};
  for (const id of ['w1', 'w2']) workers[id] = await cluster.startWorker({ id, slots: 1 });
  const id = await sql.submit(plan);
  const writer = await written(id);
  assert.deepEqual(fs.readdirSync(out), [`.made.capstan-${id}`]);
  await workers[writer].kill();
  fs.writeFileSync(last, 'this is no Parquet');
  const { state, message } = await cluster.end(id);
  assert.equal(state, 'failed', message);
  await until('another worker of the job has removed it', () => fs.readdirSync(out).length === 0);
});

scenario('what a COPY has left goes when its only worker was killed and comes back', async (world) => {
  const { cluster, sql, plan, out, last, written } = await copyThatWaits(world);
  let worker = await cluster.startWorker({ id: 'w1' });
  const restart = async () => {
    await worker.kill();
    worker = await cluster.startWorker({ id: 'w1', data: worker.folder });
  };
  // What is over goes.
  const id = await sql.submit(plan);
  await written(id);
  await worker.kill();
  await cluster.client.cancel(id);
  assert.equal((await cluster.end(id)).state, 'canceled');
  assert.deepEqual(fs.readdirSync(out), [`.made.capstan-${id}`], 'nobody is there to remove it');
  await restart();
  await until('it is gone', () => fs.readdirSync(out).length === 0);
  // What is not over stays.
  const second = await sql.submit(plan);
  await written(second);
  await restart();
  await (await reference()).run(`COPY (SELECT i AS k FROM range(1000, 1500) r(i)) TO ${quote(last)}`);
  const { state, message } = await cluster.end(second);
  assert.equal(state, 'succeeded', message);
  await until('only the folder is there', () => fs.readdirSync(out).join() === 'made');
  const { rows } = await (await reference()).query(`SELECT count(DISTINCT k) AS n FROM ${quote(`${out}/made/*.parquet`)}`);
  assert.deepEqual(rows, [['1500']]);
});

scenario('CREATE TABLE AS makes a named table, or nothing', async (world) => {
  const expected = await reference();
  const warehouse = world.folder('warehouse');
  const cluster = await world.cluster({ settings: { ...quick, single_task_bytes: 0 } });
  await cluster.coordinator.stop();
  await cluster.startCoordinator({ args: ['--warehouse', warehouse] });
  for (const id of ['w1', 'w2']) await cluster.startWorker({ id });
  const sql = new Sql(cluster);
  await sql.tables(await tpch());
  const text = 'SELECT o_orderpriority AS p, count(*) AS n FROM orders GROUP BY ALL';
  await ok(cluster, ['sql', `CREATE TABLE priorities AS ${text}`]);
  assertSameTable(await sql.query('FROM priorities'), await expected.query(text));
  await fails(cluster, ['sql', `CREATE TABLE priorities AS ${text}`], 1, /exist/);
  const before = await cluster.json('table', 'list');
  await fails(cluster, ['sql', `CREATE TABLE Orders AS ${text}`], 1, /data set 'orders' already.*table rm orders/s);
  assert.deepEqual(await cluster.json('table', 'list'), before);
  await fails(cluster, ['sql', "CREATE TABLE broken AS SELECT error('a bad row') AS e FROM orders"], 1, /a bad row/);
  const { tables } = await cluster.json('table', 'list');
  assert.ok(tables.some(({ name }) => name === 'priorities'));
  assert.ok(!tables.some(({ name }) => name === 'broken'));
  await until('only the good one is in the warehouse', () => fs.readdirSync(warehouse).join() === 'priorities');
});
