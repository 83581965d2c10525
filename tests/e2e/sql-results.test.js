// Results of queries as other programs get them: FetchQueryResults and `capstan sql -o arrow`, read by apache-arrow.
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, grpcStatus, scenario, scenarioWithEachStore, slowness, until } from './harness.js';
import { forced, Gate, nothingLeft, plugin, Sql } from './sql-cluster.js';
import { dataOf, quote, reference } from './sql-reference.js';
import { assertSameTable, drainArrow, tableFromArrow } from './sql-table.js';

const ugly = () => dataOf('ugly', { rows: 6000 });

async function twoWorkers(world, options = {}) {
  const cluster = await world.cluster({ workers: 2, ...options });
  return { cluster, sql: new Sql(cluster) };
}

// One row with a value of every type, one with the extremes, one with NULLs.
const everyType = `SELECT * FROM (VALUES
  (true, (-128)::TINYINT, (-32768)::SMALLINT, (-2147483648)::INTEGER, (-9223372036854775808)::BIGINT, 255::UTINYINT,
   65535::USMALLINT, 4294967295::UINTEGER, 18446744073709551615::UBIGINT, 170141183460469231731687303715884105727::HUGEINT,
   1.5::FLOAT, (-0.1)::DOUBLE, (-12.34)::DECIMAL(4, 2), 123456789.123456789::DECIMAL(18, 9),
   (-12345678901234567890123456789.123456789)::DECIMAL(38, 9), 'zürich 🚀', '\\x00\\xFF'::BLOB, DATE '0044-03-15 (BC)',
   TIME '23:59:59.999999', TIMESTAMP '1969-12-31 23:59:59.999999', '2020-03-29 01:30:00+02'::TIMESTAMPTZ,
   TIMESTAMP_S '2001-09-09 01:46:40', TIMESTAMP_MS '2001-09-09 01:46:40.123', TIMESTAMP_NS '2001-09-09 01:46:40.123456789',
   INTERVAL '14 months 3 days 4 hours', 'f0e1d2c3-0000-4000-8000-00000000002a'::UUID, [1, NULL, 3],
   {'a': 1, 'b': {'c': 'x', 'd': [true, NULL]}}, MAP {'k': 1.5::DECIMAL(3, 1), 'l': NULL}, [[1, 2], [], NULL]),
  (false, 127, 32767, 2147483647, 9223372036854775807, 0, 0, 0, 0, -170141183460469231731687303715884105728,
   'inf'::FLOAT, 'nan'::DOUBLE, 99.99, -0.000000001, 0, '', '', 'infinity'::DATE, TIME '00:00:00', 'infinity'::TIMESTAMP,
   '-infinity'::TIMESTAMPTZ, TIMESTAMP_S '1900-01-01', TIMESTAMP_MS '1900-01-01', TIMESTAMP_NS '1900-01-01',
   INTERVAL '-1 month', '00000000-0000-0000-0000-000000000000', [], {'a': NULL, 'b': {'c': NULL, 'd': []}}, MAP {}, []),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
) t(bo, i8, i16, i32, i64, u8, u16, u32, u64, i128, f32, f64, d4, d18, d38, txt, bin, day, tm, ts, tz, ts_s, ts_ms, ts_ns, span, uid,
    list, obj, map, lists)`;

scenario('apache-arrow reads every type of a result as DuckDB has it', async (world) => {
  const { cluster, sql } = await twoWorkers(world);
  const expected = await (await reference()).query(everyType);
  const id = await sql.submit(everyType);
  assertSameTable(await sql.table(id), expected, { ordered: true });
  // The same from the command line, on stdout and in a file.
  const file = path.join(world.folder(), 'rows.arrow');
  const { code, stderr } = await cluster.cli(['sql', everyType, '-o', 'arrow', '--out', file]);
  assert.equal(code, 0, stderr);
  assertSameTable(tableFromArrow(fs.readFileSync(file)), expected, { ordered: true });
});

