// Statements that were run in this browser.

const KEY = 'capstan-sql-history';
const KEPT = 60;

export interface Past {
  sql: string;
  at: number;
  job: string;
}

export function readHistory(): Past[] {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '[]') as Past[];
  } catch {
    return [];
  }
}

export function remember(past: Past): Past[] {
  const list = [past, ...readHistory().filter(({ sql }) => sql !== past.sql)].slice(0, KEPT);
  localStorage.setItem(KEY, JSON.stringify(list));
  return list;
}
