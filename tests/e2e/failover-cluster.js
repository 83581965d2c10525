// failover-cluster.js - three coordinators on one PostgreSQL, each behind two proxies: one for those who call it, one for its
// way to the database. So one of them can be cut off from either, or from both, as if its machine were.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { assert, binary, command, freshDatabase, quick, until } from './harness.js';

// Leases outlast all that is done here: only a change of leaders is to blame for a second execution.
export const steady = {
  ...quick,
  lease_ms: 20000,
  worker_liveness_timeout_ms: 20000,
  node_stale_ms: 20000,
  node_dead_ms: 60000,
  leader_ttl_ms: 2000,
};

export class Trio {
  #world;
  #settings;
  #env;

  // env: variables of all coordinators, of all workers, of all commands. connection: says how the test itself connects.
  static async start(world, { settings = {}, workers = 2, slots = 4, args = [], file, env, connection } = {}) {
    const trio = new Trio();
    trio.#world = world;
    trio.#env = { coordinator: {}, worker: {}, client: {}, ...env };
    trio.connection = connection ?? (() => ({}));
    trio.#settings = Object.entries({ ...steady, ...settings }).flatMap(([name, value]) => [
      '--set',
      `${name}=${value}`,
    ]);
    trio.dir = world.folder('trio');
    trio.store = freshDatabase();
    trio.members = [];
    for (const name of ['c1', 'c2', 'c3']) {
      const front = await world.proxy('127.0.0.1:1');
      const database = await world.proxy(`${trio.#url.searchParams.get('host')}/.s.PGSQL.5432`);
      trio.members.push({ name, front, database, address: front.address });
    }
    for (const member of trio.members) await trio.startCoordinator(member, { file });
    trio.servers = trio.members.map(({ address }) => address).join(',');
    await trio.leader();
    trio.workers = {};
    for (let i = 1; i <= workers; i++)
      trio.workers[`w${i}`] = await trio.startWorker({ id: `w${i}`, slots, args, file });
    return trio;
  }

  get #url() {
    return new URL(this.store.replace('@/', '@local/'));
  }

  get database() {
    return this.#url.pathname.slice(1);
  }

  async startCoordinator(member, { args = [], file = binary } = {}) {
    const store = `postgres://postgres@${member.database.address}/${this.database}?application_name=${member.name}`;
    const all = ['coordinator', '--store', store, '--listen', '127.0.0.1:0', '--advertise', member.address];
    all.push('--node-id', member.name, '--role', 'auto', ...this.#settings, ...args);
    const env = this.#env.coordinator;
    member.process = this.#world.start(`coordinator ${member.name}`, file, all, { cwd: this.dir, env });
    await member.process.line(/serving on (\S+),/);
    member.front.aim(listening(member.process.pid));
    this.connect(member);
    return member;
  }

  connect(member) {
    member.client = this.#world.client(member.address, this.connection());
  }

  async startWorker({ id, slots = 4, args = [], file = binary }) {
    const folder = path.join(this.dir, `worker-${id}`);
    const all = ['worker', '--join', this.servers, '--id', id, '--slots', String(slots), '--data', folder, ...args];
    const worker = this.#world.start(`worker ${id}`, file, all, { cwd: this.dir, env: this.#env.worker });
    worker.id = id;
    worker.folder = folder;
    await worker.line(/registered/);
    return worker;
  }

  // The member that says of itself that it leads, under an epoch above `after`.
  leader(after = 0) {
    return until(`a coordinator leads under an epoch above ${after}`, async () => {
      for (const member of this.members) {
        const news = await member.client.once('GetLeader', {}, { timeoutMs: 1000 }).catch(() => ({}));
        if (news.role === 'leader' && news.epoch > after) return Object.assign(member, { epoch: news.epoch });
      }
      return undefined;
    });
  }

  // A command of the command line that knows all three.
  spawn(title, args, { file = binary, ...options } = {}) {
    const env = { CAPSTAN_SERVER: this.servers, ...this.#env.client, ...options.env };
    const run = this.#world.start(title, file, args, { cwd: this.dir, ...options, env });
    run.isClient = true;
    return run;
  }

  async cli(args) {
    const run = this.spawn(`capstan ${args.join(' ')}`.slice(0, 100), args);
    const { code, signal } = await run.ended;
    return { code: code ?? signal, stdout: run.stdout, stderr: run.stderr };
  }

  async json(...args) {
    const { code, stdout, stderr } = await this.cli([...args, '--json']);
    assert.equal(code, 0, `capstan ${args.join(' ')}: ${stderr}`);
    return JSON.parse(stdout);
  }

  // SQL in the database itself, past all proxies.
  psql(text) {
    const socket = this.#url.searchParams.get('host');
    const args = ['-h', socket, '-p', '5432', '-U', 'postgres', '-d', this.database, '-qAt', '-v', 'ON_ERROR_STOP=1'];
    return execFileSync('psql', args, { input: text, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] }).trim();
  }

  // What the store says about the attempts of a job: none of its tasks was begun twice. Attempts that came back untouched,
  // because their worker had just lost sight of the leader, were not begun.
  assertBegunOnce(id) {
    const rows = this.psql(`select stage || '.' || task || ':' || count(*) from capstan.execution_idempotency a
      where job_id = '${id}' and not exists (select from capstan.task_events e
        where e.event_type = 6 and e.job_id = a.job_id and e.stage = a.stage and e.task = a.task
          and e.attempt_id = a.attempt_id and e.details in ('released', 'the assignment did not reach the worker'))
      group by stage, task order by stage, task`);
    for (const row of rows.split('\n')) assert.match(row, /:1$/, `attempts of ${id}: ${rows}`);
    return rows.split('\n').length;
  }
}

// Where a process listens, by the kernel's tables: behind a proxy it says another address.
function listening(pid) {
  const inodes = new Set(
    fs.readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(fs.readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return [];
      }
    }),
  );
  const sockets = ['tcp', 'tcp6'].flatMap((table) => fs.readFileSync(`/proc/net/${table}`, 'utf8').split('\n'));
  for (const socket of sockets) {
    const [, local, , state, , , , , , inode] = socket.trim().split(/\s+/);
    if (state === '0A' && inodes.has(inode)) return `127.0.0.1:${parseInt(local.split(':')[1], 16)}`;
  }
  throw new Error(`process ${pid} listens nowhere`);
}

// Tasks that leave a line each time they begin, and wait until the test lets them end.
export class Held {
  constructor(world) {
    this.dir = world.folder('held');
  }

  task(name, more = {}) {
    const script = `echo $CAPSTAN_IDEMPOTENCY_KEY >>${this.dir}/ran-${name}; until [ -e ${this.dir}/go ]; do sleep 0.05; done; echo '"${name}"'`;
    return command(name, script, more);
  }

  runs(name) {
    const file = `${this.dir}/ran-${name}`;
    return fs.existsSync(file) ? fs.readFileSync(file, 'utf8').trim().split('\n').length : 0;
  }

  running(...names) {
    return until(`${names} run`, () => names.every((name) => this.runs(name) > 0));
  }

  release() {
    fs.writeFileSync(`${this.dir}/go`, '');
  }
}
