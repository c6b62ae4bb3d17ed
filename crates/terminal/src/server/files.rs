//! Files of a terminal server: a folder over WebDAV, below `/fs`.
//!
//! The files are read and written as the account of this program, so its permissions inside the
//! folder apply. Links out of the folder are not followed. A user that can create links in the
//! folder during an access already has the permissions of that account.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use dav_server::davpath::DavPath;
use dav_server::fakels::FakeLs;
use dav_server::fs::{
    DavDirEntry, DavFile, DavFileSystem, DavMetaData, FsError, FsFuture, FsResult, FsStream,
    OpenOptions, ReadDirMeta,
};
use dav_server::localfs::LocalFs;
use dav_server::{DavHandler, DavMethod, DavMethodSet};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::http::{Body, text};
use crate::inventory::FILES_PATH;

/// A folder that is served.
pub struct Files {
    handler: DavHandler,
    read_only: bool,
    max_upload: u64,
}

/// Reasons for which a folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The folder does not exist, or cannot be entered.
    #[error("{0}: {1}")]
    Root(PathBuf, #[source] io::Error),
    /// The path is not a folder.
    #[error("{0} is not a folder")]
    NoFolder(PathBuf),
}

impl Files {
    /// Serves a folder; an upload may have at most `max_upload` bytes.
    ///
    /// # Errors
    /// The path cannot be entered, or is not a folder.
    pub fn new(root: &Path, read_only: bool, max_upload: u64) -> Result<Self, FilesError> {
        let unfit = |error| FilesError::Root(root.to_owned(), error);
        let folder = root.canonicalize().map_err(unfit)?;
        if !std::fs::metadata(&folder).map_err(unfit)?.is_dir() {
            return Err(FilesError::NoFolder(root.to_owned()));
        }
        let files = ConfinedFolder {
            local: LocalFs::new(&folder, false, false, false),
            root: folder,
        };
        let mut methods = if read_only {
            DavMethodSet::WEBDAV_RO
        } else {
            DavMethodSet::WEBDAV_RW
        };
        // A partial write can start anywhere in a file, so its length does not limit the size of
        // the file.
        methods.remove(DavMethod::Patch);
        let handler = DavHandler::builder()
            .strip_prefix(FILES_PATH)
            .filesystem(Box::new(files))
            // This lock system stores nothing, so clients cannot exhaust its memory.
            .locksystem(FakeLs::new())
            .methods(methods)
            .hide_symlinks(true)
            .build_handler();
        Ok(Self {
            handler,
            read_only,
            max_upload,
        })
    }

    /// True if files cannot be changed.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(refused) = self.refuse(&request) {
            discard(request.into_body()).await;
            return refused;
        }
        let response = self.handler.handle(request).await;
        response.map(BodyExt::boxed_unsync)
    }

    fn refuse(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let (status, why) = match *request.method() {
            _ if self.read_only && !is_reading(request.method()) => {
                (StatusCode::FORBIDDEN, "the files are read-only")
            }
            // The size of a response with a whole tree is unlimited (RFC 4918 section 9.1 permits
            // to refuse it).
            _ if request.method().as_str() == "PROPFIND" && !is_shallow(request) => {
                (StatusCode::FORBIDDEN, "only a depth of 0 or 1 is supported")
            }
            // The size is checked before the existing file is truncated.
            Method::PUT if request.headers().contains_key(header::CONTENT_RANGE) => (
                StatusCode::BAD_REQUEST,
                "a file must be written whole, not in parts",
            ),
            Method::PUT => match request.body().size_hint().exact() {
                None => (StatusCode::LENGTH_REQUIRED, "the length is required"),
                Some(len) if len > self.max_upload => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "the file is too large")
                }
                Some(_) => return None,
            },
            _ => return None,
        };
        Some(text(status, why))
    }
}

