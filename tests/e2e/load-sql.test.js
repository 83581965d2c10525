// Queries whose memory is measured. They run alone.
import path from 'node:path';
import { assert, binary, isSoak, scenario, slowness } from './harness.js';
import { forced, nothingLeft, shuffleFiles, Sql } from './sql-cluster.js';
import { quote, reference } from './sql-reference.js';

const MB = 1 << 20;

// The most memory that each process has while something runs: { title: bytes }. `onTick` is called often.
async function peaksWhile(processes, run, onTick = () => {}) {
  const peaks = Object.fromEntries(processes.map(({ title }) => [title, 0]));
  const timer = setInterval(() => {
    onTick();
    for (const it of processes) {
      try {
        peaks[it.title] = Math.max(peaks[it.title], it.usage().rss);
      } catch {
        // it has just ended
      }
    }
  }, 20);
  try {
    await run();
  } finally {
    clearInterval(timer);
  }
  return peaks;
}

scenario(
  'ten million rows stream through coordinator and command line in flat memory',
  { ms: 240000 },
  async (world) => {
    const rows = isSoak ? 50000000 : 10000000;
    const cluster = await world.cluster();
    const worker = await cluster.startWorker({ id: 'w1', slots: 2, args: ['--memory', '512MB'] });
    const sql = new Sql(cluster);
    const id = await sql.submit(`SELECT i, i * 3 AS j FROM range(${rows}) r(i)`);
    const planned = await peaksWhile([cluster.coordinator, worker], async () => {
      const { state, message } = await cluster.end(id);
      assert.equal(state, 'succeeded', message);
    });
    const before = cluster.coordinator.usage().rss;
    const kept = worker.usage().rss; // the rows themselves are in a file
    const file = path.join(world.folder(), 'rows.csv');
    const client = world.start('client', 'sh', ['-c', 'exec "$@" >"$0"', file, binary, 'results', id, '-o', 'csv'], {
      env: { CAPSTAN_SERVER: cluster.address },
    });
    const peaks = await peaksWhile([cluster.coordinator, client, worker], async () => {
      const { code } = await client.ended;
      assert.equal(code, 0, client.stderr);
    });
    const { rows: sums } = await (
      await reference()
    ).query(
      `SELECT count(*) AS n, sum(i)::BIGINT AS i, sum(j)::BIGINT AS j
       FROM read_csv(${quote(file)}, header = true, auto_detect = false, columns = {i: 'BIGINT', j: 'BIGINT'})`,
    );
    const sum = (rows * (rows - 1)) / 2;
    assert.deepEqual(sums, [[rows, sum, 3 * sum].map(String)]);
    // The rows are 16 bytes each and more.
    const stream = rows * 16;
    for (const title of ['coordinator', 'client']) {
      assert.ok(
        peaks[title] > 0 && peaks[title] < 128 * MB * slowness,
        `${title}: ${peaks[title]} of a stream of ${stream}`,
      );
    }
    assert.ok(
      peaks[worker.title] > 0 && peaks[worker.title] - kept < 48 * MB * slowness,
      `it grew from ${kept} to ${peaks[worker.title]}`,
    );
    assert.ok(peaks.coordinator - before < 48 * MB * slowness, `it grew from ${before} to ${peaks.coordinator}`);
    assert.ok(planned.coordinator < 128 * MB * slowness, `${planned.coordinator} bytes`);
    assert.ok(planned[worker.title] < 192 * MB * slowness, `${planned[worker.title]} bytes`);
  },
);

// Every value is another one, so that nothing of it can be kept in less. A table is text, which takes longer to make.
const formats = {
  parquet: { rows: 5000000, memory: 128 * MB, source: (file) => `read_parquet(${quote(file)})` },
  table: {
    rows: 2500000,
    memory: 64 * MB,
    source: (file) => {
      // Names, types and a line below them; cells stand apart by two spaces or more.
      const cells = `regexp_extract(line, '^ *(\\d+)  +(\\d+)  +(\\S.*)$', ['i', 'j', 't'])`;
      return `(SELECT unnest(${cells}::STRUCT(i BIGINT, j BIGINT, t VARCHAR)) FROM read_csv(${quote(file)},
               skip = 3, header = false, auto_detect = false, delim = '\\x01', quote = '', columns = {line: 'VARCHAR'})
               WHERE line NOT LIKE '(% rows)')`;
    },
  },
};

