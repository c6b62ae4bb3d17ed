//! The identity of a signed-in visitor, in the fields that the tunnel requests.
//!
//! Only the session of a user has an identity. A token or a certificate may be limited, or be in
//! the hands of a program, so a service must not take its bearer for the user.

use std::sync::Arc;

use credentials::{AssertionKey, Secret};
use http1::{FieldName, FieldValue, is_same_for_gateways, write_field};
use serde_json::{Map, Value, json};
use types::tunnel::{IdentityClaim, IdentityField};

use crate::access::{AuthContext, Proof, TunnelPolicy};
use crate::live::LiveTunnel;

/// The identity of a signed-in visitor of one tunnel. It contains only what the tunnel requests.
#[derive(Debug)]
pub(crate) struct VisitorIdentity {
    user_id: String,
    email: Option<String>,
    name: Option<String>,
    groups: Vec<String>,
    /// A secret, because services take its bearer for the visitor until it expires.
    assertion: Option<Secret>,
}

impl VisitorIdentity {
    /// The identity behind a proof. `None` if the tunnel requests none, or if the visitor has not
    /// signed in. `key` signs assertions.
    pub(crate) fn of<A>(
        proof: Option<&Proof>,
        tunnel: &LiveTunnel<A>,
        context: AuthContext<'_>,
        key: Option<&AssertionKey>,
    ) -> Option<Self> {
        let policy = &tunnel.policy;
        let requests =
            |claim: IdentityClaim| policy.identity().iter().any(|field| field.claim() == claim);
        let Some(Proof::Session(session)) = proof.filter(|_| !policy.identity().is_empty()) else {
            return None;
        };
        let text = |claim: IdentityClaim, text: &Option<String>| {
            let text = text.clone().filter(|text| !text.is_empty());
            text.filter(|_| requests(claim))
        };
        let mut identity = Self {
            user_id: session.user_id.clone(),
            email: text(IdentityClaim::Email, &session.email),
            name: text(IdentityClaim::Name, &session.name),
            groups: Vec::new(),
            assertion: None,
        };
        let state = tunnel.project.state();
        if requests(IdentityClaim::Groups)
            && let Some(workspace) = state.workspace_id.as_deref()
            && let Some(directory) = context.tenancy.directory()
            && let Some(person) = directory.person(&session.user_id)
        {
            identity
                .groups
                .extend(person.role(workspace).map(str::to_owned));
        }
        if requests(IdentityClaim::Assertion) {
            identity.assertion = key.and_then(|key| identity.sign(tunnel, context, key));
        }
        Some(identity)
    }

    /// Signs the identity for the tunnel's service. `None` if the engine is not a managed one or
    /// the library fails: a service that requires the field then refuses the request.
    fn sign<A>(
        &self,
        tunnel: &LiveTunnel<A>,
        context: AuthContext<'_>,
        key: &AssertionKey,
    ) -> Option<Secret> {
        let platform = context.tenancy.directory()?.platform()?;
        let hostname = tunnel.view.properties.hostname.as_ref()?;
        let now = context.now;
        let mut claims = Map::new();
        let mut add = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        add("iss", json!(platform.base_url.trim_end_matches('/')));
        add("aud", json!(format!("https://{hostname}")));
        add("sub", json!(self.user_id));
        add("iat", json!(now));
        add("exp", json!(now.saturating_add(ASSERTION_SECONDS)));
        add("project_id", json!(&*tunnel.project.id));
        for (name, value) in [("email", &self.email), ("name", &self.name)] {
            if let Some(value) = value {
                add(name, json!(value));
            }
        }
        if !self.groups.is_empty() {
            add("groups", json!(self.groups));
        }
        key.sign(&Value::Object(claims)).ok()
    }

    /// Writes the fields. A fact that the platform does not state is left out.
    pub(crate) fn write(&self, out: &mut Vec<u8>, fields: &[IdentityField]) {
        for field in fields {
            let name = FieldName::parse(field.header().as_bytes());
            let value = self.value(field.claim());
            let value = value.as_deref().and_then(FieldValue::parse);
            if let Some((name, value)) = name.zip(value) {
                write_field(out, name, value);
            }
        }
    }

