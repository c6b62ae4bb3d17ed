//! Errors of platform calls.

use std::{error::Error, fmt, io};

use client::Proxies;
use rustls::CertificateError;
use serde::Deserialize;

use super::ApiUrl;
use crate::{
    failure::{Code, Failure, chain},
    output::plain,
    proxy,
};

/// A failed call.
#[derive(Debug)]
pub(crate) enum PlatformError {
    /// The platform refused the request with a reason.
    Refused(Box<Refusal>),
    /// The platform is unreachable, or the connection failed.
    Unreachable {
        /// The address.
        address: String,
        /// The proxy on the way, without its login.
        proxy: Option<String>,
        /// The cause.
        source: reqwest::Error,
    },
    /// The response is not from a platform, or from a newer version.
    Unexpected(String),
}

/// A problem response (RFC 9457). For a response in another format, only the status is set.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    /// HTTP status.
    pub(crate) status: u16,
    /// Stable name.
    pub(crate) code: String,
    /// Message for users.
    pub(crate) detail: String,
    /// The input at fault.
    pub(crate) field: Option<String>,
    /// Missing permissions.
    pub(crate) scope: Option<String>,
    /// A page where the user can continue.
    pub(crate) url: Option<String>,
}

impl PlatformError {
    /// The error of a connection to the platform.
    pub(super) fn unreachable(address: &ApiUrl, proxies: &Proxies, source: reqwest::Error) -> Self {
        let url = address.to_url().ok();
        let proxy = url.and_then(|url| proxy::of_url(proxies, &url).ok().flatten());
        Self::Unreachable {
            address: address.to_string(),
            proxy: proxy.map(ToString::to_string),
            // The address is reported once.
            source: source.without_url(),
        }
    }

    /// The text for a platform that cannot be reached, with the whole cause. `proxy` is the proxy on the
    /// way, without its login.
    pub(crate) fn unreachable_text(
        address: &str,
        proxy: Option<&str>,
        source: &reqwest::Error,
    ) -> String {
        let via = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
        let cause = match certificate_fault(source) {
            Some(fault) => fault.to_owned(),
            None => plain(&chain(source)),
        };
        format!("cannot reach the platform at {address}{via}: {cause}")
    }

    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        let refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
        // The status line takes precedence over the body.
        Self::Refused(Box::new(Refusal { status, ..refusal }))
    }

    /// The refusal, if it has this code.
    pub(crate) fn refusal(&self, code: &str) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) if refusal.code == code => Some(refusal),
            _ => None,
        }
    }

    /// True if the object does not exist or is not visible to the caller.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.status == 404)
    }

    /// True if the requested action was certainly not performed.
    pub(crate) fn is_certainly_not_done(&self) -> bool {
        match self {
            Self::Refused(refusal) => (400..500).contains(&refusal.status),
            // No connection was established, so the request was not received.
            Self::Unreachable { source, .. } => source.is_connect(),
            Self::Unexpected(_) => false,
        }
    }

    /// True if the same call could succeed later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502..=504),
            Self::Unreachable { .. } => true,
            Self::Unexpected(_) => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            write!(f, "the platform answered {}", self.status)?;
        } else {
            f.write_str(self.detail.trim_end_matches('.'))?;
        }
        match &self.field {
            Some(field) => write!(f, " (`{field}`)"),
            None => Ok(()),
        }
    }
}

impl From<PlatformError> for Failure {
    fn from(error: PlatformError) -> Self {
        match error {
            PlatformError::Refused(refusal) => refused(&refusal),
            PlatformError::Unreachable {
                address,
                proxy,
                source,
            } => {
                let message = PlatformError::unreachable_text(&address, proxy.as_deref(), &source);
                let hint = match proxy {
                    Some(_) => "check HTTPS_PROXY or --proxy; `--proxy none` connects directly",
                    None => "is it running, and is --api-url its address? `svc up` starts one here",
                };
                Self::new(Code::Failed, message)
                    .named("platform_unreachable")
                    .hint(hint)
            }
            PlatformError::Unexpected(what) => Self::new(
                Code::Failed,
                format!("the platform's response cannot be parsed: {}", plain(&what)),
            )
            .hint("is --api-url the address of a platform?"),
        }
    }
}

/// The reason why the platform's certificate is not accepted, if it is the cause.
fn certificate_fault(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut cause = error;
    let fault = loop {
        match cause.downcast_ref::<io::Error>().and_then(tls_error) {
            Some(fault) => break fault,
            None => cause = cause.source()?,
        }
    };
    match fault {
        // A bad signature: another authority of the same name.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Some("its certificate is signed by a CA that is not trusted here"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("its certificate is for other names than the one in its address"),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => Some("its certificate has expired, or the clock of this machine is wrong"),
        _ => None,
    }
}

/// The error of the TLS library in an IO error, which does not count as the cause of the latter.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    let content = error.get_ref()?;
    match content.downcast_ref::<io::Error>() {
        Some(inner) => tls_error(inner),
        None => content.downcast_ref(),
    }
}

fn refused(refusal: &Refusal) -> Failure {
    let text = plain(&refusal.to_string());
    let failure = |code| Failure::new(code, &text).named(plain(&refusal.code));
    match (refusal.status, refusal.code.as_str()) {
        (401, _) => failure(Code::Refused)
            .hint("`svc login` gets a new token; `svc token inspect` shows when one expires"),
        (403, _) => match &refusal.scope {
            Some(scope) => failure(Code::Refused).hint(format!(
                "the token, or your role there, does not allow {}; `svc whoami` shows what it \
                 allows",
                plain(scope)
            )),
            None => failure(Code::Refused).hint("`svc whoami` shows what the token allows"),
        },
        (402, _) => match &refusal.url {
            Some(url) => failure(Code::Failed).hint(format!("continue at {}", plain(url))),
            None => failure(Code::Failed),
        },
        (409 | 422, _) => failure(Code::Conflict),
        (400, "feature_unavailable") => failure(Code::NotAvailable),
        (400, _) => failure(Code::Usage),
        _ => failure(Code::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_mapped_to_documented_exit_codes() {
        for (status, code, exit) in [
            (401, "invalid_token", Code::Refused),
            (403, "insufficient_scope", Code::Refused),
            (409, "conflict", Code::Conflict),
            (422, "idempotency_key_reused", Code::Conflict),
            (400, "invalid_request", Code::Usage),
            (400, "feature_unavailable", Code::NotAvailable),
            (404, "not_found", Code::Failed),
            (503, "service_unavailable", Code::Failed),
        ] {
            let body = format!(r#"{{"code": "{code}", "detail": "No."}}"#);
            let failure = Failure::from(PlatformError::from_response(status, body.as_bytes()));
            assert_eq!(failure.code(), exit, "{status} {code}");
        }
    }

    #[test]
    fn platform_messages_are_sanitised() {
        let hostile = "No\u{1b}[2J\nhint: do that";
        for status in [402, 403, 404] {
            let body = serde_json::json!({
                "code": hostile, "detail": hostile, "scope": hostile, "url": hostile,
            });
            let refused = PlatformError::from_response(status, body.to_string().as_bytes());
            let failure = Failure::from(refused);
            let hint = failure.next_step().unwrap_or_default();
            for told in [failure.message(), failure.name(), hint] {
                assert_eq!(told, plain(told), "{status}");
            }
        }
    }

    #[test]
    fn a_foreign_body_leaves_the_status() {
        let failure = Failure::from(PlatformError::from_response(502, b"<html>"));
        assert!(failure.to_string().contains("answered 502"), "{failure}");
    }
}
