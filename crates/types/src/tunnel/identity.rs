//! The identity of signed-in visitors that a tunnel requests for its service.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::properties::PropertyError;
use crate::words::words;

words! {
    /// A fact about a signed-in visitor.
    IdentityClaim {
        /// Id of the user.
        Id = "id",
        /// Verified mail address.
        Email = "email",
        /// Display name.
        Name = "name",
        /// Role of the user in the workspace that owns the tunnel.
        Groups = "groups",
        /// A signed statement of the other facts, which the service can verify.
        Assertion = "assertion",
    }
}

impl IdentityClaim {
    /// The field of the claim, unless the tunnel names another one.
    pub const fn default_header(self) -> &'static str {
        match self {
            Self::Id => "svc-user-id",
            Self::Email => "svc-user-email",
            Self::Name => "svc-user-name",
            Self::Groups => "svc-user-groups",
            Self::Assertion => "svc-assertion",
        }
    }

    /// True if the user must agree before the service receives the claim. The service receives the
    /// id of every visitor with a credential.
    pub const fn needs_agreement(self) -> bool {
        matches!(self, Self::Email | Self::Name | Self::Groups)
    }
}

/// One header with a claim about a signed-in visitor: `email`, or `email=remote-user` to send it
/// with another name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdentityField {
    claim: IdentityClaim,
    /// In lower case; absent for the default name.
    header: Option<Box<str>>,
}

/// A text that is not an [`IdentityField`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIdentityField {
    /// An unknown claim.
    #[error(
        "expected id, email, name, groups or assertion, and perhaps a header: email=remote-user"
    )]
    Claim,
    /// Not the name of a header.
    #[error(
        "the name of a header is 1 to {MAX_HEADER_BYTES} letters, digits and dashes, and begins with \
         a letter"
    )]
    Name,
    /// A header with another meaning.
    #[error("the header `{0}` has another meaning and cannot carry an identity")]
    Reserved(String),
    /// The id, which is always sent under its own name.
    #[error("`svc-user-id` is always sent; `id=NAME` also sends it as another header")]
    Id,
}

impl IdentityField {
    /// The claim.
    pub fn claim(&self) -> IdentityClaim {
        self.claim
    }

    /// Name of the header, in lower case.
    pub fn header(&self) -> &str {
        let named = self.header.as_deref();
        named.unwrap_or_else(|| self.claim.default_header())
    }

    /// Checks a list: each header occurs once.
    pub(super) fn check_list(fields: &[Self]) -> Result<(), PropertyError> {
        if fields.len() > MAX_FIELDS {
            let message = format!("at most {MAX_FIELDS} entries");
            return Err(PropertyError::new("identity", message));
        }
        let mut headers = BTreeSet::new();
        match fields
            .iter()
            .position(|field| !headers.insert(field.header()))
        {
            Some(place) => Err(PropertyError::new(
                format!("identity.{place}"),
                "two entries have the same header",
            )),
            None => Ok(()),
        }
    }
}

impl FromStr for IdentityField {
    type Err = BadIdentityField;

    fn from_str(text: &str) -> Result<Self, BadIdentityField> {
        let (claim, header) = match text.split_once('=') {
            Some((claim, header)) => (claim, Some(header)),
            None => (text, None),
        };
        let claim: IdentityClaim = claim.parse().map_err(|_| BadIdentityField::Claim)?;
        let header = header.map(header_name).transpose()?;
        if claim == IdentityClaim::Id && header.is_none() {
            return Err(BadIdentityField::Id);
        }
        Ok(Self { claim, header })
    }
}

/// Checks and normalises the name of a header.
fn header_name(given: &str) -> Result<Box<str>, BadIdentityField> {
    let is_name = (1..=MAX_HEADER_BYTES).contains(&given.len())
        && given.starts_with(|first: char| first.is_ascii_alphabetic())
        && given
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name {
        return Err(BadIdentityField::Name);
    }
    let name = given.to_ascii_lowercase();
    if is_reserved(&name) {
        return Err(BadIdentityField::Reserved(name));
    }
    Ok(name.into())
}

/// True for a name with another meaning: in HTTP, for the edge, or for applications and gateways.
fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

impl TryFrom<String> for IdentityField {
    type Error = BadIdentityField;

    fn try_from(text: String) -> Result<Self, BadIdentityField> {
        text.parse()
    }
}

impl From<IdentityField> for String {
    fn from(field: IdentityField) -> Self {
        field.to_string()
    }
}

impl fmt::Display for IdentityField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.claim.as_str())?;
        match &self.header {
            Some(header) => write!(f, "={header}"),
            None => Ok(()),
        }
    }
}

