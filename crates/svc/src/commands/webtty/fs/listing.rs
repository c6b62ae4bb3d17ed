//! The entries of a directory, from a PROPFIND response (RFC 4918 section 9.1).

use http::StatusCode;
use jiff::{Timestamp, fmt::rfc2822};
use percent_encoding::percent_decode_str;
use quick_xml::{Reader, events::Event};
use serde::Serialize;

use super::dav::{self, Files};
use crate::{
    failure::{Code, Failure},
    output::plain,
};

/// An entry of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// Its name, without its directory.
    pub(super) name: String,
    /// `file` or `directory`.
    pub(super) kind: &'static str,
    /// Size in bytes. Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    /// Modification time (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<String>,
    #[serde(skip)]
    path: String,
}

impl Entry {
    /// The table cells of the entry.
    pub(super) fn row(&self) -> Vec<String> {
        let slash = if self.kind == DIRECTORY { "/" } else { "" };
        let size = self.size.map_or("-".to_owned(), |size| size.to_string());
        let modified = self.modified.clone().unwrap_or_else(|| "-".to_owned());
        vec![format!("{}{slash}", self.name), size, modified]
    }
}

/// The entries of a directory by name, or the entry of a file.
pub(super) async fn list(files: &Files, path: &str) -> Result<Vec<Entry>, Failure> {
    let mut entries = ask(files, path, "1").await?;
    let own = decoded(&files.path(path));
    let own = own.trim_end_matches('/');
    entries.retain(|entry| entry.kind != DIRECTORY || entry.path.trim_end_matches('/') != own);
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// True if the path is a directory.
pub(super) async fn is_directory(files: &Files, path: &str) -> Result<bool, Failure> {
    let entries = ask(files, path, "0").await?;
    Ok(entries.first().is_some_and(|entry| entry.kind == DIRECTORY))
}

async fn ask(files: &Files, path: &str, depth: &str) -> Result<Vec<Entry>, Failure> {
    let headers = [("depth", depth.to_owned())];
    let answer = files
        .send_request("PROPFIND", path, dav::empty(), &headers)
        .await?;
    let answer = answer.require_status(&[StatusCode::MULTI_STATUS])?;
    read(&answer.text().await?)
}

/// Parses the response. The server chooses the namespace prefixes, so they are ignored. Unrequested
/// properties are ignored as well.
fn read(xml: &str) -> Result<Vec<Entry>, Failure> {
    let mut reader = Reader::from_str(xml);
    let mut entries = Vec::new();
    let mut entry: Option<Entry> = None;
    let mut text = String::new();
    loop {
        let event = reader.read_event().map_err(|error| {
            let why = plain(&error.to_string());
            Failure::new(Code::Failed, format!("the list cannot be read: {why}"))
                .named("webtty_files")
        })?;
        match event {
            Event::Start(start) | Event::Empty(start) => {
                text.clear();
                match (start.local_name().as_ref(), &mut entry) {
                    (b"response", _) => {
                        entry = Some(Entry {
                            kind: "file",
                            ..Entry::default()
                        });
                    }
                    (b"collection", Some(entry)) => entry.kind = DIRECTORY,
                    _ => {}
                }
            }
            Event::Text(piece) => text.push_str(&piece.decode().unwrap_or_default()),
            Event::GeneralRef(name) => match &*name {
                b"amp" => text.push('&'),
                b"lt" => text.push('<'),
                b"gt" => text.push('>'),
                b"apos" => text.push('\''),
                b"quot" => text.push('"'),
                _ => text.extend(name.resolve_char_ref().ok().flatten()),
            },
            Event::End(end) => {
                let text = std::mem::take(&mut text);
                match (end.local_name().as_ref(), &mut entry) {
                    (b"href", Some(entry)) => {
                        entry.path = decoded(text.trim());
                        let name = entry.path.trim_end_matches('/').rsplit('/').next();
                        entry.name = name.unwrap_or_default().to_owned();
                    }
                    (b"getcontentlength", Some(entry)) => entry.size = text.trim().parse().ok(),
                    (b"getlastmodified", Some(entry)) => entry.modified = time(text.trim()),
                    (b"response", known) => entries.extend(known.take().map(|entry| Entry {
                        size: entry.size.filter(|_| entry.kind != DIRECTORY),
                        ..entry
                    })),
                    _ => {}
                }
            }
            Event::Eof => return Ok(entries),
            _ => {}
        }
    }
}

fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Converts an HTTP date (RFC 9110 section 5.6.7) to RFC 3339.
fn time(text: &str) -> Option<String> {
    let zoned = rfc2822::parse(text).ok()?;
    Some(Timestamp::to_string(&zoned.timestamp()))
}

const DIRECTORY: &str = "directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_parsed_with_any_prefix() {
        let xml = r#"<?xml version="1.0" encoding="utf-8"?>
            <D:multistatus xmlns:D="DAV:">
              <D:response><D:href>/fs/logs/</D:href><D:propstat><D:prop>
                <D:resourcetype><D:collection/></D:resourcetype>
                <D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>
              </D:prop></D:propstat></D:response>
              <D:response><D:href>/fs/logs/a%20b&amp;c.txt</D:href><D:propstat><D:prop>
                <D:resourcetype></D:resourcetype><D:getcontentlength>12</D:getcontentlength>
              </D:prop></D:propstat></D:response>
            </D:multistatus>"#;
        let entries = read(xml).unwrap();
        assert_eq!(
            serde_json::to_value(&entries).unwrap(),
            serde_json::json!([
                {"name": "logs", "kind": "directory", "modified": "1994-11-06T08:49:37Z"},
                {"name": "a b&c.txt", "kind": "file", "size": 12},
            ])
        );
        assert_eq!(entries[1].row(), ["a b&c.txt", "12", "-"]);
        assert!(read("<a><b></a>").is_err());
    }

    #[test]
    fn invalid_responses_are_refused() {
        let failure = read("<a\u{1b}]0;title\u{7}></b>").unwrap_err();
        let told = failure.message();
        assert!(told.contains("title") && told == plain(told), "{told:?}");
    }
}