// Types that other systems do not have: SQL for a number i, NULL for each sixth. DuckDB has no CASE for arrays.
const orNull = (value) => `CASE WHEN i % 6 = 5 THEN NULL ELSE ${value} END`;
const rareTypes = {
  enums: orNull(`(['low', 'mid', 'high'])[1 + i % 3]::ENUM('low', 'mid', 'high')`),
  arrays: `(${orNull('[i % 5, NULL, i % 2]')})::BIGINT[3]`,
  'arrays of texts': `(${orNull(`['a' || i % 5, 'b']`)})::VARCHAR[2]`,
  unions: orNull(`CASE WHEN i % 2 = 0 THEN (i % 7)::INTEGER::UNION(num INTEGER, str VARCHAR)
                  ELSE ('s' || i % 5)::UNION(num INTEGER, str VARCHAR) END`),
  bits: orNull(`bin(i % 11)::BIT`),
  'times with zones': orNull(`('12:34:5' || i % 7 || '+0' || i % 3 || ':30')::TIMETZ`),
  'unsigned hugeints': orNull(`340282366920938463463374607431768211455::UHUGEINT - (i % 9)::UHUGEINT`),
  hugeints: orNull(`(i % 9)::HUGEINT * -18446744073709551616`),
  bignums: orNull(`repeat('9', 50 + (i % 4)::INTEGER)::BIGNUM`),
  seconds: orNull(`make_timestamp(i % 6 * 1000000)::TIMESTAMP_S`),
  milliseconds: orNull(`make_timestamp(i % 6 * 1000)::TIMESTAMP_MS`),
  nanoseconds: orNull(`make_timestamp_ns(i % 6)`),
  'times of nanoseconds': orNull(`('12:00:00.00000000' || i % 6)::TIME_NS`),
  intervals: orNull(`to_months((i % 3)::INTEGER) + to_days((i % 4)::INTEGER)`),
  uuids: orNull(`('00000000-0000-0000-0000-00000000000' || i % 8)::UUID`),
  blobs: orNull(`('x' || i % 8)::BLOB`),
  json: orNull(`('{"a": ' || i % 8 || '}')::JSON`),
  'lists of rare ones': orNull(`[{'b': bin(i % 3)::BIT, 't': '12:00:00+01'::TIMETZ}, NULL]`),
  'structs of rare ones': `{'e': ${orNull(`(['x', 'y'])[1 + i % 2]::ENUM('x', 'y')`)}, 'a': (${orNull('[i % 2, 7]')})::BIGINT[2]}`,
};
const names = Object.keys(rareTypes);
const rare = (what, source = 'range(12) r(i)') => `SELECT i, ${rareTypes[what]} AS x FROM ${source}`;
const allRare = (source = 'range(12) r(i)', but = []) =>
  `SELECT i, ${names
    .filter((what) => !but.includes(what))
    .map((what) => `${rareTypes[what]} AS "${what}"`)
    .join(', ')} FROM ${source}`;
// DuckDB's package for Node has not all digits of a BIGNUM.
const shown = (text) => `SELECT * REPLACE (bignums::VARCHAR AS bignums) FROM (${text})`;
const asTexts = (text) => `SELECT COLUMNS(*)::VARCHAR FROM (${text} ORDER BY i)`;

