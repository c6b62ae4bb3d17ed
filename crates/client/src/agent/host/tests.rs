use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// Returns the bytes that the service gets from a stream in these pieces.
async fn through(pieces: &[&[u8]], host: &str) -> Vec<u8> {
    let (mut far, mut near) = duplex(64);
    let mut named = HostRewriter::new(&mut near, host, false);
    let mut got = Vec::new();
    let sent = async {
        for piece in pieces {
            far.write_all(piece).await.unwrap();
            far.flush().await.unwrap();
        }
        far.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(sent, named.read_to_end(&mut got));
    read.unwrap();
    got
}

#[tokio::test]
async fn only_host_and_origin_change() {
    let request = b"GET /a?b HTTP/1.1\r\nX-A:  1 \r\nhOst: Web.t.test:443\r\n\
        X-Forwarded-Proto: https\r\nOrigin: https://web.t.test\r\nReferer: https://web.t.test/x\r\n\r\n";
    let got = through(&[request], "localhost:5173").await;
    let expected = "GET /a?b HTTP/1.1\r\nX-A:  1 \r\nhOst: localhost:5173\r\n\
        X-Forwarded-Proto: https\r\nOrigin: http://localhost:5173\r\nReferer: https://web.t.test/x\r\n\r\n";
    assert_eq!(String::from_utf8(got).unwrap(), expected);
}

/// WebDAV servers refuse a destination on another server (RFC 4918 section 9.9.4).
#[tokio::test]
async fn the_public_origin_of_a_destination_is_renamed() {
    for (destination, expected) in [
        ("https://web.test/a%20b?c", "http://a:1/a%20b?c"),
        ("https://WEB.test:443/", "http://a:1/"),
        ("/a", "/a"),
        ("https://other.test/a", "https://other.test/a"),
        ("http://web.test/a", "http://web.test/a"),
        (
            "https://web.test.evil.test/a",
            "https://web.test.evil.test/a",
        ),
    ] {
        let request = |host: &str, destination: &str| {
            format!("MOVE /x HTTP/1.1\r\nHost: {host}\r\nDestination: {destination}\r\n\r\n")
        };
        let sent = request("web.test", destination);
        let got = through(&[sent.as_bytes()], "a:1").await;
        assert_eq!(String::from_utf8(got).unwrap(), request("a:1", expected));
    }
}

#[tokio::test]
async fn a_service_with_tls_has_an_https_origin() {
    let (mut far, mut near) = duplex(4096);
    let mut named = HostRewriter::new(&mut near, "app.intern", true);
    let request = "GET / HTTP/1.1\r\nHost: web.test\r\nOrigin: https://web.test\r\n\r\n";
    far.write_all(request.as_bytes()).await.unwrap();
    let mut got = vec![0; 512];
    let read = named.read(&mut got).await.unwrap();
    let got = String::from_utf8_lossy(&got[..read]);
    assert!(got.contains("Origin: https://app.intern\r\n"), "{got}");
    let redirect =
        |to: &str| format!("HTTP/1.1 301 Moved\r\nLocation: {to}/a\r\nContent-Length: 0\r\n\r\n");
    let own = redirect("https://app.intern");
    named.write_all(own.as_bytes()).await.unwrap();
    named.shutdown().await.unwrap();
    let mut got = String::new();
    far.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, redirect("https://web.test"));
}

#[tokio::test]
async fn only_the_public_origin_is_renamed() {
    for (origin, proto, host, renamed) in [
        ("https://web.test", "https", "web.test", true),
        ("https://web.test:443", "https", "web.test", true),
        ("https://web.test:8443", "https", "WEB.test:8443", true),
        ("http://web.test", "http", "web.test:80", true),
        ("http://web.test", "https", "web.test", false),
        ("https://web.test.evil.test", "https", "web.test", false),
        ("https://web.test:8443", "https", "web.test", false),
        ("https://other.test", "https", "web.test", false),
        ("null", "https", "web.test", false),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nX-Forwarded-Proto: {proto}\r\n\r\n"
        );
        let got = through(&[request.as_bytes()], "a:1").await;
        let got = String::from_utf8(got).unwrap();
        assert_eq!(got.contains("Origin: http://a:1\r\n"), renamed, "{got}");
    }
}

#[tokio::test]
async fn a_truncated_request_is_truncated_at_the_service() {
    for broken in [
        "GET / HTTP/1.1\r\nHost: a",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let got = through(&[broken.as_bytes()], "a").await;
        assert_eq!(
            got.escape_ascii().to_string(),
            broken.escape_default().to_string()
        );
    }
}

