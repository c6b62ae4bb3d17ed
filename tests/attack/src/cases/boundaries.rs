//! Paths that a token confined to `/public/` must not open.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::connection::read_available;
use crate::http2::{self, END_STREAM, HEADERS};
use crate::oracle::PRIVATE;
use crate::target::{Target, request_fields};

pub(crate) fn run(target: &mut Target, _: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let host = target.protected_host()?.to_owned();
    let token = target.token(&json!({
        "permissions": ["tunnels.streams.create-delete"],
        "resources": {"tunnels": {
            "projects": ["default"],
            "scopes": {"tunnels": {"connect": {"params": {"path": {"regex": "/public/.*"}}}}},
        }},
    }));
    let allowed = http1(target, &host, "/public/page", &token)?;
    ensure!(
        allowed.starts_with("HTTP/1.1 200 "),
        "the boundary refuses its own path: {allowed}"
    );
    for path in bypasses(random) {
        http1(target, &host, &path, &token)?;
        http2(target, &host, &path, &token)?;
        target
            .check()
            .with_context(|| format!("the path {path:?}"))?;
    }
    Ok(())
}

fn http1(target: &Target, host: &str, path: &str, token: &str) -> Result<String> {
    let mut connection = target.connector.tls(host, b"http/1.1")?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         X-Original-URL: {PRIVATE}\r\nX-Rewrite-URL: {PRIVATE}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    Ok(String::from_utf8_lossy(&read_available(&mut connection, 64 * 1024)).into_owned())
}

fn http2(target: &Target, host: &str, path: &str, token: &str) -> Result<()> {
    let mut connection = target.connector.tls(host, b"h2")?;
    let mut fields = request_fields("GET", path, host);
    fields.push((b"authorization".to_vec(), format!("Bearer {token}").into()));
    let mut out = Vec::new();
    http2::write_preface(&mut out, 65_535);
    http2::write_headers(&mut out, 1, END_STREAM, &http2::encode_fields(&fields));
    connection.write_all(&out)?;
    let ends = |frame: &http2::Frame| frame.kind == HEADERS || frame.kind == http2::RST_STREAM;
    http2::read_until(&mut connection, ends)?;
    Ok(())
}

/// Ways to write a path that one parser resolves below `/public/` and another does not.
fn bypasses(random: &mut fastrand::Rng) -> Vec<String> {
    let ups = [
        "..",
        "%2e%2e",
        ".%2e",
        "%2E.",
        "..;",
        "..;x=y",
        "..%20",
        "..%09",
        "..%00",
        "%252e%252e",
        "%c0%ae%c0%ae",
        "..\\",
        "..%5c",
        "..%2f",
        "%2e%2e%2f",
        "..%252f",
    ];
    let mut all: Vec<String> = ups
        .iter()
        .flat_map(|up| {
            [
                format!("/public/{up}{PRIVATE}"),
                format!("/public/x/{up}/{up}{PRIVATE}"),
                format!("/public/{up}/{up}{PRIVATE}?/public/"),
            ]
        })
        .collect();
    all.extend([
        PRIVATE.to_owned(),
        format!("/{PRIVATE}"),
        format!("//public{PRIVATE}/.."),
        format!("{PRIVATE}/../public/"),
        format!("{PRIVATE};/public/"),
        format!("{PRIVATE}%3f/public/"),
        format!("{PRIVATE}?/public/x"),
        format!("/PUBLIC/..{PRIVATE}"),
    ]);
    for _ in 0..32 {
        let parts: Vec<&str> = (0..random.usize(1..4))
            .map(|_| *random.choice(&ups).unwrap_or(&".."))
            .collect();
        all.push(format!("/public/{}{PRIVATE}", parts.join("/")));
    }
    all
}
