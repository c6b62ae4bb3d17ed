//! nginx as a private service: the requests and answers of a real server.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use aws_lc_rs::digest;
use e2e::{Agent, Answer, Curl, Nginx, Svc};
use serde_json::json;

#[test]
fn connections_to_the_service_are_kept_and_reused() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let agent = Agent::forward(&svc, &nginx.http1(), &["--http"])?;
    let curl = Curl::new(&svc);
    let mut connections = BTreeSet::new();
    for version in ["--http1.1", "--http2"] {
        // curl sends twenty requests of one range, one after the other.
        let requests = format!("{}[1-20]", agent.url("/seen?"));
        let answers = curl.start(&[version, &requests])?.rest()?;
        let answers = serde_json::Deserializer::from_slice(&answers).into_iter();
        let seen: Vec<serde_json::Value> = answers.collect::<Result<_, _>>()?;
        assert_eq!(seen.len(), 20, "{version}");
        connections.extend(seen.iter().map(|seen| seen["connection"].to_string()));
        let uris: Vec<&str> = seen
            .iter()
            .filter_map(|seen| seen["uri"].as_str())
            .collect();
        let asked: Vec<String> = (1..=20).map(|n| format!("/seen?{n}")).collect();
        assert_eq!(uris, asked, "{version}");
    }
    // Visitors on new connections use the service connections of earlier visitors.
    for _ in 0..10 {
        let answer = curl.get(&[&agent.url("/seen")])?;
        connections.insert(answer.json()["connection"].to_string());
    }
    // One for each core that accepted visitors.
    let cores = std::thread::available_parallelism()?.get();
    assert!(connections.len() <= cores, "{connections:?}");
    Ok(())
}

#[test]
fn the_edge_sets_the_fields_that_nginx_logs() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let curl = Curl::new(&svc);
    let services = [
        (nginx.http1(), &[][..], "HTTP/1.1", "http"),
        (
            nginx.h2c(),
            &["--http-version", "h2c"][..],
            "HTTP/2.0",
            "http",
        ),
        (nginx.tls(), &[][..], "HTTP/2.0", "https"),
        (nginx.tls_http1(), &[][..], "HTTP/1.1", "https"),
    ];
    for (target, flags, protocol, scheme) in services {
        let flags = [&["--http"][..], flags].concat();
        let agent = Agent::forward(&svc, &target, &flags)?;
        for version in ["--http1.1", "--http2"] {
            let answer = curl.get(&[version, &agent.url("/seen?a=%2Fb")])?;
            assert_eq!(answer.status, 200, "{target}, {version}: {answer:?}");
            let seen = answer.json();
            assert_eq!(seen["protocol"], protocol, "{target}, {version}");
            assert_eq!(seen["scheme"], scheme);
            assert_eq!(seen["uri"], "/seen?a=%2Fb");
            let authority = agent.url("").replace("https://", "");
            assert_eq!(seen["host"], authority, "{target}, {version}");
            assert_eq!(seen["forwarded_host"], authority);
            assert_eq!(seen["forwarded_for"], "127.0.0.1");
            assert_eq!(seen["forwarded_proto"], "https");
        }
    }
    Ok(())
}

#[test]
fn a_large_file_is_transferred_completely_in_both_directions() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let sum = write_large(&nginx.root().join("large"))?;
    let curl = Curl::new(&svc);
    let by_http1 = Agent::forward(&svc, &nginx.http1(), &["--http"])?;
    let directory = tempfile::tempdir()?;
    let fetched = directory.path().join("fetched");
    curl.start(&[&by_http1.url("/large"), "-o", path(&fetched)?])?
        .rest()?;
    assert_eq!(sum_of(&fetched)?, sum);

    // Uploaded again, with HTTP/2 on both sides.
    let by_h2c = Agent::forward(&svc, &nginx.h2c(), &["--http", "--http-version", "h2c"])?;
    for (agent, version) in [(&by_http1, "--http1.1"), (&by_h2c, "--http2")] {
        let put = curl.get(&[version, "-T", path(&fetched)?, &agent.url("/put")])?;
        assert!([201, 204].contains(&put.status), "{put:?}");
        assert_eq!(sum_of(&nginx.root().join("put"))?, sum, "{version}");
    }
    curl.start(&["--http2", &by_h2c.url("/put"), "-o", path(&fetched)?])?
        .rest()?;
    assert_eq!(sum_of(&fetched)?, sum);
    Ok(())
}

