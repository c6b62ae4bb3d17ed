use proptest::prelude::*;

use super::{ANSWERS_TLS, MalformedResponseError, ResponseBody, ResponseHead, parse_response};
use crate::{Limits, MAX_FIELDS, Progress, Slots, Version};

fn parse<R>(
    bytes: &[u8],
    is_head_request: bool,
    judge: impl FnOnce(Result<Progress<ResponseHead<'_>>, MalformedResponseError>) -> R,
) -> R {
    judge(parse_response(
        bytes,
        &Limits::default(),
        is_head_request,
        &mut Slots::new(),
    ))
}

/// Parses a head that must be complete and must end at the end of the bytes.
fn accept<R>(
    bytes: impl AsRef<[u8]>,
    is_head_request: bool,
    judge: impl FnOnce(ResponseHead<'_>) -> R,
) -> R {
    let bytes = bytes.as_ref();
    parse(bytes, is_head_request, |result| match result {
        Ok(Progress::Complete { head, head_len }) => {
            assert_eq!(head_len, bytes.len());
            judge(head)
        }
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    })
}

fn is_bad(bytes: impl AsRef<[u8]>) -> bool {
    parse(bytes.as_ref(), false, |result| result.is_err())
}

#[test]
fn a_common_head_is_read() {
    let bytes = "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nSet-Cookie: a=b\r\n\r\n";
    accept(bytes, false, |head| {
        assert_eq!(
            (head.status, head.reason.as_bytes()),
            (404, &b"Not Found"[..])
        );
        assert_eq!(head.version, Version::Http11);
        assert_eq!(
            (head.body, head.content_length),
            (ResponseBody::Length(3), Some(3))
        );
        assert!(head.keep_alive);
        assert_eq!(
            head.fields
                .get("set-cookie")
                .map(crate::FieldValue::as_bytes),
            Some(b"a=b".as_slice())
        );
    });
    for end in 0..bytes.len() {
        parse(&bytes.as_bytes()[..end], false, |result| {
            assert_eq!(
                result.map(|progress| matches!(progress, Progress::Partial)),
                Ok(true)
            );
        });
    }
}

#[test]
fn status_lines_may_lack_a_reason() {
    for (line, reason) in [
        ("200 ", ""),
        ("200", ""),
        // A reason that is not ASCII is dropped.
        ("200 \u{e4}", ""),
        ("999 a b\tc", "a b\tc"),
    ] {
        accept(format!("HTTP/1.1 {line}\r\n\r\n"), false, |head| {
            assert_eq!(head.reason.as_bytes(), reason.as_bytes());
        });
    }
    for line in [
        "HTTP/1.1 099 x",
        "HTTP/1.1 20 x",
        "HTTP/1.1 2000",
        "HTTP/1.1  200",
        "HTTP/1.1 +20 x",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "HTTP/2.0 200 OK",
        "HTTP/1.2 200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "HTTP/1.1 200 a\0b",
        "HTTP/1.1 200 a\u{7f}",
        "HTTP/1.1\t200 OK",
        " HTTP/1.1 200 OK",
        "\r\nHTTP/1.1 200 OK",
        "220 smtp.example ESMTP",
        "SSH-2.0-OpenSSH",
    ] {
        assert!(
            is_bad(format!("{line}\r\nContent-Length: 0\r\n\r\n")),
            "{line:?}"
        );
    }
}

#[test]
fn ambiguous_responses_are_refused() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 3 \r\n 4\r\n",
        "Content-Length:\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
        "X: a\nY: b\r\n",
        "X: a\r\n b\r\n",
        "X : a\r\n",
        "X: a\0\r\n",
        "X: a\rY: b\r\n",
        ": a\r\n",
        "Connection: a b\r\n",
        "Upgrade: a\r\nUpgrade: b\r\n",
    ] {
        assert!(
            is_bad(format!("HTTP/1.1 200 OK\r\n{fields}\r\n")),
            "{fields:?}"
        );
    }
    for head in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 101 x\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(is_bad(head), "{head:?}");
    }
}

