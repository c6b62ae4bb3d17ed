//! Properties that hold for any bytes of a visitor or a service. `fuzz/` feeds this function with
//! generated input, the tests with the inputs kept in `tests/corpus`.

use client::tap::Visit;
use inspector::{Inspector, RecordingMode, limits};

/// A stream of pieces. The highest bit of the byte before each piece is its direction, and the
/// other bits are its length in steps of four. For every input the limits hold and its archive can
/// be written. Single bytes result in the same number of exchanges with the same statuses.
pub(crate) fn inspector_stream(bytes: &[u8]) {
    let at_once = follow(bytes, usize::MAX);
    let one_by_one = follow(bytes, 1);
    assert_eq!(told(&at_once), told(&one_by_one));
    let archive = at_once.har("0", true);
    assert!(archive.starts_with('{') && at_once.har("0", false).ends_with('}'));
    let list = at_once.subscribe().list();
    assert!(list.len() <= limits::MAX_EXCHANGES);
    assert!(list.iter().all(|summary| summary.duration.is_some()));
}

fn follow(mut bytes: &[u8], piece: usize) -> Inspector {
    let inspector = Inspector::new(RecordingMode::Always);
    let to = "localhost:1".parse().unwrap();
    let visit = Visit::new("", None);
    let mut stream = inspector.tap(to).stream(&visit).unwrap();
    while let Some((head, rest)) = bytes.split_first() {
        let length = usize::from(head & 0x7F) * 4;
        let (sent, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        for part in sent.chunks(piece) {
            if head & 0x80 == 0 {
                stream.to_service(part);
            } else {
                stream.to_visitor(part);
            }
        }
    }
    stream.ended(None);
    inspector
}

/// A malformed body is dropped immediately, however much of it could have been read.
fn told(inspector: &Inspector) -> Vec<(String, Option<u16>)> {
    let list = inspector.subscribe().list();
    let told = list.iter().map(|one| (one.path.to_string(), one.status));
    told.collect()
}