#[tokio::test]
async fn an_invalid_request_breaks_the_stream() {
    let (mut far, mut near) = duplex(64);
    far.write_all(b"\x16\x03\x01\x00\x05hello").await.unwrap();
    let mut named = HostRewriter::new(&mut near, "a", false);
    let error = named.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// Bytes after an upgrade that look like a request.
const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: web.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const BEHIND: &[u8] = b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n";

#[tokio::test]
async fn bytes_after_an_accepted_upgrade_pass_unchanged() {
    let got = upgraded("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert!(got.ends_with(BEHIND), "{}", got.escape_ascii());
}

#[tokio::test]
async fn the_request_after_a_refused_upgrade_is_rewritten() {
    for answer in [
        "HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
    ] {
        let got = upgraded(answer).await;
        let renamed = b"GET / HTTP/1.1\r\nHost: a:1\r\n\r\n";
        assert!(got.ends_with(renamed), "{}", got.escape_ascii());
    }
}

/// Returns the bytes that the service gets after an upgrade, to which it responds byte by byte.
async fn upgraded(answer: &str) -> Vec<u8> {
    let (mut far, mut near) = duplex(1024);
    let mut named = HostRewriter::new(&mut near, "a:1", false);
    far.write_all(UPGRADE).await.unwrap();
    far.write_all(BEHIND).await.unwrap();
    let mut got = vec![0; UPGRADE.len() - "web.test".len() + "a:1".len()];
    named.read_exact(&mut got).await.unwrap();
    // The rest cannot be classified yet.
    let mut early = [0; 1];
    let waits = tokio::time::timeout(std::time::Duration::ZERO, named.read(&mut early));
    waits.await.unwrap_err();
    for byte in answer.as_bytes() {
        named.write_all(&[*byte]).await.unwrap();
    }
    far.shutdown().await.unwrap();
    named.read_to_end(&mut got).await.unwrap();
    got
}

#[tokio::test]
async fn an_unanswered_upgrade_does_not_block() {
    let (mut far, mut near) = duplex(1024);
    let mut named = HostRewriter::new(&mut near, "a:1", false);
    far.write_all(UPGRADE).await.unwrap();
    far.shutdown().await.unwrap();
    // The service closes the connection.
    let mut got = Vec::new();
    let read = async {
        let mut some = [0; 512];
        let read = named.read(&mut some).await.unwrap();
        got.extend_from_slice(&some[..read]);
        named.shutdown().await.unwrap();
        named.read_to_end(&mut got).await.unwrap();
    };
    read.await;
    assert!(got.starts_with(b"GET /ws HTTP/1.1\r\nHost: a:1\r\n"));
}

/// Returns the response that a visitor of this host gets, if the service writes it in pieces of
/// this length and then closes.
async fn answered(host: &str, answer: &str, pieces: usize) -> String {
    let (mut far, mut near) = duplex(100);
    let mut named = HostRewriter::new(&mut near, "localhost:5173", false);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Proto: https\r\n\r\n");
    far.write_all(request.as_bytes()).await.unwrap();
    assert!(named.read(&mut [0; 512]).await.unwrap() > 0);
    let given = async {
        for piece in answer.as_bytes().chunks(pieces) {
            named.write_all(piece).await.unwrap();
        }
        named.shutdown().await.unwrap();
    };
    let mut got = String::new();
    let ((), read) = tokio::join!(given, far.read_to_string(&mut got));
    read.unwrap();
    got
}

#[tokio::test]
async fn redirects_to_the_service_are_rewritten() {
    let public = "https://web.test:8443";
    for (location, shown) in [
        (
            "http://localhost:5173/login?a#b",
            "https://web.test:8443/login?a#b",
        ),
        ("HTTP://LocalHost:5173/", "https://web.test:8443/"),
        ("http://localhost:5173", public),
        ("http://localhost:5173?a", "https://web.test:8443?a"),
        ("//localhost:5173/a", "https://web.test:8443/a"),
        ("/login", "/login"),
        ("login", "login"),
        ("https://localhost:5173/", "https://localhost:5173/"),
        ("http://localhost/", "http://localhost/"),
        ("http://localhost:51730/", "http://localhost:51730/"),
        ("http://localhost:5173.test/", "http://localhost:5173.test/"),
        ("http://a@localhost:5173/", "http://a@localhost:5173/"),
        (
            "http://localhost:5173@other.test/",
            "http://localhost:5173@other.test/",
        ),
        ("http://127.0.0.1:5173/", "http://127.0.0.1:5173/"),
        (
            "https://other.test/?to=http://localhost:5173/",
            "https://other.test/?to=http://localhost:5173/",
        ),
        ("", ""),
    ] {
        for field in ["Location", "content-location"] {
            let answer = |value: &str| {
                format!(
                    "HTTP/1.1 302 Found\r\nX-A:  1 \r\n{field}: {value}\r\n\
                     Link: <http://localhost:5173/>\r\nContent-Length: 2\r\n\r\nhi"
                )
            };
            for pieces in [1, 7, usize::MAX] {
                let got = answered("web.test:8443", &answer(location), pieces).await;
                assert_eq!(got, answer(shown), "in pieces of {pieces}");
            }
        }
    }
}

#[tokio::test]
async fn response_bytes_outside_of_heads_stay_unchanged() {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://localhost:5173/\r\n\r\n";
    for answer in [
        // A body that looks like a head.
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{redirect}",
            redirect.len()
        ),
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{redirect}\r\n0\r\n\r\n",
            redirect.len()
        ),
        format!("HTTP/1.1 200 OK\r\n\r\n{redirect}"),
        // Unparsable and truncated responses.
        format!("HTTP/9 200 OK\r\n\r\n{redirect}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{redirect}"),
        "HTTP/1.1 302 Found\r\nLocation: http://localhost:5173/\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5".to_owned(),
    ] {
        for pieces in [1, 7, usize::MAX] {
            let got = answered("web.test", &answer, pieces).await;
            assert_eq!(got, answer, "in pieces of {pieces}");
        }
    }
}

