//! The link protocol of earlier releases. This version reads and writes the lines of their
//! platforms, and the reports and state files of their engines, in the same way.
//!
//! `tests/releases/VERSION/` has the lines of a platform, a report with a record of each kind, and the
//! state file of an engine. A release adds a folder; existing files never change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use api::link::{LinkMessage, Record, Report};
use link::{LinkEvent, Reader, State};
use serde_json::Value;

/// The folder of each release.
fn releases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases");
    let entries = fs::read_dir(folder).unwrap();
    let folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!folders.is_empty());
    folders
}

/// True if this version writes at least the fields that it has read. Fields with a default may be
/// added.
fn contains(written: &Value, read: &Value) -> bool {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => read.iter().all(|(name, read)| {
            written
                .get(name)
                .is_some_and(|written| contains(written, read))
        }),
        (Value::Array(written), Value::Array(read)) => {
            let mut pairs = written.iter().zip(read);
            written.len() == read.len() && pairs.all(|(written, read)| contains(written, read))
        }
        _ => written == read,
    }
}

/// An engine of this version follows a platform of the release.
#[test]
fn lines_of_released_platforms_are_read() {
    for release in releases() {
        let stream = fs::read_to_string(release.join("platform.ndjson")).unwrap();
        let mut items = BTreeSet::new();
        for line in stream.lines() {
            let read: Value = serde_json::from_str(line).unwrap();
            let message: LinkMessage = serde_json::from_str(line).unwrap();
            let written = serde_json::to_value(&message).unwrap();
            assert!(contains(&written, &read), "{line}\nis written\n{written}");
            let inside = read["items"].as_array().into_iter().flatten();
            let inside = inside.chain(read.get("item"));
            items.extend(inside.map(|item| item["item"].as_str().unwrap().to_owned()));
        }
        assert!(items.len() >= 11, "every kind of item: {items:?}");
        let mut reader = Reader::new(false);
        reader.push(stream.as_bytes());
        let (mut snapshots, mut changes) = (0, 0);
        while let Some(step) = reader.next().unwrap() {
            match step {
                LinkEvent::Snapshot { .. } => snapshots += 1,
                LinkEvent::Change { .. } => changes += 1,
                LinkEvent::Ignored => {}
            }
        }
        assert_eq!((snapshots, changes), (1, 3));
    }
}

/// A platform of this version accepts the reports of an engine of the release.
#[test]
fn reports_of_released_engines_are_read() {
    for release in releases() {
        let text = fs::read_to_string(release.join("report.json")).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let report: Report = serde_json::from_str(&text).unwrap();
        assert!(!report.records.contains(&Record::Unknown));
        let written = serde_json::to_value(&report).unwrap();
        assert!(contains(&written, &read), "{written}");
    }
}

/// An engine of this version that starts without its platform serves the state that the release
/// saved.
#[test]
fn state_files_of_released_engines_are_read() {
    for release in releases() {
        let file = fs::read(release.join("state")).unwrap();
        let state = State::from_file(&file, "http://127.0.0.1:8445/").unwrap();
        let lines = file.split(|byte| *byte == b'\n');
        let items: Vec<Value> = lines
            .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
            .filter(|line| line.get("item").is_some())
            .collect();
        let written: Vec<Value> = state
            .items()
            .iter()
            .map(|item| serde_json::to_value(item).unwrap())
            .collect();
        assert_eq!(written.len(), items.len());
        for item in &items {
            assert!(
                written.iter().any(|written| contains(written, item)),
                "{item}"
            );
        }
    }
}
