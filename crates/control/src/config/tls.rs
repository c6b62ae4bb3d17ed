//! The `tls` section of the configuration.

use std::net::SocketAddr;
use std::path::Path;

use acme::{AcmeSection, SectionContext, TlsConfig};
use daemon::config::values::{address, overlap, path};
use daemon::config::{ConfigError, ConfigErrors};
use daemon::tls::CertFiles;
use schemars::JsonSchema;
use serde::Deserialize;

use super::host_of;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    /// The certificate chain, PEM, with the platform's own certificate first. Both files are
    /// checked for changes at a handshake, at most once a second, so replacing them needs no
    /// restart. If a pair is broken or does not match, the previous one stays in use.
    #[schemars(example = "/etc/svc/tls/fullchain.pem")]
    cert_file: Option<String>,
    /// The private key, PEM.
    #[schemars(example = "/etc/svc/tls/privkey.pem")]
    key_file: Option<String>,
    /// Address and port of a listener for plain HTTP. It redirects to `platform.base_url`, and
    /// answers `http-01` of `tls.acme`. Absent: none.
    #[schemars(example = "[::]:80")]
    http_listen_addr: Option<String>,
    /// Each connection to `platform.listen_addr` starts with a header of the PROXY protocol (version 1
    /// or 2), which names its source: the listener is behind an engine (`tls.routes`) or another
    /// proxy that forwards TLS. Only peers on loopback and in `platform.trusted_proxies` may connect.
    /// The listener of `tls.http_listen_addr` expects no header.
    proxy_protocol: bool,
    /// A certificate for the host of `platform.base_url` that the platform orders and renews itself,
    /// from an authority that uses ACME (RFC 8555). With `tls.cert_file` as well, a handshake gets
    /// the certificate that has its server name; if both have it, the one that expires later.
    acme: Option<AcmeSection>,
}

/// Values of other sections, as far as they are valid.
#[derive(Debug)]
pub(super) struct OtherValues<'a> {
    pub(super) base_url: Option<&'a str>,
    pub(super) listen: Option<SocketAddr>,
    pub(super) data_dir: Option<&'a Path>,
    pub(super) has_trusted_proxies: bool,
}

/// The checked values of the section.
#[derive(Debug, Default)]
pub(super) struct CheckedTls {
    /// `None` without TLS.
    pub(super) tls: Option<TlsConfig>,
    /// True if a proxy names the source of each connection.
    pub(super) has_proxy: bool,
}

impl TlsSection {
    /// The checked values.
    ///
    /// # Errors
    /// All mistakes.
    pub(super) fn check(self, others: &OtherValues<'_>) -> Result<CheckedTls, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let has_http = self.http_listen_addr.is_some();
        let files = errors.keep_or_default(files(self.cert_file, self.key_file));
        let http_listen = self.http_listen_addr.as_deref();
        let http_listen = http_listen.map(|value| address(HTTP_KEY, value, "[::]:80"));
        let http_listen = errors.keep_or_default(http_listen.transpose());
        let has_acme = self.acme.is_some();
        let context = SectionContext {
            key: "tls.acme",
            // A wrong address does not make the name wrong as well.
            host: others.base_url.map_or("platform", host_of),
            host_key: "platform.base_url",
            wildcards: &[],
            other_names: &[],
            plain_key: HTTP_KEY,
            has_plain_listener: has_http,
            can_respond: false,
            // A wrong directory is an error of its own key.
            state_dir: Some(others.data_dir.unwrap_or(Path::new(""))),
        };
        let acme = self.acme.map(|section| section.check(&context));
        let acme = errors.keep_or_default(acme.transpose());
        let is_plain = others
            .base_url
            .is_some_and(|url| url.starts_with("http://"));
        if is_plain && (files.is_some() || has_acme) {
            let key = if has_acme {
                context.key
            } else {
                "tls.cert_file"
            };
            let message = "the listener uses TLS, so platform.base_url must be https";
            errors.push(ConfigError::new(key, message));
        }
        if has_http && files.is_none() && !has_acme && errors.is_empty() {
            let message = "plain HTTP is redirected to TLS; set tls.cert_file or tls.acme, or \
                           remove this key";
            errors.push(ConfigError::new(HTTP_KEY, message));
        }
        if let (Some(http), Some(listen)) = (http_listen, others.listen)
            && http.port() != 0
            && overlap(http, listen)
        {
            let port = http.port();
            let message = format!("port {port} is already used by platform.listen_addr");
            errors.push(ConfigError::new(HTTP_KEY, message));
        }
        if self.proxy_protocol {
            errors.keep(proxies(files.is_some() || has_acme, others));
        }
        let config = TlsConfig {
            files,
            acme,
            http_listen,
        };
        let is_enabled = config.files.is_some() || config.acme.is_some();
        errors.finish(Some(CheckedTls {
            tls: is_enabled.then_some(config),
            has_proxy: self.proxy_protocol,
        }))
    }
}

/// Checks that a header can only come from a proxy.
fn proxies(has_certificate: bool, others: &OtherValues<'_>) -> Result<(), ConfigError> {
    if !has_certificate {
        let message = "the proxy forwards TLS, so the listener needs a certificate; set \
                       tls.cert_file or tls.acme, or remove this key";
        return Err(ConfigError::new(PROXY_KEY, message));
    }
    let is_public = others
        .listen
        .is_some_and(|listen| !listen.ip().is_loopback());
    if is_public && !others.has_trusted_proxies {
        let message = "every peer of platform.listen_addr would be refused, except on loopback; set \
                       platform.trusted_proxies, or listen on loopback";
        return Err(ConfigError::new(PROXY_KEY, message));
    }
    Ok(())
}

/// Both files, or none.
fn files(cert: Option<String>, key: Option<String>) -> Result<Option<CertFiles>, ConfigError> {
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(CertFiles {
            cert: path("tls.cert_file", cert)?,
            key: path("tls.key_file", key)?,
        })),
        (Some(_), None) => Err(ConfigError::new("tls.key_file", TOGETHER)),
        (None, Some(_)) => Err(ConfigError::new("tls.cert_file", TOGETHER)),
    }
}

const PROXY_KEY: &str = "tls.proxy_protocol";
const HTTP_KEY: &str = "tls.http_listen_addr";
const TOGETHER: &str = "tls.cert_file and tls.key_file must be set together";
