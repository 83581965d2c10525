// client.test.js - libcapstan, as examples/c-client uses it, against real processes: linked dynamically and statically, and
// with the address sanitizer, which also looks for leaks when the program ends.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { assert, command, quick, root, scenario, sleep, until } from '../../../tests/e2e/harness.js';

const builds = [
  { name: 'shared', file: path.join(root, 'build/release/bin/c-client') },
  { name: 'static', file: path.join(root, 'build/release/bin/c-client-static') },
  { name: 'asan', file: path.join(root, 'build/asan/bin/c-client') },
];
const [shared, , asan] = builds;

// Runs the example: { code, stdout, stderr }.
function start(world, build, args, { address, env = {} }) {
  return world.start(`c-client ${build.name}`, build.file, args, { env: { CAPSTAN_SERVER: address, ...env } });
}

async function run(world, build, args, options) {
  const started = start(world, build, args, options);
  const { code, signal } = await started.ended;
  return { code: code ?? signal, stdout: started.stdout, stderr: started.stderr };
}

const tree = JSON.stringify({
  name: 'c',
  tasks: [
    command('numbers', `echo '[1, 2, 3]'`),
    { name: 'count', executor: 'sql', depends_on: ['numbers'], inputs: { sql: 'select 41 + 1 as n' } },
  ],
});

for (const build of builds) {
  scenario(`trees, SQL, rows, JSON, events, lists, errors (${build.name})`, async (world) => {
    const cluster = await world.cluster({ workers: 1 });
    const ran = await run(world, build, ['run', world.file('tree.json', tree)], cluster);
    assert.equal(ran.code, 0, ran.stderr);
    const results = JSON.parse(ran.stdout);
    assert.deepEqual([results.numbers.json, results.count.rows], [[1, 2, 3], [{ n: 42 }]]);
    const id = /job (\S+)/.exec(ran.stderr)[1];
    const sql = [
      'sql',
      "select x, x / 2 as half, 'r' || x as name, nullif(x, 1) as n from range(3) t(x) where x >= $1",
      '[0]',
    ];
    const rows = await run(world, build, sql, cluster);
    assert.equal(rows.stdout, 'x\thalf\tname\tn\n0\t0\tr0\t0\n1\t0.5\tr1\tNULL\n2\t1\tr2\t2\n', rows.stderr);
    const query = /job (\S+)/.exec(rows.stderr)[1];
    const json = JSON.parse((await run(world, build, ['json', query], cluster)).stdout);
    assert.deepEqual(json.columns[2], { name: 'name', type: 'VARCHAR' });
    assert.deepEqual(json.rows[1], [1, 0.5, 'r1', null]);
    const events = (await run(world, build, ['follow', id], cluster)).stdout.trim().split('\n');
    assert.match(events[0], /^\d+ created 0\.0 attempt 0 $/);
    assert.match(events.at(-1), /^\d+ completed 0\.0 attempt 0$/);
    const half = Number(events[2].split(' ')[0]);
    const rest = (await run(world, build, ['follow', id, String(half)], cluster)).stdout.trim().split('\n');
    assert.deepEqual(rest, events.slice(3));
    const jobs = JSON.parse((await run(world, build, ['jobs'], cluster)).stdout);
    assert.ok(jobs.jobs.some(({ job_id, name }) => job_id === id && name === 'c'));
    assert.equal(JSON.parse((await run(world, build, ['nodes'], cluster)).stdout).nodes[0].worker_id, 'w1');
    assert.equal(JSON.parse((await run(world, build, ['leader'], cluster)).stdout).address, cluster.address);

    const missing = await run(world, build, ['json', 'nope'], cluster);
    assert.equal(missing.code, 2); // CAPSTAN_NOT_FOUND
    assert.match(missing.stderr, /^c-client: not_found: there is no job 'nope'\n {2}hint: /);
    const wrong = await run(world, build, ['sql', 'selec 1'], cluster);
    assert.deepEqual([wrong.code, /syntax error/.test(wrong.stderr)], [1, true]);
    const invalid = await run(world, build, ['run', world.file('bad.json', '{"tasks":[]}')], cluster);
    assert.match(invalid.stderr, /^c-client: invalid_argument: /);
    const nowhere = await run(world, build, ['leader'], { address: 'here' });
    assert.match(nowhere.stderr, /'here' is no address\n {2}hint: write HOST:PORT/);
  });
}

