//! Identifiers: a prefix for the kind and a suffix that sorts by time.
//!
//! The form is `TypeID` (<https://github.com/jetify-com/typeid>, version 0.3): the prefix, `_`, and
//! a `UUIDv7` (RFC 9562 section 5.7) in 26 characters of Crockford's base32 in lower case. Text
//! order is creation order. Time and randomness are arguments, because this crate has no source of
//! either.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Number of random bytes in an id; the rest of its 128 bits are time and version.
pub const RANDOM_BYTES: usize = 10;

/// An id that could not be parsed. It does not repeat the text, because ids come from untrusted
/// input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}")]
pub struct BadId {
    expected: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; TEXT_LENGTH]);

        impl $name {
            /// Prefix of this kind, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Creates an id from a time in Unix milliseconds and random bytes.
            pub fn new(unix_millis: u64, random: [u8; RANDOM_BYTES]) -> Self {
                Self(text(*concat!($prefix, "_").as_bytes().first_chunk().unwrap_or(&[0; 4]), uuid_v7(unix_millis, random)))
            }

            /// Text form, for example `
            #[doc = concat!($prefix, "_01h455vb4pex5vsknk084sn02q`.")]
            pub fn as_str(&self) -> &str {
                // The constructor writes only ASCII, so the fallback is never used.
                std::str::from_utf8(&self.0).unwrap_or_default()
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(given: &str) -> Result<Self, BadId> {
                parse_text(concat!($prefix, "_"), given)
                    .map(Self)
                    .ok_or(BadId { expected: concat!("an id that begins with ", $prefix, "_") })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                given.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// Id of one control channel of an agent, from its hello to its end.
    ClientId "cli"
    /// Id of one tunnel, from its opening to its close.
    TunnelId "tun"
    /// Id of one event of the live stream; also its idempotency key in webhooks.
    EventId "evt"
    /// Id of a person with an account.
    UserId "usr"
    /// Id of one signed-in browser of a person.
    SessionId "ses"
    /// Id of a passkey of a person.
    PasskeyId "psk"
    /// Id of a workspace: the members who may access its projects, and the payer.
    WorkspaceId "wks"
    /// Id of an invitation into a workspace.
    InvitationId "inv"
    /// Id of a tunnel project.
    ProjectId "prj"
    /// Id of a long-lived credential.
    CredentialId "crd"
    /// Id of a workspace's subscription.
    SubscriptionId "sub"
    /// Id of one change of a subscription.
    SubscriptionChangeId "chg"
    /// Id of an invoice; `inv` is an invitation.
    InvoiceId "bil"
    /// Id of a reserved TCP port.
    AddressId "adr"
    /// Id of a custom domain.
    DomainId "dom"
    /// Id of one stored stream summary.
    LogId "log"
    /// Id of a webhook endpoint.
    WebhookId "whk"
    /// Id of the delivery of one event to one webhook.
    DeliveryId "dlv"
    /// Id of one attempt of a delivery.
    AttemptId "att"
    /// Id of a registered `WebTTY` server.
    WebttyServerId "wsv"
    /// Id of a managed `WebTTY` session.
    WebttySessionId "wts"
    /// Id of a participant of a managed `WebTTY` session.
    ParticipantId "wtp"
    /// Id of one request for control of a managed `WebTTY` session.
    ControlRequestId "wtc"
    /// Id of one entry of the audit log.
    AuditId "adt"
}

/// Id of one visitor's stream on the agent protocol: 12 bytes, written as 24 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub [u8; 12]);

impl FromStr for StreamId {
    type Err = BadId;

    fn from_str(given: &str) -> Result<Self, BadId> {
        const INVALID_ID: BadId = BadId {
            expected: "a stream id of 24 hex digits",
        };
        let (pairs, rest) = given.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 12];
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(INVALID_ID);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = hex_value(*high)
                .zip(hex_value(*low))
                .map(|(h, l)| h << 4 | l)
                .ok_or(INVALID_ID)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for StreamId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StreamId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        given.parse().map_err(serde::de::Error::custom)
    }
}

/// The time of an id; 0 before 1970.
pub fn unix_millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or(0)
}

