//! Access to stored sessions and their records.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tracing::warn;
use tty::recording::{ChainError, Head, Record, Verifier};
use types::id::WebttySessionId;
use types::tunnel::Tunnel;

use super::layout::{DeletionInfo, Store, StoreError, StoredSession};
use super::{Inner, RecordedSession, Recorder};

/// Reasons for which a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The session does not exist, or no store is configured.
    #[error("the recording does not exist")]
    NotFound,
    /// Its records were removed.
    #[error("the recording was deleted")]
    Deleted,
    /// The recording is in progress.
    #[error("the session is still being recorded")]
    Running,
    /// Only the two ends can read it.
    #[error("the session is end-to-end encrypted")]
    Sealed,
    /// The limit of concurrent reads is reached.
    #[error("too many recordings are being read")]
    Busy,
    /// Its records deviate from the chain.
    #[error("the recording was modified: {0}")]
    ModifiedRecording(#[from] ChainError),
    /// A part of it cannot be opened.
    #[error("the recording was modified from record {seq} on")]
    Unopened {
        /// The first record of that part.
        seq: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Number of valid records from the start.
    pub records: u64,
    /// The last valid record.
    pub head: Head,
    /// The first invalid record, and its error.
    pub broken: Option<(u64, String)>,
}

/// Limit of cached metadata for lists.
const MAX_ENDED: usize = 4096;

/// Sessions that one list reads: a list with filters that match nothing must end in a large
/// project as well.
const MAX_EXAMINED: usize = 5000;

/// Concurrent requests to the store.
const MAX_CONCURRENT_READS: usize = 16;

impl Recorder {
    /// Stored sessions of a project, newest first: at most `limit` of those that are `wanted`, out
    /// of the newest [`MAX_EXAMINED`]. A running session has the state of its start.
    ///
    /// # Errors
    /// The store fails, or too many lists are being made.
    pub async fn sessions(
        &self,
        project_id: &str,
        limit: usize,
        wanted: impl Fn(&api::webtty::Session, &Tunnel) -> bool,
    ) -> Result<Vec<RecordedSession>, ReadError> {
        let Some(inner) = &self.inner else {
            return Ok(Vec::new());
        };
        let _permit = inner.lists.permit(project_id)?;
        let found = inner
            .newest(project_id, limit, |stored| {
                wanted(&stored.session, &stored.tunnel)
            })
            .await?;
        Ok(found
            .iter()
            .map(|stored| stored.to_recorded_session())
            .collect())
    }

    /// A stored session of a project.
    ///
    /// # Errors
    /// The store fails.
    pub async fn session(
        &self,
        project_id: &str,
        id: &WebttySessionId,
    ) -> Result<Option<RecordedSession>, ReadError> {
        let Some(inner) = &self.inner else {
            return Ok(None);
        };
        match inner.find(project_id, id.as_str()).await {
            Ok(stored) => Ok(Some(stored.to_recorded_session())),
            Err(ReadError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records from a number on: at most `limit`, and fewer if they are large. The result states if
    /// their payloads are end-to-end encrypted.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn records(
        &self,
        project_id: &str,
        id: &WebttySessionId,
        from: u64,
        limit: usize,
    ) -> Result<(Vec<Record>, bool), ReadError> {
        let inner = self.inner.as_ref().ok_or(ReadError::NotFound)?;
        let _permit = inner.readers.permit(project_id)?;
        let (stored, mut reader) = inner.open(project_id, id.as_str(), from).await?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some(part) = reader.next().await? {
            for record in part {
                if records.len() >= limit || bytes >= MAX_PAGE_BYTES {
                    return Ok((records, stored.sealed));
                }
                if record.seq >= from {
                    bytes += record.payload.len();
                    records.push(record);
                }
            }
        }
        Ok((records, stored.sealed))
    }

    /// Verifies a whole recording.
    ///
    /// # Errors
    /// See [`ReadError`]. A manipulated recording is a result, not an error.
    pub async fn verify(
        &self,
        project_id: &str,
        id: &WebttySessionId,
    ) -> Result<Verification, ReadError> {
        let inner = self.inner.as_ref().ok_or(ReadError::NotFound)?;
        let _permit = inner.readers.permit(project_id)?;
        let (_, mut reader) = inner.open(project_id, id.as_str(), 1).await?;
        let broken = loop {
            match reader.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(ReadError::ModifiedRecording(ChainError { seq, fault })) => {
                    break Some((seq, fault.to_string()));
                }
                Err(ReadError::Unopened { seq }) => {
                    break Some((seq, "the record cannot be decrypted".to_owned()));
                }
                Err(error) => return Err(error),
            }
        };
        let head = reader.head().clone();
        Ok(Verification {
            records: head.seq,
            head,
            broken,
        })
    }

    /// Removes the records of a session. Its metadata stays.
    ///
    /// # Errors
    /// See [`ReadError`]. A recording in progress cannot be removed.
    pub async fn delete(
        &self,
        project_id: &str,
        id: &WebttySessionId,
        by: Option<&str>,
    ) -> Result<(), ReadError> {
        let inner = self.inner.as_ref().ok_or(ReadError::NotFound)?;
        let id = id.as_str();
        let mut stored = inner.find(project_id, id).await?;
        if stored.deleted.is_some() {
            return Err(ReadError::Deleted);
        }
        if !stored.ended {
            return Err(ReadError::Running);
        }
        stored.deleted = Some(DeletionInfo {
            at: inner.clock.now(),
            by: by.map(str::to_owned),
        });
        // The mark is stored first, so that half removed records are not read.
        inner.store.put_session(project_id, &stored).await?;
        inner.ended.lock().remove(id);
        let bytes = inner.store.remove_segments(project_id, id).await?;
        inner.usage.change(project_id, bytes, 0);
        inner.notify_changed();
        Ok(())
    }
}

impl StoredSession {
    fn to_recorded_session(&self) -> RecordedSession {
        RecordedSession {
            session: self.session.clone(),
            tunnel: self.tunnel.clone(),
        }
    }
}

/// Payload bytes of one page of records.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

impl Inner {
    pub(super) async fn find(&self, project: &str, id: &str) -> Result<StoredSession, ReadError> {
        match self.store.get_session(project, id).await {
            Err(error) if error.is_missing() => Err(ReadError::NotFound),
            Err(StoreError::Vault(error)) => {
                warn!(project, session = id, %error, "the stored data of a session was modified");
                Err(ReadError::Unopened { seq: 1 })
            }
            read => Ok(read?),
        }
    }

    /// A stored session, and its records from the segment on that contains this one.
    pub(super) async fn open(
        &self,
        project: &str,
        id: &str,
        from: u64,
    ) -> Result<(StoredSession, Reader<'_>), ReadError> {
        let stored = self.find(project, id).await?;
        if stored.deleted.is_some() {
            return Err(ReadError::Deleted);
        }
        let mut reader = Reader::begin(&self.store, project, id, stored.head.clone()).await?;
        reader.skip_to(from);
        Ok((stored, reader))
    }

    /// The newest sessions of a project, from the cache or the store.
    pub(super) async fn newest(
        &self,
        project: &str,
        limit: usize,
        wanted: impl Fn(&StoredSession) -> bool,
    ) -> Result<Vec<Arc<StoredSession>>, ReadError> {
        let mut ids = self.store.sessions(project).await?;
        ids.reverse();
        ids.truncate(MAX_EXAMINED);
        let read = stream::iter(ids).map(|id| self.cached_session(project, id));
        let mut read = read.buffered(MAX_CONCURRENT_READS);
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(stored) = read.next().await
        {
            found.extend(stored?.filter(|stored| wanted(stored)));
        }
        Ok(found)
    }

    async fn cached_session(
        &self,
        project: &str,
        id: String,
    ) -> Result<Option<Arc<StoredSession>>, ReadError> {
        let known = self.ended.lock().get(&id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let stored = match self.find(project, &id).await {
            Ok(stored) => Arc::new(stored),
            // The session was just removed, or its object was replaced. The list still shows the
            // other sessions.
            Err(ReadError::NotFound | ReadError::Unopened { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if stored.ended {
            let mut ended = self.ended.lock();
            if ended.len() >= MAX_ENDED {
                ended.clear();
            }
            ended.insert(id, Arc::clone(&stored));
        }
        Ok(Some(stored))
    }
}

/// Reads the records of a session, a segment at a time, and verifies each of them.
pub(super) struct Reader<'s> {
    store: &'s Store,
    project: String,
    id: String,
    segments: VecDeque<u64>,
    /// The verifier, if the chain is read from its start.
    verifier: Option<Verifier>,
    /// The expected end of the chain.
    end: Option<Head>,
    last: Head,
}

impl<'s> Reader<'s> {
    pub(super) async fn begin(
        store: &'s Store,
        project: &str,
        id: &str,
        end: Option<Head>,
    ) -> Result<Self, StoreError> {
        let segments = store.segments(project, id).await?;
        Ok(Self {
            store,
            project: project.to_owned(),
            id: id.to_owned(),
            segments: segments.into_iter().collect(),
            verifier: Some(Verifier::new(id)),
            end,
            last: Head::begin(id),
        })
    }

    /// Skips to the segment that contains this record.
    fn skip_to(&mut self, seq: u64) {
        while self.segments.get(1).is_some_and(|next| *next <= seq) {
            self.segments.pop_front();
            self.verifier = None;
        }
    }

    /// The last valid record that was read.
    pub(super) fn head(&self) -> &Head {
        self.verifier.as_ref().map_or(&self.last, Verifier::head)
    }

    /// The records of the next segment; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Record>>, ReadError> {
        let Some(first) = self.segments.pop_front() else {
            if let Some(end) = self.end.take() {
                let verifier = self.verifier.take();
                if let Some(verifier) = verifier {
                    self.last = verifier.head().clone();
                    verifier.finish(&end)?;
                }
            }
            return Ok(None);
        };
        let read = self.store.get_segment(&self.project, &self.id, first).await;
        let clear = match read {
            Err(StoreError::Vault(_)) => return Err(ReadError::Unopened { seq: first }),
            read => read?,
        };
        let mut records = Vec::new();
        for line in clear
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let record: Record = serde_json::from_slice(line).map_err(StoreError::from)?;
            let verifier = self.verifier.get_or_insert_with(|| Verifier::from(&record));
            verifier.check(&record)?;
            records.push(record);
        }
        Ok(Some(records))
    }
}
