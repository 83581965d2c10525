#!/bin/sh
# build-node-client.sh - makes clients/node/dist if it is not there or older than what it is made of.
#
# Several suites may ask at the same time: one builds, the others wait.
set -eu
cd "$(dirname "$0")/.."

node=node
[ ! -x .cache/node/bin/node ] || node=$PWD/.cache/node/bin/node
tools/npm-install.sh clients/node
exec 9<clients/node/tsconfig.json
flock 9
made=clients/node/dist/capstan.proto # the last that is made
[ -f "$made" ] && [ -z "$(find clients/node/src clients/node/build.js clients/node/tsconfig.json clients/node/package.json \
    proto/capstan.proto -newer "$made")" ] && exit 0
"$node" clients/node/build.js
touch "$made"
