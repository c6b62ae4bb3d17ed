//! What an agent is told once, at its start.

use std::{collections::BTreeMap, fmt, time::Duration};

use tokio::runtime::Handle;

use crate::{Trust, address::HostPort, backoff::Backoff};

/// Where the engine is, who we are, and how we keep the connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The base address of the engine; its host is also the SNI.
    pub engine: HostPort,
    /// The credential of the agent.
    pub token: Token,
    /// Whose certificates are believed. Default: the platform's.
    pub trust: Trust,
    /// What the agent says about itself.
    pub details: Details,
    /// Labels of the client, shown in the Engine API. Default: none.
    pub labels: BTreeMap<String, String>,
    /// The interval of heartbeats, 100 ms to 300 s. Default: 5 s. The engine gives a channel up
    /// after three silent intervals, and at least 10 s.
    pub heartbeat: Duration,
    /// The waits between attempts. Default: 100 ms, doubling to 15 s.
    pub backoff: Backoff,
    /// The runtimes on which data connections live, in turn: those of
    /// [`transport::Workers`] in a process whose main work is to carry streams. Default: none,
    /// which means the runtime that starts the agent. They must outlive the agent.
    pub runtimes: Vec<Handle>,
    /// Whether standing connections are offered to the engine (`pool/1`). Default: true. Without
    /// them each visitor costs a dial and a handshake.
    pub standing: bool,
    /// Whether lanes are offered to the engine (`lane/2`), where standing connections are. Default:
    /// true. Without them each small exchange has system calls and TLS records of its own.
    pub lanes: bool,
}

impl Config {
    /// An agent of this engine, with the defaults of every other field.
    pub fn new(engine: HostPort, token: Token) -> Self {
        Self {
            engine,
            token,
            trust: Trust::default(),
            details: Details::default(),
            labels: BTreeMap::new(),
            heartbeat: Duration::from_secs(5),
            backoff: Backoff::default(),
            runtimes: Vec::new(),
            standing: true,
            lanes: true,
        }
    }
}

/// The credential of an agent or a dialler. It is shown to the engine alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token as it was given; surrounding white space is cut, as files end in it.
    pub fn new(token: &str) -> Self {
        Self(token.trim().to_owned())
    }

    /// The token itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a client says about itself; shown in `/api/clients` and usable there as a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The program.
    pub agent: String,
    /// Its release channel.
    pub channel: String,
    /// Its version.
    pub version: String,
    /// The operating system.
    pub os: String,
    /// The processor.
    pub arch: String,
}

impl Default for Details {
    /// This library on this machine; a program puts its own name and version in.
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

    #[test]
    fn a_token_does_not_print_itself() {
        let config = Config::new(
            "engine.localhost:8443".parse().unwrap(),
            Token::new("se.cr.et\n"),
        );
        assert!(!format!("{config:?}").contains("se.cr.et"));
        assert_eq!(config.token.expose(), "se.cr.et");
    }
}
