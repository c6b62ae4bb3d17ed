//! Sockets and TLS streams of the data path: per-core workers, scratch buffers, standing connections, the pump.
