#!/bin/sh
# make-secrets.sh FOLDER STORE-URL - makes the authority, the certificate and the tokens of a cluster in FOLDER, and
# prints the Secrets that the manifests use, for `kubectl apply -f -`. What is in FOLDER already is used again: to renew
# the certificate, remove node.pem; pods take up the new one by themselves.
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
[ -s node.pem ] || {
    names="DNS:*.capstan-coordinators.$namespace.svc,DNS:*.capstan-coordinators.$namespace.svc.cluster.local"
    names="$names,DNS:*.$namespace.pod,DNS:capstan,DNS:capstan.$namespace,DNS:capstan.$namespace.svc,DNS:localhost"
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" >node.ext
    quiet openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=capstan.$namespace.svc" \
        -keyout node.key -out node.csr
    quiet openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile node.ext \
        -out node.pem
    rm -f node.csr node.ext
}

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
secret capstan-tokens tokens worker.token
printf %s "$2" >url
secret capstan-store url
rm -f url
