// The comparison that all scenarios with rows rely on: what is wrong is seen, and what is the same passes.
import { test } from 'node:test';
import { assert } from './harness.js';
import { assertSameTable, plain } from './sql-table.js';

const table = (types, ...rows) => ({
  columns: types.map((type, i) => ({ name: `c${i}`, type })),
  rows,
});
const ofDoubles = (...values) => table(['DOUBLE'], ...values.map((value) => [value]));

// In either direction, and in either order of rows.
function assertDiffer(a, b, what) {
  for (const [actual, expected] of [
    [a, b],
    [b, a],
  ]) {
    for (const ordered of [false, true]) {
      assert.throws(() => assertSameTable(actual, expected, { ordered, what }), assert.AssertionError, what);
    }
  }
}

function assertEqual(a, b) {
  for (const ordered of [false, true]) {
    assertSameTable(a, b, { ordered });
    assertSameTable(b, a, { ordered });
  }
}

test('rows that are the same are taken for that', () => {
  assertEqual(ofDoubles(), ofDoubles());
  assertEqual(ofDoubles(NaN, Infinity, -Infinity, 0, null), ofDoubles(NaN, Infinity, -Infinity, -0, null));
  assertEqual(ofDoubles(1, 1e300, -5e-324), ofDoubles(1 + 1e-12, 1e300 * (1 - 1e-12), -5e-324));
  const all = ['INTEGER', 'VARCHAR', 'BOOLEAN', 'DATE'];
  assertEqual(table(all, ['1', '', true, '0 days']), table(all, ['1', '', true, '0 days']));
  assertEqual(table(["ENUM('a', 'b''c')"], ['a']), table(['ENUM'], ['a']));
});

// In lists and structs, Arrow's side has floats as numbers, and DuckDB's as texts.
test('numbers inside of lists and structs are compared, however they are written', () => {
  const floats = [1.5, -0, 1e21, 1e-7, NaN, Infinity, -Infinity, null];
  const [numbers, texts] = [floats, floats.map((value) => plain(value))];
  assert.ok(texts.every((value) => typeof value !== 'number'));
  assertEqual(table(['DOUBLE[]'], [numbers]), table(['DOUBLE[]'], [texts]));
  assertEqual(table(['STRUCT(a DOUBLE)'], [[['a', 0.1 + 0.2]]]), table(['STRUCT(a DOUBLE)'], [[['a', '0.3']]]));
  for (const [a, b] of [
    [1.5, '1.6'],
    [Infinity, '-Infinity'],
    [Infinity, '1'],
    [NaN, '0'],
    [0, ''],
    [0, ' '],
    [0, 'x'],
    [16, '0x10'],
    [1, true],
    [0, false],
    [0, null],
    [0, []],
    [5, ['5']],
  ]) {
    assertDiffer(table(['x[]'], [[a]]), table(['x[]'], [[b]]), `${a} and ${JSON.stringify(b)}`);
  }
});

test('a value that is wrong is seen', () => {
  for (const [a, b] of [
    [Infinity, 1],
    [Infinity, 1.7976931348623157e308],
    [Infinity, -Infinity],
    [-Infinity, 0],
    [Infinity, NaN],
    [Infinity, null],
    [NaN, 0],
    [NaN, null],
    [0, null],
    [0, ''],
    [1, 1 + 1e-8],
    [0, 5e-324],
  ]) {
    assertDiffer(ofDoubles(7, a), ofDoubles(7, b), `${a} and ${b}`);
  }
  const texts = (...values) => table(['VARCHAR'], ...values.map((value) => [value]));
  for (const [a, b] of [
    ['', null],
    ['', '0'],
    ['', ' '],
    ['a', 'A'],
    ['1', '1.0'],
    ['null', null],
  ]) {
    assertDiffer(texts(a), texts(b), `${JSON.stringify(a)} and ${JSON.stringify(b)}`);
  }
  assertDiffer(table(['BOOLEAN'], [true]), table(['BOOLEAN'], [false]), 'truth values');
  assertDiffer(table(['BIGINT[]'], [['1', '2']]), table(['BIGINT[]'], [['2', '1']]), 'the order in a list');
  assertDiffer(table(['BIGINT[]'], [['1']]), table(['BIGINT[]'], [['1', null]]), 'a NULL more in a list');
  assertDiffer(table(['BIGINT[]'], [[]]), table(['BIGINT[]'], [null]), 'an empty list and NULL');
  // Nobody should bring objects; if somebody does, they are not taken for equal.
  assertDiffer(table(['x'], [{ a: 1 }]), table(['x'], [{ a: 1 }]), 'objects');
});

test('rows that are missing, too many or doubled are seen', () => {
  assertDiffer(ofDoubles(1, 2), ofDoubles(1), 'a row more');
  assertDiffer(ofDoubles(), ofDoubles(null), 'a row of NULLs and none');
  assertDiffer(ofDoubles(1, 1, 2), ofDoubles(1, 2, 2), 'another row twice');
  const two = ['INTEGER', 'INTEGER'];
  assertDiffer(table(two, ['1', '2'], ['3', '4']), table(two, ['1', '4'], ['3', '2']), 'values of other rows');
});

test('columns with another name, type or place are seen', () => {
  assertDiffer(table(['INTEGER'], ['1']), table(['BIGINT'], ['1']), 'another type');
  assertDiffer(table(['INTEGER']), table(['BIGINT']), 'another type without rows');
  assertDiffer(table(['DECIMAL(5,2)'], ['1.00']), table(['DECIMAL(6,2)'], ['1.00']), 'another width');
  assertDiffer(table(['ENUM'], ['a']), table(['VARCHAR'], ['a']), 'an ENUM and a text');
  assertDiffer(table(['DOUBLE', 'DOUBLE'], [1, 1]), table(['DOUBLE'], [1]), 'a column more');
  const named = (...names) => ({ columns: names.map((name) => ({ name, type: 'INTEGER' })), rows: [['1', '1']] });
  assertDiffer(named('a', 'b'), named('b', 'a'), 'another order of columns');
});

test('the order of rows counts where it was asked for, and only there', () => {
  const [up, down] = [ofDoubles(1, 2, 3), ofDoubles(3, 2, 1)];
  assertSameTable(up, down);
  assert.throws(() => assertSameTable(up, down, { ordered: true }), /row 0 of/);
});
