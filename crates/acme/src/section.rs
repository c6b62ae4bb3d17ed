//! The section of a configuration file for a certificate that the process orders itself, the same
//! for every service: `certs.acme` of an engine, `tls.acme` of a platform, `turn.tls.acme` of a
//! relay.

use std::net::Ipv4Addr;
use std::time::Duration;

use daemon::config::values::{is_dns_name, is_loopback, optional_path, path, required, within};
use daemon::config::{ConfigError, ConfigErrors, Warning, values};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dns_challenge::section::{
    self as dns_section, DnsContext, DnsForms, DnsResponderSection, DnsUpdateSection,
};
use crate::manager::last_problem;
use crate::section_context::SectionContext;
use crate::settings::{ChallengeKind, ExternalAccount, KeyType, Settings};

/// A certificate from an authority, as in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeSection {
    /// Address of the authority's directory. https, or http on loopback.
    #[schemars(example = "https://acme-staging-v02.api.letsencrypt.org/directory")]
    directory: String,
    /// Confirms that you agree to the authority's terms of service. Required: `true`.
    terms_agreed: bool,
    /// Mail addresses that the authority may notify.
    #[schemars(example = ["admin@example.com"])]
    contact: Vec<String>,
    /// Challenges that prove control over the names. `tls-alpn-01` needs port 443 of the names to
    /// reach the listener for TLS, and `http-01` needs port 80 to reach the one for plain HTTP. The
    /// first one is preferred; after a failure the next one is tried. `dns-01` needs one of
    /// `dns_program`, `dns_update` and `dns_responder`, and is always used for wildcards: only with
    /// it the certificate of an engine includes `*.t.<host>`, and on a managed engine `*.<host>`.
    #[schemars(example = ["tls-alpn-01", "dns-01"])]
    challenges: Vec<ChallengeForm>,
    /// The program for `dns-01`. It is called as `PROGRAM present NAME VALUE` and must add a TXT
    /// record with that value, and keep others of the same name. It is called as `PROGRAM cleanup
    /// NAME VALUE` when the record is no longer needed. It must end with status 0.
    #[schemars(example = "/etc/svc/dns-record")]
    dns_program: Option<String>,
    /// Time limit of a call of `dns_program` in seconds. Then it is killed. 1 to 1800.
    dns_program_timeout_seconds: u32,
    /// Seconds between the last record and the request for its validation, until all of your name
    /// servers have it. 0 to 3600.
    dns_propagation_seconds: u32,
    /// A name server whose records are changed for `dns-01` (RFC 2136 with TSIG).
    dns_update: Option<DnsUpdateSection>,
    /// The engine answers for the names of `dns-01` itself, after you have delegated them to it.
    /// Only for engines.
    dns_responder: Option<DnsResponderSection>,
    /// Type of the certificate's key: `p256` or `p384`. A change applies to the next order.
    key_type: KeyForm,
    /// The profile of the certificates, one of those in the directory of the authority: with
    /// `shortlived` those of Let's Encrypt are valid for six days. Without this key the authority
    /// selects one. A change applies to the next order.
    #[schemars(example = &"shortlived")]
    profile: Option<String>,
    /// A PEM file of authorities for checking the certificate of `directory`, instead of the
    /// system's.
    #[schemars(example = "/etc/svc/acme-ca.pem")]
    ca_file: Option<String>,
    /// An account that the authority created otherwise. Some authorities require it.
    external_account: Option<ExternalAccountSection>,
    /// The directory for account, certificate and unfinished orders. It contains private keys.
    /// Processes of one kind with the same directory on one machine share the certificate. Without
    /// this key it is `acme` in the directory of the process: of a platform that is
    /// `platform.data_dir`, else the first entry of `$STATE_DIRECTORY` (as systemd sets it), else
    /// `svc/engine/<host>` or `svc/turn/<realm>` in `$XDG_STATE_HOME` or `~/.local/state`.
    #[schemars(example = "/var/lib/svc/engine/acme")]
    state_dir: Option<String>,
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
            dns_update: None,
            dns_responder: None,
            key_type: KeyForm::P256,
            profile: None,
            ca_file: None,
            external_account: None,
            state_dir: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
