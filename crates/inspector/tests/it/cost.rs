//! The cost of recording, printed and not asserted:
//! `cargo test --release -p inspector cost -- --nocapture` on a quiet machine.

use std::time::{Duration, Instant};

use client::tap::Visit;
use inspector::{Inspector, RecordingMode};

#[test]
fn recording_a_request_takes_microseconds() {
    let inspector = Inspector::new(RecordingMode::Always);
    let visit = Visit::new("", None);
    let mut stream = inspector
        .tap("3000".parse().unwrap())
        .stream(&visit)
        .unwrap();
    let request = "GET /items/17?page=2 HTTP/1.1\r\nHost: web.example\r\nAccept: */*\r\n\
        User-Agent: curl/8.5.0\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 192.0.2.1\r\n\
        X-Forwarded-Proto: https\r\nX-Forwarded-Host: web.example\r\n\
        Forwarded: for=192.0.2.1;host=\"web.example\";proto=https\r\n\r\n";
    let body = "x".repeat(1024);
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sun, 22 Nov 2026 12:00:00 GMT\r\n\
         Content-Length: 1024\r\n\r\n{body}"
    );
    let rounds = 20_000;
    let began = Instant::now();
    for _ in 0..rounds {
        stream.to_service(request.as_bytes());
        stream.to_visitor(response.as_bytes());
    }
    let small = began.elapsed() / rounds;
    let pieces = 1000_u64;
    let piece = vec![b'x'; 64 * 1024];
    stream.to_service(request.as_bytes());
    let length = pieces * piece.len() as u64;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    stream.to_visitor(head.as_bytes());
    let began = Instant::now();
    for _ in 0..pieces {
        stream.to_visitor(&piece);
    }
    let large = began.elapsed();
    println!("a small request: {small:?}; 62.5 MiB of a body: {large:?}");
    // Far above the unoptimised cost. The limit only detects an error of an order of magnitude.
    assert!(small < Duration::from_millis(2), "{small:?}");
}
