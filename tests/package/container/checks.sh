# checks.sh - what image.sh and systemd.sh share; they read it with `.`, and make $scratch before.
# shellcheck shell=sh disable=SC2154 # scratch

passed=0
failed=0
# In the background, since a shell does not end at errors in what an `if` looks at.
check() { # SENTENCE COMMAND...
    sentence=$1
    shift
    (set -e && "$@") >"$scratch/check.log" 2>&1 &
    if wait $!; then
        passed=$((passed + 1))
        echo "ok: $sentence"
    else
        failed=$((failed + 1))
        echo "not ok: $sentence"
        tail -n 30 "$scratch/check.log" | sed 's/^/    /'
    fi
}

ends() { # prints the counts, and fails if something has failed
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

is() { # WANTED GOT
    [ "$1" = "$2" ] || {
        printf 'wanted: %s\ngot:    %s\n' "$1" "$2"
        return 1
    }
}

has() { # WANTED TEXT: a line of TEXT is WANTED, but for blanks before and after
    printf '%s\n' "$2" | sed 's/^ *//; s/ *$//' | grep -qxF -e "$1" || is "$1" "$2"
}

until_true() { # SECONDS COMMAND...
    end=$(($(date +%s) + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$end" ] || {
            echo "not within the time: $*"
            return 1
        }
        sleep 0.2
    done
}

block() { # FILE LANGUAGE WORDS: the block of LANGUAGE in a page of the documentation that has WORDS in it
    awk -v language="$2" -v words="$3" '{ line = $0; sub(/^ +/, "", line) }
        line == "```" language { inside = 1; text = ""; next }
        line == "```" { if (inside && index(text, words)) printf "%s", text; inside = 0 }
        inside { text = text line "\n" }' "$1"
}
