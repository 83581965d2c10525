// document.js - runs one document from top to bottom, in folders and at addresses of its own, as a reader would.
//
// Documents name the addresses that a reader would use. Each one gets a part of the loopback network for itself
// instead: 127.0.0.1 becomes 127.A.B.1 and 10.0.0.N becomes 127.A.B.(100 + N), so that all documents run at the same
// time and with the ports that they name. What is printed is read with the addresses turned back. Machines other than
// this one have folders of their own; /etc/capstan and the like are folders there, and /data is one that all machines
// of the document share.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { check } from './compare.js';
import { commandsOf, parse } from './markdown.js';
import { Shell, Terminal } from './shell.js';

const root = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');
const serverScript = path.join(root, 'tests/integration/postgres/server.sh');
const programs = path.join(root, 'tests/docs/bin');

const HERE = 'here';
const DATABASE = '10.0.0.10'; // where documents have their PostgreSQL
const FIRST_MACHINE = 100;
const OWN_PATHS = ['/etc/capstan', '/var/lib/capstan', '/backup'];

// Languages whose blocks are files or parts of files. They are not run by themselves.
const PARTS = ['c', 'js', 'ini', 'makefile', 'proto', 'text', 'yaml', 'promql', 'http'];

const leftovers = new Set(); // what is to be done even if this process ends early
process.on('exit', () => leftovers.forEach((clean) => clean()));

export class Document {
  #network;
  #dir;
  #shells = new Map();
  #terminals = new Map();
  #postgres;
  #installed = {}; // variables that make an installation be found
  #last; // what the last command printed
  #clean = () => {
    leftovers.delete(this.#clean);
    if (this.#postgres) execFileSync(serverScript, ['remove', this.#postgres], { stdio: 'ignore' });
    fs.rmSync(this.#dir, { recursive: true, force: true, maxRetries: 5 });
  };

  constructor(name, markdown, { network, binary, source = root, place, onStep = () => {}, atEnd = () => {} }) {
    this.name = name;
    this.markdown = markdown;
    this.#network = network; // 127.A.B
    this.binary = binary;
    this.source = source; // what $CAPSTAN_SRC is
    this.place = place; // the folder of the repository that the reader stands in; none: an empty one
    this.onStep = onStep; // told after each step
    this.atEnd = atEnd; // called, and waited for, behind the last one, while all terminals are still busy
    this.counts = { run: 0, compared: 0, files: 0, notRun: [] };
  }

  // ---- names of a reader, and what they are here ----

  #machine(host) {
    return host === HERE ? this.#dir : path.join(this.#dir, host);
  }

  #inside(text, host = HERE) {
    const folder = this.#machine(host);
    let own = text
      .replace(/\b127\.0\.0\.1\b|\blocalhost\b/g, `${this.#network}.1`)
      .replace(/\b10\.0\.0\.(\d{1,2})\b/g, (_, n) => `${this.#network}.${FIRST_MACHINE + Number(n)}`);
    for (const name of OWN_PATHS) own = own.replace(new RegExp(`(?<![\\w./-])${name}(?![\\w-])`, 'g'), folder + name);
    return own.replace(/(?<![\w./-])\/data(?![\w-])/g, `${this.#dir}/data`);
  }

