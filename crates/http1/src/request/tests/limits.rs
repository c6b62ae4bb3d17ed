//! Oversized input is refused as soon as that is certain.

use super::{accept, parse};
use crate::{Limits, MAX_FIELDS, may_complete};

#[test]
fn a_large_head_is_refused_before_it_is_complete() {
    let limits = Limits {
        head_bytes: 100,
        target_bytes: 50,
        headers: 3,
    };
    let status = |bytes: &[u8]| parse(bytes, limits, |result| result.err().map(|r| r.status));
    let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    for (filler, expected) in [
        (10, None),
        (99 - start.len(), None),
        (100 - start.len(), Some(431)),
    ] {
        let open = format!("{start}{}", "x".repeat(filler));
        assert_eq!(status(open.as_bytes()), expected);
    }
    let exact = format!("{start}{}\r\n\r\n", "x".repeat(96 - start.len()));
    assert_eq!(status(exact.as_bytes()), None);
    let larger = format!("{start}{}\r\n\r\n", "x".repeat(97 - start.len()));
    assert_eq!(status(larger.as_bytes()), Some(431));
    // Bytes after a head that fits do not count.
    assert_eq!(
        status(format!("{exact}{}", "y".repeat(1000)).as_bytes()),
        None
    );

    let four = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(3));
    assert_eq!(status(four.as_bytes()), Some(431));
    let many = |count| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(count)
        )
    };
    accept(many(127), |head| {
        assert_eq!(head.fields.len(), 128);
    });
    assert_eq!(super::status(many(128)), Some(431));
    // A larger limit applies up to the available space.
    let wide = Limits {
        headers: usize::MAX,
        ..Limits::default()
    };
    let status = |bytes: String| {
        parse(bytes.as_bytes(), wide, |result| {
            result.err().map(|r| r.status)
        })
    };
    assert_eq!(status(many(MAX_FIELDS - 1)), None);
    assert_eq!(status(many(MAX_FIELDS)), Some(431));
}

#[test]
fn a_long_target_is_refused_before_it_is_complete() {
    let limits = Limits {
        head_bytes: 100,
        target_bytes: 50,
        headers: 3,
    };
    let status = |bytes: &[u8]| parse(bytes, limits, |result| result.err().map(|r| r.status));
    let open = |len: usize| format!("GET /{}", "x".repeat(len - 1));
    assert_eq!(status(open(50).as_bytes()), None);
    assert_eq!(status(open(51).as_bytes()), Some(414));
    assert_eq!(
        status(format!("{} HTTP/1.1\r\nHost: a\r\n\r\n", open(50)).as_bytes()),
        None
    );
    assert_eq!(
        status(format!("{} HTTP/1.1\r\nHost: a\r\n\r\n", open(51)).as_bytes()),
        Some(414)
    );
    assert_eq!(status(open(200).as_bytes()), Some(414));
}

#[test]
fn parsing_again_waits_for_an_empty_line_or_a_limit() {
    let limits = Limits {
        head_bytes: 200,
        target_bytes: 50,
        headers: 3,
    };
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for end in 1..head.len() - 1 {
        assert!(
            !may_complete(&head[..=end], end, &limits) || end + 1 == head.len(),
            "{end}"
        );
    }
    assert!(may_complete(head, head.len() - 1, &limits));
    assert!(may_complete(b"G", 0, &limits));
    // Bare line feeds are found, so that they are refused.
    assert!(may_complete(b"GET / HTTP/1.1\n\n", 15, &limits));
    assert!(may_complete(b"GET / HTTP/1.1\n\r\n", 16, &limits));
    // The position at which a target is too long, regardless of what precedes it.
    let open = vec![b'x'; 86];
    assert!(may_complete(&open, 85, &limits));
    assert!(!may_complete(&open, 86, &limits));
    let full = vec![b'x'; 200];
    assert!(may_complete(&full, 199, &limits));
}

#[test]
fn the_options_of_connection_are_bounded() {
    let status = |count| {
        let options = vec!["a"; count].join(", ");
        super::status(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {options}\r\n\r\n"
        ))
    };
    assert_eq!((status(16), status(17)), (None, Some(400)));
    // Options in several fields are counted together.
    let fields = "Connection: a, b, c, d, e, f\r\n".repeat(3);
    let several = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    assert_eq!(super::status(several), Some(400));
}
