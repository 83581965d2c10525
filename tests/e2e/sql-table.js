// sql-table.js - rows of a query in one plain form, whoever made them: { columns: [{ name, type }], rows: [[value]] }.
//
// Types are called as DuckDB calls them. Values are what JSON has: whole numbers and decimals as texts, floats as numbers,
// dates and times as a text with the count of their unit, lists as arrays, structs and maps as arrays of pairs, a UNION as
// the pair of its tag and its value. TIMETZ is the number that DuckDB keeps, BIT the bytes.
//
// Arrow streams are parsed by apache-arrow, which shares no code with Capstan. Its accessors round (timestamps to
// milliseconds, for one), so values are taken out of its buffers.
import { RecordBatchReader, Type } from 'apache-arrow';
import { assert } from './harness.js';

const hex = (bytes) => Buffer.from(bytes).toString('hex');
const extensionOf = (field) => field.metadata.get('ARROW:extension:name');
const opaqueOf = (field) => JSON.parse(field.metadata.get('ARROW:extension:metadata') || '{}').type_name;

// ---- types ----

const units = ['s', 'ms', 'us', 'ns'];
const timestampNames = ['TIMESTAMP_S', 'TIMESTAMP_MS', 'TIMESTAMP', 'TIMESTAMP_NS'];
const intNames = { 8: 'TINYINT', 16: 'SMALLINT', 32: 'INTEGER', 64: 'BIGINT' };
const opaqueNames = { hugeint: 'HUGEINT', uhugeint: 'UHUGEINT', bit: 'BIT', time_tz: 'TIME WITH TIME ZONE' };

const typeNames = {
  [Type.Null]: () => 'NULL',
  [Type.Int]: ({ type }) => (type.isSigned ? '' : 'U') + intNames[type.bitWidth],
  [Type.Float]: ({ type }) => ['FLOAT16', 'FLOAT', 'DOUBLE'][type.precision],
  [Type.Bool]: () => 'BOOLEAN',
  [Type.Utf8]: () => 'VARCHAR',
  [Type.LargeUtf8]: () => 'VARCHAR',
  [Type.Binary]: () => 'BLOB',
  [Type.LargeBinary]: () => 'BLOB',
  [Type.Decimal]: ({ type }) => `DECIMAL(${type.precision},${type.scale})`,
  [Type.Date]: () => 'DATE',
  [Type.Time]: ({ type }) => (type.unit === 3 ? 'TIME_NS' : 'TIME'),
  [Type.Timestamp]: ({ type }) => (type.timezone ? 'TIMESTAMP WITH TIME ZONE' : timestampNames[type.unit]),
  [Type.Interval]: () => 'INTERVAL',
  [Type.List]: ({ type }) => `${typeName(type.children[0])}[]`,
  [Type.FixedSizeList]: ({ type }) => `${typeName(type.children[0])}[${type.listSize}]`,
  [Type.Struct]: ({ type }) =>
    `STRUCT(${type.children.map((child) => `${child.name} ${typeName(child)}`.trim()).join(', ')})`,
  [Type.Map]: ({ type }) => `MAP(${type.children[0].type.children.map(typeName).join(', ')})`,
  [Type.Dictionary]: () => 'ENUM',
  [Type.Union]: ({ type }) => `UNION(${type.children.map((child) => `${child.name} ${typeName(child)}`).join(', ')})`,
  [Type.FixedSizeBinary]: () => 'BLOB',
};

export function typeName(field) {
  const extension = extensionOf(field);
  if (extension === 'arrow.bool8') return 'BOOLEAN';
  if (extension === 'arrow.uuid') return 'UUID';
  if (extension === 'arrow.json') return 'JSON';
  if (extension === 'arrow.opaque') return opaqueNames[opaqueOf(field)] ?? opaqueOf(field);
  return typeNames[field.type.typeId](field);
}

// ---- values ----

function wide(words, isSigned) {
  const value = words.reduceRight((sum, word) => (sum << 32n) | BigInt(word), 0n);
  return isSigned ? BigInt.asIntN(words.length * 32, value) : value;
}

function decimal(value, scale) {
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  const whole = scale > 0 ? `${digits.slice(0, -scale)}.${digits.slice(-scale)}` : digits;
  return (value < 0n ? '-' : '') + whole;
}