scenario('rare types are read by apache-arrow, from csv, json and parquet as DuckDB has them', async (world) => {
  const { cluster, sql } = await twoWorkers(world);
  const expected = await reference();
  const text = `${shown(allRare())} ORDER BY i`;
  assertSameTable(await sql.query(text), await expected.query(text), { ordered: true });
  const file = path.join(world.folder(), 'rows');
  const print = async (format) => {
    const args = ['sql', `${allRare()} ORDER BY i`, '-o', format, '--out', `${file}.${format}`];
    const { code, stderr } = await cluster.cli(args);
    assert.equal(code, 0, stderr);
  };
  const texts = await expected.query(asTexts(allRare()));
  // As texts, which DuckDB reads back.
  await print('csv');
  const csv = `FROM read_csv(${quote(`${file}.csv`)}, all_varchar = true, header = true, delim = ',', quote = '"', escape = '"')`;
  assertSameTable(await expected.query(csv), texts, { ordered: true, what: 'csv' });
  // As JSON: what is a text there is DuckDB's, and what is NULL is null.
  await print('json');
  const { rows } = JSON.parse(fs.readFileSync(`${file}.json`, 'utf8'));
  assert.equal(rows.length, 12);
  rows.forEach((row, i) =>
    row.forEach((value, at) => {
      const [wanted, what] = [texts.rows[i][at], `row ${i}, ${texts.columns[at].name} in json: ${value}`];
      assert.equal(value === null, wanted === null, what);
      if (typeof value === 'string') assert.equal(value, wanted, what);
    }),
  );
  // As Parquet: what DuckDB itself makes of them.
  await print('parquet');
  await expected.run(`COPY (${allRare()} ORDER BY i) TO ${quote(`${file}-own.parquet`)}`);
  const describe = async (name) => (await expected.query(`FROM ${quote(name)} LIMIT 0`)).columns;
  assert.deepEqual(await describe(`${file}.parquet`), await describe(`${file}-own.parquet`));
  const read = async (name) => (await expected.query(asTexts(`FROM ${quote(name)}`))).rows;
  assert.deepEqual(await read(`${file}.parquet`), await read(`${file}-own.parquet`));
});

scenario('rare types go through a shuffle, as keys and beside keys, and are what they were', async (world) => {
  const { cluster, sql } = await twoWorkers(world);
  const expected = await reference();
  const file = path.join(world.folder(), 'numbers.parquet');
  await expected.run(`COPY (SELECT i FROM range(6000) r(i)) TO ${quote(file)} (ROW_GROUP_SIZE 2048)`);
  const source = `read_parquet(${quote(file)}) r(i)`;
  const compare = async (text, what) => {
    const id = await sql.submit(text, { options: forced });
    assertSameTable(await sql.table(id), await expected.query(text), { what });
    return (await sql.stages(id)).length;
  };
  const alone = [];
  for (const what of names) {
    const x = what === 'bignums' ? 'x::VARCHAR' : 'x';
    const grouped = `SELECT x, count(*) AS n, min(i) AS low FROM (${rare(what, source)}) GROUP BY x`;
    if ((await compare(`SELECT ${x} AS x, n, low FROM (${grouped})`, what)) < 3) alone.push(what);
  }
  // All are really shuffled but UNION: Arrow has no NULL for it, so such a query is one task, and a plan is refused.
  assert.deepEqual(alone, ['unions']);
  const rows = allRare(source, ['unions']);
  const equal = names.filter((what) => what !== 'unions').map((what) => `a."${what}" IS NOT DISTINCT FROM b."${what}"`);
  const joined = `SELECT a.* FROM (${rows}) a JOIN (${rows}) b ON a.i = b.i AND ${equal.join(' AND ')} WHERE b.i % 7 < 3`;
  assert.ok((await compare(shown(joined), 'a join')) >= 3);
  const nulls = `SELECT x IS NULL AS is_null, count(*) AS n FROM (SELECT DISTINCT i, x FROM (${rare('unions', source)})) GROUP BY is_null`;
  await compare(nulls, 'NULLs of UNION');
  const [[explained]] = await sql.rows(nulls, { explain: true, options: forced });
  assert.match(explained, /a column of type UNION cannot go from stage to stage/);
  const plan = {
    stages: [
      { id: 0, sql: rare('unions'), output: { exchange: 'hash', keys: ['i'], partitions: 2 } },
      { id: 1, inputs: { m: 0 }, sql: 'SELECT count(*) AS n FROM m WHERE x IS NULL', output: { exchange: 'result' } },
    ],
  };
  const { state, message } = await cluster.end(await sql.submit(plan));
  assert.equal(state, 'failed');
  assert.match(message, /a column of type UNION cannot go from stage to stage; cast it, as in x::VARCHAR/);
});

