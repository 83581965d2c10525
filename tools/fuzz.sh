#!/bin/sh
# fuzz.sh [--resume] MINUTES [NAME] - libFuzzer on the targets of tests/fuzz. Run through ./dev soak fuzz.
#
# Each target, or those with NAME in their name, is searched for MINUTES (a fraction is fine), as many at a time as there are
# cores, with the address and undefined-behaviour sanitizers. A search begins with the corpus and with what earlier ones have
# found: build/fuzz/found/TARGET. With --resume, targets that were searched for so long, and have not been built anew since,
# are left out: so a soak that was broken off goes on where it was.
#
# A line per target says how many inputs were tried, how many in a second, what they reached (edges of the code; features:
# edges with how often they were taken) and what was found. An input that fails stays as build/fuzz/found/TARGET-*, with the log
# beside it, and the exit code is 1.
set -eu
cd "$(dirname "$0")/.."

found=build/fuzz/found

die() {
    echo "fuzz.sh: $1" >&2
    echo "  hint: $2" >&2
    exit 2
}

stat_of() { # NAME LOG: a number of libFuzzer's final statistics
    sed -n "s/^stat::$1: *//p" "$2" | tail -n 1
}

reached() { # WORD LOG: the last number that a line of progress has after WORD
    sed -n "s/.* $1: \([0-9]*\).*/\1/p" "$2" | tail -n 1
}

words_of() { # TARGET: the dictionary for it
    case $1 in
    *json | *plan | fill_inputs | http_request) cat tests/fuzz/json.dict ;;
    esac
    [ ! -f "tests/fuzz/$1.dict" ] || cat "tests/fuzz/$1.dict"
}

search() { # SECONDS TARGET
    seconds=$1
    target=$2
    log=$found/$target.log
    mkdir -p "$found/$target"
    words_of "$target" >"$found/$target.dict"
    dictionary=
    [ ! -s "$found/$target.dict" ] || dictionary=-dict=$found/$target.dict # libFuzzer refuses an empty one
    rm -f "$found/$target.done"
    status=0
    # More memory than that for one input is a finding, too; so are ten seconds.
    # shellcheck disable=SC2086 # one word or none
    "build/fuzz/bin/fuzz-$target" -max_total_time="$seconds" -max_len=16384 -rss_limit_mb=2048 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$found/$target-" $dictionary \
        "$found/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
    runs=$(stat_of number_of_executed_units "$log")
    figures="${runs:-0} inputs in $seconds s, $(stat_of average_exec_per_sec "$log")/s, $(reached cov "$log") edges, $(reached ft "$log") features"
    if [ "$status" -eq 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "$seconds" >"$found/$target.done"
        echo "ok   $target: $figures, nothing found"
        return 0
    fi
    tail -n 40 "$log"
    echo "FAIL $target: $figures; the input is $found/$target-*, the log $log"
    return 1
}

is_done() { # SECONDS TARGET
    mark=$found/$2.done
    [ -f "$mark" ] && [ "$(cat "$mark")" -ge "$1" ] && [ -n "$(find "$mark" -newer "build/fuzz/bin/fuzz-$2")" ]
}

# One of those that run at the same time.
if [ "${1:-}" = --search ]; then
    search "$2" "$3"
    exit
fi
resume=
if [ "${1:-}" = --resume ]; then
    resume=yes
    shift
fi
seconds=$(echo "$1" | awk '/^[0-9]+([.][0-9]+)?$/ { print int($1 * 60 + 0.5) }')
name=${2:-}
[ "${seconds:-0}" -gt 0 ] || die "'$1' is not a number of minutes" './dev soak --help'
command -v clang >/dev/null || die 'this needs clang, with its libFuzzer' 'apt-get install clang'

targets=
for source in tests/fuzz/*.c; do
    target=$(basename "$source" .c)
    case $target in
    replay) ;;
    *"$name"*) targets="$targets $target" ;;
    esac
done
[ -n "$targets" ] || die "no fuzz target has '$name' in its name" 'each tests/fuzz/NAME.c is one'
cores=$(getconf _NPROCESSORS_ONLN)
set --
for target in $targets; do set -- "$@" "build/fuzz/bin/fuzz-$target"; done
make --no-print-directory -s -j"$cores" V=fuzz "$@"
mkdir -p "$found"
wanted=
for target in $targets; do
    if [ -n "$resume" ] && is_done "$seconds" "$target"; then
        echo "ok   $target: searched before"
    else
        wanted="$wanted $target"
    fi
done
[ -n "$wanted" ] || exit 0
# shellcheck disable=SC2086
printf '%s\n' $wanted | xargs -P "$cores" -I '{}' "$0" --search "$seconds" '{}' || exit 1
