//! What must hold for any token that a stranger sends. `fuzz/` feeds this function with what it
//! invents, the test with what is kept in `tests/corpus`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::{Keyring, Secret, inspect, verify, watch};

const NOW: i64 = 1_800_000_000;
const SECRET: &str = "a secret of thirty-two bytes, or more";

/// A token as it is sent, or a header and a payload on two lines, which are signed first: claims
/// behind a good signature are the issuer's word, and an issuer can be wrong too.
pub(crate) fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let keys = Keyring::new()
        .with_secret(&Secret::new(SECRET))
        .unwrap()
        .with_compat(true);
    judge(text, &keys);
    if let Some((header, payload)) = text.split_once('\n') {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, SECRET.as_bytes());
        let signature = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
        judge(
            &format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)),
            &keys,
        );
    }
}

fn judge(token: &str, keys: &Keyring) {
    assert!(
        verify(token, &Keyring::new(), NOW).is_err(),
        "no key, no proof"
    );
    let Ok(verified) = verify(token, keys, NOW) else {
        return;
    };
    assert!(inspect(token).is_some(), "what verifies can be looked into");
    assert!(!verified.is_expired(NOW));
    assert!(!verified.identity.id().is_empty());
    if watch::check(&verified, NOW).is_ok() {
        assert!(
            verified
                .expires_at
                .is_some_and(|at| (NOW + 1..=NOW + 3660).contains(&at))
        );
    }
    if let Some(at) = verified.expires_at {
        assert!(
            verify(token, keys, at).is_err(),
            "good until its expiry, not at it"
        );
    }
}