    fn value(&self, claim: IdentityClaim) -> Option<Vec<u8>> {
        let text = match claim {
            IdentityClaim::Id => encoded(&self.user_id),
            IdentityClaim::Email => encoded(self.email.as_deref()?),
            IdentityClaim::Name => encoded(self.name.as_deref()?),
            IdentityClaim::Groups => {
                let groups = self.groups.iter();
                let list: Vec<_> = groups
                    .map(|group| encoded(group).replace(',', "%2C"))
                    .collect();
                list.join(",")
            }
            IdentityClaim::Assertion => return Some(self.assertion.as_ref()?.expose().to_vec()),
        };
        (!text.is_empty()).then(|| text.into_bytes())
    }
}

/// The text as a field value. Visible ASCII and spaces inside it are unchanged, except for the
/// percent sign. Every other byte of its UTF-8 is percent-encoded (RFC 3986, 2.1), so that any
/// decoder of percent-encoding returns the text.
fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut value = String::with_capacity(text.len());
    let last = text.len().saturating_sub(1);
    for (index, byte) in text.bytes().enumerate() {
        let is_inner_space = byte == b' ' && index != 0 && index != last;
        if is_inner_space || (byte.is_ascii_graphic() && byte != b'%') {
            value.push(char::from(byte));
        } else {
            // Writing to memory cannot fail.
            write!(value, "%{byte:02X}").ok();
        }
    }
    value
}

/// True if the service may take a visitor's field `name` for one of these fields.
pub(super) fn is_reserved(fields: &[IdentityField], name: &[u8]) -> bool {
    let mut headers = fields.iter().map(IdentityField::header);
    headers.any(|header| is_same_for_gateways(name, header.as_bytes()))
}

/// Names that only the edge may send to a tunnel's service, besides those that it removes from
/// visitors of every tunnel.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedNames(Option<Arc<TunnelPolicy>>);

impl ReservedNames {
    /// The names of a tunnel.
    pub(crate) fn of(policy: &Arc<TunnelPolicy>) -> Self {
        Self((!policy.identity().is_empty()).then(|| Arc::clone(policy)))
    }

    /// True if the name is one of them, in any spelling.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        let policy = self.0.as_deref();
        policy.is_some_and(|policy| is_reserved(policy.identity(), name))
    }
}

/// Lifetime of an assertion in seconds. A service verifies it when it receives the request.
const ASSERTION_SECONDS: i64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_safe_in_a_header_and_decodes_to_the_text() {
        for (text, value) in [
            ("Ann", "Ann"),
            ("Ann Lee", "Ann Lee"),
            ("ann+x@example.com", "ann+x@example.com"),
            ("Jürgen Müller", "J%C3%BCrgen M%C3%BCller"),
            ("岡", "%E5%B2%A1"),
            ("100%", "100%25"),
            ("%41", "%2541"),
            (" a ", "%20a%20"),
            (" ", "%20"),
            ("a\r\nHost: evil\0", "a%0D%0AHost: evil%00"),
        ] {
            assert_eq!(encoded(text), value);
            let mut bytes = value.bytes();
            let mut decoded = Vec::new();
            while let Some(byte) = bytes.next() {
                decoded.push(if byte == b'%' {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    hex::decode(digits).unwrap()[0]
                } else {
                    byte
                });
            }
            assert_eq!(String::from_utf8(decoded).unwrap(), text);
            assert!(FieldValue::parse(value.as_bytes()).is_some(), "{text}");
        }
    }

    #[test]
    fn an_assertion_is_not_printed() {
        let identity = VisitorIdentity {
            user_id: "usr_ann".to_owned(),
            email: None,
            name: None,
            groups: Vec::new(),
            assertion: Some(Secret::new("a.b.c")),
        };
        assert!(!format!("{identity:?}").contains("a.b.c"));
        let fields: [IdentityField; 2] = ["groups", "assertion"].map(|name| name.parse().unwrap());
        let mut out = Vec::new();
        identity.write(&mut out, &fields);
        assert_eq!(out, b"svc-assertion: a.b.c\r\n");
    }

    #[test]
    fn a_name_is_reserved_in_every_spelling() {
        let fields: [IdentityField; 1] = ["email=Remote-User".parse().unwrap()];
        for name in [
            "remote-user",
            "Remote_User",
            "REMOTE-USER",
            "remote.user",
            "rEMOTE~uSER",
        ] {
            assert!(is_reserved(&fields, name.as_bytes()), "{name}");
        }
        for name in ["remote-users", "remoteuser", "x-remote-user", "remote", ""] {
            assert!(!is_reserved(&fields, name.as_bytes()), "{name}");
        }
    }
}
