//! Layout of the store: each session has an object with its metadata, and segments with records.
//!
//! ```text
//! key                                   object that only the key can open
//! health                                written to test the store
//! open/<project>/<session>              mark of a recording in progress, with its writer
//! sessions/<project>/<session>/session  metadata of the session, and the end of its chain
//! sessions/<project>/<session>/<seq>    a segment; its name is the number of its first record
//! ```
//!
//! Each object is a vault of one chunk, under a key that is derived from its name, so that no
//! object can replace another one. A segment is rewritten with more records in it until it has
//! [`ROLL`] bytes, because network stores cannot append.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use serde::{Deserialize, Serialize};
use tracing::debug;
use tty::recording::Head;
use tty::recording::vault::{MAX_CHUNK, Opener, Sealer, VaultError, VaultKey};
use types::tunnel::Tunnel;

use super::lock::FolderLock;
use crate::random::random_bytes;

/// Size in bytes after which a segment is not rewritten. It bounds the bytes that are written
/// twice, and a reader of an hour gets some hundred objects.
pub(super) const ROLL: usize = 128 * 1024;

/// Maximum size of a segment before sealing.
pub(super) const MAX_SEGMENT: usize = MAX_CHUNK;

/// Maximum size of a sealed object: more than the overhead of sealing.
const MAX_OBJECT: u64 = MAX_CHUNK as u64 + 4096;

/// Maximum number of names in one listing. With any retention that fits the storage limit, a
/// project has fewer sessions.
const MAX_NAMES: usize = 200_000;

/// The store of the recordings.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Prefix of all names.
    pub(super) prefix: Path,
    pub(super) key: VaultKey,
    /// Id of this writer. No other writer has the sessions that this one left open.
    pub(super) owner: String,
    /// The folder, if the store is one, with the lock against other processes.
    pub(super) folder: Option<Folder>,
}

/// A folder that only this process uses, and the one that replaces it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) lock: FolderLock,
}

/// Metadata of a stored session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSession {
    /// Version of this format: 1.
    pub(super) version: u8,
    /// The session as lists show it.
    pub(super) session: api::webtty::Session,
    /// The tunnel of its server at that time.
    pub(super) tunnel: Tunnel,
    /// The payloads are end-to-end encrypted.
    pub(super) sealed: bool,
    /// The session has ended.
    pub(super) ended: bool,
    /// The last record, if the session has ended and its records were verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) head: Option<Head>,
    /// Set if its records were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deleted: Option<DeletionInfo>,
}

/// Author and time of a removal of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeletionInfo {
    pub(super) at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

/// Errors of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store failed or refused the request.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// The object is not the one that was stored.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The object was opened, but does not have the format of this version.
    #[error("the object has another format")]
    Form(#[from] serde_json::Error),
    /// The store took too long.
    #[error("the store does not respond")]
    TimedOut,
}

impl StoreError {
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Store(object_store::Error::NotFound { .. }))
    }
}

type StoreResult<T> = Result<T, StoreError>;

impl Store {
    /// Takes the lock of a folder. Returns false if another process holds it.
    pub(super) fn acquire(&self) -> bool {
        let acquired = self.folder.as_ref().map(|folder| folder.lock.acquire());
        acquired.unwrap_or(Ok(true)).unwrap_or_else(|error| {
            debug!(%error, "the folder of recordings cannot be locked");
            false
        })
    }

