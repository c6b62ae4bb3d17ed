//! Entries: the settings of tunnels, which the other engines read.
//!
//! An entry is written after its tunnel was opened, on the condition that the engine still has the
//! hold of the name, and with the engine's lease. The transaction that parks the name, or moves it
//! to another engine, removes the entry.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use ownership::Name;
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::membership::{CONCURRENT, Membership};
use crate::proto::TxnRequest;

impl Membership {
    /// Writes entries until `stop`.
    pub(crate) async fn run_entries(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = self.write_continuously() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn write_continuously(&self) {
        loop {
            self.entries.notified().await;
            while let Err(error) = self.write_entries().await {
                tracing::debug!(%error, "entries of tunnels are written later");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn write_entries(&self) -> Result<(), StoreError> {
        loop {
            let names: Vec<Name> = {
                let state = self.state.lock();
                state.unwritten.iter().take(BATCH).cloned().collect()
            };
            if names.is_empty() {
                return Ok(());
            }
            let written = names.into_iter().map(|name| self.write_entry(name));
            let mut written = stream::iter(written).buffer_unordered(CONCURRENT);
            while let Some(outcome) = written.next().await {
                outcome?;
            }
        }
    }

    async fn write_entry(&self, name: Name) -> Result<(), StoreError> {
        let names = [name];
        let _locks = self.locks.lock(&names).await;
        let [name] = &names;
        let (entry, generation, lease) = {
            let mut state = self.state.lock();
            let Some(to_write) = state.entry_to_write(name) else {
                state.unwritten.remove(name);
                return Ok(());
            };
            to_write
        };
        let keys = &self.keys;
        let request = TxnRequest {
            compare: vec![keys.has_generation(name, self.id, generation)],
            success: vec![keys.put_entry(name, self.id, entry.as_bytes(), lease)],
            failure: Vec::new(),
        };
        let answer = self.client.transaction(request).await?;
        let mut state = self.state.lock();
        if let Some(owned) = state.owned.get_mut(name).filter(|_| answer.succeeded) {
            owned.written = Some(entry);
        }
        // Without the hold there is nothing to write: another engine has the name, or it is claimed
        // again, and its entry is written then.
        if !answer.succeeded || state.entry_to_write(name).is_none() {
            state.unwritten.remove(name);
        }
        Ok(())
    }
}

/// Names that are read from the state at once.
const BATCH: usize = 1024;

/// The pause after a failure. Requests have their own time limit.
const RETRY: Duration = Duration::from_millis(500);
