//! The creation fingerprint, which proves that the caller confirms the effects of a creation.

use std::fmt;

use api::control::plan_change::PlanChange;
use api::control::plans::PlanOption;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::billing::Decision;

/// The key of fingerprints. All processes of one platform have the same.
pub struct FingerprintKey(hmac::Key);

impl FingerprintKey {
    /// Creates the key from 32 secret bytes that have no other use.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Signs an offer. `option` is shown to the caller, without its fingerprint. `decision` is the
    /// change that the server would make. `revision` is the state of the account that it would
    /// change. A confirmed change makes every earlier preview stale.
    pub(super) fn sign(
        &self,
        workspace: &str,
        option: &PlanOption,
        decision: &Decision,
        revision: u64,
    ) -> Fingerprint {
        // Amounts and action are in the option. Strings and integers always serialise, in the order
        // in which the types declare them.
        let option_json = serde_json::to_vec(option).unwrap_or_default();
        self.mac(&[
            DOMAIN,
            workspace.as_bytes(),
            subscription_of(decision).as_bytes(),
            &revision.to_be_bytes(),
            &option_json,
        ])
    }

    /// Signs the change of a project's plan, in the same way. `change` is shown to the caller,
    /// without its fingerprint.
    pub(crate) fn sign_change(
        &self,
        workspace: &str,
        change: &PlanChange,
        decision: &Decision,
        revision: u64,
    ) -> Fingerprint {
        let change_json = serde_json::to_vec(change).unwrap_or_default();
        self.mac(&[
            CHANGE_DOMAIN,
            workspace.as_bytes(),
            subscription_of(decision).as_bytes(),
            &revision.to_be_bytes(),
            &change_json,
        ])
    }

    fn mac(&self, parts: &[&[u8]]) -> Fingerprint {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // The length before each part makes the input of each offer unique.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Fingerprint(URL_SAFE_NO_PAD.encode(context.sign()))
    }
}

/// The subscription that the decision changes; empty if there is none.
fn subscription_of(decision: &Decision) -> &str {
    match decision {
        Decision::Update { subscription, .. } => subscription.as_str(),
        Decision::Free | Decision::Checkout { .. } | Decision::Setup { .. } => "",
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}

/// Identifies one offer to one workspace: 43 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Compares with the fingerprint from the caller, in constant time because it is a MAC.
    pub fn is(&self, given: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), given.as_bytes())
            .is_ok()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Separates this MAC from any other that uses the same secret.
const DOMAIN: &[u8] = b"svc creation fingerprint 2";
/// Separates the MAC of plan changes from that of creations.
const CHANGE_DOMAIN: &[u8] = b"svc plan change fingerprint 1";
