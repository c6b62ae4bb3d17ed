use std::path::Path;

use crate::targets;

/// Feeds every kept input of a target to it. A target without inputs is a mistake in this test.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(target);
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        run(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn params() {
    replay("params", targets::params);
}

#[test]
fn boundary() {
    replay("boundary", targets::boundary);
}

#[test]
fn query_credential() {
    replay("query_credential", targets::query_credential);
}

#[test]
fn path() {
    replay("path", targets::path);
}
