use http1::{Limits, Progress, Protocols, Slots, parse_request, parse_response};

use super::*;

/// The head that a service receives for this request, with plain line feeds.
fn upstream_head(request: &str, change: impl FnOnce(&mut UpstreamRequestHead<'_>)) -> String {
    let mut slots = Slots::new();
    let parsed = parse_request(request.as_bytes(), &Limits::default(), &mut slots);
    let Ok(Progress::Complete { head, .. }) = parsed else {
        panic!("not a request: {request}")
    };
    let mut upstream_head = UpstreamRequestHead {
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
        identity: &[],
        visitor: None,
    };
    change(&mut upstream_head);
    let mut out = Vec::new();
    upstream_head.write(&mut out, head.fields.iter());
    String::from_utf8(out).unwrap().replace("\r\n", "\n")
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let head = upstream_head(
        "GET /a?b HTTP/1.1\r\nHost: web.example\r\nConnection: keep-alive, x-mine\r\nX-Mine: 1\r\n\
         Keep-Alive: 5\r\nTE: gzip\r\nProxy-Authorization: Basic eA==\r\nAccept: */*\r\n\r\n",
        |_| {},
    );
    assert_eq!(
        head,
        "GET /a?b HTTP/1.1\nhost: web.example\nAccept: */*\n\
         x-forwarded-for: 192.0.2.7\nx-forwarded-proto: https\nx-forwarded-host: web.example\n\
         forwarded: for=192.0.2.7;host=\"web.example\";proto=https\n\
         cdn-loop: svc.example\n\n"
    );
}

#[test]
fn forwarding_fields_of_visitors_are_dropped() {
    let head = upstream_head(
        "GET / HTTP/1.1\r\nHost: web.example\r\nX-Forwarded-For: 10.0.0.1\r\n\
         X_Forwarded_For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nX-Real-IP: 10.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: other\r\nSvc-User-Id: root\r\n\
         X-Svc-Admin: 1\r\n\r\n",
        |_| {},
    );
    assert!(!head.contains("10.0.0.1"), "{head}");
    assert!(
        !head.contains("root") && !head.contains("dmin") && !head.contains("other"),
        "{head}"
    );
}

#[test]
fn proxy_headers_pass_only_if_the_tunnel_accepts_them() {
    let mut request = "GET / HTTP/1.1\r\nHost: web.example\r\n".to_owned();
    for header in ProxyHeader::ALL {
        for name in [header.to_string(), header.to_string().replace('-', "_")] {
            request = format!("{request}{name}: evil\r\n");
        }
    }
    request.push_str("\r\n");
    let head = upstream_head(&request, |_| {});
    assert!(!head.contains("evil"), "{head}");
    for header in ProxyHeader::ALL {
        let head = upstream_head(&request, |upstream_head| {
            upstream_head.pass_headers = std::slice::from_ref(header);
        });
        assert!(head.contains(&format!("{header}: evil\n")), "{head}");
        assert_eq!(head.matches("evil").count(), 1, "{head}");
    }
}

#[test]
fn credentials_of_the_edge_are_not_forwarded() {
    let request = "GET / HTTP/1.1\r\nHost: web.example\r\nAuthorization: Bearer secret\r\n\
                   Cookie: a=1; __Host-svc_auth=secret; b=2\r\n\
                   Referer: https://web.example/x?svc.token=secret&q=1\r\n\r\n";
    let head = upstream_head(request, |upstream_head| {
        upstream_head.strip_authorization = true;
    });
    assert!(!head.contains("secret"), "{head}");
    assert!(head.contains("Cookie: a=1; b=2\n"), "{head}");
    assert!(
        head.contains("Referer: https://web.example/x?q=1\n"),
        "{head}"
    );
    // ED-1a: a bearer token that is not a credential of the edge belongs to the application.
    let head = upstream_head(request, |_| {});
    assert!(head.contains("Authorization: Bearer secret\n"), "{head}");
    let request = "GET / HTTP/1.1\r\nHost: web.example\r\n\
                   Referer: https://web.example/\u{e4}?svc.token=secret&q=1\r\n\r\n";
    let head = upstream_head(request, |_| {});
    assert!(
        !head.contains("secret") && head.contains("?q=1\n"),
        "{head}"
    );
}

#[test]
fn ipv6_sources_are_bracketed_in_forwarded() {
    let head = upstream_head(
        "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n",
        |upstream_head| {
            upstream_head.source = "2001:db8::1".parse().unwrap();
        },
    );
    assert!(head.contains("x-forwarded-for: 2001:db8::1\n"), "{head}");
    assert!(head.contains("forwarded: for=\"[2001:db8::1]\";"), "{head}");
}

#[test]
fn upgrade_fields_are_written_again() {
    let head = upstream_head(
        "GET /ws HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        |_| {},
    );
    assert!(
        head.contains("\nconnection: Upgrade\nupgrade: websocket\n"),
        "{head}"
    );
}

fn visitor_head(response: &str, version: Version, keep_alive: bool) -> (String, Framing, bool) {
    let mut slots = Slots::new();
    let parsed = parse_response(response.as_bytes(), &Limits::default(), false, &mut slots);
    let Ok(Progress::Complete { head, .. }) = parsed else {
        panic!("not a response: {response}")
    };
    let mut out = Vec::new();
    let (framing, keep_alive) = write_response(
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
        keep_alive,
    )
}

#[test]
fn responses_are_framed_for_the_visitors_version() {
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
    for (response, version, framing, keep_alive, written) in cases {
        let got = visitor_head(response, version, true);
        assert_eq!(
            got,
            (written.to_owned(), framing, keep_alive),
            "{response:?} for {version:?}"
        );
    }
    assert!(
        !visitor_head(sized, Version::Http11, false).2,
        "`keep_alive` is false for a connection that closes"
    );
}

/// RFC 9110, 15.5.22 and 7.8: a 426 names the required protocol, for clients that can upgrade.
#[test]
fn a_426_names_the_required_protocol() {
    let wanted =
        "HTTP/1.1 426 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n";
    let head = |version, keep_alive| visitor_head(wanted, version, keep_alive).0;
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