scenario('types survive stages: an ugly table, shuffled and sorted', async (world) => {
  const expected = await reference();
  const { sql } = await twoWorkers(world);
  await sql.tables(await ugly());
  const text = 'SELECT f.*, d.name FROM facts f LEFT JOIN dims d ON f.k = d.k ORDER BY f.id, d.name';
  const compare = async (query, ordered) => {
    const id = await sql.submit(query, { options: forced });
    assertSameTable(await sql.table(id), await expected.query(query), { ordered });
    assert.equal(await sql.whyNotCut(id), '', query);
  };
  await compare(text, true);
  // Zones, decimals and nested values as keys and inside of aggregates.
  const grouped = `SELECT level, tstz, obj.in.deep AS deep, sum(price) AS s, max(wide) AS w, min(day) AS d, list(id ORDER BY id) AS ids,
                   bool_or(flag) AS b FROM facts GROUP BY ALL`;
  await compare(grouped, false);
});

// NULLs of an ENUM are indices into its dictionary that are not valid.
scenario('NULLs of enums stay NULL from stage to stage', async (world) => {
  const { sql, cluster } = await twoWorkers(world);
  const expected = await reference();
  const value = `(['low', 'mid', 'high'])[1 + i % 3]::ENUM('low', 'mid', 'high')`;
  const rowsOf = (what, range) => `SELECT i, ${what} AS e FROM ${range} r(i)`;
  const planOf = (what, n) => ({
    stages: [
      {
        id: 0,
        sql: rowsOf(what, `range({{task}} * ${n}, ({{task}} + 1) * ${n})`),
        splits: [{ file: 'none' }, { file: 'none' }],
        output: { exchange: 'hash', keys: ['i'], partitions: 3 },
      },
      {
        id: 1,
        inputs: { m: 0 },
        sql: 'SELECT e, count(*) AS n FROM m GROUP BY e',
        output: { exchange: 'hash', keys: ['e'], partitions: 3 },
      },
      {
        id: 2,
        inputs: { m: 1 },
        sql: 'SELECT e::VARCHAR AS e, sum(n)::BIGINT AS n FROM m GROUP BY e',
        output: { exchange: 'result' },
      },
    ],
  });
  const scalar = `CASE WHEN i % 2 = 0 THEN NULL ELSE ${value} END`;
  const list = `[${scalar}, NULL, ${value}]`;
  for (const [what, n] of [
    [scalar, 7000],
    [`{'e': ${scalar}}`, 7000],
    [list, 500],
  ]) {
    const whole = `SELECT e::VARCHAR AS e, count(*) AS n FROM (${rowsOf(what, `range(${2 * n})`)}) GROUP BY e`;
    assertSameTable(await sql.query(planOf(what, n)), await expected.query(whole), { what });
  }
  // More NULLs in lists than a vector of DuckDB has rows would end its process. It is refused, and the workers live.
  const { state, message } = await cluster.end(await sql.submit(planOf(list, 7000)));
  assert.equal(state, 'failed');
  assert.match(message, /lists of ENUM with NULLs cannot be passed on; cast them/);
  assert.deepEqual(await sql.rows('SELECT 1 AS n'), [['1']]);
  // A query that would pass on such lists is one task.
  await sql.tables(await ugly());
  const text = `SELECT k, list(level::ENUM('low', 'mid', 'high') ORDER BY id) AS l FROM facts GROUP BY k ORDER BY k`;
  assertSameTable(await sql.query(text, { options: forced }), await expected.query(text), { ordered: true });
});

