//! Protection of signed-in sessions and entered link passwords against requests that pages of other
//! origins cause.
//!
//! Browsers send the session cookie with requests from any page of the same site, and tunnels of
//! many tenants are one site unless the domain is on the Public Suffix List. So a request that
//! changes something or opens a WebSocket may use a session only if the browser reports that it was
//! sent by a page of the tunnel, or of an origin that the tunnel lists.
//!
//! Browsers also repeat an entered link password, in forms of other sites as well. Unlike a session,
//! programs use it too, and they do not report a page.

use types::problem::Problem;
use types::tunnel::WebOrigin;

use super::routes::authority;
use crate::access::{EdgeRequest, Rule};
use crate::agents::Agent;
use crate::edge::access_record::AccessRecord;
use crate::edge::routing::{HeaderFields, RequestInfo};

/// The value of a header field that may occur once.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SingleValue<'a> {
    Absent,
    One(&'a [u8]),
    Several,
}

impl<'a> SingleValue<'a> {
    pub(super) fn of<H: HeaderFields>(headers: &'a H, name: &str) -> Self {
        let mut fields = headers.fields().filter(|field| field.is(name));
        match (fields.next(), fields.next()) {
            (None, _) => Self::Absent,
            (Some(field), None) => Self::One(field.value.as_bytes()),
            (Some(_), Some(_)) => Self::Several,
        }
    }
}

/// True if the tunnel lists the origin of a page.
pub(super) fn is_listed(origin: &[u8], allowed: &[WebOrigin]) -> bool {
    allowed
        .iter()
        .any(|listed| origin.eq_ignore_ascii_case(listed.as_str().as_bytes()))
}

/// Checks that a page of the same host, or of an allowed origin, sent a request that `rule` admitted,
/// if browsers send the rule's credential without an action of the user.
pub(in crate::edge) fn check<H: HeaderFields>(
    rule: Rule,
    inbound: &RequestInfo<'_>,
    headers: &H,
    request: &EdgeRequest<'_, Agent>,
    record: &mut AccessRecord,
) -> Result<(), Box<Problem>> {
    let reason = match rule {
        Rule::Session => "a session's cookie with a request of another origin's page",
        Rule::Password if is_of_program(headers) => return Ok(()),
        Rule::Password => "a link password with a request of another origin's page",
        _ => return Ok(()),
    };
    let method_and_upgrade = (inbound.method.as_str(), inbound.upgrade.is_some());
    let origins = request.tunnel.policy.allowed_origins();
    if accepts(headers, method_and_upgrade, &authority(inbound), origins) {
        return Ok(());
    }
    record.set_refusal(Rule::CrossSite, Some(reason.into()));
    Err(problem().into())
}

/// True if no browser sent a request that changes something or opens a WebSocket. Browsers send
/// `Origin` with all of these.
fn is_of_program<H: HeaderFields>(headers: &H) -> bool {
    ["origin", "sec-fetch-site"]
        .into_iter()
        .all(|name| SingleValue::of(headers, name) == SingleValue::Absent)
}

/// True if a session cookie or a link password of a browser is accepted with a request of this method (or `upgrade`) to a tunnel at
/// `authority` (in lower case, without the default port).
fn accepts<H: HeaderFields>(
    headers: &H,
    (method, upgrade): (&str, bool),
    authority: &str,
    allowed: &[WebOrigin],
) -> bool {
    let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    if is_safe && !upgrade {
        return true;
    }
    let fetch_site = SingleValue::of(headers, "sec-fetch-site");
    if matches!(fetch_site, SingleValue::One(b"same-origin" | b"none")) {
        return true;
    }
    let SingleValue::One(origin) = SingleValue::of(headers, "origin") else {
        return false;
    };
    let is_own = origin
        .split_at_checked("https://".len())
        .is_some_and(|(scheme, host)| {
            scheme.eq_ignore_ascii_case(b"https://")
                && host.eq_ignore_ascii_case(authority.as_bytes())
        });
    fetch_site != SingleValue::Several && (is_own || is_listed(origin, allowed))
}

/// The response to a request whose session or link password is not accepted.
fn problem() -> Problem {
    let detail =
        "With a session or a link password, only pages of this address may send this request.";
    Problem::new(403, "cross_site_request", detail)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn headers(fields: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in fields.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn sessions_are_accepted_from_pages_of_the_tunnel_and_of_listed_origins() {
        let listed = ["https://app.example.com".parse().unwrap()];
        let own = "api.t.example";
        let site = "sec-fetch-site";
        for (fields, passes) in [
            (&[][..], false),
            (&[(site, "same-origin")], true),
            (&[(site, "none")], true),
            (&[(site, "same-site")], false),
            (&[(site, "cross-site")], false),
            (&[("origin", "https://api.t.example")], true),
            (&[("origin", "https://API.t.example")], true),
            (&[("origin", "https://app.example.com")], true),
            (&[("origin", "http://api.t.example")], false),
            (&[("origin", "https://api.t.example:8443")], false),
            (&[("origin", "https://evil.t.example")], false),
            (&[("origin", "null")], false),
            (
                &[(site, "same-site"), ("origin", "https://app.example.com")],
                true,
            ),
            (
                &[(site, "same-site"), ("origin", "https://evil.t.example")],
                false,
            ),
            (&[(site, "same-origin"), (site, "cross-site")], false),
            (
                &[
                    (site, "none"),
                    (site, "none"),
                    ("origin", "https://api.t.example"),
                ],
                false,
            ),
            (
                &[
                    ("origin", "https://api.t.example"),
                    ("origin", "https://x.example"),
                ],
                false,
            ),
        ] {
            let headers = headers(fields);
            for method_and_upgrade in [
                ("POST", false),
                ("DELETE", false),
                ("PURGE", false),
                ("GET", true),
            ] {
                assert_eq!(
                    accepts(&headers, method_and_upgrade, own, &listed),
                    passes,
                    "{method_and_upgrade:?} {fields:?}"
                );
            }
            for safe in ["GET", "HEAD", "OPTIONS"] {
                assert!(accepts(&headers, (safe, false), own, &listed));
            }
        }
    }

    #[test]
    fn only_programs_send_neither_field() {
        for (fields, expected) in [
            (&[][..], true),
            (&[("accept", "*/*")], true),
            (&[("origin", "null")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "null"), ("origin", "null")], false),
        ] {
            assert_eq!(is_of_program(&headers(fields)), expected, "{fields:?}");
        }
    }
}