const text = (bytes) => Buffer.from(bytes).toString('utf8');
const bytesAt = (data, i) => data.values.subarray(Number(data.valueOffsets[i]), Number(data.valueOffsets[i + 1]));
const range = (from, to, make) => Array.from({ length: to - from }, (_, i) => make(from + i));
const inList = (field, data, i) =>
  range(Number(data.valueOffsets[i]), Number(data.valueOffsets[i + 1]), (at) =>
    valueAt(field.type.children[0], data.children[0], at),
  );

const readers = {
  [Type.Null]: () => null,
  [Type.Int]: (field, data, i) => String(data.values[i]),
  [Type.Float]: (field, data, i) => data.values[i],
  [Type.Bool]: (field, data, i) => ((data.values[i >> 3] >> (i & 7)) & 1) === 1,
  [Type.Utf8]: (field, data, i) => text(bytesAt(data, i)),
  [Type.LargeUtf8]: (field, data, i) => text(bytesAt(data, i)),
  [Type.Binary]: (field, data, i) => hex(bytesAt(data, i)),
  [Type.LargeBinary]: (field, data, i) => hex(bytesAt(data, i)),
  [Type.Decimal]: ({ type }, data, i) => {
    const words = type.bitWidth / 32;
    return decimal(wide([...data.values.subarray(i * words, (i + 1) * words)], true), type.scale);
  },
  [Type.Date]: (field, data, i) => `${data.values[i]} days`,
  [Type.Time]: ({ type }, data, i) => `${data.values[i]} ${units[type.unit]}`,
  [Type.Timestamp]: ({ type }, data, i) => `${data.values[i]} ${units[type.unit]}`,
  [Type.Interval]: (field, data, i) => {
    const [months, days, low, high] = data.values.subarray(i * 4, (i + 1) * 4);
    return `${months} months ${days} days ${wide([low >>> 0, high >>> 0], true) / 1000n} us`;
  },
  [Type.List]: inList,
  [Type.Map]: (field, data, i) => inList(field, data, i).map((entry) => entry.map(([, value]) => value)),
  [Type.FixedSizeList]: ({ type }, data, i) =>
    range(i * type.listSize, (i + 1) * type.listSize, (at) => valueAt(type.children[0], data.children[0], at)),
  [Type.Struct]: ({ type }, data, i) =>
    type.children.map((child, at) => [child.name, valueAt(child, data.children[at], i)]),
  [Type.Dictionary]: (field, data, i) => data.dictionary.get(Number(data.values[i])),
  [Type.Union]: ({ type }, data, i) => {
    const at = type.typeIdToChildIndex[data.typeIds[i]];
    return [type.children[at].name, valueAt(type.children[at], data.children[at], i)];
  },
  [Type.FixedSizeBinary]: ({ type }, data, i) =>
    hex(data.values.subarray(i * type.byteWidth, (i + 1) * type.byteWidth)),
};

const uuid = (digits) => digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
const integerOf = (digits, isSigned) => {
  const value = BigInt(`0x${Buffer.from(digits, 'hex').reverse().toString('hex')}`);
  return String(isSigned ? BigInt.asIntN(128, value) : value);
};

function valueAt(field, data, i) {
  if (field.type.typeId !== Type.Null && !data.getValid(i)) return null;
  const value = readers[field.type.typeId](field, data, i);
  const extension = extensionOf(field);
  if (extension === 'arrow.bool8') return value !== '0';
  if (extension === 'arrow.uuid') return uuid(value);
  if (extension === 'arrow.opaque' && /hugeint|time_tz/.test(opaqueOf(field))) {
    return integerOf(value, opaqueOf(field) === 'hugeint');
  }
  return value;
}

// ---- Arrow streams ----

export function tableFromArrow(bytes) {
  const reader = RecordBatchReader.from(bytes).open();
  const { fields } = reader.schema;
  const rows = [...reader].flatMap((batch) =>
    range(0, batch.numRows, (i) => fields.map((field, at) => valueAt(field, batch.data.children[at], i))),
  );
  return { columns: fields.map((field) => ({ name: field.name, type: typeName(field) })), rows };
}

// Reads a stream without keeping it: { columns, rows: how many, batches: how many }; onBatch gets each batch.
export async function drainArrow(source, onBatch = () => {}) {
  const reader = await RecordBatchReader.from(source);
  await reader.open();
  const columns = reader.schema.fields.map((field) => ({ name: field.name, type: typeName(field) }));
  let rows = 0;
  let batches = 0;
  for await (const batch of reader) {
    rows += batch.numRows;
    batches++;
    onBatch(batch);
  }
  return { columns, rows, batches };
}

