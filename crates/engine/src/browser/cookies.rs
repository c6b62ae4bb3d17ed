//! The edge's own cookies on a tunnel's host. They are read from requests, removed before requests
//! are forwarded, and cannot be set by services.
//!
//! Stricter than the crate `cookie`: fields may have bytes that are not UTF-8, and a pair without an
//! equals sign counts.

/// The browser session (ED-2).
pub const SESSION: &str = "__Host-svc_auth";
/// A pending sign-in. The cookie binds its code to this browser.
pub const SIGN_IN: &str = "__Host-svc_sign_in";
/// Proof that the challenge was passed (ED-6).
pub const CHALLENGE: &str = "__Host-svc_challenge";

const NAMES: [&str; 3] = [SESSION, SIGN_IN, CHALLENGE];

/// Start of the names of cookies with the parts of a long redirect target. Their path is not `/`,
/// which `__Host-` would require.
const TARGET: &str = "__Secure-svc_target_";

/// Limit of cookies of one long redirect target, also if a request's head may be larger.
pub(super) const MAX_TARGET_COOKIES: usize = 16;

/// One of the edge's cookies in a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Cookie<'a> {
    #[default]
    Absent,
    One(&'a str),
    /// Present more than once or not UTF-8. It proves nothing.
    Ambiguous,
}

impl<'a> Cookie<'a> {
    /// True if the cookie is present, valid or not: two proofs are ambiguous by presence (ED-5).
    pub fn is_present(self) -> bool {
        self != Self::Absent
    }

    /// The value, if there is exactly one.
    pub fn value(self) -> Option<&'a str> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Ambiguous => None,
        }
    }

    fn add(&mut self, value: &'a [u8]) {
        *self = match (&self, std::str::from_utf8(value)) {
            (Self::Absent, Ok(value)) => Self::One(value),
            _ => Self::Ambiguous,
        };
    }
}

/// The value is a secret, so it is not printed.
impl std::fmt::Debug for Cookie<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::One(_) => "One",
            Self::Ambiguous => "Unclear",
        })
    }
}

/// The edge's cookies in a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeCookies<'a> {
    pub session: Cookie<'a>,
    pub sign_in: Cookie<'a>,
    pub challenge: Cookie<'a>,
}

impl<'a> EdgeCookies<'a> {
    /// Reads the values of all `Cookie` fields.
    pub fn from_fields(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::default();
        for pair in values.flat_map(pairs) {
            let mut parts = pair.splitn(2, |&byte| byte == b'=');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let value = parts.next().unwrap_or_default().trim_ascii();
            let index = NAMES.iter().position(|known| known.as_bytes() == name);
            match index {
                Some(0) => found.session.add(value),
                Some(1) => found.sign_in.add(value),
                Some(_) => found.challenge.add(value),
                None => {}
            }
        }
        found
    }
}

/// The values of the cookies with the parts of a long redirect target, in the order of the parts.
pub(super) fn target_values<'a>(
    fields: impl Iterator<Item = &'a [u8]>,
) -> [Cookie<'a>; MAX_TARGET_COOKIES] {
    let mut found = [Cookie::Absent; MAX_TARGET_COOKIES];
    for pair in fields.flat_map(pairs) {
        let mut parts = pair.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let value = parts.next().unwrap_or_default().trim_ascii();
        let index = name
            .strip_prefix(TARGET.as_bytes())
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse::<usize>().ok());
        if let Some(cookie) = index.and_then(|index| found.get_mut(index)) {
            cookie.add(value);
        }
    }
    found
}

/// The pairs of a `Cookie` field. If parsers could disagree, as for a quoted value with a semicolon
/// in it, the field is split at each semicolon, so that more is removed.
pub(crate) fn pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty())
}

/// True if a pair of a `Cookie` field belongs to the edge and must not reach the service.
pub(crate) fn is_edge_pair(pair: &[u8]) -> bool {
    let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
    is_edge_name(name.trim_ascii())
}

