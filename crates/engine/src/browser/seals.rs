//! The keys of an edge, and what is sealed with them.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::Secret;

/// Keys for cookies and addresses. The same enrolment secret gives the same keys, so a browser may
/// come to any engine of a cluster.
pub struct Seals {
    session: hmac::Key,
    sign_in: hmac::Key,
    challenge: hmac::Key,
    targets: RandomizedNonceKey,
}

/// What a text is signed for. Each has a key of its own: none passes for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Session,
    SignIn,
    /// A puzzle that was given.
    Puzzle,
    /// A puzzle that was solved.
    Passed,
}

impl Seals {
    /// Derives the keys from a cluster's enrolment secret (HKDF-SHA256, RFC 5869).
    ///
    /// # Errors
    /// The secret is empty.
    pub fn derive(secret: &Secret) -> Result<Self, EmptySecret> {
        if secret.expose().is_empty() {
            return Err(EmptySecret);
        }
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"svc-edge");
        let secret = salt.extract(secret.expose());
        let expand = |purpose: &[u8]| {
            let mut key = [0; 32];
            let parts = [purpose];
            let expanded = secret.expand(&parts, hkdf::HKDF_SHA256);
            // One block of the hash: as long as can never be too long.
            expanded
                .and_then(|expanded| expanded.fill(&mut key))
                .map_err(|_| EmptySecret)?;
            Ok(key)
        };
        let mac = |purpose| Ok(hmac::Key::new(hmac::HMAC_SHA256, &expand(purpose)?));
        // SIV: as many targets as strangers cause to be sealed may not wear the key out, which
        // random nonces of 96 bits would.
        let targets = RandomizedNonceKey::new(&AES_256_GCM_SIV, &expand(b"targets-v1")?);
        Ok(Self {
            session: mac(b"session-v1")?,
            sign_in: mac(b"sign-in-v1")?,
            challenge: mac(b"challenge-v1")?,
            targets: targets.map_err(|_| EmptySecret)?,
        })
    }

    /// `payload` as text that only these keys can have made, for one purpose and one place: what it
    /// is `bound` to is not in it, and has to be said again to read it.
    pub(super) fn sign(&self, purpose: Purpose, bound: &[&[u8]], payload: &[u8]) -> String {
        let tag = self.tag(purpose, bound, payload);
        let mut text = URL_SAFE_NO_PAD.encode(payload);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(tag, &mut text);
        text
    }

    /// The payload of a text that [`Self::sign`] made. Compared in constant time.
    pub(super) fn check(&self, purpose: Purpose, bound: &[&[u8]], text: &str) -> Option<Vec<u8>> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let (payload, tag) = text.split_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        let expected = self.tag(purpose, bound, &payload);
        let equal = aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), &tag);
        equal.ok().map(|()| payload)
    }

    fn tag(&self, purpose: Purpose, bound: &[&[u8]], payload: &[u8]) -> hmac::Tag {
        let (key, kind) = match purpose {
            Purpose::Session => (&self.session, 0),
            Purpose::SignIn => (&self.sign_in, 0),
            Purpose::Puzzle => (&self.challenge, 0),
            Purpose::Passed => (&self.challenge, 1),
        };
        let mut context = hmac::Context::with_key(key);
        context.update(&[kind]);
        for part in bound {
            // With its length: no two lists of parts read the same.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.update(payload);
        context.sign()
    }

    /// Hides a text that goes through other hands, for `host` alone.
    pub(super) fn seal(&self, host: &str, text: &[u8]) -> Option<String> {
        let mut sealed = text.to_vec();
        let aad = Aad::from(host.as_bytes());
        let nonce = self
            .targets
            .seal_in_place_append_tag(aad, &mut sealed)
            .ok()?;
        let mut out = nonce.as_ref().to_vec();
        out.append(&mut sealed);
        Some(URL_SAFE_NO_PAD.encode(out))
    }

    /// What [`Self::seal`] hid.
    pub(super) fn open(&self, host: &str, sealed: &str) -> Option<Vec<u8>> {
        if sealed.len() > MAX_TEXT {
            return None;
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self
            .targets
            .open_in_place(nonce, Aad::from(host.as_bytes()), rest);
        opened.ok().map(|text| text.to_vec())
    }
}

/// Keys do not print.
impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").finish_non_exhaustive()
    }
}

/// Nothing can be derived from an empty secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the enrolment secret is empty")]
pub struct EmptySecret;

/// Longest text that is looked at: a target of two kilobytes, sealed and encoded, takes less.
const MAX_TEXT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(secret: &str) -> Seals {
        Seals::derive(&Secret::new(secret)).unwrap()
    }

    #[test]
    fn what_is_signed_is_read_for_its_purpose_and_place_alone() {
        let (ours, theirs) = (seals("one"), seals("two"));
        let text = ours.sign(Purpose::Session, &[b"a", b"bc"], b"payload");
        let read =
            |seals: &Seals, purpose, bound: &[&[u8]], text: &str| seals.check(purpose, bound, text);
        let good = read(&seals("one"), Purpose::Session, &[b"a", b"bc"], &text);
        assert_eq!(good.as_deref(), Some(&b"payload"[..]));
        let (head, tag) = text.split_once('.').unwrap();
        let swapped = format!("{}.{tag}", URL_SAFE_NO_PAD.encode(b"pay"));
        for (seals, purpose, bound, text) in [
            (
                &theirs,
                Purpose::Session,
                &[&b"a"[..], b"bc"][..],
                text.as_str(),
            ),
            (&ours, Purpose::SignIn, &[b"a", b"bc"], &text),
            (&ours, Purpose::Session, &[b"ab", b"c"], &text),
            (&ours, Purpose::Session, &[b"abc"], &text),
            (&ours, Purpose::Session, &[b"a", b"bc"], &swapped),
            (&ours, Purpose::Session, &[b"a", b"bc"], head),
            (&ours, Purpose::Session, &[b"a", b"bc"], ""),
        ] {
            assert_eq!(
                read(seals, purpose, bound, text),
                None,
                "{purpose:?} {text}"
            );
        }
        let puzzle = ours.sign(Purpose::Puzzle, &[], b"p");
        assert_eq!(ours.check(Purpose::Passed, &[], &puzzle), None);
    }

    #[test]
    fn what_is_sealed_is_hidden_and_opens_at_its_host_alone() {
        let ours = seals("one");
        let sealed = ours.seal("a.example", b"/private?x=1").unwrap();
        assert!(!sealed.contains("private"));
        assert_ne!(ours.seal("a.example", b"/private?x=1").unwrap(), sealed);
        let opened = ours.open("a.example", &sealed);
        assert_eq!(opened.as_deref(), Some(&b"/private?x=1"[..]));
        assert_eq!(ours.open("b.example", &sealed), None);
        assert_eq!(seals("two").open("a.example", &sealed), None);
        assert_eq!(ours.open("a.example", "AAAA"), None);
        // Of three bytes in four characters, 12 for the nonce and 16 for the tag.
        let long = ours.seal("a.example", &[b'/'; 3072 - 28]).unwrap();
        assert_eq!(long.len(), 4096);
        assert!(ours.open("a.example", &long).is_some());
        let longer = ours.seal("a.example", &[b'/'; 3072 - 27]).unwrap();
        assert_eq!(ours.open("a.example", &longer), None, "it is not looked at");
        assert!(Seals::derive(&Secret::new("")).is_err());
    }
}
