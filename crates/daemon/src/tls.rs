//! TLS material: the one crypto provider, and a certificate that follows its files (EN-12).

mod names;
mod pair;
mod reload;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};

pub use self::names::warn_missing_names;
pub use self::pair::{CertFiles, TlsError, Unfit};
pub use self::reload::{CHECK_INTERVAL, EXPIRY_METRIC, RELOADS_METRIC, ReloadingCert};

/// The provider that every TLS configuration of a process shares.
///
/// AES-128-GCM leads: it needs the fewest cycles a byte and no visitor is weaker for it. The order
/// only decides where the configuration sets `ignore_client_order`; `ChaCha20` stays for those who
/// offer nothing else. Key exchange is the library's: the post-quantum hybrid, then X25519.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            ],
            ..aws_lc_rs::default_provider()
        })
    });
    Arc::clone(&PROVIDER)
}
