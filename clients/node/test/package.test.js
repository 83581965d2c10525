// package.test.js - what npm would publish: all that is needed, nothing else; it can be imported, and its types hold.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { assert, World } from '../../../tests/e2e/harness.js';

const here = fileURLToPath(new URL('..', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

const program = `
import { connect, Worker, CapstanError, JobFailedError, type JobStatus, type Row, type Tree } from 'capstan';

const client = connect({ servers: ['127.0.0.1:1'], token: 't', tls: { ca: 'pem' }, patienceMs: 1 });
const tree: Tree = { tasks: [{ name: 'a', executor: 'command', inputs: { argv: ['true'] }, depends_on: [{ task: 'b' }] }] };
export async function use(signal: AbortSignal): Promise<number> {
  const job = await client.submit(tree, { key: 'k', signal });
  const status: JobStatus = await job.wait({ timeoutMs: 5, cancelOnAbort: true });
  const results = await job.results<{ a: { exit_code: number } }>();
  for await (const { seq } of job.events({ follow: true, after: 3 })) console.log(seq);
  const rows: Row[] = await client.sql('select $1 as n', [1n]);
  const typed = await client.sql<{ n: number }>('select 1 as n');
  // @ts-expect-error: a state is one of a few
  if (status.state === 'finished') return rows.length;
  return results.a.exit_code + (typed[0]?.n ?? 0);
}
export const worker = new Worker({ executors: { resize: async (task) => ({ width: task.inputs.width as number, at: task.attempt }) } });
// @ts-expect-error: a worker has executors
new Worker({});
export const codeOf = (error: unknown) => (error instanceof JobFailedError ? error.status.message : (error as CapstanError).hint);
`;

test('the package has all that is needed, and its types hold', async () => {
  const world = new World();
  try {
    const folder = world.folder('pack');
    const pack = JSON.parse(
      execFileSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', folder], {
        cwd: here,
        stdio: ['ignore', 'pipe', 'ignore'],
      }),
    )[0];
    const files = pack.files.map((file) => file.path).sort();
    for (const wanted of [
      'LICENSE',
      'README.md',
      'package.json',
      'dist/capstan.proto',
      'dist/index.js',
      'dist/index.d.ts',
    ]) {
      assert.ok(files.includes(wanted), `${wanted} is in the package: ${files}`);
    }
    assert.deepEqual(
      files.filter((name) => !/^(dist\/|LICENSE$|README\.md$|package\.json$)/.test(name)),
      [],
    );
    // As if installed beside its dependencies.
    const modules = path.join(folder, 'node_modules');
    fs.mkdirSync(path.join(modules, 'capstan'), { recursive: true });
    execFileSync('tar', [
      '-xzf',
      path.join(folder, pack.filename),
      '-C',
      path.join(modules, 'capstan'),
      '--strip-components=1',
    ]);
    for (const name of fs.readdirSync(path.join(here, 'node_modules'))) {
      if (!name.startsWith('.')) fs.symlinkSync(path.join(here, 'node_modules', name), path.join(modules, name));
    }
    fs.writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
    fs.writeFileSync(path.join(folder, 'program.ts'), program);
    const flags = [
      '--strict',
      '--module',
      'nodenext',
      '--target',
      'es2022',
      '--types',
      'node',
      '--outDir',
      'out',
      'program.ts',
    ];
    try {
      execFileSync(process.execPath, [tsc, ...flags], { cwd: folder, encoding: 'utf8' });
    } catch (error) {
      assert.fail(error.stdout);
    }
    const text = "import { connect } from 'capstan'; const c = connect(); console.log(c.server); c.close();";
    const said = execFileSync(process.execPath, ['--input-type=module', '-e', text], {
      cwd: folder,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, CAPSTAN_SERVER: '[::1]:7400,other:1' },
    });
    assert.equal(said.trim(), '[::1]:7400');
  } finally {
    await world.end({ gently: false });
  }
});
