//! curl as a visitor of published names, of the engine's own name, and of the plain listener.

use anyhow::Result;
use e2e::{Agent, Curl, Service, Svc};
use serde_json::json;

#[test]
fn a_visitor_may_use_either_version_and_the_edge_sets_the_forwarding_fields() -> Result<()> {
    let svc = Svc::engine()?;
    let agent = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let curl = Curl::new(&svc);
    for (flag, version) in [("--http1.0", "1.0"), ("--http1.1", "1.1"), ("--http2", "2")] {
        let url = agent.url("/a/%7Eb?c=d");
        let forged = [
            "X-Forwarded-For: 192.0.2.1",
            "X-Real-IP: 192.0.2.1",
            "Forwarded: for=192.0.2.1",
            "svc-user-id: somebody",
            "x-svc-anything: forged",
        ];
        let mut args = vec![flag, &url];
        args.extend(forged.iter().flat_map(|field| ["-H", field]));
        let answer = curl.get(&args)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        // The answer to an HTTP/1.0 request has the server's own version (RFC 9110 section 2.5).
        let expected = if version == "1.0" { "1.1" } else { version };
        assert_eq!(answer.version, expected);
        let seen = answer.text();
        assert!(seen.starts_with("GET /a/%7Eb?c=d HTTP/1.1\r\n"), "{seen}");
        let host = format!("{}:{}", agent.hostname()?, port(&svc));
        for field in [
            format!("host: {host}"),
            "x-forwarded-for: 127.0.0.1".to_owned(),
            "x-forwarded-proto: https".to_owned(),
            format!("x-forwarded-host: {host}"),
        ] {
            assert!(has_line(&seen, &field), "{field} is not in {seen}");
        }
        assert!(!seen.contains("192.0.2.1"), "{seen}");
        assert!(
            !seen.contains("somebody") && !seen.contains("forged"),
            "{seen}"
        );
    }
    Ok(())
}

/// EN-1a, ED-1d: the whole published name belongs to the upstream, including its queries.
#[test]
fn a_published_name_contains_nothing_of_the_engine() -> Result<()> {
    let svc = Svc::engine()?;
    let agent = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let curl = Curl::new(&svc);
    for path in [
        "/api/tunnels",
        "/api/clients",
        "/api/sse",
        "/api/openapi.json",
        "/healthz",
    ] {
        let answer = curl.get(&[&agent.url(path)])?;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.text().starts_with(&format!("GET {path} ")),
            "{answer:?}"
        );
    }
    Ok(())
}

#[test]
fn a_large_body_waits_for_100_continue() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let curl = Curl::new(&svc);
    let directory = tempfile::tempdir()?;
    let body: Vec<u8> = (0..=250_u8).cycle().take(3 << 20).collect();
    let file = directory.path().join("body");
    std::fs::write(&file, &body)?;
    let data = format!("@{}", file.display());
    for version in ["--http1.1", "--http2"] {
        let url = agent.url("/upload");
        let mut args = vec![version, &url, "--data-binary", &data];
        // Longer than curl's time limit, so the test fails without the interim answer. Over HTTP/2
        // older versions of curl do not wait.
        args.extend(["-H", "Expect: 100-continue", "--expect100-timeout", "600"]);
        let upload = curl.start(&args)?;
        let mut call = service.next()?;
        assert!(
            has_line(&call.head, "content-length: 3145728"),
            "{}",
            call.head
        );
        assert!(
            has_line(&call.head, "expect: 100-continue"),
            "{}",
            call.head
        );
        call.write("HTTP/1.1 100 Continue\r\n\r\n")?;
        assert!(call.read(body.len())? == body, "{version}: another body");
        call.write("HTTP/1.1 201 Created\r\nContent-Length: 4\r\nConnection: close\r\n\r\nkept")?;
        assert_eq!(upload.rest()?, b"kept", "{version}");
    }
    Ok(())
}

#[test]
fn a_service_refuses_a_large_body_before_it_is_sent() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("body");
    std::fs::write(&file, vec![b'x'; 8 << 20])?;
    let data = format!("@{}", file.display());
    let url = agent.url("/upload");
    let curl = Curl::new(&svc);
    let args = [
        "--http1.1",
        &url,
        "--data-binary",
        &data,
        "-H",
        "Expect: 100-continue",
    ];
    let upload = curl.start(&[args.as_slice(), &["--expect100-timeout", "600"]].concat())?;
    let mut call = service.next()?;
    call.write(
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n",
    )?;
    assert_eq!(upload.rest()?, b"no\n");
    Ok(())
}

