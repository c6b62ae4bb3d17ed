//! The kept inputs of the fuzz targets, for the tests that feed them to the same functions: they
//! run with stable Rust and every `cargo test`, where the fuzzer needs nightly and time.
//!
//! A crate with targets has them in `tests/fuzz_targets/mod.rs` and their inputs in
//! `tests/corpus/<target>/`; its tests take this file in by path.

use std::path::Path;

/// Feeds every kept input of a target to its function.
pub(crate) fn replay(target: &str, check: impl Fn(&[u8])) {
    for input in kept(target) {
        check(&input);
    }
}

/// The kept inputs of a target. A target without inputs is a mistake in the test.
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
