//! TURN credentials: self-describing usernames, and passwords derived from them.
//!
//! ```text
//! v1:<exp>:api:<project endpoint>:<user id>         issued by the platform (TU-2)
//! v1:<exp>:pat:<project endpoint>:<token endpoint>  derived by the holder of a token
//! v1:<exp>:app:<project endpoint>:<client id>       derived by an application with a key on P-521
//! ```
//!
//! The password is base64 of HMAC-SHA256 over the username. HKDF-SHA256 (RFC 5869) derives the key,
//! with the realm as salt, from a secret that both sides have: the shared secret of platform and
//! relay, the hash of the token, or the result of ECDH between the application's and the relay's
//! key. A relay therefore needs no table of users.

use aws_lc_rs::agreement::{ECDH_P521, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;

use crate::secret::Secret;

/// Maximum remaining lifetime of a username, in seconds (TU-4).
pub const MAX_SECONDS_LEFT: i64 = 3600;

/// `v1:<exp>:api:<project endpoint>:<user id>`; `expires_at` in Unix seconds.
pub fn api_username(expires_at: i64, project_endpoint: &str, user_id: &str) -> String {
    format!("v1:{expires_at}:api:{project_endpoint}:{user_id}")
}

/// The password of an [`api_username`] in a realm, from the shared secret of platform and relay.
/// `None` if the library fails, which does not happen for any actual input.
pub fn api_password(secret: &Secret, realm: &str, username: &str) -> Option<String> {
    Some(PasswordKey::api(secret, realm)?.password(username))
}

/// A username of one of the three forms, in its canonical spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Username<'a> {
    /// The whole username.
    pub text: &'a str,
    /// Expiry in Unix seconds.
    pub expires_at: i64,
    /// Issuer of the password.
    pub kind: Kind,
    /// The project: eight lower-case hexadecimal digits.
    pub project_endpoint: &'a str,
    /// Id of the user, `token_endpoint`, or id of the application, by `kind`.
    pub subject: &'a str,
}

/// Issuer of a username's password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The platform.
    Api,
    /// The holder of a personal access token.
    Pat,
    /// An application.
    App,
}

/// Reason why a username is not valid now (TU-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsernameTimeError {
    /// It has expired.
    #[error("the username has expired")]
    Expired,
    /// It expires later than the rules allow.
    #[error("the username has more than {MAX_SECONDS_LEFT} seconds left")]
    TooLong,
}

impl<'a> Username<'a> {
    /// Parses a username. `None` for every text that the rules do not produce: each username has
    /// only one spelling, because usernames are keys in tables.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let (version, expires_at) = (parts.next()?, parts.next()?);
        let (kind, project_endpoint) = (parts.next()?, parts.next()?);
        let subject = parts.next()?;
        let is_whole = version == "v1" && parts.next().is_none();
        let kind = match kind {
            "api" => Kind::Api,
            "pat" => Kind::Pat,
            "app" => Kind::App,
            _ => return None,
        };
        let hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_endpoint = project_endpoint.len() == 8 && project_endpoint.bytes().all(hexadecimal);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_subject =
            (1..=MAX_SUBJECT_BYTES).contains(&subject.len()) && subject.bytes().all(plain);
        if !is_whole || !is_endpoint || !is_subject {
            return None;
        }
        Some(Self {
            text,
            expires_at: seconds(expires_at)?,
            kind,
            project_endpoint,
            subject,
        })
    }

    /// Checks that it is valid at `now` (Unix seconds).
    ///
    /// # Errors
    /// [`UsernameTimeError`]
    pub fn check_time(&self, now: i64) -> Result<(), UsernameTimeError> {
        match self.expires_at.saturating_sub(now) {
            ..=0 => Err(UsernameTimeError::Expired),
            1..=MAX_SECONDS_LEFT => Ok(()),
            _ => Err(UsernameTimeError::TooLong),
        }
    }
}

/// Longer than any actual id.
const MAX_SUBJECT_BYTES: usize = 128;

