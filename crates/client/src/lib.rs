//! The agent SDK: connect, publish, dial, reconnect.
