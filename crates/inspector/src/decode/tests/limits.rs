//! Limits on the memory that one connection can use in the inspector.

use super::*;

/// Decodes an HTTP/2 connection with these header blocks, each as a request on its own stream,
/// after this settings frame of the service.
fn asked(settings: &[u8], blocks: &[Vec<u8>]) -> Store {
    let mut passing = vec![
        (Visitor, [http2::PREFACE, &h2_frame(4, 0, 0, &[])].concat()),
        (Service, h2_frame(4, 0, 0, settings)),
    ];
    for (stream, block) in (1..).step_by(2).zip(blocks) {
        // In frames of a size that every receiver accepts; the last one has END_HEADERS.
        let parts: Vec<_> = block.chunks(16 * 1024).collect();
        for (at, part) in (1..).zip(&parts) {
            let kind = if at == 1 { 1 } else { 9 };
            let flags = u8::from(at == 1) | if at == parts.len() { 4 } else { 0 };
            passing.push((Visitor, h2_frame(kind, flags, stream, part)));
        }
    }
    follow(&passing)
}

/// GET, http, /, and the host `a` as a literal.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

/// RFC 7541 section 6.3: a dynamic table size update.
fn table_of(size: u32) -> Vec<u8> {
    let mut bytes = vec![0x3f];
    let mut rest = size - 31;
    while rest >= 128 {
        bytes.push(u8::try_from(rest & 127).unwrap() | 128);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

#[test]
fn the_hpack_table_is_limited() {
    // SETTINGS_HEADER_TABLE_SIZE: a mebibyte.
    let settings = [0, 1, 0, 0x10, 0, 0];
    for (size, shown) in [(64 * 1024, 1), (64 * 1024 + 1, 0)] {
        let block = [&table_of(size)[..], GET].concat();
        let store = asked(&settings, &[block]);
        assert_eq!(store.iter().count(), shown, "{size}");
    }
}

#[test]
fn a_header_block_is_limited() {
    for (bytes, shown) in [(64 * 1024 - 1, 1), (64 * 1024, 0)] {
        // Indexed fields of the static table, each of one byte.
        let block = [GET, &vec![0x90; bytes - GET.len()]].concat();
        let store = asked(&[], &[block]);
        assert_eq!(store.iter().count(), shown, "{bytes}");
    }
}

/// An indexed field takes one byte of the block and expands to a kilobyte.
#[test]
fn expanded_header_fields_are_limited() {
    let value = [b'v'; 1000];
    // A literal with incremental indexing: x, 1000 bytes.
    let literal = [&[0x40, 1, b'x', 0x7f, 0xe9, 0x06][..], &value].concat();
    let block = [GET, &literal, &[0xbe; 1000]].concat();
    let store = asked(&[], &[block]);
    let kept = store.get(1).unwrap().request.fields.bytes();
    assert!((120_000..=2 * 64 * 1024).contains(&kept), "{kept}");
}

#[test]
fn pending_requests_are_limited() {
    for (requests, is_lost) in [(1024, false), (1025, true)] {
        let store = asked(&[], &vec![GET.to_vec(); requests]);
        let mut errors = store.iter().filter_map(|one| one.summary.error.as_deref());
        let lost = errors.any(|error| {
            error.ends_with(
                "too many requests are waiting for \
                                                       responses",
            )
        });
        assert_eq!(lost, is_lost, "{requests}");
    }
}