#[test]
fn ranges_conditions_and_encodings_are_left_to_the_service() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let text: Vec<u8> = (0..=250_u8).cycle().take(100_000).collect();
    fs::write(nginx.root().join("file"), &text)?;
    fs::write(nginx.root().join("gzip/file"), &text)?;
    let plain = Agent::forward(&svc, &nginx.http1(), &["--http"])?;
    let h2c = Agent::forward(&svc, &nginx.h2c(), &["--http", "--http-version", "h2c"])?;
    let curl = Curl::new(&svc);
    for (agent, version) in [
        (&plain, "--http1.1"),
        (&plain, "--http2"),
        (&h2c, "--http1.1"),
        (&h2c, "--http2"),
    ] {
        let get = |path: &str, more: &[&str]| -> Result<Answer> {
            curl.get(&[&[version, &agent.url(path)], more].concat())
        };
        let whole = get("/file", &[])?;
        assert_eq!((whole.status, &whole.body), (200, &text));
        let tag = whole.header("etag").context("no etag")?;

        let range = get("/file", &["-r", "1000-1009"])?;
        assert_eq!(
            (range.status, range.body.as_slice()),
            (206, &text[1000..1010])
        );
        assert_eq!(
            range.header("content-range"),
            Some("bytes 1000-1009/100000")
        );
        let beyond = get("/file", &["-r", "200000-"])?;
        assert_eq!(beyond.status, 416);

        let fresh = get("/file", &["-H", &format!("If-None-Match: {tag}")])?;
        assert_eq!((fresh.status, fresh.body.len()), (304, 0), "{fresh:?}");
        assert_eq!(fresh.header("etag"), Some(tag));

        let packed = get("/gzip/file", &["-H", "Accept-Encoding: gzip"])?;
        assert_eq!(
            packed.header("content-encoding"),
            Some("gzip"),
            "{packed:?}"
        );
        assert_eq!(packed.body.get(..2), Some(&[0x1f, 0x8b][..]));
        let unpacked = get("/gzip/file", &["--compressed"])?;
        assert_eq!(unpacked.body, text);
        let asked_for_none = get("/gzip/file", &[])?;
        assert_eq!(asked_for_none.header("content-encoding"), None);

        let head = get("/file", &["-I"])?;
        assert_eq!(head.header("content-length"), Some("100000"), "{head:?}");
        assert_eq!(get("/nowhere", &[])?.status, 404);
    }
    Ok(())
}

