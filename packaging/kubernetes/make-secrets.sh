#!/bin/sh
# make-secrets.sh FOLDER STORE-URL - makes the authority, the certificates and the tokens of a cluster in FOLDER, and
# prints the Secrets that the manifests use, for `kubectl apply -f -`. What is in FOLDER already is used again: to renew
# a certificate, remove node.pem or worker.pem; pods take up the new one by themselves.
#
# Coordinators have node.pem, workers worker.pem. Commands of tasks can read the key of their worker, so it is good for no
# name of a coordinator.
#
# FOLDER keeps the key of the authority and the administrators' token. It belongs to you, not to the cluster.
set -eu
[ $# -eq 2 ] || {
    echo 'usage: make-secrets.sh FOLDER postgres://USER:PASSWORD@HOST/DATABASE' >&2
    exit 2
}
umask 077
mkdir -p "$1"
cd "$1"
namespace=capstan

quiet() { # COMMAND...: openssl tells of its progress
    "$@" 2>openssl.log || {
        cat openssl.log >&2
        exit 1
    }
    rm -f openssl.log
}

[ -s ca.pem ] || quiet openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \
    -subj /CN=capstan -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign \
    -keyout ca.key -out ca.pem

certificate() { # FILE NAME OTHER-NAMES: makes FILE.pem and FILE.key, unless there is a FILE.pem
    [ ! -s "$1.pem" ] || return 0
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$3" >"$1.ext"
    quiet openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
    quiet openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile "$1.ext" \
        -out "$1.pem"
    rm -f "$1.csr" "$1.ext"
}

names="DNS:*.capstan-coordinators.$namespace.svc,DNS:*.capstan-coordinators.$namespace.svc.cluster.local"
names="$names,DNS:capstan,DNS:capstan.$namespace,DNS:capstan.$namespace.svc,DNS:localhost"
certificate node "capstan.$namespace.svc" "$names"
certificate worker "worker.$namespace.pod" "DNS:*.$namespace.pod"

[ -s tokens ] || {
    for who in worker:worker client:submit monitoring:read admin:admin; do
        openssl rand -hex 32 >"${who%:*}.token"
        printf '%s %s %s\n' "$(tr -d '\n' <"${who%:*}.token" | sha256sum | cut -d' ' -f1)" "${who%:*}" "${who#*:}"
    done >tokens.new
    mv tokens.new tokens
}

secret() { # NAME FILE...
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: %s\ntype: Opaque\ndata:\n' \
        "$1" "$namespace"
    shift
    for file in "$@"; do
        printf '  %s: %s\n' "$file" "$(base64 <"$file" | tr -d '\n')"
    done
}

secret capstan-tls ca.pem node.pem node.key
secret capstan-worker-tls ca.pem worker.pem worker.key
secret capstan-tokens tokens worker.token
printf %s "$2" >url
secret capstan-store url
rm -f url
