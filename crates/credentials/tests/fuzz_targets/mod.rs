//! Properties that hold for any token from a client, and for any secret of a webhook. `fuzz/` feeds
//! these functions with generated input, the tests with the inputs kept in `tests/corpus`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::webhook::{Message, WebhookSecret, headers};
use credentials::{Keyring, Secret, inspect, verify, watch};

const NOW: i64 = 1_800_000_000;
const SECRET: &str = "a secret of thirty-two bytes, or more";

/// A token as it is sent, or a header and a payload on two lines, which are signed first. Claims
/// with a valid signature come from the issuer, which can be faulty as well.
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
    assert!(
        inspect(token).is_some(),
        "a verified token can be inspected"
    );
    assert!(!verified.is_expired(NOW));
    assert!(!verified.identity.id().is_empty());
    if watch::check(&verified, NOW).is_ok() {
        assert!(
            verified
                .limits
                .expires_at()
                .is_some_and(|at| (NOW + 1..=NOW + 3660).contains(&at))
        );
    }
    if let Some(at) = verified.limits.expires_at() {
        assert!(
            verify(token, keys, at).is_err(),
            "valid until its expiry, not at it"
        );
    }
}

/// A webhook's secret as text, and after a line feed the body of an event.
pub(crate) fn webhook(data: &[u8]) {
    let (secret, body) = data
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or((data, &[][..]), |end| (&data[..end], &data[end + 1..]));
    let Some(secret) = std::str::from_utf8(secret)
        .ok()
        .and_then(WebhookSecret::parse)
    else {
        return;
    };
    assert!(
        secret.expose().is_ascii(),
        "the secret can be copied from a page"
    );
    assert_eq!(
        WebhookSecret::parse(secret.expose()).as_ref(),
        Some(&secret),
        "the printed secret parses again"
    );
    let message = Message {
        event_id: "evt_1",
        event_type: "tunnel.created",
        webhook_id: "whk_1",
        delivery_id: "dlv_1",
        sent_at: NOW,
        body,
    };
    let encoded = secret.expose().trim_start_matches("whsec_").to_owned();
    for (name, value) in headers(&message, &[secret], true) {
        assert!(!value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(
            encoded.len() < 16 || !value.contains(&encoded),
            "{name} contains the secret"
        );
    }
}