/// nginx closes a connection after five requests. No visitor loses an answer, whatever its method.
#[test]
fn a_service_may_close_its_connections() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let curl = Curl::new(&svc);
    let [http1, h2c] = nginx.short_lived();
    for (target, flags) in [(http1, &[][..]), (h2c, &["--http-version", "h2c"][..])] {
        let agent = Agent::forward(&svc, &target, &[&["--http"][..], flags].concat())?;
        let requests = format!("{}[1-100]", agent.url("/read?"));
        for version in ["--http1.1", "--http2"] {
            let one_by_one = [version, "--fail-early", "--data", "x=y", &requests];
            let at_once = [&one_by_one[..], &["--parallel", "--parallel-max", "20"]].concat();
            for args in [&one_by_one[..], &at_once] {
                let answers = curl.start(args)?.rest()?;
                let answers = serde_json::Deserializer::from_slice(&answers).into_iter();
                let seen: Vec<serde_json::Value> = answers.collect::<Result<_, _>>()?;
                assert_eq!(seen.len(), 100, "{target}, {args:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn many_parallel_visitors_are_served() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let curl = Curl::new(&svc);
    let services = [
        (nginx.http1(), &[][..]),
        (nginx.h2c(), &["--http-version", "h2c"][..]),
        (nginx.tls(), &[][..]),
    ];
    for (target, flags) in services {
        let agent = Agent::forward(&svc, &target, &[&["--http"][..], flags].concat())?;
        let requests = format!("{}[1-300]", agent.url("/seen?"));
        for version in ["--http1.1", "--http2"] {
            let args = [version, "--parallel", "--parallel-max", "100", &requests];
            let answers = curl.start(&args)?.rest()?;
            let answers = serde_json::Deserializer::from_slice(&answers).into_iter();
            let seen: Vec<serde_json::Value> = answers.collect::<Result<_, _>>()?;
            let other = seen.iter().find(|seen| seen["uri"].is_null());
            let log = || format!("{}\n{}", svc.log(), agent.log());
            assert_eq!(other, None, "{target}, {version}: {}", log());
            let uris: BTreeSet<&str> = seen
                .iter()
                .filter_map(|seen| seen["uri"].as_str())
                .collect();
            assert_eq!(uris.len(), 300, "{target}, {version}");
        }
    }
    Ok(())
}

#[test]
fn bytes_pass_tls_and_tcp_tunnels_unchanged() -> Result<()> {
    let (first, last) = ports::lease_range(4).into_inner();
    let svc = Svc::engine_with(&json!({"tcp": {"port_range": format!("{first}-{last}")}}))?;
    let nginx = Nginx::start()?;
    let at_nginx = nginx.tls().replace("https://", "");

    // The handshake is with nginx: its authority, and its choice of protocol.
    let flags = ["--tls", "--tls-mode", "passthrough"];
    let passed = Agent::forward(&svc, &at_nginx, &flags)?;
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let url = format!("https://{}:{port}/seen", passed.hostname()?);
    let answer = Curl::trusting(nginx.ca_file()).get(&["--http2", &url])?;
    assert_eq!(
        (answer.status, answer.version.as_str()),
        (200, "2"),
        "{answer:?}"
    );
    assert_eq!(answer.json()["forwarded_for"], "", "{answer:?}");
    assert!(
        Curl::new(&svc).get(&[&url]).is_err(),
        "it has our certificate"
    );

    // Terminated at the edge, with the protocol that the tunnel names.
    let flags = ["--tls", "--tls-alpns", "http/1.1"];
    let ended = Agent::forward(&svc, &nginx.http1(), &flags)?;
    let url = format!("https://{}:{port}/seen", ended.hostname()?);
    let answer = Curl::new(&svc).get(&["--http2", &url])?;
    assert_eq!(
        (answer.status, answer.version.as_str()),
        (200, "1.1"),
        "{answer:?}"
    );

    let tcp = Agent::forward(&svc, &nginx.http1(), &["--tcp"])?;
    let port = tcp.online()["port"].as_u64().context("no port")?;
    assert!((first.into()..=last.into()).contains(&port));
    let answer = Curl::new(&svc).get(&[&format!("http://127.0.0.1:{port}/seen")])?;
    assert_eq!(answer.json()["scheme"], "http", "{answer:?}");
    Ok(())
}

/// A sparse file whose blocks contain their position, and its digest.
fn write_large(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::create(path)?;
    let mut block = vec![0; BLOCK];
    for place in 0..BLOCKS {
        block[..8].copy_from_slice(&place.to_be_bytes());
        file.write_all(&block)?;
    }
    sum_of(path)
}

fn sum_of(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut sum = digest::Context::new(&digest::SHA256);
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(sum.finish().as_ref().to_vec()),
            read => sum.update(&block[..read]),
        }
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

const BLOCK: usize = 64 * 1024;

/// 256 MiB: more than all buffers and windows between the ends.
const BLOCKS: u64 = 4096;