enum ChallengeForm {
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
enum KeyForm {
    /// ECDSA with P-256.
    P256,
    /// ECDSA with P-384.
    P384,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ExternalAccountSection {
    /// The identifier of the key. Required in this section.
    #[schemars(example = "kid-1")]
    key_id: Option<String>,
    /// The file with the key in base64url. Required in this section.
    #[schemars(example = "/etc/svc/acme-key")]
    key_file: Option<String>,
}

impl AcmeSection {
    /// Checks the section.
    ///
    /// # Errors
    /// All mistakes.
    pub fn check(self, context: &SectionContext<'_>) -> Result<Settings, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let settings = check_values(self, context, &mut errors);
        errors.finish(settings)
    }
}

/// Adds a warning about the last failure of an order, and reads the file of the key for updates.
/// `key` is the dotted key of the section.
///
/// # Errors
/// The file cannot be used; the error has its key.
pub fn inspect(
    settings: &Settings,
    key: &'static str,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    if let Some(problem) = last_problem(&settings.state_dir) {
        let message = format!("the last order of a certificate failed: {problem}");
        warnings.push(Warning::new(key, message));
    }
    dns_section::inspect(settings, key)
}

fn check_values(
    section: AcmeSection,
    context: &SectionContext<'_>,
    errors: &mut ConfigErrors,
) -> Option<Settings> {
    if !section.terms_agreed {
        let message = "the authority requires that you agree to its terms of service; read them \
                       and set this to true";
        errors.push(ConfigError::new(context.key("terms_agreed"), message));
    }
    let directory = errors.keep(directory(section.directory, context));
    let contact = errors.keep(contact(&section.contact, context));
    let has_dns = section.challenges.contains(&ChallengeForm::Dns01);
    let challenges = errors.keep(challenges(&section.challenges, context));
    let timeout = seconds(
        &context.key("dns_program_timeout_seconds"),
        section.dns_program_timeout_seconds,
        1..=1800,
    );
    let propagation = seconds(
        &context.key("dns_propagation_seconds"),
        section.dns_propagation_seconds,
        0..=3600,
    );
    let (timeout, propagation) = (errors.keep(timeout), errors.keep(propagation));
    let profile = errors.keep(profile(section.profile, context));
    let ca_file = errors.keep(optional_path(&context.key("ca_file"), section.ca_file));
    let external_account = section.external_account;
    let external_account = external_account.map(|section| external_account_of(section, context));
    let external_account = errors.keep(external_account.transpose());
    let default = context.state_dir.map(|dir| dir.join("acme"));
    let state_dir = values::state_dir(&context.key("state_dir"), section.state_dir, default);
    let state_dir = errors.keep(state_dir);
    let names = errors.keep(names(context, has_dns));
    let forms = DnsForms {
        program: section.dns_program,
        update: section.dns_update,
        responder: section.dns_responder,
    };
    let dns_context = DnsContext {
        outer: context,
        names: names.as_deref().unwrap_or_default(),
        has_dns,
        program_timeout: timeout.unwrap_or_default(),
        propagation: propagation.unwrap_or_default(),
    };
    let dns = errors.keep(dns_section::provider(forms, &dns_context));
    Some(Settings {
        directory: directory?,
        contact: contact?,
        external_account: external_account?,
        key_type: match section.key_type {
            KeyForm::P256 => KeyType::P256,
            KeyForm::P384 => KeyType::P384,
        },
        profile: profile?,
        ca_file: ca_file?,
        challenges: challenges?,
        dns: dns?,
        challenge_alias: None,
        names: names?,
        state_dir: state_dir?,
        first_retry: FIRST_RETRY,
    })
}

/// The names of the certificate. Wildcards need DNS records.
fn names(context: &SectionContext<'_>, has_dns: bool) -> Result<Vec<String>, ConfigError> {
    let host = context.host.to_ascii_lowercase();
    if !is_dns_name(&host) || host.parse::<Ipv4Addr>().is_ok() {
        let message = format!(
            "{host:?} is not a DNS name, and {} orders certificates only for DNS names",
            context.key
        );
        return Err(ConfigError::new(context.host_key, message));
    }
    let mut names = vec![host];
    if has_dns {
        names.extend_from_slice(context.wildcards);
    }
    Ok(names)
}

fn directory(value: String, context: &SectionContext<'_>) -> Result<String, ConfigError> {
    let error = |message: &str| ConfigError::new(context.key("directory"), message);
    let invalid = || error("this is not an https address");
    let uri: http::Uri = value.parse().map_err(|_| invalid())?;
    let host = uri.host().ok_or_else(invalid)?;
    let authority = uri.authority().ok_or_else(invalid)?;
    if authority.as_str().contains('@') {
        return Err(error("an address with a user name is not supported"));
    }
    match uri.scheme_str() {
        Some("https") => Ok(value),
        Some("http") if is_loopback(host) => Ok(value),
        Some("http") => Err(error("http is allowed only on loopback; use https")),
        _ => Err(invalid()),
    }
}

/// Mail addresses as the protocol names them.
fn contact(
    addresses: &[String],
    context: &SectionContext<'_>,
) -> Result<Vec<String>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut contact = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let is_address = address.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains('@')
        });
        if is_address && address.bytes().all(|byte| byte.is_ascii_graphic()) {
            contact.push(format!("mailto:{address}"));
        } else {
            let key = context.key(&format!("contact.{index}"));
            errors.push(ConfigError::new(key, "this is not a mail address"));
        }
    }
    errors.finish(Some(contact))
}

fn challenges(
    forms: &[ChallengeForm],
    context: &SectionContext<'_>,
) -> Result<Vec<ChallengeKind>, ConfigError> {
    let key = context.key("challenges");
    if forms.is_empty() {
        return Err(ConfigError::new(key, "at least one challenge is required"));
    }
    if forms.contains(&ChallengeForm::Http01) && !context.has_plain_listener {
        let message = format!(
            "http-01 is answered by the plain listener; set {}, or remove it",
            context.plain_key
        );
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

/// The name of a profile. Those of public authorities are short words.
fn profile(
    value: Option<String>,
    context: &SectionContext<'_>,
) -> Result<Option<String>, ConfigError> {
    let is_name = |name: &String| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=MAX_PROFILE_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
    };
    match value {
        Some(name) if !is_name(&name) => {
            let message =
                format!("this is not a profile of at most {MAX_PROFILE_BYTES} characters");
            Err(ConfigError::new(context.key("profile"), message))
        }
        value => Ok(value),
    }
}

fn external_account_of(
    section: ExternalAccountSection,
    context: &SectionContext<'_>,
) -> Result<ExternalAccount, ConfigError> {
    let key = context.key("external_account.key_file");
    Ok(ExternalAccount {
        key_id: required(&context.key("external_account.key_id"), section.key_id)?,
        key_file: required(&key, section.key_file).and_then(|file| path(&key, file))?,
    })
}

fn seconds(
    key: &str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<Duration, ConfigError> {
    let seconds = within(key, value, range)?;
    Ok(Duration::from_secs(seconds.into()))
}

const MAX_PROFILE_BYTES: usize = 64;

/// Public authorities allow five failed validations of a name in an hour. The first five attempts
/// take four to eight minutes, and the authority then requests a delay.
const FIRST_RETRY: Duration = Duration::from_secs(30);
