//! Errors, grouped by possible reactions of a caller.

use std::{fmt, io, sync::Arc, time::Duration};

use crate::{
    address::ParseHostPortError,
    proxy::{ParseProxyError, ProxyFault},
    token_error::TokenError,
    trust::TrustError,
};

/// A refusal by the engine that a retry would not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Refusal {
    /// Kind of the refusal.
    pub kind: RefusalKind,
    /// The engine's message, or a default message.
    pub message: String,
}

impl Refusal {
    /// Creates a refusal with this kind and message.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// Kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The token is not accepted, or its permissions or its boundary do not allow the request.
    Unauthorized,
    /// The request contradicts itself or the protocol, or uses something that this engine does not
    /// support.
    Invalid,
    /// A name or host name is already in use.
    Conflict,
    /// Another agent of the same identity took the tunnel over.
    TakenOver,
    /// A user or a program closed the tunnel through the engine's API.
    ClosedByCaller,
    /// The option is not available in this engine's build or edition.
    NotAvailable,
    /// There is no such tunnel (dial).
    NotFound,
}

/// One attempt to reach an engine, or one request to it, failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The engine refused; a retry is useless.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The engine's certificate is not trusted: its authority is unknown, or it is for another
    /// host. The token was not sent.
    #[error("{}", Step::Handshake)]
    #[non_exhaustive]
    Certificate {
        /// Reason of the rejection.
        fault: CertificateFault,
        /// The original error of the TLS library.
        source: Arc<io::Error>,
    },
    /// The peer does not use the agent protocol: the address belongs to another service.
    #[error("the server at the address is not an engine")]
    #[non_exhaustive]
    NotAnEngine {
        /// The observed behaviour of the peer.
        source: Arc<io::Error>,
    },
    /// The token provider has no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The engine cannot serve the request now.
    #[error("the engine cannot serve this now: {0}")]
    Unavailable(String),
    /// The network or the peer failed; a retry may help.
    #[error("{step}")]
    #[non_exhaustive]
    Network {
        /// The step that failed.
        step: Step,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// The proxy on the way to the engine is not usable, or does not connect to the engine.
    #[error("no connection through the proxy {proxy}")]
    #[non_exhaustive]
    Proxy {
        /// The proxy, without its login.
        proxy: String,
        /// The cause.
        source: ProxyFault,
    },
    /// The setting of the proxy for the engine cannot be used.
    #[error(transparent)]
    ProxySetting(#[from] ParseProxyError),
    /// The peer did not respond in time; a retry may help.
    #[error("{0}: no answer in time")]
    TimedOut(Step),
    /// The control channel works, but data connections cannot be opened; a retry may help.
    #[error("no data connection to the engine can be opened")]
    DataPath,
    /// The peer violated the protocol; a retry may help, because the peer may be in the middle of
    /// an upgrade.
    #[error("the engine broke the protocol: {0}")]
    Protocol(String),
    /// [`Agent::connect`](crate::Agent::connect) opened no channel within
    /// [`connect_timeout`](crate::Config::connect_timeout).
    #[error("no channel to the engine within {limit:?}")]
    #[non_exhaustive]
    ConnectTimeout {
        /// The value of the option.
        limit: Duration,
        /// Error of the last finished attempt, if any.
        source: Option<Box<ConnectError>>,
    },
    /// [`Agent::connect`](crate::Agent::connect) opened no channel after
    /// [`connect_attempts`](crate::Config::connect_attempts).
    #[error("no channel to the engine after {attempts} attempts")]
    #[non_exhaustive]
    ConnectAttempts {
        /// Number of attempts.
        attempts: u32,
        /// Error of the last attempt.
        source: Box<ConnectError>,
    },
    /// The configured trust cannot be used.
    #[error(transparent)]
    Trust(Arc<TrustError>),
    /// The host of the engine's address cannot be a name in a certificate.
    #[error("the engine's address is {0}")]
    Address(#[from] ParseHostPortError),
    /// The agent was closed.
    #[error("the agent is closed")]
    Closed,
}

impl ConnectError {
    /// Creates an error for a network failure in this step.
    pub(crate) fn network(step: Step, source: io::Error) -> Self {
        Self::Network {
            step,
            source: Arc::new(source),
        }
    }

    /// Creates an error for a connection through this proxy.
    pub(crate) fn proxy(proxy: String, source: ProxyFault) -> Self {
        Self::Proxy { proxy, source }
    }

    pub(crate) fn not_an_engine(source: io::Error) -> Self {
        let source = Arc::new(source);
        Self::NotAnEngine { source }
    }

    /// Creates an error for a failed TLS handshake. It is lasting ([`Self::is_lasting`]) if the
    /// certificate or the protocol is the reason.
    pub(crate) fn handshake(source: io::Error) -> Self {
        let inner = source.get_ref();
        match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(error)) => {
                let fault = CertificateFault::of(error);
                let source = Arc::new(source);
                Self::Certificate { fault, source }
            }
            Some(
                rustls::Error::AlertReceived(
                    rustls::AlertDescription::NoApplicationProtocol
                    // RFC 6066 section 3: the peer does not serve the name.
                    | rustls::AlertDescription::UnrecognisedName,
                )
                | rustls::Error::InvalidMessage(_),
            ) => Self::not_an_engine(source),
            _ => Self::network(Step::Handshake, source),
        }
    }

    /// True if the same attempt could succeed later without a change of its input. Agents retry
    /// these errors without limit.
    ///
    /// An unknown authority counts as transient: it occurs behind a captive portal, or while a
    /// certificate is being replaced.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Certificate { .. }
            | Self::NotAnEngine { .. }
            | Self::Unavailable(_)
            | Self::Network { .. }
            | Self::Proxy { .. }
            | Self::TimedOut(_)
            | Self::DataPath
            | Self::Protocol(_)
            | Self::ConnectTimeout { .. }
            | Self::ConnectAttempts { .. } => true,
            Self::Token(error) => error.is_transient(),
            Self::Refused(_)
            | Self::Trust(_)
            | Self::Address(_)
            | Self::ProxySetting(_)
            | Self::Closed => false,
        }
    }

    /// True if the configuration is more likely at fault than the network: a refused token, an
    /// unknown authority, another host, a proxy that requires a login. These errors end
    /// [`Agent::connect`](crate::Agent::connect).
    ///
    /// Some of them are also transient ([`Self::is_transient`]): an agent that was started without
    /// `connect` retries these.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Certificate { .. } | Self::NotAnEngine { .. } => true,
            Self::Proxy { source, .. } => source.is_lasting(),
            other => !other.is_transient(),
        }
    }

    /// True if the host of the engine's address responded, but no process listens there.
    pub(crate) fn is_connection_refused(&self) -> bool {
        match self {
            Self::Network { step, source } => {
                *step == Step::Dial && source.kind() == io::ErrorKind::ConnectionRefused
            }
            _ => false,
        }
    }

    /// True if the engine does not accept the token.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.kind == RefusalKind::Unauthorized)
    }

    /// Returns the refusal, if the error is one.
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

