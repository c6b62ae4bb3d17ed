//! The edge's own cookies on a tunnel's host: read from requests, cut out of what goes on to a
//! service, and not the service's to set.

/// The browser session (ED-2).
pub const SESSION: &str = "__Host-svc_auth";
/// A sign-in that is under way: what makes its code good in this browser alone.
pub const SIGN_IN: &str = "__Host-svc_sign_in";
/// The challenge was passed (ED-6).
pub const CHALLENGE: &str = "__Host-svc_challenge";

const NAMES: [&str; 3] = [SESSION, SIGN_IN, CHALLENGE];

/// A cookie of ours in a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Cookie<'a> {
    #[default]
    Absent,
    One(&'a str),
    /// More than once, or no text: it is there, and proves nothing.
    Unclear,
}

impl<'a> Cookie<'a> {
    /// Whether it is there in whatever form: ambiguity is a matter of presence (ED-5).
    pub fn is_present(self) -> bool {
        self != Self::Absent
    }

    /// The value, where there is exactly one.
    pub fn value(self) -> Option<&'a str> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Unclear => None,
        }
    }

    fn add(&mut self, value: &'a [u8]) {
        *self = match (&self, std::str::from_utf8(value)) {
            (Self::Absent, Ok(value)) => Self::One(value),
            _ => Self::Unclear,
        };
    }
}

/// Silent: a cookie is a secret.
impl std::fmt::Debug for Cookie<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::One(_) => "One",
            Self::Unclear => "Unclear",
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
    pub fn among(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::default();
        for pair in values.flat_map(pairs) {
            let mut parts = pair.splitn(2, |&byte| byte == b'=');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let value = parts.next().unwrap_or_default().trim_ascii();
            let place = NAMES.iter().position(|known| known.as_bytes() == name);
            match place {
                Some(0) => found.session.add(value),
                Some(1) => found.sign_in.add(value),
                Some(_) => found.challenge.add(value),
                None => {}
            }
        }
        found
    }
}

/// The pairs of a `Cookie` field. What two parsers could read differently, such as a quoted value
/// with a semicolon in it, is read in the way that cuts more.
pub(crate) fn pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    pairs.filter(|pair| !pair.is_empty())
}

/// Whether a pair of a `Cookie` field is the edge's own, and not the service's to see.
pub(crate) fn is_edge_pair(pair: &[u8]) -> bool {
    let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
    is_ours(name.trim_ascii())
}

/// Whether a `Set-Cookie` of a service would make a cookie that comes back under a name of ours.
/// Browsers keep a cookie without a name and send its value as it is, so that may not pass either.
pub(crate) fn sets_edge_cookie(value: &[u8]) -> bool {
    let pair = value.split(|&byte| byte == b';').next().unwrap_or_default();
    let mut pair = pair.trim_ascii();
    while let Some(rest) = pair.strip_prefix(b"=") {
        pair = rest.trim_ascii();
    }
    is_edge_pair(pair)
}

/// Browsers compare the prefix without regard to case; so do we, with the whole name.
fn is_ours(name: &[u8]) -> bool {
    NAMES
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// The value of a `Set-Cookie` that sets one of ours for so many seconds; none takes it away.
/// Bound to this host (`__Host-`), kept from scripts, and sent when a person comes by a link.
pub(super) fn set(name: &str, value: &str, seconds: i64) -> String {
    format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax")
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
        let found = EdgeCookies::among(fields.into_iter());
        assert_eq!(found.session.value(), Some("x=y"));
        assert_eq!(found.challenge.value(), Some("c"));
        assert!(!found.sign_in.is_present());
        let twice = [&b"__Host-svc_auth=x"[..], b"__Host-svc_auth=x"];
        let found = EdgeCookies::among(twice.into_iter());
        assert!(found.session.is_present() && found.session.value().is_none());
        let found = EdgeCookies::among([&b"__Host-svc_auth=\xff"[..]].into_iter());
        assert!(found.session.is_present() && found.session.value().is_none());
        assert_eq!(format!("{:?}", Cookie::One("secret")), "One");
    }

    /// ED-2.
    #[test]
    fn ed_2_a_service_sets_no_cookie_of_the_edge() {
        for value in [
            "__Host-svc_auth=x; Path=/; Secure",
            " __Host-svc_auth =x",
            "__host-SVC_auth=x",
            "=__Host-svc_auth=x; Path=/; Secure",
            " = =__Host-svc_challenge=x",
            "__Host-svc_sign_in",
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
        /// Whatever a visitor sends: what is cut is what is read, and the rest stays in its order.
        #[test]
        fn what_is_read_is_what_is_cut(
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
            let again = EdgeCookies::among([&joined[..]].into_iter());
            prop_assert!(!again.session.is_present() && !again.challenge.is_present());
            let kept: Vec<&[u8]> = pairs(&joined).collect();
            prop_assert_eq!(kept, left);
        }
    }
}
