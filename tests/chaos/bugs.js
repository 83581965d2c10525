// bugs.js - the driver can fail: bugs that are planted in the real program, and the properties of which each must break one.
//
// They are compiled in with V=bugs (src/base/planted.h, BUG_TABLE of src/core/core.h) and chosen by CAPSTAN_PLANTED_BUG.
// `only` are the faults under which a bug shows soon; with all kinds of them it only takes longer. `eager` are clients more.
import fs from 'node:fs';

export const bugs = {
  skip_fence: {
    properties: ['one_writer'],
    only: ['cut_database', 'freeze_coordinator'],
    what: 'a commit does not check that this process still leads',
  },
  ack_before_commit: {
    // What workers have reported is lost, too, and done again; but what clients were told is what counts. One batch at a time is
    // under way, and it alone can be lost, so it has to have an acknowledgement in it: `eager` clients see to that.
    properties: ['acknowledged'],
    only: ['cut_database', 'slow_database', 'crash_database', 'kill_coordinator'],
    eager: 4,
    what: 'answers leave before what they say is durable',
  },
  forget_leases: {
    properties: ['executed_again'],
    only: ['kill_coordinator', 'stop_coordinator', 'terminate_leader'],
    what: 'a new leader does not know what is running',
  },
  forget_map_outputs: {
    // Workers are hit, too: what they lose excuses nobody else.
    properties: ['executed_again'],
    only: ['kill_coordinator', 'stop_coordinator', 'terminate_leader', 'kill_worker', 'freeze_worker'],
    eager: 4,
    what: 'a new leader does not know what maps have left on workers',
  },
  drop_report: {
    properties: ['executed_again'],
    only: ['kill_coordinator', 'freeze_coordinator', 'crash_database'],
    what: 'a worker forgets an outcome that no leader has answered',
  },
  accept_stale_token: {
    // The rows agree with each other: they say that the new attempt has succeeded.
    properties: ['current_lease'],
    only: ['freeze_worker', 'isolate_worker'],
    what: 'an outcome is taken from whoever reports it, whatever lease it quotes',
  },
  exclusive_runs_on: {
    properties: ['exclusive'],
    only: ['isolate_worker'],
    what: 'a worker goes on with an exclusive task when its lease is over',
  },
  cut_partition: {
    properties: ['rows'],
    only: ['cut_workers', 'slow_workers'],
    what: 'a partition whose connection broke counts as complete',
  },
  skip_parent_gate: {
    properties: ['dependencies'],
    only: ['kill_worker'],
    what: 'a task is assigned before those that it depends on have ended',
  },
};

const ROUNDS_MAX = 12;
const ROUND_MINUTES = 0.4;

// Each bug whose name contains `options.bugs`: rounds with other seeds until it breaks its property.
export async function catchBugs(options, torment) {
  let passed = 0;
  let failed = 0;
  for (const [bug, { properties, only, eager, what }] of Object.entries(bugs).filter(([name]) =>
    name.includes(options.bugs),
  )) {
    const began = Date.now();
    let caught;
    let others = new Set();
    for (let round = 0; round < ROUNDS_MAX && !caught; round++) {
      const seed = options.seed + round;
      const { violations, dir } = await torment({ seed, minutes: ROUND_MINUTES, bug, only, eager });
      caught = violations.find(({ property }) => properties.includes(property));
      others = new Set([...others, ...violations.map((violation) => violation.property)]);
      if (options.keep) console.log(`${bug}, seed ${seed}: ${dir}`);
      else fs.rmSync(dir, { recursive: true, force: true });
      if (caught)
        console.log(
          `ok - bug ${bug} (${what}) caught by ${caught.property} at seed ${seed}, round ${round + 1}, ${Math.round((Date.now() - began) / 1000)} s: ${caught.what}`,
        );
    }
    if (caught) passed++;
    else {
      failed++;
      console.log(
        `not ok - bug ${bug} (${what}) not caught by ${properties.join(', ')} in ${ROUNDS_MAX} rounds; broken: ${[...others].join(', ') || 'nothing'}`,
      );
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0 ? 0 : 1;
}
