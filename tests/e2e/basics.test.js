// The way of a job through real processes, with a client and a worker that share no code with the server.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {
  assert,
  binary,
  childrenOf,
  command,
  freshDatabase,
  isAlive,
  lenient,
  root,
  scenario,
  scenarioWithEachStore,
  sleep,
  slowness,
  until,
} from './harness.js';

scenarioWithEachStore('end_to_end_task_execution', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 2 });
  const { state, tasks, id } = await cluster.run([
    command('extract', `echo '{"rows": [{"id": 7}, {"id": 8}]}'`),
    command('sum', 'cat', { depends_on: ['extract'], inputs: { stdin: 'got ${results.extract.json.rows[1].id}' } }),
    sleep('rest', 5, { depends_on: ['sum'] }),
  ]);
  assert.equal(state, 'succeeded');
  assert.deepEqual(tasks.extract.result.json, { rows: [{ id: 7 }, { id: 8 }] });
  assert.equal(tasks.sum.result.stdout, 'got 8');
  assert.equal(tasks.rest.attempt, 1);
  assert.deepEqual(Object.keys(await cluster.client.results(id)), ['extract', 'sum', 'rest']);
  const types = (await cluster.events(id)).map(({ type }) => type);
  assert.equal(types[0], 'created');
  assert.equal(types.filter((type) => type === 'completed').length, 4, 'three tasks and the job');
});

scenarioWithEachStore('multiple_workers_same_tree', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 3, slots: 1 });
  // Three that each wait for the other two can end only if they run at the same time, so on different workers.
  const dir = world.folder('meeting');
  const meet = (name) =>
    command(name, `touch ${dir}/${name}; until [ $(ls ${dir} | wc -l) -eq 3 ]; do sleep 0.02; done`);
  const { state, tasks } = await cluster.run([
    meet('a'),
    meet('b'),
    meet('c'),
    sleep('end', 1, { depends_on: ['a', 'b', 'c'] }),
  ]);
  assert.equal(state, 'succeeded');
  assert.deepEqual([tasks.a, tasks.b, tasks.c].map(({ worker }) => worker).sort(), ['w1', 'w2', 'w3']);
});

scenario('a worker and a client in JavaScript complete a job beside a worker in C', async (world) => {
  const cluster = await world.cluster({ workers: 1 });
  const folder = path.join(root, 'examples/javascript');
  const worker = world.start('worker.js', process.execPath, [
    `${folder}/worker.js`,
    '--join',
    cluster.address,
    '--id',
    'js1',
    '--operator',
    'shout',
    '--capability',
    'zone=a',
  ]);
  await worker.line(/registered as js1/);
  const tree = world.file(
    'tree.json',
    JSON.stringify({
      name: 'mixed',
      tasks: [
        command('numbers', `echo '[1, 2, 3]'`),
        {
          name: 'sum',
          executor: 'js',
          depends_on: ['numbers'],
          required_custom_ops: ['shout'],
          inputs: { code: 'return { sum: inputs.list.reduce((a, b) => a + b) }', list: '${results.numbers.json}' },
        },
        command('show', 'echo "the sum is $0"', {
          depends_on: ['sum'],
          inputs: { argv: ['echo', 'sum ${results.sum.sum}'] },
        }),
      ],
    }),
  );
  const client = world.start('client.js', process.execPath, [`${folder}/client.js`, tree, cluster.address]);
  assert.deepEqual(await client.ended, { code: 0, signal: null }, client.log);
  const results = JSON.parse(client.stdout);
  assert.deepEqual(results.sum, { sum: 6 });
  assert.equal(results.show.stdout, 'sum 6\n');
  const [job] = (await cluster.json('jobs')).jobs;
  const tasks = await cluster.tasks(job.job_id);
  assert.equal(tasks.numbers.worker, 'w1');
  assert.equal(tasks.sum.worker, 'js1');
});

