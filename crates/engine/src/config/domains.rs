//! `domains`: names outside the engine's own host under which tunnels are published.

use std::collections::HashSet;

use daemon::config::values::{optional_path, required};
use daemon::config::{ConfigError, ConfigErrors, Warning};
use daemon::tls::{self, CertFiles, ReloadingCert};
use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use schemars::JsonSchema;
use serde::Deserialize;
use types::domain_name::DomainName;

use super::tls_routes::TlsRoutes;
use crate::domains::{MAX_DOMAINS, can_be_ordered};

/// A custom domain of a community engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// The name.
    pub name: DomainName,
    /// The files of its certificate; `None`: it is ordered, or the engine's own certificate has the
    /// name.
    pub certificate: Option<CertFiles>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DomainSection {
    /// The name, in letters of any script: `app.example.com`, or `*.app.example.com` for all names
    /// one label below. Required. It must be no public suffix, not be below `engine.host`, and have
    /// no route in `tls.routes`.
    #[schemars(example = "app.example.com")]
    pub(super) name: Option<String>,
    /// The certificate chain of this domain, PEM. Replaced files are read again, as those of
    /// `certs.static`. Without files `certs.acme` orders a certificate; one for a wildcard needs
    /// `dns-01`.
    #[schemars(example = "/etc/svc/tls/app.example.com.pem")]
    pub(super) cert_file: Option<String>,
    /// The private key, PEM. Required with `cert_file`.
    #[schemars(example = "/etc/svc/tls/app.example.com.key")]
    pub(super) key_file: Option<String>,
}

/// Checks the section. `host` is `engine.host` in lower case, if it is valid.
///
/// # Errors
/// All mistakes.
pub(super) fn check(
    sections: Vec<DomainSection>,
    (host, is_managed): (Option<&str>, bool),
    routes: &TlsRoutes,
) -> Result<Vec<DomainConfig>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    if is_managed && !sections.is_empty() {
        let message = "a managed engine gets the domains of its projects from the platform; remove \
                       this key, and add them with `svc domain add`";
        errors.push(ConfigError::new("domains", message));
        return errors.finish(None);
    }
    if sections.len() > MAX_DOMAINS {
        let message = format!("an engine has at most {MAX_DOMAINS} domains");
        errors.push(ConfigError::new("domains", message));
        return errors.finish(None);
    }
    let mut names = HashSet::new();
    let mut domains = Vec::with_capacity(sections.len());
    for (index, section) in sections.into_iter().enumerate() {
        let certificate = errors.keep(files(index, section.cert_file, section.key_file));
        let name = errors.keep(name(index, section.name, (host, routes), &mut names));
        if let (Some(name), Some(certificate)) = (name, certificate) {
            domains.push(DomainConfig { name, certificate });
        }
    }
    errors.finish(Some(domains))
}

/// Names of domains for which `certs.acme` may order certificates.
pub(super) fn names_without_files(domains: &[DomainConfig]) -> Vec<String> {
    let others = domains.iter().filter(|domain| domain.certificate.is_none());
    others.map(|domain| domain.name.to_string()).collect()
}

fn name(
    index: usize,
    value: Option<String>,
    (host, routes): (Option<&str>, &TlsRoutes),
    names: &mut HashSet<DomainName>,
) -> Result<DomainName, ConfigError> {
    let key = format!("domains.{index}.name");
    let text = required(&key, value)?;
    let refused = |problem: &str| ConfigError::new(key.clone(), format!("{text:?}: {problem}"));
    let name = text.parse::<DomainName>();
    let name = name.map_err(|error| refused(&error.to_string()))?;
    if host.is_some_and(|host| name.is_within(host)) {
        return Err(refused(
            "this is the engine's own host or below it; tunnels have names below t.<host> without \
             this key",
        ));
    }
    if routes.get(name.as_str()).is_some() {
        return Err(refused(
            "tls.routes leads this name to another server; remove it here or there",
        ));
    }
    if !names.insert(name.clone()) {
        return Err(refused(
            "the name is listed twice; remove one of the entries",
        ));
    }
    Ok(name)
}