scenario('Ctrl-C ends the wait and cancels the job; a cancel by another does, too', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const file = world.file('slow.json', JSON.stringify({ tasks: [sleep('s', 600000)] }));
  const waiting = start(world, asan, ['run', file], cluster);
  const [, id] = await waiting.line(/job (\S+)/);
  waiting.signal('SIGINT');
  assert.deepEqual(await waiting.ended, { code: 10, signal: null }); // CAPSTAN_CANCELED
  assert.equal((await cluster.end(id)).state, 'canceled');
  const other = start(world, asan, ['run', file], cluster);
  const [, second] = await other.line(/job (\S+)/);
  assert.equal((await run(world, asan, ['cancel', second], cluster)).code, 0);
  assert.deepEqual(await other.ended, { code: 1, signal: null });
  assert.match(other.stderr, /did not succeed/);
});

scenario('how a job and its tasks are, why they wait, and another try', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const flag = path.join(world.folder(), 'good');
  const tasks = [command('a', `test -e ${flag}`, { retry: { max_attempts: 1 } }), sleep('b', 1, { depends_on: ['a'] })];
  const ran = await run(world, asan, ['run', world.file('flag.json', JSON.stringify({ tasks }))], cluster);
  assert.equal(ran.code, 1, ran.stderr);
  const id = /job (\S+)/.exec(ran.stderr)[1];
  const ask = async (...args) => {
    const { code, stdout, stderr } = await run(world, asan, args, cluster);
    assert.equal(code, 0, stderr);
    return stdout === '' ? undefined : JSON.parse(stdout);
  };
  const status = await ask('status', id);
  assert.deepEqual([status.job_id, status.state], [id, 'failed']);
  const states = async () => Object.fromEntries((await ask('tasks', id)).tasks.map(({ name, state }) => [name, state]));
  const attempt = async (name) => (await ask('tasks', id)).tasks.find((task) => task.name === name).attempt;
  assert.deepEqual(await states(), { a: 'failed', b: 'skipped' });

  fs.writeFileSync(flag, '');
  await ask('retry', id);
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.deepEqual(await states(), { a: 'succeeded', b: 'succeeded' });
  const before = [await attempt('a'), await attempt('b')];
  await ask('retry', id, 'b');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.equal(await attempt('a'), before[0]);
  assert.ok((await attempt('b')) > before[1]);
  // Goes on beyond the two ends that retries have undone.
  const followed = (await run(world, asan, ['follow', id], cluster)).stdout;
  const ofJob = [...followed.matchAll(/^\d+ (created|failed|retried|completed) 0\.0 attempt 0/gm)].map(([, type]) => type);
  assert.deepEqual(ofJob, ['created', 'failed', 'retried', 'completed', 'retried', 'completed']);

  const picky = { placement: { requires_capabilities: { gpu: 'nvidia' } } };
  const waiting = await cluster.submit([sleep('w', 1, picky)]);
  const [reason] = (await ask('why', waiting)).reasons;
  assert.match(reason.reason, /requires_capabilities gpu=nvidia matches 0 of 1/);
  for (const verb of ['status', 'tasks', 'why', 'retry']) {
    assert.equal((await run(world, asan, [verb, 'nope'], cluster)).code, 2, verb); // CAPSTAN_NOT_FOUND
  }
});

scenario('tokens: the variable, the one that up has left for this user, and none', async (world) => {
  const home = world.folder('home');
  const env = { XDG_CONFIG_HOME: home };
  const data = world.folder('data');
  const args = ['up', '--data', data, '--workers', '1', '--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'];
  const up = world.capstan('up', args, { env });
  const [, address] = await up.line(/ready: coordinator at (\S+),/);
  const found = await run(world, asan, ['nodes'], { address, env });
  assert.equal(found.code, 0, found.stderr);
  const none = await run(world, asan, ['nodes'], { address });
  assert.equal(none.code, 13); // CAPSTAN_UNAUTHENTICATED
  assert.match(none.stderr, /hint: .*CAPSTAN_TOKEN/);
  const token = fs.readFileSync(path.join(home, 'capstan/tokens', address), 'utf8').trim();
  assert.equal((await run(world, asan, ['nodes'], { address, env: { CAPSTAN_TOKEN: token } })).code, 0);
  await up.stop();
});

