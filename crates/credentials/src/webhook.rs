//! Signatures of webhooks, in two forms over the same body: that of Standard Webhooks
//! (<https://www.standardwebhooks.com>, version 1), which its libraries verify, and that of the
//! SDKs.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::secret::Secret;

/// A signing secret: `whsec_` and base64.
///
/// The SDKs' form uses the text as the key, Standard Webhooks uses the decoded base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSecret {
    text: Secret,
    key: Secret,
}

impl WebhookSecret {
    /// Number of random bytes for [`WebhookSecret::draw`]: twice the needed number, because some
    /// are skipped.
    pub const DRAWN_BYTES: usize = 2 * CHARACTERS;

    /// A new secret from random bytes.
    ///
    /// Its 44 characters are only letters and digits. They are therefore valid base64 and
    /// base64url, 33 bytes without padding, and every library can decode them. This leaves 262
    /// random bits. `None` if the bytes do not yield enough characters, which practically never
    /// happens with random bytes.
    pub fn draw(random: &[u8; Self::DRAWN_BYTES]) -> Option<Self> {
        let digits = random.iter().map(|byte| byte & 63);
        let characters = digits.filter_map(|digit| LETTERS_AND_DIGITS.get(usize::from(digit)));
        let mut text = Zeroizing::new(PREFIX.as_bytes().to_vec());
        text.extend(characters.take(CHARACTERS));
        let text = std::str::from_utf8(&text).ok()?;
        (text.len() == PREFIX.len() + CHARACTERS).then(|| Self::parse(text))?
    }

    /// Parses a stored secret: base64 or base64url, with or without padding.
    pub fn parse(text: &str) -> Option<Self> {
        let encoded = Zeroizing::new(
            text.strip_prefix(PREFIX)?
                .replace('-', "+")
                .replace('_', "/"),
        );
        let key = LENIENT.decode(encoded.as_bytes()).ok()?;
        (!key.is_empty()).then(|| Self {
            text: Secret::new(text),
            key: Secret::new(key),
        })
    }

    /// The text, for the response that shows it and for sealing.
    pub fn expose(&self) -> &str {
        // The bytes were created from text and never change.
        std::str::from_utf8(self.text.expose()).unwrap_or_default()
    }
}

/// Input of a signature, and further header fields.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Id of the event; the same for each attempt, so that a receiver can detect duplicates.
    pub event_id: &'a str,
    /// Event type.
    pub event_type: &'a str,
    /// The receiving endpoint.
    pub webhook_id: &'a str,
    /// The delivery.
    pub delivery_id: &'a str,
    /// Time of sending in Unix seconds.
    pub sent_at: i64,
    /// The exact bytes of the body.
    pub body: &'a [u8],
}

/// The header fields of a request, signed with each of the secrets: during a rotation there are
/// two, and a receiver only needs one of them. `compat` adds rstream's header names.
pub fn headers(
    message: &Message<'_>,
    secrets: &[WebhookSecret],
    compat: bool,
) -> Vec<(&'static str, String)> {
    let Message {
        event_id,
        sent_at,
        body,
        ..
    } = message;
    let standard = secrets.iter().map(|secret| {
        let before = format!("{event_id}.{sent_at}.");
        format!("v1,{}", STANDARD.encode(tag(&secret.key, &before, body)))
    });
    let sdk_signatures = secrets.iter().map(|secret| {
        let before = format!("{sent_at}.");
        format!(
            ",v1={}",
            hex::encode(tag(&secret.text, &before, body).as_ref())
        )
    });
    let sdk_header = format!("t={sent_at}{}", sdk_signatures.collect::<String>());
    let mut headers = vec![
        ("webhook-id", (*event_id).to_owned()),
        ("webhook-timestamp", sent_at.to_string()),
        ("webhook-signature", standard.collect::<Vec<_>>().join(" ")),
    ];
    let brands = if compat { &BRANDS[..] } else { &BRANDS[..1] };
    for [signature, event, event_type, webhook, delivery] in brands {
        headers.extend([
            (*signature, sdk_header.clone()),
            (*event, (*event_id).to_owned()),
            (*event_type, message.event_type.to_owned()),
            (*webhook, message.webhook_id.to_owned()),
            (*delivery, message.delivery_id.to_owned()),
        ]);
    }
    headers
}

