// PostgreSQL itself fails over: the primary dies, a synchronous standby is promoted, and the coordinators find it.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { steady } from './failover-cluster.js';
import { assert, command, root, scenario, sleep, until } from './harness.js';

const script = path.join(root, 'tests/integration/postgres/server.sh');
const server = (...args) => execFileSync(script, args, { stdio: 'ignore' });

// Two servers, the second a copy that has every commit before it is answered: { first, second, url }.
function pair(world) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cap-pg-')); // short enough for sockets, open to their user
  fs.chmodSync(dir, 0o755);
  const [first, second] = [path.join(dir, 'a'), path.join(dir, 'b')];
  const remove = () => {
    for (const folder of [first, second]) if (fs.existsSync(folder)) server('remove', folder);
    fs.rmSync(dir, { recursive: true, force: true });
  };
  process.once('exit', remove);
  world.atEnd(remove);
  server('start', first, '--fsync=off');
  server('follow', second, first);
  const psql = (text) =>
    execFileSync('psql', ['-h', first, '-U', 'postgres', '-qAtc', text], { encoding: 'utf8' }).trim();
  psql(`ALTER SYSTEM SET synchronous_standby_names = '*'`);
  psql('SELECT pg_reload_conf()');
  return { first, second, psql, url: `postgres://postgres@/postgres?host=${first},${second}&port=5432,5432` };
}

scenario('after a failover of PostgreSQL everything that was acknowledged is there, and what runs goes on', async (world) => {
  const { first, second, psql, url } = pair(world);
  await until('a synchronous standby', () =>
    psql(`SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'`),
  );
  const cluster = await world.cluster({ store: url, settings: steady, workers: 1, slots: 4 });
  const mark = path.join(world.folder(), 'runs');
  const running = await cluster.submit([
    command('long', `echo x >>${mark}; until [ -e ${mark}.go ]; do sleep 0.02; done; echo '"went on"'`),
  ]);
  await cluster.reaches(running, 'long', 'running');

  // Jobs come one after the other, from before the crash until after the promotion.
  const answered = [];
  let isEnough = false;
  const stream = (async () => {
    while (!isEnough) {
      const id = await cluster.submit([sleep('one', 1)]).catch(() => null);
      if (id !== null) answered.push(id);
    }
  })();
  await until('jobs before the crash', () => answered.length >= 50);
  server('kill', first);
  const before = answered.length;
  server('promote', second);
  await until('jobs after the promotion', () => answered.length >= before + 50);
  isEnough = true;
  await stream;

  fs.writeFileSync(`${mark}.go`, '');
  assert.equal((await cluster.end(running)).state, 'succeeded');
  assert.equal(fs.readFileSync(mark, 'utf8'), 'x\n', 'it ran once');
  for (const id of answered) assert.equal((await cluster.end(id)).state, 'succeeded', `${id} of ${answered.length}`);
});