/// Reason why a certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// It was not issued by a trusted authority; see [`Trust`](crate::Trust).
    UnknownIssuer,
    /// It is for another host.
    WrongHost,
    /// It has expired.
    Expired,
    /// It is not valid yet; a clock may be wrong.
    NotValidYet,
    /// Its issuer has revoked it.
    Revoked,
    /// Another reason.
    Other,
}

impl CertificateFault {
    fn of(error: &rustls::CertificateError) -> Self {
        use rustls::CertificateError as TlsFault;
        match error {
            // The signature is bad if another authority of the same name issued the certificate.
            TlsFault::UnknownIssuer | TlsFault::BadSignature => Self::UnknownIssuer,
            TlsFault::NotValidForName | TlsFault::NotValidForNameContext { .. } => Self::WrongHost,
            TlsFault::Expired | TlsFault::ExpiredContext { .. } => Self::Expired,
            TlsFault::NotValidYet | TlsFault::NotValidYetContext { .. } => Self::NotValidYet,
            TlsFault::Revoked => Self::Revoked,
            _ => Self::Other,
        }
    }
}

/// Step of an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Getting a token from the provider.
    Token,
    /// Resolving the name.
    Resolve,
    /// Opening the TCP connection.
    Dial,
    /// The TLS handshake, certificate verification included.
    Handshake,
    /// The first message and its response.
    Hello,
    /// Any later exchange on an open connection.
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
            Self::Exchange => "the connection to the engine was lost",
        })
    }
}
