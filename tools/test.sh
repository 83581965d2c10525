#!/bin/sh
# test.sh [--coverage] [NAME] - runs the test suites, or those whose name contains NAME. Run through ./dev test.
#
# Every suite is a command whose output ends with `N passed, N failed`. One that dies without that line, that leaves with
# an error although it counted none, or whose program did not build, counts as one failure. The last line of all output is
# the sum. tests/README.md says what each suite is for.
#
# Everything is built first, then four suites run at a time: most of them wait more than they work. What a suite prints is
# shown when it has ended. Those that only compute leave the processors to the others, which keep time.
set -eu
cd "$(dirname "$0")/.."

coverage=
filter=
for argument in "$@"; do
    case $argument in
    --coverage) coverage=yes ;;
    -*)
        echo "dev: test: unknown option '$argument'" >&2
        echo '  hint: ./dev help' >&2
        exit 2
        ;;
    *)
        if [ -n "$filter" ]; then
            echo "dev: test: one NAME only, got '$filter' and '$argument'" >&2
            exit 2
        fi
        filter=$argument
        ;;
    esac
done

tools/setup.sh

logs=build/test
suite_seconds_max=3600 # ends what hangs; a slow machine takes a while
lanes=4
failure_pattern='^\[  FAILED  \] [a-z]|^not ok|^(FAIL|failed|FAILED)[: ]|: ended with status|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:'
coverage_percent_min=90
rm -rf "$logs"
mkdir -p "$logs"
: >"$logs/table"
passed=0
failed=0
started_ms=$(($(date +%s%N) / 1000000))

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# What the shell's children have used of the processors between two outputs of `times`, in seconds.
processor_seconds() { # FILE-BEFORE FILE-AFTER
    cat "$1" "$2" | tr 'ms' '  ' | awk 'NR % 2 == 0 { s[NR] = $1 * 60 + $2 + $3 * 60 + $4 } END { print s[4] - s[2] }'
}

record() { # NAME PASSED FAILED MILLISECONDS PROCESSOR-SECONDS
    printf '%s %s %s %s %s\n' "$@" >>"$logs/table"
    passed=$((passed + $2))
    failed=$((failed + $3))
}

wanted() { # NAME
    case $1 in *"$filter"*) return 0 ;; esac
    return 1
}

run() { # NAME: runs the suite's command, then shows what it printed and keeps its counts
    name=$1
    log=$logs/$name.log
    start_ms=$(now_ms)
    status=0
    case $name in
    lint* | unit-* | fuzz-* | sim* | integration-query* | integration-sql | integration-duck) niceness=10 ;;
    *) niceness=0 ;;
    esac
    times >"$logs/$name.before"
    timeout --foreground "$suite_seconds_max" nice -n "$niceness" sh "$logs/$name.command" >"$log" 2>&1 </dev/null || status=$?
    times >"$logs/$name.after"
    took_ms=$(($(now_ms) - start_ms))
    counts=$(sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    suite_passed=${counts% *}
    suite_failed=${counts#* }
    if [ -z "$counts" ]; then
        echo "$name: ended with status $status and without a count" >>"$log"
        suite_passed=0
        suite_failed=1
    elif [ "$status" -ne 0 ] && [ "$suite_failed" -eq 0 ]; then
        echo "$name: ended with status $status" >>"$log"
        suite_failed=1
    fi
    printf '%s %s %s %s\n' "$suite_passed" "$suite_failed" "$took_ms" \
        "$(processor_seconds "$logs/$name.before" "$logs/$name.after")" >"$logs/$name.counts"
    (
        flock 9
        printf '\n== %s\n' "$name"
        cat "$log"
    ) 9>"$logs/output.lock"
}

# What went wrong, once more, at the end: the output of all suites is long.
show_failures() { # NAME
    if [ -s "$logs/$1.counts" ]; then
        read -r _ suite_failed _ <"$logs/$1.counts"
        [ "$suite_failed" -gt 0 ] || return 0
    fi
    echo "== failed in $1 (all of it: $logs/$1.log)"
    touch "$logs/$1.log"
    if ! grep -qE "$failure_pattern" "$logs/$1.log"; then
        tail -n 20 "$logs/$1.log"
    else
        grep -E -B 8 -A 12 "$failure_pattern" "$logs/$1.log" | head -n 80
    fi
    echo
}

queue=
add() { # NAME COMMAND...: the suite will be run
    name=$1
    shift
    {
        printf 'exec'
        for word in "$@"; do
            printf " '%s'" "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")"
        done
        echo
    } >"$logs/$name.command"
    queue="$queue $name"
}

