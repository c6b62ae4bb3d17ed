//! TURN credentials that the platform issues (TU-2): a username that says what it is, and a
//! password that follows from it.

use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::secret::Secret;

/// `v1:<exp>:api:<project endpoint>:<user id>`; `expires_at` in Unix seconds.
pub fn api_username(expires_at: i64, project_endpoint: &str, user_id: &str) -> String {
    format!("v1:{expires_at}:api:{project_endpoint}:{user_id}")
}

/// The password of an [`api_username`] in a realm: base64 of HMAC-SHA256 over the username. The
/// key is derived (HKDF-SHA256, RFC 5869) from the secret that platform and relay share, with the
/// realm as salt. `None` where the library refuses, which it does for no input that there is.
pub fn api_password(secret: &Secret, realm: &str, username: &str) -> Option<String> {
    let mut key = [0; 32];
    hkdf::Salt::new(hkdf::HKDF_SHA256, realm.as_bytes())
        .extract(secret.expose())
        .expand(&[API_KEY_PURPOSE], hkdf::HKDF_SHA256)
        .and_then(|derived| derived.fill(&mut key))
        .ok()?;
    let tag = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, &key),
        username.as_bytes(),
    );
    Some(STANDARD.encode(tag.as_ref()))
}

const API_KEY_PURPOSE: &[u8] = b"turn-api-v1";

#[cfg(test)]
mod tests {
    use super::*;

    /// TU-2. The expected password was computed with another implementation of HKDF and HMAC.
    #[test]
    fn tu_2_username_and_password_are_what_another_implementation_says() {
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
}
