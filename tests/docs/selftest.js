// selftest.js - documents that are wrong, each of which the runner has to notice: broken/NAME.md begins with a comment
// that says what has to be found, <!-- found: text -->.
import fs from 'node:fs';
import { checkInline, checkLinks } from './checks.js';
import { Document } from './document.js';

const folder = new URL('broken/', import.meta.url);

export function selftest({ binary, part }) {
  return fs
    .readdirSync(folder)
    .filter((name) => name.endsWith('.md'))
    .map((name, i) => ({
      name: `broken/${name} is noticed`,
      body: async () => {
        const markdown = fs.readFileSync(new URL(name, folder), 'utf8');
        const [, wanted] = /^<!-- found: (.*) -->$/m.exec(markdown);
        const document = new Document(name, markdown, { network: `127.${part}.${200 + i}`, binary });
        let message;
        try {
          await document.run();
          checkInline(name, markdown, binary);
          checkLinks(`tests/docs/broken/${name}`, markdown);
        } catch (error) {
          ({ message } = error);
        }
        if (message === undefined) throw new Error('the runner has noticed nothing');
        if (!message.includes(wanted)) throw new Error(`'${wanted}' is not in what was found:\n${message}`);
      },
    }));
}
