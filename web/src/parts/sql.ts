// The words of a SQL statement, for colours: enough to tell keywords, texts, numbers and comments apart. DuckDB decides
// what they mean.

export type Kind = 'keyword' | 'function' | 'text' | 'number' | 'comment' | 'name' | 'sign' | 'space';

export interface Word {
  kind: Kind;
  text: string;
}

const KEYWORDS = new Set(
  (
    'all and any array as asc asof at between by case cast collate column columns create cross current date delete ' +
    'desc describe distinct drop else end escape except exclude exists explain extract false filter first following ' +
    'for from full glob group groups having if ilike in inner insert intersect interval into is isnull join last ' +
    'lateral left like limit materialized natural not notnull null nulls of offset on or order ordinality over ' +
    'partition pivot positional preceding primary qualify range recursive replace returning right row rows sample ' +
    'select semi set show similar some summarize table tablesample temp temporary then ties time timestamp to true ' +
    'try_cast unbounded union unique unnest unpivot update using values view when where window with within without'
  ).split(' '),
);

// Keywords that are also the names of functions.
const CALLED = new Set('array cast columns date extract glob if left range replace right row time timestamp try_cast unnest'.split(' '));

// One alternative for each kind, in the order in which they are tried. A text or comment that is not closed goes to the end.
const WORDS = new RegExp(
  [
    String.raw`(?<comment>--[^\n]*|/\*[\s\S]*?(?:\*/|$))`,
    String.raw`(?<text>[eE]?'(?:[^'\\]|''|\\.)*(?:'|$)|\$(?<tag>\w*)\$[\s\S]*?(?:\$\k<tag>\$|$))`,
    String.raw`(?<name>"(?:[^"]|"")*(?:"|$))`,
    String.raw`(?<number>\b\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)`,
    String.raw`(?<word>[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*)`,
    String.raw`(?<space>\s+)`,
    String.raw`(?<sign>[\s\S])`,
  ].join('|'),
  'g',
);

export function wordsOf(sql: string): Word[] {
  const words: Word[] = [];
  for (const found of sql.matchAll(WORDS)) {
    const text = found[0];
    const groups = found.groups!;
    if (groups['word'] !== undefined) {
      const isCall = /^\s*\(/.test(sql.slice(found.index + text.length, found.index + text.length + 20));
      const lower = text.toLowerCase();
      const isKeyword = KEYWORDS.has(lower) && !(isCall && CALLED.has(lower));
      words.push({ kind: isKeyword ? 'keyword' : isCall ? 'function' : 'name', text });
      continue;
    }
    const kind = (['comment', 'text', 'name', 'number', 'space', 'sign'] as const).find((name) => groups[name] !== undefined);
    words.push({ kind: kind ?? 'sign', text });
  }
  return words;
}
