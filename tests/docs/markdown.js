// markdown.js - what a document asks the runner to do: its code blocks in order, with what stands around each of them.
//
// parse(text) gives a list of steps:
//   { kind: 'block', lang, text, line, file, follows, notRun, stays, on }
//   { kind: 'ctrl-c', name, line }
//
// `file` is the name in a paragraph before the block that ends with `name`: (the block is the content of that file).
// `follows` says that nothing stands between this block and the one before it, so it can be what that one prints.
// The rest comes from comments right before the block, which readers of the page do not see:
//   <!-- not run: reason -->     nobody could run it here
//   <!-- stays NAME: text -->    runs in a terminal of its own, called NAME, and is ready when it has printed the text
//   <!-- on: 10.0.0.2 -->        is typed on that machine
//   <!-- ctrl-c: NAME -->        stands alone: Ctrl-C in that terminal, and it has to end

const COMMENT = /^<!--\s*(not run|stays|on|ctrl-c)\b([^:]*):\s*(.*?)\s*-->$/;

// What is known about the next block from the comments before it.
function readComment(line, number, state, steps) {
  const [, what, name, rest] = COMMENT.exec(line);
  if (rest === '') throw new Error(`line ${number}: the comment '${what}' says nothing`);
  if (what === 'not run') state.notRun = rest;
  else if (what === 'stays') state.stays = { name: name.trim() || 'terminal', ready: rest };
  else if (what === 'on') state.on = rest;
  else steps.push({ kind: 'ctrl-c', name: rest, line: number });
}

export function parse(markdown) {
  const steps = [];
  const lines = markdown.split('\n');
  let state = {};
  let before = ''; // the last line of text before the block
  let follows = false; // only blanks since the last block
  for (let i = 0; i < lines.length; i++) {
    const open = /^(```+)\s*([\w-]*)\s*$/.exec(lines[i]);
    if (open) {
      const end = lines.indexOf(open[1], i + 1);
      if (end < 0) throw new Error(`line ${i + 1}: the block has no end`);
      const text = lines.slice(i + 1, end).join('\n') + '\n';
      const file = /`([\w.][\w./-]*)`( \(.*\))?:$/.exec(before)?.[1];
      steps.push({ kind: 'block', lang: open[2], text, line: i + 2, file, follows, ...state });
      state = {};
      before = '';
      follows = true;
      i = end;
    } else if (COMMENT.test(lines[i])) {
      readComment(lines[i], i + 1, state, steps);
    } else if (lines[i].trim() !== '') {
      before = lines[i].trim();
      follows = false;
      if (Object.keys(state).length > 0) throw new Error(`line ${i + 1}: a comment for a block, and no block follows`);
    }
  }
  return steps;
}

// The commands of a console block: [{ command, expected }]. A command begins with `$ `, and goes on in lines with `> `.
export function commandsOf(text) {
  const commands = [];
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const last = commands.at(-1);
    if (line.startsWith('$ ')) commands.push({ command: line.slice(2), expected: '' });
    else if (!last) throw new Error(`a console block begins with '$ ', not with '${line}'`);
    else if (line.startsWith('> ') && last.expected === '') last.command += '\n' + line.slice(2);
    else last.expected += line + '\n';
  }
  return commands;
}

// Text without code blocks, for what is said in passing.
const prose = (markdown) => markdown.replace(/^(```+)[^\n]*\n.*?^\1$/gms, (block) => block.replace(/[^\n]/g, ''));

// `capstan ...` in the middle of sentences: [{ words, line }].
export function inlineCommands(markdown) {
  const found = [];
  prose(markdown)
    .split('\n')
    .forEach((text, i) => {
      for (const [, code] of text.matchAll(/`(capstan [^`]+)`/g)) found.push({ words: code.split(/\s+/), line: i + 1 });
    });
  return found;
}

// Links to files of ours: [{ target, anchor, line }].
export function links(markdown) {
  const found = [];
  prose(markdown)
    .split('\n')
    .forEach((text, i) => {
      for (const [, target] of text.matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const [file, anchor] = target.split('#');
        found.push({ file, anchor, line: i + 1 });
      }
    });
  return found;
}

// The anchors that GitHub makes of headings, and those that stand in the text.
export const anchors = (markdown) => [
  ...[...prose(markdown).matchAll(/^#+\s+(.*)$/gm)].map(([, title]) =>
    title
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replace(/\s/g, '-'),
  ),
  ...[...markdown.matchAll(/<a id="([^"]+)">/g)].map(([, id]) => id),
];
