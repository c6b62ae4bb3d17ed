//! The record about the certificates of an engine's own names.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// State of the certificates of an engine's own names. It replaces the previous one of its reporter.
/// An engine reports it after each change and every five minutes. An older platform ignores it, and
/// shows no certificates for an older engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCertificatesRecord {
    /// At most [`Self::MAX_CERTIFICATES`].
    pub certificates: Vec<EngineCertificate>,
}

/// A certificate of an engine's own names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCertificate {
    /// [`Self::FILES`] or [`Self::ACME`]. A later version may have other sources.
    pub source: String,
    /// Names of the certificate, or those that are ordered; at most [`Self::MAX_NAMES`].
    pub names: Vec<String>,
    /// Expiry of the certificate; absent until there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Reason of the last failure, with the text of the authority, of at most
    /// [`MAX_PROBLEM_BYTES`](super::MAX_PROBLEM_BYTES); absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

impl EngineCertificatesRecord {
    /// Maximum number of certificates. An engine has at most one from files and one from an authority.
    pub const MAX_CERTIFICATES: usize = 8;
}

impl EngineCertificate {
    /// The certificate is from files.
    pub const FILES: &str = "files";
    /// The engine orders the certificate from an authority.
    pub const ACME: &str = "acme";
    /// Maximum length of the source, in bytes.
    pub const MAX_SOURCE_BYTES: usize = 16;
    /// Maximum number of names. Authorities allow as many in one certificate.
    pub const MAX_NAMES: usize = 100;
    /// Maximum length of a name, in bytes (RFC 1035 section 2.3.4).
    pub const MAX_NAME_BYTES: usize = 253;
}
