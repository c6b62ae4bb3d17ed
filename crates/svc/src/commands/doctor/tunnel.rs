//! A round trip: a temporary tunnel that is published from here and visited from here over the
//! network.
//!
//! The tunnel requires the same token, so no other visitor reaches the service behind it. The
//! checks cover common problems of intermediate proxies: buffered responses, failed upgrades,
//! limits on large bodies and modified headers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use client::{
    Agent, CloseReason, Config, HostPort, Properties, Refusal, RefusalKind, Status, Tunnel,
    tunnel::Online,
};
use futures_util::{SinkExt, StreamExt};
use http::header;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};
use tokio_tungstenite::tungstenite::Message;

use super::{
    check::{Check, Report},
    network::{ca_file, millis},
    service::{CHUNKS, ProbeState, serve},
    visitor::{VisitError, Visitor, without_advice},
    with_timeout,
};
use crate::commands::explain::certificate::RecordingVerifier;
use crate::failure::Failure;
use crate::process::random;

/// Publishes the tunnel, visits it and closes it again.
pub(super) async fn run_checks(
    config: &Config,
    limit: Duration,
    report: &mut Report,
) -> Result<(), Failure> {
    let agent = match Agent::start(config.clone()) {
        Ok(agent) => agent,
        Err(error) => {
            report.add(Check::failed(PUBLISH, &error.into()))?;
            return Ok(());
        }
    };
    let mut tunnel = agent.open(
        Properties::http()
            .named(format!("doctor-{}", random::hex::<4>()?))
            .token_auth(true),
    );
    let result = match online(&mut tunnel, limit).await {
        Ok((online, check)) => {
            report.add(check)?;
            let shared = ProbeState::new();
            let visits = run_visits(config, &online, &shared, limit, report);
            tokio::select! {
                result = visits => result,
                // The engine closed the tunnel. All later visits would fail for the same reason.
                () = accept(&mut tunnel, &shared) => report
                    .add(Check::fail(PUBLISH, "the engine closed the tunnel"))
                    .map(drop),
            }
        }
        Err(check) => report.add(check).map(drop),
    };
    agent.close(CLOSE_TIMEOUT).await;
    result
}

/// Serves visitors until the tunnel closes.
async fn accept(tunnel: &mut Tunnel, shared: &Arc<ProbeState>) {
    let mut served = JoinSet::new();
    while let Some(stream) = tunnel.accept().await {
        served.spawn(serve(stream, Arc::clone(shared)));
        while served.try_join_next().is_some() {}
    }
}

async fn online(tunnel: &mut Tunnel, limit: Duration) -> Result<(Arc<Online>, Check), Check> {
    let started = Instant::now();
    let status = tunnel.status();
    match timeout(limit, tunnel.online()).await {
        Ok(Ok(online)) => {
            let message = format!("{} in {}", online.forwarding, millis(started));
            Ok((online, Check::pass(PUBLISH, message)))
        }
        Ok(Err(error)) => Err(match error.refusal() {
            Some(refusal) => refused(refusal),
            None => Check::failed(PUBLISH, &error.into()),
        }),
        Err(_elapsed) => {
            let why = match &*status.borrow() {
                Status::Disconnected { error, .. } => format!(": {error}"),
                Status::Closed(CloseReason::ByEngine) => ": the engine closed it".to_owned(),
                _ => String::new(),
            };
            Err(
                Check::fail(PUBLISH, format!("not published in {limit:?}{why}"))
                    .with_next_step("see the engine's log, or use a longer --timeout"),
            )
        }
    }
}

/// Reports the refusal. A token that may not publish can still be valid for other commands.
fn refused(refusal: &Refusal) -> Check {
    match refusal.kind {
        RefusalKind::Unauthorized => {
            Check::skip(PUBLISH, format!("no round trip: {}", refusal.message))
        }
        _ => Check::failed(PUBLISH, &refusal.into()),
    }
}

