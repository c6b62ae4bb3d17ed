use proptest::prelude::*;

use super::{BodyError, BodyReader, BodyState};
use crate::{
    BodyLength, CHUNK_END, ChunkScanner, LAST_CHUNK, ResponseBody, Slots, TRAILER_BYTES,
    parse_trailers, write_chunk_head,
};

/// The result of reading a body that arrives in pieces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    payload: Vec<u8>,
    trailers: Option<Vec<u8>>,
    /// Bytes after the body.
    rest: Vec<u8>,
}

/// Feeds `bytes` in pieces that end at `cuts`, as a connection would.
fn read(mut reader: BodyReader, bytes: &[u8], cuts: &[usize]) -> Result<Read, BodyError> {
    let mut read = Read::default();
    let mut held = Vec::new();
    for piece in pieces(bytes, cuts) {
        held.extend_from_slice(piece);
        while !reader.is_done() {
            let advance = reader.advance(&held)?;
            assert!(advance.data.end <= advance.consumed && advance.consumed <= held.len());
            read.payload.extend_from_slice(&held[advance.data.clone()]);
            if let BodyState::Trailers(section) = &advance.state {
                assert_eq!(section.end, advance.consumed);
                assert!(advance.data.is_empty());
                read.trailers = Some(held[section.clone()].to_vec());
            }
            assert_eq!(reader.is_done(), advance.state != BodyState::More);
            held.drain(..advance.consumed);
            if advance.consumed == 0 || held.is_empty() {
                break;
            }
        }
    }
    reader.finish()?;
    read.rest = held;
    Ok(read)
}

/// Feeds `bytes` as [`read`] does and returns what a peer with the same framing would get.
fn copy(mut reader: BodyReader, bytes: &[u8], cuts: &[usize]) -> Result<Vec<u8>, BodyError> {
    let mut copied = Vec::new();
    let mut held = Vec::new();
    for piece in pieces(bytes, cuts) {
        held.extend_from_slice(piece);
        if !reader.is_done() {
            let verbatim = reader.advance_verbatim(&held)?;
            assert!(verbatim.pass <= verbatim.consumed && verbatim.consumed <= held.len());
            copied.extend_from_slice(&held[..verbatim.pass]);
            held.drain(..verbatim.consumed);
        }
    }
    reader.finish()?;
    Ok(copied)
}

/// As [`copy`], for a caller that continues until nothing is left.
fn copy_all(mut reader: BodyReader, bytes: &[u8], cuts: &[usize]) -> Result<Vec<u8>, BodyError> {
    let mut copied = Vec::new();
    let mut held = Vec::new();
    for piece in pieces(bytes, cuts) {
        held.extend_from_slice(piece);
        while !reader.is_done() {
            let verbatim = reader.advance_verbatim(&held)?;
            assert!(verbatim.pass <= verbatim.consumed && verbatim.consumed <= held.len());
            copied.extend_from_slice(&held[..verbatim.pass]);
            held.drain(..verbatim.consumed);
            if verbatim.consumed == 0 || held.is_empty() {
                break;
            }
        }
    }
    reader.finish()?;
    Ok(copied)
}

fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    ends.into_iter()
        .map(|end| &bytes[std::mem::replace(&mut start, end)..end])
        .collect()
}

fn chunked() -> BodyReader {
    BodyReader::Chunked(ChunkScanner::new())
}

fn every_byte(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).collect()
}

#[test]
fn a_length_is_counted() {
    let reader = || BodyReader::from(BodyLength::Length(5));
    for cuts in [vec![], vec![2], vec![5], vec![1, 2, 3, 4, 5, 6]] {
        let read = read(reader(), b"helloGET", &cuts).unwrap();
        assert_eq!(
            (read.payload.as_slice(), read.rest.as_slice()),
            (&b"hello"[..], &b"GET"[..])
        );
    }
    assert_eq!(read(reader(), b"hell", &[]), Err(BodyError::BrokeOff));
    assert_eq!(read(reader(), b"", &[]), Err(BodyError::BrokeOff));
    let huge = BodyReader::from(ResponseBody::Length(u64::MAX));
    assert_eq!(read(huge, b"hell", &[]), Err(BodyError::BrokeOff));
}

