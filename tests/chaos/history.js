// history.js - what happened, a line of JSON each, in the order in which the driver saw it.
//
// Every line has `t`, milliseconds since 1970, and `e`, what it is:
//   meta      how the run was made: seed, minutes, settings, the kinds of faults that were planned and possible
//   invoke    a client calls: { call, client, op, job, ... }; then for the same `call` one of
//   ok        the answer, with what it said
//   fail      refused for certain: nothing happened
//   unknown   no answer: it happened or not
//   plan      a job and how it must end, before it is submitted
//   fault     { kind, target, phase: 'begin' | 'end', hit: who it was }
//   process   { name, event: 'start' | 'exit', pid, ... }
//   stall     this machine stood still for { ms }: silence in that time is nobody's fault
//   healed    no fault from here on
//   run       a line of a command about itself: { job, task, what: 'start' | 'tick' | 'end', key, attempt, at, worker }
//   assigned  a witness was given an attempt: { worker, job, stage, task, attempt, token, key }
//   report    a witness reports: { call, worker, job, stage, task, attempt, token, state }, one line for each try; then for the same
//   answer    `call` what it was told: { accepted, reason }; none: nobody knows
//   memory    of a process: { name, incarnation, age: ms since its start, rss: bytes }
//   unexpected  a process ended by itself, or complained: { what }
//   finished  whether all clients got to the end of their jobs after the heal: { isDone, open }
//   state     a row of the database at the end: { table, row }
//   audit     a row that was written: { n, xid, at, app, leader, epoch, table, op, row }; an empty row: one or more of other tables
import fs from 'node:fs';
import readline from 'node:readline';

export class History {
  #fd;
  #calls = 0;

  constructor(file) {
    this.file = file;
    this.#fd = fs.openSync(file, 'a');
    this.counts = { ok: 0, fail: 0, unknown: 0 };
  }

  // After the end nothing is added any more: processes that are stopped then are no part of it.
  add(e, fields) {
    if (this.#fd === undefined) return;
    fs.writeSync(this.#fd, `${JSON.stringify({ t: Date.now(), e, ...fields })}\n`);
  }

  // A call with its answer. `ask` returns what the answer said, to be kept; an error with `isRefusal` is a `fail`.
  async call(client, op, fields, ask) {
    const call = ++this.#calls;
    this.add('invoke', { call, client, op, ...fields });
    try {
      const answer = await ask();
      this.counts.ok++;
      this.add('ok', { call, client, op, job: fields.job, ...answer.said });
      return answer;
    } catch (error) {
      const e = error.isRefusal ? 'fail' : 'unknown';
      this.counts[e]++;
      this.add(e, {
        call,
        client,
        op,
        job: fields.job,
        code: error.code,
        why: String(error.details ?? error.message).slice(0, 300),
      });
      throw error;
    }
  }

  close() {
    fs.closeSync(this.#fd);
    this.#fd = undefined;
  }
}

export async function readHistory(file) {
  const history = [];
  for await (const line of readline.createInterface({ input: fs.createReadStream(file) }))
    history.push(JSON.parse(line));
  return history;
}
