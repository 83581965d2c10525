#!/bin/sh
# sources.sh ROOT [SUFFIX] - lists the C sources and headers under ROOT, one a line; with a SUFFIX (c or h) only those.
set -eu
cd "$1"
for folder in include src tests bench; do
    [ ! -d "$folder" ] || find "$folder" -type f -name "*.${2:-[ch]}"
done | LC_ALL=C sort
