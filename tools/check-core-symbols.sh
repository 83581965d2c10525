#!/bin/sh
# check-core-symbols.sh FOLDER - the core is pure. Looks at FOLDER/lib/libcore.a and libbase.a:
#   - the core's objects need nothing but memory and string functions, the failed-check handler, src/base and each other
#   - the core's objects hold no writable data, so there is no global state
set -eu
core=$1/lib/libcore.a
base=$1/lib/libbase.a
passed=0
failed=0

verdict() { # WHAT FOUND
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        echo "ok: $1"
    else
        failed=$((failed + 1))
        echo "not ok: $1"
        printf '%s\n' "$2"
    fi
}

for library in "$core" "$base"; do
    if [ ! -f "$library" ]; then
        echo "not ok: $library was not built"
        echo '0 passed, 1 failed'
        exit 1
    fi
done

# Two names are the compiler's own: __stack_chk_fail (the stack protector) and _GLOBAL_OFFSET_TABLE_ (PIC).
foreign=$({
    nm --defined-only "$base" "$core" | awk 'NF == 3 { print "have", $3 }'
    nm -A -u "$core" | awk '{ n = split($1, part, ":"); print "need", part[n - 1], $NF }'
} | awk '
    $1 == "have" { have[$2] = 1; next }
    $3 in have { next }
    $3 ~ /^(mem(cpy|move|set|cmp|chr)|str(len|nlen|cmp|ncmp|chr|rchr)|check_failed)$/ { next }
    $3 ~ /^(__stack_chk_fail|_GLOBAL_OFFSET_TABLE_)$/ { next }
    { print "  " $2 " needs " $3 }' | LC_ALL=C sort -u)

writable=$(size -A "$core" | awk '
    /\(ex / { object = $1 }
    $1 ~ /^\.(data|bss|tdata|tbss|data\.rel|data\.rel\.local)(\.[A-Za-z_].*)?$/ && $1 !~ /\.ro(\.|$)/ && $2 > 0 {
        print "  " object " has " $2 " bytes of " $1
    }')

objects=$(ar t "$core" | grep -c .)
verdict "$objects objects of the core need only memory and string functions, checks and src/base" "$foreign"
verdict "$objects objects of the core hold no writable data" "$writable"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