    /// True if the store was created with the configured key.
    pub(super) async fn has_its_key(&self) -> StoreResult<bool> {
        let at = self.prefix.clone().join("key");
        match self.get(&at, "key").await {
            Ok(_) => return Ok(true),
            Err(StoreError::Vault(_)) => return Ok(false),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
        let sealed = self.seal("key", b"")?;
        let options = PutOptions::from(PutMode::Create);
        match self.objects.put_opts(&at, sealed.into(), options).await {
            Ok(_) => {
                self.restrict_permissions(&at)?;
                Ok(true)
            }
            // Another process created the store at the same moment.
            Err(object_store::Error::AlreadyExists { .. }) => match self.get(&at, "key").await {
                Ok(_) => Ok(true),
                Err(StoreError::Vault(_)) => Ok(false),
                Err(error) => Err(error),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Writes an object of the size of a segment, to test the store.
    pub(super) async fn probe(&self) -> StoreResult<()> {
        let at = self.prefix.clone().join("health");
        let sealed = self.seal("health", &vec![0; 64 * 1024])?;
        self.objects.put(&at, sealed.into()).await?;
        self.restrict_permissions(&at)?;
        Ok(())
    }

    pub(super) async fn put_session(
        &self,
        project: &str,
        stored: &StoredSession,
    ) -> StoreResult<u64> {
        let id = &stored.session.id;
        let clear = serde_json::to_vec(stored)?;
        self.put(
            &self.session(project, id),
            &name(project, id, SESSION),
            &clear,
        )
        .await
    }

    pub(super) async fn get_session(&self, project: &str, id: &str) -> StoreResult<StoredSession> {
        let clear = self
            .get(&self.session(project, id), &name(project, id, SESSION))
            .await?;
        Ok(serde_json::from_slice(&clear)?)
    }

    /// Stores a segment, and returns its size in the store.
    pub(super) async fn put_segment(
        &self,
        project: &str,
        id: &str,
        first: u64,
        clear: &[u8],
    ) -> StoreResult<u64> {
        let part = segment(first);
        let at = self.folder_of(project, id).join(part.as_str());
        self.put(&at, &name(project, id, &part), clear).await
    }

    pub(super) async fn get_segment(
        &self,
        project: &str,
        id: &str,
        first: u64,
    ) -> StoreResult<Vec<u8>> {
        let part = segment(first);
        let at = self.folder_of(project, id).join(part.as_str());
        self.get(&at, &name(project, id, &part)).await
    }

    /// The number of the first record of each segment, in order.
    pub(super) async fn segments(&self, project: &str, id: &str) -> StoreResult<BTreeSet<u64>> {
        let listed = self.objects.list(Some(&self.folder_of(project, id)));
        let mut firsts = BTreeSet::new();
        let mut listed = listed.map_ok(|object| {
            let part = object.location.filename().unwrap_or_default().to_owned();
            part.parse::<u64>()
                .ok()
                .filter(|first| segment(*first) == part)
        });
        while let Some(first) = listed.try_next().await? {
            if firsts.len() < MAX_NAMES {
                firsts.extend(first);
            }
        }
        Ok(firsts)
    }

    /// Projects with recordings in this store.
    pub(super) async fn projects(&self) -> StoreResult<Vec<String>> {
        self.below(&self.prefix.clone().join(SESSIONS)).await
    }

    /// Ids of a project's sessions, oldest first.
    pub(super) async fn sessions(&self, project: &str) -> StoreResult<Vec<String>> {
        let at = self.prefix.clone().join(SESSIONS).join(project);
        self.below(&at).await
    }

    /// Stored bytes of a project.
    pub(super) async fn bytes(&self, project: &str) -> StoreResult<u64> {
        let at = self.prefix.clone().join(SESSIONS).join(project);
        let listed = self.objects.list(Some(&at));
        Ok(listed
            .try_fold(0, async |sum, object| Ok(sum + object.size))
            .await?)
    }

    /// Removes the segments, and returns their size in bytes.
    pub(super) async fn remove_segments(&self, project: &str, id: &str) -> StoreResult<u64> {
        let folder = self.folder_of(project, id);
        let found: Vec<_> = self.objects.list(Some(&folder)).try_collect().await?;
        let mut bytes = 0;
        for object in found {
            if object.location.filename() != Some(SESSION) {
                self.objects.delete(&object.location).await?;
                bytes += object.size;
            }
        }
        Ok(bytes)
    }

    /// Removes a session with its metadata, and returns its size in bytes.
    pub(super) async fn remove_session(&self, project: &str, id: &str) -> StoreResult<u64> {
        let bytes = self.remove_segments(project, id).await?;
        match self.objects.delete(&self.session(project, id)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(folder) = &self.folder {
            // Unfinished files of a killed engine are not objects.
            let at = folder.path.join(self.folder_of(project, id).as_ref());
            let removing = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(at));
            removing.await.ok();
        }
        Ok(bytes)
    }

    /// Marks a session as being recorded.
    pub(super) async fn mark(&self, project: &str, id: &str) -> StoreResult<()> {
        let owner = Bytes::from(self.owner.clone());
        self.objects
            .put(&self.mark_of(project, id), owner.into())
            .await?;
        self.restrict_permissions(&self.mark_of(project, id))?;
        Ok(())
    }

    /// Removes that mark.
    pub(super) async fn unmark(&self, project: &str, id: &str) -> StoreResult<()> {
        match self.objects.delete(&self.mark_of(project, id)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Marked sessions: project, session, if the mark belongs to this writer, and the time of the
    /// mark.
    pub(super) async fn marked(&self) -> StoreResult<Vec<(String, String, bool, Timestamp)>> {
        let at = self.prefix.clone().join(OPEN);
        let found: Vec<_> = self.objects.list(Some(&at)).try_collect().await?;
        let mut marked = Vec::new();
        for object in found {
            let mut parts = object.location.parts().map(|part| part.as_ref().to_owned());
            let (id, project) = (parts.next_back(), parts.next_back());
            let (Some(id), Some(project)) = (id, project) else {
                continue;
            };
            let owner = match self.objects.get(&object.location).await {
                Ok(got) => got.bytes().await?,
                Err(object_store::Error::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let made = object.last_modified.timestamp();
            let made = Timestamp::from_second(made).unwrap_or(Timestamp::MIN);
            marked.push((project, id, owner == self.owner.as_bytes(), made));
        }
        Ok(marked)
    }

    async fn below(&self, at: &Path) -> StoreResult<Vec<String>> {
        let listed = self.objects.list_with_delimiter(Some(at)).await?;
        let names = listed.common_prefixes.iter().filter_map(Path::filename);
        let mut names: Vec<_> = names.take(MAX_NAMES).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Restricts a file to its owner. The store creates files that every user of the host may read,
    /// in a folder that only the owner may enter. A copy of the folder may be in a less protected
    /// place.
    fn restrict_permissions(&self, at: &Path) -> StoreResult<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let path = folder.path.join(at.as_ref());
        let closed = std::fs::set_permissions(&path, Permissions::from_mode(0o600));
        closed.map_err(|source| {
            let generic = object_store::Error::Generic {
                store: "folder",
                source: source.into(),
            };
            StoreError::Store(generic)
        })
    }

    async fn put(&self, at: &Path, name: &str, clear: &[u8]) -> StoreResult<u64> {
        let sealed = self.seal(name, clear)?;
        let size = sealed.len();
        self.objects.put(at, sealed.into()).await?;
        self.restrict_permissions(at)?;
        Ok(u64::try_from(size).unwrap_or(u64::MAX))
    }

    async fn get(&self, at: &Path, name: &str) -> StoreResult<Vec<u8>> {
        let got = self.objects.get(at).await?;
        if got.meta.size > MAX_OBJECT {
            return Err(VaultError::TooLarge.into());
        }
        let sealed = got.bytes().await?;
        let mut opener = Opener::new(&*sealed, &self.key, name)?;
        let clear = opener.chunk()?.unwrap_or_default();
        match opener.chunk()? {
            None => Ok(clear),
            Some(_) => Err(VaultError::Modified.into()),
        }
    }

    fn seal(&self, name: &str, clear: &[u8]) -> StoreResult<Vec<u8>> {
        let sealer = Sealer::new(&self.key, name, random_bytes()).ok_or(VaultError::Modified)?;
        let header = *sealer.header();
        let chunk = sealer.finish(clear)?;
        Ok([header.as_slice(), &chunk].concat())
    }

    fn folder_of(&self, project: &str, id: &str) -> Path {
        self.prefix.clone().join(SESSIONS).join(project).join(id)
    }

    fn session(&self, project: &str, id: &str) -> Path {
        self.folder_of(project, id).join(SESSION)
    }

    fn mark_of(&self, project: &str, id: &str) -> Path {
        self.prefix.clone().join(OPEN).join(project).join(id)
    }
}

fn segment(first: u64) -> String {
    format!("{first:020}")
}

/// Name from which the key of an object is derived.
fn name(project: &str, id: &str, part: &str) -> String {
    format!("{project}/{id}/{part}")
}

const SESSIONS: &str = "sessions";
const SESSION: &str = "session";
const OPEN: &str = "open";
