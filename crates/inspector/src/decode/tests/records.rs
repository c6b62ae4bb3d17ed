//! Recorded data of exchanges, and hints derived from responses.

use super::*;

#[test]
fn a_development_server_that_refuses_the_host_is_recognised() {
    let vite = "Blocked request. This host (\"x.test\") is not allowed.\nTo allow this host, add \"x.test\" to `server.allowedHosts` in vite.config.js.";
    for (status, body, server) in [
        (403, vite, Some("Vite")),
        (403, "Invalid Host header", Some("The development server")),
        (400, "<title>DisallowedHost at /</title>", Some("Django")),
        (400, "bad", None),
        (200, "Invalid Host header", None),
    ] {
        let response = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let store = follow(&passing(&[(Visitor, &get("/")), (Service, &response)]));
        let hint = store.get(1).unwrap().summary.hint;
        assert_eq!(
            hint,
            server.map(|server| Hint::HostRefused {
                server,
                rewrite: true
            }),
            "{body}"
        );
    }
}

/// `--host-header` works only for services with HTTP/1.1 without TLS.
#[test]
fn useless_options_are_not_suggested() {
    let refused = "HTTP/1.1 403 X\r\nContent-Length: 19\r\n\r\nInvalid Host header";
    for (tls, suggested) in [(false, true), (true, false)] {
        let mut store = Store::default();
        let mut decoder = Decoder::new(origin());
        if tls {
            decoder.opened("web.test");
        }
        let now = Timestamp::UNIX_EPOCH;
        decoder.visitor_sent(get("/").as_bytes(), &mut store, now);
        decoder.service_sent(refused.as_bytes(), &mut store, now);
        let text = store.get(1).unwrap().summary.hint.unwrap().text();
        assert_eq!(text.contains("--host-header"), suggested, "{text}");
    }
}

#[test]
fn records_are_limited_and_the_oldest_are_removed_first() {
    let body = vec![b'x'; BODY_BYTES + 1000];
    let mut passing = Vec::new();
    for _ in 0..MAX_EXCHANGES {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        passing.push((Visitor, get("/").into_bytes()));
        passing.push((Service, [head.as_bytes(), &body].concat()));
    }
    let store = follow(&passing);
    assert!(store.bytes() <= MAX_BYTES);
    let held: usize = store.iter().map(|one| one.response_body.kept.len()).sum();
    assert!(held <= MAX_BYTES && held > MAX_BYTES / 2, "{held}");
    let newest = store.iter().last().unwrap();
    assert_eq!(newest.summary.id, MAX_EXCHANGES as u64);
    assert_eq!(newest.response_body.kept.len(), BODY_BYTES);
    assert_eq!(newest.response_body.size, body.len() as u64);

    let mut passing = websocket();
    passing.truncate(2);
    for _ in 0..MESSAGES + 10 {
        passing.push((Service, frame(0x81, None, b"tick")));
    }
    let store = follow(&passing);
    let exchange = store.get(1).unwrap();
    assert_eq!(
        (exchange.messages.len(), exchange.removed_messages),
        (MESSAGES, 10)
    );
    assert_eq!(exchange.messages[0].number, 11);
}

#[test]
fn a_pause_skips_only_new_requests() {
    let mut store = Store::default();
    let mut decoder = Decoder::new(origin());
    let now = Timestamp::UNIX_EPOCH;
    decoder.visitor_sent(get("/a").as_bytes(), &mut store, now);
    store.pause(true);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    decoder.service_sent(response, &mut store, now);
    decoder.visitor_sent(get("/b").as_bytes(), &mut store, now);
    decoder.service_sent(response, &mut store, now);
    store.pause(false);
    decoder.visitor_sent(get("/c").as_bytes(), &mut store, now);
    let paths: Vec<_> = store.iter().map(|one| &*one.summary.path).collect();
    assert_eq!(paths, ["/a", "/c"]);
    assert_eq!(store.get(1).unwrap().summary.status, Some(200));
}