#[test]
fn an_empty_body_is_done_immediately() {
    for mut reader in [
        BodyReader::from(BodyLength::Empty),
        BodyReader::from(BodyLength::Length(0)),
        BodyReader::from(ResponseBody::Empty),
        BodyReader::from(ResponseBody::Length(0)),
    ] {
        assert!(reader.is_done());
        let advance = reader.advance(b"GET").unwrap();
        assert_eq!((advance.consumed, advance.state), (0, BodyState::Done));
    }
}

#[test]
fn the_end_of_the_connection_only_ends_a_body_without_framing() {
    let until_close = BodyReader::from(ResponseBody::UntilClose);
    assert_eq!(read(until_close, b"abc", &[1]).unwrap().payload, b"abc");
    let whole = b"3\r\nabc\r\n0\r\nX: y\r\n\r\n";
    for end in 0..whole.len() {
        assert_eq!(
            read(chunked(), &whole[..end], &[]),
            Err(BodyError::BrokeOff),
            "{end}"
        );
        assert_eq!(
            copy(chunked(), &whole[..end], &[]),
            Err(BodyError::BrokeOff),
            "{end}"
        );
    }
    assert_eq!(read(chunked(), whole, &[]).unwrap().payload, b"abc");
}

#[test]
fn chunks_are_joined() {
    for (bytes, payload, rest) in [
        ("0\r\n\r\n", "", ""),
        ("0000000000000000\r\n\r\nGET", "", "GET"),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
        (
            "5\r\nhello\r\n00C\r\n, all of you\r\n0\r\n\r\n",
            "hello, all of you",
            "",
        ),
        (
            "a\r\n0123456789\r\n1\r\nx\r\n1\r\n\n\r\n0\r\n\r\n0",
            "0123456789x\n",
            "0",
        ),
        (
            "000000000000000A\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n",
            "\r\n\r\n\r\n\r\n\r\n",
            "",
        ),
    ] {
        for cuts in [vec![], every_byte(bytes.as_bytes())] {
            let read = read(chunked(), bytes.as_bytes(), &cuts).unwrap();
            assert_eq!(read.payload, payload.as_bytes(), "{bytes:?}");
            assert_eq!(read.rest, rest.as_bytes(), "{bytes:?}");
        }
    }
}

#[test]
fn invalid_chunk_grammar_is_refused() {
    let long_section = format!("0\r\nX: {}\r\n\r\n", "y".repeat(TRAILER_BYTES));
    let endless_section = format!("0\r\n{}", "X: y\r\n".repeat(TRAILER_BYTES / 6 + 1));
    for bytes in [
        "\r\n",
        "\n",
        " 1\r\n",
        "1 \r\n",
        "\t1\r\n",
        "1\n",
        "1\r\r\n",
        "+1\r\n",
        "-1\r\n",
        "0x1\r\n",
        "1h\r\n",
        "g\r\n",
        ";\r\n",
        "1 ;a\r\n",
        "00000000000000001\r\n",
        "11111111111111111\r\n",
        "1\r\nxx",
        "1\r\nx\n",
        "1\r\nx\rx",
        "1\r\nx\r\n\r\n",
        "1\r\nx0\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX: y\0\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\n\nX: y\r\n\r\n",
        "\u{ff11}\r\n",
        &long_section,
        &endless_section,
    ] {
        for cuts in [vec![], every_byte(bytes.as_bytes())] {
            let read = read(chunked(), bytes.as_bytes(), &cuts);
            assert!(
                matches!(read, Err(BodyError::Malformed(_))),
                "{bytes:?}: {read:?}"
            );
        }
    }
}