// ---- values of DuckDB's own package ----

const byClass = {
  DuckDBDecimalValue: ({ value, scale }) => decimal(value, scale),
  DuckDBDateValue: ({ days }) => `${days} days`,
  DuckDBTimeValue: ({ micros }) => `${micros} us`,
  DuckDBTimeNSValue: ({ nanos }) => `${nanos} ns`,
  DuckDBTimestampValue: ({ micros }) => `${micros} us`,
  DuckDBTimestampTZValue: ({ micros }) => `${micros} us`,
  DuckDBTimestampSecondsValue: ({ seconds }) => `${seconds} s`,
  DuckDBTimestampMillisecondsValue: ({ millis }) => `${millis} ms`,
  DuckDBTimestampNanosecondsValue: ({ nanos }) => `${nanos} ns`,
  DuckDBIntervalValue: ({ months, days, micros }) => `${months} months ${days} days ${micros} us`,
  DuckDBTimeTZValue: ({ bits }) => String(bits),
  DuckDBBitValue: ({ data }) => hex(data),
  DuckDBUnionValue: ({ tag, value }) => [tag, plain(value)],
  DuckDBBlobValue: ({ bytes }) => hex(bytes),
  DuckDBUUIDValue: (value) => String(value),
  DuckDBListValue: ({ items }) => items.map((item) => plain(item)),
  DuckDBArrayValue: ({ items }) => items.map((item) => plain(item)),
  DuckDBStructValue: ({ entries }) => Object.entries(entries).map(([name, value]) => [name, plain(value)]),
  DuckDBMapValue: ({ entries }) => entries.map(({ key, value }) => [plain(key), plain(value)]),
};

const isFloat = (type) => type === 'FLOAT' || type === 'DOUBLE';

// Of a value inside a list or a struct only whole numbers are told from floats by their value; Arrow's side is compared
// in the same way (`same` takes 1 and '1' for equal).
export function plain(value, type = '') {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') return isFloat(type) ? value : String(value);
  const make = byClass[value.constructor.name];
  assert.ok(make, `a value of class ${value.constructor.name}`);
  return make(value);
}

// ---- comparing ----

// The number that a value is, or a text is exactly as JavaScript writes it; so '' is none, nor is a truth value.
function numberOf(value) {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && String(Number(value)) === value ? Number(value) : undefined;
}

// Floats to nine digits; an infinity is only itself, and NaN is NaN. A NULL is nothing else.
function same(a, b) {
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => same(item, b[i]));
  }
  if (a === b) return true;
  if (typeof a !== 'number' && typeof b !== 'number') return false;
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x === undefined || y === undefined) return false;
  if (!Number.isFinite(x) || !Number.isFinite(y)) return Object.is(x, y);
  return Math.abs(x - y) <= 1e-9 * Math.max(Math.abs(x), Math.abs(y));
}

const sortKey = (row) =>
  JSON.stringify(row, (key, value) => (typeof value === 'number' ? (value === 0 ? '0' : value.toPrecision(7)) : value));
const sorted = (rows) =>
  rows
    .map((row) => [sortKey(row), row])
    .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
    .map(([, row]) => row);
// ENUM is shown with its values by DuckDB; Arrow has it as a dictionary of texts. Names that are keywords are quoted.
const shownType = (type) => type.replaceAll(/ENUM\((?:'(?:[^']|'')*'(?:, )?)*\)/g, 'ENUM').replaceAll('"', '');

// Types and values, floats to nine digits.
export function assertSameTable(actual, expected, { ordered = false, what = 'the result' } = {}) {
  const columns = ({ name, type }) => `${name} ${shownType(type)}`;
  assert.deepEqual(actual.columns.map(columns), expected.columns.map(columns), `columns of ${what}`);
  assert.equal(actual.rows.length, expected.rows.length, `rows of ${what}`);
  const [a, b] = ordered ? [actual.rows, expected.rows] : [sorted(actual.rows), sorted(expected.rows)];
  const wrong = a.findIndex((row, i) => !same(row, b[i]));
  if (wrong >= 0) {
    assert.deepEqual(a[wrong], b[wrong], `row ${wrong} of ${what}`);
    assert.fail(`row ${wrong} of ${what} has values that cannot be compared`);
  }
}