/// The response to every request uses the name of that request.
#[tokio::test]
async fn each_response_uses_the_name_of_its_request() {
    let (mut far, mut near) = duplex(4096);
    let mut named = HostRewriter::new(&mut near, "localhost:5173", false);
    let requests = "GET / HTTP/1.1\r\nHost: one.test\r\nX-Forwarded-Proto: https\r\n\r\n\
        GET / HTTP/1.1\r\nHost: two.test\r\nX-Forwarded-Proto: http\r\n\r\n";
    far.write_all(requests.as_bytes()).await.unwrap();
    assert!(named.read(&mut [0; 512]).await.unwrap() > 0);
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let redirect =
        |to: &str| format!("HTTP/1.1 301 Moved\r\nLocation: {to}/a\r\nContent-Length: 0\r\n\r\n");
    let own = redirect("http://localhost:5173");
    named
        .write_all(format!("{early}{own}{own}").as_bytes())
        .await
        .unwrap();
    named.shutdown().await.unwrap();
    let mut got = String::new();
    far.read_to_string(&mut got).await.unwrap();
    let shown = [redirect("https://one.test"), redirect("http://two.test")].concat();
    assert_eq!(got, format!("{early}{shown}"));
}

/// A request with any body framing: the sent bytes and the bytes for the service.
fn request() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let body = prop::collection::vec(any::<u8>(), 0..600);
    (body, 0..4_u8, 1..64_usize).prop_map(|(body, framing, chunk)| {
        let mut rest = Vec::new();
        match framing {
            0 => rest.extend_from_slice(b"\r\n"),
            1 => {
                rest.extend_from_slice(
                    format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(),
                );
                rest.extend_from_slice(&body);
            }
            _ => {
                rest.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for part in body.chunks(chunk) {
                    rest.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                    rest.extend_from_slice(part);
                    rest.extend_from_slice(b"\r\n");
                }
                let trailer: &[u8] = if framing == 2 {
                    b""
                } else {
                    b"X-Sum: Host: b\r\n"
                };
                rest.extend_from_slice(b"0\r\n");
                rest.extend_from_slice(trailer);
                rest.extend_from_slice(b"\r\n");
            }
        }
        let with = |host: &str| {
            let mut whole = format!("POST /p HTTP/1.1\r\nHost: {host}\r\nX-A: b\r\n").into_bytes();
            whole.extend_from_slice(&rest);
            whole
        };
        (with("web.t.test"), with("localhost:5173"))
    })
}

proptest! {
    /// The service gets the same bytes for every segmentation of a pipeline.
    #[test]
    fn any_segmentation_gives_the_same_result(
        requests in prop::collection::vec(request(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let sent: Vec<u8> = requests.iter().flat_map(|(sent, _)| sent.clone()).collect();
        let expected: Vec<u8> = requests.iter().flat_map(|(_, seen)| seen.clone()).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sent.len())).collect();
        cuts.sort_unstable();
        cuts.push(sent.len());
        let (mut machine, mut answers) = (
            Requests::new("localhost:5173", false),
            Answers::new("localhost:5173", false),
        );
        let (mut raw, mut got, mut from) = (Vec::new(), Vec::new(), 0);
        for cut in cuts {
            raw.extend_from_slice(&sent[from..cut]);
            from = cut;
            let used = machine.advance(&raw, &mut got, &mut answers).unwrap();
            raw.drain(..used);
        }
        prop_assert!(raw.is_empty());
        prop_assert_eq!(got, expected);
    }
}