lane() { # runs suites that nobody has taken, one after the other
    for name in $queue; do
        if mkdir "$logs/$name.taken" 2>/dev/null; then
            run "$name"
        fi
    done
}

# Of planted bugs, only those of the simulator are tried here, because the others take long (./dev soak chaos); but all of
# them must go on to compile.
with_bugs() {
    echo build/bugs/bin/sim
    grep -rl --include='*.c' PLANTED src | sed 's|^|build/bugs/obj/|; s|c$|o|'
}

built=' '
build() { # VARIANT: builds it once; the time shows in the table
    case $built in
    *" $1=ok "*) return 0 ;;
    *" $1=failed "*) return 1 ;;
    esac
    echo
    echo "== build/$1"
    start_ms=$(now_ms)
    outcome=ok
    target=all
    [ "$1" != bugs ] || target=$(with_bugs)
    times >"$logs/build.before"
    # shellcheck disable=SC2086 # one target or several
    make --no-print-directory -s -k -j"$(getconf _NPROCESSORS_ONLN)" V="$1" $target 2>&1 || outcome=failed
    times >"$logs/build.after"
    built="$built$1=$outcome "
    record "build/$1" 0 "$([ $outcome = ok ] && echo 0 || echo 1)" $(($(now_ms) - start_ms)) \
        "$(processor_seconds "$logs/build.before" "$logs/build.after")"
    [ $outcome = ok ]
}

suite() { # NAME COMMAND...
    wanted "$1" || return 0
    add "$@"
}

suite_of() { # VARIANTS NAME COMMAND...: a suite that needs builds; the failure of a build is counted with the build
    variants=$1
    shift
    wanted "$1" || return 0
    for variant in $variants; do
        build "$variant" || {
            echo "$1: left out, build/$variant failed"
            return 0
        }
    done
    add "$@"
}

there_are() { # FILE...: did the pattern match anything?
    [ -e "$1" ]
}

if [ -n "$coverage" ]; then
    suite_of coverage coverage tools/coverage.sh "$coverage_percent_min"