scenario(
  'the JavaScript worker drains at SIGTERM: it finishes its task, takes no other, and says goodbye',
  async (world) => {
    const cluster = await world.cluster();
    const worker = world.start('worker.js', process.execPath, [
      path.join(root, 'examples/javascript/worker.js'),
      '--join',
      cluster.address,
      '--id',
      'js1',
      '--slots',
      '1',
    ]);
    await worker.line(/registered/);
    const dir = world.folder();
    const code = `const fs = await import('node:fs'); while (!fs.existsSync('${dir}/go')) await new Promise((r) => setTimeout(r, 10)); return 'done'`;
    const id = await cluster.submit([
      { name: 'last', executor: 'js', inputs: { code } },
      { name: 'next', executor: 'js', inputs: { code: 'return 1' }, depends_on: ['last'] },
    ]);
    await cluster.reaches(id, 'last', 'running');
    worker.signal('SIGTERM');
    await worker.line(/leaving/);
    fs.writeFileSync(`${dir}/go`, '');
    assert.deepEqual(await worker.ended, { code: 0, signal: null });
    const tasks = await cluster.tasks(id);
    assert.equal(tasks.last.state, 'succeeded');
    assert.equal(tasks.last.result, 'done');
    assert.equal(tasks.next.state, 'queued');
  },
);

scenario(
  'the JavaScript worker stops what is cancelled, times out, and reports errors that need no retry',
  async (world) => {
    const cluster = await world.cluster({ settings: { retry_backoff_base_ms: 1 } });
    await cluster.startJsWorker({ id: 'js1', slots: 4 });
    const canceled = await cluster.submit([{ name: 'a', executor: 'sleep', inputs: { ms: 1000000 } }]);
    await cluster.reaches(canceled, 'a', 'running');
    const { state, tasks } = await cluster.run([
      { name: 'slow', executor: 'sleep', inputs: { ms: 100000 }, timeout_ms: 50, retry: { max_attempts: 2 } },
      { name: 'bad', executor: 'js', inputs: { code: 'return (' } },
    ]);
    assert.equal(state, 'failed');
    assert.equal(tasks.slow.message, 'timed out after 50 ms');
    assert.equal(tasks.slow.failures, 2);
    assert.equal(tasks.bad.failures, 1);
    assert.equal((await cluster.nodes()).js1.running_tasks, 1);
    await cluster.client.cancel(canceled);
    await until('its slot is free', async () => (await cluster.nodes()).js1.running_tasks === 0);
  },
);

scenario('long_running_task_with_heartbeat, trap_01_a_task_may_run_longer_than_a_silent_worker_is_trusted', async (world) => {
  // The task runs for more than twice as long as a silent worker would be trusted.
  const settings = { heartbeat_interval_ms: 500, lease_ms: 5000, worker_liveness_timeout_ms: 5000, node_stale_ms: 5000 };
  const cluster = await world.cluster({ settings, workers: 2, slots: 1 });
  const file = path.join(world.folder(), 'runs');
  const { state, tasks } = await cluster.run([command('long', `echo run >>${file}; sleep 12; wc -l <${file}`)]);
  assert.equal(state, 'succeeded');
  assert.equal(tasks.long.attempt, 1);
  assert.equal(tasks.long.failures, 0);
  assert.equal(tasks.long.result.json, 1);
  assert.deepEqual(
    Object.values(await cluster.nodes()).map(({ status }) => status),
    ['healthy', 'healthy'],
  );
});

