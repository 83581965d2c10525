// compare.js - whether what a command printed is what the document shows.

const LINES_SHOWN = 40;

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

// `...` stands for anything, in a line of its own for any number of lines. Blanks count as one: columns may be wider.
export function textFits(expected, actual) {
  const lines = expected.trimEnd().split('\n');
  const patterns = lines.map((line) => {
    if (/^\s*\.\.\.$/.test(line)) return '(?:[^\\n]*\\n)*?';
    const words = line.trim().split(/\s+/).join(' ');
    return words.split('...').map(escape).join('[^\\n]*?') + '\\n';
  });
  const printed =
    actual
      .trimEnd()
      .split('\n')
      .map((line) => line.trim().split(/\s+/).join(' '))
      .join('\n') + '\n';
  return new RegExp(`^${patterns.join('')}$`).test(printed);
}

// Names of numbers that differ from run to run.
const VARIES = /(_ms|^seq|^epoch|^bytes)$/;

// What is different, or nothing. Texts may have `...` in them; a list that ends with "..." goes on.
export function jsonDifference(expected, actual, where = '') {
  if (expected === '...') return undefined;
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual)) return `${where || 'it'} is no list`;
    const goesOn = expected.at(-1) === '...';
    const n = expected.length - (goesOn ? 1 : 0);
    if (goesOn ? actual.length < n : actual.length !== n) return `${where} has ${actual.length} elements, not ${n}`;
    for (let i = 0; i < n; i++) {
      const difference = jsonDifference(expected[i], actual[i], `${where}[${i}]`);
      if (difference) return difference;
    }
    return undefined;
  }
  if (expected !== null && typeof expected === 'object') {
    if (actual === null || typeof actual !== 'object') return `${where || 'it'} is no object`;
    for (const name of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      if (!(name in expected)) return `${where}.${name} is there, and not in the document`;
      if (!(name in actual)) return `${where}.${name} is missing`;
      if (VARIES.test(name) && typeof expected[name] === 'number' && typeof actual[name] === 'number') continue;
      const difference = jsonDifference(expected[name], actual[name], `${where}.${name}`);
      if (difference) return difference;
    }
    return undefined;
  }
  if (typeof expected === 'string' && typeof actual === 'string' && textFits(expected, actual)) return undefined;
  return expected === actual
    ? undefined
    : `${where || 'it'} is ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`;
}

const shown = (text) => {
  const lines = text.trimEnd().split('\n');
  return lines.length <= LINES_SHOWN ? text.trimEnd() : ['...', ...lines.slice(-LINES_SHOWN)].join('\n');
};

// Throws if what was printed is not what is shown. JSON is compared as such.
export function check(expected, actual, lang) {
  if (lang === 'json') {
    let value;
    try {
      value = JSON.parse(actual);
    } catch {
      throw new Error(`what was printed is no JSON:\n${shown(actual)}`);
    }
    const difference = jsonDifference(JSON.parse(expected), value);
    if (difference) throw new Error(`${difference}\n---- printed:\n${shown(actual)}`);
  } else if (!textFits(expected, actual)) {
    throw new Error(
      `something else was printed\n---- the document:\n${expected.trimEnd()}\n---- printed:\n${shown(actual)}`,
    );
  }
}
