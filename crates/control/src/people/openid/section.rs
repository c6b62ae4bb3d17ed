//! The `openid` section of the configuration, and its validation.

use std::path::PathBuf;

use daemon::config::ConfigError;
use daemon::config::values::optional_path;
use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::groups_section::{GroupRoles, GroupSection};
use crate::config::{host_name, is_loopback};

/// A provider of OpenID Connect for sign-ins. Register `<platform.base_url>/login/openid/callback`
/// there as the platform's callback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenIdSection {
    /// The provider's issuer identifier, byte for byte: `https`, or `http` on loopback. Required.
    #[schemars(example = &"https://id.example.com")]
    issuer: Option<String>,
    /// The client id registered at the provider. Required.
    client_id: Option<String>,
    /// File with the client secret of the platform at the provider. If absent, the platform is a
    /// public client.
    client_secret_file: Option<String>,
    /// The provider's name on the sign-in button; absent: the host of the issuer.
    name: Option<String>,
    /// Requested scopes; empty: `openid`, `email` and `profile`. `openid` is required. The scopes
    /// must include whatever makes the provider report the mail address.
    scopes: Vec<String>,
    /// Users that get an account at the first sign-in: `invited` (users with an invitation to the
    /// address that the provider confirms), `domains` (users with an address in one of `domains`,
    /// and invited users), or `anyone` with an account at the provider.
    sign_up: SignUpWord,
    /// Domains of mail addresses, without their subdomains. Only valid with `sign_up: domains` or
    /// `trust_email`.
    domains: Vec<String>,
    /// True to accept addresses in `domains` from a provider that does not send `email_verified`,
    /// such as Entra ID. Only for an issuer of one tenant, whose users all belong to you. Such an
    /// address never opens an account that exists already, because users can change it at some
    /// providers. An `email_verified` of `false` is still refused.
    trust_email: bool,
    /// The claim with the mail address, if it is not `email`, for example `preferred_username` or
    /// `upn`. Only valid with `trust_email`.
    #[schemars(example = &"preferred_username")]
    email_claim: Option<String>,
    /// The claim with the groups of a user, in the ID token or at the userinfo endpoint, for example
    /// `groups`: a list of texts. Only valid with `groups`.
    #[schemars(example = &"groups")]
    groups_claim: Option<String>,
    /// Roles that groups of the provider give in workspaces. Each sign-in with the provider applies
    /// them, and removes roles that no group of the user gives. It never changes a role that a
    /// person gave.
    groups: Vec<GroupSection>,
    /// True to end the session at the provider as well when a user signs out here, if the
    /// provider's metadata has an `end_session_endpoint`. Register
    /// `<platform.base_url>/login/openid/signed-out` there as the address after a sign-out.
    end_session: bool,
    /// File of further certificate authorities (PEM) for the provider's certificate; absent: only
    /// those of the system.
    ca_file: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum SignUpWord {
    /// Users with an invitation.
    #[default]
    Invited,
    /// Users with an address in one of `domains`.
    Domains,
    /// All users of the provider.
    Anyone,
}

/// A provider for sign-ins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdConfig {
    /// Its issuer identifier.
    pub issuer: String,
    /// Client id of the platform at the provider.
    pub client_id: String,
    /// File with the client secret of the platform; `None` for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// Its name, for users.
    pub name: String,
    /// Requested scopes, separated by spaces.
    pub scope: String,
    /// Users that get an account.
    pub sign_up: SignUp,
    /// The claim that has the mail address, and its proof.
    pub email: EmailSource,
    /// Roles that groups give; `None`: none.
    pub groups: Option<GroupRoles>,
    /// True if a sign-out here continues at the provider.
    pub end_session: bool,
    /// Further certificate authorities.
    pub ca_file: Option<PathBuf>,
}

/// The claim that has the mail address, and its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmailSource {
    /// `email`, with `email_verified: true`.
    Verified,
    /// This claim of the only tenant of the issuer, for addresses in these domains, which are in
    /// lower case.
    Trusted {
        /// Name of the claim.
        claim: String,
        /// The domains.
        domains: Vec<String>,
    },
}

impl EmailSource {
    /// Name of the claim with the address.
    pub fn claim(&self) -> &str {
        match self {
            Self::Verified => EMAIL,
            Self::Trusted { claim, .. } => claim,
        }
    }
}

/// Users that get an account at the first sign-in. An invitation to the address that the provider
/// confirms is always enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignUp {
    /// Only invited users.
    Invited,
    /// Users with a confirmed address in one of these domains, which are in lower case.
    Domains(Vec<String>),
    /// All users with a confirmed address.
    Anyone,
}

