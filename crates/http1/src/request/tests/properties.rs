//! Properties that apply to any bytes.

use proptest::prelude::*;

use super::{accept, parse_request};
use crate::{Limits, MAX_FIELDS, Progress, Slots, may_complete};

/// Lines that are similar enough to requests to reach every check.
fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "GET ",
        "POST ",
        "OPTIONS ",
        "/",
        "/a?b",
        "*",
        "http://a",
        " HTTP/1.1",
        " HTTP/1.0",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "Host: a",
        "Host:",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: ",
        "close",
        "x, host",
        "Upgrade: websocket",
        "X: y",
        " ",
        "\t",
        ":",
        "\0",
        "#",
        "é",
        "Expect: 100-continue",
        "HTTP/2.0",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

fn check_against_httparse(bytes: &[u8]) -> Result<(), TestCaseError> {
    let limits = Limits::default();
    let mut slots = Slots::new();
    let Ok(Progress::Complete { head, head_len }) = parse_request(bytes, &limits, &mut slots)
    else {
        return Ok(());
    };
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut room);
    prop_assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    prop_assert_eq!(other.method, Some(head.method.as_str()));
    prop_assert_eq!(other.headers.len(), head.fields.len());
    for (theirs, ours) in other.headers.iter().zip(head.fields.iter()) {
        prop_assert_eq!(theirs.name.as_bytes(), ours.name.as_bytes());
        prop_assert_eq!(theirs.value, ours.value.as_bytes());
    }
    // No line feed without its carriage return, at any position.
    let head_bytes = &bytes[..head_len];
    let line_feeds = head_bytes.split(|byte| *byte == b'\n').count() - 1;
    let line_ends = head_bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    prop_assert_eq!(line_feeds, line_ends);
    // A shorter buffer is never complete, and waiting for `may_complete` misses nothing.
    for end in 1..head_len {
        let mut slots = Slots::new();
        let early = parse_request(&bytes[..end], &limits, &mut slots);
        prop_assert!(
            matches!(early, Ok(Progress::Partial)),
            "{}: {:?}",
            end,
            early
        );
        prop_assert!(may_complete(&bytes[..head_len], end, &limits));
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        check_against_httparse(&bytes)?;
    }

    #[test]
    fn accepted_heads_are_accepted_by_httparse(bytes in nearly_requests()) {
        check_against_httparse(&bytes)?;
    }

    #[test]
    fn a_valid_request_is_accepted(
        path in "/[!-\"$-~&&[^?]]{0,20}",
        names in prop::collection::vec("y[a-z0-9_-]{0,10}", 0..20),
        value in "[!-~]([ -~\t]{0,30}[!-~])?",
    ) {
        let mut bytes = format!("PUT {path} HTTP/1.1\r\nHost: a\r\n");
        for name in &names {
            bytes.extend([name, ": ", &value, "\r\n"]);
        }
        bytes.push_str("\r\n");
        check_against_httparse(bytes.as_bytes())?;
        accept(bytes, |head| {
            assert_eq!(head.target.path(), path);
            assert!(head.fields.iter().skip(1).all(|field| field.value.as_bytes() == value.as_bytes()));
        });
    }
}