fn tag(key: &Secret, before: &str, body: &[u8]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
    let mut context = hmac::Context::with_key(&key);
    context.update(before.as_bytes());
    context.update(body);
    context.sign()
}

const PREFIX: &str = "whsec_";

/// 33 bytes of base64.
const CHARACTERS: usize = 44;

const LETTERS_AND_DIGITS: &[u8; 62] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// With or without padding; unused bits of the last character may be set, as some tools do.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Signature, event id, event type, webhook id, delivery id: the names of svc, then those of the
/// SDKs.
const BRANDS: [[&str; 5]; 2] = [
    [
        "svc-signature",
        "svc-event-id",
        "svc-event-type",
        "svc-webhook-id",
        "svc-delivery-id",
    ],
    [
        "rstream-signature",
        "rstream-event-id",
        "rstream-event-type",
        "rstream-webhook-id",
        "rstream-delivery-id",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Message<'_> = Message {
        event_id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        event_type: "tunnel.created",
        webhook_id: "whk_1",
        delivery_id: "dlv_1",
        sent_at: 1_614_265_330,
        body: br#"{"test": 2432232314}"#,
    };

    fn value<'a>(headers: &'a [(&'static str, String)], name: &str) -> Option<&'a str> {
        let found = headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The example of the Standard Webhooks libraries, and the other form as computed by Python's
    /// `hmac`.
    #[test]
    fn both_forms_match_other_implementations() {
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let headers = headers(&MESSAGE, &[secret], false);
        assert_eq!(
            value(&headers, "webhook-signature"),
            Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        );
        assert_eq!(
            value(&headers, "svc-signature"),
            Some(
                "t=1614265330,v1=2e37df5d4a028c51a7f3133d64ae1e300d2c2c900f1b1d49d4369ad2530f8964"
            )
        );
        assert_eq!(value(&headers, "svc-event-id"), Some(MESSAGE.event_id));
        assert_eq!(value(&headers, "rstream-event-id"), None);
    }

    #[test]
    fn each_secret_signs() {
        let one = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let other = WebhookSecret::parse("whsec_AAAA").unwrap();
        let both = headers(&MESSAGE, &[other, one.clone()], true);
        let alone = headers(&MESSAGE, &[one], true);
        for name in ["webhook-signature", "svc-signature", "rstream-signature"] {
            let (both, alone) = (value(&both, name).unwrap(), value(&alone, name).unwrap());
            assert_eq!(both.matches("v1").count(), 2, "{both}");
            assert!(both.ends_with(alone.trim_start_matches("t=1614265330")));
        }
        assert_eq!(value(&both, "rstream-webhook-id"), Some("whk_1"));
    }

    #[test]
    fn a_drawn_secret_is_read_as_either_base64() {
        let random = std::array::from_fn(|at| u8::try_from(at * 37 % 256).unwrap());
        let drawn = WebhookSecret::draw(&random).unwrap();
        let encoded = drawn.expose().strip_prefix("whsec_").unwrap();
        assert_eq!(encoded.len(), 44);
        let url = base64::engine::general_purpose::URL_SAFE;
        assert_eq!(STANDARD.decode(encoded), url.decode(encoded));
        assert_eq!(STANDARD.decode(encoded).unwrap(), drawn.key.expose());
        assert_eq!(WebhookSecret::parse(drawn.expose()), Some(drawn.clone()));
        assert!(!format!("{drawn:?}").contains(encoded));
        // Only bytes that are skipped.
        assert_eq!(WebhookSecret::draw(&[63; WebhookSecret::DRAWN_BYTES]), None);
    }

    #[test]
    fn secrets_of_the_sdks_are_read_and_others_are_not() {
        for good in ["whsec_-_8", "whsec_+/8=", "whsec_+/8"] {
            let read = WebhookSecret::parse(good).unwrap();
            assert_eq!(read.key.expose(), [0xfb, 0xff], "{good}");
            assert_eq!(read.expose(), good);
        }
        for bad in ["", "whsec_", "AAAA", "whsec_A", "whsec_A A=", "whsec_Ä"] {
            assert_eq!(WebhookSecret::parse(bad), None, "{bad}");
        }
    }
}
