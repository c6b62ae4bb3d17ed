use http1::{Limits, Progress, Protocols, Slots, parse_request, parse_response};

use super::*;

/// What a service gets of this request, with lines for the eye.
fn onward(request: &str, change: impl FnOnce(&mut UpstreamRequestHead<'_>)) -> String {
    let mut slots = Slots::new();
    let parsed = parse_request(request.as_bytes(), &Limits::default(), &mut slots);
    let Ok(Progress::Complete { head, .. }) = parsed else {
        panic!("not a request: {request}")
    };
    let mut onward = UpstreamRequestHead {
        method: head.method,
        target: head.target,
        authority: head.authority,
        source: "192.0.2.7".parse().unwrap(),
        engine: field_value!("svc.example"),
        body: head.body,
        upgrade: head.upgrade.and_then(Protocols::only),
        proof: None,
        strip_authorization: false,
        pass_headers: &[],
        reserved: query_credential::NAMES,
    };
    change(&mut onward);
    let mut out = Vec::new();
    onward.write(&mut out, head.fields.iter());
    String::from_utf8(out).unwrap().replace("\r\n", "\n")
}

#[test]
fn what_belongs_to_the_visitors_connection_stays_there() {
    let seen = onward(
        "GET /a?b HTTP/1.1\r\nHost: web.example\r\nConnection: keep-alive, x-mine\r\nX-Mine: 1\r\n\
         Keep-Alive: 5\r\nTE: gzip\r\nProxy-Authorization: Basic eA==\r\nAccept: */*\r\n\r\n",
        |_| {},
    );
    assert_eq!(
        seen,
        "GET /a?b HTTP/1.1\nhost: web.example\nAccept: */*\n\
         x-forwarded-for: 192.0.2.7\nx-forwarded-proto: https\nx-forwarded-host: web.example\n\
         forwarded: for=192.0.2.7;host=\"web.example\";proto=https\n\
         cdn-loop: svc.example\n\n"
    );
}

#[test]
fn a_visitor_cannot_speak_for_the_edge() {
    let seen = onward(
        "GET / HTTP/1.1\r\nHost: web.example\r\nX-Forwarded-For: 10.0.0.1\r\n\
         X_Forwarded_For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: other\r\nSvc-User-Id: root\r\n\
         X-Svc-Admin: 1\r\n\r\n",
        |_| {},
    );
    assert!(!seen.contains("10.0.0.1"), "{seen}");
    assert!(
        !seen.contains("root") && !seen.contains("dmin") && !seen.contains("other"),
        "{seen}"
    );
}

#[test]
fn a_visitor_cannot_speak_for_a_proxy_unless_the_tunnel_says_so() {
    let mut request = "GET / HTTP/1.1\r\nHost: web.example\r\n".to_owned();
    for header in ProxyHeader::ALL {
        for name in [header.to_string(), header.to_string().replace('-', "_")] {
            request = format!("{request}{name}: evil\r\n");
        }
    }
    request.push_str("\r\n");
    let seen = onward(&request, |_| {});
    assert!(!seen.contains("evil"), "{seen}");
    for header in ProxyHeader::ALL {
        let seen = onward(&request, |onward| {
            onward.pass_headers = std::slice::from_ref(header);
        });
        assert!(seen.contains(&format!("{header}: evil\n")), "{seen}");
        assert_eq!(seen.matches("evil").count(), 1, "{seen}");
    }
}

#[test]
fn the_edges_own_credentials_do_not_travel_on() {
    let request = "GET / HTTP/1.1\r\nHost: web.example\r\nAuthorization: Bearer secret\r\n\
                   Cookie: a=1; __Host-svc_auth=secret; b=2\r\n\
                   Referer: https://web.example/x?svc.token=secret&q=1\r\n\r\n";
    let seen = onward(request, |onward| onward.strip_authorization = true);
    assert!(!seen.contains("secret"), "{seen}");
    assert!(seen.contains("Cookie: a=1; b=2\n"), "{seen}");
    assert!(
        seen.contains("Referer: https://web.example/x?q=1\n"),
        "{seen}"
    );
    // ED-1a: a bearer that was no credential of the edge's is the application's.
    let seen = onward(request, |_| {});
    assert!(seen.contains("Authorization: Bearer secret\n"), "{seen}");
    let request = "GET / HTTP/1.1\r\nHost: web.example\r\n\
                   Referer: https://web.example/\u{e4}?svc.token=secret&q=1\r\n\r\n";
    let seen = onward(request, |_| {});
    assert!(
        !seen.contains("secret") && seen.contains("?q=1\n"),
        "{seen}"
    );
}

#[test]
fn an_ipv6_source_is_written_as_its_fields_want_it() {
    let seen = onward("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", |onward| {
        onward.source = "2001:db8::1".parse().unwrap();
    });
    assert!(seen.contains("x-forwarded-for: 2001:db8::1\n"), "{seen}");
    assert!(seen.contains("forwarded: for=\"[2001:db8::1]\";"), "{seen}");
}

#[test]
fn an_upgrade_is_asked_for_anew() {
    let seen = onward(
        "GET /ws HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        |_| {},
    );
    assert!(
        seen.contains("\nconnection: Upgrade\nupgrade: websocket\n"),
        "{seen}"
    );
}

fn back(response: &str, version: Version, keep_alive: bool) -> (String, Framing, bool) {
    let mut slots = Slots::new();
    let parsed = parse_response(response.as_bytes(), &Limits::default(), false, &mut slots);
    let Ok(Progress::Complete { head, .. }) = parsed else {
        panic!("not a response: {response}")
    };
    let mut out = Vec::new();
    let (framing, lives) = write_response(
        &mut out,
        &head,
        ResponseFormat {
            version,
            keep_alive,
        },
    );
    (
        String::from_utf8(out).unwrap().replace("\r\n", "\n"),
        framing,
        lives,
    )
}

#[test]
fn a_response_is_framed_for_the_visitor_who_gets_it() {
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let open = "HTTP/1.1 200 \r\n\r\n";
    let cases = [
        (
            sized,
            Version::Http11,
            Framing::Same,
            true,
            "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        ),
        (
            sized,
            Version::Http10,
            Framing::Same,
            true,
            "HTTP/1.1 200 OK\nContent-Length: 2\nconnection: keep-alive\n\n",
        ),
        (
            chunks,
            Version::Http11,
            Framing::Same,
            true,
            "HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n",
        ),
        (
            chunks,
            Version::Http10,
            Framing::Bare,
            false,
            "HTTP/1.1 200 OK\nconnection: close\n\n",
        ),
        (
            open,
            Version::Http11,
            Framing::Chunks,
            true,
            "HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n",
        ),
        (
            open,
            Version::Http10,
            Framing::Bare,
            false,
            "HTTP/1.1 200 OK\nconnection: close\n\n",
        ),
    ];
    for (response, version, framing, lives, written) in cases {
        let got = back(response, version, true);
        assert_eq!(
            got,
            (written.to_owned(), framing, lives),
            "{response:?} for {version:?}"
        );
    }
    assert!(
        !back(sized, Version::Http11, false).2,
        "a connection that ends is not kept"
    );
}

/// RFC 9110, 15.5.22 and 7.8: a 426 says what it asks for, to those who may upgrade.
#[test]
fn a_426_names_the_protocol_that_it_asks_for() {
    let wanted =
        "HTTP/1.1 426 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n";
    let head = |version, lives| back(wanted, version, lives).0;
    let start = "HTTP/1.1 426 x\nContent-Length: 0\n";
    let upgrade = "connection: Upgrade\nupgrade: websocket\n";
    assert_eq!(head(Version::Http11, true), format!("{start}{upgrade}\n"));
    assert_eq!(
        head(Version::Http11, false),
        format!("{start}{upgrade}connection: close\n\n")
    );
    assert_eq!(
        head(Version::Http10, false),
        format!("{start}connection: close\n\n")
    );
}
