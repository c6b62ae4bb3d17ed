use proptest::prelude::*;
use proptest::sample::Index;

use crate::replay::{kept, replay};
use crate::targets;

/// A stored input with pieces of itself and of similar inputs inserted.
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

macro_rules! each {
    ($($target:ident $altered:ident)*) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target), targets::$target);
        })*

        proptest! {
            $(#[test]
            fn $altered(input in altered(stringify!($target))) {
                targets::$target(&input);
            })*
        }
    };
}

each! {
    params params_altered
    boundary boundary_altered
    query_credential query_credential_altered
    path path_altered
    form form_altered
    callback callback_altered
    proxy_protocol proxy_protocol_altered
}