scenario('worker_failure_during_execution', async (world) => {
  const settings = {
    heartbeat_interval_ms: 300,
    lease_ms: 3000,
    worker_liveness_timeout_ms: 3000,
    node_stale_ms: 3000,
    node_dead_ms: 5000,
    retry_backoff_base_ms: 10,
  };
  const cluster = await world.cluster({ settings });
  const victim = await cluster.startWorker({ id: 'victim', slots: 1 });
  const file = path.join(world.folder(), 'runs');
  const id = await cluster.submit([command('work', `echo x >>${file}; [ $(wc -l <${file}) -gt 1 ] || sleep 1000`)]);
  await until('it runs', () => fs.existsSync(file) && fs.readFileSync(file, 'utf8') === 'x\n');
  const heir = await cluster.startWorker({ id: 'heir', slots: 1 });
  await victim.kill();
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const { work } = await cluster.tasks(id);
  assert.equal(work.worker, heir.id);
  assert.equal(work.attempt, 2);
  assert.equal(work.failures, 1, 'the loss of a worker counts');
  const types = (await cluster.events(id)).map(({ type }) => type);
  assert.ok(types.includes('reassigned'), types.join());
  await until('the victim is dead', async () => (await cluster.nodes()).victim?.status === 'dead');
});

scenarioWithEachStore('coordinator_failure_and_recovery', async (world, store) => {
  const cluster = await world.cluster({ store, workers: 2, slots: 1, settings: { ...lenient, leader_ttl_ms: 3000 } });
  const dir = world.folder();
  const id = await cluster.submit([
    command('early', `echo x >>${dir}/early`),
    command('during', `echo x >>${dir}/during; until [ -e ${dir}/go ]; do sleep 0.02; done; echo '"went on"'`, {
      depends_on: ['early'],
    }),
    command('late', `echo x >>${dir}/late; cat ${dir}/*`, { depends_on: ['during'] }),
  ]);
  // It has reached its worker: an assignment that is lost with the coordinator is made again.
  await until('it runs', () => fs.existsSync(`${dir}/during`));
  await cluster.coordinator.kill();
  const { stderr, code } = await cluster.cli(['job', id, '--timeout', '300ms']);
  assert.equal(code, 3, stderr);
  fs.writeFileSync(`${dir}/go`, '');
  await cluster.startCoordinator();
  assert.equal((await cluster.end(id)).state, 'succeeded');
  const tasks = await cluster.tasks(id);
  assert.deepEqual(
    Object.values(tasks).map(({ attempt }) => attempt),
    [1, 1, 1],
    'nothing ran again',
  );
  assert.equal(tasks.during.result.json, 'went on');
  assert.equal(tasks.late.result.stdout, 'x\nx\nx\n');
});

scenarioWithEachStore('concurrent_lease_acquisition', async (world, store) => {
  const cluster = await world.cluster({ store });
  const names = ['a', 'b', 'c', 'd', 'e'];
  for (const name of names) {
    await cluster.client.call('RegisterWorker', {
      worker_id: name,
      incarnation: name,
      slots: 1,
      executor_types: ['sleep'],
      capabilities_json: '{}',
    });
  }
  // Raw polls of five workers, all waiting for the same task when it arrives. Where a submit takes longer than the polls last, nobody has it yet.
  const race = async (wait_ms) => {
    const poll = () =>
      Promise.all(
        names.map((name) => cluster.client.call('GetTask', { worker_id: name, incarnation: name, capacity: 1, wait_ms })),
      );
    const polls = poll();
    const id = await cluster.submit([sleep('only', 1)]);
    let answers = await polls;
    if (answers.every(({ tasks }) => tasks.length === 0)) {
      answers = await poll();
    }
    return { id, winners: answers.flatMap(({ tasks }, at) => tasks.map((task) => ({ task, name: names[at] }))) };
  };
  for (let i = 0; i < 20; i++) {
    const { id, winners } = await race(300);
    assert.equal(winners.length, 1, `round ${i}`);
    const [{ task, name }] = winners;
    assert.equal(task.query_id, id);
    const { query_id, stage_id, task_id, attempt, lease_token } = task;
    const report = (token) =>
      cluster.client.call('ReportTaskStatus', {
        worker_id: name,
        incarnation: name,
        reports: [
          {
            ref: { query_id, stage_id, task_id, attempt, lease_token: token },
            state: 'TASK_STATE_SUCCEEDED',
            result_json: Buffer.from('1'),
          },
        ],
      });
    const forged = await report(Buffer.alloc(16, 7));
    assert.equal(forged.outcomes[0].accepted, false);
    assert.match(forged.outcomes[0].reason, /^stale attempt/);
    assert.equal((await report(lease_token)).outcomes[0].accepted, true);
    assert.equal((await report(lease_token)).outcomes[0].accepted, true, 'its answer might have been lost');
    assert.equal((await cluster.end(id)).state, 'succeeded');
  }
});

