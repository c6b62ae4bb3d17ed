//! Properties that hold for any bytes of a platform, and for a damaged state file. `fuzz/` feeds
//! these functions with generated input, the tests with the inputs kept in `tests/corpus`.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use link::{LinkEvent, Reader, State};

/// The stream of a platform has the same result for any split. The first byte is set if the engine
/// has a state already, the second is the size of the pieces.
pub(crate) fn link_stream(data: &[u8]) {
    let [grounded, size, bytes @ ..] = data else {
        return;
    };
    let grounded = grounded % 2 == 1;
    let whole = steps(grounded, std::iter::once(bytes));
    let cut = steps(grounded, bytes.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, cut);
}

fn steps<'p>(grounded: bool, pieces: impl Iterator<Item = &'p [u8]>) -> (Vec<LinkEvent>, bool) {
    let mut reader = Reader::new(grounded);
    let mut steps = Vec::new();
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(step)) => steps.push(step),
                Ok(None) => break,
                Err(_) => return (steps, true),
            }
        }
    }
    (steps, false)
}

/// The state file of an engine: writing the parsed state results in the same file. The first byte
/// is set to correct the checksum first, so that the rest of the parser is reached. The second is
/// the announced number of items.
pub(crate) fn link_state(data: &[u8]) {
    let [repair, items, bytes @ ..] = data else {
        return;
    };
    let mut file = bytes.to_vec();
    if repair % 2 == 1 {
        file.push(b'\n');
        let sum = hex(digest(&SHA256, &file).as_ref());
        file.extend(format!("{{\"items\":{items},\"sha256\":\"{sum}\"}}\n").into_bytes());
    }
    if let Ok(state) = State::from_file(&file, ADDRESS) {
        let written = state.to_file(ADDRESS);
        assert_eq!(State::from_file(&written, ADDRESS).unwrap(), state);
    }
}

const ADDRESS: &str = "https://platform.example/";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
