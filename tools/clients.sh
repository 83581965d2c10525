#!/bin/sh
# clients.sh node|c [NAME] - the tests of a client library against real processes. Run through ./dev test.
#
#   NAME    only tests with NAME in their name
#
# The last line of output is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

which=$1
name=${2:-}
export CAPSTAN_BIN="${CAPSTAN_BIN:-build/release/bin/capstan}"
[ -x "$CAPSTAN_BIN" ] || {
    echo "clients.sh: there is no $CAPSTAN_BIN" >&2
    echo '  hint: ./dev build' >&2
    exit 1
}
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
PATH=$(dirname "$(command -v "$node")"):$PATH
export PATH
tools/npm-install.sh examples/javascript
[ "$which" != node ] || tools/build-node-client.sh

exec "$node" --test --test-concurrency=2 ${name:+--test-name-pattern="$name"} \
    --test-reporter=./tests/e2e/reporter.js --test-reporter-destination=stdout clients/"$which"/test/*.test.js