// Whether the process is the coordinator, or a worker, of an `up`; not before it has become it.
const isMember = (pid, verb) => {
  try {
    return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] === verb;
  } catch {
    return false; // it has gone
  }
};

// `up` with plain logs, ready: { up, client, member }, where `member(verb)` is the process id of one that runs now.
async function startUp(world, args = []) {
  const data = `${world.folder()}/data`;
  const up = world.capstan('up', ['up', '--data', data, '--listen', '127.0.0.1:0', '--no-auth', ...args]);
  const [, address] = await up.line(/^ready: coordinator at (\S+),/m);
  const member = (verb) => childrenOf(up.pid).find((pid) => isMember(pid, verb));
  return { up, client: world.client(address), member };
}

scenario('a coordinator that is killed under up comes back, and the job that ran goes on', async (world) => {
  const { up, client, member } = await startUp(world, ['--workers', '1', '--slots', '2']);
  const file = path.join(world.folder(), 'runs');
  const id = await client.submit({
    tasks: [command('a', `echo >>${file}; until [ -e ${file}.go ]; do sleep 0.02; done`), sleep('b', 1)],
  });
  await until('it runs', () => fs.existsSync(file));
  const [coordinator, worker] = [member('coordinator'), member('worker')];
  process.kill(coordinator, 'SIGKILL');
  await up.line(/the coordinator was ended by signal 9; it is started again in \d+ ms/);
  await until('it is replaced', () => (member('coordinator') ?? coordinator) !== coordinator);
  fs.writeFileSync(`${file}.go`, '');
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  assert.equal(fs.readFileSync(file, 'utf8'), '\n', 'it ran once');
  assert.equal(member('worker'), worker, 'the worker did not notice');
  const next = await client.submit({ tasks: [sleep('a', 1)] });
  assert.equal((await client.end(next)).state, 'QUERY_STATE_SUCCEEDED');
  assert.deepEqual(await up.signal('SIGINT').ended, { code: 0, signal: null });
});

scenario('a log that nobody reads stops neither up nor its members', async (world) => {
  // Its stderr is a pipe that is full from the start, as that of a pager, or a terminal after Ctrl-S.
  const pipe = path.join(world.folder(), 'pipe');
  execFileSync('mkfifo', [pipe]);
  const { O_RDONLY, O_WRONLY, O_NONBLOCK } = fs.constants;
  const reader = fs.openSync(pipe, O_RDONLY | O_NONBLOCK);
  const writer = fs.openSync(pipe, O_WRONLY | O_NONBLOCK);
  const repeat = (step) => {
    try {
      while (step() > 0);
    } catch (error) {
      assert.equal(error.code, 'EAGAIN');
    }
  };
  repeat(() => fs.writeSync(writer, Buffer.alloc(4096)));
  fs.closeSync(writer);
  let text = '';
  const chunk = Buffer.alloc(65536);
  const readAll = () =>
    repeat(() => {
      const n = fs.readSync(reader, chunk);
      text += chunk.toString('utf8', 0, n);
      return n;
    });

  const args = ['up', '--data', `${world.folder()}/data`, '--listen', '127.0.0.1:0', '--no-auth', '--workers', '1'];
  const up = world.start('up', 'sh', ['-c', `exec "$0" "$@" 2>${pipe}`, binary, ...args]);
  const [, address] = await up.line(/^ready: coordinator at (\S+),/m);
  const client = world.client(address);
  const worker = () => childrenOf(up.pid).find((pid) => isMember(pid, 'worker'));
  const first = worker();
  process.kill(first, 'SIGKILL');
  await until('it is replaced', () => (worker() ?? first) !== first);
  const id = await client.submit({ tasks: [sleep('a', 1)] });
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  readAll();
  assert.deepEqual(await up.signal('SIGINT').ended, { code: 0, signal: null });
  readAll();
  fs.closeSync(reader);
  assert.match(text, /^\0+\S+ warn +log: \d+ lines of the log were dropped: nobody read them\n/);
  assert.match(text, /\n\S+ info +stop: stopping: workers finish what they run/);
});

