#!/bin/sh
# soak.sh - what takes longer than a test may. Run through ./dev soak, which builds what is needed.
#
#   soak.sh sim MINUTES         the simulator on seeds that nobody has run before, for that long. The first seed comes from
#                               the date, so that every soak sees new runs; what fails prints its seed, which belongs into
#                               tests/sim/failed-seeds.txt.
#   soak.sh crash ROUNDS NAME   real processes and databases that are killed, frozen and cut off, ROUNDS times where
#                               ./dev test does it 20 times; only tests with NAME in their name, unless it is empty.
#                               Others in proportion: the server under a coordinator dies ROUNDS / 2 times, of five
#                               coordinators that start at once one leads in ROUNDS / 4 rounds (50 with 200, 125 with
#                               the usual 500). Without a NAME the server under a bare store dies ROUNDS / 10 times, too.
#                               It sets CAPSTAN_CRASH_ROUNDS and CAPSTAN_TEST_CRASHES.
#   soak.sh e2e ROUNDS NAME     the end-to-end tests, with ROUNDS of chaos and with what is too long for ./dev test
#   soak.sh upgrade NAME        the builds of earlier releases and of the next beside today's (tests/upgrade); only tests with
#                               NAME in their name, unless it is empty. The first time it builds them, which takes minutes.
#   soak.sh chaos MINUTES       a cluster of real processes under random faults, from a seed made of the date; then the bugs that
#                               are planted in build/bugs must be caught. The hour of chaos is `./dev soak chaos`; `./dev soak`
#                               alone is the simulator.
#   soak.sh failover ROUNDS     how long nobody leads while 10,000 tasks run: ROUNDS of a leader that is stopped, and as many of
#                               one that is killed; fails above the bars of bench/failover.js
#   soak.sh sql QUERIES         the queries of tests/data in all ways to cut them, then so many random ones, beside one
#                               DuckDB. The first seed comes from the date; what differs is shrunk and printed with its seed.
#                               Then the queries of TPC-H and of the whole dialect over workers, with nothing and with
#                               everything broadcast, 2 and 5 partitions, all rows spilled and none, and a tenth of the
#                               random ones; the same over real processes; and joins and aggregates over four times the
#                               memory of all workers.
#   soak.sh bars                what ./dev test is generous with, since times of a busy machine say little: the dashboard's, an
#                               idle worker's, and those of lists of jobs, as they are wanted; those of SQL at scale 1 and 10, and of the
#                               shuffle (half an hour, 5 GB below build/). It sets CAPSTAN_BARS.
#   soak.sh container           builds the image and runs it; the units under systemd; the pods of the manifests (tools/container.sh)
#   soak.sh newcomer            the way of a new user on a clean clone of the last commit: README, ./dev run, quick start; timed
#   soak.sh tsan NAME           the integration tests of everything with threads under the thread sanitizer, or those of
#                               the folders with NAME in their name
set -eu
cd "$(dirname "$0")/.."

simulate() { # MINUTES
    end=$(($(date +%s) + $1 * 60))
    first=$(($(date +%s) * 1000))
    start=$first
    step=500
    failed=0
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT

    while [ "$(date +%s)" -lt "$end" ]; do
        last=$((first + step - 1))
        if ! build/release/bin/sim --seeds "$first..$last" >"$log" 2>&1; then
            failed=$((failed + 1))
            cat "$log"
        fi
        echo "soak: seeds $first..$last done, $failed blocks of seeds with failures"
        first=$((last + 1))
    done
    echo "soak: $((first - start)) seeds, from $start"
    [ "$failed" -eq 0 ]
}

crash() { # ROUNDS NAME
    start=$(date +%s)
    status=0
    CAPSTAN_CRASH_ROUNDS=$1 build/asan/bin/integration-coordinator "$2" || status=$?
    if [ -z "$2" ]; then
        CAPSTAN_TEST_CRASHES=$((($1 + 9) / 10)) build/asan/bin/integration-postgres no_acknowledged_batch || status=$?
    fi
    echo "soak: $1 rounds in $(($(date +%s) - start)) s"
    return $status
}

chaos() { # MINUTES
    status=0
    tools/chaos.sh --minutes "$1" || status=$?
    tools/chaos.sh --binary build/bugs/bin/capstan --bugs || status=$?
    return $status
}

failover() { # ROUNDS
    tools/npm-install.sh examples/javascript
    node=node
    [ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
    "$node" bench/failover.js --rounds "$1"
}

sql() { # QUERIES
    status=0
    seed=$(date +%s)
    CAPSTAN_TEST_ALL=1 CAPSTAN_TEST_RANDOM=$1 CAPSTAN_TEST_SEED=$seed build/release/bin/integration-query || status=$?
    CAPSTAN_TEST_ALL=1 CAPSTAN_TEST_RANDOM=$((($1 + 9) / 10)) CAPSTAN_TEST_SEED=$seed build/release/bin/integration-sql ||
        status=$?
    tools/e2e.sh --rounds 1 'over all features of the dialect|finish by spilling' || status=$?
    return $status
}

upgrade() { # NAME
    tools/npm-install.sh examples/javascript
    tools/npm-install.sh tests/e2e
    tests/upgrade/build.sh
    node=node
    [ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
    "$node" --test ${1:+--test-name-pattern="$1"} --test-reporter=./tests/e2e/reporter.js tests/upgrade/upgrade.test.js
}

bars() {
    status=0
    export CAPSTAN_BARS=1
    tools/browser.sh 'dashboard: (small|never stuck)' || status=$?
    tools/e2e.sh 'an idle worker costs' || status=$?
    ./dev bench jobs --check || status=$?
    data=build/bars
    bench="build/release/bin/capstan bench"
    $bench sql --data "$data" --scale 1 --check --verbose || status=$?
    $bench sql --data "$data" --scale 1 --gain --check --verbose || status=$?
    $bench sql --data "$data" --single --check --verbose || status=$?
    $bench sql --data "$data" --scale 10 --check --verbose || status=$?
    $bench shuffle --check || status=$?
    return $status
}

tsan() { # NAME
    failed=
    for folder in coordinator exec http rpc service worker; do
        case $folder in *"$1"*) ;; *) continue ;; esac
        make --no-print-directory -s -j"$(getconf _NPROCESSORS_ONLN)" V=tsan "build/tsan/bin/integration-$folder"
        # The options are those of tools/test.sh, which has the reasons.
        options=
        [ $folder != coordinator ] || options=halt_on_error=1 # nobody waits for the end of a process that is killed
        [ $folder != exec ] || options=detect_deadlocks=0:ignore_noninstrumented_modules=1
        TSAN_OPTIONS=$options CAPSTAN_CRASH_ROUNDS=5 "build/tsan/bin/integration-$folder" || failed="$failed $folder"
    done
    [ -z "$failed" ] || echo "soak: with findings or failures:$failed"
    [ -z "$failed" ]
}

mode=$1
shift
case $mode in
sim) simulate "$1" ;;
crash) crash "$1" "$2" ;;
chaos) chaos "$1" ;;
failover) failover "$1" ;;
sql) sql "$1" ;;
upgrade) upgrade "$1" ;;
tsan) tsan "$1" ;;
bars) bars ;;
container) tools/container.sh ;;
newcomer) tools/docs.sh --newcomer ;;
e2e) tools/e2e.sh --rounds "$1" ${2:+"$2"} ;;
*)
    echo "soak.sh: unknown mode '$mode'" >&2
    exit 2
    ;;
esac
