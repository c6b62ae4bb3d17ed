//! Creation of the store from its configuration.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::key;
use super::layout::{Folder, Store, StoreError};
use super::lock::FolderLock;
use crate::config::{RecordingLocation, Recordings, S3};
use crate::random::random_bytes;

/// Reasons for which the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be used.
    #[error("`webtty.recordings.path`: {}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The key cannot be read or created.
    #[error("`webtty.recordings.key_file`: {}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The existing recordings were made with another key.
    #[error(
        "`webtty.recordings.key_file`: {} is not the key of the existing recordings",
        .0.display()
    )]
    OtherKey(PathBuf),
    /// The secret of the store cannot be read.
    #[error("`webtty.recordings.s3.secret_access_key_file`: {}", .path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The store cannot be used with this configuration.
    #[error("`webtty.recordings.s3`")]
    Bucket(#[source] object_store::Error),
    /// The folder cannot be read or written.
    #[error("`webtty.recordings`")]
    Store(#[source] StoreError),
}

/// Largest secret file: a secret of a store has some forty characters.
const MAX_SECRET: u64 = 4096;

/// Time within which a network store must answer one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time within which it must connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens the store. A folder that is created here is readable only by its owner. A process that
/// replaces another one may find the folder locked.
pub(super) async fn open(
    config: &Recordings,
    is_successor: bool,
) -> Result<Option<Store>, OpenError> {
    let config = config.clone();
    let opening = tokio::task::spawn_blocking(move || prepare(&config, is_successor));
    let joined = opening.await.map_err(|error| OpenError::Folder {
        path: PathBuf::new(),
        source: io::Error::other(error),
    })?;
    let Some((store, key_file)) = joined? else {
        return Ok(None);
    };
    // A network store may be unreachable now. In this case the key is checked later.
    if store.folder.is_some() && !store.has_its_key().await.map_err(OpenError::Store)? {
        return Err(OpenError::OtherKey(key_file));
    }
    Ok(Some(store))
}

fn prepare(config: &Recordings, is_successor: bool) -> Result<Option<(Store, PathBuf)>, OpenError> {
    let Some(place) = &config.location else {
        return Ok(None);
    };
    let (objects, prefix, folder): (Arc<dyn ObjectStore>, _, _) = match place {
        RecordingLocation::Folder(path) => {
            let failed = |source| OpenError::Folder {
                path: path.clone(),
                source,
            };
            let folder = lock_folder(path, is_successor).map_err(failed)?;
            let objects = LocalFileSystem::new_with_prefix(&folder.path)
                .map_err(|error| failed(io::Error::other(error)))?
                .with_automatic_cleanup(true)
                .with_fsync(true);
            (Arc::new(objects), "", Some(folder))
        }
        RecordingLocation::S3(s3) => (Arc::new(bucket(s3)?), s3.prefix.as_str(), None),
    };
    let key_file = config.key_file.clone().unwrap_or_default();
    let read = if config.makes_key {
        key::read_or_make(&key_file)
    } else {
        key::read(&key_file)
    };
    let key = read.map_err(|source| OpenError::Key {
        path: key_file.clone(),
        source,
    })?;
    let owner = owner(config.owner_file.as_deref()).map_err(|source| OpenError::Folder {
        path: config.owner_file.clone().unwrap_or_default(),
        source,
    })?;
    let store = Store {
        objects,
        prefix: object_store::path::Path::from(prefix),
        key,
        owner,
        folder,
    };
    Ok(Some((store, key_file)))
}

/// Creates the folder if it is missing, and locks it. The process that this one replaces may hold the
/// lock.
fn lock_folder(path: &Path, is_successor: bool) -> io::Result<Folder> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    let mut options = OpenOptions::new();
    let lock = options.create(true).append(true).mode(0o600);
    let lock = FolderLock::new(lock.open(path.join(".lock"))?);
    if !lock.acquire()? && !is_successor {
        let used = "another process uses this directory";
        return Err(io::Error::new(io::ErrorKind::WouldBlock, used));
    }
    Ok(Folder {
        path: path.to_owned(),
        lock,
    })
}

fn bucket(s3: &S3) -> Result<AmazonS3, OpenError> {
    let path = &s3.secret_access_key_file;
    let secret = daemon::files::read_bounded(path, MAX_SECRET).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    let secret = secret.map_err(|source| OpenError::Secret {
        path: path.clone(),
        source,
    })?;
    let client = ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(s3.endpoint.starts_with("http://"));
    // The queue for a store is bounded, so the time for retries is bounded as well.
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: 3,
        retry_timeout: REQUEST_TIMEOUT,
    };
    AmazonS3Builder::new()
        .with_endpoint(&s3.endpoint)
        .with_bucket_name(&s3.bucket)
        .with_region(&s3.region)
        .with_access_key_id(&s3.access_key_id)
        .with_secret_access_key(secret.trim())
        .with_client_options(client)
        .with_retry(retry)
        .build()
        .map_err(OpenError::Bucket)
}

/// Id of this writer. With a file it stays the same after a restart.
fn owner(file: Option<&Path>) -> io::Result<String> {
    let known = file.map(std::fs::read_to_string).transpose();
    match known {
        Ok(Some(owner)) if !owner.trim().is_empty() => return Ok(owner.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let owner = hex::encode(random_bytes::<16>());
    if let Some(file) = file {
        if let Some(parent) = file.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file);
        written.and_then(|mut file: File| io::Write::write_all(&mut file, owner.as_bytes()))?;
    }
    Ok(owner)
}
