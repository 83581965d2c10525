#!/bin/sh
# pb-names.sh h|c CAPSTAN.PB-C.H - short names for the messages that protoc-c generated.
#
# Capstan__V1__GetTaskRequest becomes struct pb_get_task_request and PB_GET_TASK_REQUEST. `h` writes pb.h, `c` writes
# pb.c, which has the descriptors in the order of the enum.
set -eu
sed -n 's/^struct  *Capstan__V1__\([A-Za-z0-9]*\)$/\1/p' "$2" | awk -v form="$1" '
    function snake(name,    out, i, c) {
        out = ""
        for (i = 1; i <= length(name); i++) {
            c = substr(name, i, 1)
            out = out (i > 1 && c ~ /[A-Z]/ ? "_" : "") tolower(c)
        }
        return out
    }
    { names[NR] = $1; short[NR] = snake($1) }
    END {
        if (form == "h") {
            print "/* Made by tools/pb-names.sh. */\n#ifndef CAPSTAN_PB_H\n#define CAPSTAN_PB_H\n"
            print "#include \"capstan.pb-c.h\"\n"
            for (i = 1; i <= NR; i++) print "#define pb_" short[i] " Capstan__V1__" names[i]
            print "\nenum pb_kind {"
            for (i = 1; i <= NR; i++) print "    PB_" toupper(short[i]) ","
            print "    PB_KIND_COUNT\n};\n"
            print "extern const ProtobufCMessageDescriptor *const pb_descriptors[PB_KIND_COUNT];\n\n#endif"
        } else {
            print "/* Made by tools/pb-names.sh. */\n#include \"pb.h\"\n"
            print "const ProtobufCMessageDescriptor *const pb_descriptors[PB_KIND_COUNT] = {"
            for (i = 1; i <= NR; i++) print "    &capstan__v1__" short[i] "__descriptor,"
            print "};"
        }
    }'