/// True if a path is one of the files.
pub(super) fn serves(path: &str) -> bool {
    path.strip_prefix(FILES_PATH)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// Reads an unwanted body for a while. Closing a connection with unread data resets it, and the
/// client may lose the response.
async fn discard(body: Incoming) {
    let mut body = Limited::new(body, MAX_DISCARDED);
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    timeout(DISCARD_TIMEOUT, reading).await.ok();
}

/// Maximum bytes of a refused body that are read: most files, and no more than a second of a fast
/// connection.
const MAX_DISCARDED: usize = 16 * 1024 * 1024;

/// Maximum time for reading them.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

fn is_shallow(request: &Request<Incoming>) -> bool {
    let depth = request.headers().get("depth");
    depth.is_some_and(|depth| matches!(depth.as_bytes(), b"0" | b"1"))
}

fn is_reading(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND")
}

/// The files of a folder, without targets of links that are outside it.
#[derive(Clone)]
struct ConfinedFolder {
    local: Box<LocalFs>,
    root: PathBuf,
}

impl ConfinedFolder {
    /// Checks that the existing or future target of a path is in the folder.
    async fn check(&self, path: &DavPath) -> FsResult<()> {
        let (root, path) = (self.root.clone(), self.path(path));
        blocking(move || {
            if std::fs::symlink_metadata(&path).is_err() {
                return is_inside(&root, path.parent().unwrap_or(&root));
            }
            is_inside(&root, &path)?;
            let kind = std::fs::metadata(&path)?.file_type();
            // Opening a pipe or a device may block, or have side effects.
            if kind.is_file() || kind.is_dir() {
                Ok(())
            } else {
                Err(FsError::Forbidden)
            }
        })
        .await
    }

    /// The same check for operations on the name itself, not on its target.
    async fn check_name(&self, path: &DavPath) -> FsResult<()> {
        let (root, path) = (self.root.clone(), self.path(path));
        blocking(move || match path.parent() {
            Some(parent) if path != root => is_inside(&root, parent),
            _ => Err(FsError::Forbidden),
        })
        .await
    }

    fn path(&self, path: &DavPath) -> PathBuf {
        self.root.join(path.as_rel_ospath())
    }
}

fn is_inside(root: &Path, path: &Path) -> FsResult<()> {
    if path.canonicalize()?.starts_with(root) {
        Ok(())
    } else {
        Err(FsError::Forbidden)
    }
}

async fn blocking(work: impl FnOnce() -> FsResult<()> + Send + 'static) -> FsResult<()> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(FsError::GeneralFailure))
}

impl DavFileSystem for ConfinedFolder {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(async move {
            self.check(path).await?;
            self.local.open(path, options).await
        })
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(async move {
            self.check(path).await?;
            self.local.read_dir(path, meta).await
        })
    }

    fn metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            self.check(path).await?;
            self.local.metadata(path).await
        })
    }

    fn symlink_metadata<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            self.check(path).await?;
            self.local.symlink_metadata(path).await
        })
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        Box::pin(async move {
            self.check_name(path).await?;
            self.local.create_dir(path).await
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        Box::pin(async move {
            self.check_name(path).await?;
            self.local.remove_dir(path).await
        })
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath) -> FsFuture<'a, ()> {
        Box::pin(async move {
            self.check_name(path).await?;
            self.local.remove_file(path).await
        })
    }

    fn rename<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        Box::pin(async move {
            self.check_name(from).await?;
            self.check_name(to).await?;
            self.local.rename(from, to).await
        })
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath) -> FsFuture<'a, ()> {
        Box::pin(async move {
            self.check(from).await?;
            self.check(to).await?;
            self.local.copy(from, to).await
        })
    }

    fn have_props<'a>(
        &'a self,
        path: &'a DavPath,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        self.local.have_props(path)
    }

    fn get_quota(&'_ self) -> FsFuture<'_, (u64, Option<u64>)> {
        self.local.get_quota()
    }
}
