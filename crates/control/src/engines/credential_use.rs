//! Uses of credentials that engines report.

use std::collections::BTreeMap;

use api::link::CREDENTIAL_USE_SECONDS;
use jiff::{SignedDuration, Timestamp};
use store::{Tx, credentials};
use types::id::CredentialId;

use super::cluster::Cluster;

/// Records the last uses of credentials, at most once a minute for each. Credentials that the
/// cluster does not receive are skipped. Returns the number of the others.
pub(super) async fn record(
    tx: &mut Tx,
    cluster: &Cluster,
    uses: BTreeMap<CredentialId, Timestamp>,
    now: Timestamp,
) -> Result<u64, store::Error> {
    if uses.is_empty() {
        return Ok(0);
    }
    let ids: Vec<_> = uses.keys().copied().collect();
    let mut known = cluster.directory.credentials(tx, &ids, now).await?;
    known.retain(|credential| cluster.accepts(credential));
    // Concurrent batches lock rows in the same order.
    known.sort_by_key(|credential| credential.id);
    let precision = SignedDuration::from_secs(CREDENTIAL_USE_SECONDS);
    let mut counted = 0;
    for credential in known {
        let Some(used_at) = uses.get(&credential.id) else {
            continue;
        };
        let noted = used_at.saturating_sub(precision).unwrap_or(Timestamp::MIN);
        credentials::record_use_at_engine(tx, credential.id, *used_at, noted).await?;
        counted += 1;
    }
    Ok(counted)
}
