//! Reasons why a proxy cannot be used.

use std::{fmt, io, sync::Arc};

use crate::HostPort;

/// The text is not the address of a proxy. The message does not contain the text, which may contain
/// a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseProxyError {
    pub(super) variable: Option<&'static str>,
    pub(super) syntax: ProxySyntax,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxySyntax {
    Address,
    Scheme,
    Login,
}

impl ParseProxyError {
    pub(super) fn new(syntax: ProxySyntax) -> Self {
        Self {
            variable: None,
            syntax,
        }
    }
}

impl fmt::Display for ParseProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.variable.unwrap_or("the proxy");
        match self.syntax {
            ProxySyntax::Address => write!(
                f,
                "{name} is not an address such as http://proxy.example.com:3128"
            ),
            ProxySyntax::Scheme => write!(
                f,
                "{name} has another scheme than http://, socks5:// and socks5h://"
            ),
            ProxySyntax::Login => write!(
                f,
                "{name} has a user name or a password that cannot be sent: each has 1 to 255 \
                 bytes, without control characters, and the user name has no colon"
            ),
        }
    }
}

impl std::error::Error for ParseProxyError {}

/// Reason why a proxy is not usable, or does not connect to the engine.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyFault {
    /// Its name has no address.
    #[error("its name cannot be resolved")]
    Unresolved(#[source] Arc<io::Error>),
    /// It cannot be reached.
    #[error("it cannot be reached")]
    Unreachable(#[source] Arc<io::Error>),
    /// It does not respond in time.
    #[error("it does not respond in time")]
    TimedOut,
    /// The connection to it broke.
    #[error("it closed the connection")]
    Lost(#[source] Arc<io::Error>),
    /// It requires a login, and there is none.
    #[error("it requires a user name and a password")]
    LoginRequired,
    /// It does not accept the login.
    #[error("it does not accept the user name and the password")]
    LoginRefused,
    /// It requires a form of authentication that is not supported.
    #[error("it requires an authentication other than a user name and a password")]
    LoginUnsupported,
    /// It does not connect to the engine.
    #[error("it does not connect to {target}: {reason}")]
    #[non_exhaustive]
    Refused {
        /// The address of the engine.
        target: HostPort,
        /// The meaning of its response.
        reason: ProxyRefusal,
    },
    /// The response is not that of a proxy.
    #[error("its response is not that of a proxy: {0}")]
    Malformed(&'static str),
}

impl ProxyFault {
    /// True if a retry with the same settings is useless.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::LoginRequired | Self::LoginRefused | Self::LoginUnsupported | Self::Malformed(_)
        )
    }

    pub(super) fn disconnected(error: io::Error) -> Self {
        Self::Lost(Arc::new(error))
    }
}

/// Meaning of a proxy's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyRefusal {
    /// An HTTP status.
    Status(u16),
    /// A reply code of SOCKS5 (RFC 1928 section 6).
    Reply(u8),
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status @ 403) => {
                write!(f, "HTTP status {status} (its rules do not allow it)")
            }
            Self::Status(status @ (502..=504)) => {
                write!(f, "HTTP status {status} (it cannot reach the address)")
            }
            Self::Status(status) => write!(f, "HTTP status {status}"),
            Self::Reply(2) => f.write_str("its rules do not allow it"),
            Self::Reply(3) => f.write_str("the network is unreachable"),
            Self::Reply(4) => f.write_str("the host is unreachable"),
            Self::Reply(5) => f.write_str("the connection was refused"),
            Self::Reply(6) => f.write_str("the connection timed out"),
            Self::Reply(code) => write!(f, "SOCKS reply {code}"),
        }
    }
}
