//! Uses of the platform's long-lived credentials, which the reports of the engine contain.

use std::collections::HashMap;
use std::sync::Arc;

use api::link::{CREDENTIAL_USE_SECONDS, CredentialUseRecord};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::directory::Credential;

/// The credentials that were used since the last report, with the times of their uses.
#[derive(Debug, Default)]
pub(super) struct CredentialUses(Mutex<HashMap<Arc<str>, i64>>);

impl CredentialUses {
    /// Notes a use at `now` (Unix seconds), at most once a minute for each credential.
    pub(super) fn note(&self, credential: &Credential, now: i64) {
        if !credential.is_use_due(now, CREDENTIAL_USE_SECONDS) {
            return;
        }
        self.insert(&credential.id, now);
    }

    fn insert(&self, id: &Arc<str>, now: i64) {
        let mut uses = self.0.lock();
        if uses.len() < MAX_USES {
            uses.insert(Arc::clone(id), now);
        }
    }

    /// Takes all noted uses.
    pub(super) fn take(&self) -> Vec<CredentialUseRecord> {
        let uses = std::mem::take(&mut *self.0.lock());
        let records = uses.into_iter().filter_map(|(id, used_at)| {
            Some(CredentialUseRecord {
                credential_id: id.to_string(),
                used_at: Timestamp::from_second(used_at).ok()?,
            })
        });
        records.collect()
    }
}

/// As many as the cache has tokens. Further uses are reported in the next minute.
const MAX_USES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_noted_uses_is_limited() {
        let uses = CredentialUses::default();
        for number in 0..=MAX_USES {
            uses.insert(&Arc::from(format!("crd_{number}")), 1);
        }
        assert_eq!(uses.take().len(), MAX_USES);
        // A report makes room.
        uses.insert(&Arc::from("crd_1"), 2);
        assert_eq!(uses.take().len(), 1);
    }
}
