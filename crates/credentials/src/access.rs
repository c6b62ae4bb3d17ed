//! OAuth access tokens: personal access tokens of a client (RFC 9068), and the rule that
//! distinguishes them from others (OA-8, MC-4).

use serde_json::Value;
use types::permission::Permissions;

/// Claims of an access token in addition to those of a personal access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessClaims {
    /// `client_id`: the client that uses it.
    pub client_id: String,
    /// `aud` and `resource`: its audience (RFC 8707).
    pub resource: String,
    /// `scope`: the permissions, repeated.
    pub scope: Permissions,
}

/// Reads the OAuth claims of a verified personal access token. `None`: it has none of the four, so
/// its owner issued it directly.
///
/// If one of `client_id`, `aud`, `resource` and `scope` is present, all of them are required in
/// addition to `iss` and `exp`, and they have to agree (MC-4): issued by this platform (`issuer`),
/// for the whole of it (`resource`), with scopes equal to its permissions. The caller has to check
/// that the client is still registered.
///
/// # Errors
/// The claim that is missing, has a wrong value, or contradicts another one.
pub fn access_claims(
    claims: &Value,
    issuer: &str,
    resource: &str,
) -> Result<Option<AccessClaims>, BadAccessClaims> {
    if !NAMES.iter().any(|name| claims.get(name).is_some()) {
        return Ok(None);
    }
    let text = |name: &'static str| {
        claims
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .ok_or(BadAccessClaims(name))
    };
    let must_be = |name: &'static str, expected: &str| {
        (text(name)? == expected)
            .then_some(())
            .ok_or(BadAccessClaims(name))
    };
    must_be("type", "pat")?;
    must_be("iss", issuer)?;
    must_be("resource", resource)?;
    // RFC 7519 section 4.1.3 has two spellings of one audience; this platform never issues several
    // audiences.
    let audience = match claims.get("aud") {
        Some(Value::Array(audiences)) => match audiences.as_slice() {
            [one] => one.as_str(),
            _ => None,
        },
        other => other.and_then(Value::as_str),
    };
    if audience != Some(resource) {
        return Err(BadAccessClaims("aud"));
    }
    if !claims.get("exp").is_some_and(Value::is_i64) {
        return Err(BadAccessClaims("exp"));
    }
    let scope: Permissions = text("scope")?
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|_| BadAccessClaims("scope"))?;
    let permissions: Option<Permissions> = claims.get("permissions").and_then(|names| {
        let names = names.as_array()?.iter();
        names.map(|name| name.as_str()?.parse().ok()).collect()
    });
    if permissions != Some(scope) {
        return Err(BadAccessClaims("permissions"));
    }
    Ok(Some(AccessClaims {
        client_id: text("client_id")?.to_owned(),
        resource: resource.to_owned(),
        scope,
    }))
}

/// The invalid claim. For the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("OAuth claim: {0}")]
pub struct BadAccessClaims(&'static str);

/// The claims that make a token an access token.
const NAMES: [&str; 4] = ["client_id", "aud", "resource", "scope"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BASE: &str = "https://svc.example";

    fn whole() -> Value {
        json!({
            "type": "pat", "iss": BASE, "exp": 2, "aud": BASE, "resource": BASE, "client_id": "c",
            "scope": "account.plan.read-only account.projects.read-only",
            "permissions": ["account.projects.read-only", "account.plan.read-only"],
        })
    }

    fn check(claims: &Value) -> Result<Option<AccessClaims>, BadAccessClaims> {
        access_claims(claims, BASE, BASE)
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = whole();
        claims[name] = value;
        claims
    }

    #[test]
    fn mc_4_a_complete_set_is_read_and_an_absent_one_is_none() {
        let read = check(&whole()).unwrap().unwrap();
        assert_eq!(read.client_id, "c");
        assert_eq!(
            read.scope.to_string(),
            "account.projects.read-only account.plan.read-only"
        );
        assert_eq!(check(&with("aud", json!([BASE]))).unwrap(), Some(read));
        let plain = json!({"type": "pat", "iss": "https://other", "userId": "u"});
        assert_eq!(check(&plain), Ok(None));
    }

    /// MC-4: each subset of the four that is not all of them, and not none, is refused.
    #[test]
    fn mc_4_an_incomplete_set_is_refused() {
        for bits in 1..15_u8 {
            let mut claims = whole();
            for (index, name) in NAMES.iter().enumerate() {
                if bits & 1 << index == 0 {
                    claims.as_object_mut().unwrap().remove(*name);
                }
            }
            assert!(check(&claims).is_err(), "{claims}");
        }
        for name in ["iss", "exp", "type", "permissions"] {
            let mut claims = whole();
            claims.as_object_mut().unwrap().remove(name);
            assert!(check(&claims).is_err(), "{name}");
        }
    }

    /// MC-4, OA-6, OA-8: a set that contradicts this platform or itself.
    #[test]
    fn mc_4_a_contradicting_set_is_refused() {
        let slash = format!("{BASE}/");
        for (name, value) in [
            ("type", json!("auth")),
            ("iss", json!("https://other")),
            ("iss", json!(slash)),
            ("aud", json!("https://other")),
            ("aud", json!([BASE, "https://other"])),
            ("aud", json!([])),
            ("aud", json!(null)),
            ("resource", json!(slash)),
            ("resource", json!([BASE])),
            ("exp", json!("2")),
            ("client_id", json!("")),
            ("client_id", json!(1)),
            ("scope", json!("")),
            ("scope", json!("account.plan.read-only")),
            (
                "scope",
                json!("account.plan.read-only  account.projects.read-only"),
            ),
            (
                "scope",
                json!("account.plan.read-only account.projects.read-only nothing"),
            ),
            ("permissions", json!(null)),
            ("permissions", json!(["account.plan.read-only"])),
            (
                "permissions",
                json!(["account.plan.read-only", "account.projects.read-only", "x"]),
            ),
        ] {
            assert!(check(&with(name, value.clone())).is_err(), "{name} {value}");
        }
    }
}
