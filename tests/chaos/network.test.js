// The network of the chaos: several rules on one way, over real sockets.
import assert from 'node:assert/strict';
import net from 'node:net';
import { after, test } from 'node:test';
import { Network } from './network.js';

const network = new Network();
const server = net.createServer((socket) => socket.on('error', () => {}).pipe(socket));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const target = { host: '127.0.0.1', port: server.address().port };
const [host, port] = (await network.gate('database', { target, from: 'c1' })).split(':');
const way = [['c1', 'database']];
after(async () => {
  await network.end();
  server.close();
});

// A connection to what echoes, through the gate. `ask` says what comes of some bytes: 'answered', or 'broken'.
function connect() {
  const socket = net.connect(Number(port), host);
  let heard = 0;
  let wake = () => {};
  socket.on('error', () => {}).on('close', () => wake());
  socket.on('data', (chunk) => {
    heard += chunk.length;
    wake();
  });
  const ask = async (text = 'x') => {
    const wanted = heard + text.length;
    socket.write(text);
    while (!socket.closed && heard < wanted) await new Promise((resolve) => (wake = resolve));
    return heard >= wanted ? 'answered' : 'broken';
  };
  return { ask, close: () => socket.destroy() };
}

async function askOnce() {
  const { ask, close } = connect();
  const said = await ask();
  close();
  return said;
}

test('of two rules on one way, the end of one leaves the other as it is', async () => {
  assert.equal(await askOnce(), 'answered');
  for (const other of [{ cut: true }, { delay: 20 }, { stall: true }, { mute: true }, { sever: 100000 }]) {
    const cut = await network.lay(way, { cut: true });
    const second = await network.lay([['*', 'database'], ...way], other);
    await network.lift(second);
    assert.equal(await askOnce(), 'broken', JSON.stringify(other));
    const third = await network.lay(way, other);
    assert.equal(await askOnce(), 'broken', JSON.stringify(other));
    await network.lift(third);
    assert.equal(await askOnce(), 'broken', JSON.stringify(other));
    await network.lift(cut);
    assert.equal(await askOnce(), 'answered', JSON.stringify(other));
  }
});

test('what is open breaks when the last of two rules that mute it ends, and stalls until the last has ended', async () => {
  const muted = connect();
  assert.equal(await muted.ask(), 'answered');
  const mutes = [await network.lay(way, { mute: true }), await network.lay([['*', 'database']], { mute: true })];
  let said;
  const asked = muted.ask().then((it) => (said = it));
  await network.lift(mutes[0]);
  assert.equal(said, undefined);
  await network.lift(mutes[1]);
  await asked;
  assert.equal(said, 'broken');

  const stalled = connect();
  assert.equal(await stalled.ask(), 'answered');
  const stalls = [await network.lay(way, { stall: true }), await network.lay(way, { stall: true })];
  const answer = stalled.ask();
  await network.lift(stalls[1]);
  assert.equal(await Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 100, 'silent'))]), 'silent');
  await network.lift(stalls[0]);
  assert.equal(await answer, 'answered');
  stalled.close();
});

test('of two rules that sever, the one with fewer bytes holds, and a heal ends all of them', async () => {
  const some = connect();
  await network.lay(way, { sever: 1000000 });
  assert.equal(await some.ask(), 'answered');
  await network.lay(way, { sever: 1000 });
  assert.equal(await some.ask('x'.repeat(5000)).then(() => some.ask()), 'broken');
  await network.lay([['*', 'database']], { cut: true });
  await network.heal();
  assert.equal(await askOnce(), 'answered');
});

test('a rule is of those two that it names', async () => {
  const id = await network.lay([['c2', 'database'], ['c1', 'w1']], { cut: true });
  assert.equal(await askOnce(), 'answered');
  await network.lift(id);
});
