//! Keys of the edge, and texts that are signed or encrypted with them.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::Secret;

/// Keys for cookies and addresses. They are derived from the enrolment secret, so a browser can use
/// any engine of the cluster.
pub struct Seals {
    session: hmac::Key,
    sign_in: hmac::Key,
    challenge: hmac::Key,
    targets: RandomizedNonceKey,
}

/// Purpose of a signed text. A text of one purpose is never valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Session,
    SignIn,
    /// A puzzle that was sent to a browser.
    Puzzle,
    /// Proof that a puzzle was solved.
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
            // The key is one block of the hash, so its length is always valid.
            expanded
                .and_then(|expanded| expanded.fill(&mut key))
                .map_err(|_| EmptySecret)?;
            Ok(key)
        };
        let mac = |purpose| Ok(hmac::Key::new(hmac::HMAC_SHA256, &expand(purpose)?));
        // SIV, because strangers can cause any number of targets to be sealed. With other modes,
        // random nonces of 96 bits would exhaust the key.
        let targets = RandomizedNonceKey::new(&AES_256_GCM_SIV, &expand(b"targets-v1")?);
        Ok(Self {
            session: mac(b"session-v1")?,
            sign_in: mac(b"sign-in-v1")?,
            challenge: mac(b"challenge-v1")?,
            targets: targets.map_err(|_| EmptySecret)?,
        })
    }

    /// Signs `payload` for one purpose and context. The context in `bound` is not part of the text.
    /// The verification needs the same context.
    pub(super) fn sign(&self, purpose: Purpose, bound: &[&[u8]], payload: &[u8]) -> String {
        let tag = self.tag(purpose, bound, payload);
        let mut text = URL_SAFE_NO_PAD.encode(payload);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(tag, &mut text);
        text
    }

    /// Returns the payload of a text from [`Self::sign`]. The tag is compared in constant time.
    pub(super) fn verify(&self, purpose: Purpose, bound: &[&[u8]], text: &str) -> Option<Vec<u8>> {
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
            // The length is included, so that two different lists of parts never have the same
            // encoding.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.update(payload);
        context.sign()
    }

    /// Encrypts a text that passes through other systems. It can only be opened for `host`.
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

    /// Decrypts a text from [`Self::seal`].
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

/// Hides the keys.
impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").finish_non_exhaustive()
    }
}

/// Error for an empty secret, from which no keys can be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the enrolment secret is empty")]
pub struct EmptySecret;

/// Limit of the length of a text. A target of two kilobytes is shorter after sealing and encoding.
const MAX_TEXT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(secret: &str) -> Seals {
        Seals::derive(&Secret::new(secret)).unwrap()
    }

    #[test]
    fn signed_texts_are_valid_only_for_their_purpose_and_context() {
        let (ours, theirs) = (seals("one"), seals("two"));
        let text = ours.sign(Purpose::Session, &[b"a", b"bc"], b"payload");
        let read = |seals: &Seals, purpose, bound: &[&[u8]], text: &str| {
            seals.verify(purpose, bound, text)
        };
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
        assert_eq!(ours.verify(Purpose::Passed, &[], &puzzle), None);
    }

    #[test]
    fn sealed_texts_are_encrypted_and_open_only_for_their_host() {
        let ours = seals("one");
        let sealed = ours.seal("a.example", b"/private?x=1").unwrap();
        assert!(!sealed.contains("private"));
        assert_ne!(ours.seal("a.example", b"/private?x=1").unwrap(), sealed);
        let opened = ours.open("a.example", &sealed);
        assert_eq!(opened.as_deref(), Some(&b"/private?x=1"[..]));
        assert_eq!(ours.open("b.example", &sealed), None);
        assert_eq!(seals("two").open("a.example", &sealed), None);
        assert_eq!(ours.open("a.example", "AAAA"), None);
        // Three bytes are encoded as four characters; 12 bytes are the nonce and 16 the tag.
        let long = ours.seal("a.example", &[b'/'; 3072 - 28]).unwrap();
        assert_eq!(long.len(), 4096);
        assert!(ours.open("a.example", &long).is_some());
        let longer = ours.seal("a.example", &[b'/'; 3072 - 27]).unwrap();
        assert_eq!(
            ours.open("a.example", &longer),
            None,
            "a longer text is rejected"
        );
        assert!(Seals::derive(&Secret::new("")).is_err());
    }
}
