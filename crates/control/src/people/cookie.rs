//! The platform's cookies: their names and attributes, and how they are parsed.
//!
//! Stricter than the crate `cookie`: fields may have bytes that are not UTF-8, and white space beside
//! the equals sign is refused. That crate also writes the attributes in another order.

use credentials::Secret;

use super::secret_link::LinkSecret;

/// A cookie that contains one secret.
///
/// Over TLS its name starts with `__Host-`. Browsers then send it to this host only, for every
/// path, and no other host can set it. Without TLS on loopback, browsers reject such a name, so it
/// has no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Name with the prefix.
    name: &'static str,
    is_secure: bool,
}

impl Cookie {
    /// The session cookie of a platform at `base_url`.
    pub fn session(base_url: &str) -> Self {
        Self::named(base_url, "__Host-svc_session")
    }

    /// The cookie that identifies a browser when it returns from the OpenID provider.
    pub fn sign_in(base_url: &str) -> Self {
        Self::named(base_url, "__Host-svc_sign_in")
    }

    /// The cookie that identifies a browser that requests a passkey before a user has signed in.
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

    /// Value of `Set-Cookie` that gives the secret to the browser for `seconds`.
    ///
    /// `SameSite=Lax`: the browser sends the cookie when the user follows a link from a mail or
    /// another site. It does not send it with a form of another site (and `pages::same_origin`
    /// refuses that as well).
    pub fn set(self, secret: &LinkSecret, seconds: u32) -> String {
        format!(
            "{}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{}",
            self.name,
            secret.reveal(),
            self.secure()
        )
    }

    /// Value of `Set-Cookie` that deletes the cookie.
    pub fn clear(self) -> String {
        let name = self.name;
        format!(
            "{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{}",
            self.secure()
        )
    }

    /// Reads the secret from the `Cookie` fields of a request. There must be exactly one
    /// well-formed cookie of the name. If there are two, an attacker may have planted one, so
    /// neither is used.
    pub fn read<'a>(self, fields: impl IntoIterator<Item = &'a [u8]>) -> Option<LinkSecret> {
        let mut found = None;
        for field in fields {
            // Cookies of other applications may contain bytes that are not ASCII.
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
    fn the_cookie_is_bound_to_the_host_and_hidden_from_scripts() {
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
