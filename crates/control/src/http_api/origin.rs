//! Origin of a request, as the browser reports it.
//!
//! Another site cannot forge `Sec-Fetch-Site` and `Origin`, because the browser writes them.

use http::{HeaderMap, header};
use types::problem::Problem;

/// True if the browser confirms that the request is from the origin `base_url` itself.
///
/// `base_url` is `scheme://host[:port]`, without a path. False if neither header is present. A
/// client that is not a browser uses a bearer token.
pub(crate) fn is_same_origin(headers: &HeaderMap, base_url: &str) -> bool {
    let site = one(headers, "sec-fetch-site");
    let origin = one(headers, header::ORIGIN.as_str());
    match (site, origin) {
        (OriginEvidence::Repeated, _) | (_, OriginEvidence::Repeated) => false,
        (OriginEvidence::Absent, OriginEvidence::Absent) => false,
        (OriginEvidence::Absent, OriginEvidence::Single(origin)) => origin == base_url.as_bytes(),
        (OriginEvidence::Single(site), OriginEvidence::Absent) => site == b"same-origin",
        (OriginEvidence::Single(site), OriginEvidence::Single(origin)) => {
            site == b"same-origin" && origin == base_url.as_bytes()
        }
    }
}

/// Response to a request from another origin.
pub(crate) fn refusal() -> Problem {
    let detail = "This request was not sent from a page of this platform. Open the page again.";
    Problem::new(403, "foreign_origin", detail)
}

/// True if the browser reports that a page of another origin triggered the request.
///
/// A typed address or a bookmark (`none`) is not foreign. Other sites cannot read the response to
/// such a request, but it must not cause any work either.
pub(crate) fn is_foreign(headers: &HeaderMap, base_url: &str) -> bool {
    let is_other_site = match one(headers, "sec-fetch-site") {
        OriginEvidence::Absent => false,
        OriginEvidence::Single(site) => !matches!(site, b"same-origin" | b"none"),
        OriginEvidence::Repeated => true,
    };
    let is_other_origin = match one(headers, header::ORIGIN.as_str()) {
        OriginEvidence::Absent => false,
        OriginEvidence::Single(origin) => origin != base_url.as_bytes(),
        OriginEvidence::Repeated => true,
    };
    is_other_site || is_other_origin
}

enum OriginEvidence<'a> {
    Absent,
    Single(&'a [u8]),
    Repeated,
}

fn one<'a>(headers: &'a HeaderMap, name: &str) -> OriginEvidence<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => OriginEvidence::Absent,
        (Some(value), None) => OriginEvidence::Single(value.as_bytes()),
        (Some(_), Some(_)) => OriginEvidence::Repeated,
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
    fn a_form_of_the_platform_is_accepted() {
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
            // A bookmark or a typed address does not submit a form.
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

    #[test]
    fn a_request_is_foreign_if_a_header_states_another_site() {
        let foreign = |fields: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, value.parse().unwrap());
            }
            is_foreign(&headers, "https://svc.example")
        };
        for good in [
            &[][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("origin", "https://svc.example")],
        ] {
            assert!(!foreign(good), "{good:?}");
        }
        for bad in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "null")],
            &[("origin", "https://evil.example")],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "none")],
            &[
                ("sec-fetch-site", "same-origin"),
                ("origin", "https://evil.example"),
            ],
        ] {
            assert!(foreign(bad), "{bad:?}");
        }
    }
}
