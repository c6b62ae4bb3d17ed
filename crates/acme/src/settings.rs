//! The checked settings of one certificate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::dns_challenge::DnsProvider;

/// The time of day, in seconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Settings of the certificate of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the authority's directory: https, or http on loopback.
    pub directory: String,
    /// Addresses (`mailto:…`) that the authority may notify.
    pub contact: Vec<String>,
    /// Binding to an account that the authority created otherwise.
    pub external_account: Option<ExternalAccount>,
    /// Key of the certificate.
    pub key_type: KeyType,
    /// The profile that orders request; `None`: the authority selects one.
    pub profile: Option<String>,
    /// Authorities (PEM) of the directory's own certificate, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Challenges for names without a wildcard, the preferred one first; at least one.
    pub challenges: Vec<ChallengeKind>,
    /// The way to publish DNS records; required for wildcards.
    pub dns: Option<DnsProvider>,
    /// Name of the record of `dns-01`, instead of the usual one: that one is delegated to it with a
    /// CNAME record. Only for certificates with one name.
    pub challenge_alias: Option<String>,
    /// Names of the certificate, in lower case; at least one.
    pub names: Vec<String>,
    /// Directory for the account, the certificate and an unfinished order.
    pub state_dir: PathBuf,
    /// Longest delay after the first failure. It doubles with each further one.
    pub first_retry: Duration,
}

/// Binding to an account that the authority created otherwise (RFC 8555 section 7.3.4).
#[derive(Clone, Debug)]
pub struct ExternalAccount {
    /// The identifier of the key, assigned by the authority.
    pub key_id: String,
    /// File with the HMAC key in base64url. It is read when the account is registered.
    pub key_file: PathBuf,
}

/// Type of the certificate's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// ECDSA with P-256.
    #[default]
    P256,
    /// ECDSA with P-384.
    P384,
}

/// Proof of control over a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A file on port 80 (RFC 8555 section 8.3).
    Http01,
    /// A handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// A TXT record (RFC 8555 section 8.4).
    Dns01,
}

impl ChallengeKind {
    /// The name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
        }
    }
}