else
    # Long ones first, so that no lane ends with one.
    if there_are tests/e2e/*.test.js; then
        suite_of release e2e tools/e2e.sh
    fi
    if there_are tests/integration/coordinator/*.c; then
        suite_of asan integration-coordinator build/asan/bin/integration-coordinator
        suite_of tsan integration-coordinator-tsan env TSAN_OPTIONS=halt_on_error=1 CAPSTAN_CRASH_ROUNDS=3 \
            build/tsan/bin/integration-coordinator
    fi
    if there_are tests/browser/*.test.js; then
        suite_of release browser tools/browser.sh
    fi
    if there_are tests/integration/exec/*.c; then
        # detect_deadlocks=0: before a fork, DuckDB's allocator (jemalloc) takes all of its locks. The sanitizer's detector of
        # deadlocks has room for 64 that one thread holds, and aborts. Races are looked for as everywhere; the locks of
        # our own code are watched for deadlocks in the other suites. ignore_noninstrumented_modules=1 as everywhere:
        # tests/integration/rpc/sanitizers.c.
        suite_of tsan integration-exec-tsan env TSAN_OPTIONS=detect_deadlocks=0:ignore_noninstrumented_modules=1 \
            build/tsan/bin/integration-exec
    fi
    # The services take too long for this: ./dev soak tsan.
    for folder in rpc http worker; do
        there_are tests/integration/"$folder"/*.c || continue
        suite_of tsan "integration-$folder-tsan" "build/tsan/bin/integration-$folder"
    done
    if there_are tests/docs/run.js; then
        suite_of release docs tools/docs.sh
    fi
    if there_are tests/package/*.test.js; then
        suite_of release package tools/package-test.sh
    fi
    if there_are tests/chaos/*.js; then
        suite_of release chaos tools/chaos.sh --seed 1 --minutes 1
        suite chaos-check tools/chaos.sh --unit
    fi
    suite_of release clients-node tools/clients.sh node
    suite_of 'release asan' clients-c tools/clients.sh c
    suite lint env CAPSTAN_LINT=quick tools/lint/lint.sh .
    suite lint-selftest tests/lint/selftest.sh
    suite duckdb tools/check-duckdb.sh .cache/duckdb
    if there_are src/core/*.c; then
        suite_of release core-symbols tools/check-core-symbols.sh build/release
    fi
    for folder in tests/integration/*/; do
        folder=$(basename "$folder")
        there_are tests/integration/"$folder"/*.c || continue
        [ "$folder" != coordinator ] || continue # it is one of the long ones
        if [ "$folder" = query ]; then
            # Hundreds of queries, each run twice: DuckDB's time, which sanitizers of our code only stretch.
            suite_of release integration-query build/release/bin/integration-query
            suite_of asan integration-query-asan env CAPSTAN_TEST_RANDOM=20 build/asan/bin/integration-query random
            continue
        fi
        if [ "$folder" = sql ]; then # as above: the same code is in integration-exec, with sanitizers
            suite_of release integration-sql build/release/bin/integration-sql
            continue
        fi
        suite_of asan "integration-$folder" "build/asan/bin/integration-$folder"
    done
    for folder in tests/unit/*/; do
        folder=$(basename "$folder")
        there_are tests/unit/"$folder"/*.c || continue
        suite_of asan "unit-$folder" "build/asan/bin/unit-$folder"
        case $folder in
        core | wire | query | cli | client) ;; # no thread to race with
        exchange) suite_of tsan unit-exchange-tsan build/tsan/bin/unit-exchange many_write_read_spill_and_drop ;;
        *) suite_of tsan "unit-$folder-tsan" "build/tsan/bin/unit-$folder" ;;
        esac
    done
    # Every target; one without inputs fails, and so do inputs without a target.
    for target in $(for it in tests/fuzz/*.c tests/fuzz/corpus/*; do basename "$it" .c; done | sort -u); do
        [ "$target" != replay ] || continue
        suite_of asan "fuzz-$target" "build/asan/bin/fuzz-$target" "tests/fuzz/corpus/$target"
    done
    if there_are tests/sim/*.c; then
        suite_of release sim build/release/bin/sim --seeds 1..1000
        suite_of release sim-crashes build/release/bin/sim --seeds 1..3 --sweep 100
        suite_of release sim-failed-seeds tools/replay-failed-seeds.sh build/release/bin/sim tests/sim/failed-seeds.txt
        suite_of 'release asan' sim-replay tools/check-replay.sh build/release/bin/sim build/asan/bin/sim
        suite_of bugs sim-bugs build/bugs/bin/sim --selftest
    fi
fi

for _ in $(seq "$lanes"); do
    lane &
done
wait
for name in $queue; do
    if [ -s "$logs/$name.counts" ]; then
        read -r suite_passed suite_failed took_ms processor_s <"$logs/$name.counts"
        record "$name" "$suite_passed" "$suite_failed" "$took_ms" "$processor_s"
    else
        record "$name" 0 1 0 0
    fi
done

if [ ! -s "$logs/table" ]; then
    echo "dev: test: no suite has '$filter' in its name" >&2
    echo '0 passed, 0 failed'
    exit 1
fi

echo
awk '
    BEGIN { printf "%-28s %8s %8s %10s %10s\n", "suite", "passed", "failed", "seconds", "processor" }
    { printf "%-28s %8d %8d %10.1f %10.1f\n", $1, $2, $3, $4 / 1000, $5 }' "$logs/table"
printf '%-28s %8s %8s %10s\n' "all, $lanes at a time" '' '' "$((($(now_ms) - started_ms) / 1000))"
echo
for name in $queue; do
    show_failures "$name"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
