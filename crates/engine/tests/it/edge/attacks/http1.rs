//! Attacks by HTTP/1.1 visitors.

use testing::{RawVisitor, ReceivedResponse, Report, ScriptedUpstream, Step, TestEngine};

use super::{Site, Table};

/// The valid request that an attacker wants the edge or the service to find inside the attack.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: HOST\r\n\r\n";

/// Sends bytes in which `HOST` stands for the tunnel's name, and returns everything that the engine
/// sends.
async fn raw_response(engine: &TestEngine, host: &str, bytes: &[u8]) -> String {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.try_send(bytes).await;
    String::from_utf8_lossy(&visitor.read_to_end().await).into_owned()
}

fn with_host(text: &str, host: &str) -> String {
    text.replace("HOST", host)
}

fn statuses(said: &str) -> Vec<&str> {
    said.match_indices("HTTP/1.1 ")
        .filter_map(|(at, line)| said.get(at + line.len()..)?.get(..3))
        // A problem document may mention HTTP versions.
        .filter(|status| status.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// Ambiguous heads get one refusal and the end of the connection. The bytes after them are not read
/// as a request.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn an_ambiguous_head_is_refused_and_ends_its_connection() {
    let site = Site::start().await;
    let host = site.host();
    let other = site.bystander.hostname();
    // Lines of a head after `Host`, without the last line end.
    let fields = [
        // Two lengths, in all combinations (RFC 9112, 6.3).
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: identity\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 0",
        "Content-Length: 5\r\ncontent-length: 6",
        "Content-Length: 5, 5",
        "Content-Length: 5,",
        "Content-Length: ,5",
        "Content-Length:",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5e0",
        "Content-Length: 5.0",
        "Content-Length: 5 5",
        "Content-Length: \"5\"",
        "Content-Length: \u{b}5",
        "Content-Length: \u{665}",
        "Content-Length: 5\0",
        "Content-Length: 18446744073709551621",
        "Content-Length: 99999999999999999999999999999999999999",
        "Content-Length : 5",
        "Content-Length\t: 5",
        " Content-Length: 5",
        // Near matches of `chunked`.
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked;q=0",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding: \u{c}chunked",
        "Transfer-Encoding: chunked\0",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding\0: chunked",
        "Transfer-Encoding\u{a0}: chunked",
        // Folded lines (5.2).
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding:\r\n\tchunked",
        "X: a\r\n Transfer-Encoding: chunked",
        "X: a\r\n b",
        // Invalid line ends.
        "X: a\nTransfer-Encoding: chunked",
        "X: a\rTransfer-Encoding: chunked",
        "X: a\n",
        "X: a\r",
        "X: a\r\n\rX: b",
        "\nX: a",
        // Invalid fields.
        "X",
        "X a",
        ": a",
        "X Y: a",
        "X@Y: a",
        "X: a\u{1}",
        "X: a\u{7f}",
        // Another host.
        "Host: HOST",
        "host: HOST",
        "Host: other.example",
        "Host:",
        "Host : HOST",
        // Too many members to parse.
        "Connection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r",
        "Connection: close;a",
    ];
    let of_fields = fields.map(|lines| format!("POST / HTTP/1.1\r\nHost: HOST\r\n{lines}\r\n\r\n"));
    let heads = [
        // Hosts (3.2.2).
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST, HOST\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@HOST\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST/\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: https://HOST\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST:443:443\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST:65536\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST#\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: HOST\\@other.example\r\n\r\n",
        "GET / HTTP/1.1\r\nX: HOST\r\n Host: HOST\r\n\r\n",
        // Targets (3.2).
        "GET  / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET / a HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /\ta HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET ?a HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET HOST HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET HOST:443 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET https://other.example/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET https://HOST@other.example/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET https://HOST\\@other.example/ HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET https:///a HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET file:///etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "GET javascript:1 HTTP/1.1\r\nHost: HOST\r\n\r\n",
        // Lines and versions.
        "GET / HTTP/1.1\nHost: HOST\n\n",
        "GET / HTTP/1.1\r\nHost: HOST\r\n\n",
        "GET / HTTP/1.1\r\nHost: HOST\n\r\n",
        "GET / HTTP/1.1 \r\nHost: HOST\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: HOST\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\nHost: HOST\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/ 1.1\r\nHost: HOST\r\n\r\n",
        "GET / http/1.1\r\nHost: HOST\r\n\r\n",
        "GET / XHTTP/1.1\r\nHost: HOST\r\n\r\n",
        "G\u{e4}T / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    let of_fields = of_fields.iter().map(String::as_str);
    let mut table = Table::default();
    for head in of_fields.chain(heads) {
        let attack = with_host(&format!("{head}0\r\n\r\n{SMUGGLED}"), host);
        let said = raw_response(&site.engine, host, attack.as_bytes()).await;
        let code = said.contains("\"code\":\"invalid_request\"");
        table.row([head], &(statuses(&said), code), &(vec!["400"], true));
    }
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: HOST\r\n\r\n", "a".repeat(9_000));
    let long_field = format!(
        "GET / HTTP/1.1\r\nHost: HOST\r\nX: {}\r\n\r\n",
        "a".repeat(40_000)
    );
    let long_name = format!(
        "GET / HTTP/1.1\r\nHost: HOST\r\n{}: a\r\n\r\n",
        "a".repeat(40_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: HOST\r\n{}\r\n",
        "X: a\r\n".repeat(200)
    );
    let endless_line = "a".repeat(40_000);
    for (case, head, status) in [
        ("a long target", long_target.as_str(), "414"),
        ("a long field", &long_field, "431"),
        ("a long name", &long_name, "431"),
        ("many fields", &many, "431"),
        ("a line without end", &endless_line, "501"),
        (
            "a long method",
            &format!("{} / HTTP/1.1\r\nHost: HOST\r\n\r\n", "M".repeat(33)),
            "501",
        ),
        (
            "a tunnel within",
            "CONNECT other.example:443 HTTP/1.1\r\nHost: HOST\r\n\r\n",
            "501",
        ),
        (
            "another version",
            "GET / HTTP/1.2\r\nHost: HOST\r\n\r\n",
            "505",
        ),
        (
            "HTTP/2 without being asked",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "505",
        ),
    ] {
        let attack = with_host(&format!("{head}{SMUGGLED}"), host);
        let said = raw_response(&site.engine, host, attack.as_bytes()).await;
        table.row([case], &statuses(&said), &vec![status]);
    }
    table.assert_no_failures();
    // The host of another tunnel is not ambiguous, only wrong. The connection may continue with
    // requests for its own host.
    for target in ["/", &format!("https://{other}/")] {
        let wrong = format!("GET {target} HTTP/1.1\r\nHost: {other}\r\nConnection: close\r\n\r\n");
        let said = raw_response(&site.engine, host, wrong.as_bytes()).await;
        assert_eq!(statuses(&said), ["421"], "{target}");
    }
    site.check_untouched().await;
}

/// A service that reports everything it receives.
async fn listening() -> ScriptedUpstream {
    ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::ReadToEnd]).await
}

/// Chunks that two parsers would end in different places (RFC 9112, 7.1). The service may have
/// received the head by then. It gets neither the end of the request nor anything after it.
#[tokio::test]
async fn an_ambiguous_chunk_ends_the_request_before_its_end() {
    let engine = TestEngine::start().await;
    let service = listening().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    for chunks in [
        "0x3\r\nabc\r\n",
        "+3\r\nabc\r\n",
        "-3\r\nabc\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "3\t\r\nabc\r\n",
        "\r\n3\r\nabc\r\n",
        "\r\n",
        ";a\r\n",
        "3 ;a\r\nabc\r\n",
        "3;\n0\r\n\r\nabc\r\n",
        "3\nabc\r\n",
        "3\rabc\r\n",
        "3\r\nabc\n",
        "3\r\nabcd\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabc\r0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "g\r\nabc\r\n",
        "3g\r\nabc\r\n",
        "\u{ff13}\r\nabc\r\n",
        "ffffffffffffffff\r\nabc\r\n",
        "10000000000000003\r\nabc\r\n",
        "00000000000000000000000000000000003\r\nabc\r\n",
        "0\n\n",
        "0\r\n\n",
        "0\r\nX: a\n\r\n",
        "0\r\nX: a\r\n b\r\n\r\n",
        "0\r\nX a\r\n\r\n",
        "0\r\nX : a\r\n\r\n",
        "0\r\nX: a\0\r\n\r\n",
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let smuggled = with_host(SMUGGLED, host);
        for apart in [false, true] {
            let mut visitor = engine.visitor().http1(host).await;
            if apart {
                // The service has received the head and a chunk when the ambiguous chunk arrives.
                visitor.send(format!("{head}1\r\nx\r\n")).await;
                service.next_head().await;
                visitor
                    .try_send(format!("{chunks}0\r\n\r\n{smuggled}"))
                    .await;
            } else {
                visitor
                    .try_send(format!("{head}{chunks}0\r\n\r\n{smuggled}"))
                    .await;
            }
            let said = visitor.read_to_end().await;
            let said = String::from_utf8_lossy(&said);
            assert_eq!(statuses(&said), ["400"], "{chunks:?}: {said}");
            // Whatever the service received before, the next visitor's request is the next one
            // there.
            let mut next = engine.visitor().http1(host).await;
            next.request("GET", "/next", host, "").await;
            loop {
                match service.report().await {
                    Report::Head { text, .. } if text.starts_with("GET /next ") => break,
                    Report::Head { text, .. } => {
                        assert!(text.starts_with("POST / "), "{chunks:?}: {text}");
                    }
                    Report::Bytes(bytes) => {
                        let bytes = String::from_utf8_lossy(&bytes);
                        assert!(!bytes.contains("smuggled"), "{chunks:?}: {bytes}");
                        assert!(!bytes.contains("\r\n0\r\n"), "{chunks:?}: {bytes}");
                        assert!(!bytes.starts_with("0\r\n"), "{chunks:?}: {bytes}");
                    }
                    Report::Closed => {}
                }
            }
        }
    }
}

/// Trailers arrive after the head has been checked. Trailers that would change the result of that
/// check are not forwarded.
#[tokio::test]
async fn trailers_do_not_override_the_head() {
    let site = Site::start().await;
    let host = site.host();
    let mut visitor = site.engine.visitor().http1(host).await;
    let trailers = "Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nsvc-user-id: a\r\n\
        Authorization: Bearer a\r\nCookie: a=b\r\nX-Forwarded-For: 8.8.8.8\r\nConnection: close\r\n";
    visitor
        .send(format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\n0\r\n{trailers}X-Sum: 1\r\n\r\n"
        ))
        .await;
    let seen = visitor.answer().await.json();
    assert_eq!(seen["body"], "abc");
    assert_eq!(seen["trailers"], serde_json::json!([["x-sum", "1"]]));
}

