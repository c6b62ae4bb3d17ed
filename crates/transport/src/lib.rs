//! Sockets and TLS streams of the data path, for the engine and the agent.
//!
//! It contains one current-thread runtime per core ([`Workers`]), a TCP socket that can move
//! between them and reads ahead of TLS ([`Socket`]), standing data connections of the agent
//! protocol's extension `pool/1` ([`standing`]), lanes for many small streams ([`lane`]), the
//! connections for streams that leave their lanes ([`rendezvous`]), the loop that joins two byte
//! streams ([`pump()`]), and permits that count what is in use ([`permit`]). It has no names,
//! tunnels, tokens or HTTP.
//!
//! The design is based on measurements; see `ARCHITECTURE.md` ("Performance").

pub mod lane;
pub mod memory;
mod memory_trimmer;
pub mod permit;
mod pump;
pub mod rendezvous;
mod scratch;
mod socket;
pub mod standing;
mod stream;
mod tls;
pub mod unix;
mod workers;

pub use pump::{BidirectionalCopy, CopyResult, pump};
pub use scratch::Scratch;
pub use socket::Socket;
pub use stream::Stream;
pub use tls::{TlsStream, connect, service_client_config, wrap_server_session};
pub use workers::Workers;
