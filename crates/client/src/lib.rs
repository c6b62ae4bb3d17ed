//! The agent SDK: connect to an engine, publish private services, dial private tunnels.
//!
//! An [`Agent`] keeps one control channel to an engine and restores it, with every tunnel on it,
//! for as long as it lives. [`Agent::open`] asks for a [`Tunnel`]; [`Tunnel::accept`] hands its
//! visitors to the caller, [`Tunnel::forward`] joins each of them to a [`Destination`]. [`dial`] opens a
//! stream to a private tunnel. [`api`] reads the Engine API.
//!
//! ```no_run
//! use client::{Agent, Config, Properties, Target, Token};
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
//! The crate knows nothing of the engine's inside: it meets it through `wire` (the protocol) and
//! `transport` (the data path). It reads no environment, installs no signal handler and prints
//! nothing; that is the binary's part.
//!
//! Start reading at [`agent`].

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
