// Rows of a result, of which there may be millions: pages of them are fetched as they come into view, a few dozen pages
// are kept.
import { useEffect, useRef, useState } from 'preact/hooks';
import { api, type Cell, type Column } from '../api';
import { number } from '../format';
import { useVirtual } from './virtual';

const PAGE = 200;
const PAGES_KEPT = 60;
const ROW = 26;

export function cellText(cell: Cell): string {
  if (cell === null) return '';
  return typeof cell === 'object' ? JSON.stringify(cell) : String(cell);
}

const NUMERIC = /^(U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL(\([\d,]*\))?)$/;
export const isNumeric = (column: Column) => NUMERIC.test(column.type);

const LETTER = 7.3; // pixels
const LETTERS_MAX = 44;

// Widths in letters by what has been seen: the head, then rows. They only grow, so that nothing jumps back.
function useWidths(jobId: string, columns: Column[]) {
  const known = useRef({ jobId: '', letters: [] as number[] });
  if (known.current.jobId !== jobId) {
    known.current = { jobId, letters: columns.map(({ name, type }) => name.length + type.length * 0.85 + 1) };
  }
  const { letters } = known.current;
  return {
    see: (row: Cell[]) => {
      for (let i = 0; i < letters.length; i++) {
        const cell = row[i] ?? null;
        if (letters[i]! < LETTERS_MAX && cell !== null) letters[i] = Math.max(letters[i]!, Math.min(LETTERS_MAX, cellText(cell).length));
      }
    },
    pixels: () => letters.map((n) => Math.round(n * LETTER + 22)),
  };
}

// Pages of rows: what is there, and what is on its way. The newest request goes first; of those that have been scrolled
// past none is sent.
function usePages(jobId: string, first: { columns: Column[]; rows: Cell[][] }) {
  const pages = useRef(new Map<number, Cell[][]>());
  const [, redraw] = useState(0);
  const [error, setError] = useState<Error>();
  const state = useRef({ wanted: [] as number[], isBusy: false, isOver: false });

  useEffect(() => {
    state.current = { wanted: [], isBusy: false, isOver: false };
    pages.current = new Map();
    for (let i = 0; i * PAGE < first.rows.length; i++) {
      const rows = first.rows.slice(i * PAGE, (i + 1) * PAGE);
      pages.current.set(i, rows);
    }
    redraw((n) => n + 1);
    const own = state.current;
    return () => {
      own.isOver = true;
    };
  }, [jobId, first]);

  const pump = async () => {
    const own = state.current;
    if (own.isBusy || own.isOver) return;
    const page = own.wanted.find((one) => !pages.current.has(one));
    if (page === undefined) return;
    own.isBusy = true;
    try {
      const { rows } = await api.rows(jobId, page * PAGE, PAGE);
      if (own.isOver) return;
      pages.current.set(page, rows);
      for (const old of pages.current.keys()) {
        if (pages.current.size <= PAGES_KEPT) break;
        if (!own.wanted.includes(old)) pages.current.delete(old);
      }
      setError(undefined);
    } catch (caught) {
      own.wanted = [];
      if (!own.isOver) setError(caught as Error);
    }
    own.isBusy = false;
    redraw((n) => n + 1);
    void pump();
  };
  const want = (from: number, to: number) => {
    const wanted = [];
    for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) wanted.push(page);
    state.current.wanted = wanted;
    void pump();
  };
  const row = (index: number) => pages.current.get(Math.floor(index / PAGE))?.[index % PAGE];
  return { row, want, error };
}

interface Props {
  jobId: string;
  columns: Column[];
  first: { columns: Column[]; rows: Cell[][] };
  total: number;
}

export function Grid({ jobId, columns, first, total }: Props) {
  const { row, want, error } = usePages(jobId, first);
  const { box, span, top, bar, scrollTo } = useVirtual(total, ROW);
  const seen = useWidths(jobId, columns);
  for (let i = span.first; i < span.last; i++) {
    const cells = row(i);
    if (cells) seen.see(cells);
  }
  const widths = seen.pixels();
  const numbers = Math.round(number(total).length * LETTER + 20);
  const all = widths.reduce((sum, width) => sum + width, numbers);
  const [jump, setJump] = useState('');
  useEffect(() => want(span.first, span.last), [span.first, span.last, jobId, total]);
  const rows = [];
  for (let i = span.first; i < span.last; i++) {
    const cells = row(i);
    rows.push(
      <div key={i} class="grid-row" role="row" aria-rowindex={i + 2}>
        <span class="grid-number" role="rowheader" style={{ width: `${numbers}px` }}>
          {number(i + 1)}
        </span>
        {columns.map((column, c) => {
          const cell = cells?.[c];
          const text = cell === undefined ? '' : cellText(cell);
          return (
            <span
              key={c}
              role="cell"
              class={`${isNumeric(column) ? 'num' : ''} ${cell === null ? 'is-null' : ''}`}
              style={{ width: `${widths[c]}px` }}
              title={text.length > 40 ? text.slice(0, 2000) : undefined}
            >
              {cell === undefined ? '·' : cell === null ? 'NULL' : text.length > 300 ? `${text.slice(0, 300)}…` : text}
            </span>
          );
        })}
      </div>,
    );
  }
  return (
    <div class="grid">
      <div class="virtual-box" style={{ height: `min(60vh, 560px, ${(total + 1) * ROW + 18}px)` }} ref={box} tabIndex={0} role="table" aria-label="Result" aria-rowcount={total + 1} aria-colcount={columns.length + 1}>
        <div class="grid-row grid-head" role="row" aria-rowindex={1} style={{ width: `${all}px` }}>
          <span role="columnheader" class="num" style={{ width: `${numbers}px` }}>
            #
          </span>
          {columns.map((column, c) => (
            <span key={c} role="columnheader" class={isNumeric(column) ? 'num' : ''} style={{ width: `${widths[c]}px` }} title={`${column.name} ${column.type}`}>
              {column.name} <small>{column.type.toLowerCase()}</small>
            </span>
          ))}
        </div>
        <div class="virtual-bar" role="rowgroup" style={{ height: `${bar}px`, width: `${all}px` }}>
          <div class="virtual-rows" role="presentation" style={{ transform: `translateY(${top}px)` }}>
            {rows}
          </div>
        </div>
      </div>
      <form
        class="grid-foot"
        onSubmit={(event) => {
          event.preventDefault();
          const wanted = Number(jump.replaceAll(/[^\d]/g, ''));
          if (wanted > 0) scrollTo(wanted - 1);
        }}
      >
        <span>
          rows {number(Math.min(total, span.first + 1))}–{number(span.last)} of {number(total)}
        </span>
        {error && (
          <span class="is-bad" role="alert">
            {error.message}
          </span>
        )}
        <label>
          go to row{' '}
          <input inputMode="numeric" size={9} value={jump} onInput={(event) => setJump(event.currentTarget.value)} />
        </label>
      </form>
    </div>
  );
}
