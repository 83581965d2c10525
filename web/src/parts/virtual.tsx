// A list of which only what can be seen is there.
//
// Browsers cannot scroll over more than some tens of millions of pixels, and a million rows come near that. So the scroll
// bar has at most HEIGHT_MAX of them: a jump on it goes to the same part of the list, a small step moves by as many pixels
// as it says.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

const HEIGHT_MAX = 4_000_000;
const OVERSCAN = 6;

export interface Span {
  first: number;
  last: number; // behind the last one
}

// Where the list stands: `shift` is what the scroll position lacks to be the true one.
export function place(
  scroll: number,
  before: { scroll: number; shift: number },
  sizes: { total: number; bar: number; view: number },
): number {
  const extra = sizes.total - sizes.bar;
  const end = sizes.bar - sizes.view;
  if (extra <= 0 || scroll <= 0) return 0;
  if (scroll >= end - 1) return extra;
  if (Math.abs(scroll - before.scroll) < sizes.view * 2) {
    return Math.min(Math.max(before.shift, -scroll), extra + (end - scroll));
  }
  return (scroll / end) * extra;
}

export function useVirtual(count: number, rowHeight: number) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ scroll: 0, shift: 0, height: 400 });
  const total = count * rowHeight;
  const bar = Math.min(total, HEIGHT_MAX);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setView((old) => ({ ...old, height: element.clientHeight }));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    let frame = 0;
    const read = () => {
      frame = 0;
      const scroll = element.scrollTop;
      setView((old) => {
        const shift = place(scroll, old, { total, bar, view: element.clientHeight });
        return scroll === old.scroll && shift === old.shift ? old : { ...old, scroll, shift };
      });
    };
    const onScroll = () => {
      if (frame === 0) frame = requestAnimationFrame(read);
    };
    element.addEventListener('scroll', onScroll, { passive: true });
    read();
    return () => {
      element.removeEventListener('scroll', onScroll);
      cancelAnimationFrame(frame);
    };
  }, [total, bar]);

  const at = Math.max(0, view.scroll + view.shift);
  const first = Math.max(0, Math.min(Math.floor(at / rowHeight) - OVERSCAN, count));
  const last = Math.min(count, Math.ceil((at + view.height) / rowHeight) + OVERSCAN);
  // Where the first row that is there lies in the box.
  const top = first * rowHeight - view.shift;
  // Puts the row on top. The shift is set with it: the way there may be so short on the bar that it looks like a small step.
  const scrollTo = (row: number) => {
    const element = box.current;
    if (!element) return;
    const most = Math.max(0, total - element.clientHeight);
    const end = Math.max(0, bar - element.clientHeight);
    const wanted = Math.min(Math.max(0, row * rowHeight), most);
    const isInside = total > bar && wanted > 0 && wanted < most; // its ends stand for the ends of the list
    element.scrollTop = isInside ? Math.min(Math.max((wanted / most) * end, 2), end - 2) : wanted;
    const scroll = element.scrollTop; // in whole pixels of the screen
    setView((old) => ({ ...old, scroll, shift: total > bar ? wanted - scroll : 0 }));
  };
  return { box, span: { first, last } as Span, top, bar, scrollTo };
}

interface ListProps {
  count: number;
  rowHeight: number;
  label: string;
  class?: string;
  head?: ComponentChildren;
  row: (index: number) => ComponentChildren;
}

// Rows are `role=row` of a table; `head` stays above.
export function VirtualTable({ count, rowHeight, label, class: kind = '', head, row }: ListProps) {
  const { box, span, top, bar } = useVirtual(count, rowHeight);
  const rows = [];
  for (let i = span.first; i < span.last; i++) rows.push(row(i));
  return (
    <div class={`virtual ${kind}`}>
      <div class="virtual-box" ref={box} tabIndex={0} role="table" aria-label={label} aria-rowcount={count + (head ? 1 : 0)}>
        {head && (
          <div class="virtual-head" role="rowgroup">
            {head}
          </div>
        )}
        <div class="virtual-bar" role="rowgroup" style={{ height: `${bar}px` }}>
          <div class="virtual-rows" role="presentation" style={{ transform: `translateY(${top}px)` }}>
            {rows}
          </div>
        </div>
      </div>
    </div>
  );
}
