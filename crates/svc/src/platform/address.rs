//! Address of a platform.

use std::{fmt, str::FromStr};

use http::Uri;
use reqwest::Url;

use crate::failure::Failure;

/// The origin of a platform: `https://host[:port]`, or `http` on this machine's loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiUrl {
    origin: String,
    host: String,
}

impl ApiUrl {
    /// The host. IPv6 addresses have brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The URL of its root.
    pub(crate) fn to_url(&self) -> Result<Url, Failure> {
        self.origin
            .parse()
            .map_err(|_invalid| Failure::usage(format!("{self} is {}", ApiUrlError::NotAnOrigin)))
    }

    /// True if the host is `localhost` or a name under it.
    pub(crate) fn is_localhost(&self) -> bool {
        is_localhost(&self.host)
    }
}

fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

impl FromStr for ApiUrl {
    type Err = ApiUrlError;

    fn from_str(text: &str) -> Result<Self, ApiUrlError> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let uri: Uri = text.parse().map_err(|_invalid| ApiUrlError::NotAnOrigin)?;
        let scheme = uri.scheme_str().ok_or(ApiUrlError::NotAnOrigin)?;
        let authority = uri.authority().ok_or(ApiUrlError::NotAnOrigin)?.as_str();
        let is_origin = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !is_origin || authority.contains('@') || text.contains('#') {
            return Err(ApiUrlError::NotAnOrigin);
        }
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let literal = host.trim_matches(['[', ']']);
        let is_loopback = is_localhost(&host)
            || literal
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        let address = Self {
            origin: format!("{scheme}://{}", authority.to_ascii_lowercase()),
            host,
        };
        match scheme {
            "https" => Ok(address),
            "http" if is_loopback => Ok(address),
            "http" => Err(ApiUrlError::Unencrypted),
            _ => Err(ApiUrlError::NotAnOrigin),
        }
    }
}

impl fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

/// The text is not an address that tokens may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiUrlError {
    /// The text is not just scheme, host and port.
    NotAnOrigin,
    /// Without TLS, and not on this machine.
    Unencrypted,
}

impl fmt::Display for ApiUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnOrigin => "not an address such as https://svc.example.com",
            Self::Unencrypted => "not https: the token would be sent unencrypted",
        })
    }
}

impl std::error::Error for ApiUrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_parsed_without_a_final_slash() {
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
    fn unencrypted_addresses_and_non_origins_are_refused() {
        let bad = |text: &str| text.parse::<ApiUrl>().unwrap_err();
        assert_eq!(bad("http://svc.example.com"), ApiUrlError::Unencrypted);
        assert_eq!(bad("http://localhost.example"), ApiUrlError::Unencrypted);
        for text in [
            "",
            "svc.example.com",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "ftp://a",
        ] {
            assert_eq!(bad(text), ApiUrlError::NotAnOrigin, "{text}");
        }
    }
}
