//! What must hold for any bytes of a visitor or a service. `fuzz/` feeds this function with what
//! it invents, the tests with what is kept in `tests/corpus`.

use client::tap::Visit;
use inspector::{Inspector, RecordingMode, limits};

/// A stream: pieces, each with a byte before it of which the highest bit says who sent it, and the
/// others how long it is, in steps of four. Whatever it is, the limits hold, and the archive of it
/// can be written; and single bytes give as many exchanges, with the same statuses.
pub(crate) fn inspector_stream(bytes: &[u8]) {
    let at_once = follow(bytes, usize::MAX);
    let one_by_one = follow(bytes, 1);
    assert_eq!(told(&at_once), told(&one_by_one));
    let archive = at_once.har("0", true);
    assert!(archive.starts_with('{') && at_once.har("0", false).ends_with('}'));
    let list = at_once.subscribe().list();
    assert!(list.len() <= limits::MAX_EXCHANGES);
    assert!(list.iter().all(|summary| summary.took.is_some()));
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

/// A body that is malformed is given up at once, however much of it could have been read.
fn told(inspector: &Inspector) -> Vec<(String, Option<u16>)> {
    let list = inspector.subscribe().list();
    let told = list.iter().map(|one| (one.path.to_string(), one.status));
    told.collect()
}