/// The service does not read the rest of a body, and its system resets the connection.
#[test]
fn an_answer_arrives_before_the_reset_of_its_upload() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("body");
    std::fs::write(&file, vec![b'x'; 8 << 20])?;
    let data = format!("@{}", file.display());
    let url = agent.url("/upload");
    let curl = Curl::new(&svc);
    for version in ["--http1.1", "--http2"] {
        let upload = curl.start(&[version, &url, "--data-binary", &data, "-H", "Expect:"])?;
        let mut call = service.next()?;
        call.read(1 << 20)?;
        call.write(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n",
        )?;
        drop(call);
        assert_eq!(upload.rest()?, b"no\n", "{version}");
    }
    Ok(())
}

#[test]
fn early_hints_precede_the_answer() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let curl = Curl::new(&svc);
    for version in ["--http1.1", "--http2"] {
        let request = curl.start(&[version, &agent.url("/page")])?;
        let mut call = service.next()?;
        call.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")?;
        call.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")?;
        let heads = request.heads()?;
        let statuses = heads.lines().filter(|line| line.starts_with("HTTP/"));
        let statuses: Vec<_> = statuses.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(statuses, ["103", "200"], "{heads}");
        assert!(has_line(&heads, "link: </a.css>; rel=preload"), "{heads}");
    }
    Ok(())
}

#[test]
fn every_chunk_arrives_when_it_is_written_and_trailers_follow() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    for version in ["--http1.1", "--http2"] {
        let mut download =
            Curl::new(&svc).start(&[version, &agent.url("/"), "-H", "TE: trailers"])?;
        let mut call = service.next()?;
        call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n")?;
        for chunk in ["one", "two", "six"] {
            call.write(format!("3\r\n{chunk}\r\n"))?;
            // No other data is in flight, so the chunk arrives before the next one is written.
            assert_eq!(download.read(3)?, chunk.as_bytes(), "{version}");
        }
        call.write("0\r\nX-Sum: 9\r\n\r\n")?;
        let heads = download.heads()?;
        assert!(has_line(&heads, "x-sum: 9"), "{version}: {heads}");
    }
    Ok(())
}

#[test]
fn a_truncated_body_never_looks_complete() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    for version in ["--http1.1", "--http2"] {
        for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let mut download = Curl::new(&svc).start(&[version, &agent.url("/")])?;
            let mut call = service.next()?;
            call.write(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n"))?;
            call.write(if head.ends_with("10") {
                "four"
            } else {
                "4\r\nfour\r\n"
            })?;
            assert_eq!(download.read(4)?, b"four");
            drop(call);
            assert!(download.rest().is_err(), "{version}, {head}");
        }
    }
    Ok(())
}

#[test]
fn a_service_notices_that_its_visitor_has_disconnected() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    for version in ["--http1.1", "--http2"] {
        let mut download = Curl::new(&svc).start(&[version, &agent.url("/")])?;
        let mut call = service.next()?;
        // Once while the client waits for the head, and once while it reads the body.
        if version == "--http2" {
            call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour")?;
            assert_eq!(download.read(4)?, b"four");
        }
        drop(download);
        assert!(call.is_closed(), "{version}");
    }
    Ok(())
}

#[test]
fn a_slow_reader_applies_back_pressure_to_the_service() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    for version in ["--http1.1", "--http2"] {
        let mut download = Curl::new(&svc).start(&[version, &agent.url("/")])?;
        let mut call = service.next()?;
        call.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun")?;
        assert_eq!(download.read(5)?, b"begun");
        // Buffers of five sockets and three programs, which is far less than the service would
        // send.
        let taken = call.write_until_blocked(256 << 20)?;
        assert!(taken < 64 << 20, "{version}: {taken} bytes are somewhere");
        drop(call);
        assert_eq!(download.rest()?.len(), taken, "{version}");
    }
    Ok(())
}

