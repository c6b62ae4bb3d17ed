//! Properties that apply to any bytes of a peer. `fuzz/` calls this function with generated input,
//! the tests with the files in `tests/corpus`.

use transport::proxy_protocol::{MAX_HEADER, ParsedHeader, parse, write_v1, write_v2};

/// The start of a connection: no header is longer than its limit, more bytes do not change a
/// result, and a parsed header equals a written one.
pub(crate) fn proxy_protocol(bytes: &[u8]) {
    let whole = parse(bytes);
    let first = (0..=bytes.len())
        .map(|len| parse(&bytes[..len]))
        .find(|verdict| *verdict != ParsedHeader::Partial);
    assert_eq!(first.unwrap_or(ParsedHeader::Partial), whole);
    assert!(whole != ParsedHeader::Partial || bytes.len() < MAX_HEADER);
    let ParsedHeader::Header { source, len } = whole else {
        return;
    };
    assert!(len <= MAX_HEADER && len <= bytes.len());
    let Some(source) = source else { return };
    for write in [write_v1, write_v2] {
        let mut written = Vec::new();
        write(Some(source), source, &mut written);
        let len = written.len();
        let source = Some(source);
        assert_eq!(parse(&written), ParsedHeader::Header { source, len });
    }
}
