# includes.awk - checks who includes what under src/ and include/. Reads edges.txt, third-party.txt, then the output of
# code.awk (named code). Prints FILE:LINE: MESSAGE for every violation.

function refuse(message) { print file ":" line ": " message }

# Sets file, line and code from one line of code.awk's output.
function take(text,    rest) {
    file = text; sub(/:.*/, "", file)
    rest = substr(text, length(file) + 2)
    line = rest; sub(/:.*/, "", line)
    code = substr(rest, length(line) + 2)
}

function check_own(path,    part, target) {
    if (split(path, part, "/") < 2) { refuse("write the folder in #include \"" path "\""); return }
    target = part[1]
    if (target == folder || target == "capstan") return
    if (!(target in known)) { refuse("there is no folder src/" target " in tools/lint/edges.txt"); return }
    if (!((folder, target) in allowed)) refuse("src/" folder " may not include src/" target)
    else if (path ~ /_internal\.h$/) refuse(path " is internal to src/" target)
}

function check_foreign(path,    row, owner) {
    owner = ""
    if (path in home) owner = home[path]
    else { row = path; sub(/\/.*/, "/", row); if (row in home) owner = home[row] }
    if (owner == "") refuse("<" path "> has no row in tools/lint/third-party.txt")
    else if (owner != "*" && owner != folder) refuse("<" path "> belongs to src/" owner " only")
}

FILENAME ~ /edges\.txt$/ {
    if (!NF || /^#/) next
    known[$1] = 1
    for (i = 2; i <= NF; i++) allowed[$1, $i] = 1
    next
}
FILENAME ~ /third-party\.txt$/ { if (NF && !/^#/) home[$1] = $2; next }

{
    take($0)
    if (file !~ /^(src|include)\// || code !~ /^[ \t]*#[ \t]*include/) next
    folder = file; sub(/^src\//, "", folder); sub(/\/.*/, "", folder)
    path = code
    if (what == "own" && match(path, /"[^"]*"/)) check_own(substr(path, RSTART + 1, RLENGTH - 2))
    if (what == "foreign" && match(path, /<[^>]*>/)) check_foreign(substr(path, RSTART + 1, RLENGTH - 2))
}
