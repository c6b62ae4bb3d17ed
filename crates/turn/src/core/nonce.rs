//! Stateless nonces (RFC 8489 section 9.2), which contain the data for their validation.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Millis, Time};

/// Creates and validates nonces. One value serves all workers of a process.
#[derive(Debug)]
pub struct Nonces {
    key: hmac::Key,
}

/// The cookie `obMatJos2` announces security features: here the first bit, password algorithms. An
/// attacker that removes PASSWORD-ALGORITHMS from a response cannot remove this (RFC 8489 section
/// 9.2.1).
const COOKIE: &str = "obMatJos2gAAA";

/// Validity of a nonce. A client with a stale nonce has to send its request again.
const LIFETIME: Millis = Millis::from_seconds(600);

const TAG_BYTES: usize = 12;

impl Nonces {
    /// Uses a key that is generated at the start, so nonces of an earlier process are stale.
    pub fn new(key: &[u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// A nonce that is only valid for this source.
    pub fn mint(&self, now: Time, source: SocketAddr) -> String {
        // Four bytes of seconds are sufficient for the lifetime of a process.
        let made = u32::try_from(now.monotonic.seconds()).unwrap_or(u32::MAX);
        self.write(made, source)
    }

    /// True if the nonce was created here for this source, and has not expired.
    pub fn is_fresh(&self, nonce: &str, now: Time, source: SocketAddr) -> bool {
        let body = nonce.strip_prefix(COOKIE);
        let Some(Ok(bytes)) = body.map(|body| URL_SAFE_NO_PAD.decode(body)) else {
            return false;
        };
        let Some((made, _)) = bytes.split_first_chunk() else {
            return false;
        };
        let made = u32::from_be_bytes(*made);
        let is_ours = constant_time::verify_slices_are_equal(
            self.write(made, source).as_bytes(),
            nonce.as_bytes(),
        );
        let age = now.monotonic.since(Millis::from_seconds(u64::from(made)));
        is_ours.is_ok() && age < LIFETIME
    }

    fn write(&self, made: u32, source: SocketAddr) -> String {
        let made = made.to_be_bytes();
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&made);
        match source.ip() {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&source.port().to_be_bytes());
        let tag = context.sign();
        let tag = tag.as_ref().get(..TAG_BYTES).unwrap_or_default();
        let mut nonce = COOKIE.to_owned();
        URL_SAFE_NO_PAD.encode_string([&made, tag].concat(), &mut nonce);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time {
            unix: 0,
            monotonic: Millis::from_seconds(seconds),
        }
    }

    #[test]
    fn a_nonce_is_valid_for_its_source_and_its_time() {
        let nonces = Nonces::new(&[7; 32]);
        let source = "192.0.2.1:5000".parse().unwrap();
        let nonce = nonces.mint(at(100), source);
        assert_eq!(nonce.len(), 35);
        assert!(nonces.is_fresh(&nonce, at(100), source));
        assert!(nonces.is_fresh(&nonce, at(699), source));
        assert!(!nonces.is_fresh(&nonce, at(700), source));
        for other in ["192.0.2.1:5001", "192.0.2.2:5000", "[::1]:5000"] {
            assert!(!nonces.is_fresh(&nonce, at(100), other.parse().unwrap()));
        }
        assert!(!Nonces::new(&[8; 32]).is_fresh(&nonce, at(100), source));
    }

    #[test]
    fn foreign_nonces_are_stale() {
        let nonces = Nonces::new(&[7; 32]);
        let source = "192.0.2.1:5000".parse().unwrap();
        let nonce = nonces.mint(at(100), source);
        let mut changed = nonce.clone();
        changed.pop();
        for bad in [
            "",
            COOKIE,
            "nonce",
            &nonce[1..],
            &changed,
            &nonce.replace("gAAA", "AAAA"),
            &format!("{nonce}A"),
            &format!("{COOKIE}////"),
        ] {
            assert!(!nonces.is_fresh(bad, at(100), source), "{bad}");
        }
    }
}
