//! Bearer tokens in request headers.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Content of the `Authorization` header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Bearer<'a> {
    Absent,
    Token(&'a str),
    /// The header is present, but is not exactly one bearer token.
    Malformed,
}

impl<'a> Bearer<'a> {
    /// RFC 6750 section 2.1; the scheme is case-insensitive (RFC 9110 section 11.1).
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let mut fields = headers.get_all(AUTHORIZATION).iter();
        let (field, more) = (fields.next(), fields.next());
        let Some(field) = field else {
            return Self::Absent;
        };
        let token = field.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            let token = token.trim_matches(' ');
            let fits = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
            (fits && !token.contains(' ')).then_some(token)
        });
        match (token, more) {
            (Some(token), None) => Self::Token(token),
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, field.parse().unwrap());
        }
        format!("{:?}", Bearer::of(&headers))
    }

    #[test]
    fn only_a_single_bearer_token_is_accepted() {
        assert_eq!(read(&[]), "Absent");
        assert_eq!(read(&["Bearer a.b.c"]), "Token(\"a.b.c\")");
        assert_eq!(read(&["bearer  a.b.c"]), "Token(\"a.b.c\")");
        for bad in [
            &["Bearer"][..],
            &["Bearer "],
            &["Basic YTpi"],
            &["Bearer a b"],
            &["Bearer a", "Bearer b"],
            &["Bearer a", "Basic b"],
            &[""],
        ] {
            assert_eq!(read(bad), "Malformed", "{bad:?}");
        }
    }
}
