// reporter.js - prints a line per test, what went wrong at failures, and at the end `N passed, N failed`.
import { inspect } from 'node:util';

const isTest = ({ data }) => data.details?.type !== 'suite' && data.nesting === 0 && data.skip === undefined;
// Node reports a file that failed as a whole, on top of its tests; it counts only if none of its tests has been seen.
const isFile = (event) => event.data.name === event.data.file || /\.test\.js$/.test(event.data.name);

function explain(error) {
  const cause = error?.cause ?? error;
  return (cause instanceof Error ? (cause.stack ?? cause.message) : inspect(cause, { depth: 6 })).replace(
    /^/gm,
    '    ',
  );
}

export default async function* reporter(events) {
  let passed = 0;
  let failed = 0;
  for await (const event of events) {
    if (event.type === 'test:pass' && isTest(event) && !isFile(event)) {
      passed++;
      yield `ok: ${event.data.name} (${Math.round(event.data.details.duration_ms)} ms)\n`;
    } else if (event.type === 'test:fail' && isTest(event)) {
      if (isFile(event) && event.data.details.error?.failureType === 'subtestsFailed') continue;
      failed++;
      yield `not ok: ${event.data.name} (${Math.round(event.data.details.duration_ms)} ms)\n`;
      yield `${explain(event.data.details.error)}\n`;
    } else if (event.type === 'test:stdout' || event.type === 'test:stderr') {
      yield event.data.message;
    }
  }
  yield `${passed} passed, ${failed} failed\n`;
}
