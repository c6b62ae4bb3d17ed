//! What must hold for any bytes of a peer. `fuzz/` feeds this function with what it invents, the
//! tests with what is kept in `tests/corpus`.

use transport::proxy_protocol::{MAX_HEADER, Parsed, parse, write_v1, write_v2};

/// The beginning of a connection: no header beyond its bound, no verdict that more bytes would
/// change, and what is read is what would be written.
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let whole = parse(bytes);
    let first = (0..=bytes.len())
        .map(|len| parse(&bytes[..len]))
        .find(|verdict| *verdict != Parsed::Partial);
    assert_eq!(first.unwrap_or(Parsed::Partial), whole);
    assert!(whole != Parsed::Partial || bytes.len() < MAX_HEADER);
    let Parsed::Header { source, len } = whole else {
        return;
    };
    assert!(len <= MAX_HEADER && len <= bytes.len());
    let Some(source) = source else { return };
    for write in [write_v1, write_v2] {
        let mut written = Vec::new();
        write(Some(source), source, &mut written);
        let len = written.len();
        let source = Some(source);
        assert_eq!(parse(&written), Parsed::Header { source, len });
    }
}
