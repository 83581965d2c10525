// What `capstan sql` shows on a terminal while a query runs: bars of its stages, drawn in place, gone at the end. And what
// `capstan run` shows of a tree: a line per task, which stays.
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, command, lenient, scenario, until } from './harness.js';

const ESC = '\u001b';
const quote = (word) => `'${word.replaceAll("'", "'\\''")}'`;

// A terminal with `columns` and `lines`, on which the command line runs. `raw` is all that was written to it, `screen()`
// what is to be seen.
function terminal(world, cluster, args, { columns = 100, lines = 24, env = {} } = {}) {
  const words = [binary, ...args].map(quote).join(' ');
  const run = world.start(
    'terminal',
    'script',
    ['-qefc', `stty cols ${columns} rows ${lines} -onlcr; exec ${words}`, '/dev/null'],
    { env: { CAPSTAN_SERVER: cluster.address, TERM: 'xterm', SHELL: '/bin/sh', ...env }, stdin: undefined },
  );
  return {
    run,
    columns,
    get raw() {
      return run.stdout;
    },
    screen: () => screenOf(run.stdout, columns),
  };
}

// The lines that a terminal would show: the few sequences that are used, and nothing else.
function screenOf(raw, columns) {
  const rows = [[]];
  let [y, x] = [0, 0];
  const tokens = raw.match(new RegExp(`${ESC}\\[[0-9;?]*[A-Za-z]|[\\s\\S]`, 'gu')) ?? [];
  for (const token of tokens) {
    const [, count, letter] = /\[([0-9;?]*)([A-Za-z])/.exec(token) ?? [];
    if (token === '\r') x = 0;
    else if (token === '\n') [y, x] = [y + 1, 0];
    else if (letter === 'A') y = Math.max(0, y - Number(count || 1));
    else if (letter === 'K') rows[y].length = Math.min(rows[y].length, x);
    else if (letter === 'J') {
      rows.length = y + 1;
      rows[y].length = Math.min(rows[y].length, x);
    } else if (letter === undefined) {
      assert.ok(x < columns, `nothing is written beyond column ${columns}: ${rows[y]?.join('')}`);
      rows[y][x++] = token;
    } else assert.equal(letter, 'm', `an escape sequence that is not expected: ${JSON.stringify(token)}`);
    rows[y] ??= [];
  }
  return rows.map((row) =>
    Array.from(row, (cell) => cell ?? ' ')
      .join('')
      .trimEnd(),
  );
}

// Millions of rows that travel by hash, for as long as anybody waits: rows flow long before a task is done.
async function endless(world, cluster) {
  const file = path.join(world.folder(), 'k.parquet');
  await cluster.cli(['sql', `COPY (SELECT range AS k FROM range(200000)) TO '${file}'`]);
  assert.ok(fs.existsSync(file));
  return `SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY v ORDER BY v) AS n
          FROM (SELECT (k * r.range) % 1000003 AS v FROM read_parquet('${file}/*.parquet') t, range(100000) r))`;
}

const staged = [
  '--set',
  'single_task_bytes=0',
  '--set',
  'forced=true',
  '--set',
  'partitions=2',
  '--set',
  'broadcast_bytes=0',
];

scenario(
  'sql shows a bar for each stage with rows, rows/s and bytes shuffled while tasks run, and takes it away',
  async (world) => {
    const cluster = await world.cluster({ workers: 1, slots: 2, settings: { ...lenient, heartbeat_interval_ms: 100 } });
    const query = await endless(world, cluster);
    const shown = terminal(world, cluster, ['sql', '--analyze', ...staged, query]);
    const line = await until('rows of a task that is not done are shown', () =>
      shown.screen().find((text) => /0\/\d+ tasks .* rows .* rows\/s .* [kMG]?B$/.test(text)),
    );
    assert.match(
      line,
      /^ {2}s\d+ \S.* [█░]{6,} +0\/\d+ tasks +[\d.,]+ [kMG] rows +[\d.,]+ [kMG] rows\/s +[\d.]+ [MG]B$/,
    );
    const [summary, ...stages] = shown.screen();
    assert.match(summary, /^running: \d of \d stages done, [\d.]+ (ms|s), [\d.]+ [kMG]B shuffled$/);
    assert.match(stages[0], /^ {2}plan +█+ +1\/1 tasks/);
    assert.ok(shown.raw.includes(`${ESC}[36m`), 'in colours');
    const frames = shown.raw.split('stages done').length;
    await until('it is drawn anew', () => shown.raw.split('stages done').length > frames + 2);
    // As a terminal does it: the byte of Ctrl-C. Only the process that `script` runs gets it.
    const children = fs.readFileSync(`/proc/${shown.run.pid}/task/${shown.run.pid}/children`, 'utf8').trim().split(' ');
    process.kill(Number(children[0]), 'SIGINT');
    await shown.run.ended;
    const left = shown.screen().filter((text) => text !== '');
    assert.equal(left.length, 1, left.join('\n'));
    assert.match(left[0], /^capstan: interrupted; job \S+ is canceled$/);
  },
);

scenario('sql on a narrow terminal without colours, and on none', async (world) => {
  const cluster = await world.cluster({ workers: 1, slots: 2, settings: { ...lenient, heartbeat_interval_ms: 100 } });
  const query = await endless(world, cluster);
  const narrow = terminal(world, cluster, ['sql', ...staged, '--id', 'narrow', query], {
    columns: 40,
    lines: 5,
    env: { NO_COLOR: '1' },
  });
  await until('a bar is shown', () => narrow.screen().some((text) => /^ {2}s\d+.*[█░]{6,}/.test(text)));
  assert.ok(narrow.screen().length <= 5);
  assert.ok(!new RegExp(`${ESC}\\[[0-9;]*m`).test(narrow.raw), 'no colours');
  const dumb = terminal(world, cluster, ['sql', ...staged, '--id', 'dumb', query], { env: { TERM: 'dumb' } });
  const quiet = terminal(world, cluster, ['sql', '--quiet', ...staged, '--id', 'quiet', query]);
  const piped = world.capstan('piped', ['sql', ...staged, '--id', 'piped', query, '--server', cluster.address]);
  await until('all have been submitted', async () => {
    const { jobs } = await cluster.json('jobs');
    return ['narrow', 'dumb', 'quiet', 'piped'].every((id) => jobs.some(({ job_id }) => job_id === id));
  });
  for (const id of ['narrow', 'dumb', 'quiet', 'piped']) await cluster.cli(['cancel', id]);
  await Promise.all([narrow.run.ended, dumb.run.ended, quiet.run.ended, piped.ended]);
  for (const id of ['narrow', 'dumb', 'quiet']) {
    const { raw } = { narrow, dumb, quiet }[id];
    const seen = screenOf(raw, 1000).filter((text) => text !== '');
    assert.match(seen[0], new RegExp(`^capstan: job ${id} was canceled`), 'only what went wrong is left');
    assert.equal(raw.includes('stages done'), id === 'narrow', raw);
  }
  assert.match(piped.stderr, /^capstan: job piped was canceled/);
});

scenario('a query that is over soon shows its rows and nothing else', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  await cluster.cli(['sql', 'select 1']); // DuckDB is loaded
  const shown = terminal(world, cluster, ['sql', 'select 42 as answer']);
  assert.deepEqual(await shown.run.ended, { code: 0, signal: null });
  const left = shown.screen().filter((text) => text !== '');
  assert.deepEqual(
    [left[0].trim(), left[2].replaceAll('-', ''), left[3].trim(), left[4]],
    ['answer', '', '42', '(1 row)'],
  );
});