#[test]
fn bodies_are_framed_according_to_rfc_9112_6_3() {
    use ResponseBody::{Chunked, Empty, Length, UntilClose};
    for (status, is_head_request, fields, body, keep_alive) in [
        (200, false, "Content-Length: 3\r\n", Length(3), true),
        (200, false, "Content-Length: 0\r\n", Length(0), true),
        (200, false, "Transfer-Encoding: chunked\r\n", Chunked, true),
        (200, false, "", UntilClose, false),
        (200, false, "Connection: keep-alive\r\n", UntilClose, false),
        (
            200,
            false,
            "Content-Length: 3\r\nConnection: close\r\n",
            Length(3),
            false,
        ),
        (200, true, "Content-Length: 3\r\n", Empty, true),
        (200, true, "Transfer-Encoding: chunked\r\n", Empty, true),
        (200, true, "", Empty, true),
        (304, false, "Content-Length: 3\r\n", Empty, true),
        (304, false, "", Empty, true),
        (204, false, "", Empty, true),
        (204, false, "Content-Length: 0\r\n", Empty, true),
        (204, false, "Content-Length: 3\r\n", Empty, false),
        (204, false, "Transfer-Encoding: chunked\r\n", Empty, false),
        (100, false, "", Empty, true),
        (103, false, "Link: x\r\n", Empty, true),
        (
            101,
            false,
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            Empty,
            true,
        ),
        (205, false, "Content-Length: 0\r\n", Length(0), true),
        (404, false, "", UntilClose, false),
    ] {
        accept(
            format!("HTTP/1.1 {status} x\r\n{fields}\r\n"),
            is_head_request,
            |head| {
                assert_eq!(
                    (head.body, head.keep_alive),
                    (body, keep_alive),
                    "{status} {fields}"
                );
            },
        );
    }
    for (fields, keep_alive) in [
        ("Content-Length: 3\r\n", false),
        ("Content-Length: 3\r\nConnection: keep-alive\r\n", true),
    ] {
        accept(format!("HTTP/1.0 200 OK\r\n{fields}\r\n"), false, |head| {
            assert_eq!((head.body, head.keep_alive), (Length(3), keep_alive));
        });
    }
}

/// Common faults with one interpretation. The connection is not reused.
#[test]
fn small_faults_of_services_are_tolerated() {
    use ResponseBody::{Empty, Length, UntilClose};
    for (status, fields, body, keep_alive, forwarded) in [
        (
            200,
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            Length(3),
            false,
            1,
        ),
        (
            200,
            "Transfer-Encoding: identity\r\nContent-Length: 3\r\n",
            Length(3),
            false,
            1,
        ),
        (200, "Transfer-Encoding: Identity\r\n", UntilClose, false, 0),
        (204, "Content-Length: 3\r\n", Empty, false, 0),
        (204, "Content-Length: 0\r\n", Empty, true, 0),
    ] {
        accept(
            format!("HTTP/1.1 {status} x\r\n{fields}\r\n"),
            false,
            |head| {
                assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{fields}");
                assert_eq!(head.fields.end_to_end().count(), forwarded, "{fields}");
            },
        );
    }
}

#[test]
fn the_announced_idle_time_is_read() {
    for (fields, seconds) in [
        ("Keep-Alive: timeout=5\r\n", Some(5)),
        ("keep-alive: max=100, Timeout = 15\r\n", Some(15)),
        ("Keep-Alive: timeout=\r\n", None),
        ("Keep-Alive: timeout=-1\r\n", None),
        ("Keep-Alive: max=5\r\n", None),
        ("Connection: keep-alive\r\n", None),
    ] {
        accept(format!("HTTP/1.1 200 x\r\n{fields}\r\n"), false, |head| {
            let timeout = head.keep_alive_timeout();
            assert_eq!(
                timeout.map(|timeout| timeout.as_secs()),
                seconds,
                "{fields}"
            );
        });
    }
}

#[test]
fn a_tls_alert_is_recognised() {
    parse(b"\x15\x03\x01\x00\x02\x02\x46", false, |result| {
        assert_eq!(result.unwrap_err().reason, ANSWERS_TLS);
    });
}

