use super::{BodyLength, Refusal, RequestHead, parse_request};
use crate::{FieldKind, Limits, Method, Progress, Slots, Version};

fn parse<R>(
    bytes: &[u8],
    limits: Limits,
    judge: impl FnOnce(Result<Progress<RequestHead<'_>>, Refusal>) -> R,
) -> R {
    judge(parse_request(bytes, &limits, &mut Slots::new()))
}

/// Parses a head that must be complete and must end at the end of the bytes.
fn accept<R>(bytes: impl AsRef<[u8]>, judge: impl FnOnce(RequestHead<'_>) -> R) -> R {
    let bytes = bytes.as_ref();
    parse(bytes, Limits::default(), |result| match result {
        Ok(Progress::Complete { head, head_len }) => {
            assert_eq!(head_len, bytes.len());
            judge(head)
        }
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    })
}

fn status(bytes: impl AsRef<[u8]>) -> Option<u16> {
    parse(bytes.as_ref(), Limits::default(), |result| {
        result.err().map(|refusal| refusal.status)
    })
}

fn with_field(line: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")
}

fn with_target(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn a_common_head_is_read() {
    let bytes = b"GET /a/b?c=d?e HTTP/1.1\r\nHost: Example.com:8443\r\nAccept:  text/html \t\r\n\
        X-Empty:\r\nCookie: a=b; c=\xe4\r\n\r\n";
    accept(bytes, |head| {
        assert_eq!(head.method, Method::Get);
        assert_eq!(
            (head.target.path(), head.target.query()),
            ("/a/b", Some("c=d?e"))
        );
        assert_eq!(
            (head.authority.host(), head.authority.port()),
            ("Example.com", Some(8443))
        );
        assert_eq!(head.version, Version::Http11);
        assert_eq!(head.body, BodyLength::Empty);
        assert!(head.keep_alive && head.upgrade.is_none() && !head.expect_continue);
        let fields: Vec<_> = head
            .fields
            .iter()
            .map(|field| (field.name.as_bytes(), field.value.as_bytes()))
            .collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"Host", b"Example.com:8443"),
            (b"Accept", b"text/html"),
            (b"X-Empty", b""),
            (b"Cookie", b"a=b; c=\xe4"),
        ];
        assert_eq!(fields, expected);
        assert_eq!(
            head.fields.get("accept").map(crate::FieldValue::as_bytes),
            Some(b"text/html".as_slice())
        );
        assert_eq!(head.fields.of_kind(FieldKind::Cookie).count(), 1);
    });
}

#[test]
fn bytes_after_a_head_are_not_consumed() {
    parse(
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\n\0 rest",
        Limits::default(),
        |result| {
            assert!(
                matches!(result, Ok(Progress::Complete { head_len: 27, .. })),
                "{result:?}"
            );
        },
    );
}

#[test]
fn every_prefix_of_a_valid_head_is_partial() {
    let heads = [
        "\r\nPOST /path?q HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\nHost: [::1]:1\r\nConnection: keep-alive\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nhost:a\r\n\r\n",
    ];
    for head in heads {
        accept(head, |_| ());
        for end in 0..head.len() {
            parse(&head.as_bytes()[..end], Limits::default(), |result| {
                assert_eq!(
                    result.map(|progress| matches!(progress, Progress::Partial)),
                    Ok(true)
                );
            });
        }
    }
}

#[test]
fn lines_must_end_with_cr_lf() {
    for head in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX:  \nY: z\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(status(head), Some(400), "{head:?}");
    }
}

#[test]
fn one_empty_line_before_a_request_is_ignored() {
    accept("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
        assert_eq!(head.authority.host(), "a");
    });
    for head in [
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r",
        "\r\n\n",
        "\n",
        "\rG",
    ] {
        assert_eq!(status(head), Some(400), "{head:?}");
    }
}