scenario('run shows a line for each task with its state, worker and time, drawn in place', async (world) => {
  const cluster = await world.cluster({ workers: 1, slots: 2 });
  const gate = path.join(world.folder(), 'go');
  const tasks = [
    command('first', 'echo 1'),
    command('gated', `until [ -e ${gate} ]; do sleep 0.02; done`, { depends_on: ['first'] }),
    command('last', 'echo 3', { depends_on: ['gated'] }),
  ];
  const file = world.file('tree.json', JSON.stringify({ tasks }));
  const shown = terminal(world, cluster, ['run', file]);
  const waits = [
    /^first {3}succeeded {2}w1 {2}[\d.]+ m?s$/,
    /^gated {3}running {4}w1 {2}[\d.]+ (ms|s|min)$/,
    /^last {4}queued$/,
    /^1 of 3 done, 1 running, 1 queued · /,
  ];
  const isShown = (wanted) => {
    const lines = shown.screen().filter((text) => text !== '');
    return lines.length >= wanted.length && wanted.every((pattern, i) => pattern.test(lines[i])) && lines;
  };
  const lines = await until('one task has ended, one runs, one waits', () => isShown(waits));
  assert.equal(lines.length, waits.length, 'and nothing else is on the screen');
  const [, gated] = lines;
  await until('its time goes on, in the same line', () => (isShown(waits)[1] ?? gated) !== gated);
  fs.writeFileSync(gate, '');
  await shown.run.ended;
  const ended = tasks.map(({ name }) => new RegExp(`^${name} +succeeded {2}w1 {2}[\\d.]+ (ms|s|min)$`));
  assert.ok(isShown([...ended, /^3 of 3 done · /]), shown.screen().join('\n'));
  assert.deepEqual(shown.run.how, { code: 0, signal: null });
});
