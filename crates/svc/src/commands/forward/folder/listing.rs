//! The directory listing of a folder without an index.

use std::{
    fs::{self, DirEntry},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use jiff::{Timestamp, tz::TimeZone};
use percent_encoding::percent_decode_str;

use super::path_lookup::{FolderRoot, encoded};

/// Template data of a listing.
#[derive(Template)]
#[template(path = "folder.html")]
struct Page {
    title: String,
    is_root: bool,
    entries: Vec<Entry>,
    more: bool,
}

struct Entry {
    href: String,
    name: String,
    is_folder: bool,
    size: String,
    changed: String,
}

#[derive(Template)]
#[template(path = "folder-nothing.html")]
struct EmptyTemplate;

/// Renders the listing of a folder whose URL path is `at`. Reads the file system.
pub(super) fn page(path: &Path, at: &str, place: &FolderRoot) -> Response {
    let title = percent_decode_str(at).decode_utf8_lossy().into_owned();
    let read = read_entries(path, place);
    let Ok((entries, more)) = read else {
        return not_found();
    };
    let page = Page {
        title,
        is_root: at == "/",
        entries,
        more,
    };
    html(StatusCode::OK, page.render())
}

/// Response for a missing file.
pub(super) fn not_found() -> Response {
    html(StatusCode::NOT_FOUND, EmptyTemplate.render())
}

fn html(status: StatusCode, page: askama::Result<String>) -> Response {
    let Ok(page) = page else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut response = (status, Html(page)).into_response();
    let policy = HeaderValue::from_static(POLICY);
    response
        .headers_mut()
        .insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// Reads the visible entries, folders first. The flag is true if there are more than the limit.
fn read_entries(path: &Path, place: &FolderRoot) -> std::io::Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    let mut more = false;
    for entry in fs::read_dir(path)?.flatten() {
        if entries.len() == MAX_ENTRIES {
            more = true;
            break;
        }
        if place.is_visible(&entry.path())
            && let Some(entry) = Entry::of(&entry)
        {
            entries.push(entry);
        }
    }
    entries.sort_by_key(|entry| (!entry.is_folder, entry.name.to_lowercase()));
    Ok((entries, more))
}

impl Entry {
    fn of(entry: &DirEntry) -> Option<Self> {
        // Metadata of a link's target. The caller has checked that the target may be seen.
        let about = fs::metadata(entry.path()).ok()?;
        if !about.is_dir() && !about.is_file() {
            return None;
        }
        let name = entry.file_name();
        let slash = if about.is_dir() { "/" } else { "" };
        let changed = about
            .modified()
            .ok()
            .and_then(|at| Timestamp::try_from(at).ok());
        Some(Self {
            href: format!("{}{slash}", encoded(name.as_bytes())),
            name: format!("{}{slash}", name.to_string_lossy()),
            is_folder: about.is_dir(),
            size: if about.is_dir() {
                String::new()
            } else {
                size(about.len())
            },
            changed: changed.map_or_else(String::new, |at| {
                let at = at.to_zoned(TimeZone::system());
                at.strftime("%Y-%m-%d %H:%M").to_string()
            }),
        })
    }
}

/// Formats a size for readers.
fn size(bytes: u64) -> String {
    let mut shown = bytes;
    for unit in ["B", "kB", "MB", "GB"] {
        if shown < 10_000 {
            return format!("{shown} {unit}");
        }
        shown /= 1_000;
    }
    format!("{shown} TB")
}

/// Limit of the entries in a listing. Users do not read a longer page.
const MAX_ENTRIES: usize = 5_000;

/// The page has inline styles and links, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