scenario(
  'a killed leader and broken connections: the wait, the rows and the events go on',
  { ms: 90000 },
  async (world) => {
    const cluster = await world.cluster({
      store: 'postgres',
      settings: {
        ...quick,
        lease_ms: 6000,
        worker_liveness_timeout_ms: 6000,
        node_stale_ms: 6000,
        node_dead_ms: 60000,
        leader_ttl_ms: 1500,
      },
    });
    const leader = { process: cluster.coordinator, address: cluster.address };
    cluster.listen = '127.0.0.1:0';
    await cluster.startCoordinator({ leads: false });
    const both = `${leader.address},${cluster.address}`;
    await cluster.startWorker({ id: 'w', join: both });
    const flag = path.join(world.folder(), 'go');
    const held = command('held', `while ! test -e ${flag}; do sleep 0.05; done; echo '"done"'`);
    const waiting = start(world, asan, ['run', world.file('held.json', JSON.stringify({ tasks: [held] }))], {
      address: both,
    });
    const [, id] = await waiting.line(/job (\S+)/);
    const following = start(world, asan, ['follow', id], { address: both });
    await following.line(/assigned/);
    await leader.process.kill();
    fs.writeFileSync(flag, '');
    assert.deepEqual(await waiting.ended, { code: 0, signal: null }, waiting.stderr);
    assert.equal(JSON.parse(waiting.stdout).held.json, 'done');
    assert.deepEqual(await following.ended, { code: 0, signal: null }, following.stderr);
    const numbers = following.stdout
      .trim()
      .split('\n')
      .map((line) => Number(line.split(' ')[0]));
    assert.deepEqual(
      numbers,
      [...new Set(numbers)].sort((a, b) => a - b),
    );
    assert.equal(
      await until(
        'it knows the leader',
        async () => JSON.parse((await run(world, asan, ['leader'], { address: both })).stdout).address,
      ),
      cluster.address,
    );
    const proxy = await world.proxy(cluster.address);
    const reading = start(world, asan, ['sql', 'select x from range(3000000) t(x)'], { address: proxy.address });
    for (const size of [1e5, 3e6, 9e6]) {
      await until('rows have come', () => reading.stdout.length > size || reading.isOver);
      proxy.breakAll();
    }
    assert.deepEqual(await reading.ended, { code: 0, signal: null }, reading.stderr);
    const lines = reading.stdout.trim().split('\n');
    assert.equal(lines.length, 3000001);
    assert.ok(
      lines.slice(1).every((line, i) => Number(line) === i),
      'every row once, in order',
    );
  },
);

test('only the functions of the header can be seen, in both forms of the library', () => {
  const header = fs.readFileSync(path.join(root, 'include/capstan/client.h'), 'utf8');
  const declared = [...header.matchAll(/^CAPSTAN_API [^(]*?(capstan_\w+)\(/gm)].map(([, name]) => name).sort();
  assert.ok(declared.length >= 26, String(declared.length));
  const symbols = (file, ...flags) =>
    execFileSync('nm', ['--defined-only', ...flags, file], { encoding: 'utf8' })
      .split('\n')
      .flatMap((line) => (/^[0-9a-f]+ [A-TV-Z] (\S+)$/.exec(line) ?? []).slice(1))
      .sort();
  assert.deepEqual(symbols(path.join(root, 'build/release/lib/libcapstan.so'), '-D'), declared);
  assert.deepEqual(symbols(path.join(root, 'build/release/lib/libcapstan.a'), '-g'), declared);
  const needed = execFileSync('objdump', ['-p', shared.file], { encoding: 'utf8' });
  assert.match(needed, /NEEDED +libcapstan\.so\.0/);
  const pc = fs.readFileSync(path.join(root, 'build/release/lib/capstan.pc'), 'utf8');
  assert.match(pc, /^Version: \d+\.\d+\.\d+$/m);
  assert.match(pc, /^Libs\.private: .*-lgrpc/m);
});

test('the header is good C11 and C++ by itself, with all warnings', () => {
  for (const [language, standard] of [
    ['c', 'c11'],
    ['c++', 'c++17'],
  ]) {
    const compiler = language === 'c' ? 'gcc' : 'g++';
    try {
      execFileSync(compiler, ['--version'], { stdio: 'ignore' });
    } catch {
      continue; // this compiler is not here
    }
    const flags = [
      '-x',
      language,
      `-std=${standard}`,
      '-Wall',
      '-Wextra',
      '-Wpedantic',
      '-Werror',
      '-fsyntax-only',
      '-',
    ];
    execFileSync(compiler, ['-I', path.join(root, 'include'), ...flags], { input: '#include <capstan/client.h>\n' });
  }
});