/// The values of a field that the service received.
fn received_values(answer: &ReceivedResponse, name: &str) -> Vec<String> {
    let seen = answer.json();
    let fields = seen["headers"].as_array().unwrap().iter();
    let fields = fields.filter(|field| field[0] == name);
    fields
        .map(|field| field[1].as_str().unwrap().to_owned())
        .collect()
}

/// `Connection` names fields that are not forwarded (RFC 9110, 7.6.1). It can remove neither the
/// fields that the edge adds nor those that frame the message.
#[tokio::test]
async fn a_visitor_cannot_remove_the_fields_of_the_edge() {
    let site = Site::start().await;
    let host = site.host();
    for option in [
        "host",
        "svc-user-id, svc-credential-id, svc-auth-method",
        "x-forwarded-for, x-forwarded-host, x-forwarded-proto, forwarded",
        "content-length",
        "CONTENT-LENGTH, Host, X-Forwarded-For",
        "transfer-encoding",
        "connection",
        "te, trailer, upgrade",
    ] {
        let mut visitor = site.engine.visitor().http1(host).await;
        for (framing, body) in [
            ("Content-Length: 3", "abc"),
            ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        ] {
            visitor
                .send(format!(
                    "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: {option}\r\n{framing}\r\n\r\n{body}"
                ))
                .await;
            let answer = visitor.answer().await;
            assert_eq!(answer.status, 200, "{option}");
            assert_eq!(answer.json()["body"], "abc", "{option}, {framing}");
            assert_eq!(received_values(&answer, "host"), [host], "{option}");
            let received = |name| received_values(&answer, name);
            assert_eq!(received("x-forwarded-for"), ["127.0.0.1"], "{option}");
            assert_eq!(received("x-forwarded-host"), [host], "{option}");
            assert_eq!(received("forwarded").len(), 1, "{option}");
        }
    }
    // The connection ends if the field contains `close`, whatever else it contains.
    let mut visitor = site.engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Connection: close, host\r\n")
        .await;
    assert_eq!(visitor.answer().await.status, 200);
    assert_eq!(visitor.read_to_end().await, b"");
    site.check_both_tunnels().await;
}

