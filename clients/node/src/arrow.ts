// arrow.ts - rows as plain objects, from the record batches of apache-arrow, which a program brings along if it wants rows.
//
// Values are taken from the buffers themselves, since the accessors of apache-arrow round timestamps and leave decimals and
// 128-bit numbers as words.
import type * as Arrow from 'apache-arrow';
import { CapstanError } from './errors.js';

export type ArrowModule = typeof Arrow;

/**
 * A row by column names. Whole numbers are numbers, and bigints where a number could not hold them; decimals are texts
 * with all their digits; DATE and TIME are texts, timestamps are Dates; lists are arrays, structs objects, maps Maps,
 * blobs bytes.
 */
export type Row = Record<string, unknown>;

export interface RowOptions {
  /** All whole numbers of 64 bits and more as bigints, also small ones. */
  bigints?: boolean;
}

let loaded: Promise<ArrowModule> | undefined;

/** The package apache-arrow of the program. */
export async function loadArrow(): Promise<ArrowModule> {
  loaded ??= import('apache-arrow');
  try {
    return await loaded;
  } catch (cause) {
    loaded = undefined;
    throw new CapstanError('failed_precondition', 'rows can only be read with the package apache-arrow', {
      hint: 'npm install apache-arrow, or take the Arrow stream as it is: job.bytes()',
      cause,
    });
  }
}

// ---- numbers ----

function integerOf(value: bigint, { bigints }: RowOptions): number | bigint {
  const number = Number(value);
  return bigints || !Number.isSafeInteger(number) ? value : number;
}

function wide(words: Uint32Array): bigint {
  const value = words.reduceRight((sum, word) => (sum << 32n) | BigInt(word), 0n);
  return BigInt.asIntN(words.length * 32, value);
}

function decimalOf(value: bigint, scale: number): string {
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  return `${value < 0n ? '-' : ''}${scale > 0 ? `${digits.slice(0, -scale)}.${digits.slice(-scale)}` : digits}`;
}

function wholeOf(bytes: Uint8Array, isSigned: boolean): bigint {
  const value = bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  return isSigned ? BigInt.asIntN(bytes.length * 8, value) : value;
}

// ---- times ----

const perSecond = [1n, 1000n, 1000000n, 1000000000n];
const perMilli = [0n, 1n, 1000n, 1000000n];

