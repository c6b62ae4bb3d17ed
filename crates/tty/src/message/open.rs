//! What starts a command.

use std::fmt;

use super::hello::{ClientProof, SessionKeyGrant};
use super::ours::{AckSession, OpenSession, SealConfirm};

/// Starts a command on the server. The first message of a client, or the first after the hellos.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Open {
    /// What to start, and how.
    #[prost(message, optional, tag = "1")]
    pub config: Option<Config>,
    /// What the client can do, of the published protocol.
    #[prost(enumeration = "OpenCapability", repeated, tag = "2")]
    pub capabilities: Vec<i32>,
    /// Keys of the published end-to-end encryption, which this project does not speak.
    #[prost(message, optional, tag = "4")]
    pub session_key_grant: Option<SessionKeyGrant>,
    /// Who the client is, in the published protocol.
    #[prost(message, optional, tag = "5")]
    pub client_proof: Option<ClientProof>,
    /// Ours: what the client can do, and the session that it comes back to.
    #[prost(message, optional, tag = "100")]
    pub session: Option<OpenSession>,
    /// Ours: shows that the client holds the keys of the sealed session.
    #[prost(message, optional, tag = "101")]
    pub seal: Option<SealConfirm>,
}

/// What the client can do beyond plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum OpenCapability {
    /// Says nothing.
    Unspecified = 0,
    /// Data can be encrypted.
    EncryptedPayload = 1,
    /// Keys of a session can be granted.
    SessionCrypto = 2,
}

/// A command and its surroundings.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Config {
    /// How it is run.
    #[prost(message, optional, tag = "1")]
    pub options: Option<Options>,
    /// The command and its arguments; none for the account's login shell.
    #[prost(string, repeated, tag = "2")]
    pub cmd_args: Vec<String>,
    /// Its environment, on top of what the server sets.
    #[prost(message, repeated, tag = "3")]
    pub env_vars: Vec<Environment>,
    /// Where it starts; absent for the account's home.
    #[prost(message, optional, tag = "4")]
    pub workdir: Option<Workdir>,
    /// As whom it runs; absent for the server's choice.
    #[prost(message, optional, tag = "5")]
    pub username: Option<Username>,
}

/// Arguments and variables have passwords in them.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("options", &self.options)
            .field("cmd_args", &self.cmd_args.len())
            .field("env_vars", &self.env_vars.len())
            .finish_non_exhaustive()
    }
}

/// How a command is run.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Options {
    /// Somebody types.
    #[prost(bool, tag = "1")]
    pub interactive: bool,
    /// The command gets a terminal; else pipes.
    #[prost(bool, tag = "2")]
    pub allocate_tty: bool,
    /// The client asks for heartbeats.
    #[prost(bool, tag = "3")]
    pub send_heartbeat: bool,
}

/// One variable of the environment.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct Environment {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({}=..)", self.key)
    }
}

/// A directory, in a message of its own so that it can be absent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Workdir {
    /// Its path; empty is the same as absent.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// An account.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Username {
    /// How it is named.
    #[prost(oneof = "User", tags = "1, 2")]
    pub payload: Option<User>,
}

/// An account, by either of its names.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum User {
    /// Its name.
    #[prost(string, tag = "1")]
    Name(String),
    /// Its number.
    #[prost(uint32, tag = "2")]
    Id(u32),
}

/// The command runs. Comes before all output.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    /// Ours: what the server can do, and how to come back to this session.
    #[prost(message, optional, tag = "100")]
    pub session: Option<AckSession>,
}