  #outside(text) {
    const network = this.#network.replaceAll('.', '\\.');
    return text
      .replace(new RegExp(`${network}\\.1\\b`, 'g'), '127.0.0.1')
      .replace(new RegExp(`${network}\\.(1\\d\\d)\\b`, 'g'), (_, n) => `10.0.0.${Number(n) - FIRST_MACHINE}`)
      .replace(new RegExp(`${this.#dir}/10\\.0\\.0\\.\\d+(?=/)`, 'g'), '')
      .replaceAll(`${this.#dir}/data`, '/data')
      .replace(new RegExp(`${this.#dir}(${OWN_PATHS.join('|')})`, 'g'), '$1');
  }

  // Where the reader stands.
  #folder(host) {
    return this.place && host === HERE ? path.join(this.#dir, 'source', this.place) : this.#machine(host);
  }

  // A copy of the sources, as far as examples need them, and an installation that pkg-config finds.
  #placeSources() {
    const copy = path.join(this.#dir, 'source');
    const filter = (name) => path.basename(name) !== 'node_modules';
    fs.cpSync(path.join(this.source, 'examples'), path.join(copy, 'examples'), { recursive: true, filter });
    for (const name of ['include', 'proto', 'build']) fs.symlinkSync(path.join(this.source, name), path.join(copy, name));
    const installed = path.join(this.#dir, 'installed');
    fs.mkdirSync(`${installed}/lib/pkgconfig`, { recursive: true });
    fs.symlinkSync(path.join(this.source, 'include'), `${installed}/include`);
    const built = path.join(this.source, 'build/release/lib');
    for (const name of ['libcapstan.so', 'libcapstan.so.0']) fs.symlinkSync(path.join(built, name), `${installed}/lib/${name}`);
    const settings = fs.readFileSync(path.join(built, 'capstan.pc'), 'utf8').replace(/^prefix=.*$/m, `prefix=${installed}`);
    fs.writeFileSync(`${installed}/lib/pkgconfig/capstan.pc`, settings);
    return { PKG_CONFIG_PATH: `${installed}/lib/pkgconfig`, LD_LIBRARY_PATH: `${installed}/lib` };
  }

  #place(host) {
    const machine = this.#machine(host);
    for (const name of ['/home', ...OWN_PATHS]) fs.mkdirSync(machine + name, { recursive: true });
    const env = {
      PATH: `${programs}:${process.env.PATH}`,
      HOME: path.join(machine, 'home'),
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
      CAPSTAN_SRC: this.source,
      NODE_PATH: path.join(root, 'examples/javascript/node_modules'), // as if npm had installed them
      CAPSTAN_DOCS_BINARY: this.binary,
      CAPSTAN_DOCS_DIR: this.#dir,
      CAPSTAN_DOCS_HOST: host === HERE ? `${this.#network}.1` : this.#inside(host),
      CAPSTAN_DOCS_NETWORK: this.#network,
      CAPSTAN_DOCS_ROOT: root,
      ...this.#installed,
    };
    return { folder: this.#folder(host), env, scratch: path.join(this.#dir, '.terminals', host) };
  }

  #shell(host) {
    if (!this.#shells.has(host)) this.#shells.set(host, new Shell(this.#place(host)));
    return this.#shells.get(host);
  }

  // ---- what is needed ----

  #startPostgres() {
    if (this.#postgres) return;
    this.#postgres = fs.mkdtempSync(path.join(os.tmpdir(), 'cap-pg-'));
    const address = `listen_addresses=${this.#inside(DATABASE)}`;
    execFileSync(serverScript, ['start', this.#postgres, '--fsync=off', address], { stdio: 'ignore' });
  }

  // ---- steps ----

  async #runScript(step, host) {
    if (/\b0\.0\.0\.0:/.test(step.text)) throw new Error('a test cannot listen everywhere: say which address');
    const { output } = await this.#shell(host).run(this.#inside(step.text, host), { strictly: true });
    this.#last = this.#outside(output);
    this.counts.run++;
  }

  async #runConsole(step, host) {
    for (const { command, expected } of commandsOf(step.text)) {
      const { status, output } = await this.#shell(host).run(this.#inside(command, host));
      const printed = this.#outside(output);
      if (status !== 0) throw new Error(`$ ${command}\nexit code ${status}\n${printed}`);
      if (expected !== '') {
        try {
          check(expected, printed, 'console');
        } catch (error) {
          throw new Error(`$ ${command}\n${error.message}`);
        }
        this.counts.compared++;
      } else if (printed.trim() !== '') {
        throw new Error(`$ ${command}\nprints something that the document does not show:\n${printed}`);
      }
      this.counts.run++;
    }
  }

  async #runSql(step, host) {
    const file = path.join(this.#dir, '.terminals', `block-${step.line}.sql`);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, this.#inside(step.text, host));
    const { output } = await this.#shell(host).run(`capstan sql -f '${file}'`, { strictly: true });
    this.#last = this.#outside(output);
    this.counts.run++;
  }

  // Trees and tasks that are shown, not run, are at least ones that a coordinator takes.
  async #checkJson(step, host) {
    const value = JSON.parse(step.text);
    let tree;
    if (Array.isArray(value.tasks)) {
      tree = value;
    } else if (value.executor) {
      const needed = (value.depends_on ?? []).map((other) => other.task ?? other);
      tree = { tasks: [...needed.map((name) => ({ name, executor: 'sleep', inputs: { ms: 0 } })), value] };
    } else {
      this.counts.notRun.push(`${this.name}:${step.line}: JSON that is no tree, no task and no output`);
      return;
    }
    const file = path.join(this.#dir, '.terminals', `block-${step.line}.json`);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, this.#inside(JSON.stringify(tree), host));
    await this.#shell(host).run(`capstan cancel "$(capstan submit '${file}')" >/dev/null`, { strictly: true });
    this.counts.run++;
  }

  #writeFile(step, host) {
    const file = path.join(this.#folder(host), step.file);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, this.#inside(step.text, host));
    this.counts.files++;
  }

  async #startTerminal(step, host) {
    const { name, ready } = step.stays;
    if (this.#terminals.get(name)?.isOver === false) throw new Error(`terminal ${name} is still busy`);
    const place = this.#place(host);
    const terminal = new Terminal(name, this.#inside(step.text, host), place);
    this.#terminals.set(name, terminal);
    await terminal.ready(this.#inside(ready, host));
    this.counts.run++;
  }

  // What is on the screen of a terminal.
  screen(name) {
    return this.#terminals.get(name).output;
  }

  async #interrupt({ name }) {
    const terminal = this.#terminals.get(name);
    if (!terminal) throw new Error(`there is no terminal ${name}`);
    this.#terminals.delete(name);
    await terminal.interrupt();
  }

  async #block(step) {
    const host = step.on ?? HERE;
    if (step.notRun) return this.counts.notRun.push(`${this.name}:${step.line}: ${step.notRun}`);
    if (/postgres:\/\//.test(step.text)) this.#startPostgres();
    if (step.stays) return this.#startTerminal(step, host);
    if (step.lang === 'sh') return this.#runScript(step, host);
    if (step.lang === 'console') return this.#runConsole(step, host);
    if (step.file) return this.#writeFile(step, host);
    if (step.lang === 'sql') return this.#runSql(step, host);
    if ((step.lang === '' || step.lang === 'json') && step.follows && this.#last !== undefined) {
      check(step.text, this.#last, step.lang);
      this.counts.compared++;
      this.#last = undefined;
      return undefined;
    }
    if (step.lang === 'json') return this.#checkJson(step, host);
    if (step.lang !== '' && !PARTS.includes(step.lang)) throw new Error(`nobody knows how to run '${step.lang}'`);
    return undefined;
  }

  // All of it; an error names the line of the block.
  async run() {
    this.#dir = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-docs-'));
    fs.chmodSync(this.#dir, 0o755);
    leftovers.add(this.#clean);
    fs.mkdirSync(path.join(this.#dir, 'data'));
    if (this.place) this.#installed = this.#placeSources();
    let line = 1;
    try {
      for (const step of parse(this.markdown)) {
        line = step.line;
        if (step.kind === 'ctrl-c') await this.#interrupt(step);
        else await this.#block(step);
        const dead = [...this.#terminals.values()].find(({ isOver }) => isOver);
        if (dead) throw new Error(`terminal ${dead.name} has ended by itself:\n${dead.output}`);
        this.onStep(step);
      }
      await this.atEnd(this);
      for (const terminal of [...this.#terminals.values()].reverse()) await terminal.interrupt();
      this.#terminals.clear();
    } catch (error) {
      const logs = [...this.#terminals.values()].map(
        ({ name, output }) => `---- terminal ${name}:\n${output.trimEnd().split('\n').slice(-30).join('\n')}`,
      );
      throw new Error([`${this.name}:${line}: ${error.message.trimEnd()}`, ...logs].join('\n'));
    } finally {
      await this.#end();
    }
  }

  async #end() {
    for (const terminal of this.#terminals.values()) await terminal.kill();
    for (const shell of this.#shells.values()) await shell.close();
    this.#clean();
  }
}