/// Runs the visits, each of which checks one feature.
async fn run_visits(
    config: &Config,
    online: &Online,
    shared: &ProbeState,
    limit: Duration,
    report: &mut Report,
) -> Result<(), Failure> {
    let hostname = online.properties.hostname.as_deref().unwrap_or_default();
    let port = online.properties.port.unwrap_or(config.engine.port());
    let Ok(address) = HostPort::new(hostname, port) else {
        report.add(Check::fail(
            LATENCY,
            format!("`{hostname}` is not a host name"),
        ))?;
        return Ok(());
    };
    let mut tls = RecordingVerifier::new(ca_file(config).as_deref())?.client()?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let visitor = Visitor {
        address,
        tls: Arc::new(tls),
        token: config.tokens.token().await?,
        proxies: config.proxies.clone(),
    };
    // Without access every visit would fail, so only the first failure is reported.
    let check = with_timeout(limit, LATENCY, to_check(LATENCY, latency(&visitor))).await;
    if !report.add(check)? {
        return Ok(());
    }
    let check = with_timeout(limit, HEADERS, to_check(HEADERS, headers(&visitor))).await;
    report.add(check)?;
    let streaming = timeout(limit, to_check(STREAMING, streaming(&visitor, shared))).await;
    report.add(streaming.unwrap_or_else(|_elapsed| {
        Check::fail(STREAMING, "the response is buffered until it is complete").with_next_step(
            "a proxy on the path buffers responses: event streams do not work through it",
        )
    }))?;
    let check = with_timeout(limit, WEBSOCKET, to_check(WEBSOCKET, websocket(&visitor))).await;
    report.add(check)?;
    let check = with_timeout(limit, UPLOAD, to_check(UPLOAD, upload(&visitor))).await;
    report.add(check)?;
    Ok(())
}

async fn to_check(
    name: &'static str,
    visit: impl Future<Output = Result<Check, VisitError>>,
) -> Check {
    match visit.await {
        Ok(check) => check,
        Err((message, step)) => {
            let check = Check::fail(name, message);
            check.with_next_step(step.unwrap_or_else(|| {
                "agent and edge support it: check proxies and firewalls between this machine and \
                 the engine"
                    .to_owned()
            }))
        }
    }
}

/// Measures the latency of small requests on an open connection.
async fn latency(visitor: &Visitor) -> Result<Check, VisitError> {
    let started = Instant::now();
    let mut open = visitor.open().await?;
    let connected = millis(started);
    let mut took = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let started = Instant::now();
        let request = open.request("/ping").body(Full::default());
        open.send_and_read(request).await?;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let at = |share: usize| {
        let took = took
            .get(REQUESTS * share / 100)
            .copied()
            .unwrap_or_default();
        took.as_secs_f64() * 1000.0
    };
    Ok(Check::pass(
        LATENCY,
        format!(
            "median {:.1} ms, 90 % within {:.1} ms; {connected} to connect",
            at(50),
            at(90)
        ),
    ))
}

/// Checks that the target and the headers arrive unchanged, and that the token is removed.
async fn headers(visitor: &Visitor) -> Result<Check, VisitError> {
    const TARGET: &str = "/headers?a=%2F%20b&a=2&c";
    let mut open = visitor.open().await?;
    let request = open
        .request(TARGET)
        .header("x-doctor", "one")
        .header("x-doctor", "Two, 2")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Full::default());
    let received = open.send_and_read(request).await?;
    let received: Value =
        serde_json::from_slice(&received).map_err(|error| without_advice(&error))?;
    let fields: Vec<(&str, &str)> = received
        .get("fields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|field| Some((field.get(0)?.as_str()?, field.get(1)?.as_str()?)))
        .collect();
    let values = |wanted: &str| -> Vec<&str> {
        let all = fields.iter().filter(|(name, _)| *name == wanted);
        all.map(|(_, value)| *value).collect()
    };
    let changed = |what: &str| {
        let check = Check::fail(HEADERS, format!("{what} on the way"));
        Ok(check.with_next_step("a proxy on the path rewrites requests"))
    };
    if received.get("target").and_then(Value::as_str) != Some(TARGET) {
        return changed("the path or the query was changed");
    }
    if values("x-doctor") != ["one", "Two, 2"] {
        return changed("a header field was changed");
    }
    if values("host") != [visitor.address.to_string()] {
        return changed("the host was changed");
    }
    if !values("authorization").is_empty() {
        return Ok(
            Check::fail(HEADERS, "the token of the visit reached the service")
                .with_next_step("do not trust this edge with tokens"),
        );
    }
    let sent = ["host", "x-doctor", "accept-encoding"];
    let mut added: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    added.retain(|name| !sent.contains(name));
    added.dedup();
    let message = format!(
        "unchanged; added: {}; removed: authorization",
        added.join(", ")
    );
    Ok(Check::pass(HEADERS, message))
}

