//! Why something did not happen, grouped by what a caller can do about it.

use std::{fmt, io, sync::Arc, time::Duration};

use crate::{TokenError, address::ParseHostPortError, trust::TrustError};

/// The engine said no, and asking again would not change its answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Refusal {
    /// What kind of no it is.
    pub kind: RefusalKind,
    /// The engine's sentence, or ours where the engine gave none.
    pub message: String,
}

impl Refusal {
    /// A refusal of this kind, in these words.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
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
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The engine refused; trying again is of no use.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine's certificate is not accepted: its authority is unknown, or it is for another host.
    /// The token was not sent.
    #[error("{}", Step::Handshake)]
    #[non_exhaustive]
    Certificate {
        /// The fault of the certificate.
        fault: CertificateFault,
        /// The same in the words of the TLS library.
        source: Arc<io::Error>,
    },
    /// The peer does not speak the agent protocol: the address is that of something else.
    #[error("what listens at the address is not an engine")]
    #[non_exhaustive]
    NotAnEngine {
        /// The peer's behaviour instead.
        source: Arc<io::Error>,
    },
    /// The token provider has no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The engine cannot serve this now.
    #[error("the engine cannot serve this now: {0}")]
    Unavailable(String),
    /// The network or the peer failed; trying again may help.
    #[error("{step}")]
    #[non_exhaustive]
    Network {
        /// What was being done.
        step: Step,
        /// What happened.
        source: Arc<io::Error>,
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
    /// [`Agent::connect`](crate::Agent::connect) had no channel within
    /// [`connect_timeout`](crate::Config::connect_timeout).
    #[error("no channel to the engine within {limit:?}")]
    #[non_exhaustive]
    ConnectTimeout {
        /// The option.
        limit: Duration,
        /// Why the last attempt failed, where one had ended.
        source: Option<Box<ConnectError>>,
    },
    /// [`Agent::connect`](crate::Agent::connect) had no channel after
    /// [`connect_attempts`](crate::Config::connect_attempts).
    #[error("no channel to the engine after {attempts} attempts")]
    #[non_exhaustive]
    ConnectAttempts {
        /// How many there were.
        attempts: u32,
        /// Why the last one failed.
        source: Box<ConnectError>,
    },
    /// The configured trust cannot be used.
    #[error(transparent)]
    Trust(Arc<TrustError>),
    /// The address has no form that a certificate could carry.
    #[error("the engine's address is {0}")]
    Address(#[from] ParseHostPortError),
    /// The agent was closed.
    #[error("the agent is closed")]
    Closed,
}

impl ConnectError {
    /// The network failed at this step.
    pub(crate) fn network(step: Step, source: io::Error) -> Self {
        Self::Network {
            step,
            source: Arc::new(source),
        }
    }

    pub(crate) fn not_an_engine(source: io::Error) -> Self {
        let source = Arc::new(source);
        Self::NotAnEngine { source }
    }

    /// The TLS handshake failed: for good where it is about the certificate or the protocol.
    pub(crate) fn handshake(source: io::Error) -> Self {
        let inner = source.get_ref();
        match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(error)) => {
                let fault = CertificateFault::of(error);
                let source = Arc::new(source);
                Self::Certificate { fault, source }
            }
            Some(
                rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)
                | rustls::Error::InvalidMessage(_),
            ) => Self::not_an_engine(source),
            _ => Self::network(Step::Handshake, source),
        }
    }

    /// Whether the same attempt could succeed later without anybody changing its input. Agents retry
    /// these without end.
    ///
    /// An unknown authority counts: behind a captive portal, or while a certificate is replaced, it
    /// passes.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Certificate { .. }
            | Self::NotAnEngine { .. }
            | Self::Unavailable(_)
            | Self::Network { .. }
            | Self::TimedOut(_)
            | Self::DataPath
            | Self::Protocol(_)
            | Self::ConnectTimeout { .. }
            | Self::ConnectAttempts { .. } => true,
            Self::Token(error) => error.is_transient(),
            Self::Refused(_) | Self::Trust(_) | Self::Address(_) | Self::Closed => false,
        }
    }

    /// Whether the set-up is at fault more likely than the network: a token that is refused, an unknown
    /// authority, another host. These end [`Agent::connect`](crate::Agent::connect).
    pub fn is_lasting(&self) -> bool {
        !self.is_transient() || matches!(self, Self::Certificate { .. } | Self::NotAnEngine { .. })
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

    /// Whether the engine does not accept the token.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.kind == RefusalKind::Unauthorized)
    }

    /// The refusal in it, where it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<TrustError> for ConnectError {
    fn from(error: TrustError) -> Self {
        Self::Trust(Arc::new(error))
    }
}

/// Why a certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// No trusted authority has issued it; see [`Trust`](crate::Trust).
    UnknownIssuer,
    /// It is for another host.
    WrongHost,
    /// It has expired.
    Expired,
    /// It is not valid yet; a clock may be wrong.
    NotValidYet,
    /// Its issuer has revoked it.
    Revoked,
    /// Something else.
    Other,
}

impl CertificateFault {
    fn of(error: &rustls::CertificateError) -> Self {
        use rustls::CertificateError as Of;
        match error {
            // Another authority of the same name has issued it.
            Of::UnknownIssuer | Of::BadSignature => Self::UnknownIssuer,
            Of::NotValidForName | Of::NotValidForNameContext { .. } => Self::WrongHost,
            Of::Expired | Of::ExpiredContext { .. } => Self::Expired,
            Of::NotValidYet | Of::NotValidYetContext { .. } => Self::NotValidYet,
            Of::Revoked => Self::Revoked,
            _ => Self::Other,
        }
    }
}

/// What an attempt was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Asking the token provider.
    Token,
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
            Self::Token => "cannot get a token",
            Self::Resolve => "cannot resolve the engine's name",
            Self::Dial => "cannot reach the engine",
            Self::Handshake => "the TLS handshake with the engine failed",
            Self::Hello => "the engine did not open the channel",
            Self::Exchange => "the connection to the engine broke",
        })
    }
}
