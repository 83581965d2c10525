// make install and make uninstall in a folder, and what is inside the .deb. machine.sh installs that for real.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { binary, capstan, read, root, run } from './program.js';

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'capstan-install-'));
process.on('exit', () => fs.rmSync(scratch, { recursive: true, force: true }));

const filesIn = (folder) => run('find', ['.', '!', '-type', 'd', '-printf', '/%P\n'], { cwd: folder }).trim().split('\n').filter(Boolean).sort();
// The installer alone: whether the program is up to date is not the question here.
const installer = (action, prefix, destination) =>
  run('packaging/install.sh', [action], {
    env: {
      PATH: process.env.PATH,
      BUILD: path.dirname(path.dirname(binary)),
      PREFIX: prefix,
      SYSCONFDIR: prefix === '/usr' ? '/etc' : `${prefix}/etc`,
      DESTDIR: destination,
    },
  });

test('make install puts everything under its prefix, and make uninstall takes all of it away', () => {
  const destination = path.join(scratch, 'local');
  fs.mkdirSync(destination);
  installer('install', '/opt/capstan', destination);
  const there = filesIn(destination);
  assert.deepEqual(there, installer('list', '/opt/capstan', '').trim().split('\n').sort());
  for (const name of ['bin/capstan', 'lib/capstan/libduckdb.so', 'include/capstan/operator.h', 'share/man/man1/capstan.1']) {
    assert.ok(there.includes(`/opt/capstan/${name}`), name);
  }
  assert.ok(there.every((name) => name.startsWith('/opt/capstan/')));
  const text = (name) => fs.readFileSync(`${destination}/opt/capstan/${name}`, 'utf8');
  for (const name of ['lib/systemd/system/capstan-worker@.service', 'etc/capstan/capstan.conf', 'lib/capstan/capstan-worker.flags']) {
    assert.doesNotMatch(text(name), /\/usr\/(bin|lib)\/capstan|[^n]\/etc\/capstan/, name);
  }
  assert.match(text('lib/systemd/system/capstan-worker@.service'), /^ExecStart=\/opt\/capstan\/bin\/capstan worker --config \/opt\/capstan\/etc\/capstan\/capstan\.conf /m);
  assert.match(text('lib/capstan/capstan-worker.flags'), /^-I\/opt\/capstan\/include -L\/opt\/capstan\/lib\/capstan /);
  assert.equal(run(`${destination}/opt/capstan/bin/capstan`, ['version']), capstan('version'));
  installer('uninstall', '/opt/capstan', destination);
  assert.deepEqual(filesIn(destination), []);
});

// With make itself, which finds the program up to date: the suite has just built it.
test('make install DESTDIR= and PREFIX= install what the installer lists, and make uninstall takes it away', () => {
  const variant = path.basename(path.dirname(path.dirname(binary)));
  const make = (...args) => run('make', ['--no-print-directory', '-s', `V=${variant}`, ...args], { env: { PATH: process.env.PATH, HOME: scratch } });
  for (const [prefix, given, settings] of [['/usr/local', [], '/usr/local/etc'], ['/usr', ['PREFIX=/usr'], '/etc'], ['/opt/c', ['PREFIX=/opt/c'], '/opt/c/etc']]) {
    const destination = path.join(scratch, `make${prefix.replaceAll('/', '-')}`);
    make('install', ...given, `DESTDIR=${destination}`);
    const there = filesIn(destination);
    assert.deepEqual(there, installer('list', prefix, '').trim().split('\n').sort());
    assert.ok(there.includes(`${settings}/capstan/capstan.conf`), prefix);
    assert.equal(run(`${destination}${prefix}/bin/capstan`, ['version']), capstan('version'));
    make('uninstall', ...given, `DESTDIR=${destination}`);
    assert.deepEqual(filesIn(destination), []);
  }
});

test('settings that somebody has changed are kept, by a new installation and by the removal', () => {
  const destination = path.join(scratch, 'changed');
  const settings = `${destination}/etc/capstan/capstan.conf`;
  installer('install', '/usr', destination);
  fs.appendFileSync(settings, 'slots = 3\n');
  installer('install', '/usr', destination);
  assert.match(fs.readFileSync(settings, 'utf8'), /slots = 3\n$/);
  assert.match(installer('uninstall', '/usr', destination), /^kept, for it was changed: .*capstan\.conf\n$/);
  assert.deepEqual(filesIn(destination), ['/etc/capstan/capstan.conf']);
});

test('the package says what it is and what it needs', () => {
  const field = (name) => run('dpkg-deb', ['-f', process.env.CAPSTAN_DEB, name]).trim();
  const [, version] = /"(.*)"/.exec(read('src/cli/version.h').match(/#define CAPSTAN_VERSION .*/)[0]);
  assert.equal(field('Package'), 'capstan');
  assert.equal(field('Version'), version);
  assert.equal(field('Architecture'), run('dpkg', ['--print-architecture']).trim());
  const depends = field('Depends');
  assert.ok(!depends.includes('capstan'), 'it needs no other package of ours');
  for (const library of ['libc6 (>=', 'libgrpc', 'libpq5', 'libsqlite3-0', 'libmicrohttpd12', 'libcurl4', 'libstdc++6', 'passwd']) {
    assert.ok(depends.includes(library), `${library} in ${depends}`);
  }
  assert.ok(Number(field('Installed-Size')) > 60000);
  assert.equal(run('dpkg-deb', ['-I', process.env.CAPSTAN_DEB, 'conffiles']), '/etc/capstan/capstan.conf\n');
});

test('the package has what make install installs, owned by root, and nothing of the folder that it was built in', () => {
  const rows = run('dpkg-deb', ['-c', process.env.CAPSTAN_DEB]).trim().split('\n');
  const there = rows.filter((row) => !row.startsWith('d')).map((row) => row.replace(/^.*? \.|( -> .*)$/g, ''));
  const wanted = installer('list', '/usr', '')
    .trim()
    .split('\n')
    .map((name) => name.replace(/capstan\.1$/, 'capstan.1.gz'));
  assert.deepEqual(there.sort(), [...wanted, '/usr/share/doc/capstan/changelog.gz'].sort());
  for (const row of rows) assert.match(row, /^([-d]rw[x-]r-[x-]r-[x-]|lrwxrwxrwx) root\/root /, row); // no set-user-id
  const folder = path.join(scratch, 'unpacked');
  run('dpkg-deb', ['-x', process.env.CAPSTAN_DEB, folder]);
  const found = run('sh', ['-c', 'grep -rlF "$1" "$2" || :', '-', root, folder]);
  assert.equal(found, '');
});
