// Physical plans that clients send, and operators that only some workers have.
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, grpcStatus, lenient, root, scenario, scenarioWithEachStore, until } from './harness.js';
import { forced, Gate, nothingLeft, plugin, Sql } from './sql-cluster.js';
import { quote, reference } from './sql-reference.js';
import { assertSameTable } from './sql-table.js';

// ---- operators ----

const addFive = ['--plugin', plugin('add_five')];
const fives = {
  stages: [
    {
      id: 0,
      sql: 'SELECT i AS v FROM range(10) r(i)',
      custom: { op: 'add_five', config: {} },
      output: { exchange: 'result' },
    },
  ],
};
const wanted = Array.from({ length: 10 }, (_, i) => [String(i + 5)]);

scenarioWithEachStore('coordinator_with_workers_executes_custom_operator_stage', async (world, store) => {
  const cluster = await world.cluster({ store });
  await cluster.startWorker({ id: 'plain' });
  const sql = new Sql(cluster);
  // Nobody has the operator: the stage stays queued, and it is said why. Other queries run meanwhile.
  const id = await sql.submit(fives);
  await until('why says so', async () =>
    (await cluster.why(id)).some((reason) => reason.includes("no live worker advertises operator 'add_five'")),
  );
  const { stdout } = await cluster.cli(['why', id]);
  assert.match(stdout, /no live worker advertises operator 'add_five'/);
  assert.deepEqual(await sql.rows('SELECT 42 AS n'), [['42']]);
  assert.equal((await sql.tasksOf(id, 's0'))[0].state, 'queued');
  // One comes that has it: the stage runs there.
  await cluster.startWorker({ id: 'able', args: addFive });
  assert.deepEqual((await sql.table(id)).rows, wanted);
  const [{ worker, failures, attempt }] = await sql.tasksOf(id, 's0');
  assert.deepEqual({ worker, failures, attempt }, { worker: 'able', failures: 0, attempt: 1 });
  const { nodes } = await cluster.client.call('ListNodes', { operator: 'add_five' });
  assert.deepEqual(
    nodes.map(({ worker_id }) => worker_id),
    ['able'],
  );
});

scenario('in a half-upgraded fleet, stages with an operator run where it is, others anywhere', async (world) => {
  const cluster = await world.cluster();
  await cluster.startWorker({ id: 'old', slots: 2 });
  await cluster.startWorker({ id: 'new', slots: 2, args: [...addFive, '--plugin', plugin('hold')] });
  const sql = new Sql(cluster);
  // All slots of the new one are taken while the first stage runs, so it is the old one that must run it.
  const gate = new Gate(world);
  const held = await sql.submit({
    stages: [
      {
        id: 0,
        sql: 'SELECT {{task}}::INTEGER AS who',
        splits: [{ file: 'none' }, { file: 'none' }],
        custom: gate.custom,
        output: { exchange: 'result' },
      },
    ],
  });
  await gate.arrived(0);
  await gate.arrived(1);
  const plan = {
    stages: [
      {
        id: 0,
        sql: 'SELECT i AS v FROM range({{task}} * 1000, ({{task}} + 1) * 1000) r(i)',
        splits: Array.from({ length: 8 }, () => ({ file: 'none' })),
        output: { exchange: 'hash', keys: ['v'], partitions: 4 },
      },
      {
        id: 1,
        inputs: { m: 0 },
        sql: 'SELECT v FROM m',
        custom: { op: 'add_five', config: {} },
        output: { exchange: 'gather' },
      },
      {
        id: 2,
        inputs: { m: 1 },
        sql: 'SELECT count(*) AS n, sum(v)::BIGINT AS s FROM m',
        output: { exchange: 'result' },
      },
    ],
  };
  const id = await sql.submit(plan);
  for (const { worker } of await sql.stageReaches(id, 's0', 'succeeded')) assert.equal(worker, 'old');
  for (const { state } of await sql.tasksOf(id, 's1')) assert.equal(state, 'queued');
  gate.open();
  await sql.table(held);
  const sum = (7999 * 8000) / 2 + 5 * 8000;
  assert.deepEqual((await sql.table(id)).rows, [['8000', String(sum)]]);
  const done = await sql.completions(id);
  const ranBy = (name) => done.filter(({ stage }) => stage === name).map(({ worker }) => worker);
  assert.deepEqual(ranBy('s0'), Array(8).fill('old'));
  assert.deepEqual(ranBy('s1'), Array(4).fill('new'));
  // In SQL, planned by a worker that can tell what the operator makes of its input.
  const text =
    "SELECT sum(v)::BIGINT AS s FROM custom('add_five', (SELECT i AS v FROM range(100) r(i)), config := '{}')";
  for (let i = 0; i < 4; i++) assert.deepEqual(await sql.rows(text), [[String(4950 + 500)]]);
});

