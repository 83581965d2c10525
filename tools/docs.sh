#!/bin/sh
# docs.sh [NAME] - runs every command of the documentation, or of pages with NAME in their name. Run through ./dev test.
# docs.sh --newcomer - the way of a new user on a clean clone, up to the dashboard in a browser. Run through ./dev soak newcomer.
#
# Needs a release build, the packages of examples/javascript, which a page copies, and the client for Node.js. The last line of output is
# `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."

[ "${1:-}" = --newcomer ] || [ -x build/release/bin/capstan ] || {
    echo 'docs.sh: there is no build/release/bin/capstan' >&2
    echo '  hint: ./dev build' >&2
    exit 1
}

# The machine's own Node if it is new enough, else the one that setup.sh has fetched.
node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
PATH=$(dirname "$(command -v "$node")"):$PATH
export PATH

tools/npm-install.sh examples/javascript
tools/build-node-client.sh
if [ "${1:-}" = --newcomer ]; then
    tools/npm-install.sh tests/browser
    exec "$node" tests/docs/newcomer.js
fi
exec "$node" tests/docs/run.js "$@"
