// checks.js - what a page says in passing: commands inside sentences, links, methods of the protocol.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { anchors, inlineCommands, links } from './markdown.js';

const root = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');

const help = new Map(); // by verb; '' lists the verbs
function helpOf(verb, binary) {
  if (!help.has(verb)) {
    const args = verb === '' ? ['--help'] : [verb, '--help'];
    help.set(verb, execFileSync(binary, args, { encoding: 'utf8' }));
  }
  return help.get(verb);
}

// Commands inside sentences name verbs and flags that there are.
export function checkInline(name, markdown, binary) {
  const verbs = [...helpOf('', binary).matchAll(/^ {2}(\w+) {2,}/gm)].map((found) => found[1]);
  for (const { words, line } of inlineCommands(markdown)) {
    const verb = words[1];
    if (verb.startsWith('-') || verb === 'VERB' || verb.startsWith('<')) continue;
    if (!verbs.includes(verb)) throw new Error(`${name}:${line}: there is no 'capstan ${verb}'`);
    for (const word of words.slice(2)) {
      const flag = /^\[?(--[a-z-]+)/.exec(word)?.[1];
      if (flag && !new RegExp(`${flag}(?![\\w-])`).test(helpOf(verb, binary))) {
        throw new Error(`${name}:${line}: 'capstan ${verb}' has no ${flag}`);
      }
    }
  }
}

// Links to our own files lead somewhere, also to the heading.
export function checkLinks(name, markdown) {
  for (const { file, anchor, line } of links(markdown)) {
    const target = file === '' ? path.join(root, name) : path.resolve(root, path.dirname(name), file);
    if (!fs.existsSync(target)) throw new Error(`${name}:${line}: there is no ${file}`);
    if (anchor && target.endsWith('.md') && !anchors(fs.readFileSync(target, 'utf8')).includes(anchor)) {
      throw new Error(`${name}:${line}: ${file} has no heading '${anchor}'`);
    }
  }
}

// docs/protocol.md speaks of every method that there is.
export function checkProtocol() {
  const proto = fs.readFileSync(path.join(root, 'proto/capstan.proto'), 'utf8');
  const page = fs.readFileSync(path.join(root, 'docs/protocol.md'), 'utf8');
  const missing = [...proto.matchAll(/^ {2}rpc (\w+)\(/gm)]
    .map((found) => found[1])
    .filter((name) => !page.includes(`\`${name}\``));
  if (missing.length > 0) throw new Error(`docs/protocol.md does not name ${missing.join(', ')}`);
}
