// Strangers in numbers: what they cost the others. Runs alone, since it measures.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { assert, pause, scenario, sleep, slowness } from './harness.js';

const script = fileURLToPath(new URL('strangers.js', import.meta.url));
const IDLE = 5000;
const SAMPLES = 100;
const MIB = 1024 * 1024;
// How much slower a task may become: twice. A sanitizer keeps what was freed and looks at all of it, so that its ratio says
// little; there it is allowed more.
const RATIO = 2 * slowness;
// What else the machine does changes from second to second, and can only make a ratio larger or smaller by chance; a cost
// that is there is there in every round.
const ROUNDS = 5;

// The time of one task from submit to result, in the middle of many.
async function latency(cluster) {
  const times = [];
  for (let i = 0; i < SAMPLES; i++) {
    const started = process.hrtime.bigint();
    const id = await cluster.submit([sleep('t', 0)]);
    await cluster.end(id);
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
  }
  return times.sort((a, b) => a - b)[SAMPLES / 2];
}

// Connections are idle when the coordinator has accepted them all and has nothing more to do.
async function settled(coordinator) {
  for (let i = 0, cpu = -1; i < 50 && coordinator.usage().cpu - cpu > 0.02; i++) {
    cpu = coordinator.usage().cpu;
    await pause(200);
  }
}

// The process of strangers.js, with its connections open.
async function startStrangers(world, cluster) {
  const [host, port] = cluster.address.split(':');
  const child = spawn(process.execPath, [script, host, port, IDLE], { stdio: ['pipe', 'pipe', 'inherit'] });
  world.atEnd(() => child.kill('SIGKILL'));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const read = async () => (await lines.next()).value;
  assert.equal(await read(), 'open');
  return {
    sendGarbage: () => child.stdin.write('garbage\n'),
    async endGarbage() {
      child.stdin.write('enough\n');
      return Number(await read());
    },
    async leave() {
      child.stdin.end();
      await once(child, 'exit');
    },
  };
}

// One round: the ratio of p50 beside strangers to that without them.
async function round(world, cluster) {
  const before = { p50: await latency(cluster), ...cluster.coordinator.usage() };
  const strangers = await startStrangers(world, cluster);
  await settled(cluster.coordinator);
  const idle = { p50: await latency(cluster), ...cluster.coordinator.usage() };
  strangers.sendGarbage();
  const spammed = { p50: await latency(cluster), ...cluster.coordinator.usage() };
  const sent = await strangers.endGarbage();
  await strangers.leave();
  await settled(cluster.coordinator);
  const alone = Math.max(before.p50, await latency(cluster));
  const told = ({ p50, rss, threads }) =>
    `p50 ${p50.toFixed(2)} ms, ${Math.round(rss / MIB)} MiB, ${threads} threads`;
  console.log(`alone: ${told(before)}; ${IDLE} idle: ${told(idle)}; and garbage (${sent} times): ${told(spammed)}`);
  assert.ok(sent > 10, `${sent} times garbage`);
  assert.ok(spammed.rss < before.rss + slowness * 256 * MIB, 'memory is bounded');
  assert.ok(spammed.threads <= before.threads + 8, 'threads do not grow with connections');
  return Math.max(idle.p50, spammed.p50) / alone;
}

scenario(
  '5,000 idle connections and a client that sends garbage cost the others little',
  { ms: 300000 },
  async (world) => {
    const cluster = await world.cluster({ workers: 1 });
    await latency(cluster); // warm
    const ratios = [];
    do ratios.push(await round(world, cluster));
    while (ratios.at(-1) > RATIO && ratios.length < ROUNDS);
    assert.ok(ratios.at(-1) <= RATIO, `p50 beside strangers, as ratios to that alone: ${ratios}`);
  },
);

scenario(
  'an idle worker costs less than 1 % of a core and 50 MB of its own memory',
  { if: slowness === 1 },
  async (world) => {
    const cluster = await world.cluster();
    const worker = await cluster.startWorker({ id: 'w', slots: 4 });
    await cluster.run([sleep('a', 1)]);
    const seconds = 6; // The subject is a rate, so it is measured over a time: two heartbeats.
    const percents = async () => {
      const cpus = () => [worker, cluster.coordinator].map((process) => process.usage().cpu);
      const before = cpus();
      await pause(seconds * 1000);
      return cpus().map((cpu, i) => ((cpu - before[i]) / seconds) * 100);
    };
    // A busy machine makes the same work take longer: the best of three, and the bar itself only where nobody else is.
    const bar = process.env.CAPSTAN_BARS === '1' ? 1 : 3;
    const rounds = [await percents()];
    while (rounds.at(-1)[0] >= 1 && rounds.length < 3) rounds.push(await percents());
    const [percent, ofCoordinator] = [0, 1].map((kind) => Math.min(...rounds.map((round) => round[kind])));
    const rollup = fs.readFileSync(`/proc/${worker.pid}/smaps_rollup`, 'utf8');
    const own = [...rollup.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB$/gm)].reduce(
      (sum, [, kib]) => sum + Number(kib) * 1024,
      0,
    );
    console.log(
      `idle: worker ${percent.toFixed(2)} %, ${Math.round(own / 1e6)} MB of its own; coordinator ${ofCoordinator.toFixed(2)} %`,
    );
    assert.ok(percent < bar, `${percent} % of a core`);
    assert.ok(own < 50e6, `${own} bytes`);
  },
);
