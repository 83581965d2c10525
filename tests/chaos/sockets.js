// sockets.js - which process has which TCP socket, as Linux tells. Reading that takes milliseconds, so ask for many at once.
import fs from 'node:fs';

const LISTEN = '0A';

// All sockets of this machine: { port, state, inode }. Servers and clients may use IPv6 sockets for IPv4 addresses.
function* sockets() {
  for (const file of ['/proc/net/tcp', '/proc/net/tcp6']) {
    let text;
    try {
      text = fs.readFileSync(file, 'utf8');
    } catch {
      continue; // a machine without IPv6
    }
    for (const line of text.split('\n').slice(1)) {
      const fields = line.trim().split(/\s+/);
      if (fields.length > 9) yield { port: parseInt(fields[1].split(':')[1], 16), state: fields[3], inode: fields[9] };
    }
  }
}

// The inodes of the sockets that a process has open; none if it has gone.
function inodesOf(pid) {
  const inodes = new Set();
  try {
    for (const fd of fs.readdirSync(`/proc/${pid}/fd`)) {
      try {
        const [, inode] = /^socket:\[(\d+)\]$/.exec(fs.readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? [];
        if (inode) inodes.add(inode);
      } catch {
        // closed meanwhile
      }
    }
  } catch {
    // it has ended
  }
  return inodes;
}

// The port on which a process listens; undefined: on none.
export function listeningPort(pid) {
  const inodes = inodesOf(pid);
  for (const { port, state, inode } of sockets()) if (state === LISTEN && inodes.has(inode)) return port;
  return undefined;
}

// Which of these processes, a map of names to ids, has the connection from each of these ports: a map of ports to names.
export function ownersOf(ports, processes) {
  const wanted = new Set(ports);
  const portOf = new Map();
  for (const { port, state, inode } of sockets()) if (state !== LISTEN && wanted.has(port)) portOf.set(inode, port);
  const owners = new Map();
  for (const [name, pid] of processes) {
    for (const inode of inodesOf(pid)) if (portOf.has(inode)) owners.set(portOf.get(inode), name);
  }
  return owners;
}
