use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::targets;

/// The kept inputs of a target. A target without inputs is a mistake in this test.
fn kept(target: &str) -> Vec<Vec<u8>> {
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

/// A kept input with pieces of itself and of its kind put in at other places.
fn altered(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let inputs = kept(target);
    let pieces = [
        "%2e",
        "%25",
        "..",
        "/",
        ";",
        "&",
        "=",
        "svc.token",
        "@",
        "+",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        "1",
        "\\u0061",
        "\n",
    ];
    let edit = (
        any::<Index>(),
        0_usize..4,
        prop::sample::select(pieces.to_vec()),
    );
    (any::<Index>(), prop::collection::vec(edit, 0..6)).prop_map(move |(chosen, edits)| {
        let mut input = chosen.get(&inputs).clone();
        for (place, cut, piece) in edits {
            let start = place.index(input.len() + 1);
            let end = (start + cut).min(input.len());
            input.splice(start..end, piece.bytes());
        }
        input
    })
}

macro_rules! replay {
    ($($target:ident $altered:ident)*) => {
        $(#[test]
        fn $target() {
            for input in kept(stringify!($target)) {
                targets::$target(&input);
            }
        })*

        proptest! {
            $(#[test]
            fn $altered(input in altered(stringify!($target))) {
                targets::$target(&input);
            })*
        }
    };
}

replay! {
    params params_altered
    boundary boundary_altered
    query_credential query_credential_altered
    path path_altered
    form form_altered
    callback callback_altered
}
