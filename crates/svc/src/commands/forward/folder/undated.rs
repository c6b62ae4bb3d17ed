//! Files whose date HTTP cannot represent: before 1970 or after 9999. They are sent whole and
//! without a date, because the library does not support them.

use std::{fs, path::Path, time::SystemTime};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header};
use tokio::{fs::File, io::AsyncReadExt as _};
use tokio_util::io::ReaderStream;

/// True if the date of a file cannot be represented. Reads the file system.
pub(super) fn is_undated(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| {
        let since = modified.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(true, |since| since.as_secs() >= YEAR_10000)
    })
}

/// Sends such a file.
pub(super) async fn send(path: &Path, method: &Method) -> Response {
    // The file may have been removed since, or may be unreadable.
    let Ok(file) = File::open(path).await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(metadata) = file.metadata().await else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let length = metadata.len();
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let head = [
        (header::CONTENT_TYPE, kind.to_string()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        // Data that is appended meanwhile is beyond the announced length.
        Body::from_stream(ReaderStream::with_capacity(file.take(length), CHUNK))
    };
    (head, body).into_response()
}

/// The first second of the year 10000.
const YEAR_10000: u64 = 253_402_300_800;

/// Read size of the library.
const CHUNK: usize = 64 * 1024;