#[test]
fn malformed_fields_are_refused() {
    for line in [
        "X: a\r\n b",
        "X: a\r\n\tb",
        " X: a",
        "X : a",
        "X\t: a",
        ": a",
        "X",
        "X a",
        "X(y): a",
        "X\u{e4}: a",
        "X: a\0b",
        "X: a\u{1}b",
        "X: a\u{b}b",
        "X: a\u{7f}b",
        "X\0: a",
    ] {
        assert_eq!(status(with_field(line)), Some(400), "{line:?}");
    }
    // A fold before the first field.
    assert_eq!(status("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), Some(400));
    accept(with_field("X: a\tb \u{e4}"), |head| {
        assert_eq!(
            head.fields.get("x").map(crate::FieldValue::as_bytes),
            Some("a\tb \u{e4}".as_bytes())
        );
    });
}

#[test]
fn there_is_one_valid_host() {
    for fields in [
        "",
        "Hosts: a\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nX: y\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: a, b\r\n",
        "Host: user@a\r\n",
        "Host: user:pw@a\r\n",
        "Host: a/b\r\n",
        "Host: http://a\r\n",
        "Host: a:port\r\n",
        "Host: a b\r\n",
    ] {
        for version in ["1.0", "1.1"] {
            let head = format!("GET / HTTP/{version}\r\n{fields}\r\n");
            assert_eq!(status(&head), Some(400), "{head:?}");
        }
    }
}

#[test]
fn a_content_length_is_digits_once() {
    for value in [
        "",
        "+1",
        "-1",
        "1 2",
        "1,1",
        "1, 1",
        "0x10",
        "1a",
        "1.0",
        "\"1\"",
        "1e3",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999",
    ] {
        assert_eq!(
            status(with_field(&format!("Content-Length: {value}"))),
            Some(400),
            "{value:?}"
        );
    }
    for line in [
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1\r\ncontent-length: 2",
        "Content-Length: 0\r\nX: y\r\nContent-Length: 0",
    ] {
        assert_eq!(status(with_field(line)), Some(400), "{line:?}");
    }
    for (value, length) in [
        ("0", 0),
        (" 12 ", 12),
        ("007", 7),
        ("9223372036854775807", i64::MAX as u64),
    ] {
        accept(with_field(&format!("Content-Length:{value}")), |head| {
            assert_eq!(head.body, BodyLength::Length(length));
        });
    }
}

#[test]
fn a_transfer_encoding_is_exactly_chunked() {
    for value in [
        "",
        "xchunked",
        "chunkedx",
        "chunked, identity",
        "identity, chunked",
        "gzip, chunked",
        "chunked, chunked",
        "chunked,",
        ",chunked",
        "identity",
        "chunked;q=1",
        "\"chunked\"",
        "chun ked",
        "\u{b}chunked",
    ] {
        let line = format!("Transfer-Encoding: {value}");
        assert_eq!(status(with_field(&line)), Some(400), "{value:?}");
    }
    for line in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
    ] {
        assert_eq!(status(with_field(line)), Some(400), "{line:?}");
    }
    assert_eq!(
        status("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Some(400)
    );
    for value in ["chunked", "Chunked", "\tchunked \t"] {
        accept(with_field(&format!("Transfer-Encoding:{value}")), |head| {
            assert_eq!(head.body, BodyLength::Chunked);
        });
    }
}

#[test]
fn targets_are_read_in_their_forms() {
    for (target, path, query) in [
        ("/", "/", None),
        ("/?", "/", Some("")),
        ("//x/..;/%2e?a=%zz", "//x/..;/%2e", Some("a=%zz")),
        ("/a|b\\c\"<>^`{}", "/a|b\\c\"<>^`{}", None),
        ("http://a", "/", None),
        ("http://a/", "/", None),
        ("HTTPS://A/b?c", "/b", Some("c")),
        ("http://a?c", "/", Some("c")),
        ("http://a/b//c?http://d/", "/b//c", Some("http://d/")),
    ] {
        accept(with_target(target), |head| {
            assert_eq!(
                (head.target.path(), head.target.query()),
                (path, query),
                "{target}"
            );
        });
    }
    for (target, path) in [
        ("*", "*"),
        ("http://a", "*"),
        ("http://a/", "/"),
        ("/x", "/x"),
    ] {
        accept(
            format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"),
            |head| {
                assert_eq!((head.target.path(), head.target.query()), (path, None));
            },
        );
    }
}

#[test]
fn other_targets_are_refused() {
    for target in [
        "*",
        "*x",
        "",
        "a",
        "a:443",
        "a/b",
        "?x",
        "/a#b",
        "/a?b#c",
        "/#",
        "http://b/",
        "http://a:80/",
        "http://user@a/",
        "http:///",
        "http://",
        "http:/a",
        "http:a",
        "ftp://a/",
        "ws://a/",
        "http://a#b",
        "http://a\\@b/",
        "/a b",
        "/a\tb",
        " /a",
        "/a ",
        "/\u{e4}",
        "/a\u{7f}",
        "/a\u{1}",
        "/a\0",
        "/\u{a0}",
    ] {
        assert_eq!(status(with_target(target)), Some(400), "{target:?}");
    }
    assert_eq!(status(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"), Some(400));
    let with_port = "GET http://a:1/ HTTP/1.1\r\nHost: a:1\r\n\r\n";
    accept(with_port, |head| assert_eq!(head.authority.port(), Some(1)));
}

#[test]
fn request_lines_have_three_parts() {
    for line in [
        "GET",
        "GET /",
        "GET / ",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET\t/ HTTP/1.1",
        " GET / HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/11",
        "GET / HTTP/1.1.",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GET / HTTPS/1.1",
        "GET / ICY",
        "GET / HTTP/ 1.1",
        "G(T / HTTP/1.1",
        "\u{16}\u{3}\u{1}",
        "GET / HTTP/x.y",
        "GET / HTTP/1.",
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(status(&head), Some(400), "{line:?}");
    }
}

#[test]
fn methods_are_bounded_tokens() {
    accept("M-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
        assert_eq!(head.method, Method::parse("M-SEARCH").unwrap());
        assert!(!head.method.is_idempotent());
    });
    accept("get / HTTP/1.1\r\nHost: a\r\n\r\n", |head| {
        assert_eq!(head.method.as_str(), "get");
    });
    accept(
        format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(32)),
        |_| (),
    );
    assert_eq!(
        status(format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(33))),
        Some(501)
    );
    assert_eq!(status("M".repeat(33)), Some(501));
    assert_eq!(
        status("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
        Some(501)
    );
}

#[test]
fn other_versions_are_505() {
    for version in ["2.0", "1.2", "0.9", "3.0", "1.9"] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
        assert_eq!(status(&head), Some(505), "{version}");
        for end in 0..head.len() {
            // Never 400 for a shorter prefix.
            assert!(
                matches!(status(&head[..end]), None | Some(505)),
                "{}",
                &head[..end]
            );
        }
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(505));
}

#[test]
fn keep_alive_depends_on_the_version() {
    for (version, fields, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        (
            "1.1",
            "Connection: foo\r\nConnection: bar, ,CLOSE\r\n",
            false,
        ),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: close, keep-alive\r\n", false),
    ] {
        accept(
            format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"),
            |head| {
                assert_eq!(head.keep_alive, keep_alive, "{version} {fields}");
            },
        );
    }
    let many = vec!["x"; 17].join(",");
    for value in ["a b", "\"close\"", "close;x", many.as_str()] {
        assert_eq!(
            status(with_field(&format!("Connection: {value}"))),
            Some(400),
            "{value}"
        );
    }
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let fields = "Connection: close, X-Hop, host, content-length\r\nX-Hop: 1\r\nx-hop: 2\r\n\
        Keep-Alive: timeout=1\r\nTE: trailers\r\nTrailer: x\r\nProxy-Connection: close\r\n\
        Proxy-Authorization: x\r\nUpgrade: h2c\r\nContent-Length: 3\r\nX-Stay: 1";
    accept(with_field(fields), |head| {
        let stay: Vec<_> = head
            .fields
            .end_to_end()
            .map(|field| field.name.as_bytes())
            .collect();
        assert_eq!(stay, [b"Host".as_slice(), b"Content-Length", b"X-Stay"]);
        assert_eq!(head.fields.iter().count(), 12);
    });
}

#[test]
fn an_upgrade_must_be_named_by_connection() {
    for (version, fields, upgrade) in [
        (
            "1.1",
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            Some("websocket"),
        ),
        (
            "1.1",
            "Upgrade: WebSocket\r\nConnection: keep-alive, upgrade\r\n",
            Some("WebSocket"),
        ),
        ("1.1", "Upgrade: websocket\r\n", None),
        ("1.1", "Connection: upgrade\r\n", None),
        ("1.0", "Connection: upgrade\r\nUpgrade: websocket\r\n", None),
    ] {
        accept(
            format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n"),
            |head| {
                assert_eq!(
                    head.upgrade.map(crate::Protocols::as_str),
                    upgrade,
                    "{fields}"
                );
            },
        );
    }
    for line in [
        "Upgrade:",
        "Upgrade: a\r\nUpgrade: b",
        "Upgrade: \u{e4}",
        "Upgrade: a b",
        "Upgrade: ,",
    ] {
        assert_eq!(status(with_field(line)), Some(400), "{line}");
    }
}

#[test]
fn only_http_1_1_may_expect_continue() {
    for (version, value, expected) in [
        ("1.1", "100-continue", true),
        ("1.1", "100-Continue", true),
        ("1.1", "something", false),
        ("1.0", "100-continue", false),
    ] {
        let head = format!("PUT / HTTP/{version}\r\nHost: a\r\nExpect: {value}\r\n\r\n");
        accept(head, |head| assert_eq!(head.expect_continue, expected));
    }
}

#[test]
fn debug_output_contains_no_secrets() {
    let head =
        "GET /p?svc.token=SECRET HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer SECRET\r\n\r\n";
    accept(head, |head| {
        let shown = format!("{head:?}");
        assert!(
            shown.contains("Authorization") && !shown.contains("SECRET"),
            "{shown}"
        );
    });
}

mod limits;
mod properties;
