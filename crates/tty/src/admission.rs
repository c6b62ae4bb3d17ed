//! Admission: a registered server proves to an engine that it is the enrolled one.
//!
//! Otherwise any client that may open tunnels in a project could claim to be any of its servers.
//! The label [`LABEL`] of the tunnel contains a proof: JSON, as base64url, signed by the server's
//! key over the properties of the tunnel. It is valid for [`LIFETIME`] and once. An observer cannot
//! open another tunnel with it. The verifier must ensure that it is used once ([`VerifiedProof`] has the
//! necessary data).

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::identity::{InvalidKeyError, SigningKey, SigningPublicKey};
use crate::seal::digest;

/// The label with the proof.
pub const LABEL: &str = "svc.webtty.server_admission";

/// The label with the id of the server.
pub const SERVER_ID: &str = "svc.webtty.server_id";

/// Validity of a proof.
pub const LIFETIME: Duration = Duration::from_secs(90);

/// Maximum time by which a server's clock may be ahead. If the clock is behind, [`LIFETIME`] is
/// shorter by that time.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// Length of a proof's nonce, in bytes.
pub const NONCE_LEN: usize = 16;

/// Maximum size of a proof, in bytes: the longest ids, with a margin.
pub const MAX_PROOF: usize = 4096;

const VERSION: u32 = 1;

const SUITE: &str = "svc-webtty-ecdsa-p256-sha256-v1";

const DOMAIN: &[u8] = b"svc-webtty-server-admission-v1";

/// The tunnel that a proof is for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The project of the tunnel.
    pub project_id: &'a str,
    /// The server of the tunnel.
    pub server_id: &'a str,
    /// Protocol of the tunnel.
    pub tunnel_protocol: &'a str,
    /// Type of the tunnel.
    pub tunnel_type: &'a str,
    /// All labels of the tunnel; [`LABEL`] among them is ignored.
    pub labels: &'a BTreeMap<String, String>,
}

impl Subject<'_> {
    fn labels_sha256(&self) -> String {
        let own = self.labels.iter().filter(|(key, _)| *key != LABEL);
        let parts: Vec<&[u8]> = own
            .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()])
            .collect();
        URL_SAFE_NO_PAD.encode(digest(b"svc-webtty-labels-v1", &parts))
    }
}

/// Makes the value of [`LABEL`]. `nonce` is fresh random bytes. The workspace is informative:
/// projects move between workspaces, so it is signed but not compared.
///
/// # Errors
/// [`InvalidKeyError`] only if the library fails.
pub fn sign(
    key: &SigningKey,
    workspace_id: &str,
    subject: Subject<'_>,
    nonce: [u8; NONCE_LEN],
    now: Timestamp,
) -> Result<String, InvalidKeyError> {
    let issued = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let expires = issued.saturating_add(LIFETIME).unwrap_or(issued);
    let mut proof = Proof {
        version: VERSION,
        suite: SUITE.to_owned(),
        workspace_id: workspace_id.to_owned(),
        project_id: subject.project_id.to_owned(),
        server_id: subject.server_id.to_owned(),
        tunnel_protocol: subject.tunnel_protocol.to_owned(),
        tunnel_type: subject.tunnel_type.to_owned(),
        labels_sha256: subject.labels_sha256(),
        signing_key_id: key.public().id(),
        issued_at: issued.to_string(),
        expires_at: expires.to_string(),
        nonce: URL_SAFE_NO_PAD.encode(nonce),
        signature: String::new(),
    };
    proof.signature = URL_SAFE_NO_PAD.encode(key.sign(&proof.signed())?);
    // Serialising a struct of texts never fails.
    let json = serde_json::to_vec(&proof).unwrap_or_default();
    Ok(URL_SAFE_NO_PAD.encode(json))
}

/// A valid proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedProof {
    /// Its nonce: a second proof with the same nonce is a replay.
    pub nonce: [u8; NONCE_LEN],
    /// End of its validity, until which its nonce must be remembered.
    pub expires_at: Timestamp,
}

