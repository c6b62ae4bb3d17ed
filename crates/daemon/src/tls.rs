//! TLS: the crypto provider, and a certificate that is reloaded when its files change (EN-12).

mod domain_expiry;
mod inspect;
mod names;
mod pair;
mod reload;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};

pub use self::domain_expiry::{DOMAIN_EXPIRY_METRIC, export_domain_expiry};
pub use self::inspect::inspect;
pub use self::names::{covers, names_of, warn_missing_names};
pub use self::pair::{CertFiles, RejectionReason, TlsError};
pub use self::reload::{CHECK_INTERVAL, EXPIRY_METRIC, RELOADS_METRIC, ReloadingCert};

/// The provider that every TLS configuration of a process shares.
///
/// AES-128-GCM is first: it needs the fewest cycles per byte without weakening any visitor's
/// connection. The order only matters if the configuration sets `ignore_client_order`; `ChaCha20`
/// stays for clients that offer nothing else. The key exchange is the library's default: the
/// post-quantum hybrid, then X25519.
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
