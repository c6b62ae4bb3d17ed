//! TLS of a service with one name: a certificate from files, from an authority, or from both.

use std::net::SocketAddr;
use std::sync::Arc;

use daemon::clock::Clock;
use daemon::config::{ConfigError, Warning};
use daemon::tls::{CertFiles, ReloadingCert, TlsError};

use crate::certificates::Certificates;
use crate::error::OrderError;
use crate::section::inspect;
use crate::settings::Settings;

/// The checked values, with at least one source of certificates.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The certificate from files.
    pub files: Option<CertFiles>,
    /// The certificate that the process orders itself.
    pub acme: Option<Settings>,
    /// Address and port of the listener for plain HTTP; `None` if there is none.
    pub http_listen: Option<SocketAddr>,
}

impl TlsConfig {
    /// Reads the files and the state of earlier orders.
    ///
    /// # Errors
    /// A file or the state cannot be used.
    pub fn open<E>(&self, clock: &Arc<dyn Clock>) -> Result<Certificates, E>
    where
        E: From<TlsError> + From<OrderError>,
    {
        let files = self.files.clone();
        let files = files.map(|files| ReloadingCert::load(files, daemon::tls::provider()));
        let files = files.transpose()?;
        Ok(Certificates::open(files, self.acme.as_ref(), clock)?)
    }

    /// Adds warnings about the certificate in the files and about the last order. The keys are those
    /// of the certificate's file, of the key's file, and of the section for orders.
    ///
    /// # Errors
    /// A file cannot be used; the error has its key.
    pub fn inspect(
        &self,
        [cert_key, key_key, acme_key]: [&'static str; 3],
        now: i64,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), ConfigError> {
        if let Some(settings) = &self.acme {
            inspect(settings, acme_key, warnings)?;
        }
        if let Some(files) = &self.files {
            daemon::tls::inspect(files, [cert_key, key_key], now, warnings)?;
        }
        Ok(())
    }
}