impl OpenIdSection {
    /// Returns the checked values; `None` if the section is absent.
    pub(crate) fn check(self) -> Result<Option<OpenIdConfig>, ConfigError> {
        if self == Self::default() {
            return Ok(None);
        }
        let wrong = |key: &str, message: &str| ConfigError::new(format!("openid.{key}"), message);
        let issuer = self
            .issuer
            .ok_or_else(|| wrong("issuer", "this key is required"))?;
        let host = issuer_host(&issuer).map_err(|message| wrong("issuer", message))?;
        let client_id = self
            .client_id
            .filter(|id| !id.is_empty())
            .ok_or_else(|| wrong("client_id", "this key is required"))?;
        let scopes = if self.scopes.is_empty() {
            DEFAULT_SCOPES.map(str::to_owned).to_vec()
        } else {
            self.scopes
        };
        if let Some(at) = scopes.iter().position(|scope| !is_scope(scope)) {
            return Err(wrong(&format!("scopes.{at}"), "must be a single scope"));
        }
        if !scopes.iter().any(|scope| scope == "openid") {
            return Err(wrong(
                "scopes",
                "the scope openid is required to identify users",
            ));
        }
        let domains = self.domains.iter().enumerate();
        let domains: Vec<_> = domains
            .map(|(at, domain)| host_name(&format!("openid.domains.{at}"), domain))
            .collect::<Result<_, _>>()?;
        if domains.is_empty() && (self.sign_up == SignUpWord::Domains || self.trust_email) {
            let message = "sign_up: domains and trust_email require at least one domain";
            return Err(wrong("domains", message));
        }
        if !domains.is_empty() && self.sign_up != SignUpWord::Domains && !self.trust_email {
            let message = "only allowed with sign_up: domains or trust_email";
            return Err(wrong("domains", message)
                .depending_on("openid.sign_up")
                .depending_on("openid.trust_email"));
        }
        let email = match (self.trust_email, self.email_claim) {
            (false, None) => EmailSource::Verified,
            (false, Some(_)) => {
                let error = wrong("email_claim", "only allowed with trust_email");
                return Err(error.depending_on("openid.trust_email"));
            }
            (true, claim) => {
                require_single_tenant(&issuer).map_err(|message| wrong("trust_email", message))?;
                let claim = claim.unwrap_or_else(|| EMAIL.to_owned());
                if !is_claim(&claim) {
                    return Err(wrong("email_claim", "this is not the name of a claim"));
                }
                EmailSource::Trusted {
                    claim,
                    domains: domains.clone(),
                }
            }
        };
        let groups = group_roles(self.groups_claim, self.groups)?;
        let sign_up = match self.sign_up {
            SignUpWord::Invited => SignUp::Invited,
            SignUpWord::Anyone => SignUp::Anyone,
            SignUpWord::Domains => SignUp::Domains(domains),
        };
        let file =
            |key: &str, value: Option<String>| optional_path(&format!("openid.{key}"), value);
        Ok(Some(OpenIdConfig {
            client_secret_file: file("client_secret_file", self.client_secret_file)?,
            ca_file: file("ca_file", self.ca_file)?,
            name: self.name.unwrap_or(host),
            scope: scopes.join(" "),
            issuer,
            client_id,
            sign_up,
            email,
            groups,
            end_session: self.end_session,
        }))
    }
}

/// The roles that groups give, if the section has rules for them.
fn group_roles(
    claim: Option<String>,
    rules: Vec<GroupSection>,
) -> Result<Option<GroupRoles>, ConfigError> {
    let wrong = |message: &str| ConfigError::new("openid.groups_claim", message);
    match claim {
        None if rules.is_empty() => Ok(None),
        None => Err(wrong("groups need the name of their claim")),
        Some(claim) if !is_claim(&claim) => Err(wrong("this is not the name of a claim")),
        Some(_) if rules.is_empty() => {
            Err(wrong("only allowed with groups").depending_on("openid.groups"))
        }
        Some(claim) => GroupRoles::check(claim, rules).map(Some),
    }
}

/// The host of an issuer, if the issuer is valid.
fn issuer_host(issuer: &str) -> Result<String, &'static str> {
    let Ok(uri) = issuer.parse::<Uri>() else {
        return Err("this is not an address such as https://id.example.com");
    };
    // OpenID Connect Core 1.0 section 2: neither a query nor a fragment.
    if uri.query().is_some() || issuer.contains(['#', '@']) {
        return Err("an issuer must not have a query, a fragment or a user");
    }
    let host = uri.host().unwrap_or_default();
    match uri.scheme_str() {
        Some("https") if !host.is_empty() => Ok(host.to_owned()),
        Some("http") if is_loopback(host) => Ok(host.to_owned()),
        _ => Err("users are identified with it: it must be https, or on loopback"),
    }
}

/// Refuses an issuer whose users belong to several organisations. There any user can have any
/// unconfirmed address.
fn require_single_tenant(issuer: &str) -> Result<(), &'static str> {
    let Ok(uri) = issuer.parse::<Uri>() else {
        return Err("the issuer is not an address");
    };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    if SHARED_ISSUERS.contains(&host.as_str()) {
        return Err("this issuer has users of many organisations: it needs email_verified");
    }
    let tenant = uri.path().split('/').nth(1).unwrap_or_default();
    let is_of_microsoft = MICROSOFT_ISSUERS.contains(&host.as_str());
    if is_of_microsoft && (!is_uuid(tenant) || tenant.eq_ignore_ascii_case(PERSONAL_ACCOUNTS)) {
        return Err("name one tenant in the issuer, by its id: \
                    https://login.microsoftonline.com/<tenant id>/v2.0");
    }
    Ok(())
}

/// RFC 9562 section 4.
fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && text
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// A name that a token can have: printable ASCII.
fn is_claim(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The claim of OpenID Connect Core 1.0 section 5.1.
const EMAIL: &str = "email";

/// Issuers of Entra ID, whose first path segment is the tenant.
const MICROSOFT_ISSUERS: [&str; 3] = [
    "login.microsoftonline.com",
    "sts.windows.net",
    "login.windows.net",
];

/// The tenant of all personal accounts at Microsoft.
const PERSONAL_ACCOUNTS: &str = "9188040d-6c67-4c5b-b112-36a304b66dad";

/// Issuers that everyone can have an account at.
const SHARED_ISSUERS: [&str; 6] = [
    "accounts.google.com",
    "appleid.apple.com",
    "gitlab.com",
    "www.facebook.com",
    "www.linkedin.com",
    "login.live.com",
];

/// RFC 6749 section 3.3.
fn is_scope(text: &str) -> bool {
    let allowed = |byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    !text.is_empty() && text.bytes().all(allowed)
}

const DEFAULT_SCOPES: [&str; 3] = ["openid", "email", "profile"];
