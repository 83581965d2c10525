// worker-process.js ADDRESS ID - a worker as a process of its own, to be killed. The executor `where` says who it is.
import { setTimeout as pause } from 'node:timers/promises';
import { Worker } from 'capstan';

const [, , servers, id] = process.argv;
const worker = new Worker({
  servers,
  id,
  slots: 2,
  executors: {
    where: async ({ inputs: { ms }, signal }) => {
      console.log('began');
      await pause(ms, undefined, { signal });
      return process.pid;
    },
  },
  log: (line) => console.log(line),
});
process.once('SIGTERM', () => worker.close());
await worker.start();
await worker.ended;