/// Checks the value of [`LABEL`] against the key that the server was enrolled with.
///
/// # Errors
/// [`AdmissionError`].
pub fn verify(
    proof: &str,
    key: &SigningPublicKey,
    subject: Subject<'_>,
    now: Timestamp,
) -> Result<VerifiedProof, AdmissionError> {
    let proof = Proof::read(proof)?;
    if proof.signing_key_id != key.id() {
        return Err(AdmissionError::OtherKey);
    }
    let signature = URL_SAFE_NO_PAD.decode(&proof.signature);
    let signature = signature.map_err(|_| AdmissionError::Malformed)?;
    // The content is only trusted after the signature is verified.
    if !key.verifies(&proof.signed(), &signature) {
        return Err(AdmissionError::Forged);
    }
    let about = [
        ("project", &*proof.project_id, subject.project_id),
        ("server", &*proof.server_id, subject.server_id),
        ("protocol", &*proof.tunnel_protocol, subject.tunnel_protocol),
        ("type", &*proof.tunnel_type, subject.tunnel_type),
        ("labels", &*proof.labels_sha256, &*subject.labels_sha256()),
    ];
    if let Some((what, ..)) = about
        .iter()
        .find(|(_, signed, expected)| signed != expected)
    {
        return Err(AdmissionError::OtherSubject(what));
    }
    let (issued, expires) = (time(&proof.issued_at)?, time(&proof.expires_at)?);
    let lifetime = expires.duration_since(issued);
    if lifetime > signed(LIFETIME) || lifetime.is_negative() {
        return Err(AdmissionError::Lifetime);
    }
    if issued.duration_since(now) > signed(MAX_CLOCK_SKEW) {
        return Err(AdmissionError::NotYet);
    }
    if now >= expires {
        return Err(AdmissionError::Expired);
    }
    let mut nonce = [0; NONCE_LEN];
    if URL_SAFE_NO_PAD.decode_slice(&proof.nonce, &mut nonce) != Ok(NONCE_LEN) {
        return Err(AdmissionError::Malformed);
    }
    Ok(VerifiedProof {
        nonce,
        expires_at: expires,
    })
}

/// Reasons for which a server is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The data is not a proof.
    #[error("the admission proof cannot be read")]
    Malformed,
    /// The proof has another version or other algorithms.
    #[error("the admission proof has another version")]
    Version,
    /// The proof was made with another key than the enrolled one.
    #[error("the admission proof was made with another key than the server was enrolled with")]
    OtherKey,
    /// The signature is invalid.
    #[error("the signature of the admission proof is invalid")]
    Forged,
    /// The proof is for another tunnel.
    #[error("the admission proof is for another tunnel: its {0} differs")]
    OtherSubject(&'static str),
    /// The proof states a longer validity than is permitted.
    #[error("the admission proof is valid for longer than {} seconds", LIFETIME.as_secs())]
    Lifetime,
    /// The proof is from the future.
    #[error("the admission proof is not valid yet; the clock of the server is ahead")]
    NotYet,
    /// The proof has expired.
    #[error("the admission proof has expired; if it is new, the clock of the server is behind")]
    Expired,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proof {
    version: u32,
    suite: String,
    workspace_id: String,
    project_id: String,
    server_id: String,
    tunnel_protocol: String,
    tunnel_type: String,
    labels_sha256: String,
    signing_key_id: String,
    issued_at: String,
    expires_at: String,
    nonce: String,
    signature: String,
}

impl Proof {
    fn read(text: &str) -> Result<Self, AdmissionError> {
        if text.len() > MAX_PROOF {
            return Err(AdmissionError::Malformed);
        }
        let json = URL_SAFE_NO_PAD.decode(text);
        let json = json.map_err(|_| AdmissionError::Malformed)?;
        let proof: Self = serde_json::from_slice(&json).map_err(|_| AdmissionError::Malformed)?;
        if proof.version != VERSION || proof.suite != SUITE {
            return Err(AdmissionError::Version);
        }
        Ok(proof)
    }

    /// The signed bytes: each text unchanged and prefixed with its length, so that
    /// different proofs have different bytes.
    fn signed(&self) -> Vec<u8> {
        let version = self.version.to_be_bytes();
        let parts: [&[u8]; 13] = [
            DOMAIN,
            &version,
            self.suite.as_bytes(),
            self.workspace_id.as_bytes(),
            self.project_id.as_bytes(),
            self.server_id.as_bytes(),
            self.tunnel_protocol.as_bytes(),
            self.tunnel_type.as_bytes(),
            self.labels_sha256.as_bytes(),
            self.signing_key_id.as_bytes(),
            self.issued_at.as_bytes(),
            self.expires_at.as_bytes(),
            self.nonce.as_bytes(),
        ];
        let mut message = Vec::new();
        for part in parts {
            let len = u64::try_from(part.len()).unwrap_or(u64::MAX);
            message.extend(len.to_be_bytes());
            message.extend(part);
        }
        message
    }
}

fn time(text: &str) -> Result<Timestamp, AdmissionError> {
    text.parse().map_err(|_| AdmissionError::Malformed)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests;