/// An upgrade to another HTTP version would be a connection without any checks.
#[tokio::test]
async fn no_upgrade_bypasses_the_edge() {
    let site = Site::start().await;
    let host = site.host();
    for upgrade in [
        "h2c",
        "H2C",
        "h2",
        "h3",
        "TLS/1.0",
        "HTTP/2.0",
        "HTTP/1.1",
        "websocket, h2c",
        "h2c, websocket",
        " h2c",
    ] {
        let mut visitor = site.engine.visitor().http1(host).await;
        let fields = format!(
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
        );
        visitor.request("GET", "/", host, &fields).await;
        let answer = visitor.answer().await;
        assert_eq!(answer.status, 200, "{upgrade}");
        for name in ["upgrade", "http2-settings", "connection"] {
            assert_eq!(
                received_values(&answer, name),
                Vec::<String>::new(),
                "{upgrade}: {name}"
            );
        }
    }
    site.check_both_tunnels().await;
}

/// Bytes after an upgrade request belong to the new protocol only if the service agrees. Otherwise
/// they are the next request, which is checked like any other.
#[tokio::test]
async fn bytes_after_a_refused_upgrade_are_a_request() {
    let engine = TestEngine::start().await;
    for answer in [
        "HTTP/1.1 426 Upgrade Required\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
    ] {
        let service = ScriptedUpstream::start(move |_| {
            vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd]
        })
        .await;
        let tunnel = engine.publish(service.addr()).await;
        let host = tunnel.hostname();
        let mut visitor = engine.visitor().http1(host).await;
        let asking = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n";
        visitor
            .send(format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\n{asking}\r\n\
                 GET /internal HTTP/1.1\r\nHost: internal.example\r\n\r\n"
            ))
            .await;
        assert_eq!(visitor.answer().await.text(), "no");
        assert!(service.head().await.starts_with("GET / "));
        assert_eq!(visitor.answer().await.status, 421, "it was checked");
        drop(visitor);
        let rest = service.report().await;
        assert_eq!(
            rest,
            Report::Bytes(Vec::new()),
            "nothing of it was forwarded"
        );
    }
    // The protocol cannot be switched while the request body is incomplete.
    let service = ScriptedUpstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n",
    )
    .await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let asking = "Connection: Upgrade\r\nUpgrade: chat\r\nContent-Length: 10\r\n";
    visitor.request("POST", "/", host, asking).await;
    assert_eq!(visitor.answer().await.status, 502);
    assert_eq!(visitor.read_to_end().await, b"");
}