scenario('a worker that keeps dying under up is started again after pauses that grow', async (world) => {
  const { up, member } = await startUp(world, ['--workers', '1']);
  const said = () =>
    [...up.log.matchAll(/the worker 1 was ended by signal 9; it is started again in (\d+) ms/g)].map(([, ms]) => +ms);
  const planned = [250, 500, 1000, 2000];
  for (const n of planned.keys()) {
    process.kill(await until('it is there', () => member('worker')), 'SIGKILL');
    await until('its end is noticed', () => said().length === n + 1);
  }
  // The time since its end is taken off.
  for (const [n, ms] of said().entries()) assert.ok(ms <= planned[n] && ms > planned[n] / 2, `pauses: ${said()}`);
  // It is not waited for at the end.
  assert.deepEqual(await up.signal('SIGINT').ended, { code: 0, signal: null });
});

scenario('up waits for what runs at the first Ctrl-C, and ends it at the second', async (world) => {
  const { up, client, member } = await startUp(world, ['--workers', '1']);
  const file = path.join(world.folder(), 'pid');
  await client.submit({ tasks: [command('a', `echo $$ >${file}; exec sleep 1000`)] });
  await until('it runs', () => fs.existsSync(file) && fs.readFileSync(file, 'utf8').endsWith('\n'));
  const pid = fs.readFileSync(file, 'utf8').trim();
  const members = [member('coordinator'), member('worker')];
  up.signal('SIGINT');
  await up.line(/stopping: workers finish what they run; a second Ctrl-C does not wait for that/);
  await up.line(/drain: leaving: no new tasks, 1 to finish/);
  assert.ok(isAlive(pid) && !up.isOver, 'it is waited for');
  const asked = Date.now();
  up.signal('SIGINT');
  const how = await up.ended;
  assert.ok(Date.now() - asked < 20000 * slowness, `${Date.now() - asked} ms`);
  assert.deepEqual(how, { code: 0, signal: null });
  for (const gone of [pid, ...members]) assert.ok(!isAlive(gone), `${gone} is still there`);
});

scenario('the example of a plug-in runs in a worker', async (world) => {
  // It is made with the binary; one that was copied elsewhere is tested with that of the release.
  const beside = path.resolve(path.dirname(binary), '../plugins/wordcount.so');
  const plugin = fs.existsSync(beside) ? beside : path.join(root, 'build/release/plugins/wordcount.so');
  const cluster = await world.cluster();
  await cluster.startWorker({ id: 'w', args: ['--plugin', plugin] });
  assert.ok((await cluster.nodes()).w.executor_types.includes('wordcount'));
  const file = world.file('text', 'one two\nthree\n');
  const count = (name, inputs) => ({ name, executor: 'wordcount', inputs, retry: { max_attempts: 1 } });
  const good = await cluster.run([count('text', { text: 'to be or not to be\n' }), count('file', { file })]);
  assert.equal(good.state, 'succeeded', good.message);
  assert.deepEqual(good.tasks.text.result, { lines: 1, words: 6, bytes: 19 });
  assert.deepEqual(good.tasks.file.result, { lines: 2, words: 3, bytes: 14 });
  const bad = await cluster.run([count('bad', { file: `${file}.nope` })]);
  assert.equal(bad.state, 'failed');
  assert.match(bad.tasks.bad.message, /nope/);
});

