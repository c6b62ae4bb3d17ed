//! The messages that start a command.

use std::fmt;

use super::extensions::{AckSession, OpenSession, SealConfirm};
use super::hello::{ClientProof, SessionKeyGrant};

/// Starts a command on the server. The first message of a client, or the first after the hellos.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenCommand {
    /// The command and its options.
    #[prost(message, optional, tag = "1")]
    pub config: Option<Config>,
    /// Capabilities of the client, in the published protocol.
    #[prost(enumeration = "OpenCapability", repeated, tag = "2")]
    pub capabilities: Vec<i32>,
    /// Keys of the published end-to-end encryption, which this project does not support.
    #[prost(message, optional, tag = "4")]
    pub session_key_grant: Option<SessionKeyGrant>,
    /// Identity of the client, in the published protocol.
    #[prost(message, optional, tag = "5")]
    pub client_proof: Option<ClientProof>,
    /// Ours: features of the client, and the session that it resumes.
    #[prost(message, optional, tag = "100")]
    pub session: Option<OpenSession>,
    /// Ours: proves that the client has the keys of the sealed session.
    #[prost(message, optional, tag = "101")]
    pub seal: Option<SealConfirm>,
}

/// Capabilities of a client beyond plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum OpenCapability {
    /// Not specified.
    Unspecified = 0,
    /// Data can be encrypted.
    EncryptedPayload = 1,
    /// Keys of a session can be granted.
    SessionCrypto = 2,
}

/// A command and its environment.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Config {
    /// Options of the command.
    #[prost(message, optional, tag = "1")]
    pub options: Option<Options>,
    /// The command and its arguments; none for the account's login shell.
    #[prost(string, repeated, tag = "2")]
    pub cmd_args: Vec<String>,
    /// Environment variables, in addition to those of the server.
    #[prost(message, repeated, tag = "3")]
    pub env_vars: Vec<Environment>,
    /// Working directory; absent for the account's home.
    #[prost(message, optional, tag = "4")]
    pub workdir: Option<Workdir>,
    /// Account; absent for the server's choice.
    #[prost(message, optional, tag = "5")]
    pub username: Option<Username>,
}

/// Arguments and variables may contain passwords.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("options", &self.options)
            .field("cmd_args", &self.cmd_args.len())
            .field("env_vars", &self.env_vars.len())
            .finish_non_exhaustive()
    }
}

/// Options of a command.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Options {
    /// A person types.
    #[prost(bool, tag = "1")]
    pub interactive: bool,
    /// The command gets a terminal; else pipes.
    #[prost(bool, tag = "2")]
    pub allocate_tty: bool,
    /// The client requests heartbeats.
    #[prost(bool, tag = "3")]
    pub send_heartbeat: bool,
}

/// One environment variable.
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
    /// Name or number of the account.
    #[prost(oneof = "User", tags = "1, 2")]
    pub payload: Option<User>,
}

/// An account, by its name or its number.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum User {
    /// Its name.
    #[prost(string, tag = "1")]
    Name(String),
    /// Its number.
    #[prost(uint32, tag = "2")]
    Id(u32),
}

/// The command runs. It precedes all output.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    /// Ours: features of the server, and the data to resume this session.
    #[prost(message, optional, tag = "100")]
    pub session: Option<AckSession>,
}