for (const [format, { rows: usual, memory, source }] of Object.entries(formats)) {
  scenario(`capstan sql writes millions of rows as ${format} in flat memory`, { ms: 120000 }, async (world) => {
    const rows = usual * (isSoak ? 5 : 1);
    const cluster = await world.cluster();
    await cluster.startWorker({ id: 'w1', slots: 2, args: ['--memory', '512MB'] });
    const file = path.join(world.folder(), 'rows');
    const text = `SELECT i, i * 3 AS j, 'row number ' || i AS t FROM range(${rows}) r(i)`;
    const client = world.capstan('client', ['sql', text, '-o', format, '--out', file], {
      env: { CAPSTAN_SERVER: cluster.address },
    });
    const peaks = await peaksWhile([client], async () => {
      const { code } = await client.ended;
      assert.equal(code, 0, client.stderr);
    });
    const { rows: sums } = await (
      await reference()
    ).query(`SELECT count(*) AS n, sum(i)::BIGINT AS i, sum(j)::BIGINT AS j, count(*) FILTER (t = 'row number ' || i) AS t
             FROM ${source(file)}`);
    const sum = (rows * (rows - 1)) / 2;
    assert.deepEqual(sums, [[rows, sum, 3 * sum, rows].map(String)]);
    const stream = rows * (16 + 'row number 1'.length); // at least
    assert.ok(stream > memory, `${stream} bytes of rows`);
    assert.ok(peaks.client > 0 && peaks.client < memory * slowness, `${peaks.client} bytes, of a stream of ${stream}`);
  });
}

// What a worker with that much memory for SQL may have in all: docs/operations.md says how it comes about.
const wholeMemory = (memory) => (memory * 1.5 + 256 * MB) * slowness;

// Every row has its own key, and nothing can be left out before the join or the aggregate: `rows` rows of 64 bytes, as DuckDB
// has them in memory. What is right follows from the rows themselves, which one DuckDB only has to scan.
async function spillBeyondMemory(world, { memory, rows }) {
  const expected = await reference();
  const folder = world.folder('data');
  for (let i = 0; i < 4; i++) {
    await expected.run(`COPY (SELECT i * 4 + ${i} AS k, hash(i, ${i}) AS v, md5((i * 4 + ${i})::VARCHAR) AS s FROM range(${rows / 4}) r(i))
                        TO ${quote(`${folder}/${i}.parquet`)}`);
  }
  const source = `read_parquet(${quote(`${folder}/*.parquet`)})`;
  const cluster = await world.cluster();
  const workers = [];
  for (const id of ['w1', 'w2']) {
    workers.push(await cluster.startWorker({ id, slots: 2, args: ['--memory', `${memory}`] }));
  }
  const sql = new Sql(cluster);
  const queries = [
    [
      `SELECT count(*) AS n, sum(c)::BIGINT AS c, max(s) AS s FROM (SELECT s, v, count(*) AS c FROM ${source} GROUP BY s, v)`,
      `SELECT count(*) AS n, count(*) AS c, max(s) AS s FROM ${source}`,
    ],
    [
      `SELECT count(*) AS n, sum(hash(a.s, b.v) % 1000)::BIGINT AS h FROM ${source} a JOIN ${source} b ON a.k = b.k AND a.s = b.s`,
      `SELECT count(*) AS n, sum(hash(s, v) % 1000)::BIGINT AS h FROM ${source}`,
    ],
  ];
  for (const [text, known] of queries) {
    const wanted = (await expected.query(known)).rows;
    let spilled = 0;
    const peaks = await peaksWhile(
      workers,
      async () => assert.deepEqual(await sql.rows(text, { options: { ...forced, partitions: 16 } }), wanted),
      () => (spilled = Math.max(spilled, workers.flatMap(shuffleFiles).length)),
    );
    assert.ok(spilled > 0, 'nothing was spilled, so nothing is shown');
    for (const [title, peak] of Object.entries(peaks)) {
      console.log(`${title}: ${Math.round(peak / MB)} MB of ${memory / MB} for SQL`);
      assert.ok(peak < wholeMemory(memory), `${title}: ${peak} bytes`);
    }
  }
  await nothingLeft(...workers);
}

scenario(
  'join and aggregate of four times the memory of all workers finish by spilling',
  { ms: 900000, if: isSoak },
  (world) => spillBeyondMemory(world, { memory: 256 * MB, rows: 32000000 }), // 2 GB
);
