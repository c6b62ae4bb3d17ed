//! Services that answer with invalid responses, or with unsolicited upgrades.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::connection::read_available;
use crate::http2::{self, END_STREAM, GOAWAY, HEADERS, RST_STREAM};
use crate::target::{Target, request_fields};

pub(crate) fn run(target: &mut Target, budget: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let response = Arc::new(Mutex::new(Vec::new()));
    let address = serve(&response)?;
    let agent = target.publish(&address.to_string(), &["--http"])?;
    let host = agent.hostname()?.to_owned();
    let set = |bytes: &[u8]| {
        bytes.clone_into(&mut response.lock().unwrap_or_else(PoisonError::into_inner));
    };
    for bytes in known() {
        set(&bytes);
        plain(target, &host)?;
        http2(target, &host, "GET")?;
        let upgraded = upgrade(target, &host)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        ensure!(
            !upgraded.starts_with("HTTP/1.1 101 "),
            "the edge passed an upgrade that does not match the request: {text}"
        );
        target
            .check()
            .with_context(|| format!("the response {text:?}"))?;
    }
    let seeds = known();
    let deadline = Instant::now() + budget;
    let mut round = 0_u32;
    while Instant::now() < deadline {
        let Some(seed) = random.choice(&seeds) else {
            break;
        };
        let mut bytes = seed.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..=bytes.len());
            bytes.insert(at, *random.choice(b"\r\n:; \0\xffaZ9").unwrap_or(&b' '));
        }
        set(&bytes);
        plain(target, &host)?;
        http2(target, &host, if random.bool() { "GET" } else { "HEAD" })?;
        round += 1;
        if round.is_multiple_of(64) {
            target.check()?;
        }
    }
    Ok(())
}

/// A service that answers every request with the configured bytes, and closes.
fn serve(response: &Arc<Mutex<Vec<u8>>>) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let response = Arc::clone(response);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let response = Arc::clone(&response);
            thread::spawn(move || answer(stream, &response));
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, response: &Mutex<Vec<u8>>) {
    let Ok(reader) = stream.try_clone() else {
        return;
    };
    let mut reader = BufReader::new(reader);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(reader.read_until(b'\n', &mut head), Ok(1..)) {
            return;
        }
    }
    let bytes = response
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    // The engine may have closed already.
    stream.write_all(&bytes).ok();
    stream.shutdown(Shutdown::Write).ok();
}

fn plain(target: &Target, host: &str) -> Result<()> {
    let mut connection = target.connector.tls(host, b"http/1.1")?;
    write!(
        connection,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let response = read_available(&mut connection, 1024 * 1024);
    ensure!(
        response.starts_with(b"HTTP/1.1 "),
        "the visitor received no response: {:?}",
        String::from_utf8_lossy(&response)
    );
    Ok(())
}

fn upgrade(target: &Target, host: &str) -> Result<String> {
    let mut connection = target.connector.tls(host, b"http/1.1")?;
    write!(
        connection,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )?;
    let mut first = BufReader::new(&mut connection);
    let mut line = String::new();
    first.read_line(&mut line).ok();
    Ok(line)
}

fn http2(target: &Target, host: &str, method: &str) -> Result<()> {
    let mut connection = target.connector.tls(host, b"h2")?;
    let block = http2::encode_fields(&request_fields(method, "/", host));
    let mut out = Vec::new();
    http2::write_preface(&mut out, 65_535);
    http2::write_headers(&mut out, 1, END_STREAM, &block);
    connection.write_all(&out)?;
    let ends = |frame: &http2::Frame| matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY);
    http2::read_until(&mut connection, ends)?;
    Ok(())
}

/// Responses that are invalid, or do not match the request.
fn known() -> Vec<Vec<u8>> {
    // For another key than the request's, whose correct value is not among these.
    let accept = "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let texts = [
        String::new(),
        "garbage".to_owned(),
        "HTTP/1.1 200".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nab".to_owned(),
        "HTTP/1.1 200 OK\r\nX: y\0z\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n X: folded\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 1000 High\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc".to_owned(),
        "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(200),
        format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(300_000)),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            .to_owned(),
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{accept}\r\n\r\n"
        ),
        "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
    ];
    texts.map(String::into_bytes).to_vec()
}
