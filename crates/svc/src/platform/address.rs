//! Where a platform is.

use std::{fmt, str::FromStr};

use http::Uri;

/// The origin of a platform: `https://host[:port]`, or `http` on this machine's loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiUrl {
    origin: String,
    host: String,
}

impl ApiUrl {
    /// The host, IPv6 addresses in brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether the host is `localhost` or a name under it.
    pub(crate) fn is_localhost(&self) -> bool {
        self.host == "localhost" || self.host.ends_with(".localhost")
    }
}

impl FromStr for ApiUrl {
    type Err = BadApiUrl;

    fn from_str(text: &str) -> Result<Self, BadApiUrl> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let uri: Uri = text.parse().map_err(|_invalid| BadApiUrl::NoOrigin)?;
        let scheme = uri.scheme_str().ok_or(BadApiUrl::NoOrigin)?;
        let authority = uri.authority().ok_or(BadApiUrl::NoOrigin)?.as_str();
        let is_origin = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !is_origin || authority.contains('@') || text.contains('#') {
            return Err(BadApiUrl::NoOrigin);
        }
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let literal = host.trim_matches(['[', ']']);
        let address = Self {
            origin: format!("{scheme}://{}", authority.to_ascii_lowercase()),
            host: host.clone(),
        };
        let on_loopback = address.is_localhost()
            || literal
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        match scheme {
            "https" => Ok(address),
            "http" if on_loopback => Ok(address),
            "http" => Err(BadApiUrl::InClear),
            _ => Err(BadApiUrl::NoOrigin),
        }
    }
}

impl fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

/// Not an address that tokens are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadApiUrl {
    /// Something else than scheme, host and port.
    NoOrigin,
    /// Without TLS, beyond this machine.
    InClear,
}

impl fmt::Display for BadApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOrigin => "no address such as https://svc.example.com",
            Self::InClear => "not https: the token would travel in clear",
        })
    }
}

impl std::error::Error for BadApiUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_and_compared_without_its_slash() {
        let one: ApiUrl = "https://Svc.example.com/".parse().unwrap();
        assert_eq!(one.to_string(), "https://svc.example.com");
        assert_eq!(one, "https://svc.example.com".parse().unwrap());
        for text in [
            "http://localhost:8445",
            "http://127.0.0.1:1",
            "http://[::1]:1",
        ] {
            assert_eq!(text.parse::<ApiUrl>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_token_is_not_sent_in_clear_or_to_what_is_no_origin() {
        let bad = |text: &str| text.parse::<ApiUrl>().unwrap_err();
        assert_eq!(bad("http://svc.example.com"), BadApiUrl::InClear);
        assert_eq!(bad("http://localhost.example"), BadApiUrl::InClear);
        for text in [
            "",
            "svc.example.com",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "ftp://a",
        ] {
            assert_eq!(bad(text), BadApiUrl::NoOrigin, "{text}");
        }
    }
}