scenario('capstan up starts everything, restarts a dead worker, and one signal stops it all', async (world) => {
  const dir = world.folder();
  const up = world.capstan('up', [
    'up',
    '--data',
    `${dir}/data`,
    '--listen',
    '127.0.0.1:0',
    '--workers',
    '2',
    '--no-auth',
    '--json',
  ]);
  await up.line(/"ready":true/);
  const { address } = JSON.parse(up.stdout.trim().split('\n')[0]);
  const client = world.client(address);
  const id = await client.submit({ tasks: [sleep('a', 1)] });
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  const children = () => childrenOf(up.pid);
  const before = children();
  assert.equal(before.length, 3, `a coordinator and two workers, not ${before}`);
  const victim = before.find((pid) => isMember(pid, 'worker'));
  process.kill(victim, 'SIGKILL');
  await until('it is replaced', () => children().length === 3 && !children().includes(victim));
  await until(
    'both are there',
    async () => (await client.call('ListNodes')).nodes.filter(({ status }) => status === 'healthy').length === 2,
  );
  up.signal('SIGINT');
  assert.deepEqual(await up.ended, { code: 0, signal: null });
  for (const pid of before) assert.ok(!fs.existsSync(`/proc/${pid}`), `${pid} is still there`);
});

// The states of a port's sockets on this machine, as in /proc/net/tcp: 0A listens.
const statesOf = (port) =>
  ['tcp', 'tcp6']
    .flatMap((kind) => fs.readFileSync(`/proc/net/${kind}`, 'utf8').trim().split('\n').slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter(([, local]) => Number.parseInt(local.split(':')[1], 16) === Number(port))
    .map(([, , , state]) => state);

// Without workers nobody is connected when the coordinator is killed: what is left of a connection keeps a port as well.
scenario('capstan up keeps its ports while its coordinator is away', async (world) => {
  const where = ['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0'];
  const up = world.capstan('up', ['up', '--data', `${world.folder()}/data`, ...where, '--workers', '0', '--no-auth', '--json']);
  await up.line(/"ready":true/);
  const { address, http } = JSON.parse(up.stdout.trim().split('\n')[0]);
  const coordinator = childrenOf(up.pid).find((pid) => isMember(pid, 'coordinator'));
  up.signal('SIGSTOP'); // so that it does not start the next one yet
  process.kill(coordinator, 'SIGKILL');
  await until('it is gone', () => !isAlive(coordinator));
  // As the kernel looks when somebody asks for any port: without the leave to share one, which Node always takes.
  const script = 'socket(S, PF_INET, SOCK_STREAM, 0); exit(bind(S, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) ? 0 : 7)';
  for (const place of [address, http]) {
    await until('nothing is left of connections', () => statesOf(place.split(':').at(-1)).every((state) => state === '0A'));
    const bound = await world.start('perl', 'perl', ['-MSocket', '-e', script, place.split(':').at(-1)]).ended;
    assert.equal(bound.code, 7, `${place} is free`);
  }
  up.signal('SIGCONT');
  const client = world.client(address);
  world.capstan('worker', ['worker', '--join', address, '--data', world.folder()]);
  const id = await until('the next one leads', () => client.submit({ tasks: [sleep('a', 1)] }).catch(() => undefined));
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  assert.equal((await fetch(`http://${http.replace(/^http:\/\//, '')}/healthz`)).status, 200);
  await up.stop();
});

scenario('a job that is enqueued inside a transaction runs if that commits', async (world) => {
  const cluster = await world.cluster({ store: 'postgres', workers: 1 });
  const submit = (tree) => `select capstan.submit('${JSON.stringify(tree)}'::jsonb);`;
  const tree = (name) => ({ name, tasks: [command('a', 'echo $((6 * 7))')] });
  cluster.sql('create table orders (id int)');
  const id = cluster.sql(`begin; insert into orders values (1); ${submit(tree('kept'))} commit;`);
  cluster.sql(`begin; insert into orders values (2); ${submit(tree('dropped'))} rollback;`);
  const invalid = cluster.sql(submit({ tasks: [{ name: 'a', executor: 'sleep', depends_on: ['nobody'] }] }));
  await until('it is there', () => cluster.client.status(id).catch(() => undefined));
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.equal((await cluster.tasks(id)).a.result.json, 42);
  await until('the invalid one is there', () => cluster.client.status(invalid).catch(() => undefined));
  const failed = await cluster.end(invalid);
  assert.equal(failed.state, 'failed');
  assert.match(failed.message, /nobody/);
  const { jobs } = await cluster.json('jobs');
  assert.deepEqual(jobs.map(({ job_id }) => job_id).sort(), [id, invalid].sort());
});

scenario('a store is copied to PostgreSQL, and the cluster goes on there', async (world) => {
  const cluster = await world.cluster({ workers: 1, settings: { leader_ttl_ms: 1000 } });
  const done = await cluster.run([command('a', 'echo 1'), sleep('b', 1, { depends_on: ['a'] })]);
  const waiting = await cluster.submit([sleep('w', 1, { placement: { allowed_nodes: ['new'] } })]);
  await cluster.coordinator.stop();
  const to = freshDatabase();
  const copy = await world.cli(['store', 'copy', '--store', cluster.store, '--to', to]);
  assert.equal(copy.code, 0, copy.stderr);
  await cluster.startCoordinator({ store: to });
  assert.equal((await cluster.end(done.id)).state, 'succeeded');
  assert.deepEqual(await cluster.tasks(done.id), done.tasks);
  await cluster.startWorker({ id: 'new' });
  assert.equal((await cluster.end(waiting)).state, 'succeeded');
});

scenario('a worker serves its health and its metrics', async (world) => {
  const cluster = await world.cluster({ settings: { heartbeat_interval_ms: 500 } });
  const worker = await cluster.startWorker({ id: 'w', slots: 3, args: ['--http', '127.0.0.1:0'] });
  const [, url] = await worker.line(/health and metrics on (http:\S+)/);
  await cluster.run([sleep('a', 1), sleep('b', 1)]);
  const health = async () => {
    const answer = await fetch(`${url}/healthz`);
    const { status, slots, busy } = await answer.json();
    return [answer.status, status, slots, busy];
  };
  const slots = async () => {
    const metrics = await (await fetch(`${url}/metrics`)).text();
    const found = metrics.matchAll(/^capstan_worker_slots\{state="([a-z]+)"\} (\d+)$/gm);
    return Object.fromEntries([...found].map(([, state, n]) => [state, Number(n)]));
  };
  await until('all slots are free', async () => (await slots()).busy === 0);
  assert.deepEqual(await slots(), { busy: 0, free: 3 });
  assert.deepEqual(await health(), [200, 'ok', 3, 0]);
  const file = path.join(world.folder(), 'runs');
  const id = await cluster.submit([command('c', `echo >${file}; until [ -e ${file}.go ]; do sleep 0.02; done`)]);
  await until('it runs', () => fs.existsSync(file));
  assert.deepEqual(await slots(), { busy: 1, free: 2 });
  assert.deepEqual(await health(), [200, 'ok', 3, 1]);
  assert.equal((await fetch(`${url}/nope`)).status, 404);
  // Drained by the coordinator for a while, then because it leaves.
  assert.equal((await cluster.cli(['node', 'drain', 'w'])).code, 0);
  await until('it drains', async () => (await health())[0] === 503);
  assert.deepEqual(await health(), [503, 'draining', 3, 1]);
  assert.equal((await cluster.cli(['node', 'undrain', 'w'])).code, 0);
  await until('it takes tasks again', async () => (await health())[0] === 200);
  worker.signal('SIGTERM');
  await until('it leaves', async () => (await health())[0] === 503);
  assert.deepEqual(await health(), [503, 'draining', 3, 1]);
  fs.writeFileSync(`${file}.go`, '');
  assert.equal((await cluster.end(id)).state, 'succeeded');
  assert.deepEqual(await worker.ended, { code: 0, signal: null });
});
