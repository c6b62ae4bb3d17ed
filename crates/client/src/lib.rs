//! The agent SDK: connect to an engine, publish private services, dial private tunnels.
//!
//! An [`Agent`] keeps one control channel to an engine open for its lifetime, and restores it with
//! every tunnel on it. [`Agent::open`] requests a [`Tunnel`]. [`Tunnel::accept`] returns its
//! visitors, and [`Tunnel::forward`] connects each of them to a [`Destination`]. [`dial()`] opens a
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
//! Dialling needs less code:
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
//! The directory `examples` has programs to start with: `publish` (axum answers the streams of a
//! tunnel without a socket), `forward`, `dial` and `watch`.
//!
//! [`ConnectError::is_transient`] and [`ConnectError::is_lasting`] show if a retry is useful.
//! [`Agent::connect`] fails with a lasting error. An agent that was connected retries, and
//! [`Agent::status`] and [`Tunnel::status`] show each change. Dials and API calls make one attempt
//! each.
//!
//! Features: `api` (default) for the Engine API, `serde` for [`Properties`] as JSON, `axum` for a
//! tunnel as a listener of `axum::serve`, `tower` for dialling as a connector of hyper and tonic.
//!
//! # Panics and cancellation
//!
//! [`Agent::start`] and [`Agent::connect`] panic outside a tokio runtime, as do calls that use the
//! network outside one with IO and time. Nothing else panics. Each asynchronous function describes
//! the effect of dropping its future under `Cancellation`.
//!
//! The crate needs a tokio runtime with IO and time. It does not depend on the engine: both share
//! only `wire` (the protocol) and `transport` (the data path). It reads no environment variables,
//! installs no signal handlers and prints nothing; the binary does that.
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
pub mod proxy;
pub mod stream;
mod tcp;
pub mod token;
mod token_error;
pub mod trust;

/// Types of certificates and keys for [`Trust::Roots`] and [`tap::TlsInterceptor`].
pub use self::agent::tap;
pub use self::agent::target;
pub use self::agent::tunnel;
pub use rustls_pki_types as pki_types;
pub use transport::Workers;

pub use address::HostPort;
pub use agent::Agent;
pub use agent::target::{
    Destination, ForwardOptions, HostHeader, ProxyProtocol, ServiceName, Target,
};
pub use agent::tunnel::{CloseReason, Connection, Status, Tunnel};
pub use config::{Config, Details};
#[doc(hidden)]
pub use connect::open_socket;
#[cfg(feature = "tower")]
pub use connector::{DialFuture, TunnelConnector};
pub use dial::dial;
pub use error::{CertificateFault, ConnectError, Refusal, RefusalKind};
#[cfg(feature = "axum")]
pub use listener::{TunnelListener, Visitor};
pub use properties::Properties;
pub use proxy::{Proxies, Proxy};
pub use stream::Stream;
pub use token::{Token, TokenFuture, TokenProvider, Tokens};
pub use token_error::TokenError;
pub use trust::Trust;

/// Compiles the programs of the read-me file.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

/// Compiles the programs of the developer guide, with all features.
#[cfg(all(doctest, feature = "api", feature = "axum", feature = "tower"))]
#[doc = include_str!("../guide.md")]
struct Guide;
