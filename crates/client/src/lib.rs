//! The agent SDK: connect to an engine, publish private services, dial private tunnels.
//!
//! An [`Agent`] keeps one control channel to an engine and restores it, with every tunnel on it,
//! for as long as it lives. [`Agent::open`] asks for a [`Tunnel`]; [`Tunnel::accept`] hands its
//! visitors to the caller, [`Tunnel::forward`] joins each of them to a [`Destination`]. [`dial()`] opens a
//! stream to a private tunnel. The module `api` reads the Engine API.
//!
//! ```no_run
//! use svc_client::{Agent, Config, Properties, Target, Token};
//!
//! # async fn publish() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::start(Config::new("engine.example.com:443".parse()?, Token::new("…")))?;
//! let mut tunnel = agent.open(Properties::http().named("web"));
//! println!("visitors use {}", tunnel.online().await?.forwarding);
//! tunnel.forward("localhost:3000".parse::<Target>()?).await;
//! # Ok(())
//! # }
//! ```
//!
//! To dial takes less:
//!
//! ```no_run
//! use svc_client::{Config, Token, dial};
//! use tokio::io::AsyncWriteExt;
//!
//! # async fn talk() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::new("engine.example.com:443".parse()?, Token::new("…"));
//! let mut stream = dial(&config, "db").await?;
//! stream.write_all(b"hello").await?;
//! tokio::io::copy(&mut stream, &mut tokio::io::stdout()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Programs to begin with are in `examples`: `publish` (axum answers the streams of a tunnel without a
//! socket), `forward`, `dial` and `watch`.
//!
//! Errors report whether another attempt is worth while: [`ConnectError::is_transient`] and
//! [`ConnectError::is_lasting`]. [`Agent::connect`] ends with a lasting one. An agent that was connected
//! tries again, and [`Agent::status`] and [`Tunnel::status`] show each change; dials and calls of the API
//! are one attempt each.
//!
//! Features: `api` (default) has the Engine API, `serde` has [`Properties`] as JSON, `axum` has a tunnel
//! as a listener of `axum::serve`, `tower` has dialling as a connector of hyper and tonic.
//!
//! # Panics and cancellation
//!
//! [`Agent::start`] and [`Agent::connect`] panic outside a tokio runtime, as do calls that use the
//! network outside one with IO and time. Nothing else panics. Each asynchronous function states what
//! dropping its future does under `Cancellation`.
//!
//! The crate needs a tokio runtime with IO and time, and knows nothing of the engine's inside: it
//! meets it through `wire` (the protocol) and `transport` (the data path). It reads no environment,
//! installs no signal handler and prints nothing; that is the binary's part.
//!
//! Start reading at [`agent`].
#![deny(missing_docs)]
#![warn(rustdoc::private_intra_doc_links)]

pub mod address;
pub mod agent;
#[cfg(feature = "api")]
pub mod api;
pub mod backoff;
pub mod config;
mod connect;
#[cfg(feature = "tower")]
mod connector;
pub mod dial;
pub mod error;
#[cfg(feature = "axum")]
mod listener;
pub mod properties;
pub mod stream;
pub mod tap;
pub mod target;
pub mod token;
pub mod trust;
pub mod tunnel;

/// Certificates and keys, as [`Trust::Roots`] and [`tap::Opener`] take them.
pub use rustls_pki_types as pki_types;
pub use transport::Workers;

pub use address::HostPort;
pub use agent::Agent;
pub use config::{Config, Details};
#[cfg(feature = "tower")]
pub use connector::{Dialling, TunnelConnector};
pub use dial::dial;
pub use error::{CertificateFault, ConnectError, Refusal, RefusalKind};
#[cfg(feature = "axum")]
pub use listener::{TunnelListener, Visitor};
pub use properties::Properties;
pub use stream::Stream;
pub use target::{Destination, Forwarding, HostHeader, ProxyProtocol, Target};
pub use token::{Token, TokenError, TokenFuture, TokenProvider, Tokens};
pub use trust::Trust;
pub use tunnel::{Closed, Connection, Status, Tunnel};

/// The programs of the read-me file compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

/// Those of the page for developers compile, with all features.
#[cfg(all(doctest, feature = "api", feature = "axum", feature = "tower"))]
#[doc = include_str!("../guide.md")]
struct Guide;