/// Each claim under its own name and under two others. The fields are added to every request.
const MAX_FIELDS: usize = 16;
/// Longer than every name that applications use.
const MAX_HEADER_BYTES: usize = 64;

/// Families of names: connections, representations, conditions, browsers' own fields (Fetch), CORS,
/// and those of the edge.
const RESERVED_PREFIXES: [&str; 9] = [
    "access-control-",
    "accept-",
    "content-",
    "if-",
    "proxy-",
    "sec-",
    "set-cookie",
    "svc-",
    "x-svc-",
];

/// Names that frame, route or authenticate a message, or that proxies and applications interpret.
/// Gateways of the CGI family pass `Proxy` on as `HTTP_PROXY`.
const RESERVED: [&str; 67] = [
    "accept",
    "age",
    "allow",
    "alt-svc",
    "authentication-info",
    "authorization",
    "baggage",
    "cache-control",
    "cdn-loop",
    "cf-connecting-ip",
    "connection",
    "cookie",
    "cookie2",
    "date",
    "depth",
    "destination",
    "early-data",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "lock-token",
    "max-forwards",
    "origin",
    "overwrite",
    "pragma",
    "prefer",
    "priority",
    "proxy",
    "range",
    "referer",
    "retry-after",
    "server",
    "strict-transport-security",
    "te",
    "timeout",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-client-cert",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::ProxyHeader;

    #[test]
    fn an_entry_is_a_claim_and_perhaps_a_header() {
        for (given, kept, header) in [
            ("email", "email", "svc-user-email"),
            ("name", "name", "svc-user-name"),
            ("groups", "groups", "svc-user-groups"),
            ("assertion", "assertion", "svc-assertion"),
            ("email=Remote-User", "email=remote-user", "remote-user"),
            ("id=X-WEBAUTH-USER", "id=x-webauth-user", "x-webauth-user"),
            (
                "name=X-Forwarded-Preferred-Username",
                "name=x-forwarded-preferred-username",
                "x-forwarded-preferred-username",
            ),
        ] {
            let field: IdentityField = given.parse().unwrap();
            assert_eq!((field.to_string().as_str(), field.header()), (kept, header));
            assert_eq!(kept.parse::<IdentityField>().as_ref(), Ok(&field));
        }
    }

    #[test]
    fn a_list_has_16_entries_and_each_header_once() {
        let list = |count: usize| {
            let fields = (0..count).map(|n| format!("email=x-{n}").parse().unwrap());
            IdentityField::check_list(&fields.collect::<Vec<IdentityField>>())
        };
        assert_eq!(list(16), Ok(()));
        assert_eq!(list(17).unwrap_err().field, "identity");
        let twice = ["email=x-user", "name", "id=X-User"]
            .map(|field| field.parse::<IdentityField>().unwrap());
        assert_eq!(
            IdentityField::check_list(&twice).unwrap_err().field,
            "identity.2"
        );
    }

    #[test]
    fn names_with_another_meaning_are_refused() {
        for header in RESERVED {
            let given = format!("email={}", header.to_ascii_uppercase());
            let refused = given.parse::<IdentityField>();
            let expected = BadIdentityField::Reserved(header.to_owned());
            assert_eq!(refused, Err(expected), "{given}");
        }
        let proxies = ProxyHeader::ALL.iter().map(|header| header.as_str());
        let families = [
            "proxy-authorization",
            "proxy-connection",
            "content-length",
            "content-type",
            "set-cookie",
            "set-cookie2",
            "sec-websocket-key",
            "sec-fetch-site",
            "svc-user-id",
            "svc-assertion",
            "x-svc-user",
        ];
        for header in proxies.chain(families) {
            let refused = format!("email={header}").parse::<IdentityField>();
            assert!(
                matches!(refused, Err(BadIdentityField::Reserved(_))),
                "{header}"
            );
        }
        let long = format!("email=x{}", "a".repeat(MAX_HEADER_BYTES));
        for (given, refused) in [
            ("", BadIdentityField::Claim),
            ("mail", BadIdentityField::Claim),
            ("Email", BadIdentityField::Claim),
            ("id", BadIdentityField::Id),
            ("email=", BadIdentityField::Name),
            ("email=remote_user", BadIdentityField::Name),
            ("email=remote user", BadIdentityField::Name),
            ("email=remote-user=x", BadIdentityField::Name),
            ("email=1-user", BadIdentityField::Name),
            ("email=-user", BadIdentityField::Name),
            ("email=x-benutzer-ü", BadIdentityField::Name),
            ("email=x:y", BadIdentityField::Name),
            ("email=x\r\nhost", BadIdentityField::Name),
            (long.as_str(), BadIdentityField::Name),
        ] {
            assert_eq!(given.parse::<IdentityField>(), Err(refused), "{given}");
        }
    }
}
