# code.awk - prints FILE:LINE:CODE for C sources, with comments removed and the content of literals blanked, so that
# other checks see code only. Preprocessor includes keep their path.

FNR == 1 { in_comment = 0 }

!in_comment && !/["'\/]/ { print FILENAME ":" FNR ":" $0; next }

!in_comment && /^[ \t]*#[ \t]*include/ { sub(/[ \t]*\/[*\/].*/, ""); print FILENAME ":" FNR ":" $0; next }

{
    out = ""
    quote = ""
    n = length($0)
    for (i = 1; i <= n; i++) {
        c = substr($0, i, 1)
        pair = substr($0, i, 2)
        if (in_comment) {
            if (pair == "*/") { in_comment = 0; i++; out = out " " }
        } else if (quote != "") {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (pair == "/*") { in_comment = 1; i++ }
        else if (pair == "//") break
        else { if (c == "\"" || c == "'") quote = c; out = out c }
    }
    print FILENAME ":" FNR ":" out
}