/// A tunnel that leads back to the edge. Raw bytes loop until the agent has no streams left,
/// requests only a few times.
#[tokio::test]
async fn a_loop_ends_at_a_limit() {
    let site = Site::with("limits: {max_streams_per_client: 16}").await;
    let engine = &site.engine;
    let edge = engine.addr();
    // TLS that is not terminated anywhere. The hello names the same tunnel every time.
    let raw = engine
        .publish_as(client::Properties::tls().tls_mode("passthrough"), edge)
        .await;
    let config = engine.ca().client(&[]);
    let visitor = engine.visitor();
    let connecting = visitor.try_connect(raw.hostname(), &config);
    assert!(
        testing::within("end of the loop", connecting)
            .await
            .is_none()
    );
    // The edge is its own service. A request lists the hops that it has passed.
    let looped = engine.publish_tls(edge).await;
    let host = looped.hostname();
    for _ in 0..3 {
        let answer = engine.visitor().http1(host).await.get("/", host).await;
        assert_eq!(answer.status, 508);
    }
    site.check_both_tunnels().await;
}

/// TLS sent to an HTTP listener, and HTTP sent to a TLS listener.
#[tokio::test]
async fn the_wrong_protocol_on_a_port_is_refused() {
    let site = Site::with("http: {enabled: true, listen_addr: '127.0.0.1:0'}").await;
    let host = site.host();
    for first in [
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        b"\x16\x03\x01\xff\xff\x01\x00\x00\x00".to_vec(),
        b"\x80\x2e\x01\x00\x02".to_vec(),
        vec![0; 70_000],
    ] {
        let stream = tokio::net::TcpStream::connect(site.engine.addr())
            .await
            .unwrap();
        let mut visitor = RawVisitor::new(stream);
        visitor.try_send(&first).await;
        visitor.try_finish().await;
        let said = visitor.read_to_end().await;
        assert!(!said.starts_with(b"HTTP/"), "{}", said.escape_ascii());
    }
    let plain = site.engine.running().http_addr().unwrap();
    let name = host.to_owned().try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(site.engine.ca().client(&["http/1.1"]));
    let stream = tokio::net::TcpStream::connect(plain).await.unwrap();
    assert!(connector.connect(name, stream).await.is_err());
    site.check_untouched().await;
}

/// One source cannot use up all handshakes.
#[tokio::test]
async fn handshakes_of_one_source_are_limited() {
    let site = Site::with("limits: {max_handshakes_per_source: 2}").await;
    let edge = site.engine.addr();
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(tokio::net::TcpStream::connect(edge).await.unwrap());
    }
    // Connections are accepted in order, but on several cores. Until both are counted, another one
    // may still pass.
    let config = site.engine.ca().client(&["http/1.1"]);
    let crowded = async {
        while site
            .engine
            .visitor()
            .try_connect(site.host(), &config)
            .await
            .is_some()
        {
            // A connection that arrived during the agent's own handshakes was refused.
            silent.push(tokio::net::TcpStream::connect(edge).await.unwrap());
        }
    };
    testing::within("a handshake too many", crowded).await;
    assert_eq!(site.service.accepted(), 0);
    drop(silent);
    // The edge notices the closed connections one after the other. An accepted connection is
    // served, and the next one may have to retry.
    let served = async {
        loop {
            let visitor = site.engine.visitor();
            if let Some(stream) = visitor.try_connect(site.host(), &config).await {
                break RawVisitor::new(stream).get("/", site.host()).await;
            }
        }
    };
    let answer = testing::within("room for a handshake", served).await;
    assert_eq!(answer.json()["target"], "/");
}