/// True if a service's `Set-Cookie` would create a cookie that is sent with one of the edge's
/// names. Browsers store a cookie without a name and send its value unchanged, so this is also
/// refused.
pub(crate) fn sets_edge_cookie(value: &[u8]) -> bool {
    let pair = value.split(|&byte| byte == b';').next().unwrap_or_default();
    let mut pair = pair.trim_ascii();
    while let Some(rest) = pair.strip_prefix(b"=") {
        pair = rest.trim_ascii();
    }
    is_edge_pair(pair)
}

/// Browsers compare the prefix without regard to case. The edge compares the whole name in this
/// way.
fn is_edge_name(name: &[u8]) -> bool {
    let is_target = name
        .get(..TARGET.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(TARGET.as_bytes()));
    is_target
        || NAMES
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// The value of a `Set-Cookie` that sets one of the edge's cookies for `seconds`; 0 deletes it. The
/// cookie is bound to this host (`__Host-`), hidden from scripts, and sent when a user follows a
/// link.
pub(super) fn set(name: &str, value: &str, seconds: i64) -> String {
    format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax")
}

/// As [`set`], for a part of a long redirect target. It is only sent to `path`.
pub(super) fn set_target(index: usize, value: &str, path: &str, seconds: i64) -> String {
    let attributes = "Secure; HttpOnly; SameSite=Lax";
    format!("{TARGET}{index}={value}; Path={path}; Max-Age={seconds}; {attributes}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cookies_are_found_wherever_they_are() {
        let fields = [
            &b"a=1; __Host-svc_auth = x=y ;b=2"[..],
            b"__Host-svc_challenge=c",
        ];
        let found = EdgeCookies::from_fields(fields.into_iter());
        assert_eq!(found.session.value(), Some("x=y"));
        assert_eq!(found.challenge.value(), Some("c"));
        assert!(!found.sign_in.is_present());
        let twice = [&b"__Host-svc_auth=x"[..], b"__Host-svc_auth=x"];
        let found = EdgeCookies::from_fields(twice.into_iter());
        assert!(found.session.is_present() && found.session.value().is_none());
        let found = EdgeCookies::from_fields([&b"__Host-svc_auth=\xff"[..]].into_iter());
        assert!(found.session.is_present() && found.session.value().is_none());
        assert_eq!(format!("{:?}", Cookie::One("secret")), "One");
    }

    /// ED-2: a service cannot set cookies of the edge.
    #[test]
    fn ed_2_a_service_cannot_set_cookies_of_the_edge() {
        for value in [
            "__Host-svc_auth=x; Path=/; Secure",
            " __Host-svc_auth =x",
            "__host-SVC_auth=x",
            "=__Host-svc_auth=x; Path=/; Secure",
            " = =__Host-svc_challenge=x",
            "__Host-svc_sign_in",
            "__Secure-svc_target_0=x; Secure; Path=/",
            "__secure-svc_TARGET_15=x",
        ] {
            assert!(sets_edge_cookie(value.as_bytes()), "{value}");
        }
        for value in [
            "a=__Host-svc_auth",
            "svc_auth=1",
            "",
            "x; __Host-svc_auth=1",
        ] {
            assert!(!sets_edge_cookie(value.as_bytes()), "{value}");
        }
    }

    proptest! {
        /// For any input, each cookie that is read is also removed, and the other cookies keep
        /// their order.
        #[test]
        fn cookies_that_are_read_are_removed(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("__Host-svc_auth=x".to_owned()),
                    Just(" __Host-svc_challenge=y ".to_owned()),
                    Just("a=\"; __Host-svc_auth=z; \"".to_owned()),
                    "[ -~]{0,12}",
                ],
                0..8,
            ),
        ) {
            let value = parts.join(";");
            let left: Vec<&[u8]> =
                pairs(value.as_bytes()).filter(|pair| !is_edge_pair(pair)).collect();
            let joined = left.join(&b"; "[..]);
            let again = EdgeCookies::from_fields([&joined[..]].into_iter());
            prop_assert!(!again.session.is_present() && !again.challenge.is_present());
            let kept: Vec<&[u8]> = pairs(&joined).collect();
            prop_assert_eq!(kept, left);
        }
    }
}
