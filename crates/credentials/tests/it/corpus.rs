use std::path::Path;

use crate::targets;

/// Feeds every kept input to its target. No inputs would be a mistake in this test.
#[test]
fn token() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/token");
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        targets::token(&std::fs::read(&file).unwrap());
    }
}
