#!/bin/sh
# selftest.sh - a checker must be able to fail. Makes a small clean tree, sees every check pass on it, then breaks one
# rule at a time and sees the check of that rule fail with the right file, line and message.
set -eu
cd "$(dirname "$0")/../.."
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
passed=0
failed=0

clean_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/src/base" "$tree/src/core" "$tree/src/duck" "$tree/tests/unit"
    for folder in src/base src/core src/duck tests/unit; do
        echo 'What this folder is for.' >"$tree/$folder/README.md"
    done
    cat >"$tree/src/base/sum.h" <<'C'
#ifndef SUM_H
#define SUM_H

#include <stddef.h>

/* A total of `n` numbers; strcpy( in a comment, and "malloc(" in a literal, are no calls. */
long sum(const long *numbers, size_t n);

#endif
C
    cat >"$tree/src/base/sum.c" <<'C'
#include "base/sum.h"

static const char *const help = "strcpy(a, b) // free(c)";

long sum(const long *numbers, size_t n)
{
    long total = help[0] == '"';
    for (size_t i = 0; i < n; i++) {
        total += numbers[i];
    }
    return total;
}
C
    cat >"$tree/src/core/step.h" <<'C'
#ifndef STEP_H
#define STEP_H

long step(long state);

#endif
C
    cat >"$tree/src/core/step.c" <<'C'
#include "core/step.h"

#include "base/sum.h"

long step(long state)
{
    return sum(&state, 1);
}
C
}

ok() { # WHAT
    passed=$((passed + 1))
    echo "ok: $1"
}

not_ok() { # WHAT OUTPUT
    failed=$((failed + 1))
    echo "not ok: $1; the linter said:"
    printf '%s\n' "$2" | sed 's/^/    /'
}

# Runs one check on the broken tree, which must fail and print a line that starts with EXPECTED; then mends the tree.
refuses() { # CHECK EXPECTED
    if output=$(tools/lint/lint.sh "$tree" "$1" 2>&1); then
        not_ok "$1 accepts a violation; expected $2" "$output"
    elif printf '%s\n' "$output" | grep -qF "$2"; then
        ok "$1 refuses: $2"
    else
        not_ok "$1 fails without saying: $2" "$output"
    fi
    clean_tree
}

core_with() { # CODE: a core source with one more include or function body line
    {
        echo '#include "core/step.h"'
        echo
        echo "$1"
    } >"$tree/src/core/step.c"
}

clean_tree
if output=$(tools/lint/lint.sh "$tree" 2>&1); then
    ok 'a clean tree passes'
else
    not_ok 'a clean tree is refused' "$output"
fi

echo 'int  crooked;' >>"$tree/src/base/sum.c"
refuses format 'src/base/sum.c:13: not formatted'

{
    echo 'long lengthy(long x);'
    echo 'long lengthy(long x)'
    echo '{'
    i=0
    while [ $i -lt 72 ]; do
        echo '    x = x * 3 + 1;'
        i=$((i + 1))
    done
    echo '    return x;'
    echo '}'
} >"$tree/src/base/lengthy.c"
refuses tidy "src/base/lengthy.c:2: function 'lengthy' exceeds recommended size"

printf '#include <string.h>\n\nint same(const char *a, const char *b);\nint same(const char *a, const char *b)\n{\n    return strlen(a) == strlen(a) && b;\n}\n' >"$tree/src/base/same.c"
refuses tidy 'src/base/same.c:6: both sides of operator are equivalent'

echo 'size_t alone(void);' >"$tree/src/base/alone.h"
refuses headers 'src/base/alone.h:1: does not stand alone'

printf '#include "core/step.h"\n' >"$tree/src/base/up.c"
refuses direction 'src/base/up.c:1: src/base may not include src/core'

printf '#include "step.h"\n' >"$tree/src/core/bare.c"
refuses direction 'src/core/bare.c:1: write the folder in #include "step.h"'

printf '#include "nowhere/step.h"\n' >"$tree/src/core/lost.c"
refuses direction 'src/core/lost.c:1: there is no folder src/nowhere'

echo 'int secret;' >"$tree/src/base/sum_internal.h"
printf '#include "base/sum_internal.h"\n' >"$tree/src/core/nosy.c"
refuses direction 'src/core/nosy.c:1: base/sum_internal.h is internal to src/base'

printf '\n#include <duckdb.h>\n' >"$tree/src/core/sql.c"
refuses third-party 'src/core/sql.c:2: <duckdb.h> belongs to src/duck only'

printf '#include <grpc/grpc.h>\n' >"$tree/src/duck/call.c"
refuses third-party 'src/duck/call.c:1: <grpc/grpc.h> belongs to src/rpc only'

printf '#include <novelty.h>\n' >"$tree/src/duck/new.c"
refuses third-party 'src/duck/new.c:1: <novelty.h> has no row'

# The same code where it is allowed must pass: else the check above would refuse anything.
printf '#include <duckdb.h>\n' >"$tree/src/duck/sql.c"
if output=$(tools/lint/lint.sh "$tree" third-party 2>&1); then
    ok 'third-party accepts a header in its own folder'
