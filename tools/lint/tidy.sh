#!/bin/sh
# tidy.sh CACHE CONFIG FLAGS FILE - runs clang-tidy on one source, unless the same text (with all that it includes), flags
# and configuration passed before. Prints FILE:LINE: MESSAGE for each finding. The path-sensitive analysis is for src/
# only: it cannot know that a failed CHECK ends a test. With CAPSTAN_LINT=quick it is left out there, too: it takes longer
# than all the rest together, and ./dev test has a time to keep.
set -eu
cache=$1
config=$2
flags=$3
file=$4
checks=
case $file in src/*) ;; *) checks="--checks=-clang-analyzer-*" ;; esac
[ "${CAPSTAN_LINT:-}" != quick ] || checks="--checks=-clang-analyzer-*"

# shellcheck disable=SC2086 # flags are words
key=$({
    clang-tidy --version
    cat "$config"
    echo "$flags $checks $file"
    gcc $flags -E -C "$file" 2>/dev/null || echo 'does not preprocess'
} | sha256sum | cut -d' ' -f1)
[ ! -e "$cache/$key" ] || exit 0

# shellcheck disable=SC2086
if findings=$(clang-tidy --quiet --config-file="$config" ${checks:+"$checks"} "$file" -- $flags 2>&1); then
    : >"$cache/$key"
else
    printf '%s\n' "$findings" | awk -v root="$PWD/" '
        / (error|warning): / {
            sub(/:[0-9]+: (error|warning): /, ": ")
            if (index($0, root) == 1) $0 = substr($0, length(root) + 1)
            print
            n++
        }
        END { exit n == 0 }' || printf '%s:1: %s\n' "$file" "$(printf '%s' "$findings" | head -n 1)"
fi
