#!/bin/sh
# e2e.sh [OPTION]... [NAME] - the end-to-end tests: real processes, real sockets, real databases. Run through ./dev test.
#
#   --binary FILE    the capstan to test, else build/release/bin/capstan
#   --rounds N       chaos strikes N times in each test, and long tests are run, too (./dev soak); else a few times
#   --seed N         what chaos chooses with; a test that fails prints the one that it had
#   NAME             only tests with NAME in their name
#
# Needs the packages of examples/javascript and tests/e2e, which are installed once, as pinned in their package-lock.json.
# The last line of output is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

binary=build/release/bin/capstan
name=
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$2 && shift ;;
    --rounds) export CAPSTAN_E2E_ROUNDS="$2" && shift ;;
    --seed) export CAPSTAN_E2E_SEED="$2" && shift ;;
    -*)
        echo "e2e.sh: unknown option '$1'" >&2
        exit 2
        ;;
    *) name=$1 ;;
    esac
    shift
done
[ -x "$binary" ] || {
    echo "e2e.sh: there is no $binary" >&2
    echo '  hint: ./dev build' >&2
    exit 1
}
export CAPSTAN_BIN="$binary"

# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node

tools/npm-install.sh examples/javascript
tools/npm-install.sh tests/e2e

# 5,000 connections need as many descriptors, here and in the coordinator.
# shellcheck disable=SC3045 # every sh that we meet can do it, and one that cannot goes on
ulimit -n "$(ulimit -Hn)" 2>/dev/null || :

# Most tests wait for leases and back-offs rather than compute, so several files run at a time. What measures runs alone.
scratch=$(mktemp -d)
runner=
trap 'rm -rf "$scratch"' EXIT
# The runner takes its processes with it.
trap '[ -z "$runner" ] || { kill "$runner" && wait "$runner"; }; exit 130' INT TERM
mkfifo "$scratch/output"
status=0
run() { # CONCURRENCY FILE...
    concurrency=$1
    shift
    tee "$scratch/log" <"$scratch/output" &
    tee=$!
    "$node" --test --test-concurrency="$concurrency" ${name:+--test-name-pattern="$name"} \
        --test-reporter=./tests/e2e/reporter.js --test-reporter-destination=stdout "$@" >"$scratch/output" &
    runner=$!
    wait "$runner" || status=1
    runner=
    wait "$tee"
    counts=$(tail -n 1 "$scratch/log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    [ -n "$counts" ] || {
        echo 'e2e.sh: the test runner died' >&2
        exit 1
    }
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
}
passed=0
failed=0
# shellcheck disable=SC2046 # names of our own files are words
run 3 $(find tests/e2e -maxdepth 1 -name '*.test.js' ! -name 'load*.test.js' | sort)
# shellcheck disable=SC2046
run 1 $(find tests/e2e -maxdepth 1 -name 'load*.test.js' | sort)
echo "$passed passed, $failed failed"
[ $status -eq 0 ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
