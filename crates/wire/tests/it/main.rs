//! What a peer can send, and what it may not cause.

mod framing;
mod schema;
mod standing;