scenario('SQL with an operator that nobody has waits for one that has it', async (world) => {
  const cluster = await world.cluster();
  await cluster.startWorker({ id: 'plain' });
  const sql = new Sql(cluster);
  const id = await sql.submit("SELECT v FROM custom('add_five', (SELECT i AS v FROM range(10) r(i))) ORDER BY v");
  await until('why says so', async () =>
    (await cluster.why(id)).some((reason) => reason.includes("no live worker advertises operator 'add_five'")),
  );
  await cluster.startWorker({ id: 'able', args: addFive });
  assert.deepEqual((await sql.table(id)).rows, wanted);
});

scenario('an operator that does not like its input fails the query with its own words', async (world) => {
  const cluster = await world.cluster();
  const worker = await cluster.startWorker({ id: 'w1', args: [...addFive, '--plugin', plugin('hold')] });
  const sql = new Sql(cluster);
  const bad = {
    stages: [{ id: 0, sql: "SELECT 'x' AS t", custom: { op: 'hold', config: {} }, output: { exchange: 'result' } }],
  };
  const { state, message } = await cluster.end(await sql.submit(bad));
  assert.equal(state, 'failed');
  assert.match(message, /hold: the configuration has no "folder"/);
  await nothingLeft(worker);
});

scenario('a worker without the operators that it must have does not start', async (world) => {
  const cluster = await world.cluster();
  const { code, stderr } = await world.cli(
    [
      'worker',
      '--join',
      cluster.address,
      '--data',
      world.folder(),
      '--require-ops',
      'add_five,hold',
      '--plugin',
      plugin('hold'),
    ],
    {},
  );
  assert.equal(code, 2, stderr);
  assert.match(stderr, /add_five/);
  assert.deepEqual(await cluster.nodes(), {});
  await cluster.startWorker({ id: 'w', args: [...addFive, '--require-ops', 'add_five'] });
});

scenario('the example worker with a linked-in operator runs it', async (world) => {
  const file = path.join(path.dirname(binary), 'operator-worker');
  const program = fs.existsSync(file) ? file : path.join(root, 'build/release/bin/operator-worker');
  const cluster = await world.cluster();
  const worker = world.start('example worker', program, [
    '--join',
    cluster.address,
    '--id',
    'own',
    '--data',
    world.folder(),
  ]);
  await worker.line(/registered/);
  const sql = new Sql(cluster);
  assert.deepEqual((await sql.query(fives)).rows, wanted);
});

// ---- plans ----