/// Digits without a sign and without leading zeros.
fn seconds(text: &str) -> Option<i64> {
    let is_number = (1..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && !text.starts_with('0');
    is_number.then(|| text.parse().ok()).flatten()
}

/// The key for the passwords of all usernames of one kind and one holder in one realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordKey(Secret);

impl PasswordKey {
    /// For usernames that the platform issues, from its shared secret with the relay.
    pub fn api(secret: &Secret, realm: &str) -> Option<Self> {
        Self::derive(secret.expose(), realm, b"turn-api-v1")
    }

    /// For usernames that the holder of a token creates; `digest` is SHA-256 of the token's text.
    pub fn pat(digest: &[u8; 32], realm: &str) -> Option<Self> {
        Self::derive(digest, realm, b"turn-pat-v1")
    }

    /// For usernames that an application creates. `None` if its key is on another curve than the
    /// relay's.
    pub fn app(relay: &RelayPrivateKey, application: &ApplicationKey, realm: &str) -> Option<Self> {
        let peer = UnparsedPublicKey::new(&ECDH_P521, &application.0);
        agree(&relay.0, peer, (), |shared| {
            Self::derive(shared, realm, b"turn-app-v1").ok_or(())
        })
        .ok()
    }

    fn derive(input: &[u8], realm: &str, purpose: &[u8]) -> Option<Self> {
        let mut key = zeroize::Zeroizing::new([0; 32]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, realm.as_bytes())
            .extract(input)
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut *key))
            .ok()?;
        Some(Self(Secret::new(*key)))
    }

    /// The password of a username.
    pub fn password(&self, username: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.expose());
        STANDARD.encode(hmac::sign(&key, username.as_bytes()).as_ref())
    }
}

/// A relay's private key, on P-521.
#[derive(Debug)]
pub struct RelayPrivateKey(PrivateKey);

impl RelayPrivateKey {
    /// Parses DER (RFC 5915 or PKCS#8).
    pub fn from_der(der: &Secret) -> Option<Self> {
        let key = PrivateKey::from_private_key_der(&ECDH_P521, der.expose());
        key.ok().map(Self)
    }
}

/// The public key of an application, `SubjectPublicKeyInfo` in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationKey(Box<[u8]>);

impl ApplicationKey {
    /// Parses the first public key (`PUBLIC KEY`) of a PEM text.
    pub fn from_pem(pem: &str) -> Option<Self> {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some(Self(key.as_ref().into()))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, PublicKeyX509Der};

    use super::*;

    /// TU-2. The expected password was computed with another implementation of HKDF and HMAC.
    #[test]
    fn tu_2_username_and_password_match_another_implementation() {
        let username = api_username(1_767_225_600, "e7e8a732", "usr_1");
        assert_eq!(username, "v1:1767225600:api:e7e8a732:usr_1");
        let secret = Secret::new(*b"0123456789abcdef0123456789abcdef");
        let password = api_password(&secret, "engine.example.com", &username);
        assert_eq!(
            password.as_deref(),
            Some("rhH6lYEjRyeyMJ5qep7xm9sxkxV0ViWDHGmSic7VVBI=")
        );
        assert_ne!(password, api_password(&secret, "other", &username));
    }

    #[test]
    fn a_username_is_read_as_it_was_made() {
        let text = api_username(1_767_225_600, "e7e8a732", "usr_1");
        let read = Username::parse(&text).unwrap();
        assert_eq!(read.expires_at, 1_767_225_600);
        assert_eq!((read.kind, read.subject), (Kind::Api, "usr_1"));
        assert_eq!(read.project_endpoint, "e7e8a732");
        for (form, kind) in [("pat", Kind::Pat), ("app", Kind::App)] {
            let text = format!("v1:1:{form}:00000000:a-b_C9");
            assert_eq!(Username::parse(&text).unwrap().kind, kind);
        }
    }

