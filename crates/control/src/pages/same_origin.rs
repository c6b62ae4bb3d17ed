//! Whether a write comes from a page of ours.
//!
//! A browser sends the session cookie along with a request that another site made it send. What
//! another site cannot do is lie in `Sec-Fetch-Site` and `Origin`: the browser writes them. So a
//! write that carries only the cookie has to show one of them, and all that it shows must be ours.
//! There is no token in the forms, nothing to store and nothing to leak.

use http::{HeaderMap, header};
use types::problem::Problem;

/// Whether the browser vouches that the request is from the origin `base_url` itself.
///
/// `base_url` is `scheme://host[:port]`, without a path. False where neither header is there: a
/// client that is no browser uses a bearer token.
pub fn is_same_origin(headers: &HeaderMap, base_url: &str) -> bool {
    let site = one(headers, "sec-fetch-site");
    let origin = one(headers, header::ORIGIN.as_str());
    match (site, origin) {
        (Given::Repeated, _) | (_, Given::Repeated) => false,
        (Given::Absent, Given::Absent) => false,
        (Given::Absent, Given::Once(origin)) => origin == base_url.as_bytes(),
        (Given::Once(site), Given::Absent) => site == b"same-origin",
        (Given::Once(site), Given::Once(origin)) => {
            site == b"same-origin" && origin == base_url.as_bytes()
        }
    }
}

/// What a write gets that is not.
pub fn refusal() -> Problem {
    let detail = "This was not sent from a page of ours. Open the page again.";
    Problem::new(403, "foreign_origin", detail)
}

enum Given<'a> {
    Absent,
    Once(&'a [u8]),
    Repeated,
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> Given<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Given::Absent,
        (Some(value), None) => Given::Once(value.as_bytes()),
        (Some(_), Some(_)) => Given::Repeated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(fields: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        is_same_origin(&headers, "https://svc.example")
    }

    #[test]
    fn a_form_of_ours_is_taken() {
        assert!(same(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://svc.example")
        ]));
        assert!(same(&[("sec-fetch-site", "same-origin")]));
        assert!(same(&[("origin", "https://svc.example")]));
    }

    #[test]
    fn anything_else_is_refused() {
        for fields in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            // A bookmark or an address typed by hand sends no form.
            &[("sec-fetch-site", "none")],
            &[("origin", "null")],
            &[("origin", "https://svc.example.evil.example")],
            &[("origin", "http://svc.example")],
            &[("origin", "https://svc.example:8443")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://svc.example"),
            ],
            &[
                ("sec-fetch-site", "same-origin"),
                ("origin", "https://evil.example"),
            ],
            &[
                ("origin", "https://svc.example"),
                ("origin", "https://evil.example"),
            ],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("referer", "https://svc.example/login")],
        ] {
            assert!(!same(fields), "{fields:?}");
        }
    }
}