fn of_response() -> BodyReader {
    BodyReader::Chunked(ChunkScanner::of_response())
}

#[test]
fn chunk_extensions_are_removed() {
    let plain = "5\r\nhello\r\n0C\r\n, all of you\r\n0\r\n\r\n";
    for bytes in [
        "5;a=b\r\nhello\r\n0C;a;b = \"; \tc\"\r\n, all of you\r\n0\r\n\r\n",
        "5;\r\nhello\r\n0C\r\n, all of you\r\n0;last\r\n\r\n",
        "5;\u{e4}\r\nhello\r\n0C; \r\n, all of you\r\n0; \r\n\r\n",
    ] {
        for cuts in [vec![], every_byte(bytes.as_bytes())] {
            let read = read(chunked(), bytes.as_bytes(), &cuts).unwrap();
            assert_eq!(read.payload, b"hello, all of you", "{bytes:?}");
            let copied = copy_all(chunked(), bytes.as_bytes(), &cuts).unwrap();
            assert_eq!(copied, plain.as_bytes(), "{bytes:?}");
        }
    }
    for bytes in [
        "1;a\nb\r\nx",
        "1;a\r\rb",
        "1;a\0\r\nx",
        "1;a\u{7f}\r\nx",
        "1;\"\r\n\"\r\nx",
    ] {
        for reader in [chunked(), of_response()] {
            assert!(read(reader, bytes.as_bytes(), &[]).is_err(), "{bytes:?}");
        }
    }
}

#[test]
fn padded_sizes_are_accepted_from_services_only() {
    for bytes in [
        "5  \r\nhello\r\n0\r\n\r\n",
        "5 \t;a\r\nhello\r\n0      \r\n\r\n",
    ] {
        for cuts in [vec![], every_byte(bytes.as_bytes())] {
            let served = read(of_response(), bytes.as_bytes(), &cuts).unwrap();
            assert_eq!(served.payload, b"hello", "{bytes:?}");
            let copied = copy_all(of_response(), bytes.as_bytes(), &cuts).unwrap();
            assert_eq!(copied, b"5\r\nhello\r\n0\r\n\r\n");
            assert!(read(chunked(), bytes.as_bytes(), &cuts).is_err());
        }
    }
    for bytes in [" 5\r\nhello", "5 a\r\nhello", "5 \nhello", " \r\n"] {
        assert!(
            read(of_response(), bytes.as_bytes(), &[]).is_err(),
            "{bytes:?}"
        );
    }
}

#[test]
fn chunk_extensions_are_limited() {
    let extended = |len: usize| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(len - 1));
    let limit = 16 * 1024;
    assert!(read(chunked(), extended(limit).as_bytes(), &[]).is_ok());
    assert!(read(chunked(), extended(limit + 1).as_bytes(), &[]).is_err());
    // Each byte of payload allows one more.
    let chunk = format!("10;{}\r\n{}\r\n", "a".repeat(15), "x".repeat(16));
    let long = format!("{}0\r\n\r\n", chunk.repeat(4096));
    assert!(read(chunked(), long.as_bytes(), &[]).is_ok());
}

#[test]
fn a_bad_body_stays_bad() {
    let mut reader = chunked();
    assert!(reader.advance(b"x").is_err());
    assert!(reader.advance(b"0\r\n\r\n").is_err());
    assert_eq!(reader.finish(), Err(BodyError::BrokeOff));
}

#[test]
fn the_largest_chunk_does_not_overflow() {
    let mut reader = chunked();
    let advance = reader.advance(b"7fffffffffffffff\r\nabc").unwrap();
    assert_eq!((advance.consumed, advance.data), (21, 18..21));
    assert_eq!(reader.finish(), Err(BodyError::BrokeOff));
    for larger in [b"8000000000000000\r\n", b"ffffffffffffffff\r\n"] {
        assert!(matches!(
            chunked().advance(larger),
            Err(BodyError::Malformed(_))
        ));
    }
}

