// Three coordinators, one leads: whatever happens to it, another takes over, what runs goes on and is not begun again, and
// those who use the cluster notice nothing but a pause.
import fs from 'node:fs';
import { Client } from '../../examples/javascript/client.js';
import { Held, Trio } from './failover-cluster.js';
import {
  assert,
  binary,
  childrenOf,
  freshDatabase,
  isAlive,
  lenient,
  scenario,
  sleep,
  slowness,
  until,
} from './harness.js';
import { Gate, plugin, Sql } from './sql-cluster.js';

const holds = ['--plugin', plugin('hold')];

// What is done to a leader, and how it is undone. `anyone`: the same one may lead on. `isStill`: it lives, says nothing, and
// keeps its connections, so that it takes clients ten seconds to give it up; one such case with clients is enough.
const blows = {
  'is killed': {
    strike: ({ process }) => process.kill(),
    heal: (member, trio) => trio.startCoordinator(member),
  },
  'is stopped': {
    settings: { leader_ttl_ms: 10000 }, // The row is handed back, nobody waits for its end.
    strike: async ({ process }) => assert.deepEqual(await process.stop(), { code: 0, signal: null }),
    heal: (member, trio) => trio.startCoordinator(member),
  },
  'is frozen': {
    strike: ({ process }) => process.signal('SIGSTOP'),
    heal: ({ process }) => process.signal('SIGCONT'),
  },
  'is cut off from everything': {
    strike: ({ front, database }) => [front, database].forEach((proxy) => proxy.cut()),
    heal: ({ front, database }) => [front, database].forEach((proxy) => proxy.heal()),
  },
  'loses its way to the database': {
    strike: ({ database }) => database.cut(),
    heal: ({ database }) => database.heal(),
  },
  'gets no answer from the database': {
    strike: ({ database }) => database.mute(),
    heal: ({ database }) => database.heal(),
    // It still answers, only not this: whoever asks it first goes on to the next.
    after: async ({ address }, trio, { address: next }) => {
      const { code, stderr } = await trio.cli(['jobs', '--server', `${address},${next}`]);
      assert.equal(code, 0, stderr);
    },
  },
  'loses its sessions in the database': {
    strike: ({ name }, trio) =>
      trio.psql(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = '${name}'`),
    heal: () => {},
    anyone: true,
  },
  'is frozen inside a transaction': {
    strike: freezeInTransaction,
    heal: ({ process }) => process.signal('SIGCONT'),
    isStill: true,
  },
};

// Lets a commit hang in the database, with the leader's row locked, and freezes the process. Returns which one: on a busy
// machine the lead may have moved meanwhile, and then another has to try.
async function freezeInTransaction(leader, trio) {
  trio.psql(`create function public.hang() returns trigger language plpgsql as
    $$ begin if new.name = 'hang' then perform pg_sleep(600); end if; return new; end $$;
    create trigger hang before insert on capstan.jobs for each row execute function public.hang();`);
  const tree_json = Buffer.from(JSON.stringify({ name: 'hang', tasks: [sleep('a', 0)] }));
  let isOver = true;
  let n = 0;
  await until('its transaction hangs', async () => {
    if (trio.psql(`select pid from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`)) return true;
    if (isOver) {
      leader = await trio.leader();
      isOver = false;
      const done = () => (isOver = true);
      leader.client.once('SubmitTasks', { job_id: `hang-${++n}`, tree_json }).then(done, done);
    }
    return false;
  });
  leader.process.signal('SIGSTOP');
  return leader;
}

// A tree under `run`, a query under `sql`, and somebody who follows all events: all know the three addresses.
function startClients(world, trio, { held, gate }) {
  const tree = { tasks: [held.task('a'), held.task('b'), sleep('c', 1, { depends_on: ['a'] })] };
  const sql = `SELECT * FROM custom('hold', (SELECT 7::INTEGER AS n), config := '${JSON.stringify(gate.custom.config)}')`;
  return {
    run: trio.spawn('run', ['run', world.file('tree.json', JSON.stringify(tree)), '--id', 'tree']),
    query: trio.spawn('sql', ['sql', sql, '--id', 'query', '-o', 'csv']),
    events: trio.spawn('events', ['events', '--follow', '--json']),
    // One that hears nothing: from a leader that is frozen for longer than it would look for a server.
    quiet: trio.spawn('quiet events', ['events', '--follow', '--after', '1000000', '--timeout', '8s']),
  };
}

const isDone = { code: 0, signal: null };

// They have ended well, and were told everything once, in order.
async function assertServed({ run, query, events, quiet }, { client }) {
  assert.deepEqual(await run.ended, isDone, run.log);
  assert.equal(JSON.parse(run.stdout).b.json, 'b');
  assert.deepEqual(await query.ended, isDone, query.log);
  assert.equal(query.stdout, 'n\n7\n');
  const all = [];
  for await (const { seq } of client.stream('WatchEvents', {})) all.push(seq);
  const told = () =>
    events.stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line).seq);
  await until('all events are told', () => told().at(-1) >= all.at(-1));
  assert.deepEqual(told().slice(0, all.length), all);
  for (const { isOver, log } of [events, quiet]) assert.ok(!isOver, log);
}

for (const [how, { strike, heal, after, settings, anyone, isStill }] of Object.entries(blows)) {
  scenario(`a leader that ${how} is followed by another, and nothing is begun again`, async (world) => {
    const trio = await Trio.start(world, { args: holds, settings });
    let leader = await trio.leader();
    const [held, gate, maps] = [new Held(world), new Gate(world), new Gate(world)];
    const clients = isStill ? undefined : startClients(world, trio, { held, gate });
    if (isStill) await leader.client.submit({ tasks: [held.task('a'), held.task('b')] }, { id: 'tree' });
    await new Sql({ client: leader.client }).submit(stages(maps), { id: 'stages' });
    await held.running('a', 'b');
    if (clients) await gate.arrived(7);
    for (let task = 0; task < 2; task++) await maps.arrived(task);

    leader = await trio.leader(); // On a busy machine maybe not the first one any more.
    let term = leader.epoch;
    const struck = await strike(leader, trio);
    if (isStill) {
      leader = struck;
      term = leader.epoch;
    }
    const next = await trio.leader(anyone ? 0 : term);
    if (!anyone) assert.notEqual(next, leader, `${next.name} leads`);
    await next.client.submit({ tasks: [sleep('d', 1)] }, { id: 'more' });
    held.release();
    for (const one of [gate, maps]) one.open();

    if (clients) await assertServed(clients, next);
    await after?.(leader, trio, next);
    const jobs = ['tree', 'stages', 'more', ...(clients ? ['query'] : [])];
    for (const id of jobs) assert.equal((await next.client.end(id)).state, 'QUERY_STATE_SUCCEEDED', id);
    const { rows } = await new Sql({ client: next.client, end: async () => ({ state: 'succeeded' }) }).table('stages');
    assert.deepEqual(rows, [['200']]);
    for (const name of ['a', 'b']) assert.equal(held.runs(name), 1, `executions of ${name}`);
    if (clients) assert.equal(gate.arrivals(7).length, 1);
    for (let task = 0; task < 2; task++) assert.equal(maps.arrivals(task).length, 1);
    for (const id of jobs) trio.assertBegunOnce(id);

    // It comes back and knows who leads: on a busy machine maybe not the same one as before.
    await heal(leader, trio);
    await until('it knows who leads', async () => {
      const { address, epoch } = await trio.leader(anyone ? 0 : term);
      const news = await leader.client.once('GetLeader', {}, { timeoutMs: 1000 }).catch(() => ({}));
      return news.address === address && news.epoch === epoch;
    });
  });
}

scenario('maps that have ended stay so under the next leader, while those who read them run and afterwards', async (world) => {
  const trio = await Trio.start(world, { args: holds });
  const gate = new Gate(world);
  const { client } = await trio.leader();
  const sql = 'SELECT {{task}} AS t, i FROM range(100) r(i)';
  const plan = {
    stages: [
      { id: 0, sql, splits: [{ file: 'none' }, { file: 'none' }], output: { exchange: 'gather' } },
      { id: 1, inputs: { m: 0 }, sql: 'SELECT 5 AS t, i FROM m', custom: gate.custom, output: { exchange: 'gather' } },
      { id: 2, inputs: { m: 0, r: 1 }, sql: 'SELECT count(*) AS n FROM m, r WHERE m.i = r.i', output: { exchange: 'result' } },
    ],
  };
  await new Sql({ client }).submit(plan, { id: 'stages' });
  await gate.arrived(5);
  const leader = await trio.leader();
  await leader.process.kill();
  const next = await trio.leader(leader.epoch);
  gate.open();
  const { state, message } = await next.client.end('stages');
  assert.equal(state, 'QUERY_STATE_SUCCEEDED', message);
  const { rows } = await new Sql({ client: next.client, end: async () => ({ state: 'succeeded' }) }).table('stages');
  assert.deepEqual(rows, [['400']]);
  assert.equal(gate.arrivals(5).length, 1);
  assert.equal(trio.assertBegunOnce('stages'), 4);
});

scenario('a leader that is stopped is followed long before its time has run out', async (world) => {
  const trio = await Trio.start(world, { workers: 0, settings: { leader_ttl_ms: 60000 } });
  for (let round = 0; round < 3; round++) {
    const leader = await trio.leader();
    const asked = Date.now();
    leader.process.signal('SIGTERM');
    const [other] = trio.members.filter((member) => member !== leader);
    await other.client.submit({ tasks: [sleep('a', 1)] });
    const ms = Date.now() - asked;
    // The bar is a second, which ./dev bench failover checks. Without a hand-over it would be a minute here.
    assert.ok(ms < 20000 * slowness, `${ms} ms`);
    await leader.process.ended;
    await trio.startCoordinator(leader);
  }
});

// How long nobody leads, at best of three rounds with two coordinators: a busy machine stretches some, and seldom all. The one
// that stands by has just looked who leads when the leader is struck, so it has to wait as long as it ever does.
async function takeoverMs(world, settings, strike, { enough }) {
  const trio = await Trio.start(world, { workers: 0, settings });
  const [spare] = trio.members.filter((member) => !member.epoch);
  await spare.process.kill();
  const two = trio.members.filter((member) => member !== spare);
  let best = Infinity;
  for (let round = 0; round < (best === Infinity ? 9 : 3) && best > enough; round++) {
    const leader = await trio.leader();
    const [next] = two.filter((member) => member !== leader);
    await next.process.kill(); // if it has not gone
    await trio.startCoordinator(next);
    const [, role] = await next.process.line(/this coordinator (stands by|leads)/);
    if (role === 'leads') continue; // the other was too slow to keep it
    const struck = Date.now();
    strike(leader);
    await next.process.line(/this coordinator leads/);
    best = Math.min(best, Date.now() - struck);
    await leader.process.kill();
  }
  return best;
}

// The bars are a second, and a second more than the time that it has: ./dev soak failover checks these, on a quiet machine.
scenario('nobody leads for no more than moments if the leader is stopped, and no longer than its time if it is killed', async (world) => {
  const ttl = 2000;
  for (const [signal, leader_ttl_ms, enough] of [
    ['SIGTERM', 60000, 3000 * slowness],
    ['SIGKILL', ttl, ttl + 2500 * slowness],
  ]) {
    const ms = await takeoverMs(world, { leader_ttl_ms }, ({ process }) => process.signal(signal), { enough });
    assert.ok(ms <= enough, `${signal}: ${ms} ms`);
  }
});

scenario('rows that are being read go on from the next leader, byte by byte', async (world) => {
  const trio = await Trio.start(world);
  const leader = await trio.leader();
  const rows = 'SELECT range AS n, repeat(md5(range::VARCHAR), 4) AS t FROM range(200000)';
  await new Sql({ client: leader.client }).submit(rows, { id: 'rows' });
  assert.equal((await leader.client.end('rows')).state, 'QUERY_STATE_SUCCEEDED');
  const whole = await trio.cli(['results', 'rows', '-o', 'csv']);
  assert.equal(whole.code, 0, whole.stderr);
  // A reader that stops after the first line, until the leader has gone. All that is on its way by then is less than a fifth.
  const dir = world.folder();
  const pipe = `${binary} results rows -o csv | { read -r line; echo "$line"; echo >${dir}/begun; until [ -e ${dir}/go ]; do sleep 0.05; done; cat; }`;
  const reader = trio.spawn('results', ['-c', `set -o pipefail; ${pipe}`], { file: 'bash' });
  await until('it reads', () => fs.existsSync(`${dir}/begun`));
  await leader.process.kill();
  const next = await trio.leader(leader.epoch);
  assert.notEqual(next, leader);
  fs.writeFileSync(`${dir}/go`, '');
  assert.deepEqual(await reader.ended, isDone, reader.stderr);
  assert.ok(reader.stdout === whole.stdout, `${reader.stdout.length} characters instead of ${whole.stdout.length}`);
});

scenario('a role that must lead says so and ends, at its start and when it has lost the lead', async (world) => {
  const trio = await Trio.start(world, { workers: 0 });
  const [first, second, third] = trio.members;
  await second.process.kill();
  const refused = trio.startCoordinator(second, { args: ['--role', 'leader'] }).catch(() => {});
  assert.deepEqual(await second.process.ended, { code: 1, signal: null });
  await refused;
  assert.match(second.process.stderr, /^capstan: another coordinator leads already: c\d leads$/m);
  assert.match(second.process.stderr, /^ {2}hint: use --role auto to stand by, or stop the other one$/m);

  for (const { process } of [first, third]) await process.stop();
  await trio.startCoordinator(second, { args: ['--role', 'leader'] });
  const { epoch } = await trio.leader();
  await trio.startCoordinator(first);
  second.process.signal('SIGSTOP');
  assert.equal(await trio.leader(epoch), first);
  second.process.signal('SIGCONT');
  assert.deepEqual(await second.process.ended, { code: 1, signal: null });
  assert.match(second.process.stderr, /another coordinator leads already: c1 leads/);
});

scenario('three `up` on one database are a cluster, which loses a whole node and goes on', async (world) => {
  const store = freshDatabase();
  const settings = Object.entries({ ...lenient, leader_ttl_ms: 2000 }).flatMap((pair) => ['--set', pair.join('=')]);
  const token = 'one-token-for-all-nodes';
  const start = (title, env) => {
    const args = ['up', '--data', `${world.folder()}/data`, '--store', store, '--listen', '127.0.0.1:0'];
    return world.capstan(title, [...args, '--workers', '1', '--slots', '2', ...settings], { env });
  };
  const nodes = [];
  for (let i = 0; i < 3; i++) {
    nodes.push({ up: start(`up ${i}`, { CAPSTAN_TOKEN: token }) });
  }
  for (const node of nodes) {
    node.address = (await node.up.line(/^ready: coordinator at (\S+),/m))[1];
  }
  const servers = nodes.map(({ address }) => address);
  const client = new Client(servers, { token });
  world.atEnd(() => client.close());
  assert.equal((await client.call('ListNodes')).nodes.length, 3);
  const stranger = start('up with a token of its own', {});
  assert.deepEqual(await stranger.ended, { code: 4, signal: null });
  assert.match(stranger.stderr, /nodes of one cluster share a token: set CAPSTAN_TOKEN on all/);
  const lead = await client.call('GetLeader');
  const leader = nodes.find(({ address }) => address === lead.address);

  const held = new Held(world);
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  const id = await client.submit({ tasks: names.map((name) => held.task(name)) });
  await held.running(...names);
  const where = Object.fromEntries((await client.tasks(id)).map(({ name, worker_id }) => [name, worker_id]));
  const members = childrenOf(leader.up.pid);
  const workerOf = ({ up }) => /worker (\S+) with/.exec(up.log)[1];
  const lost = workerOf(leader);
  assert.equal(Object.values(where).filter((worker) => worker === lost).length, 2, JSON.stringify(where));

  await leader.up.kill();
  await until('its processes are gone', () => members.every((pid) => !isAlive(pid)));
  held.release();
  assert.equal((await client.end(id)).state, 'QUERY_STATE_SUCCEEDED');
  for (const name of names) assert.equal(held.runs(name), where[name] === lost ? 2 : 1, `executions of ${name}`);
  const now = await client.call('GetLeader');
  assert.ok(servers.includes(now.address) && now.address !== leader.address && now.epoch > lead.epoch);
});

// Two tasks that wait at the gate, one that counts what they bring.
function stages(gate) {
  return {
    stages: [
      {
        id: 0,
        sql: 'SELECT {{task}} AS t, i FROM range(100) r(i)',
        splits: [{ file: 'none' }, { file: 'none' }],
        custom: gate.custom,
        output: { exchange: 'gather' },
      },
      { id: 1, inputs: { m: 0 }, sql: 'SELECT count(*) AS n FROM m', output: { exchange: 'result' } },
    ],
  };
}
