//! HTTP/1.1 requests whose end two parsers might see in different places.

use std::io::Write as _;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::connection::read_available;
use crate::oracle::{FORGED, SMUGGLED};
use crate::target::Target;

pub(crate) fn run(target: &mut Target, budget: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let host = target.open_host()?.to_owned();
    for request in known(&host) {
        send(target, &host, &request)?;
    }
    target.check()?;
    let seeds = known(&host);
    let deadline = Instant::now() + budget;
    let served_before = target.oracle.served();
    let mut round = 0_u32;
    while Instant::now() < deadline {
        let Some(seed) = random.choice(&seeds) else {
            break;
        };
        send(target, &host, &mutated(seed, random))?;
        round += 1;
        if round.is_multiple_of(64) {
            target.check()?;
        }
    }
    // If all requests of a case are refused immediately, it tests nothing beyond that.
    ensure!(
        target.oracle.served() > served_before,
        "none of {round} requests reached the service"
    );
    Ok(())
}

/// Sends the bytes, closes that direction, and reads the answer.
fn send(target: &Target, host: &str, request: &[u8]) -> Result<()> {
    let mut connection = target.connector.tls(host, b"http/1.1")?;
    if connection.write_all(request).is_err() {
        return Ok(());
    }
    connection.conn.send_close_notify();
    connection.flush().ok();
    connection.sock.shutdown(Shutdown::Write).ok();
    read_available(&mut connection, 256 * 1024);
    Ok(())
}

/// Known classes: two lengths, a coding in disguise, obsolete folding, bare line ends, hidden bytes.
fn known(host: &str) -> Vec<Vec<u8>> {
    let hidden = format!("GET {SMUGGLED} HTTP/1.1\r\nHost: x\r\nx-forwarded-for: {FORGED}\r\n\r\n");
    let length = hidden.len();
    let with = |fields: &str, body: &str| {
        format!("POST /known HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n{body}").into_bytes()
    };
    let framings = [
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: +{length}\r\n"),
        format!("Content-Length: 0x{length:x}\r\n"),
        format!("Content-Length : {length}\r\n"),
        format!("Content-Length:\x0b{length}\r\n"),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding:\tchunked\r\nTransfer-Encoding: identity\r\n".to_owned(),
        "Transfer-Encoding:\r\n chunked\r\n".to_owned(),
        "Transfer-Encoding: \x00chunked\r\n".to_owned(),
        "X: y\nTransfer-Encoding: chunked\r\n".to_owned(),
        "X: y\rTransfer-Encoding: chunked\r\n".to_owned(),
        "Expect: 100-continue\r\nContent-Length: 0\r\n".to_owned(),
        "Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n".to_owned(),
        "Connection: x-forwarded-for, host\r\nContent-Length: 0\r\n".to_owned(),
    ];
    let mut all: Vec<_> = framings
        .iter()
        .flat_map(|fields| {
            [
                with(fields, &hidden),
                with(fields, &format!("0\r\n\r\n{hidden}")),
            ]
        })
        .collect();
    let chunks = [
        format!("{length:x};ext=\"\n\"\r\n{hidden}\r\n0\r\n\r\n"),
        format!("{length:x} \r\n{hidden}\r\n0\r\n\r\n"),
        format!("{length:x}\n{hidden}\r\n0\r\n\r\n"),
        format!("0{length:x}\r\n{hidden}0\r\n\r\n"),
        format!("10000000000000000\r\n{hidden}\r\n0\r\n\r\n"),
        format!("1\r\nAA\r\n0\r\n\r\n{hidden}"),
        format!("0\r\nsvc-user-id: {FORGED}\r\nx-forwarded-for: {FORGED}\r\n\r\n"),
        format!("0\r\ncontent-length: {length}\r\n\r\n"),
    ];
    all.extend(
        chunks
            .iter()
            .map(|body| with("Transfer-Encoding: chunked\r\n", body)),
    );
    let lines = [
        format!("GET /a HTTP/1.1\r\nHost: {host}\r\nHost: x\r\n\r\n"),
        format!("GET http://x/a HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET  /a HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET /a#b HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET /a HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET /a\r\nHost: {host}\r\n\r\n"),
        format!("\r\n\r\nGET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET /a HTTP/1.1\nHost: {host}\n\n"),
        format!(
            "GET /a HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: {FORGED}\r\nSVC-User-Id: {FORGED}\r\n\r\n"
        ),
    ];
    all.extend(lines.map(String::into_bytes));
    all
}

/// The request with a few bytes changed, removed or repeated.
fn mutated(seed: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..bytes.len());
        match random.u8(..4) {
            0 => bytes.insert(at, random.u8(..)),
            1 => {
                bytes.remove(at);
            }
            2 => {
                let special = *random.choice(b"\r\n \t:;,\0\"").unwrap_or(&b' ');
                bytes.insert(at, special);
            }
            _ => {
                let end = (at + random.usize(..24)).min(bytes.len());
                let part = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, part);
            }
        }
        if bytes.is_empty() {
            return seed.to_vec();
        }
    }
    bytes
}
