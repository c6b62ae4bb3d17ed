//! The session cookie: its name, its attributes, and how it is read.

use credentials::Secret;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use super::secret_link::LinkSecret;

/// How the cookie is written, decided by where the platform is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionCookie {
    /// `__Host-svc_session`: over TLS, this host alone, every path.
    Host,
    /// `svc_session`: only where the platform is served without TLS on loopback, where browsers
    /// take no `__Host-` name.
    Plain,
    /// `__Host-svc_browser`: nobody's session, but the same browser as a moment ago.
    BrowserHost,
    /// `svc_browser`: the same, without TLS on loopback.
    BrowserPlain,
}

impl SessionCookie {
    /// The form for a platform at `base_url`.
    pub fn of(base_url: &str) -> Self {
        if base_url.starts_with("https://") {
            Self::Host
        } else {
            Self::Plain
        }
    }

    /// The cookie by which a browser is known again before anybody signed in.
    pub fn of_browser(base_url: &str) -> Self {
        match Self::of(base_url) {
            Self::Plain => Self::BrowserPlain,
            _ => Self::BrowserHost,
        }
    }

    /// Name of the cookie.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "__Host-svc_session",
            Self::Plain => "svc_session",
            Self::BrowserHost => "__Host-svc_browser",
            Self::BrowserPlain => "svc_browser",
        }
    }

    /// Value of `Set-Cookie` that hands the secret to the browser for `seconds`.
    ///
    /// `SameSite=Lax`: a link from a mail or another site finds the person signed in; a form from
    /// another site does not (and `pages::same_origin` refuses it as well).
    pub fn set(self, secret: &LinkSecret, seconds: u32) -> String {
        format!(
            "{}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{}",
            self.name(),
            secret.reveal(),
            self.secure()
        )
    }

    /// Value of `Set-Cookie` that takes it away.
    pub fn clear(self) -> String {
        let name = self.name();
        format!(
            "{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{}",
            self.secure()
        )
    }

    /// The secret in the request's `Cookie` fields: exactly one cookie of the name, well formed.
    /// Two of them are none, because it is not known which one was planted.
    pub fn read<'a>(self, fields: impl IntoIterator<Item = &'a [u8]>) -> Option<LinkSecret> {
        let mut found = None;
        for field in fields {
            // Bytes that are no ASCII belong to cookies of others.
            for pair in field.split(|byte| *byte == b';') {
                let pair = pair.trim_ascii();
                let value = pair
                    .strip_prefix(self.name().as_bytes())
                    .and_then(|rest| rest.strip_prefix(b"="));
                if let Some(value) = value {
                    if found.is_some() {
                        return None;
                    }
                    found = Some(Secret::new(value));
                }
            }
        }
        let value = found?;
        LinkSecret::parse(std::str::from_utf8(value.expose()).ok()?)
    }

    /// The secret in the cookie of a request, if there is one.
    pub fn of_request(self, headers: &HeaderMap) -> Option<LinkSecret> {
        let fields = headers.get_all(COOKIE).iter();
        self.read(fields.map(HeaderValue::as_bytes))
    }

    const fn secure(self) -> &'static str {
        match self {
            Self::Host | Self::BrowserHost => "; Secure",
            Self::Plain | Self::BrowserPlain => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_bound_to_the_host_and_out_of_reach_of_scripts() {
        let secret = LinkSecret::parse(&"A".repeat(43)).unwrap();
        let cookie = SessionCookie::of("https://svc.example");
        assert_eq!(
            cookie.set(&secret, 60),
            format!(
                "__Host-svc_session={}; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure",
                "A".repeat(43)
            )
        );
        assert!(
            cookie
                .clear()
                .starts_with("__Host-svc_session=; Path=/; Max-Age=0;")
        );
        let plain = SessionCookie::of("http://127.0.0.1:8080").set(&secret, 60);
        assert!(plain.starts_with("svc_session=") && !plain.contains("Secure"));
    }

    #[test]
    fn exactly_one_cookie_is_read() {
        let secret = LinkSecret::draw().unwrap();
        let text = secret.reveal();
        let read =
            |fields: &[&str]| SessionCookie::Host.read(fields.iter().map(|field| field.as_bytes()));
        let good = format!("a=1; __Host-svc_session={text};b=\u{e4}");
        assert_eq!(read(&[&good]), Some(secret));
        let good = good.as_str();
        let plain = format!("svc_session={text}");
        let other = format!("x__Host-svc_session={text}");
        for bad in [
            &[][..],
            &["a=1"],
            &[good, good],
            &[good, "__Host-svc_session="],
            &[&plain],
            &[&other],
            &["__Host-svc_session=short"],
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
