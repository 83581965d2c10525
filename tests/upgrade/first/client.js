#!/usr/bin/env node
// Frozen, see capstan.js.
// client.js - submits a task tree, waits for its end, prints the results.
//
//   node client.js TREE.json [HOST:PORT[,HOST:PORT...]]
//
// The class is the start for programs that submit jobs themselves.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { Connection } from './capstan.js';

const WAIT_MS = 20000;
const ended = new Set(['QUERY_STATE_SUCCEEDED', 'QUERY_STATE_FAILED', 'QUERY_STATE_CANCELED']);

export class Client extends Connection {
  // The id is made here and not by the server, so that a submit whose answer is lost can be sent again: the second one
  // finds the job of the first.
  async submit(tree, { id = randomUUID(), key = '' } = {}) {
    const request = { job_id: id, tree_json: Buffer.from(JSON.stringify(tree)), idempotency_key: key };
    return (await this.call('SubmitTasks', request)).job_id;
  }

  async status(id, waitMs = 0) {
    const request = { query_id: id, wait_ms: waitMs };
    return (await this.call('GetQueryStatus', request, { timeoutMs: waitMs + 10000 })).status;
  }

  // Waits until the job has ended: the coordinator holds the call until then, or until `wait_ms` is over.
  async end(id) {
    for (;;) {
      const status = await this.status(id, WAIT_MS);
      if (ended.has(status.state)) return status;
    }
  }

  // { task name: result }. The chunks joined are one JSON object.
  async results(id) {
    const chunks = [];
    for await (const chunk of this.stream('FetchQueryResults', { query_id: id })) chunks.push(chunk.payload);
    return JSON.parse(Buffer.concat(chunks).toString());
  }

  async tasks(id) {
    const all = [];
    let after = '';
    do {
      const page = await this.call('ListTasks', { query_id: id, limit: 1000, after });
      all.push(...page.tasks);
      after = page.next;
    } while (after);
    return all;
  }

  cancel(id, reason = '') {
    return this.call('CancelQuery', { query_id: id, reason });
  }
}

async function main([file, servers = '127.0.0.1:7400']) {
  if (!file) {
    console.error('usage: node client.js TREE.json [HOST:PORT[,HOST:PORT...]]');
    return 2;
  }
  const client = new Client(servers.split(','), { token: process.env.CAPSTAN_TOKEN });
  try {
    const id = await client.submit(JSON.parse(readFileSync(file)));
    console.error(`job ${id}`);
    process.once('SIGINT', () => client.cancel(id, 'interrupted'));
    const status = await client.end(id);
    if (status.state !== 'QUERY_STATE_SUCCEEDED') {
      console.error(`${status.state.replace('QUERY_STATE_', '').toLowerCase()}: ${status.message}`);
      return 1;
    }
    console.log(JSON.stringify(await client.results(id), null, 2));
    return 0;
  } catch (error) {
    console.error(`client.js: ${error.details ?? error.message}`);
    return 3;
  } finally {
    client.close();
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.exitCode = await main(process.argv.slice(2));
}
