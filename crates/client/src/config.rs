//! The configuration of an agent.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use tokio::runtime::Handle;

use crate::{Tokens, Trust, address::HostPort, backoff::Backoff, proxy::Proxies};

/// The address of the engine, the token, and the connection options of an agent.
///
/// Each option has a method that sets it and returns the configuration:
///
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use svc_client::{Config, Token, Trust};
///
/// # fn configure() -> Result<Config, Box<dyn std::error::Error>> {
/// let config = Config::new("engine.example.com:443".parse()?, Token::new("…"))
///     .with_trust(Trust::CaFile("ca.pem".into()))
///     .with_label("site", "bern")
///     .with_connect_timeout(Duration::from_secs(20));
/// # Ok(config)
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The base address of the engine; its host is also used for SNI.
    pub engine: HostPort,
    /// The credential of the agent: a [`Token`](crate::Token), or a provider that renews it.
    pub tokens: Tokens,
    /// The trusted certificate authorities. Default: those of the operating system.
    pub trust: Trust,
    /// The proxies of connections to the engine. Default: none. [`Proxies::from_environment`] reads
    /// the usual variables.
    pub proxies: Proxies,
    /// The description of the agent that is sent to the engine.
    pub details: Details,
    /// Labels of the client, shown in the Engine API. Default: none.
    pub labels: BTreeMap<String, String>,
    /// The interval of heartbeats, 100 ms to 300 s. Default: 5 s. The engine closes a channel after
    /// three silent intervals, but not before 10 s.
    pub heartbeat: Duration,
    /// The delays between attempts. Default: 100 ms, doubling to 15 s.
    pub backoff: Backoff,
    /// Time limit for the first channel in [`Agent::connect`](crate::Agent::connect). Default: no
    /// limit. It has no effect afterwards: an agent that loses its channel retries without limit.
    pub connect_timeout: Option<Duration>,
    /// Maximum number of attempts in [`Agent::connect`](crate::Agent::connect). Default: no limit.
    pub connect_attempts: Option<NonZeroU32>,
    /// The runtimes that serve data connections, in turn: those of [`Workers`](crate::Workers) in a
    /// process whose main work is to carry streams. Default: none, which means the runtime that
    /// starts the agent. They must outlive the agent.
    pub runtimes: Vec<Handle>,
    /// True to offer standing connections to the engine (`pool/1`). Default: true. Without them
    /// each visitor costs a dial and a handshake.
    pub standing: bool,
    /// True to offer lanes to the engine (`lane/2`) in addition to standing connections. Default:
    /// true. Without them each small exchange has its own system calls and TLS records.
    pub lanes: bool,
}

impl Config {
    /// Creates the configuration for this engine, with the defaults of every other option. `tokens`
    /// is a [`Token`](crate::Token), or [`Tokens::from_provider`].
    pub fn new(engine: HostPort, tokens: impl Into<Tokens>) -> Self {
        Self {
            engine,
            tokens: tokens.into(),
            trust: Trust::default(),
            proxies: Proxies::default(),
            details: Details::default(),
            labels: BTreeMap::new(),
            heartbeat: Duration::from_secs(5),
            backoff: Backoff::default(),
            connect_timeout: None,
            connect_attempts: None,
            runtimes: Vec::new(),
            standing: true,
            lanes: true,
        }
    }

    /// Sets [`trust`](Self::trust).
    #[must_use]
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Sets [`proxies`](Self::proxies).
    #[must_use]
    pub fn with_proxies(self, proxies: Proxies) -> Self {
        Self { proxies, ..self }
    }

    /// Sets [`details`](Self::details).
    #[must_use]
    pub fn with_details(self, details: Details) -> Self {
        Self { details, ..self }
    }

    /// Adds to [`labels`](Self::labels).
    #[must_use]
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets [`heartbeat`](Self::heartbeat).
    #[must_use]
    pub fn with_heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }

    /// Sets [`backoff`](Self::backoff).
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Sets [`connect_timeout`](Self::connect_timeout).
    #[must_use]
    pub fn with_connect_timeout(self, limit: Duration) -> Self {
        Self {
            connect_timeout: Some(limit),
            ..self
        }
    }

    /// Sets [`connect_attempts`](Self::connect_attempts).
    #[must_use]
    pub fn with_connect_attempts(self, attempts: NonZeroU32) -> Self {
        Self {
            connect_attempts: Some(attempts),
            ..self
        }
    }

    /// Sets [`runtimes`](Self::runtimes).
    #[must_use]
    pub fn with_runtimes(self, runtimes: impl Into<Vec<Handle>>) -> Self {
        Self {
            runtimes: runtimes.into(),
            ..self
        }
    }
}

/// The description of a client that is sent to the engine; shown in `/api/clients` and usable there
/// as a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Name of the program.
    pub agent: String,
    /// Its release channel.
    pub channel: String,
    /// Its version.
    pub version: String,
    /// The operating system.
    pub os: String,
    /// The processor architecture.
    pub arch: String,
}

impl Details {
    /// Describes a program with this name and version on this machine.
    pub fn of_program(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            agent: name.into(),
            version: version.into(),
            ..Self::default()
        }
    }
}

impl Default for Details {
    /// Describes this library on this machine.
    fn default() -> Self {
        Self {
            agent: "svc-sdk".to_owned(),
            channel: "stable".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn debug_output_leaves_the_token_out() {
        let config = Config::new(
            "engine.localhost:8443".parse().unwrap(),
            Token::new("se.cr.et\n"),
        );
        let token = config.tokens.fixed().unwrap();
        assert_eq!(token.expose(), "se.cr.et");
        assert!(!format!("{config:?} {token:?}").contains("se.cr.et"));
    }
}
