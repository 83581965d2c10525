// shell.js - terminals: a shell that keeps its folder and variables from block to block, and ones that stay busy.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

const COMMAND_MS = 180000;
const READY_MS = 90000;
const END_MS = 45000;

const living = new Set(); // groups of processes; none outlives this one
const killGroup = (pid, signal) => {
  try {
    process.kill(-pid, signal);
  } catch {
    // it has gone already
  }
};
process.on('exit', () => living.forEach((pid) => killGroup(pid, 'SIGKILL')));

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Everything that either of them prints is in a file, in the order in which it came, as on a screen.
class Group {
  constructor(file, args, { cwd, env, stdio }) {
    this.child = spawn(file, args, { cwd, env, stdio, detached: true });
    living.add(this.child.pid);
    this.isOver = false;
    this.ended = new Promise((resolve) => this.child.on('close', resolve)).then(() => {
      this.isOver = true;
    });
  }

  // Whatever is left of it.
  kill() {
    killGroup(this.child.pid, 'SIGKILL');
    living.delete(this.child.pid);
    return this.ended;
  }
}

export class Shell {
  #group;
  #folder;
  #env;
  #n = 0;
  #answer = () => {};

  // `folder` is where it starts, `scratch` where commands and outputs are kept.
  constructor({ folder, scratch, env }) {
    this.#folder = folder;
    this.#env = env;
    this.scratch = scratch;
    fs.mkdirSync(scratch, { recursive: true });
  }

  #start() {
    const stdio = ['pipe', 'ignore', 'ignore', 'pipe'];
    this.#group = new Group('bash', ['--noprofile', '--norc'], { cwd: this.#folder, env: this.#env, stdio });
    this.#group.child.stdin.on('error', () => {});
    this.#group.child.stdio[3].setEncoding('utf8').on('data', (status) => this.#answer(Number(status)));
  }

  // Runs a script: { status, output }. With `strictly`, the first command that fails ends it, and the shell.
  async run(script, { strictly = false } = {}) {
    if (!this.#group) this.#start();
    const base = path.join(this.scratch, String(++this.#n));
    fs.writeFileSync(`${base}.sh`, script);
    fs.writeFileSync(`${base}.out`, '');
    const answered = new Promise((resolve) => (this.#answer = resolve));
    const [on, off] = strictly ? ['set -e; ', 'set +e; '] : ['', ''];
    this.#group.child.stdin.write(
      `${on}. '${base}.sh' </dev/null >>'${base}.out' 2>&1 3>&-; status=$?; ${off}echo $status >&3\n`,
    );
    const died = this.#group.ended.then(() => 'ended');
    const status = await Promise.race([answered, died, pause(COMMAND_MS).then(() => 'late')]);
    const output = fs.readFileSync(`${base}.out`, 'utf8');
    if (status === 'late') throw new Error(`still runs after ${COMMAND_MS / 1000} s\n${output}`);
    if (status === 'ended') throw new Error(`a command failed\n${output}`);
    return { status, output };
  }

  close() {
    return this.#group?.kill();
  }
}

// Something that goes on running until Ctrl-C.
export class Terminal {
  #group;
  #output;

  constructor(name, script, { folder, scratch, env }) {
    this.name = name;
    fs.mkdirSync(scratch, { recursive: true });
    const base = path.join(scratch, `terminal-${name}-${process.hrtime.bigint()}`);
    fs.writeFileSync(`${base}.sh`, script);
    this.#output = `${base}.out`;
    const out = fs.openSync(this.#output, 'a');
    this.#group = new Group('bash', ['-eu', `${base}.sh`], { cwd: folder, env, stdio: ['ignore', out, out] });
    fs.closeSync(out);
  }

  get output() {
    return fs.readFileSync(this.#output, 'utf8');
  }

  get isOver() {
    return this.#group.isOver;
  }

  async ready(text) {
    for (const end = Date.now() + READY_MS; !this.output.includes(text); await pause(20)) {
      if (this.isOver) throw new Error(`terminal ${this.name} ended before it said '${text}':\n${this.output}`);
      if (Date.now() > end) throw new Error(`terminal ${this.name} does not say '${text}':\n${this.output}`);
    }
  }

  // Ctrl-C: all processes of a terminal get it.
  async interrupt() {
    killGroup(this.#group.child.pid, 'SIGINT');
    await Promise.race([this.#group.ended, pause(END_MS)]);
    const isStuck = !this.isOver;
    await this.#group.kill();
    if (isStuck) throw new Error(`terminal ${this.name} goes on after Ctrl-C:\n${this.output}`);
  }

  kill() {
    return this.#group.kill();
  }
}