    /// TU-4: malformed usernames belong to no user.
    #[test]
    fn tu_4_every_malformed_username_is_refused() {
        let long = format!("v1:1:api:e7e8a732:{}", "a".repeat(MAX_SUBJECT_BYTES + 1));
        for bad in [
            "",
            ":",
            "::::",
            "user",
            "1767225600:user",
            "v1:1:api:e7e8a732",
            "v1:1:api:e7e8a732:",
            "v1:1:api:e7e8a732:usr_1:",
            "v1:1:api:e7e8a732:usr_1:x",
            "v2:1:api:e7e8a732:usr_1",
            "V1:1:api:e7e8a732:usr_1",
            " v1:1:api:e7e8a732:usr_1",
            "v1::api:e7e8a732:usr_1",
            "v1:0:api:e7e8a732:usr_1",
            "v1:01:api:e7e8a732:usr_1",
            "v1:+1:api:e7e8a732:usr_1",
            "v1:-1:api:e7e8a732:usr_1",
            "v1:1.0:api:e7e8a732:usr_1",
            "v1:1e9:api:e7e8a732:usr_1",
            "v1:0x1:api:e7e8a732:usr_1",
            "v1:\u{661}:api:e7e8a732:usr_1",
            "v1:9999999999999:api:e7e8a732:usr_1",
            "v1:99999999999999999999:api:e7e8a732:usr_1",
            "v1:1:API:e7e8a732:usr_1",
            "v1:1::e7e8a732:usr_1",
            "v1:1:jwt:e7e8a732:usr_1",
            "v1:1:api:E7E8A732:usr_1",
            "v1:1:api:e7e8a73:usr_1",
            "v1:1:api:e7e8a7321:usr_1",
            "v1:1:api:e7e8a73g:usr_1",
            "v1:1:api::usr_1",
            "v1:1:api:e7e8a732:usr 1",
            "v1:1:api:e7e8a732:usr_1\0",
            "v1:1:api:e7e8a732:usr_1\n",
            "v1:1:api:e7e8a732:\u{fc}",
            "v1:1:api:e7e8a732:../x",
            &long,
        ] {
            assert_eq!(Username::parse(bad), None, "{bad:?}");
        }
    }

    /// TU-4, at its edges.
    #[test]
    fn tu_4_a_username_ends_within_an_hour() {
        let read = Username::parse("v1:10000:api:e7e8a732:usr_1").unwrap();
        assert_eq!(read.check_time(10_000), Err(UsernameTimeError::Expired));
        assert_eq!(read.check_time(9_999), Ok(()));
        assert_eq!(read.check_time(6_400), Ok(()));
        assert_eq!(read.check_time(6_399), Err(UsernameTimeError::TooLong));
        assert_eq!(read.check_time(i64::MIN), Err(UsernameTimeError::TooLong));
        assert_eq!(read.check_time(i64::MAX), Err(UsernameTimeError::Expired));
    }

    /// TU-5: the form of `pat`. Computed with another implementation of HKDF and HMAC.
    #[test]
    fn tu_5_the_password_of_a_token_matches_another_implementation() {
        let digest = crate::digest("svc_pat_example");
        let key = PasswordKey::pat(&digest, "engine.example.com").unwrap();
        assert_eq!(
            key.password("v1:1767225600:pat:e7e8a732:0a1b2c3d"),
            "QA+u4+FHIafi2Z75JiPG9ERq7QNW1zL62Tq+8WaDN6I="
        );
    }

    /// TU-5: both sides of `app` agree, and on no other curve.
    #[test]
    fn tu_5_application_and_relay_agree_on_a_password() {
        let realm = "engine.example.com";
        let pair = || {
            let key = PrivateKey::generate(&ECDH_P521).unwrap();
            let der: EcPrivateKeyRfc5915Der<'_> = key.as_der().unwrap();
            let public: PublicKeyX509Der<'_> = key.compute_public_key().unwrap().as_der().unwrap();
            let private = RelayPrivateKey::from_der(&Secret::new(der.as_ref())).unwrap();
            (private, ApplicationKey(public.as_ref().into()))
        };
        let (relay, relay_public) = pair();
        let (application, application_public) = pair();
        let ours = PasswordKey::app(&relay, &application_public, realm).unwrap();
        let theirs = PasswordKey::app(&application, &relay_public, realm).unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(ours.password("x"), theirs.password("x"));
        let (_, other) = pair();
        assert_ne!(ours, PasswordKey::app(&relay, &other, realm).unwrap());
        let p256 = PrivateKey::generate(&aws_lc_rs::agreement::ECDH_P256).unwrap();
        let p256: PublicKeyX509Der<'_> = p256.compute_public_key().unwrap().as_der().unwrap();
        let p256 = ApplicationKey(p256.as_ref().into());
        assert_eq!(PasswordKey::app(&relay, &p256, realm), None);
    }
}
