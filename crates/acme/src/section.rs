//! `certs.acme`: the certificate that the engine orders itself.

use std::path::Path;
use std::time::Duration;

use acme::{ChallengeKind, DnsProgram, ExternalAccount, KeyType, Settings};
use daemon::config::values::{optional_path, path, required, within};
use daemon::config::{ConfigError, ConfigErrors, values};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::is_loopback;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AcmeSection {
    /// Address of the authority's directory. https, or http on loopback.
    #[schemars(example = "https://acme-staging-v02.api.letsencrypt.org/directory")]
    pub(super) directory: String,
    /// Confirms that you agree to the authority's terms of service. Required: `true`.
    pub(super) terms_agreed: bool,
    /// Mail addresses that the authority may notify.
    #[schemars(example = ["admin@example.com"])]
    pub(super) contact: Vec<String>,
    /// Challenges that prove control over the names. `tls-alpn-01` needs port 443 of the names to
    /// reach `tls.listen_addr`, and `http-01` needs port 80 to reach `http.listen_addr`. The first
    /// one is preferred; after a failure the engine tries the next one. `dns-01` needs `dns_program`
    /// and is always used for wildcards: only with it the certificate includes `*.t.<host>`, and on
    /// a managed engine `*.<host>`.
    #[schemars(example = ["tls-alpn-01", "dns-01"])]
    pub(super) challenges: Vec<ChallengeForm>,
    /// The program for `dns-01`. It is called as `PROGRAM present NAME VALUE` and must add a TXT
    /// record with that value, and keep others of the same name. It is called as `PROGRAM cleanup
    /// NAME VALUE` when the record is no longer needed. It must end with status 0.
    #[schemars(example = "/etc/svc/dns-record")]
    pub(super) dns_program: Option<String>,
    /// Time limit of a call of `dns_program` in seconds. Then it is killed. 1 to 1800.
    pub(super) dns_program_timeout_seconds: u32,
    /// Seconds between the last record and the request for its validation, until all of your name
    /// servers have it. 0 to 3600.
    pub(super) dns_propagation_seconds: u32,
    /// Type of the certificate's key: `p256` or `p384`. A change applies to the next order.
    pub(super) key_type: KeyForm,
    /// A PEM file of authorities for checking the certificate of `directory`, instead of the
    /// system's.
    #[schemars(example = "/etc/svc/acme-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// An account that the authority created otherwise. Some authorities require it.
    pub(super) external_account: Option<ExternalAccountSection>,
    /// The directory for account, certificate and unfinished orders. It contains private keys.
    /// Engines with the same directory on one machine share the certificate. Without this key it is
    /// `acme` in the first entry of `$STATE_DIRECTORY` (as systemd sets it), else in
    /// `svc/engine/<host>` in `$XDG_STATE_HOME` or `~/.local/state`.
    #[schemars(example = "/var/lib/svc/engine/acme")]
    pub(super) state_dir: Option<String>,
}

