//! Serves the files of a folder over HTTP, only to the agent.
//!
//! The server listens on a Unix socket in a directory that only this user may enter, so that no
//! other user of the machine can bypass the tunnel's access rules. Files outside of the folder are
//! never served, even through links. Names that start with a dot are served only on request.

mod listing;
mod path_lookup;
#[cfg(test)]
mod tests;
mod undated;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use terminal::private;
use tokio::{net::UnixListener, runtime::Handle, task::AbortHandle};
use tower::ServiceExt;
use tower_http::services::ServeFile;

use self::path_lookup::{FolderRoot, PathTarget};
use crate::failure::Failure;
use crate::process::random;

/// Options for serving a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Also serve names that start with a dot.
    pub(crate) hidden: bool,
    /// Serve `index.html` of the folder for paths without a file, as single-page applications with
    /// client-side routes require.
    pub(crate) spa: bool,
}

/// A folder that is being served. Dropping it stops the server.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: PathBuf,
    task: AbortHandle,
}

impl Folder {
    /// Serves `folder` on a task of `runtime`.
    pub(crate) fn serve(
        folder: &Path,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, Failure> {
        let named = |error: io::Error| {
            Failure::from_error(
                &format!("the folder {} cannot be served", folder.display()),
                error,
            )
        };
        let root = FolderRoot::new(folder, options.hidden).map_err(|error| {
            let folder = folder.display();
            Failure::usage(format!("the folder {folder} cannot be served: {error}"))
        })?;
        let name = format!("svc-{}", random::hex::<8>()?);
        let directory = std::env::temp_dir().join(name);
        // No other user may enter the directory.
        private::create_dir(&directory).map_err(named)?;
        let socket = directory.join(SOCKET);
        let _entered = runtime.enter();
        let listener = UnixListener::bind(socket).map_err(named)?;
        let files = Arc::new(Files {
            root,
            spa: options.spa,
        });
        let router = Router::new().fallback(answer).with_state(files);
        let serving = runtime.spawn(async move {
            // The server runs until the end of the program.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            directory,
            task: serving.abort_handle(),
        })
    }

    /// Path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.task.abort();
        // Leftover files are in the directory for temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// State of the request handler.
struct Files {
    root: FolderRoot,
    spa: bool,
}

/// The response to a request.
enum FolderResponse {
    /// The requested part of this file.
    File(PathBuf),
    /// This complete file.
    Undated(PathBuf),
    Complete(Response),
}

/// Responds with a file or a directory listing.
async fn answer(State(files): State<Arc<Files>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allow).into_response();
    }
    let uri = request.uri().clone();
    // The file system may be slow.
    let found = tokio::task::spawn_blocking(move || match files.find(uri.path()) {
        PathTarget::File(path) if undated::is_undated(&path) => FolderResponse::Undated(path),
        PathTarget::File(path) => FolderResponse::File(path),
        PathTarget::Folder { path, at } => {
            FolderResponse::Complete(listing::page(&path, &at, &files.root))
        }
        PathTarget::Moved(path) => FolderResponse::Complete(redirect_to_folder(&path, uri.query())),
        PathTarget::NotFound => FolderResponse::Complete(listing::not_found()),
    });
    let mut response = match found.await {
        Ok(FolderResponse::File(path)) => file(&path, request).await,
        Ok(FolderResponse::Undated(path)) => {
            let mut response = undated::send(&path, request.method()).await;
            set_charset(response.headers_mut());
            response
        }
        Ok(FolderResponse::Complete(response)) => response,
        Err(_stopped) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    // Users open files that they have just changed. An unchanged file is not sent again.
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

impl Files {
    fn find(&self, path: &str) -> PathTarget {
        let found = self.root.find(path);
        let is_route = !path.rsplit('/').next().unwrap_or_default().contains('.');
        match found {
            PathTarget::NotFound | PathTarget::Folder { .. } if self.spa && is_route => {
                match self.root.find("/index.html") {
                    PathTarget::NotFound => found,
                    index => index,
                }
            }
            found => found,
        }
    }
}

/// The library handles ranges, conditional requests and the content type. Request headers that it
/// interprets differently from RFC 9110 are removed first.
async fn file(path: &Path, mut request: Request) -> Response {
    if !is_single_range_request(&request) {
        request.headers_mut().remove(header::RANGE);
    }
    let since = request.headers_mut().remove(header::IF_MODIFIED_SINCE);
    let Ok(mut response) = ServeFile::new(path).oneshot(request).await;
    let changed = response.headers().get(header::LAST_MODIFIED);
    // An unchanged file has exactly the same date. A replacement may have an older date, so a
    // comparison with "not later" would miss it.
    if response.status().is_success()
        && let Some(changed) = changed.filter(|changed| since.as_ref() == Some(*changed))
    {
        let changed = [(header::LAST_MODIFIED, changed.clone())];
        return (StatusCode::NOT_MODIFIED, changed).into_response();
    }
    set_charset(response.headers_mut());
    response.map(Body::new)
}

/// True if a `GET` requests a single range of bytes, regardless of the file's version. A request
/// for several ranges, or with `If-Range`, gets the whole file: RFC 9110 section 14.2 allows a
/// server to ignore any range, and a date with a resolution of one second cannot identify a
/// version.
fn is_single_range_request(request: &Request) -> bool {
    let headers = request.headers();
    let mut ranges = headers.get_all(header::RANGE).iter();
    let is_one = match (ranges.next(), ranges.next()) {
        (Some(range), None) => {
            range.as_bytes().starts_with(b"bytes=") && !range.as_bytes().contains(&b',')
        }
        _ => false,
    };
    is_one && request.method() == Method::GET && !headers.contains_key(header::IF_RANGE)
}

/// Text is UTF-8 today. Without this parameter, browsers assume an older encoding.
fn set_charset(headers: &mut HeaderMap) {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return;
    };
    let Ok(kind) = kind.to_str() else { return };
    if kind.starts_with("text/") && !kind.contains(';') {
        let content_type = format!("{kind}; charset=utf-8");
        if let Ok(content_type) = HeaderValue::from_str(&content_type) {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
    }
}

/// Redirects to the folder's path with a final slash, so that relative links in its page work.
fn redirect_to_folder(path: &str, query: Option<&str>) -> Response {
    let location = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let location = [(header::LOCATION, location)];
    (StatusCode::TEMPORARY_REDIRECT, location).into_response()
}

/// File name of the socket.
const SOCKET: &str = "http";
