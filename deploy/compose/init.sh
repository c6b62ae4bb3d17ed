#!/bin/sh
# Creates the files that the services of compose.yaml share, each one once: secrets, and certificates of
# its own authority, unless some are given.
#
#   init.sh DIRECTORY [GIVEN]
#
# GIVEN may contain engine.pem and engine.key, or platform.pem and platform.key; they are copied
# at each start.
set -eu
umask 077
directory=$1
given=${2:-/given}
engine=${ENGINE_HOST:-engine.localhost}
platform=${PLATFORM_HOST:-platform.localhost}
mkdir -p "$directory"
cd "$directory"

for secret in engine.secret relay.secret metrics-token; do
    [ -s "$secret" ] || openssl rand -hex 32 >"$secret"
done

if [ ! -s ca.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=svc, for this machine" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout ca.key -out ca.pem 2>/dev/null
fi

# certificate NAME SUBJECT-ALTERNATIVE-NAMES
certificate() {
    if [ -s "$given/$1.pem" ] && [ -s "$given/$1.key" ]; then
        cat "$given/$1.pem" >"$1.pem"
        cat "$given/$1.key" >"$1.key"
        return
    fi
    [ -s "$1.pem" ] && return
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$2" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
        -extfile "$1.ext" -out "$1.pem" 2>/dev/null
    rm "$1.csr" "$1.ext"
}

certificate engine "DNS:$engine,DNS:*.$engine,DNS:*.t.$engine"
# Engine and relay reach the platform by the name of its container.
certificate platform "DNS:$platform,DNS:platform,DNS:localhost"

# Containers with other users read these files.
chmod 755 .
chmod 644 ca.pem metrics-token
if [ "$(id -u)" = 0 ]; then
    chown 65532:65532 engine.secret relay.secret engine.key engine.pem platform.key platform.pem
fi