#[test]
fn head_and_http_1_0_get_compatible_answers() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    let curl = Curl::new(&svc);
    for version in ["--http1.1", "--http2"] {
        let asked = curl.start(&[version, "-I", &agent.url("/")])?;
        let mut call = service.next()?;
        assert!(
            call.head.starts_with("HEAD / HTTP/1.1\r\n"),
            "{}",
            call.head
        );
        call.write("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")?;
        let head = String::from_utf8(asked.rest()?)?;
        assert!(has_line(&head, "content-length: 12345"), "{head}");
    }

    // HTTP/1.0 has no chunks.
    let download = curl.start(&["--http1.0", "-i", &agent.url("/")])?;
    let mut call = service.next()?;
    call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")?;
    let answer = String::from_utf8(download.rest()?)?;
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(
        !answer.to_ascii_lowercase().contains("transfer-encoding"),
        "{answer}"
    );
    Ok(())
}

/// ED-1, ED-1a, ED-1b: proofs, and that they are not forwarded.
#[test]
fn a_token_authorises_a_guarded_name_and_does_not_reach_the_service() -> Result<()> {
    let svc = Svc::engine()?;
    let agent = Agent::forward(
        &svc,
        &Service::mirror()?.to_string(),
        &["--http", "--token-auth"],
    )?;
    let curl = Curl::new(&svc);
    let token = svc.token();
    let bearer = format!("Authorization: Bearer {token}");
    let get = |path: &str, more: &[&str]| curl.get(&[&[agent.url(path).as_str()], more].concat());

    let refused = get("/", &[])?;
    assert_eq!(refused.status, 401, "{refused:?}");
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    assert!(
        challenge.starts_with("Bearer") && !challenge.contains("error"),
        "{challenge}"
    );

    let by_header = get("/x", &["-H", &bearer])?;
    assert_eq!(by_header.status, 200, "{by_header:?}");
    assert!(!by_header.text().contains(&token), "{by_header:?}");
    assert!(
        has_line(&by_header.text(), "svc-user-id: usr_test"),
        "{by_header:?}"
    );

    // The query is the proof, so the header belongs to the application.
    let path = format!("/x?a=1&svc.token={token}&b=%20");
    let referer = format!("{}?svc.token={token}&c=2", agent.url("/before"));
    let other = "Authorization: Bearer of.the.application";
    let by_query = get(&path, &["-H", other, "--referer", &referer])?;
    assert_eq!(by_query.status, 200, "{by_query:?}");
    let seen = by_query.text();
    assert!(seen.starts_with("GET /x?a=1&b=%20 HTTP/1.1\r\n"), "{seen}");
    assert!(
        has_line(&seen, "authorization: Bearer of.the.application"),
        "{seen}"
    );
    assert!(seen.contains("/before?c=2\r\n"), "{seen}");
    assert!(!seen.contains(&token), "{seen}");

    // The bearer is never used instead.
    for query in ["svc.token=", "svc.token", "svc.token=a.b", "svc.token=%zz"] {
        let malformed = get(&format!("/x?{query}"), &["-H", &bearer])?;
        assert_eq!(malformed.status, 400, "{query}: {malformed:?}");
    }
    let twice = format!("/x?svc.token={token}&svc.token={token}");
    assert_eq!(get(&twice, &["-H", &bearer])?.status, 400);
    let wrong = get("/x?svc.token=a.b.c", &["-H", &bearer])?;
    assert_eq!(wrong.status, 401, "{wrong:?}");
    let expired = svc.token_with(&json!({"exp": 1_000_000_000}));
    let expired = get("/x", &["-H", &format!("Authorization: Bearer {expired}")])?;
    assert_eq!(expired.status, 401, "{expired:?}");
    Ok(())
}

/// EN-10: the handshake names the requested host.
#[test]
fn an_unserved_name_gets_the_right_error() -> Result<()> {
    let svc = Svc::engine()?;
    let mut agent = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let other = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let curl = Curl::new(&svc);
    for version in ["--http1.1", "--http2"] {
        let host = format!("Host: {}", other.hostname()?);
        let misdirected = curl.get(&[version, &agent.url("/"), "-H", &host])?;
        assert_eq!(misdirected.status, 421, "{misdirected:?}");
    }

    let unknown_url = format!("https://nobody.t.engine.localhost:{}/", port(&svc));
    let unknown = curl.get(&[&unknown_url])?;
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["code"], "tunnel_not_found", "{unknown:?}");
    let media_type = unknown.header("content-type").unwrap_or_default();
    assert!(
        media_type.starts_with("application/problem+json"),
        "{unknown:?}"
    );
    let page = curl.get(&[&unknown_url, "-H", "Accept: text/html"])?;
    assert_eq!(page.status, 404);
    assert!(
        page.header("content-type")
            .unwrap_or_default()
            .starts_with("text/html")
    );

    agent.process().terminate()?;
    assert_eq!(agent.process().wait_for_exit()?, Some(0));
    let offline = curl.get(&[&agent.url("/")])?;
    assert_eq!(offline.status, 503);
    assert_eq!(offline.json()["code"], "tunnel_offline", "{offline:?}");
    assert!(offline.header("retry-after").is_some(), "{offline:?}");
    Ok(())
}

