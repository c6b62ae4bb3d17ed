//! The agent protocol: messages, framing, handshake and liveness, without sockets.
