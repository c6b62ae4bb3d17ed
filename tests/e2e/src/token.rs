use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// A compact JWT (RFC 7519) signed with HS256. It is implemented here, so that the program's own
/// implementation does not test itself.
pub(crate) fn sign(secret: &str, claims: &Value) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let signed = format!("{header}.{claims}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::sign;

    #[test]
    fn a_token_has_the_known_signature() {
        // Computed with another implementation.
        let token = sign("secret", &json!({"sub": "1"}));
        assert_eq!(token, EXPECTED);
    }

    const EXPECTED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.8qZF8vbN3UpcanXFc-mPXJkOPN01-bRch8XX3rToP1U";
}
