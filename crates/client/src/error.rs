//! Why something did not happen, grouped by what a caller can do about it.

use std::{fmt, io};

use crate::{address::ParseHostPortError, trust::TrustError};

/// The engine said no, and asking again would not change its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of no it is.
    pub kind: RefusalKind,
    /// The engine's sentence, or ours where the engine gave none.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The token is not accepted, or does not allow this (permission, boundary).
    Unauthorized,
    /// The request contradicts itself, the protocol, or what this engine speaks.
    Invalid,
    /// A name or a hostname is held by somebody else.
    Conflict,
    /// Another agent of the same identity took the tunnel over.
    TakenOver,
    /// The option is not available in this engine's build or edition.
    NotAvailable,
    /// There is no such tunnel (dial).
    NotFound,
}

/// One attempt to reach an engine, or one request to it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The engine refused; trying again is of no use.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine cannot serve this now.
    #[error("the engine cannot serve this now: {0}")]
    Unavailable(String),
    /// The network or the peer failed; trying again may help.
    #[error("{step}")]
    Network {
        /// What was being done.
        step: Step,
        /// What happened.
        source: io::Error,
    },
    /// The peer did not answer in time; trying again may help.
    #[error("{0}: no answer in time")]
    TimedOut(Step),
    /// The control channel lives, and data connections cannot be opened; trying again may help.
    #[error("no data connection to the engine can be opened")]
    DataPath,
    /// The peer broke the protocol; trying again may help, as it may be half way through an
    /// upgrade.
    #[error("the engine broke the protocol: {0}")]
    Protocol(String),
    /// The configured trust cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The address has no form that a certificate could carry.
    #[error("the engine's address is {0}")]
    Address(#[from] ParseHostPortError),
    /// The agent was closed.
    #[error("the agent is closed")]
    Closed,
}

impl ConnectError {
    /// Whether the same attempt could succeed later without anybody changing its input.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Network { .. }
            | Self::TimedOut(_)
            | Self::DataPath
            | Self::Protocol(_) => true,
            Self::Refused(_) | Self::Trust(_) | Self::Address(_) | Self::Closed => false,
        }
    }

    /// Whether nothing listens at the engine's address: its host answered, and nobody was there.
    pub(crate) fn is_nobody_there(&self) -> bool {
        match self {
            Self::Network { step, source } => {
                *step == Step::Dial && source.kind() == io::ErrorKind::ConnectionRefused
            }
            _ => false,
        }
    }

    /// The refusal in it, where it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// What an attempt was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asking a resolver.
    Resolve,
    /// Opening the TCP connection.
    Dial,
    /// The TLS handshake, certificate verification included.
    Handshake,
    /// The first message and its answer.
    Hello,
    /// Anything later on an open connection.
    Exchange,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "cannot resolve the engine's name",
            Self::Dial => "cannot reach the engine",
            Self::Handshake => "the TLS handshake with the engine failed",
            Self::Hello => "the engine did not open the channel",
            Self::Exchange => "the connection to the engine broke",
        })
    }
}