/// Checks that a chunk arrives before the next one is sent. The service sends each further chunk
/// when the visitor has received the previous one, so a buffered response never ends.
async fn streaming(visitor: &Visitor, shared: &ProbeState) -> Result<Check, VisitError> {
    let mut open = visitor.open().await?;
    let request = open.request("/stream").body(Full::default());
    let mut body = open.send(request).await?.into_body();
    let mut received = String::new();
    let mut longest = Duration::ZERO;
    for chunk in 0..CHUNKS {
        let started = Instant::now();
        if chunk > 0 {
            shared.chunks.add_permits(1);
        }
        let wanted = format!("data: {chunk}\n\n");
        while !received.contains(&wanted) {
            let Some(frame) = body.frame().await else {
                return Err(("the response ended early".to_owned(), None));
            };
            let frame = frame.map_err(|error| without_advice(&error))?;
            let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
            received.push_str(&String::from_utf8_lossy(bytes));
        }
        if chunk > 0 {
            longest = longest.max(started.elapsed());
        }
    }
    Ok(Check::pass(
        STREAMING,
        format!(
            "{CHUNKS} chunks, each forwarded immediately; at most {:.1} ms delay",
            longest.as_secs_f64() * 1000.0
        ),
    ))
}

/// Checks that WebSocket messages are returned unchanged.
async fn websocket(visitor: &Visitor) -> Result<Check, VisitError> {
    let mut socket = visitor.socket().await?;
    let started = Instant::now();
    let sent = [Message::text("doctor"), Message::binary(pattern(MESSAGE))];
    for message in sent {
        let failed = |error| without_advice(&error);
        socket.send(message.clone()).await.map_err(failed)?;
        let back = loop {
            match socket.next().await {
                Some(Ok(control)) if control.is_ping() || control.is_pong() => {}
                Some(other) => break other.map_err(failed)?,
                None => return Err(("the WebSocket was closed".to_owned(), None)),
            }
        };
        if back != message {
            return Err(("a message was modified on the way back".to_owned(), None));
        }
    }
    let took = millis(started);
    // A lost close message changes nothing.
    drop(socket.close(None).await);
    let message = format!("text and {} KiB echoed in {took}", MESSAGE / 1024);
    Ok(Check::pass(WEBSOCKET, message))
}

/// Checks that a large body arrives complete.
async fn upload(visitor: &Visitor) -> Result<Check, VisitError> {
    let body = pattern(BODY);
    let hash = hex::encode(digest(&SHA256, &body).as_ref());
    let mut open = visitor.open().await?;
    let started = Instant::now();
    let request = open
        .request("/upload")
        .method(http::Method::PUT)
        .body(Full::new(body));
    let answer = open.send_and_read(request).await?;
    let took = started.elapsed();
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| without_advice(&error))?;
    let length = answer.get("length").and_then(Value::as_u64).unwrap_or(0);
    if answer.get("sha256").and_then(Value::as_str) != Some(&hash) {
        let message = format!("{length} of {BODY} bytes arrived, or the content was changed");
        return Err((message, None));
    }
    let mebibytes = BODY / 1024 / 1024;
    Ok(Check::pass(
        UPLOAD,
        format!(
            "{mebibytes} MiB arrived complete in {:.0} ms",
            took.as_secs_f64() * 1000.0
        ),
    ))
}

/// Returns pseudo-random bytes, so that a lost or moved piece is detected.
fn pattern(length: usize) -> Bytes {
    let mut state = 0x2545_f491_u32;
    let bytes = std::iter::repeat_with(|| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    });
    bytes.flatten().take(length).collect()
}

const PUBLISH: &str = "tunnel";
const LATENCY: &str = "tunnel_latency";
const HEADERS: &str = "tunnel_headers";
const STREAMING: &str = "tunnel_streaming";
const WEBSOCKET: &str = "tunnel_websocket";
const UPLOAD: &str = "tunnel_upload";

/// Number of requests: enough for a median, and one second at most on a slow line.
const REQUESTS: usize = 20;
/// Larger than any buffer on the path.
const MESSAGE: usize = 64 * 1024;
const BODY: usize = 4 * 1024 * 1024;
/// Time that the engine gets to process the close of the tunnel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
