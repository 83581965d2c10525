#!/bin/sh
# reference.sh [PROGRAM] - writes docs/configuration.md anew: what `capstan help --markdown` prints. A test compares.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/release/bin/capstan}
env -i "$program" help --markdown >docs/configuration.md.new
mv docs/configuration.md.new docs/configuration.md