#[test]
fn a_service_that_is_down_is_a_bad_gateway() -> Result<()> {
    let svc = Svc::engine()?;
    let port = ports::lease();
    let agent = Agent::forward(&svc, &format!("127.0.0.1:{port}"), &["--http"])?;
    let answer = Curl::new(&svc).get(&[&agent.url("/")])?;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.json()["code"], "upstream_unreachable", "{answer:?}");
    Ok(())
}

/// ED-1e: the plain listener redirects to https, and never with a token.
#[test]
fn the_plain_listener_redirects_and_never_repeats_a_token() -> Result<()> {
    let plain = json!({"http": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let svc = Svc::engine_with(&plain)?;
    let curl = Curl::new(&svc);
    let http = svc.ready()["http_url"].as_str().unwrap_or_default();
    let plain_port = http.rsplit(':').next().unwrap_or_default();
    let base = format!("http://web.t.engine.localhost:{plain_port}");

    for method in ["GET", "HEAD"] {
        let args = if method == "HEAD" { vec!["-I"] } else { vec![] };
        let moved = curl.get(&[&args[..], &[&format!("{base}/a?b=c")]].concat())?;
        assert_eq!(moved.status, 308, "{moved:?}");
        let location = moved.header("location").unwrap_or_default();
        let https = format!("https://web.t.engine.localhost:{}/a?b=c", port(&svc));
        assert_eq!(location, https, "{method}");
    }
    let token = svc.token();
    for query in [
        "svc.token=".to_owned() + &token,
        "a=1&svc%2Etoken=x".to_owned(),
    ] {
        let refused = curl.get(&[&format!("{base}/a?{query}")])?;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert_eq!(refused.header("location"), None, "{refused:?}");
        assert!(!refused.text().contains(&token), "{refused:?}");
    }
    let posted = curl.get(&["--data", "a=b", &format!("{base}/a")])?;
    assert_eq!(posted.status, 403, "{posted:?}");
    assert_eq!(posted.json()["code"], "https_required", "{posted:?}");
    Ok(())
}

/// EN-5, EN-6, EN-7: the Engine API, called with curl.
#[test]
fn the_engine_answers_on_its_own_name() -> Result<()> {
    let svc = Svc::engine()?;
    let curl = Curl::new(&svc);
    let url = |path: &str| format!("https://{}{path}", svc.address());
    let document = curl.get(&[&url("/api/openapi.json")])?;
    assert_eq!(document.status, 200);
    let version = document.json()["openapi"].to_string();
    assert!(version.starts_with("\"3.1"), "{version}");

    let bearer = format!("Authorization: Bearer {}", svc.token());
    let list = curl.get(&["-H", &bearer, &url("/api/tunnels")])?;
    assert_eq!((list.status, list.json()), (200, json!([])));
    // In the query it is not a credential here.
    let by_query = curl.get(&[&url(&format!("/api/tunnels?svc.token={}", svc.token()))])?;
    assert!([400, 401].contains(&by_query.status), "{by_query:?}");
    let weak = svc.token_with(&json!({"permissions": ["tunnels.streams.create-delete"]}));
    let weak = curl.get(&[
        "-H",
        &format!("Authorization: Bearer {weak}"),
        &url("/api/tunnels"),
    ])?;
    assert_eq!(weak.status, 403, "{weak:?}");
    let challenge = weak.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("insufficient_scope"), "{challenge}");
    assert!(
        challenge.contains("tunnels.resources.read-only"),
        "{challenge}"
    );
    Ok(())
}

fn port(svc: &Svc) -> &str {
    svc.address().rsplit(':').next().unwrap_or_default()
}

/// True if a head has this line, ignoring the case of the field's name.
fn has_line(head: &str, line: &str) -> bool {
    head.lines().any(|found| {
        let same =
            |at: usize| found.is_char_boundary(at) && found[..at].eq_ignore_ascii_case(&line[..at]);
        let colon = line.find(':').unwrap_or_default();
        found.len() == line.len() && same(colon) && found[colon..] == line[colon..]
    })
}
