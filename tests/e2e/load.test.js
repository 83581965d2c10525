// Strangers in numbers: what they cost the others. Runs alone, since it measures.
import fs from 'node:fs';
import net from 'node:net';
import { assert, pause, scenario, sleep, slowness } from './harness.js';

const IDLE = 5000;
const SAMPLES = 100;
const MIB = 1024 * 1024;
// How much slower a task may become: twice, each figure being the best of three. A sanitizer keeps what was freed and looks
// at all of it, so that its ratio says little; there it is allowed more.
const RATIO = 2 * slowness;
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00', 'latin1');

// The time of one task from submit to result, in the middle of many; the best of three, since others use this
// machine, too.
async function latency(cluster) {
  return Math.min(await middle(cluster), await middle(cluster), await middle(cluster));
}

async function middle(cluster) {
  const times = [];
  for (let i = 0; i < SAMPLES; i++) {
    const started = process.hrtime.bigint();
    const id = await cluster.submit([sleep('t', 0)]);
    await cluster.end(id);
    times.push(Number(process.hrtime.bigint() - started) / 1e6);
  }
  return times.sort((a, b) => a - b)[SAMPLES / 2];
}

function connect(address, onOpen) {
  const [host, port] = address.split(':');
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), host, () => {
      onOpen?.(socket);
      resolve(socket);
    });
    socket.on('error', reject).on('data', () => {});
  });
}

scenario(
  '5,000 idle connections and a client that sends garbage cost the others little',
  { ms: 180000 },
  async (world) => {
    const cluster = await world.cluster({ workers: 1 });
    await latency(cluster); // warm
    const before = { p50: await latency(cluster), ...cluster.coordinator.usage() };
    const sockets = [];
    world.atEnd(() => sockets.forEach((socket) => socket.destroy()));
    for (let i = 0; i < IDLE; i += 100) {
      // One half says nothing at all, the other opens HTTP/2 and then nothing.
      const batch = Array.from({ length: 100 }, (_, k) =>
        connect(cluster.address, k % 2 === 0 ? undefined : (socket) => socket.write(preface)),
      );
      sockets.push(...(await Promise.all(batch)));
    }
    assert.equal(sockets.length, IDLE);
    const idle = { p50: await latency(cluster), ...cluster.coordinator.usage() };
    let isOver = false;
    let sent = 0;
    const noise = Buffer.from(Array.from({ length: 16384 }, (_, i) => (i * 7919) % 251));
    const spam = (async () => {
      while (!isOver) {
        const socket = await connect(cluster.address).catch(() => undefined);
        if (!socket) continue;
        socket.on('error', () => {});
        const text = sent % 3 === 0 ? Buffer.concat([preface, noise]) : noise;
        await new Promise((resolve) => socket.write(text, resolve));
        await new Promise((resolve) => setTimeout(resolve, 2));
        socket.destroy();
        sent++;
      }
    })();
    const spammed = { p50: await latency(cluster), ...cluster.coordinator.usage() };
    isOver = true;
    await spam;
    sockets.forEach((socket) => socket.destroy());
    // What else the machine does changes from second to second: the larger of the two figures without load counts.
    const alone = Math.max(before.p50, await latency(cluster));
    const told = ({ p50, rss, threads }) =>
      `p50 ${p50.toFixed(2)} ms, ${Math.round(rss / MIB)} MiB, ${threads} threads`;
    console.log(`alone: ${told(before)}; ${IDLE} idle: ${told(idle)}; and garbage (${sent} times): ${told(spammed)}`);
    assert.ok(sent > 10, `${sent} times garbage`);
    assert.ok(idle.p50 <= RATIO * alone, 'p50 with idle connections');
    assert.ok(spammed.p50 <= RATIO * alone, 'p50 with idle connections and garbage');
    assert.ok(spammed.rss < before.rss + slowness * 256 * MIB, 'memory is bounded');
    assert.ok(spammed.threads <= before.threads + 8, 'threads do not grow with connections');
  },
);

scenario(
  'an idle worker costs less than 1 % of a core and 50 MB of its own memory',
  { if: slowness === 1 },
  async (world) => {
    const cluster = await world.cluster();
    const worker = await cluster.startWorker({ id: 'w', slots: 4 });
    await cluster.run([sleep('a', 1)]);
    const before = { worker: worker.usage().cpu, coordinator: cluster.coordinator.usage().cpu };
    const seconds = 6; // The subject is a rate, so it is measured over a time: two heartbeats.
    await pause(seconds * 1000);
    const percent = (process, at) => ((process.usage().cpu - before[at]) / seconds) * 100;
    const rollup = fs.readFileSync(`/proc/${worker.pid}/smaps_rollup`, 'utf8');
    const own = [...rollup.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB$/gm)].reduce(
      (sum, [, kib]) => sum + Number(kib) * 1024,
      0,
    );
    console.log(
      `idle: worker ${percent(worker, 'worker').toFixed(2)} %, ${Math.round(own / 1e6)} MB of its own; coordinator ${percent(cluster.coordinator, 'coordinator').toFixed(2)} %`,
    );
    assert.ok(percent(worker, 'worker') < 1);
    assert.ok(own < 50e6, `${own} bytes`);
  },
);
