//! What a peer can send, and what it may not cause.

#[cfg(test)]
mod framing;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod standing;