else
    not_ok 'third-party refuses a header in its own folder' "$output"
fi
clean_tree

for call in strcpy strcat sprintf vsprintf gets strtok atoi atol system popen alloca rand srand malloc free; do
    printf 'void f(void)\n{\n    %s(0);\n}\n' "$call" >"$tree/src/base/call.c"
    refuses banned "src/base/call.c:3: $call is banned here"
done

for call in time clock_gettime getenv printf fprintf snprintf abort; do
    core_with "long f(void) { return $call (0); }"
    refuses banned "src/core/step.c:3: $call is banned here: the core is pure"
done

for header in time.h pthread.h unistd.h stdio.h stdlib.h poll.h signal.h; do
    core_with "#include <$header>"
    refuses banned "src/core/step.c:3: <$header> is banned here: the core is pure"
done
core_with '#include <sys/time.h>'
refuses banned 'src/core/step.c:3: <sys/> is banned here: the core is pure'

printf 'void f(void *p)\n{\n    free(p);\n}\n' >"$tree/src/base/mem.c"
if output=$(tools/lint/lint.sh "$tree" banned 2>&1); then
    ok 'banned lets src/base/mem.c use the heap'
else
    not_ok 'banned refuses the heap to src/base/mem.c' "$output"
fi
clean_tree

for call in memcmp strcmp strncmp; do
    mkdir -p "$tree/src/worker"
    printf 'int f(void)\n{\n    return %s(token, own_token, 4);\n}\n' "$call" >"$tree/src/worker/serve.c"
    refuses secrets 'src/worker/serve.c:3: compares a secret'
done

mkdir -p "$tree/src/base" "$tree/src/coordinator"
printf 'int sha256_equal(void)\n{\n    return memcmp(a, b, 32) == 0;\n}\n' >"$tree/src/base/sha256.c"
refuses secrets 'src/base/sha256.c:3: stops at the first difference'
for exit in 'return i;' 'break;'; do
    mkdir -p "$tree/src/coordinator"
    printf 'static unsigned find(void)\n{\n    for (;;) {\n        if (is_it) {\n            %s\n        }\n    }\n    return 0;\n}\n' \
        "$exit" >"$tree/src/coordinator/auth.c"
    refuses secrets 'src/coordinator/auth.c:5: stops at the token that was sent'
done

for mark in TODO_ FIXME_ XXX_ HACK_; do
    mark=${mark%_}
    echo "/* $mark: later */" >>"$tree/src/base/sum.c"
    refuses marks 'src/base/sum.c:13: a mark for later'
done

empty=
echo "see /hom${empty}e/someone/capstan" >>"$tree/src/base/README.md"
refuses paths 'src/base/README.md:2: an absolute path of one machine'

rm "$tree/src/duck/README.md"
refuses readmes 'src/duck/README.md:1: missing'

rm "$tree/tests/unit/README.md"
refuses readmes 'tests/unit/README.md:1: missing'

mkdir -p "$tree/docs"
printf '## 12. Traps\n\n1. (C) One.\n2. (Q) Another.\n\n## 13. Rest\n\n3. (C) None.\n' >"$tree/docs/semantics.md"
echo 'TEST(trap_01_one_is_avoided)' >"$tree/tests/unit/traps_test.c"
refuses traps 'docs/semantics.md:4: trap 2 has no test; name one trap_02_'

# The check of the core's symbols works on archives, so it gets two that are built here.
archives_of() { # CORE-CODE
    mkdir -p "$tree/lib"
    echo 'long twice(long x) { return 2 * x; }' | gcc -O2 -x c -c - -o "$tree/base.o"
    echo "$1" | gcc -O2 -x c -c - -o "$tree/core.o"
    rm -f "$tree"/lib/*.a
    ar rcs "$tree/lib/libbase.a" "$tree/base.o"
    ar rcs "$tree/lib/libcore.a" "$tree/core.o"
}

symbols_refuse() { # WHAT EXPECTED CORE-CODE
    archives_of "$3"
    if output=$(tools/check-core-symbols.sh "$tree" 2>&1); then
        not_ok "core-symbols accepts $1" "$output"
    elif printf '%s\n' "$output" | grep -qF "$2"; then
        ok "core-symbols refuses $1"
    else
        not_ok "core-symbols fails without saying: $2" "$output"
    fi
}

archives_of 'long twice(long x); static long f(long x) { return twice(x) + 1; }
             static long (*const table[])(long) = {twice, f};
             void *memcpy(void *, const void *, unsigned long);
             long step(long x, int i, char *to, char *from) { memcpy(to, from, (unsigned long)x); return table[i](x); }'
if output=$(tools/check-core-symbols.sh "$tree" 2>&1); then
    ok 'core-symbols accepts a pure core'
else
    not_ok 'core-symbols refuses a pure core' "$output"
fi
symbols_refuse 'a clock' 'core.o needs clock' 'long clock(void); long step(void) { return clock(); }'
symbols_refuse 'a counter' 'core.o has 8 bytes of .bss' 'static long n; long step(void) { return ++n; }'
symbols_refuse 'a setting' 'bytes of .data' 'long setting = 3; long step(void) { return setting; }'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
