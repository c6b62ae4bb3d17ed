//! Stored inputs of the fuzz targets, for tests that pass them to the same functions. They run with
//! stable Rust in every `cargo test`, whereas the fuzzer needs nightly and time.
//!
//! A crate with targets has them in `tests/fuzz_targets/mod.rs` and their inputs in
//! `tests/corpus/<target>/`; its tests include this file by path.

use std::path::Path;

/// Passes every stored input of a target to its function.
pub(crate) fn replay(target: &str, check: impl Fn(&[u8])) {
    for input in kept(target) {
        check(&input);
    }
}

/// The stored inputs of a target. A target without inputs is a mistake in the test.
pub(crate) fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(target);
    let files = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let inputs: Vec<_> = files.map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}