function timeOf(count: bigint, unit: number): string {
  const per = perSecond[unit] as bigint;
  const seconds = Number(count / per);
  const two = (n: number) => String(n).padStart(2, '0');
  const whole = `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  const rest = count % per;
  return rest === 0n
    ? whole
    : `${whole}.${String(rest)
        .padStart(String(per).length - 1, '0')
        .replace(/0+$/, '')}`;
}

// DuckDB's days at both ends of its calendar stand for infinity, and a Date ends before.
function dayOf(ms: number): string {
  if (Math.abs(ms) > 8.64e15) return ms > 0 ? 'infinity' : '-infinity';
  return new Date(ms).toISOString().slice(0, -14);
}

function instantOf(count: bigint, unit: number): Date {
  const per = perMilli[unit] as bigint;
  if (per === 0n) return new Date(Number(count * 1000n));
  const millis = count >= 0n || count % per === 0n ? count / per : count / per - 1n; // towards the past
  return new Date(Number(millis));
}

// ---- values ----

// What a column is read with. The types of apache-arrow say little about the memory behind them.
type Data = any;
type Field = any;
type Reader = (data: Data, i: number) => unknown;

const decoder = new TextDecoder();
const span = (data: Data, i: number): Uint8Array =>
  data.values.subarray(Number(data.valueOffsets[i]), Number(data.valueOffsets[i + 1]));

function listOf(read: Reader, child: Data, from: number, to: number): unknown[] {
  const items: unknown[] = [];
  for (let at = from; at < to; at++) items.push(read(child, at));
  return items;
}

const uuidOf = (bytes: Uint8Array) =>
  Buffer.from(bytes)
    .toString('hex')
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');

function fixedReader(field: Field, options: RowOptions): Reader {
  const at = (data: Data, i: number): Uint8Array =>
    data.values.subarray(i * field.type.byteWidth, (i + 1) * field.type.byteWidth);
  const extension = field.metadata.get('ARROW:extension:name');
  const opaque = extension === 'arrow.opaque' ? String(field.metadata.get('ARROW:extension:metadata')) : '';
  if (extension === 'arrow.uuid') return (data, i) => uuidOf(at(data, i));
  if (opaque.includes('hugeint')) {
    const isSigned = !opaque.includes('uhugeint');
    return (data, i) => integerOf(wholeOf(at(data, i), isSigned), options);
  }
  return (data, i) => at(data, i).slice();
}

function intReader(field: Field, options: RowOptions): Reader {
  if (field.metadata.get('ARROW:extension:name') === 'arrow.bool8') return (data, i) => data.values[i] !== 0;
  if (field.type.bitWidth === 64) return (data, i) => integerOf(data.values[i], options);
  return (data, i) => data.values[i];
}

// Of the types with children.
function nestedReader(arrow: ArrowModule, field: Field, options: RowOptions): Reader | undefined {
  const { Type } = arrow;
  const { type } = field;
  const inner = (child: Field) => readerOf(arrow, child, options);
  if (type.typeId === Type.List || type.typeId === Type.Map) {
    const read = inner(type.children[0]);
    const items: Reader = (data, i) =>
      listOf(read, data.children[0], Number(data.valueOffsets[i]), Number(data.valueOffsets[i + 1]));
    if (type.typeId === Type.List) return items;
    const [key, value] = type.children[0].type.children.map((child: Field) => child.name) as [string, string];
    return (data, i) => new Map((items(data, i) as Row[]).map((entry) => [entry[key], entry[value]]));
  }
  if (type.typeId === Type.FixedSizeList) {
    const read = inner(type.children[0]);
    return (data, i) => listOf(read, data.children[0], i * type.listSize, (i + 1) * type.listSize);
  }
  if (type.typeId === Type.Struct) {
    const readers = type.children.map((child: Field) => [child.name, inner(child)] as const);
    return (data, i) =>
      Object.fromEntries(
        readers.map(([name, read]: [string, Reader], at: number) => [name, read(data.children[at], i)]),
      );
  }
  return undefined;
}

// Of the types without.
function plainReader({ Type }: ArrowModule, field: Field, options: RowOptions): Reader {
  const { type } = field;
  switch (type.typeId as Arrow.Type) {
    case Type.Null:
      return () => null;
    case Type.Int:
      return intReader(field, options);
    case Type.Bool:
      return (data, i) => ((data.values[i >> 3] >> (i & 7)) & 1) === 1;
    case Type.Utf8:
    case Type.LargeUtf8:
      return (data, i) => decoder.decode(span(data, i));
    case Type.Binary:
    case Type.LargeBinary:
      return (data, i) => span(data, i).slice();
    case Type.FixedSizeBinary:
      return fixedReader(field, options);
    case Type.Decimal: {
      const words = type.bitWidth / 32;
      return (data, i) => decimalOf(wide(data.values.subarray(i * words, (i + 1) * words)), type.scale);
    }
    case Type.Date:
      return (data, i) => dayOf(Number(data.values[i]) * (type.unit === 0 ? 86400000 : 1));
    case Type.Time:
      return (data, i) => timeOf(BigInt(data.values[i]), type.unit);
    case Type.Timestamp:
      return (data, i) => instantOf(BigInt(data.values[i]), type.unit);
    case Type.Interval:
      return (data, i) => {
        const [months, days, low, high] = data.values.subarray(i * 4, (i + 1) * 4);
        return { months, days, nanoseconds: wide(Uint32Array.of(low >>> 0, high >>> 0)) };
      };
    case Type.Dictionary:
      return (data, i) => data.dictionary.get(Number(data.values[i]));
    default:
      return (data, i) => data.values[i]; // floats
  }
}

function readerOf(arrow: ArrowModule, field: Field, options: RowOptions): Reader {
  const read = nestedReader(arrow, field, options) ?? plainReader(arrow, field, options);
  return (data, i) => (data.nullCount > 0 && !data.getValid(i) ? null : read(data, i));
}

/** The rows of a batch. Columns of the same name are told apart as name, name_1, name_2. */
export function rowsOf(arrow: ArrowModule, batch: Arrow.RecordBatch, options: RowOptions = {}): Row[] {
  const names = new Set<string>();
  const columns = batch.schema.fields.map((field, at) => {
    let name = field.name;
    for (let n = 1; names.has(name); n++) name = `${field.name}_${n}`;
    names.add(name);
    return { name, data: batch.data.children[at], read: readerOf(arrow, field, options) };
  });
  const rows: Row[] = Array.from({ length: batch.numRows }, () => ({}));
  for (const { name, data, read } of columns) {
    for (let i = 0; i < rows.length; i++) (rows[i] as Row)[name] = read(data, i);
  }
  return rows;
}
