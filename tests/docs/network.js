// network.js - a part of the loopback network, 127.A, that no other run of these tests has: whoever listens at a certain
// address in it has it, until its process ends.
import { randomInt } from 'node:crypto';
import net from 'node:net';

const CLAIM = { host: '255.254', port: 7399 };

const listen = (host) =>
  new Promise((resolve) => {
    const server = net.createServer().unref();
    server.once('error', () => resolve(false));
    server.listen({ host, port: CLAIM.port }, () => resolve(true));
  });

// The number A.
export async function claimNetwork() {
  for (;;) {
    const part = randomInt(16, 250);
    if (await listen(`127.${part}.${CLAIM.host}`)) return part;
  }
}
