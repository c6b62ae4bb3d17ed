//! Time-based one-time passwords (RFC 6238) for authenticator apps: HMAC-SHA-1, six digits, thirty
//! seconds.
//!
//! SHA-1 is used because common apps ignore the `algorithm` of the address and use SHA-1 anyway. As
//! a MAC it has no known weakness.

use aws_lc_rs::hmac;
use credentials::Secret;
use data_encoding::BASE32;
use jiff::Timestamp;
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use types::percent::escaped;

/// The secret that a user's authenticator app and the platform share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotpSecret(Secret);

/// A time step: the number of whole periods since 1970. The last used one is stored, so that no
/// code works twice (RFC 6238 section 5.2).
pub type TimeStep = i64;

impl TotpSecret {
    /// Creates a secret from random bytes.
    pub fn new(random: [u8; SECRET_BYTES]) -> Self {
        Self(Secret::new(random))
    }

    /// Restores a secret from the stored bytes.
    pub fn from_stored(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() == SECRET_BYTES).then(|| Self(Secret::new(bytes)))
    }

    /// The bytes to store.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// The secret in the form that a user types into an app: base32 (RFC 4648 section 6), 32
    /// characters.
    pub fn base32(&self) -> String {
        BASE32.encode(self.0.expose())
    }

    /// The address that an app reads from a link or a QR code.
    pub fn uri(&self, issuer: &str, account: &str) -> String {
        format!(
            "otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={PERIOD}",
            issuer = escaped(issuer),
            account = escaped(account),
            secret = self.base32(),
        )
    }

    /// Returns the step of the code if it is current. One step before or after now is allowed for
    /// clock differences and slow typing. Spaces in the code are ignored.
    ///
    /// The caller stores the step. [`store::users::use_totp_step`] refuses one that was used
    /// already, so that a code works once, also on two platforms at the same time.
    pub fn check(&self, code: &str, now: Timestamp) -> Option<TimeStep> {
        let code = Code::read(code)?;
        let present = now.as_second().div_euclid(PERIOD);
        let mut found = TimeStep::MIN;
        for step in present - 1..=present + 1 {
            let matches = code.0.ct_eq(&self.code(step).0);
            found = TimeStep::conditional_select(&found, &step, matches);
        }
        (found != TimeStep::MIN).then_some(found)
    }

    /// The code of one step (RFC 4226 section 5.3).
    fn code(&self, step: TimeStep) -> Code {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, self.0.expose());
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = usize::from(tag.last().copied().unwrap_or(0) & 15);
        let bits = tag
            .get(offset..)
            .and_then(|rest| rest.first_chunk::<4>())
            .map_or(0, |four| u32::from_be_bytes(*four) & 0x7fff_ffff);
        Code(bits % 10_u32.pow(DIGITS))
    }
}

/// Bytes of a secret: as many as SHA-1's output, as RFC 4226 section 4 recommends.
pub const SECRET_BYTES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(u32);

impl Code {
    fn read(text: &str) -> Option<Self> {
        let digits = text.trim().split(' ').flat_map(str::bytes);
        let (mut value, mut count) = (0_u32, 0);
        for digit in digits {
            count += 1;
            if !digit.is_ascii_digit() || count > DIGITS {
                return None;
            }
            value = value * 10 + u32::from(digit - b'0');
        }
        (count == DIGITS).then_some(Self(value))
    }
}

/// Digits of a code.
const DIGITS: u32 = 6;

/// Seconds of a step.
const PERIOD: i64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn rfc() -> TotpSecret {
        TotpSecret::new(*b"12345678901234567890")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// RFC 6238 appendix B, the SHA-1 column: the last six of its eight digits.
    #[test]
    fn codes_are_those_of_rfc_6238() {
        for (second, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = rfc().check(code, at(second));
            assert_eq!(step, Some(second / 30), "{second}");
        }
    }

    #[test]
    fn one_step_before_or_after_is_valid_and_two_are_not() {
        let code = "005924";
        for (shift, good) in [
            (-60, false),
            (-30, true),
            (0, true),
            (30, true),
            (60, false),
        ] {
            let step = rfc().check(code, at(1_234_567_890 + shift));
            assert_eq!(step.is_some(), good, "{shift}");
        }
    }

    #[test]
    fn a_code_is_six_digits_with_any_spaces() {
        let now = at(1_234_567_890);
        for good in ["005 924", " 005924 ", "00 59 24"] {
            assert!(rfc().check(good, now).is_some(), "{good}");
        }
        for bad in [
            "",
            "05924",
            "5924",
            "0005924",
            "005924 0",
            "00592a",
            "+05924",
            "００５９２４",
        ] {
            assert!(rfc().check(bad, now).is_none(), "{bad}");
        }
    }

    #[test]
    fn apps_get_base32_and_an_encoded_address() {
        assert_eq!(rfc().base32(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        assert_eq!(
            rfc().uri("svc example", "a+b@example.com"),
            "otpauth://totp/svc%20example:a%2Bb%40example.com\
             ?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=svc%20example\
             &algorithm=SHA1&digits=6&period=30"
        );
        assert_eq!(
            TotpSecret::from_stored(rfc().expose().to_vec()),
            Some(rfc())
        );
        assert_eq!(TotpSecret::from_stored(vec![1; 19]), None);
    }
}