scenario('the rows of a query do not depend on the time zones of the machines that ran it', async (world) => {
  const cluster = await world.cluster();
  const zones = ['America/New_York', 'Asia/Kolkata'];
  for (const [i, zone] of zones.entries()) {
    const options = ['--join', cluster.address, '--id', `w${i}`, '--slots', '1', '--data', world.folder()];
    const worker = world.capstan(`worker in ${zone}`, ['worker', ...options, '--plugin', plugin('hold')], {
      env: { TZ: zone },
    });
    await worker.line(/registered/);
  }
  const gate = new Gate(world);
  const sql = new Sql(cluster);
  const id = await sql.submit({
    stages: [
      {
        id: 0,
        sql: `SELECT {{task}} AS t, hour(TIMESTAMPTZ '2020-06-01 12:00:00+00') AS h,
              TIMESTAMP '2020-06-01 12:00:00'::TIMESTAMPTZ AS z, strftime(TIMESTAMPTZ '2020-06-01 12:00:00+00', '%H %Z') AS s`,
        splits: zones.map(() => ({ file: 'none' })),
        custom: gate.custom,
        output: { exchange: 'result' },
      },
    ],
  });
  for (const task of [0, 1]) await gate.arrived(task); // so each worker has one
  gate.open();
  const { rows } = await sql.table(id);
  const micros = `${Date.UTC(2020, 5, 1, 12)}000 us`;
  assert.deepEqual(rows, [
    ['0', '12', micros, '12 UTC'],
    ['1', '12', micros, '12 UTC'],
  ]);
});

scenario('an empty result has its columns', async (world) => {
  const { cluster, sql } = await twoWorkers(world);
  await sql.tables(await ugly());
  const expected = await reference();
  for (const options of [undefined, forced]) {
    for (const text of [
      'SELECT * FROM facts WHERE id < 0',
      'SELECT k, sum(price) AS s FROM none GROUP BY k',
      'FROM none',
    ]) {
      const actual = await sql.query(text, { options });
      assertSameTable(actual, await expected.query(text), { what: text });
      assert.equal(actual.rows.length, 0);
      assert.ok(actual.columns.length > 0);
    }
  }
  const { code, stdout } = await cluster.cli(['sql', 'SELECT 1 AS a, true AS b WHERE false', '-o', 'json']);
  assert.equal(code, 0);
  assert.deepEqual(JSON.parse(stdout), {
    columns: [
      { name: 'a', type: 'INTEGER' },
      { name: 'b', type: 'BOOLEAN' },
    ],
    rows: [],
  });
});

// More than one gRPC message may have. Several result tasks, each with more than is sent inline.
scenarioWithEachStore('trap_11_a_result_of_many_megabytes_arrives_whole_and_from_any_offset_on', async (world, store) => {
  const { sql, cluster } = await twoWorkers(world, { store });
  const rows = 600000;
  const plan = {
    stages: [
      {
        id: 0,
        sql: `SELECT {{task}} AS t, i, repeat('x', 10) || i AS s FROM range(${rows / 4}) r(i)`,
        splits: [0, 1, 2, 3].map(() => ({ file: 'none' })),
        output: { exchange: 'result' },
      },
    ],
  };
  const id = await sql.submit(plan);
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const whole = await sql.bytes(id);
  assert.ok(whole.length > 12 << 20, `${whole.length} bytes`);
  let next = 0;
  const { rows: seen } = await drainArrow(whole, (batch) => {
    const [tasks, numbers] = [batch.getChildAt(0), batch.getChildAt(1)];
    for (let i = 0; i < batch.numRows; i++, next++) {
      assert.equal(tasks.get(i) * (rows / 4) + Number(numbers.get(i)), next);
    }
  });
  assert.equal(seen, rows);
  // Resumed anywhere: at the seams, inside of messages, at the end.
  for (const offset of [
    1,
    7,
    4 << 20,
    whole.length - 1,
    ...[0, 1, 2].map(() => Math.floor(world.random() * whole.length)),
  ]) {
    const rest = await sql.bytes(id, offset);
    assert.ok(rest.equals(whole.subarray(offset)), `from ${offset} on`);
  }
  assert.equal((await sql.bytes(id, whole.length)).length, 0);
  assert.equal((await sql.bytes(id, whole.length + 1000)).length, 0);
});

