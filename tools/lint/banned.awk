# banned.awk - finds calls and headers that tools/lint/banned.txt forbids. Reads banned.txt, then the output of code.awk.
# Prints FILE:LINE: MESSAGE for every violation.

FILENAME ~ /banned\.txt$/ {
    if (!NF || /^#/) next
    n++
    where[n] = $1; except[n] = $2; count[n] = split($3, list, ",")
    why[n] = $0
    sub(/^[^ ]+ +[^ ]+ +[^ ]+ +/, "", why[n])
    for (i = 1; i <= count[n]; i++) name[n, i] = list[i]
    next
}

function found(code, name,    rest, path) {
    if (name ~ /^</) {
        if (code !~ /^[ \t]*#[ \t]*include[ \t]*</) return 0
        path = code; sub(/^[^<]*</, "", path); sub(/>.*/, "", path)
        name = substr(name, 2, length(name) - 2)
        return path == name || (name ~ /\/$/ && index(path, name) == 1)
    }
    return index(code, name) && code ~ ("(^|[^A-Za-z0-9_.>])" name "[ \t]*\\(")
}

{
    file = $0; sub(/:.*/, "", file)
    rest = substr($0, length(file) + 2)
    line = rest; sub(/:.*/, "", line)
    code = substr(rest, length(line) + 2)
    for (r = 1; r <= n; r++) {
        if (index(file, where[r] "/") != 1 || file == except[r]) continue
        for (i = 1; i <= count[r]; i++)
            if (found(code, name[r, i])) print file ":" line ": " name[r, i] " is banned here: " why[r]
    }
}
