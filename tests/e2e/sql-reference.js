// sql-reference.js - DuckDB alone, as its makers ship it for Node: it makes the data of the tests, and says what is right.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { root } from './harness.js';
import { plain } from './sql-table.js';

const data = path.join(root, 'tests/data');
export const quote = (text) => `'${text.replaceAll("'", "''")}'`;

export class Reference {
  static async open() {
    const reference = new Reference();
    reference.instance = await DuckDBInstance.create(':memory:', { threads: '2' });
    reference.connection = await reference.instance.connect();
    await reference.run("SET TimeZone = 'UTC'");
    return reference;
  }

  async run(sql) {
    await this.connection.run(sql);
  }

  // { columns: [{ name, type }], rows } as in sql-table.js.
  async query(sql) {
    const described = await this.connection.runAndReadAll(`DESCRIBE ${sql}`);
    const columns = described.getRows().map(([name, type]) => ({ name, type }));
    const rows = (await this.connection.runAndReadAll(sql)).getRows();
    return { columns, rows: rows.map((row) => row.map((value, i) => plain(value, columns[i].type))) };
  }

  // Runs one of the generators of tests/data, and names its tables as views: { name: glob }.
  async generate(name, folder, settings) {
    const set = Object.entries({ folder, ...settings }).map(
      ([variable, value]) => `SET VARIABLE ${variable} = ${typeof value === 'string' ? quote(value) : value};`,
    );
    const text = fs.readFileSync(path.join(data, `generate-${name}.sql`), 'utf8');
    await this.run(`${set.join(' ')} ${text}`);
    const tables = Object.fromEntries(Object.entries(files[name]).map(([key, file]) => [key, path.join(folder, file)]));
    for (const [table, source] of Object.entries(tables)) {
      // The generators leave tables of these names; the files are what is compared.
      await this.run(`DROP TABLE IF EXISTS temp.${table};
                      CREATE OR REPLACE TEMP VIEW ${table} AS FROM read_parquet(${quote(source)})`);
    }
    return tables;
  }
}

const files = {
  tpch: {
    region: 'region.parquet',
    nation: 'nation.parquet',
    supplier: 'supplier.parquet',
    customer: 'customer.parquet',
    part: 'part.parquet',
    partsupp: 'partsupp.parquet',
    orders: 'orders-*.parquet',
    lineitem: 'lineitem-*.parquet',
  },
  ugly: { facts: 'facts-*.parquet', dims: 'dims-*.parquet', none: 'none.parquet', one: 'one.parquet' },
};

// One for this process, made when it is first asked for.
let shared;
export const reference = () => (shared ??= Reference.open());

// Data of a generator in a folder of this process: { name: glob }. Made once.
const made = new Map();
const folders = new Set();
process.on('exit', () => {
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true });
});
export function dataOf(name, settings) {
  if (!made.has(name)) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), `capstan-e2e-${name}-`));
    folders.add(folder);
    made.set(
      name,
      reference().then((it) => it.generate(name, folder, settings)),
    );
  }
  return made.get(name);
}

// The queries of tests/data/sql/NAME.sql: [{ name, sql, isOrdered, isVolatile, isEmpty }].
export function queriesOf(name) {
  const text = fs.readFileSync(path.join(data, 'sql', `${name}.sql`), 'utf8');
  return text
    .split(/^-- name: /m)
    .slice(1)
    .map((part) => {
      const [head, ...lines] = part.split('\n');
      const [title, ...marks] = head.split(' ');
      const sql = lines.join('\n').trim().replace(/;$/, '');
      const [isOrdered, isVolatile, isEmpty] = ['ordered', 'volatile', 'empty'].map((mark) => marks.includes(mark));
      return { name: title, sql, isOrdered, isVolatile, isEmpty };
    });
}