scenario(
  'a result that was being read goes on where it stopped, over another coordinator and at the command line',
  async (world) => {
    const cluster = await world.cluster({ workers: 1, settings: { leader_ttl_ms: 1000 } });
    const sql = new Sql(cluster);
    const rows = 1500000;
    const id = await sql.submit(`SELECT i, 'row ' || i AS s FROM range(${rows}) r(i)`);
    assert.equal((await cluster.end(id)).state, 'succeeded');
    const whole = await sql.bytes(id);
    // A client of its own: the coordinator dies in the middle of the stream.
    const stream = cluster.client.stream('FetchQueryResults', { query_id: id });
    const chunks = [];
    await assert.rejects(
      (async () => {
        for await (const { payload } of stream) {
          chunks.push(payload);
          if (chunks.length === 2) await cluster.coordinator.kill();
        }
      })(),
      { code: grpcStatus.UNAVAILABLE },
    );
    await cluster.startCoordinator();
    const first = Buffer.concat(chunks);
    assert.ok(first.length > 0 && first.length < whole.length);
    const rest = await until('it can be read again', () => sql.bytes(id, first.length).catch(() => null));
    assert.ok(Buffer.concat([first, rest]).equals(whole));
    // The command line: the connection breaks several times.
    const proxy = await world.proxy(cluster.address);
    const file = path.join(world.folder(), 'rows.csv');
    const client = world.start('client', 'sh', ['-c', 'exec "$@" >"$0"', file, binary, 'results', id, '-o', 'csv'], {
      env: { CAPSTAN_SERVER: proxy.address },
    });
    for (const least of [1, 4 << 20, 12 << 20]) {
      await until(
        'it has come so far',
        () => client.isOver || (fs.existsSync(file) && fs.statSync(file).size >= least),
        { every: 1 },
      );
      proxy.breakAll();
    }
    assert.equal((await client.ended).code, 0, client.stderr);
    const lines = fs.readFileSync(file, 'utf8').trimEnd().split('\n');
    assert.equal(lines.length, rows + 1);
    lines.slice(1).forEach((line, i) => line === `${i},row ${i}` || assert.equal(line, `${i},row ${i}`));
  },
);

// The second final task must not replace the first, whichever ends first.
scenarioWithEachStore('trap_07_rows_of_several_result_tasks_are_all_there_in_the_order_of_the_tasks', async (world, store) => {
  const gate = new Gate(world);
  const cluster = await world.cluster({ store });
  for (const id of ['w1', 'w2']) await cluster.startWorker({ id, slots: 2, args: ['--plugin', plugin('hold')] });
  const sql = new Sql(cluster);
  const plan = {
    stages: [
      {
        id: 0,
        sql: 'SELECT {{task}} AS t, i FROM range({{task}} * 2) r(i) ORDER BY i',
        splits: [0, 1, 2, 3].map(() => ({ file: 'none' })),
        custom: gate.custom,
        output: { exchange: 'result' },
      },
    ],
  };
  const id = await sql.submit(plan);
  // Task 0 has no rows. The others end in the opposite order.
  for (const task of [3, 2, 1]) await gate.arrived(task);
  for (const task of [3, 2, 1]) {
    gate.open(task);
    await sql.cluster.client.status(id); // the coordinator answers while results wait
    const { state } = await waitForTask(sql, id, task);
    assert.equal(state, 'succeeded');
  }
  const { rows } = await sql.table(id);
  assert.deepEqual(
    rows,
    [1, 2, 3].flatMap((task) => Array.from({ length: task * 2 }, (_, i) => [String(task), String(i)])),
  );
});

async function waitForTask(sql, id, task) {
  return until(`task ${task} has ended`, async () => {
    const found = (await sql.tasksOf(id, 's0')).find((it) => it.task === task);
    return found && found.state !== 'running' && found.state !== 'queued' && found;
  });
}