scenarioWithEachStore(
  'a physical plan runs as it is given: splits, hash, broadcast, range, gather',
  async (world, store) => {
    const expected = await reference();
    const folder = world.folder('data');
    for (const [i, name] of ['a', 'b'].entries()) {
      await expected.run(`COPY (SELECT i % 50 AS k, i + ${i} AS v FROM range(30000) r(i))
                        TO ${quote(`${folder}/${name}.parquet`)} (ROW_GROUP_SIZE 4096)`);
    }
    const cluster = await world.cluster({ store, workers: 2 });
    const sql = new Sql(cluster);
    // As in the documents, and with a broadcast.
    const plan = {
      stages: [
        {
          id: 0,
          sql: 'SELECT k, sum(v)::BIGINT AS s FROM read_parquet({{split}}) GROUP BY k',
          splits: [
            { file: `${folder}/a.parquet` },
            { file: `${folder}/b.parquet`, first_row: 0, last_row: 8191 },
            { file: `${folder}/b.parquet`, first_row: 8192, last_row: 29999 },
          ],
          deterministic: true,
          output: { exchange: 'hash', keys: ['k'], partitions: 4 },
        },
        { id: 7, sql: 'SELECT i AS k, i * i AS square FROM range(50) r(i)', output: { exchange: 'broadcast' } },
        {
          id: 1,
          inputs: { m: 0, squares: 7 },
          sql: 'SELECT m.k, sum(s)::BIGINT AS s, any_value(square) AS square FROM m JOIN squares USING (k) GROUP BY m.k',
          output: { exchange: 'gather' },
        },
        { id: 2, inputs: { all_rows: 1 }, sql: 'SELECT * FROM all_rows ORDER BY k', output: { exchange: 'result' } },
      ],
    };
    const wantedRows = await expected.query(
      `SELECT k, sum(v)::BIGINT AS s, k * k AS square FROM read_parquet(${quote(`${folder}/*.parquet`)}) GROUP BY k ORDER BY k`,
    );
    assertSameTable(await sql.query(plan), wantedRows, { ordered: true });
    // By ranges, each of which a task sorts; where they end is found by stages that nobody wrote.
    const files = `read_parquet(${quote(`${folder}/*.parquet`)})`;
    const sorted = {
      stages: [
        {
          id: 3,
          sql: 'SELECT k, v FROM read_parquet({{split}})',
          splits: [{ file: `${folder}/a.parquet` }, { file: `${folder}/b.parquet` }],
          output: { exchange: 'range', keys: ['v % 1000 DESC NULLS FIRST', 'v'], partitions: 4 },
        },
        {
          id: 1,
          inputs: { part: 3 },
          sql: 'SELECT k, v FROM part ORDER BY v % 1000 DESC NULLS FIRST, v, k',
          output: { exchange: 'result' },
        },
      ],
    };
    const sortedId = await sql.submit(sorted);
    const order = await expected.query(`SELECT k, v FROM ${files} ORDER BY v % 1000 DESC NULLS FIRST, v, k`);
    assertSameTable(await sql.table(sortedId), order, { ordered: true });
    const shares = (await sql.tasksOf(sortedId, 's1')).map(({ rows }) => Number(rows));
    assert.equal(shares.length, 4);
    assert.ok(Math.min(...shares) > 60000 / 4 / 2, String(shares));
    // What explain writes is a plan, too, and gives the same rows.
    const text = `SELECT k, sum(v)::BIGINT AS s, k * k AS square FROM read_parquet(${quote(`${folder}/*.parquet`)}) GROUP BY k ORDER BY k`;
    const [[, written]] = await sql.rows(text, { explain: true, options: forced });
    const stages = JSON.parse(written).stages;
    assert.ok(stages.length >= 2, written);
    assert.ok(stages.some(({ output }) => output.exchange === 'hash'));
    assertSameTable(await sql.query(Buffer.from(written)), wantedRows, { ordered: true });
    // Also one in the user's own words, behind views of the data sets that it names.
    await sql.tables({ pair: `${folder}/*.parquet` });
    const [[, inWords]] = await sql.rows('SUMMARIZE SELECT k FROM pair', { explain: true });
    assert.match(JSON.parse(inWords).stages[0].sql, /VIEW "?pair"? AS/);
    assert.equal((await sql.rows(Buffer.from(inWords))).length, 1);
  },
);

scenario('a file that changed under a query fails it clearly', async (world) => {
  const expected = await reference();
  const file = path.join(world.folder('data'), 'a.parquet');
  const write = (n) => expected.run(`COPY (SELECT i AS v FROM range(${n}) r(i)) TO ${quote(file)}`);
  await write(1000);
  const { size, mtimeMs } = fs.statSync(file);
  const cluster = await world.cluster({ workers: 1 });
  const sql = new Sql(cluster);
  const plan = {
    stages: [
      {
        id: 0,
        sql: 'SELECT count(*) AS n FROM read_parquet({{split}})',
        splits: [{ file, file_bytes: size, file_mtime_ms: Math.floor(mtimeMs) }],
        output: { exchange: 'result' },
      },
    ],
  };
  const [{ splits }] = JSON.parse(
    (await sql.rows(`SELECT * FROM ${quote(file)}`, { explain: true, options: forced }))[0][1],
  ).stages;
  plan.stages[0].splits = splits;
  assert.deepEqual(await sql.rows(plan), [['1000']]);
  await write(2000);
  const { state, message } = await cluster.end(await sql.submit(plan));
  assert.equal(state, 'failed');
  assert.match(message, /a\.parquet.*chang|chang.*a\.parquet/);
});

scenario('tasks whose columns differ do not become one result', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const sql = new Sql(cluster);
  const plan = (text) => ({
    stages: [{ id: 0, sql: text, splits: [{ file: 'none' }, { file: 'none' }], output: { exchange: 'result' } }],
  });
  const same = await sql.rows(plan('SELECT {{task}}::BIGINT + 7 AS k'));
  assert.deepEqual(same, [['7'], ['8']]);
  const other = `FROM query(CASE {{task}} WHEN 0 THEN 'SELECT 7::SMALLINT AS k' ELSE 'SELECT 8::BIGINT AS k' END)`;
  const id = await sql.submit(plan(other));
  assert.equal((await cluster.end(id)).state, 'succeeded');
  await assert.rejects(sql.bytes(id), (error) => {
    assert.equal(error.code, grpcStatus.FAILED_PRECONDITION, error.details);
    assert.match(error.details, /the rows of task 1 .* have other columns than those of task 0/);
    return true;
  });
});

const good = { id: 0, sql: 'SELECT 1 AS k', output: { exchange: 'hash', keys: ['k'], partitions: 2 } };
const last = { id: 1, inputs: { m: 0 }, sql: 'SELECT * FROM m', output: { exchange: 'result' } };
const badPlans = {
  'an unknown stage': [
    { stages: [good, { ...last, inputs: { m: 5 } }] },
    /input "m" names stage 5, which there is not/,
  ],
  'a circle': [
    {
      stages: [{ ...good, inputs: { b: 2 } }, { ...good, id: 2, inputs: { a: 0 } }, last],
    },
    /its own rows/,
  ],
  'two results': [
    {
      stages: [
        { ...good, output: { exchange: 'result' } },
        { ...last, inputs: {} },
      ],
    },
    /exactly one stage/,
  ],
  'a stage that nobody reads': [{ stages: [good, { ...last, inputs: {} }] }, /nobody reads it/],
  'an unknown exchange': [{ stages: [{ ...good, output: { exchange: 'carrier-pigeon' } }, last] }, /exchange/],
  'a hash without keys': [{ stages: [{ ...good, output: { exchange: 'hash', partitions: 2 } }, last] }, /keys/],
  'no partitions': [
    { stages: [{ ...good, output: { exchange: 'hash', keys: ['k'], partitions: 0 } }, last] },
    /partitions/,
  ],
  'range with bounds that nobody has': [
    { stages: [{ ...good, output: { exchange: 'range', keys: ['k'], partitions: 2, bounds: 'b' } }, last] },
    /bounds/,
  ],
  'the same id twice': [{ stages: [good, good, last] }, /twice/],
  'no stage at all': [{ stages: [] }, /stages/],
  'no object': [[1, 2, 3], /object|stages/],
  'no SQL': [{ stages: [{ ...good, sql: undefined }, last] }, /sql/],
  'SQL that changes something': [
    { stages: [{ ...good, sql: 'SET threads = 1; SELECT 1 AS k' }, last] },
    /stage 0: "sql" must be one statement that only reads/,
  ],
  'a placeholder that there is not': [
    { stages: [{ ...good, sql: 'SELECT {{tusk}} AS k' }, last] },
    /unknown placeholder \{\{tusk}}/,
  ],
};
scenarioWithEachStore(
  'a physical plan that makes no sense is refused with all that is wrong, and nothing is stored',
  async (world, store) => {
    const cluster = await world.cluster({ store, workers: 1 });
    const sql = new Sql(cluster);
    for (const [what, [plan, pattern]] of Object.entries(badPlans)) {
      await assert.rejects(sql.submit(plan, { id: 'bad-plan' }), (error) => {
        assert.equal(error.code, grpcStatus.INVALID_ARGUMENT, `${what}: ${error.details}`);
        assert.match(error.details, pattern, what);
        return true;
      });
    }
    await assert.rejects(sql.submit(Buffer.from('{"stages":[')), { code: grpcStatus.INVALID_ARGUMENT });
    // Several at once: all are listed.
    const many = {
      stages: [
        { ...good, sql: undefined, output: { exchange: 'nowhere' } },
        { ...last, inputs: { m: 9 } },
        { ...good, id: 2, inputs: { a: 3 } },
        { ...good, id: 3, inputs: { a: 2 } },
        { ...good, id: 4 },
      ],
    };
    await assert.rejects(sql.submit(many), (error) => {
      assert.match(error.details, /sql/);
      assert.match(error.details, /exchange/);
      assert.match(error.details, /input "m" names stage 9/);
      assert.match(error.details, /stage 2: it reads, over others or by itself, its own rows/);
      assert.match(error.details, /stage 4: nobody reads it/);
      return true;
    });
    // Neither both nor none of SQL and plan, no broken parameters or options.
    for (const more of [
      { sql: 'SELECT 1', physical_plan_json: Buffer.from(JSON.stringify({ stages: [good, last] })) },
      {},
      { sql: 'SELECT ?', params_json: 'nonsense' },
      { sql: 'SELECT ?', params_json: '3' },
      { sql: 'SELECT 1', options_json: '[]' },
      { sql: 'SELECT 1', options_json: '{"no_such_option":1}' },
      { sql: 'SELECT 1', options_json: '{"partitions":-1}' },
    ]) {
      await assert.rejects(cluster.client.call('SubmitQuery', { query_id: 'bad-plan', ...more }), (error) => {
        assert.equal(error.code, grpcStatus.INVALID_ARGUMENT, `${JSON.stringify(more)}: ${error.details}`);
        return true;
      });
    }
    const { jobs } = await cluster.client.call('ListJobs', { limit: 10 });
    assert.deepEqual(jobs, []);
    await assert.rejects(cluster.client.status('bad-plan'), { code: grpcStatus.NOT_FOUND });
  },
);

scenario('SQL that is wrong fails once, clearly, and blames no worker', async (world) => {
  const cluster = await world.cluster({ settings: { ...lenient, blacklist_failure_threshold: 1 } });
  await cluster.startWorker({ id: 'w1' });
  const sql = new Sql(cluster);
  for (const [text, pattern] of [
    ['SELEKT 1', /SELEKT/],
    ['SELECT * FROM nowhere', /nowhere/],
    ["SELECT * FROM 'no-such-file.parquet'", /no-such-file/],
    ["SELECT 'x'::INTEGER AS n", /x/],
    ['SELECT 1; SELECT 2', /statement/i],
    ['SELECT ? AS n', /parameter/i],
    ['', /sql|empty/i],
  ]) {
    const failed = await sql
      .submit(text)
      .then((id) => cluster.end(id))
      .catch((error) => ({ state: 'failed', message: error.details }));
    assert.equal(failed.state, 'failed', text);
    assert.match(failed.message, pattern, text);
  }
  const { w1 } = await cluster.nodes();
  assert.equal(w1.blacklisted, false);
  assert.equal(w1.failures, 0);
  assert.deepEqual(await sql.rows('SELECT 1 AS n'), [['1']]);
});

scenario('a submit that is repeated finds its query', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const sql = new Sql(cluster);
  const request = { query_id: 'mine', sql: 'SELECT 1 AS n' };
  const first = await cluster.client.call('SubmitQuery', request);
  const second = await cluster.client.call('SubmitQuery', request);
  assert.deepEqual([first.query_id, first.existed, second.query_id, second.existed], ['mine', false, 'mine', true]);
  const a = await cluster.client.call('SubmitQuery', { sql: 'SELECT 2 AS n', idempotency_key: 'k' });
  const b = await cluster.client.call('SubmitQuery', { sql: 'SELECT 2 AS n', idempotency_key: 'k' });
  assert.equal(a.query_id, b.query_id);
  assert.deepEqual((await sql.table('mine')).rows, [['1']]);
  assert.deepEqual((await sql.table(a.query_id)).rows, [['2']]);
  // Another query under the name of the first is refused.
  await assert.rejects(cluster.client.call('SubmitQuery', { query_id: 'mine', sql: 'SELECT 3 AS n' }), {
    code: grpcStatus.ALREADY_EXISTS,
  });
});
