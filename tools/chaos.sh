#!/bin/sh
# chaos.sh [OPTION]... - a whole cluster under random faults, and a check of its history. Run through ./dev chaos.
#
#   --binary FILE     the capstan to torment, else build/release/bin/capstan
#   --unit            only the tests of the checker and of the network, without any cluster
#   anything else     is for tests/chaos/chaos.js; `./dev chaos --help` says what there is
#
# The last line of output is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

binary=build/release/bin/capstan
if [ "${1:-}" = --binary ]; then
    binary=$2
    shift 2
fi
# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
if [ "${1:-}" = --unit ]; then
    exec "$node" --test --test-reporter=./tests/e2e/reporter.js tests/chaos/*.test.js
fi
[ -x "$binary" ] || {
    echo "chaos.sh: there is no $binary" >&2
    echo '  hint: ./dev build' >&2
    exit 1
}
export CAPSTAN_BIN="$binary"
tools/npm-install.sh examples/javascript
tools/npm-install.sh tests/e2e
# The history of an hour takes room when it is checked.
exec "$node" --max-old-space-size=6144 tests/chaos/chaos.js "$@"