/// Returns the value of one hex digit in either case.
pub(crate) fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// Three letters, an underscore, 26 characters of base32.
const TEXT_LENGTH: usize = 30;
const SUFFIX_LENGTH: usize = 26;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Builds a `UUIDv7`: 48 bits of time, version, 12 random bits, variant, 62 random bits.
fn uuid_v7(unix_millis: u64, random: [u8; RANDOM_BYTES]) -> u128 {
    let mut low = [0; 16];
    if let Some(tail) = low.last_chunk_mut() {
        *tail = random;
    }
    let random = u128::from_be_bytes(low);
    let time = u128::from(unix_millis) & 0xffff_ffff_ffff;
    let high_random = random >> 62 & 0xfff;
    let low_random = random & ((1 << 62) - 1);
    time << 80 | 0x7 << 76 | high_random << 64 | 0b10 << 62 | low_random
}

fn text(prefix: [u8; 4], uuid: u128) -> [u8; TEXT_LENGTH] {
    let mut out = [0; TEXT_LENGTH];
    let (head, suffix) = out.split_at_mut(TEXT_LENGTH - SUFFIX_LENGTH);
    head.copy_from_slice(&prefix);
    for (place, character) in suffix.iter_mut().rev().enumerate() {
        let digit = usize::try_from(uuid >> (5 * place) & 31).unwrap_or_default();
        *character = ALPHABET.get(digit).copied().unwrap_or(b'0');
    }
    out
}

fn parse_text(prefix: &str, given: &str) -> Option<[u8; TEXT_LENGTH]> {
    let suffix = given.strip_prefix(prefix)?;
    // 26 digits have 130 bits; a first digit above 7 would overflow the 128 bits of a UUID.
    let fits = suffix.bytes().next().is_some_and(|first| first <= b'7');
    let known = suffix
        .bytes()
        .all(|character| ALPHABET.contains(&character));
    (fits && known).then(|| given.as_bytes().try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_is_the_base32_of_a_version_7_uuid() {
        // Time and random bits of 0188bac7-4afa-78aa-bc3b-bd1eef28d881, an example of the `TypeID`
        // specification whose text is 01h2xcejqtf2nbrexx3vqjhp41.
        let uuid: u128 = 0x0188_bac7_4afa_78aa_bc3b_bd1e_ef28_d881;
        let millis = u64::try_from(uuid >> 80).unwrap();
        let random = (uuid >> 64 & 0xfff) << 62 | uuid & ((1 << 62) - 1);
        let random = random.to_be_bytes()[6..].try_into().unwrap();
        let id = TunnelId::new(millis, random);
        assert_eq!(id.as_str(), "tun_01h2xcejqtf2nbrexx3vqjhp41");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn ids_sort_by_time() {
        let earlier = ClientId::new(1, [255; 10]);
        let later = ClientId::new(2, [0; 10]);
        assert!(earlier < later && earlier.as_str() < later.as_str());
    }

    #[test]
    fn another_kind_or_form_is_refused() {
        let id = ClientId::new(1, [7; 10]).to_string();
        assert!(id.parse::<ClientId>().is_ok());
        for bad in [
            id.replace("cli_", "tun_"),
            id.to_uppercase(),
            id.replace("cli_0", "cli_8"),
            format!("{id}0"),
            id.get(..29).unwrap().to_owned(),
            id.replace("cli_0", "cli_u"),
            String::new(),
        ] {
            assert!(bad.parse::<ClientId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn stream_id_is_24_hex_digits() {
        let id = StreamId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xab, 0xff]);
        assert_eq!(id.to_string(), "00010203040506070809abff");
        assert_eq!("00010203040506070809ABFF".parse(), Ok(id));
        for bad in [
            "",
            "00010203040506070809abf",
            "00010203040506070809abff00",
            "g0010203040506070809abff",
        ] {
            assert!(bad.parse::<StreamId>().is_err(), "{bad}");
        }
    }
}
