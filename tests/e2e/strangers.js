// strangers.js HOST PORT COUNT - a process of strangers, for load.test.js: opens COUNT connections that then do nothing and
// prints `open`. The line `garbage` on standard input makes it send garbage on ever new connections, too, until the line
// `enough`, to which it answers how often. Ends with its input.
import net from 'node:net';
import readline from 'node:readline';

const [host, port, count] = process.argv.slice(2);
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00', 'latin1');
const noise = Buffer.from(Array.from({ length: 16384 }, (_, i) => (i * 7919) % 251));
let isSending = false;
let sent = 0;

function connect(greeting) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), host, () => {
      if (greeting) socket.write(greeting);
      resolve(socket);
    });
    socket.on('error', reject).on('data', () => {});
  });
}

async function sendGarbage() {
  for (sent = 0; isSending; sent++) {
    const socket = await connect();
    socket.on('error', () => {});
    await new Promise((resolve) => socket.write(sent % 3 === 0 ? Buffer.concat([preface, noise]) : noise, resolve));
    await new Promise((resolve) => setTimeout(resolve, 2));
    socket.destroy();
  }
  console.log(sent);
}

// One half says nothing at all, the other opens HTTP/2 and then nothing.
for (let i = 0; i < Number(count); i += 100) {
  await Promise.all(Array.from({ length: 100 }, (_, k) => connect(k % 2 === 0 ? undefined : preface)));
}
console.log('open');
for await (const line of readline.createInterface({ input: process.stdin })) {
  isSending = line === 'garbage';
  if (isSending) sendGarbage();
}
process.exit(0);
