//! Our cookies: their names, their attributes, and how they are read.

use credentials::Secret;

use super::secret_link::LinkSecret;

/// A cookie that holds one secret.
///
/// Over TLS its name begins with `__Host-`: this host alone, every path, never set by another one.
/// Only where the platform is served without TLS on loopback, where browsers take no such name, it
/// has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// With the prefix.
    name: &'static str,
    is_secure: bool,
}

impl Cookie {
    /// The one by which a person is signed in at a platform at `base_url`.
    pub fn session(base_url: &str) -> Self {
        Self::named(base_url, "__Host-svc_session")
    }

    /// The one by which a browser is known that comes back from the OpenID provider.
    pub fn sign_in(base_url: &str) -> Self {
        Self::named(base_url, "__Host-svc_sign_in")
    }

    /// The one by which a browser is known that asked for a passkey, before anybody signed in.
    pub fn passkey(base_url: &str) -> Self {
        Self::named(base_url, "__Host-svc_passkey")
    }

    fn named(base_url: &str, name: &'static str) -> Self {
        let is_secure = base_url.starts_with("https://");
        let plain = name.strip_prefix("__Host-").unwrap_or(name);
        Self {
            name: if is_secure { name } else { plain },
            is_secure,
        }
    }

    /// Name of the cookie.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Value of `Set-Cookie` that hands the secret to the browser for `seconds`.
    ///
    /// `SameSite=Lax`: a link from a mail or another site finds the person signed in; a form from
    /// another site does not (and `pages::same_origin` refuses it as well).
    pub fn set(self, secret: &LinkSecret, seconds: u32) -> String {
        format!(
            "{}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{}",
            self.name,
            secret.reveal(),
            self.secure()
        )
    }

    /// Value of `Set-Cookie` that takes it away.
    pub fn clear(self) -> String {
        let name = self.name;
        format!(
            "{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{}",
            self.secure()
        )
    }

    /// The secret in the `Cookie` fields of a request: exactly one cookie of the name, well formed.
    /// Two of them are none, because it is not known which one was planted.
    pub fn read<'a>(self, fields: impl IntoIterator<Item = &'a [u8]>) -> Option<LinkSecret> {
        let mut found = None;
        for field in fields {
            // Bytes that are no ASCII belong to cookies of others.
            for pair in field.split(|byte| *byte == b';') {
                let pair = pair.trim_ascii();
                let value = pair
                    .strip_prefix(self.name.as_bytes())
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

    const fn secure(self) -> &'static str {
        if self.is_secure { "; Secure" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_bound_to_the_host_and_out_of_reach_of_scripts() {
        let secret = LinkSecret::parse(&"A".repeat(43)).unwrap();
        let cookie = Cookie::session("https://svc.example");
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
        let plain = Cookie::session("http://127.0.0.1:8080").set(&secret, 60);
        assert!(plain.starts_with("svc_session=") && !plain.contains("Secure"));
    }

    #[test]
    fn exactly_one_cookie_is_read() {
        let secret = LinkSecret::draw().unwrap();
        let text = secret.reveal();
        let read = |fields: &[&str]| {
            Cookie::session("https://svc.example").read(fields.iter().map(|field| field.as_bytes()))
        };
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
