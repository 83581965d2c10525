// Queries whose memory is measured. They run alone.
import fs from 'node:fs';
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

// The bytes of its last line, without reading a large file as a whole.
function lastLine(file) {
  const { size } = fs.statSync(file);
  const tail = Buffer.alloc(Math.min(size, 200));
  const fd = fs.openSync(file);
  fs.readSync(fd, tail, 0, tail.length, size - tail.length);
  fs.closeSync(fd);
  return tail.toString().trimEnd().split('\n').at(-1);
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
    const planned = await peaksWhile([cluster.coordinator], async () => {
      const { state, message } = await cluster.end(id);
      assert.equal(state, 'succeeded', message);
    });
    const before = cluster.coordinator.usage().rss;
    const file = path.join(world.folder(), 'rows.csv');
    const client = world.start('client', 'sh', ['-c', 'exec "$@" >"$0"', file, binary, 'results', id, '-o', 'csv'], {
      env: { CAPSTAN_SERVER: cluster.address },
    });
    const peaks = await peaksWhile([cluster.coordinator, client, worker], async () => {
      const { code } = await client.ended;
      assert.equal(code, 0, client.stderr);
    });
    assert.equal(lastLine(file), `${rows - 1},${3 * (rows - 1)}`);
    // The rows are 16 bytes each and more.
    const stream = rows * 16;
    for (const title of ['coordinator', 'client']) {
      assert.ok(
        peaks[title] > 0 && peaks[title] < 128 * MB * slowness,
        `${title}: ${peaks[title]} of a stream of ${stream}`,
      );
    }
    assert.ok(peaks.coordinator - before < 48 * MB * slowness, `it grew from ${before} to ${peaks.coordinator}`);
    assert.ok(planned.coordinator < 128 * MB * slowness, `${planned.coordinator} bytes`);
  },
);

scenario(
  'join and aggregate of four times the memory of the workers finish by spilling',
  { ms: 600000, if: isSoak },
  async (world) => {
    const expected = await reference();
    const folder = world.folder('data');
    const rows = 4000000; // of each of four files; 1 GB as DuckDB has them in memory
    for (let i = 0; i < 4; i++) {
      await expected.run(`COPY (SELECT i * 4 + ${i} AS k, hash(i, ${i}) AS v, md5((i * 4 + ${i})::VARCHAR) AS s FROM range(${rows}) r(i))
                        TO ${quote(`${folder}/${i}.parquet`)}`);
    }
    const source = quote(`${folder}/*.parquet`);
    const cluster = await world.cluster();
    const workers = [];
    for (const id of ['w1', 'w2']) {
      workers.push(await cluster.startWorker({ id, slots: 2, args: ['--memory', '256MB'] }));
    }
    const sql = new Sql(cluster);
    const queries = [
      `SELECT count(*) AS n, sum(c)::BIGINT AS c, max(s) AS s FROM (SELECT s, v, count(*) AS c FROM read_parquet(${source}) GROUP BY s, v)`,
      `SELECT count(*) AS n, sum(hash(a.s, b.v) % 1000)::BIGINT AS h
     FROM read_parquet(${source}) a JOIN read_parquet(${source}) b ON a.k = b.k AND a.s = b.s`,
    ];
    for (const text of queries) {
      let spilled = 0;
      const peaks = await peaksWhile(
        workers,
        async () => {
          const actual = await sql.query(text, { options: { ...forced, partitions: 16 } });
          assert.deepEqual(actual.rows, (await expected.query(text)).rows);
        },
        () => (spilled = Math.max(spilled, workers.flatMap(shuffleFiles).length)),
      );
      assert.ok(spilled > 0, 'nothing was spilled, so nothing is shown');
      for (const [title, peak] of Object.entries(peaks))
        assert.ok(peak < 768 * MB * slowness, `${title}: ${peak} bytes`);
    }
    await nothingLeft(...workers);
  },
);
