// read.mjs FILE... - reads Arrow streams with apache-arrow and checks types and values; independent_test.c wrote them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { compressionRegistry, CompressionType, tableFromIPC } from 'apache-arrow';
import lz4 from 'lz4js';

compressionRegistry.set(CompressionType.LZ4_FRAME, {
    encode: (bytes) => lz4.compress(bytes),
    decode: (bytes) => lz4.decompress(bytes),
});

const ROWS = 100000;

// Column, type as apache-arrow names it, value of row i (undefined: not compared, only its type).
const columns = {
    i: ['Int64', (i) => BigInt(i)],
    c_bool: ['Bool', (i) => (i % 7 === 0 ? null : i % 2 === 0)],
    c_tinyint: ['Int8', (i) => (i % 5 === 0 ? null : (i % 100) - 50)],
    c_usmallint: ['Uint16', (i) => i % 65535],
    c_integer: ['Int32', (i) => i * 3],
    c_ubigint: ['Uint64', (i) => 18446744073709551615n - BigInt(i)],
    c_float: ['Float32', (i) => Math.fround(i)],
    c_double: ['Float64', (i) => i / 8],
    c_decimal: ['Decimal[18e+3]', undefined],
    c_varchar: ['Utf8', (i) => (i % 3 === 0 ? null : `täxt ${i}`)],
    c_blob: ['Binary', (i) => `blob${i}`],
    c_date: ['Date32<DAY>', undefined],
    c_timestamptz: ['Timestamp<MICROSECOND, UTC>', undefined],
    c_enum: ['Dictionary<Uint8, Utf8>', (i) => ['sad', 'ok', 'happy'][i % 3]],
    c_list: ['List<Int64>', (i) => (i % 11 === 0 ? null : [...Array(i % 5).keys()].map(BigInt))],
    c_struct: [null, (i) => ({ a: BigInt(i), b: i % 2 === 0 ? `x${i}` : null })],
    c_map: [null, (i) => (i % 4 === 0 ? null : [[`k${i}`, BigInt(i)]])],
    c_array: ['FixedSizeList[3]<Int64>', (i) => [BigInt(i), null, BigInt(i) + 2n]],
    c_null: ['Int32', () => null], // as DuckDB has it
    c_uuid: [null, undefined],
};

// What a value of apache-arrow is in plain JavaScript.
function plain(value) {
    if (value === null || value === undefined) return null;
    if (value instanceof Uint8Array) return Buffer.from(value).toString();
    if (typeof value.toJSON !== 'function' || typeof value === 'bigint') return value;
    if (typeof value.length === 'number') return Array.from(value, plain);
    if (value[Symbol.toStringTag] === 'MapRow' || value.constructor.name === 'MapRow') {
        return [...value].map(([k, v]) => [plain(k), plain(v)]);
    }
    return Object.fromEntries([...value].map(([k, v]) => [k, plain(v)]));
}

// Layouts that DuckDB does not make.
function checkOthers(table) {
    const text = (i) => String.fromCharCode(97 + (i % 26)).repeat(i % 4);
    const types = ['Bool', 'Null', 'LargeUtf8', 'FixedSizeBinary[3]', null, 'Interval<MONTH_DAY_NANO>'];
    assert.equal(table.numRows, 1000);
    table.schema.fields.forEach((field, i) => types[i] && assert.equal(String(field.type), types[i]));
    assert.equal(table.getChild('w:3').nullCount, 200);
    for (let i = 0; i < 1000; i++) {
        assert.equal(table.getChild('b').get(i), i % 3 === 0);
        assert.equal(table.getChild('n').get(i), null);
        assert.equal(table.getChild('U').get(i), text(i));
        const fixed = table.getChild('w:3').get(i);
        assert.deepEqual(fixed && [...fixed], i % 5 === 0 ? null : [i % 256, i % 256, i % 256]);
        assert.equal(table.getChild('+us:0,1').get(i), i % 2 === 0 ? i * 10 : text(i));
        assert.deepEqual([...table.getChild('tin').get(i)].slice(0, 3), [i, i + 1, i + 2]);
    }
}

for (const file of process.argv.slice(2)) {
    const table = tableFromIPC(readFileSync(file));
    if (file.endsWith('others.arrows')) {
        checkOthers(table);
        console.log(`${file}: ${table.numRows} rows are right`);
        continue;
    }
    assert.equal(table.numRows, ROWS);
    assert.equal(table.batches.length, 2);
    assert.deepEqual(table.schema.fields.map((field) => field.name), Object.keys(columns));
    for (const [name, [type, value]] of Object.entries(columns)) {
        const column = table.getChild(name);
        if (type !== null) assert.equal(String(column.type), type, name);
        if (value === undefined) continue;
        for (let i = 0; i < ROWS; i += name === 'i' ? 1 : 97) {
            assert.deepEqual(plain(column.get(i)), value(i), `${name} of row ${i}`);
        }
    }
    const decimal = table.getChild('c_decimal').get(12345);
    assert.equal(Number(decimal[0]), 12345000, 'a decimal');
    assert.equal(Number(table.getChild('c_date').get(5)), 5 * 86400000, 'a date');
    assert.equal(Number(table.getChild('c_timestamptz').get(1)), Date.UTC(2020, 0, 1, 0, 0, 1), 'a timestamp');
    for (const [name, extension] of [['c_uuid', 'arrow.uuid']]) {
        const field = table.schema.fields.find((candidate) => candidate.name === name);
        assert.equal(field.metadata.get('ARROW:extension:name'), extension);
    }
    console.log(`${file}: ${table.numRows} rows in ${table.batches.length} batches are right`);
}
