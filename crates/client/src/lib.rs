//! The agent SDK: connect to an engine, publish private services, dial private tunnels.
//!
//! An [`Agent`] keeps one control channel to an engine and restores it, with every tunnel on it,
//! for as long as it lives. [`Agent::open`] asks for a [`Tunnel`]; [`Tunnel::accept`] hands its
//! visitors to the caller, [`Tunnel::forward`] joins each of them to a [`Destination`]. [`dial()`] opens a
//! stream to a private tunnel. [`api`] reads the Engine API.
//!
//! ```no_run
//! use svc_client::{Agent, Config, Properties, Target, Token};
//!
//! # async fn publish() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::start(Config::new("engine.example.com:443".parse()?, Token::new("…")))?;
//! let mut tunnel = agent.open(Properties::http().named("web"));
//! println!("visitors use {}", tunnel.online().await?.forwarding);
//! tunnel.forward("localhost:3000".parse::<Target>()?, None).await;
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
//! Programs to begin with are in `examples`: `publish`, `dial`, and `accept`, where axum answers the
//! streams of a tunnel without a socket of its own.
//!
//! What fails says whether it is worth while to try again: a [`Refusal`] is the engine's no, every
//! other [`ConnectError`] may pass. Agents and tunnels try again by themselves and tell where they
//! stand ([`Agent::status`], [`Tunnel::status`]); dials and calls of the API do not.
//!
//! The crate needs a tokio runtime with IO and time, and knows nothing of the engine's inside: it
//! meets it through `wire` (the protocol) and `transport` (the data path). It reads no environment,
//! installs no signal handler and prints nothing; that is the binary's part.
//!
//! Start reading at [`agent`].
#![deny(missing_docs)]

pub mod address;
pub mod agent;
pub mod api;
pub mod backoff;
pub mod config;
mod connect;
pub mod dial;
pub mod error;
pub mod properties;
pub mod stream;
pub mod tap;
pub mod target;
pub mod trust;
pub mod tunnel;

pub use address::HostPort;
pub use agent::Agent;
pub use config::{Config, Details, Token};
pub use dial::dial;
pub use error::{ConnectError, Refusal, RefusalKind};
pub use properties::Properties;
pub use stream::Stream;
pub use target::{Destination, HostHeader, ProxyProtocol, Target};
pub use trust::Trust;
pub use tunnel::{Closed, Connection, Status, Tunnel};

/// The programs of the read-me file compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
