// The references that the program prints: complete, and those in the repository are the newest.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { capstan, files, flagsOf, has, read, run, settings, verbs } from './program.js';

const page = capstan('help', '--markdown');
const manual = capstan('help', '--man');

test('docs/configuration.md is what the program prints', () => {
  assert.ok(read('docs/configuration.md') === page, 'docs/configuration.md is old: run tools/reference.sh');
});

test('every verb, flag, variable and setting is in the reference and in the manual', () => {
  const plain = manual.replaceAll('\\-', '-');
  for (const verb of verbs()) {
    assert.ok(page.includes(`\n### capstan ${verb}\n`), `${verb} in the reference`);
    assert.ok(plain.includes(`.SS "capstan ${verb}"\n`), `${verb} in the manual`);
    for (const flag of flagsOf(verb)) {
      assert.ok(page.includes(`| \`--${flag}\``), `--${flag} in the reference`);
      assert.ok(plain.includes(`--${flag}\\fR`), `--${flag} in the manual`);
      const variable = `CAPSTAN_${flag.toUpperCase().replaceAll('-', '_')}`;
      assert.ok(flag === 'help' || page.includes(`\`${variable}\``), `${variable} in the reference`);
    }
  }
  assert.ok(settings().size >= 20, `only ${settings().size} settings`);
  for (const name of settings().keys()) assert.ok(plain.includes(`.B ${name}\n`), `${name} in the manual`);
});

test('every variable that the code asks for by name is in the reference', () => {
  const sources = run('find', ['src', '-name', '*.c']).trim().split('\n');
  const names = sources.flatMap((name) => [...read(name).matchAll(/getenv\("([A-Z_]+)"\)/g)].map(([, found]) => found));
  assert.ok(names.length >= 5, `found only ${names}`);
  for (const name of names) assert.ok(page.includes(`\`${name}\``), `${name} is not in the reference`);
});

test('no row of a table in the reference is broken', () => {
  let columns = 0;
  for (const line of page.split('\n')) {
    const isRow = line.startsWith('|');
    const n = line.replaceAll('\\|', '').split('|').length;
    if (isRow && columns > 0) assert.equal(n, columns, line);
    columns = isRow ? n : 0;
  }
});

test('the manual page has no errors', { skip: !has('groff') && 'groff is not here' }, () => {
  const warnings = run('sh', ['-c', 'groff -man -ww -Tutf8 - 2>&1 >/dev/null'], { input: manual });
  assert.equal(warnings, '');
  const text = run('groff', ['-man', '-Tascii', '-P-cbou', '-'], { input: manual });
  for (const part of ['NAME', 'SYNOPSIS', 'VERBS', 'SETTINGS', 'ENVIRONMENT', 'FILES', 'EXIT STATUS']) {
    assert.match(text, new RegExp(`^${part}$`, 'm'));
  }
});

test('documents name no page that is not there', () => {
  for (const name of files('docs', /^(install|configuration)\.md$/)) {
    for (const [, target] of read(name).matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)) {
      assert.ok(run('sh', ['-c', 'cd docs && ls -d "$1"', '-', target]), `${name}: ${target}`);
    }
  }
});