impl Default for AcmeSection {
    fn default() -> Self {
        Self {
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            terms_agreed: false,
            contact: Vec::new(),
            challenges: vec![ChallengeForm::TlsAlpn01],
            dns_program: None,
            dns_program_timeout_seconds: 120,
            dns_propagation_seconds: 30,
            key_type: KeyForm::P256,
            ca_file: None,
            external_account: None,
            state_dir: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub(super) enum ChallengeForm {
    /// A file on port 80.
    #[serde(rename = "http-01")]
    Http01,
    /// A handshake on port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A TXT record.
    #[serde(rename = "dns-01")]
    Dns01,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyForm {
    /// ECDSA with P-256.
    P256,
    /// ECDSA with P-384.
    P384,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExternalAccountSection {
    /// The identifier of the key. Required in this section.
    #[schemars(example = "kid-1")]
    pub(super) key_id: Option<String>,
    /// The file with the key in base64url. Required in this section.
    #[schemars(example = "/etc/svc/acme-key")]
    pub(super) key_file: Option<String>,
}

/// The parts of the configuration that the section depends on.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) is_managed: bool,
    pub(super) has_plain_listener: bool,
    /// The default directory of the engine's state.
    pub(super) state_dir: Option<&'a Path>,
}

/// Checks the section.
///
/// # Errors
/// All mistakes.
pub(super) fn check(section: AcmeSection, place: &Place<'_>) -> Result<Settings, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let settings = check_values(section, place, &mut errors);
    errors.finish(settings)
}

fn check_values(
    section: AcmeSection,
    place: &Place<'_>,
    errors: &mut ConfigErrors,
) -> Option<Settings> {
    if !section.terms_agreed {
        let message = "the authority requires that you agree to its terms of service; read them \
                       and set this to true";
        errors.push(ConfigError::new("certs.acme.terms_agreed", message));
    }
    let directory = errors.keep(directory(section.directory));
    let contact = errors.keep(contact(&section.contact));
    let has_dns = section.challenges.contains(&ChallengeForm::Dns01);
    let challenges = errors.keep(challenges(&section.challenges, place));
    let timeout = seconds(
        "dns_program_timeout_seconds",
        section.dns_program_timeout_seconds,
        1..=1800,
    );
    let propagation = seconds(
        "dns_propagation_seconds",
        section.dns_propagation_seconds,
        0..=3600,
    );
    let (timeout, propagation) = (errors.keep(timeout), errors.keep(propagation));
    let program = errors.keep(dns_program(section.dns_program, has_dns));
    let ca_file = errors.keep(optional_path("certs.acme.ca_file", section.ca_file));
    let external_account = section.external_account.map(external_account);
    let external_account = errors.keep(external_account.transpose());
    let default = place.state_dir.map(|dir| dir.join("acme"));
    let state_dir = values::state_dir("certs.acme.state_dir", section.state_dir, default);
    let state_dir = errors.keep(state_dir);
    let (timeout, propagation) = (timeout?, propagation?);
    Some(Settings {
        directory: directory?,
        contact: contact?,
        external_account: external_account?,
        key_type: match section.key_type {
            KeyForm::P256 => KeyType::P256,
            KeyForm::P384 => KeyType::P384,
        },
        ca_file: ca_file?,
        challenges: challenges?,
        dns: program?.map(|path| DnsProgram {
            path,
            timeout,
            propagation,
        }),
        names: names(place, has_dns),
        state_dir: state_dir?,
        first_retry: FIRST_RETRY,
    })
}

/// The names of the certificate. Wildcards need DNS records.
fn names(place: &Place<'_>, has_dns: bool) -> Vec<String> {
    let mut names = vec![place.host.to_owned()];
    if has_dns {
        names.push(format!("*.t.{}", place.host));
        if place.is_managed {
            names.push(format!("*.{}", place.host));
        }
    }
    names
}

fn directory(value: String) -> Result<String, ConfigError> {
    let key = "certs.acme.directory";
    let invalid = || ConfigError::new(key, "this is not an https address");
    let uri: http::Uri = value.parse().map_err(|_| invalid())?;
    let host = uri.host().ok_or_else(invalid)?;
    let authority = uri.authority().ok_or_else(invalid)?;
    if authority.as_str().contains('@') {
        let message = "an address with a user name is not supported";
        return Err(ConfigError::new(key, message));
    }
    match uri.scheme_str() {
        Some("https") => Ok(value),
        Some("http") if is_loopback(host) => Ok(value),
        Some("http") => Err(ConfigError::new(
            key,
            "http is allowed only on loopback; use https",
        )),
        _ => Err(invalid()),
    }
}

/// Mail addresses as the protocol names them.
fn contact(addresses: &[String]) -> Result<Vec<String>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut contact = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let is_address = address.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains('@')
        });
        if is_address && address.bytes().all(|byte| byte.is_ascii_graphic()) {
            contact.push(format!("mailto:{address}"));
        } else {
            let key = format!("certs.acme.contact.{index}");
            errors.push(ConfigError::new(key, "this is not a mail address"));
        }
    }
    errors.finish(Some(contact))
}

fn challenges(
    forms: &[ChallengeForm],
    place: &Place<'_>,
) -> Result<Vec<ChallengeKind>, ConfigError> {
    let key = "certs.acme.challenges";
    if forms.is_empty() {
        return Err(ConfigError::new(key, "at least one challenge is required"));
    }
    if forms.contains(&ChallengeForm::Http01) && !place.has_plain_listener {
        let message = "http-01 is answered by the plain listener; set http.enabled, or remove it";
        return Err(ConfigError::new(key, message));
    }
    let kinds = forms.iter().map(|form| match form {
        ChallengeForm::Http01 => ChallengeKind::Http01,
        ChallengeForm::TlsAlpn01 => ChallengeKind::TlsAlpn01,
        ChallengeForm::Dns01 => ChallengeKind::Dns01,
    });
    let mut unique = Vec::new();
    for kind in kinds {
        if unique.contains(&kind) {
            let message = format!("{} is listed twice", kind.name());
            return Err(ConfigError::new(key, message));
        }
        unique.push(kind);
    }
    Ok(unique)
}

fn dns_program(
    value: Option<String>,
    has_dns: bool,
) -> Result<Option<std::path::PathBuf>, ConfigError> {
    let key = "certs.acme.dns_program";
    match value {
        Some(_) if !has_dns => {
            let message = "the program is not used; add dns-01 to certs.acme.challenges";
            Err(ConfigError::new(key, message))
        }
        Some(value) => path(key, value).map(Some),
        None if has_dns => {
            let message = "this key is required, because certs.acme.challenges has dns-01";
            Err(ConfigError::new(key, message))
        }
        None => Ok(None),
    }
}

fn external_account(section: ExternalAccountSection) -> Result<ExternalAccount, ConfigError> {
    let key = "certs.acme.external_account.key_file";
    Ok(ExternalAccount {
        key_id: required("certs.acme.external_account.key_id", section.key_id)?,
        key_file: required(key, section.key_file).and_then(|file| path(key, file))?,
    })
}

fn seconds(
    name: &str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<Duration, ConfigError> {
    let seconds = within(&format!("certs.acme.{name}"), value, range)?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Public authorities allow five failed validations of a name in an hour. The first five attempts
/// take four to eight minutes, and the authority then requests a delay.
const FIRST_RETRY: Duration = Duration::from_secs(30);
