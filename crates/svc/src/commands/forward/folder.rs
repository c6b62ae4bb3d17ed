//! A folder as a service: its files over HTTP, for the agent alone.
//!
//! It listens on a Unix socket in a directory that only this user may enter, so that nobody else
//! on the machine gets around what the tunnel asks of visitors. What lies outside of the folder
//! is not served, wherever links point, and names with a dot in front only when asked for.

mod listing;
mod place;
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
use tokio::{net::UnixListener, runtime::Handle, task::AbortHandle};
use tower::ServiceExt;
use tower_http::services::ServeFile;

use self::place::{PathTarget, Place};
use crate::{failure::Failure, private, random};

/// What of a folder is served, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Names with a dot in front too.
    pub(crate) hidden: bool,
    /// `index.html` of the folder for paths that name no file, as applications with routes of their
    /// own in the browser want it.
    pub(crate) spa: bool,
}

/// A folder that is being served; dropped, it is not.
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
            Failure::of(
                &format!("the folder {} cannot be served", folder.display()),
                error,
            )
        };
        let place = Place::new(folder, options.hidden).map_err(|error| {
            let folder = folder.display();
            Failure::usage(format!("the folder {folder} cannot be served: {error}"))
        })?;
        let name = format!("svc-{}", random::hex::<8>()?);
        let directory = std::env::temp_dir().join(name);
        // Nobody else may enter it.
        private::create_dir(&directory).map_err(named)?;
        let socket = directory.join(SOCKET);
        let _entered = runtime.enter();
        let listener = UnixListener::bind(socket).map_err(named)?;
        let files = Arc::new(Files {
            place,
            spa: options.spa,
        });
        let router = Router::new().fallback(answer).with_state(files);
        let serving = runtime.spawn(async move {
            // It ends with the program, and not before.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            directory,
            task: serving.abort_handle(),
        })
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.task.abort();
        // What is left lies in the directory for temporary files.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// What the handler knows.
struct Files {
    place: Place,
    spa: bool,
}

/// What is sent.
enum Answer {
    /// As much of this file as is asked for.
    File(PathBuf),
    /// The whole of this one.
    Undated(PathBuf),
    Whole(Response),
}

/// Answers a request for a file, or for the list of a folder's files.
async fn answer(State(files): State<Arc<Files>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let allow = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allow).into_response();
    }
    let uri = request.uri().clone();
    // The file system may be slow.
    let looked = tokio::task::spawn_blocking(move || match files.find(uri.path()) {
        PathTarget::File(path) if undated::is_undated(&path) => Answer::Undated(path),
        PathTarget::File(path) => Answer::File(path),
        PathTarget::Folder { path, at } => Answer::Whole(listing::page(&path, &at, &files.place)),
        PathTarget::Moved(path) => Answer::Whole(moved(&path, uri.query())),
        PathTarget::Nothing => Answer::Whole(listing::not_found()),
    });
    let mut response = match looked.await {
        Ok(Answer::File(path)) => file(&path, request).await,
        Ok(Answer::Undated(path)) => {
            let mut response = undated::send(&path, request.method()).await;
            say_encoding(response.headers_mut());
            response
        }
        Ok(Answer::Whole(response)) => response,
        Err(_stopped) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    // People look at what they have just changed; an unchanged file is not sent again.
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
        let found = self.place.find(path);
        let is_route = !path.rsplit('/').next().unwrap_or_default().contains('.');
        match found {
            PathTarget::Nothing | PathTarget::Folder { .. } if self.spa && is_route => {
                match self.place.find("/index.html") {
                    PathTarget::Nothing => found,
                    index => index,
                }
            }
            found => found,
        }
    }
}

/// Ranges, conditions and the type are the library's part, once what it reads otherwise than
/// RFC 9110 is taken away.
async fn file(path: &Path, mut request: Request) -> Response {
    if !asks_for_a_part(&request) {
        request.headers_mut().remove(header::RANGE);
    }
    let seen = request.headers_mut().remove(header::IF_MODIFIED_SINCE);
    let Ok(mut response) = ServeFile::new(path).oneshot(request).await;
    let changed = response.headers().get(header::LAST_MODIFIED);
    // The same date, not a later one: what is put in the place of a file may be older than it.
    if response.status().is_success()
        && let Some(changed) = changed.filter(|changed| seen.as_ref() == Some(*changed))
    {
        let changed = [(header::LAST_MODIFIED, changed.clone())];
        return (StatusCode::NOT_MODIFIED, changed).into_response();
    }
    say_encoding(response.headers_mut());
    response.map(Body::new)
}

/// Whether a `GET` wants one range of bytes, of whatever the file is now. Who wants several, or the
/// rest of a version seen before (`If-Range`), gets the whole file: RFC 9110 section 14.2 lets a
/// server ignore any range, and a date that tells versions apart by the second is no proof of one.
fn asks_for_a_part(request: &Request) -> bool {
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

/// Text is UTF-8 today; a browser that is not told takes it for something older.
fn say_encoding(headers: &mut HeaderMap) {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return;
    };
    let Ok(kind) = kind.to_str() else { return };
    if kind.starts_with("text/") && !kind.contains(';') {
        let told = format!("{kind}; charset=utf-8");
        if let Ok(told) = HeaderValue::from_str(&told) {
            headers.insert(header::CONTENT_TYPE, told);
        }
    }
}

/// A folder's address ends with a slash, so that what is relative in its page is found.
fn moved(path: &str, query: Option<&str>) -> Response {
    let location = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let location = [(header::LOCATION, location)];
    (StatusCode::TEMPORARY_REDIRECT, location).into_response()
}

/// The name of the socket.
const SOCKET: &str = "http";
