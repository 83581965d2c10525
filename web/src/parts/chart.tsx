// A result as a picture: bars, a line or points of the first rows.
import { useMemo, useState } from 'preact/hooks';
import type { Cell, Column } from '../api';
import { number, short } from '../format';
import { cellText, isNumeric } from './grid';
import { Choice, Empty } from './ui';

const [WIDTH, HEIGHT] = [860, 340];
const PAD = { left: 64, right: 12, top: 14, bottom: 54 };
const BARS_MAX = 60;
const POINTS_MAX = 2000;
const TEMPORAL = /^(DATE|TIME|TIMESTAMP)/;

const valueOf = (cell: Cell | undefined): number | undefined => {
  const value = typeof cell === 'string' ? Number(cell) : cell;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
};

export function ticks(low: number, high: number, n = 5): number[] {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw)!;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

interface Point {
  label: string;
  x: number;
  y: number;
}

function pointsOf(rows: Cell[][], columns: Column[], x: number, y: number, max: number): Point[] {
  const points: Point[] = [];
  const isTime = TEMPORAL.test(columns[x]!.type);
  for (const [i, row] of rows.slice(0, max).entries()) {
    const value = valueOf(row[y]);
    if (value === undefined) continue;
    const label = cellText(row[x] ?? null);
    const place = isTime ? Date.parse(label.replace(' ', 'T')) : isNumeric(columns[x]!) ? valueOf(row[x]) : i;
    points.push({ label, x: place === undefined || Number.isNaN(place) ? i : place, y: value });
  }
  return points;
}

export function Chart({ columns, rows, total }: { columns: Column[]; rows: Cell[][]; total: number }) {
  const numeric = columns.map((column, i) => ({ column, i })).filter(({ column }) => isNumeric(column));
  const firstX = columns.findIndex((column) => !isNumeric(column));
  const [x, setX] = useState(firstX >= 0 ? firstX : 0);
  const [y, setY] = useState((numeric.find(({ i }) => i !== x) ?? numeric[0])?.i ?? 0);
  const isContinuous = columns[x] !== undefined && (isNumeric(columns[x]) || TEMPORAL.test(columns[x].type));
  const [form, setForm] = useState(isContinuous && rows.length > 12 ? 'line' : 'bars');
  const max = form === 'bars' ? BARS_MAX : POINTS_MAX;
  const points = useMemo(() => pointsOf(rows, columns, x, y, max), [rows, columns, x, y, max]);
  if (numeric.length === 0) return <Empty>None of the columns is a number, so there is nothing to draw.</Empty>;

  const values = points.map((point) => point.y);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values) || 1;
  const up = (value: number) => PAD.top + (1 - (value - low) / (high - low)) * (HEIGHT - PAD.top - PAD.bottom);
  const inner = WIDTH - PAD.left - PAD.right;
  const sorted = form === 'line' ? [...points].sort((a, b) => a.x - b.x) : points;
  const [xLow, xHigh] = [Math.min(...points.map((p) => p.x)), Math.max(...points.map((p) => p.x))];
  const along = (point: Point) => PAD.left + ((point.x - xLow) / (xHigh - xLow || 1)) * inner;
  const every = Math.max(1, Math.ceil(points.length / 12));
  const band = inner / Math.max(1, points.length);
  const range = values.length === 0 ? '' : ` from ${short(Math.min(...values))} to ${short(Math.max(...values))}`;
  return (
    <div class="chart">
      <div class="row">
        <Choice
          label="Form"
          value={form}
          onChange={setForm}
          options={[{ value: 'bars', label: 'Bars' }, { value: 'line', label: 'Line' }, { value: 'points', label: 'Points' }]}
        />
        <label>
          across{' '}
          <select value={x} onChange={(event) => setX(Number(event.currentTarget.value))}>
            {columns.map((column, i) => (
              <option key={i} value={i}>
                {column.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          up{' '}
          <select value={y} onChange={(event) => setY(Number(event.currentTarget.value))}>
            {numeric.map(({ column, i }) => (
              <option key={i} value={i}>
                {column.name}
              </option>
            ))}
          </select>
        </label>
        {total > points.length && <span class="soft">the first {number(Math.min(max, rows.length))} of {number(total)} rows</span>}
      </div>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${columns[y]?.name} by ${columns[x]?.name}, ${points.length} values${range}`}>
        {ticks(low, high).map((tick) => (
          <g key={tick}>
            <line class="rule" x1={PAD.left} x2={WIDTH - PAD.right} y1={up(tick)} y2={up(tick)} />
            <text class="tick" x={PAD.left - 8} y={up(tick) + 4} text-anchor="end">
              {short(tick)}
            </text>
          </g>
        ))}
        {form === 'bars' &&
          points.map((point, i) => (
            <g key={i}>
              <rect class="mark" x={PAD.left + i * band + band * 0.12} width={Math.max(1, band * 0.76)} y={Math.min(up(point.y), up(0))} height={Math.max(1, Math.abs(up(point.y) - up(0)))}>
                <title>{`${point.label}: ${number(point.y)}`}</title>
              </rect>
              {i % every === 0 && (
                <text class="tick" x={PAD.left + (i + 0.5) * band} y={HEIGHT - PAD.bottom + 16} text-anchor="middle">
                  {point.label.length > 12 ? `${point.label.slice(0, 11)}…` : point.label}
                </text>
              )}
            </g>
          ))}
        {form !== 'bars' && points.length > 0 && (
          <>
            <text class="tick" x={PAD.left} y={HEIGHT - PAD.bottom + 16}>
              {sorted.reduce((a, b) => (b.x < a.x ? b : a)).label}
            </text>
            <text class="tick" x={WIDTH - PAD.right} y={HEIGHT - PAD.bottom + 16} text-anchor="end">
              {sorted.reduce((a, b) => (b.x > a.x ? b : a)).label}
            </text>
          </>
        )}
        {form === 'line' && <polyline class="line" points={sorted.map((point) => `${along(point).toFixed(1)},${up(point.y).toFixed(1)}`).join(' ')} />}
        {form === 'points' && points.map((point, i) => <circle key={i} class="mark" cx={along(point)} cy={up(point.y)} r="2.6" />)}
        <text class="axis" x={PAD.left + inner / 2} y={HEIGHT - 10} text-anchor="middle">
          {columns[x]?.name}
        </text>
        <text class="axis" x={PAD.left} y={10}>
          {columns[y]?.name}
        </text>
      </svg>
    </div>
  );
}