scenario('results are there when the job has succeeded, and not before', async (world) => {
  const gate = new Gate(world);
  const cluster = await world.cluster();
  const worker = await cluster.startWorker({ id: 'w1', args: ['--plugin', plugin('hold')] });
  const sql = new Sql(cluster);
  const held = {
    stages: [{ id: 0, sql: 'SELECT 1::INTEGER AS a', custom: gate.custom, output: { exchange: 'result' } }],
  };
  const id = await sql.submit(held);
  await gate.arrived(1);
  await assert.rejects(sql.bytes(id), { code: grpcStatus.FAILED_PRECONDITION });
  gate.open(1);
  assert.deepEqual((await sql.table(id)).rows, [['1']]);
  const failed = await sql.submit('SELECT nonsense FROM nowhere');
  const { state, message } = await cluster.end(failed);
  assert.equal(state, 'failed');
  assert.match(message, /nowhere/);
  await assert.rejects(sql.bytes(failed), { code: grpcStatus.FAILED_PRECONDITION });
  await assert.rejects(sql.bytes('unknown-job'), { code: grpcStatus.NOT_FOUND });
  await nothingLeft(worker);
});

scenarioWithEachStore('small results survive all workers, large ones a restart of theirs', async (world, store) => {
  const cluster = await world.cluster({ store });
  const worker = await cluster.startWorker({ id: 'w1' });
  const sql = new Sql(cluster);
  const small = await sql.submit("SELECT i, 'text ' || i AS s FROM range(100) r(i)");
  const large = await sql.submit("SELECT i, 'text ' || i AS s FROM range(300000) r(i)");
  const [wantedSmall, wantedLarge] = [await sql.table(small), await sql.table(large)];
  assert.equal(wantedLarge.rows.length, 300000);
  await worker.kill();
  assertSameTable(tableFromArrow(await sql.bytes(small)), wantedSmall, { ordered: true });
  await assert.rejects(sql.bytes(large), (error) => {
    assert.ok([grpcStatus.UNAVAILABLE, grpcStatus.DATA_LOSS].includes(error.code), `${error.code}: ${error.details}`);
    return true;
  });
  await cluster.startWorker({ id: 'w1', data: worker.folder });
  assert.equal((await sql.bytes(large)).length > 1 << 20, true);
  assertSameTable(tableFromArrow(await sql.bytes(large)), wantedLarge, { ordered: true });
});

scenario('a large result whose file is gone is lost data, with a hint, and comes back by retry', async (world) => {
  const cluster = await world.cluster();
  const worker = await cluster.startWorker({ id: 'w1' });
  const sql = new Sql(cluster);
  const id = await sql.submit("SELECT i, 'text ' || i AS s FROM range(300000) r(i)");
  const wanted = await sql.table(id);
  await worker.kill();
  await cluster.startWorker({ id: 'w1', data: world.folder('fresh') });
  await assert.rejects(sql.bytes(id), (error) => {
    assert.equal(error.code, grpcStatus.DATA_LOSS, error.details);
    assert.match(error.details, /lost/);
    assert.match(error.metadata.get('capstan-hint')[0], /capstan retry/);
    return true;
  });
  const { code, stderr } = await cluster.cli(['results', id]);
  assert.notEqual(code, 0);
  assert.match(stderr, /hint:.*retry/);
  const retried = await cluster.cli(['retry', id]);
  assert.equal(retried.code, 0, retried.stderr);
  assertSameTable(await sql.table(id), wanted, { ordered: true });
});

scenario('a client that reads slowly, or goes away, holds nobody up', async (world) => {
  const { sql, cluster } = await twoWorkers(world);
  const id = await sql.submit("SELECT i, repeat('y', 20) AS s FROM range(2000000) r(i)");
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const stream = cluster.client.stream('FetchQueryResults', { query_id: id });
  stream.on('error', () => {});
  const before = cluster.coordinator.usage().rss;
  await new Promise((resolve) => stream.once('data', () => stream.pause() && resolve()));
  for (let i = 0; i < 20; i++) assert.deepEqual(await sql.rows(`SELECT ${i} AS n`), [[String(i)]]);
  const grown = cluster.coordinator.usage().rss - before;
  assert.ok(grown < (64 << 20) * slowness, `the coordinator grew by ${grown} bytes for a reader that does not read`);
  stream.cancel();
  assert.deepEqual(await sql.rows('SELECT 7 AS n'), [['7']]);
});