#[test]
fn the_length_of_a_body_that_is_not_sent_is_known() {
    accept(
        "HTTP/1.1 304 x\r\nContent-Length: 7\r\n\r\n",
        false,
        |head| {
            assert_eq!(
                (head.body, head.content_length),
                (ResponseBody::Empty, Some(7))
            );
        },
    );
}

#[test]
fn only_a_101_or_426_that_names_its_upgrade_has_one() {
    for (status, fields, upgrade) in [
        (
            101,
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            Some("websocket"),
        ),
        (101, "Upgrade: websocket\r\n", None),
        (101, "Connection: Upgrade\r\n", None),
        (
            200,
            "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n",
            None,
        ),
        (
            426,
            "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n",
            Some("websocket"),
        ),
        (426, "Upgrade: websocket\r\nContent-Length: 0\r\n", None),
    ] {
        accept(
            format!("HTTP/1.1 {status} x\r\n{fields}\r\n"),
            false,
            |head| {
                assert_eq!(
                    head.upgrade.map(crate::Protocols::as_str),
                    upgrade,
                    "{status} {fields}"
                );
            },
        );
    }
}

#[test]
fn a_large_head_is_refused_before_it_is_complete() {
    let limits = Limits {
        head_bytes: 100,
        headers: 2,
        ..Limits::default()
    };
    let parse = |bytes: &[u8]| {
        let result = parse_response(bytes, &limits, false, &mut Slots::new())
            .map(|progress| matches!(progress, Progress::Partial));
        result.ok()
    };
    let start = "HTTP/1.1 200 OK\r\nX: ";
    assert_eq!(
        parse(format!("{start}{}", "x".repeat(99 - start.len())).as_bytes()),
        Some(true)
    );
    assert_eq!(
        parse(format!("{start}{}", "x".repeat(100 - start.len())).as_bytes()),
        None
    );
    let three = "HTTP/1.1 200 OK\r\nX: y\r\nX: y\r\nX: y\r\n\r\n";
    assert_eq!(parse(three.as_bytes()), None);
    assert!(is_bad(format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "X: y\r\n".repeat(MAX_FIELDS + 1)
    )));
}

fn nearly_responses() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 204",
        "HTTP/1.0 304 ",
        "HTTP/1.1 101 x",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: ",
        "close",
        "upgrade",
        "Upgrade: websocket",
        "X: y",
        " ",
        "\t",
        ":",
        "\0",
        "é",
    ]);
    prop::collection::vec(pieces, 0..16).prop_map(|pieces| pieces.concat().into_bytes())
}

fn check_against_httparse(bytes: &[u8], is_head_request: bool) -> Result<(), TestCaseError> {
    let limits = Limits::default();
    let mut slots = Slots::new();
    let Ok(Progress::Complete { head, head_len }) =
        parse_response(bytes, &limits, is_head_request, &mut slots)
    else {
        return Ok(());
    };
    let mut header_buffer = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut header_buffer);
    prop_assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    prop_assert_eq!(other.code, Some(head.status));
    prop_assert_eq!(other.headers.len(), head.fields.len());
    prop_assert!(!is_head_request || head.body == ResponseBody::Empty);
    let head_bytes = &bytes[..head_len];
    let line_feeds = head_bytes.split(|byte| *byte == b'\n').count() - 1;
    prop_assert_eq!(
        line_feeds,
        head_bytes.windows(2).filter(|pair| pair == b"\r\n").count()
    );
    for end in 0..head_len {
        let mut slots = Slots::new();
        let early = parse_response(&bytes[..end], &limits, is_head_request, &mut slots);
        prop_assert!(
            matches!(early, Ok(Progress::Partial)),
            "{}: {:?}",
            end,
            early
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..256),
        is_head_request: bool,
    ) {
        check_against_httparse(&bytes, is_head_request)?;
    }

    #[test]
    fn accepted_heads_are_accepted_by_httparse(
        bytes in nearly_responses(),
        is_head_request: bool,
    ) {
        check_against_httparse(&bytes, is_head_request)?;
    }
}
