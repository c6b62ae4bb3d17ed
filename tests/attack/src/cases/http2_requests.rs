//! HTTP/2 requests with arbitrary bytes in every part.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::http2::{self, DATA, END_STREAM, HEADERS, RST_STREAM};
use crate::oracle::{FORGED, RESERVED, SMUGGLED};
use crate::target::{Target, request_fields};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn run(target: &mut Target, budget: Duration, random: &mut fastrand::Rng) -> Result<()> {
    let host = target.open_host()?.to_owned();
    for fields in known(&host) {
        send(
            target,
            &host,
            &Message {
                fields,
                body: Vec::new(),
                trailers: Vec::new(),
            },
        )?;
        target.check()?;
    }
    let deadline = Instant::now() + budget;
    let served_before = target.oracle.served();
    let mut round = 0_u32;
    while Instant::now() < deadline {
        send(target, &host, &arbitrary(&host, random))?;
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

/// The parts of a request.
struct Message {
    fields: Fields,
    body: Vec<u8>,
    trailers: Fields,
}

/// Sends one request on its own connection, and waits until the engine answers the stream or closes
/// the connection.
fn send(target: &Target, host: &str, message: &Message) -> Result<()> {
    let mut connection = target.connector.tls(host, b"h2")?;
    let mut out = Vec::new();
    http2::write_preface(&mut out, 65_535);
    let end = message.body.is_empty() && message.trailers.is_empty();
    let flags = if end { END_STREAM } else { 0 };
    http2::write_headers(&mut out, 1, flags, &http2::encode_fields(&message.fields));
    if !message.body.is_empty() {
        let flags = if message.trailers.is_empty() {
            END_STREAM
        } else {
            0
        };
        http2::write_frame(&mut out, DATA, flags, 1, &message.body);
    }
    if !message.trailers.is_empty() {
        let block = http2::encode_fields(&message.trailers);
        http2::write_headers(&mut out, 1, END_STREAM, &block);
    }
    if connection.write_all(&out).is_err() {
        return Ok(());
    }
    // A CONNECT that the service accepts stays open after its response head.
    let ends = |frame: &http2::Frame| {
        frame.stream == 1 && matches!(frame.kind, HEADERS | RST_STREAM)
            || frame.kind == http2::GOAWAY
    };
    http2::read_until(&mut connection, ends)?;
    Ok(())
}

/// Requests that this engine or some proxy has accepted in the past.
fn known(host: &str) -> Vec<Fields> {
    let hidden = format!("GET {SMUGGLED} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut all = Vec::new();
    let protocols = [
        format!("websocket\r\nsvc-user-id: {FORGED}"),
        format!("websocket\r\n\r\n{hidden}"),
        format!("websocket\nx-forwarded-for: {FORGED}"),
        "websocket\0".to_owned(),
        "web socket".to_owned(),
        String::new(),
    ];
    for protocol in protocols {
        let mut fields = request_fields("CONNECT", "/", host);
        fields.insert(1, (b":protocol".to_vec(), protocol.into_bytes()));
        fields.push((b"sec-websocket-version".to_vec(), b"13".to_vec()));
        all.push(fields);
    }
    let injected = [
        (
            ":path",
            format!("/ HTTP/1.1\r\nsvc-user-id: {FORGED}\r\nx: "),
        ),
        (":path", format!("/#{SMUGGLED}")),
        (":path", "/a b".to_owned()),
        (
            ":method",
            format!("GET {SMUGGLED} HTTP/1.1\r\nx: y\r\n\r\nGET"),
        ),
        (":scheme", format!("https://{host}{SMUGGLED}?")),
        (":authority", format!("{host}\r\nx-forwarded-for: {FORGED}")),
        (":authority", format!("user@{host}")),
    ];
    for (name, value) in injected {
        let mut fields = request_fields("GET", "/", host);
        replace(&mut fields, name, value.into_bytes());
        all.push(fields);
    }
    let extra = [
        ("x: y\r\nsvc-user-id", FORGED.to_owned()),
        ("x", format!("y\r\nsvc-user-id: {FORGED}")),
        ("x", format!("y\n\n{hidden}")),
        ("transfer-encoding", "chunked".to_owned()),
        ("content-length", "5, 5".to_owned()),
        ("connection", "x-forwarded-for".to_owned()),
        ("X-Forwarded-For", FORGED.to_owned()),
        ("svc_user_id", "underscores are another name".to_owned()),
        ("host", "elsewhere.example".to_owned()),
        ("referer", "https://x/?svc.token=a.b.c".to_owned()),
    ];
    for (name, value) in extra {
        let mut fields = request_fields("GET", "/", host);
        fields.push((name.as_bytes().to_vec(), value.into_bytes()));
        all.push(fields);
    }
    all
}

fn replace(fields: &mut Fields, wanted: &str, value: Vec<u8>) {
    for (name, old) in fields {
        if name == wanted.as_bytes() {
            *old = value;
            return;
        }
    }
}

/// A request in which any part may have arbitrary bytes. Most of it is valid, so that it gets far.
fn arbitrary(host: &str, random: &mut fastrand::Rng) -> Message {
    let methods = ["GET", "POST", "HEAD", "OPTIONS", "CONNECT", "PUT", "get"];
    let method = *random.choice(&methods).unwrap_or(&"GET");
    let mut fields = request_fields(method, "/arbitrary?a=b", host);
    if method == "CONNECT" && random.bool() {
        fields.push((b":protocol".to_vec(), bytes(random)));
    }
    if random.u8(..4) == 0 {
        let index = random.usize(..fields.len());
        if let Some((_, value)) = fields.get_mut(index) {
            *value = bytes(random);
        }
    }
    for _ in 0..random.usize(..6) {
        fields.push(field(random));
    }
    let body = if random.bool() {
        bytes(random)
    } else {
        Vec::new()
    };
    let trailers = if random.bool() {
        (0..random.usize(..4)).map(|_| field(random)).collect()
    } else {
        Vec::new()
    };
    Message {
        fields,
        body,
        trailers,
    }
}

/// A field: a reserved name with a forged value, a usual name with any bytes, or any bytes at all.
fn field(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    match random.u8(..4) {
        0 => {
            let name = random.choice(RESERVED).unwrap_or("forwarded");
            (name.as_bytes().to_vec(), FORGED.into())
        }
        1 => (
            format!("svc-{}", random.alphanumeric())
                .to_lowercase()
                .into(),
            FORGED.into(),
        ),
        2 => (b"x-usual".to_vec(), bytes(random)),
        _ => (bytes(random), bytes(random)),
    }
}

/// Bytes with a meaning to parsers, more often than by chance.
fn bytes(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..random.usize(..5) {
        match random.u8(..5) {
            0 => all.extend_from_slice(b"\r\n"),
            1 => all.extend_from_slice(format!("svc-user-id: {FORGED}").as_bytes()),
            2 => all.extend_from_slice(
                format!("\r\n\r\nGET {SMUGGLED} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes(),
            ),
            3 => all.push(random.u8(..)),
            _ => all.extend((0..random.usize(..12)).map(|_| random.u8(b'!'..=b'~'))),
        }
    }
    all
}
