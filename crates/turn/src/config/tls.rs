//! The section `turn.tls`.

use std::path::Path;

use acme::{AcmeSection, SectionContext, TlsConfig};
use daemon::config::values::{address, path};
use daemon::config::{ConfigError, ConfigErrors};
use daemon::tls::CertFiles;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    /// The certificate chain, PEM. The file is checked for changes during handshakes, at most once
    /// a second, so replacing it needs no restart.
    #[schemars(example = "/etc/svc/tls/fullchain.pem")]
    cert_file: Option<String>,
    /// The private key, PEM.
    #[schemars(example = "/etc/svc/tls/privkey.pem")]
    key_file: Option<String>,
    /// The host name of the relay, for which `turn.tls.acme` orders a certificate: `turn.domain` of
    /// the platform. Default: `turn.realm`.
    #[schemars(example = "turn.example.com")]
    host: Option<String>,
    /// Address and port of a listener for plain HTTP, which only answers `http-01` of
    /// `turn.tls.acme`. Absent: none.
    #[schemars(example = "203.0.113.7:80")]
    http_listen_addr: Option<String>,
    /// A certificate that the relay orders and renews itself, from an authority that uses ACME (RFC
    /// 8555). `tls-alpn-01` needs an address with port 443 in `turn.tls_listen_addr`, or a
    /// forwarding of that port. With `turn.tls.cert_file` as well, a handshake gets the certificate
    /// that has its server name; if both have it, the one that expires later.
    acme: Option<AcmeSection>,
}

/// Values of other keys, as far as they are valid.
#[derive(Debug)]
pub(super) struct OtherValues<'a> {
    pub(super) realm: &'a str,
    pub(super) has_listener: bool,
    pub(super) state_dir: Option<&'a Path>,
}

impl TlsSection {
    /// The checked values; `None` without a certificate.
    ///
    /// # Errors
    /// All mistakes.
    pub(super) fn check(self, others: &OtherValues<'_>) -> Result<Option<TlsConfig>, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        if self.acme.is_some() {
            if !others.has_listener {
                let message = "nothing uses the certificate; set turn.tls_listen_addr";
                errors.push(ConfigError::new(ACME_KEY, message));
            }
        } else {
            for (key, is_set) in [
                (HOST_KEY, self.host.is_some()),
                (HTTP_KEY, self.http_listen_addr.is_some()),
            ] {
                if is_set {
                    let message = "only turn.tls.acme uses this key; set that section, or remove \
                                   this key";
                    errors.push(ConfigError::new(key, message));
                }
            }
        }
        let is_named = self.cert_file.is_some() || self.key_file.is_some();
        let needs_files = is_named || (others.has_listener && self.acme.is_none());
        let files = needs_files.then(|| files(self.cert_file, self.key_file));
        let files = errors.keep_or_default(files.transpose());
        let http_listen = self.http_listen_addr.as_deref();
        let http_listen = http_listen.map(|value| address(HTTP_KEY, value, "203.0.113.7:80"));
        let host = self.host.as_deref();
        let context = SectionContext {
            key: ACME_KEY,
            host: host.unwrap_or(others.realm),
            host_key: HOST_KEY,
            wildcards: &[],
            other_names: &[],
            plain_key: HTTP_KEY,
            has_plain_listener: http_listen.is_some(),
            can_respond: false,
            state_dir: others.state_dir,
        };
        let http_listen = errors.keep_or_default(http_listen.transpose());
        let acme = self.acme.map(|section| section.check(&context));
        let config = TlsConfig {
            files,
            acme: errors.keep_or_default(acme.transpose()),
            http_listen,
        };
        let has_source = config.files.is_some() || config.acme.is_some();
        errors.finish(Some(has_source.then_some(config)))
    }
}

fn files(cert: Option<String>, key: Option<String>) -> Result<CertFiles, ConfigError> {
    let file = |key, value: Option<String>| {
        let message = "this key is required with a TLS listener; or set turn.tls.acme";
        path(key, value.ok_or_else(|| ConfigError::new(key, message))?)
    };
    Ok(CertFiles {
        cert: file("turn.tls.cert_file", cert)?,
        key: file("turn.tls.key_file", key)?,
    })
}

const ACME_KEY: &str = "turn.tls.acme";
const HOST_KEY: &str = "turn.tls.host";
const HTTP_KEY: &str = "turn.tls.http_listen_addr";
