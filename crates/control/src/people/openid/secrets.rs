//! Security parameters of one sign-in. All are derived from the secret in the browser's cookie.

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use crate::people::secret_link::LinkSecret;

/// Derives `state`, `nonce` and the PKCE verifier of one sign-in. It has no `Debug`, because it
/// contains the cookie's secret.
pub(super) struct FlowSecrets<'a>(pub(super) &'a LinkSecret);

impl FlowSecrets<'_> {
    /// `state` (RFC 6749 section 10.12).
    pub(super) fn state(&self) -> String {
        self.derived("state")
    }

    /// True if a returned `state` is the one of this sign-in.
    pub(super) fn is_state(&self, given: &str) -> bool {
        self.state().as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// `nonce` (OpenID Connect Core 1.0 section 15.5.2).
    pub(super) fn nonce(&self) -> String {
        self.derived("nonce")
    }

    /// True if the `nonce` of an ID token is the one of this sign-in.
    pub(super) fn is_nonce(&self, given: &str) -> bool {
        self.nonce().as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// `code_verifier`: 43 characters (RFC 7636 section 4.1).
    pub(super) fn verifier(&self) -> String {
        self.derived("verifier")
    }

    /// `code_challenge` with the method S256 (RFC 7636 section 4.2).
    pub(super) fn challenge(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.verifier().as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(digest)
    }

    /// Returns an HMAC of the purpose. It reveals neither the secret nor the other values.
    fn derived(&self, purpose: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.reveal().as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, purpose.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_by_purpose_and_by_browser() {
        let (one, other) = (LinkSecret::draw().unwrap(), LinkSecret::draw().unwrap());
        let (one, other) = (FlowSecrets(&one), FlowSecrets(&other));
        assert!(one.is_state(&one.state()) && one.is_nonce(&one.nonce()));
        assert!(!one.is_state(&other.state()) && !one.is_nonce(&other.nonce()));
        assert!(!one.is_state(&one.nonce()) && !one.is_state(""));
        assert_ne!(one.verifier(), one.state());
        assert_eq!(one.verifier().len(), 43);
    }

    /// RFC 7636 appendix B has an example of a verifier and its challenge.
    #[test]
    fn a_challenge_is_the_digest_of_the_verifier() {
        let secret = LinkSecret::parse(&"A".repeat(43)).unwrap();
        let secrets = FlowSecrets(&secret);
        let digest = digest::digest(&digest::SHA256, secrets.verifier().as_bytes());
        assert_eq!(secrets.challenge(), BASE64_URL_SAFE_NO_PAD.encode(digest));
        assert_eq!(secrets.challenge().len(), 43);
    }
}
