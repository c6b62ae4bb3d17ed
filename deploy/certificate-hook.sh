#!/bin/sh
# Copies a certificate of certbot to the place from which the engine reads it (docs/certificates.md).
# certbot runs this as root after each issue and renewal, with the certificate's folder in
# RENEWED_LINEAGE.
set -eu
to=${SVC_TLS_DIR:-/etc/svc/tls}
group=${SVC_TLS_GROUP:-svc}
install -d -m 750 -g "$group" "$to"
for name in privkey fullchain; do
    install -m 640 -g "$group" "$RENEWED_LINEAGE/$name.pem" "$to/.$name.pem"
done
# Each file is replaced in one step. An engine that reads them in between keeps its old pair, and reads
# again.
for name in privkey fullchain; do
    mv -f "$to/.$name.pem" "$to/$name.pem"
done
