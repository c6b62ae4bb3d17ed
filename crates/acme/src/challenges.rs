//! Answers to the challenges of pending orders. The listeners of the process look them up.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::error::OrderError;

/// The only protocol (ALPN) of a validation over TLS (RFC 8737 section 3).
const TLS_ALPN: &[u8] = b"acme-tls/1";

/// The path of a validation over HTTP, before the token.
const HTTP_PATH: &str = "/.well-known/acme-challenge/";

/// Media type of an answer over HTTP (RFC 8555 section 8.3).
pub const HTTP_CONTENT_TYPE: &str = "application/octet-stream";

/// Answers to the challenges of pending orders; empty almost always.
#[derive(Default)]
pub struct Challenges {
    /// Number of answers. Handshakes and requests read only this while there is none.
    pending: AtomicUsize,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    /// By token.
    http: HashMap<String, String>,
    /// By name, in lower case.
    tls: HashMap<String, Arc<ServerConfig>>,
}

/// Returns true if an authority may use a token (RFC 8555 section 8.1): it becomes part of a response
/// and of a path.
pub(crate) fn is_token(token: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_TOKEN_BYTES).contains(&token.len()) && token.bytes().all(is_allowed)
}

/// Public authorities use 43 characters.
const MAX_TOKEN_BYTES: usize = 256;

/// An answer, which is removed when this is dropped.
pub(crate) struct PendingAnswer {
    challenges: Arc<Challenges>,
    key: AnswerKey,
}

enum AnswerKey {
    Http(String),
    Tls(String),
}

impl Challenges {
    /// Returns true while the authority may ask. It costs one load.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// The body for a path, `/.well-known/acme-challenge/<token>` (RFC 8555 section 8.3). `None`
    /// for all other paths.
    pub fn http_answer(&self, path: &str) -> Option<String> {
        if !self.is_pending() {
            return None;
        }
        let token = path.strip_prefix(HTTP_PATH)?;
        self.answers.lock().http.get(token).cloned()
    }

    /// The configuration for an authority that validates a name (RFC 8737). `None` for all other
    /// handshakes; while no order is pending, that costs one load.
    pub fn handshake_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        if !self.is_pending() {
            return None;
        }
        let mut protocols = hello.alpn()?;
        if protocols.next() != Some(TLS_ALPN) || protocols.next().is_some() {
            return None;
        }
        self.tls_config(&hello.server_name()?.to_ascii_lowercase())
    }

    /// The configuration of a handshake for [`TLS_ALPN`] with this server name, in lower case.
    fn tls_config(&self, name: &str) -> Option<Arc<ServerConfig>> {
        self.answers.lock().tls.get(name).map(Arc::clone)
    }

    /// Serves the answer to a challenge over HTTP.
    pub(crate) fn answer_http(self: &Arc<Self>, token: String, answer: String) -> PendingAnswer {
        self.answers.lock().http.insert(token.clone(), answer);
        self.pending(AnswerKey::Http(token))
    }

    /// Serves the answer to a challenge over TLS.
    ///
    /// # Errors
    /// The library of certificates or of TLS fails.
    pub(crate) fn answer_tls(
        self: &Arc<Self>,
        name: &str,
        digest: &[u8],
        provider: &Arc<CryptoProvider>,
    ) -> Result<PendingAnswer, OrderError> {
        let config = tls_config(name, digest, provider).map_err(OrderError::internal)?;
        let name = name.to_ascii_lowercase();
        self.answers.lock().tls.insert(name.clone(), config);
        Ok(self.pending(AnswerKey::Tls(name)))
    }

    fn pending(self: &Arc<Self>, key: AnswerKey) -> PendingAnswer {
        self.pending.fetch_add(1, Ordering::AcqRel);
        PendingAnswer {
            challenges: Arc::clone(self),
            key,
        }
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenges")
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        let mut answers = self.challenges.answers.lock();
        match &self.key {
            AnswerKey::Http(token) => drop(answers.http.remove(token)),
            AnswerKey::Tls(name) => drop(answers.tls.remove(name)),
        }
        self.challenges.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A self-signed certificate with the digest of the answer (RFC 8737 section 3).
fn tls_config(
    name: &str,
    digest: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, Box<dyn std::error::Error + Send + Sync>> {
    // The library panics for a digest of another length.
    if digest.len() != SHA256_BYTES {
        return Err("the digest of the challenge has a wrong length".into());
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params
        .custom_extensions
        .push(CustomExtension::new_acme_identifier(digest));
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = provider.key_provider.load_private_key(key)?;
    // `with_single_cert` parses the certificate and refuses the critical extension of the challenge.
    let certificate = CertifiedKey::new(vec![certificate.der().clone()], key);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)));
    config.alpn_protocols = vec![TLS_ALPN.to_vec()];
    Ok(Arc::new(config))
}

const SHA256_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_exist_only_while_their_order_is_pending() {
        let challenges = Arc::new(Challenges::default());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        assert!(!challenges.is_pending());
        let http = challenges.answer_http("token".to_owned(), "token.thumb".to_owned());
        let tls = challenges
            .answer_tls("Name.example", &[7; 32], &provider)
            .unwrap();
        assert!(challenges.is_pending());
        let path = format!("{HTTP_PATH}token");
        assert_eq!(challenges.http_answer(&path).unwrap(), "token.thumb");
        assert_eq!(challenges.http_answer(&format!("{HTTP_PATH}other")), None);
        assert_eq!(challenges.http_answer("/token"), None);
        let config = challenges.tls_config("name.example").unwrap();
        assert_eq!(config.alpn_protocols, [TLS_ALPN]);
        assert!(challenges.tls_config("other.example").is_none());
        drop(http);
        assert_eq!(challenges.http_answer(&path), None);
        assert!(challenges.is_pending());
        drop(tls);
        assert!(challenges.tls_config("name.example").is_none());
        assert!(!challenges.is_pending());
    }

    #[test]
    fn tokens_have_no_other_characters() {
        for token in ["LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0", "a-_9"] {
            assert!(is_token(token), "{token}");
        }
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        for token in ["", "a/b", "..", "<b>", "a b", "a\r\n", "\u{e9}", &long] {
            assert!(!is_token(token), "{token}");
        }
    }

    #[test]
    fn a_wrong_digest_is_an_error() {
        let challenges = Arc::new(Challenges::default());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        assert!(
            challenges
                .answer_tls("a.example", b"short", &provider)
                .is_err()
        );
        assert!(!challenges.is_pending());
    }
}