#[test]
fn trailers_are_parsed_and_forbidden_ones_omitted() {
    let section = "grpc-status: 0\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\nHost: b\r\n\
        Authorization: x\r\nSet-Cookie: a=b\r\nsvc-user-id: admin\r\nX_Forwarded_For: 1.1.1.1\r\n\
        Content-Type: a/b\r\nConnection: close\r\nX-Sum: 1\r\n\r\n";
    let body = format!("1\r\nx\r\n0\r\n{section}GET");
    for cuts in [vec![], every_byte(body.as_bytes())] {
        let read = read(chunked(), body.as_bytes(), &cuts).unwrap();
        assert_eq!(read.rest, b"GET");
        let read_section = read.trailers.unwrap();
        assert_eq!(read_section, section.as_bytes());
        let mut slots = Slots::new();
        let fields = parse_trailers(&read_section, &mut slots).unwrap();
        let fields: Vec<_> = fields
            .iter()
            .map(|field| (field.name.as_bytes(), field.value.as_bytes()))
            .collect();
        assert_eq!(
            fields,
            [(&b"grpc-status"[..], &b"0"[..]), (&b"X-Sum"[..], &b"1"[..])]
        );
    }
    assert!(parse_trailers(b"X: y\r\n", &mut Slots::new()).is_err());
    assert!(parse_trailers(b"X: y\r\n\r\nmore", &mut Slots::new()).is_err());
    assert!(parse_trailers(b"", &mut Slots::new()).is_err());
    let many = format!("{}\r\n", "X: y\r\n".repeat(33));
    assert!(parse_trailers(many.as_bytes(), &mut Slots::new()).is_err());
}

#[test]
fn a_verbatim_copy_leaves_trailers_to_the_caller() {
    let body = b"1\r\nx\r\n2\r\nyz\r\n0\r\nHost: b\r\n\r\nGET";
    for cuts in [vec![], every_byte(body)] {
        assert_eq!(
            copy(chunked(), body, &cuts).unwrap(),
            b"1\r\nx\r\n2\r\nyz\r\n0\r\n"
        );
    }
    let plain = b"1\r\nx\r\n2\r\nyz\r\n0\r\n\r\n";
    assert_eq!(copy(chunked(), plain, &[]).unwrap(), plain);
}

proptest! {
    #[test]
    fn any_split_gives_the_same_payload(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..12),
        trailer in proptest::option::of("[a-z]{1,8}: [ -~]{0,20}\r\n"),
        rest in prop::collection::vec(any::<u8>(), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            write_chunk_head(&mut bytes, chunk.len().try_into().unwrap());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(CHUNK_END);
        }
        if let Some(trailer) = &trailer {
            bytes.extend_from_slice(b"0\r\n");
            bytes.extend_from_slice(trailer.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        } else {
            bytes.extend_from_slice(LAST_CHUNK);
        }
        let body_len = bytes.len();
        bytes.extend_from_slice(&rest);
        let read = read(chunked(), &bytes, &cuts).unwrap();
        prop_assert_eq!(read.payload, chunks.concat());
        prop_assert_eq!(read.rest, rest);
        prop_assert_eq!(read.trailers.is_some(), trailer.is_some());
        let copied = copy(chunked(), &bytes, &cuts).unwrap();
        if trailer.is_none() {
            prop_assert_eq!(&copied, &bytes[..body_len]);
        }
        prop_assert!(bytes.starts_with(&copied));
    }

    #[test]
    fn the_result_does_not_depend_on_the_split(
        bytes in "[0-9a-fA-F;: x\r\n]{0,60}(\r\n0\r\n\r\n)?",
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let whole = read(chunked(), bytes.as_bytes(), &[]);
        let split = read(chunked(), bytes.as_bytes(), &cuts);
        prop_assert_eq!(whole.is_ok(), split.is_ok());
        if let (Ok(whole), Ok(split)) = (whole, split) {
            prop_assert_eq!(whole, split);
        }
    }
}
