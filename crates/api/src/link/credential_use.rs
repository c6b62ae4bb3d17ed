//! Uses of long-lived credentials at engines.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A credential was used at the engine: directly, or by a token minted from it. An engine reports a
/// credential at most once in [`CREDENTIAL_USE_SECONDS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialUseRecord {
    /// Id of the credential.
    pub credential_id: String,
    /// Time of the use.
    pub used_at: Timestamp,
}

/// Precision of the last use of a credential, which limits the writes to the database.
pub const CREDENTIAL_USE_SECONDS: i64 = 60;
