//! What every server process needs: configuration, TLS material and its reload, metrics listener, logs, start and stop.
