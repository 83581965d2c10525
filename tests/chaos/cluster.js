// cluster.js - the cluster that is tortured: a PostgreSQL server, coordinators and workers as real processes, behind gates.
import { execFile, execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { Process, binary, isAlive, root, until } from '../e2e/harness.js';
import { Network } from './network.js';
import { coordinators, settings, smallDisk, workers } from './plan.js';

const run = promisify(execFile);
const serverScript = path.join(root, 'tests/integration/postgres/server.sh');
const DATABASE = 'chaos';
const DISK_BYTES = 6 * 1024 * 1024;
const LOG_KEPT = 65536; // characters of a process's output that stay in memory; all of it is in a file
const SLOTS = 2;

// The libraries that shift clocks, if they are here; clock.c says why one does not do. Sanitizers want to be the first
// library, so they do without.
export const clockLibraries = (() => {
  if (/asan|tsan/.test(binary)) return undefined;
  const folders = ['/usr/lib', ...fs.readdirSync('/usr/lib').map((name) => path.join('/usr/lib', name))];
  const candidates = folders.map((folder) => path.join(folder, 'faketime/libfaketimeMT.so.1'));
  const faketime = candidates.find((file) => fs.existsSync(file));
  const waits = path.resolve(path.dirname(binary), '../plugins/clock.so');
  return faketime && fs.existsSync(waits) ? `${waits} ${faketime}` : undefined;
})();

// Whether a small file system of one's own can be had.
export const canMount = (() => {
  try {
    execFileSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', '/tmp'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

// One member: a name that lives through restarts.
class Member {
  constructor(name) {
    this.name = name;
    this.incarnation = 0;
    this.isWanted = false; // false: whoever ended it will start it again
    this.leads = false;
    this.rss = []; // samples in bytes
  }

  get isUp() {
    return this.process !== undefined && !this.process.isOver;
  }
}

export class Cluster {
  #disk; // the process that keeps the small file system
  #postgres;
  #isClosing = false;

  constructor(dir, history, { bug, clocks = true } = {}) {
    this.dir = dir;
    this.history = history;
    this.bug = bug;
    this.clocks = clocks && clockLibraries !== undefined;
    this.members = new Map([...coordinators, ...workers].map((name) => [name, new Member(name)]));
    this.network = new Network();
    this.gates = {};
    this.unexpected = [];
    for (const folder of ['logs', 'ledger', 'clocks']) fs.mkdirSync(path.join(dir, folder));
  }

  // ---- the database ----

  // The server runs as a user of its own, in a folder whose path is short enough for a socket.
  async #startPostgres() {
    this.#postgres = fs.mkdtempSync('/tmp/cap-chaos-pg-');
    fs.chmodSync(this.#postgres, 0o755);
    process.on('exit', () => {
      if (this.#postgres) execFileSync(serverScript, ['remove', this.#postgres], { stdio: 'ignore' });
    });
    // psql and the driver have to get in while all coordinators try to come back at once.
    await run(serverScript, ['start', this.#postgres, '--fsync=off', 'max_connections=300']);
    await run('psql', ['-h', this.#postgres, '-U', 'postgres', '-qc', `create database ${DATABASE}`]);
    for (const name of coordinators) {
      const folder = path.join(this.#postgres, name);
      fs.mkdirSync(folder);
      const target = { path: path.join(this.#postgres, '.s.PGSQL.5432') };
      await this.network.gate('database', { target, from: name, path: path.join(folder, '.s.PGSQL.5432') });
    }
  }

  async crashDatabase() {
    await run(serverScript, ['kill', this.#postgres]);
  }

  async restartDatabase() {
    await run(serverScript, ['restart', this.#postgres]);
  }

  // Runs SQL without a gate in between: what it prints, a line per row.
  async sql(text) {
    const args = ['-h', this.#postgres, '-U', 'postgres', '-d', DATABASE, '-qAt', '-v', 'ON_ERROR_STOP=1', '-c', text];
    const { stdout } = await run('psql', args, { maxBuffer: 1 << 30 });
    return stdout.trimEnd();
  }

  // The rows of a query, one by one, without holding them all.
  async *rows(query) {
    const args = ['-h', this.#postgres, '-U', 'postgres', '-d', DATABASE, '-qAt', '-v', 'ON_ERROR_STOP=1'];
    const child = spawn('psql', args, { stdio: ['pipe', 'pipe', 'pipe'] });
    let complaint = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (complaint += text));
    child.stdin.on('error', () => {}); // it has ended before it took the query: its exit code tells
    const ended = new Promise((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('close', (code, signal) => resolve(code ?? signal));
    });
    child.stdin.end(
      `COPY (SELECT to_json(x) FROM (${query}) x) TO STDOUT WITH (FORMAT csv, QUOTE E'\\b', DELIMITER E'\\f')`,
    );
    let rest = '';
    for await (const chunk of child.stdout.setEncoding('utf8')) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line.replaceAll('\b', ''));
    }
    const how = await ended;
    if (how !== 0) throw new Error(`psql ended with ${how}: ${complaint.trim()}: ${query}`);
  }

  // ---- members ----

  async start() {
    await this.#startPostgres();
    if (canMount) await this.#makeDisk();
    for (const name of this.members.keys()) this.gates[name] = await this.network.gate(name);
    await this.startMember('c1');
    await until('c1 leads', () => {
      if (this.unexpected.length > 0) throw new Error(this.unexpected[0]);
      return this.members.get('c1').leads;
    });
    await Promise.all([...coordinators.slice(1), ...workers].map((name) => this.startMember(name)));
    for (const name of workers) await this.members.get(name).process.line(/registered/);
  }

  get servers() {
    return coordinators.map((name) => this.gates[name]);
  }

  // A file system that is small and goes with the process that holds it. What is in it outlives the worker.
  async #makeDisk() {
    const folder = this.folderOf(smallDisk);
    fs.mkdirSync(folder);
    const script = `mount -t tmpfs -o size=${DISK_BYTES},mode=777 tmpfs "$0" && echo mounted && exec sleep 1000000`;
    this.#disk = new Process('disk', 'unshare', ['-rm', 'sh', '-c', script, folder], { cwd: this.dir });
    await this.#disk.line(/mounted/);
  }

  folderOf(name) {
    return path.join(this.dir, `data-${name}`);
  }

  // The same folder as this process can see it.
  visibleFolderOf(name) {
    const folder = this.folderOf(name);
    return name === smallDisk && this.#disk ? `/proc/${this.#disk.pid}/root${folder}` : folder;
  }

  clockFile(name) {
    return path.join(this.dir, 'clocks', name);
  }

  #environment(name) {
    const env = this.bug ? { CAPSTAN_PLANTED_BUG: this.bug } : {};
    if (process.env.CAPSTAN_DUCKDB) env.CAPSTAN_DUCKDB = process.env.CAPSTAN_DUCKDB;
    if (!this.clocks) return env;
    if (!fs.existsSync(this.clockFile(name))) fs.writeFileSync(this.clockFile(name), '+0\n');
    return {
      ...env,
      LD_PRELOAD: clockLibraries,
      FAKETIME_TIMESTAMP_FILE: this.clockFile(name),
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1', // the times of files are what they are
      // Else waits on the monotonic clock return at once, again and again.
      FAKETIME_FORCE_MONOTONIC_FIX: '0',
    };
  }

  #argumentsOf(name, incarnation) {
    if (coordinators.includes(name)) {
      const store = `postgres://postgres@/${DATABASE}?host=${path.join(this.#postgres, name)}&port=5432&application_name=${name}-${incarnation}`;
      const set = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
      return [
        'coordinator',
        '--store',
        store,
        '--store-wait',
        '600s',
        '--role',
        'auto',
        '--node-id',
        name,
        '--listen',
        '127.0.0.1:0',
        '--advertise',
        this.gates[name],
        ...set,
      ];
    }
    return [
      'worker',
      '--join',
      this.servers.join(','),
      '--id',
      name,
      '--slots',
      String(SLOTS),
      '--memory',
      '256MB',
      '--listen',
      '127.0.0.1:0',
      '--advertise',
      this.gates[name],
      '--data',
      this.folderOf(name),
    ];
  }

  async startMember(name) {
    const member = this.members.get(name);
    if (member.isUp || this.#isClosing) return;
    const incarnation = ++member.incarnation;
    let command = [binary, ...this.#argumentsOf(name, incarnation)];
    if (name === smallDisk && this.#disk) {
      command = ['nsenter', '-t', String(this.#disk.pid), '-m', '-U', '--preserve-credentials', ...command];
    }
    const started = new Process(`${name}-${incarnation}`, command[0], command.slice(1), {
      cwd: this.dir,
      env: this.#environment(name),
    });
    member.process = started;
    member.startedAt = Date.now();
    this.network.process(name, started.pid);
    member.leads = false;
    member.isWanted = true;
    this.history.add('process', { name, event: 'start', pid: started.pid, incarnation });
    this.#keepLog(member, started);
    started.ended.then((how) => this.#hasEnded(member, started, how));
  }

  #keepLog(member, started) {
    const file = fs.createWriteStream(path.join(this.dir, 'logs', `${member.name}.log`), { flags: 'a' });
    file.write(`---- ${started.title}, process ${started.pid}, ${new Date().toISOString()}\n`);
    let line = '';
    for (const stream of ['stdout', 'stderr']) {
      started.child[stream].on('data', (text) => {
        file.write(text);
        line = (line + text).slice(-LOG_KEPT);
        const news = /this coordinator (leads|does not lead)(?![\s\S]*this coordinator (?:leads|does not lead))/.exec(
          line,
        );
        if (news && member.process === started) member.leads = news[1] === 'leads';
        if (/ERROR: (Address|Leak|Thread)Sanitizer|runtime error:|assertion failed/i.test(text)) {
          this.unexpected.push(`${started.title} complained: ${text.slice(0, 2000)}`);
        }
        started[stream] = started[stream].slice(-LOG_KEPT);
      });
    }
    started.ended.then(() => file.end());
  }

  #hasEnded(member, started, how) {
    const isExpected = !member.isWanted || member.process !== started || this.#isClosing;
    member.leads = false;
    if (member.process === started) this.network.process(member.name, undefined);
    this.history.add('process', { name: member.name, event: 'exit', pid: started.pid, ...how, expected: isExpected });
    if (isExpected) return;
    this.unexpected.push(`${started.title} ended by itself: ${JSON.stringify(how)}\n${started.log.slice(-2000)}`);
    setTimeout(() => this.startMember(member.name), 500);
  }

  // Ends a member by SIGKILL or SIGTERM. Whoever calls this starts it again.
  async endMember(name, signal) {
    const member = this.members.get(name);
    member.isWanted = false;
    member.process.signal(signal);
    if (signal === 'SIGKILL') await member.process.ended;
  }

  get leader() {
    const leads = [...this.members.values()].filter((member) => member.isUp && member.leads);
    return leads.at(-1)?.name;
  }

  sampleMemory() {
    for (const member of this.members.values()) {
      if (!member.isUp || !isAlive(member.process.pid)) continue;
      let rss;
      try {
        ({ rss } = member.process.usage());
      } catch {
        continue; // it ended just now
      }
      member.rss.push(rss);
      const { name, incarnation, startedAt } = member;
      this.history.add('memory', { name, incarnation, age: Date.now() - startedAt, rss });
    }
  }

  async close() {
    this.#isClosing = true;
    const all = [...this.members.values()].filter(({ isUp }) => isUp);
    for (const { process: it } of all) it.signal('SIGCONT').signal('SIGTERM');
    await Promise.race([
      Promise.all(all.map(({ process: it }) => it.ended)),
      new Promise((resolve) => setTimeout(resolve, 4000)),
    ]);
    await Promise.all(all.map(({ process: it }) => it.kill()));
    await this.#disk?.kill();
    await this.network.end();
    const postgres = this.#postgres;
    this.#postgres = undefined;
    await run(serverScript, ['remove', postgres]);
  }
}
