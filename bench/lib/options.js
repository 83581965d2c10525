// options.js - the options of a benchmark: `--help` prints the comment that its file begins with; what is wrong is told in
// one line, with the options that there are.
import fs from 'node:fs';
import { parseArgs } from 'node:util';

function explain() {
  const lines = fs.readFileSync(process.argv[1], 'utf8').split('\n');
  const begin = lines.findIndex((line) => line.startsWith('//'));
  const end = lines.findIndex((line, i) => i > begin && !line.startsWith('//'));
  process.stdout.write(`${lines.slice(begin, end).map((line) => line.replace(/^\/\/ ?/, '')).join('\n')}\n`);
  process.exit(0);
}

// `known`: name → what it is without the option: false, a text, or undefined.
export function options(known) {
  const all = Object.entries({ ...known, help: false }).map(([name, value]) => [
    name,
    typeof value === 'boolean' ? { type: 'boolean', default: value } : { type: 'string', default: value },
  ]);
  try {
    const { values } = parseArgs({ options: Object.fromEntries(all) });
    return values.help ? explain() : values;
  } catch (error) {
    const names = all.map(([name]) => `--${name}`).join(', ');
    process.stderr.write(`bench: ${error.message.split('. ')[0]}\n  hint: the options are ${names}\n`);
    return process.exit(2);
  }
}
