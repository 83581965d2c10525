// embed.js FOLDER - prints the C source that holds the files of FOLDER: those of src/coordinator/web.h. Nothing in it
// depends on when or where it was made.
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

// The limit of the dashboard, compressed and all together.
const BYTES_MAX = 300_000;

function* filesOf(folder, below = '') {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const name = `${below}/${entry.name}`;
    if (entry.isDirectory()) yield* filesOf(path.join(folder, entry.name), name);
    else yield { name, bytes: fs.readFileSync(path.join(folder, entry.name)) };
  }
}

function array(name, bytes) {
  const lines = [];
  for (let i = 0; i < bytes.length; i += 32) lines.push(`    ${[...bytes.subarray(i, i + 32)].join(',')},`);
  return `static const unsigned char ${name}[] = {\n${lines.join('\n')}\n};\n`;
}

const rows = [];
const arrays = [];
let total = 0;
for (const { name, bytes } of filesOf(process.argv[2])) {
  const type = TYPES[path.extname(name)];
  if (!type) throw new Error(`embed.js: what type has ${name}?`);
  const gzip = zlib.gzipSync(bytes, { level: 9 });
  gzip[9] = 255; // the system that packed it: unknown
  const digest = createHash('sha256').update(bytes).digest('hex').slice(0, 32);
  const n = rows.length;
  const isPage = name === '/index.html';
  total += gzip.length;
  arrays.push(array(`plain_${n}`, bytes), array(`gzip_${n}`, gzip));
  rows.push(
    `    {"${isPage ? '/' : name}", "${type}", "\\"${digest}\\"", plain_${n}, sizeof plain_${n}, gzip_${n}, ` +
      `sizeof gzip_${n}, ${/-[\w-]{8}\.\w+$/.test(name)}},`,
  );
}
if (rows.length === 0) throw new Error('embed.js: there is nothing to embed');
if (total > BYTES_MAX) throw new Error(`embed.js: ${total} bytes, compressed; ${BYTES_MAX} are the limit`);
process.stdout.write(
  `/* Made from web/ by web/embed.js: ${rows.length} files, ${total} bytes compressed. */\n` +
    `#include "coordinator/web.h"\n\n${arrays.join('\n')}\nconst struct web_file web_files[] = {\n${rows.join('\n')}\n};\n` +
    `const uint32_t web_n_files = ${rows.length};\n`,
);
