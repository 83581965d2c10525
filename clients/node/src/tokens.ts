// tokens.ts - tokens that `capstan up` leaves for programs of the same user, by the address of the coordinator.
//
// `up` holds a lock on its file as long as it lives. A file that nobody holds was left behind by a crash; its token is not
// sent to whoever has the address now.
import { lstatSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { InvalidArgumentError } from './errors.js';

function isHeld(inode: number): boolean {
  try {
    const locks = readFileSync('/proc/locks', 'utf8');
    return locks.split('\n').some((line) => / FLOCK /.test(line) && line.includes(`:${inode} `));
  } catch {
    return false; // no Linux: then the token has to be given
  }
}

function read(file: string): string | undefined {
  let stat;
  try {
    stat = lstatSync(file);
  } catch {
    return undefined; // then the server says whether it needs one
  }
  if (!stat.isFile() || !isHeld(stat.ino)) return undefined;
  if ((stat.mode & 0o077) !== 0) {
    throw new InvalidArgumentError(`the token in ${file} is open to other users`, { hint: `chmod 600 ${file}` });
  }
  return readFileSync(file, 'utf8').split(/\r?\n/, 1)[0];
}

/** The token of the first of these servers that has one which is in use. */
export function findToken(servers: readonly string[]): string | undefined {
  const config = process.env['XDG_CONFIG_HOME'];
  const folder = path.join(config?.startsWith('/') ? config : path.join(homedir(), '.config'), 'capstan', 'tokens');
  for (const server of servers) {
    const token =
      read(path.join(folder, server)) ?? read(path.join(folder, server.replace(/^localhost:/, '127.0.0.1:')));
    if (token) return token;
  }
  return undefined;
}