fn files(
    index: usize,
    cert_file: Option<String>,
    key_file: Option<String>,
) -> Result<Option<CertFiles>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let (cert_key, key_key) = (
        format!("domains.{index}.cert_file"),
        format!("domains.{index}.key_file"),
    );
    let cert = errors.keep(optional_path(&cert_key, cert_file)).flatten();
    let key = errors.keep(optional_path(&key_key, key_file)).flatten();
    let files = match (cert, key) {
        (Some(cert), Some(key)) => Some(CertFiles { cert, key }),
        (None, None) => None,
        (Some(_), None) if errors.is_empty() => {
            errors.push(ConfigError::new(
                key_key,
                "this key is required with cert_file",
            ));
            None
        }
        (None, Some(_)) if errors.is_empty() => {
            errors.push(ConfigError::new(
                cert_key,
                "this key is required with key_file",
            ));
            None
        }
        _ => None,
    };
    errors.finish(Some(files))
}

/// Reads the files of the domains. Adds the errors, and a warning about each domain for which
/// visitors get no usable certificate. `own` is the certificate of `certs.static`.
pub(super) fn inspect(
    domains: &[DomainConfig],
    acme: Option<&acme::Settings>,
    own: Option<&ReloadingCert>,
    now: i64,
    warnings: &mut Vec<Warning>,
    errors: &mut ConfigErrors,
) {
    for (index, domain) in domains.iter().enumerate() {
        let name = &domain.name;
        let mut warn = |message: String| warnings.push(Warning::new("domains", message));
        if let Some(files) = &domain.certificate {
            match inspect_files(index, name, files, now) {
                Ok(messages) => {
                    for message in messages {
                        warn(message);
                    }
                }
                Err(error) => errors.push(error),
            }
            continue;
        }
        match acme {
            Some(settings) if can_be_ordered(name, settings) => {
                let state_dir = acme::domain_state_dir(&settings.state_dir, name.as_str());
                if let Some(problem) = acme::last_problem(&state_dir) {
                    warn(format!(
                        "the last order of a certificate for {name} failed: {problem}"
                    ));
                }
            }
            _ if own.is_some_and(|own| has_name(own, name)) => {}
            Some(_) => warn(format!(
                "{name} has no certificate: a wildcard needs dns-01 in certs.acme.challenges, or \
                 cert_file and key_file"
            )),
            None => warn(format!(
                "{name} has no certificate: set cert_file and key_file, or certs.acme"
            )),
        }
    }
}

/// The warnings about the files of one domain.
fn inspect_files(
    index: usize,
    name: &DomainName,
    files: &CertFiles,
    now: i64,
) -> Result<Vec<String>, ConfigError> {
    let mut found = Vec::new();
    let keys = ["cert_file", "key_file"];
    let pair = tls::inspect(files, keys, now, &mut found).map_err(|error| {
        ConfigError::new(format!("domains.{index}.{}", error.key), error.message)
    })?;
    let about = |warning: Warning| format!("{name}: {}", warning.message);
    let mut messages: Vec<_> = found.into_iter().map(about).collect();
    if !has_name(&pair, name) {
        messages.push(format!("{name}: the certificate does not include the name"));
    }
    Ok(messages)
}

/// True if visitors of a domain accept a certificate. A wildcard is checked with a name below it.
fn has_name(pair: &ReloadingCert, name: &DomainName) -> bool {
    let probe = if name.is_wildcard() {
        format!("a.{}", name.base())
    } else {
        name.as_str().to_owned()
    };
    let Some(certificate) = pair.certificate() else {
        return false;
    };
    let (Ok(parsed), Ok(probe)) = (
        ParsedCertificate::try_from(&certificate),
        ServerName::try_from(probe),
    ) else {
        return false;
    };
    verify_server_name(&parsed, &probe).is_ok()
}
