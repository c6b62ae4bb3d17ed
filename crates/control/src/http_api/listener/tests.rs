use axum::routing::get;
use daemon::clock::{Clock, SystemClock};
use daemon::tls::{CertFiles, ReloadingCert};
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

fn router() -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/large", get(async || vec![b'x'; LARGE]))
        .route("/never", get(std::future::pending::<&'static str>))
}

/// Longer than every limit for an inactive client.
const WAIT_LIMIT: Duration = Duration::from_mins(3);
/// More bytes than are buffered for a client that reads nothing.
const LARGE: usize = 8 * 1024 * 1024;

/// A served connection, with a buffer of this size between both ends.
fn served(buffer: usize) -> (DuplexStream, JoinHandle<()>) {
    served_until(CancellationToken::new(), buffer)
}

fn served_until(goodbye: CancellationToken, buffer: usize) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(buffer);
    let server = WriteLimit::new(server, WRITE_STALL);
    let (connection, activity) = connection(server, ([192, 0, 2, 1], 1).into(), router());
    let serving = async move { run(connection, &activity, &goodbye).await };
    (client, tokio::spawn(serving))
}

/// Sends a text and waits. Returns the bytes that the client reads, and the lifetime of its
/// connection.
async fn exchange(sent: &str) -> (String, Duration) {
    let (mut client, serving) = served(64 * 1024);
    let began = Instant::now();
    client.write_all(sent.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    serving.await.unwrap();
    let text = String::from_utf8_lossy(&read).into_owned();
    (text, began.elapsed())
}

async fn http2_client(
    client: DuplexStream,
) -> (http2::SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(client);
    // A client that announces no window accepts no byte of a body.
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(path: &str) -> Request {
    let request = http::Request::get(format!("http://svc.example{path}"));
    request.body(Body::empty()).unwrap()
}

/// A client that sends nothing, or half a greeting, before the TLS handshake.
#[tokio::test(start_paused = true)]
async fn a_handshake_has_a_time_limit() {
    let directory = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(["svc.example".to_owned()]).unwrap();
    let files = CertFiles {
        cert: directory.path().join("cert.pem"),
        key: directory.path().join("key.pem"),
    };
    std::fs::write(&files.cert, pair.cert.pem()).unwrap();
    std::fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    let files = ReloadingCert::load(files, daemon::tls::provider()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let certificates = Certificates::open(Some(files), None, &clock).unwrap();
    let tls = tls(&certificates).unwrap();
    for sent in [&[][..], &[22, 3, 1]] {
        let (mut client, server) = duplex(1024);
        client.write_all(sent).await.unwrap();
        let began = Instant::now();
        let session = handshake(&tls, server, &CancellationToken::new()).await;
        assert!(session.is_none());
        assert!(began.elapsed() <= WAIT_LIMIT);
    }
}

/// Tokio's paused clock advances when all tasks wait. Without a limit this would wait forever.
#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_ends() {
    for sent in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost"] {
        let (answer, lasted) = exchange(sent).await;
        assert_eq!(answer, "", "{sent}");
        assert!(lasted <= WAIT_LIMIT, "{sent}: {lasted:?}");
    }
    let (answer, _) = exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.ends_with("hello"), "{answer}");
}

/// HTTP/1.1 between two requests, without a byte and with half a head.
#[tokio::test(start_paused = true)]
async fn a_kept_connection_has_a_time_limit_for_the_next_head() {
    let first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for next in ["", "GET / HTTP/1.1\r\nHo"] {
        let (answer, lasted) = exchange(&format!("{first}{next}")).await;
        assert_eq!(answer.matches("hello").count(), 1, "{answer}");
        // A user approves a client meanwhile.
        assert!(lasted >= IDLE_TIMEOUT, "{lasted:?}");
        assert!(lasted <= WAIT_LIMIT, "{lasted:?}");
    }

    let (mut client, serving) = served(64 * 1024);
    client.write_all(first.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"hello") {
        assert_ne!(client.read_buf(&mut read).await.unwrap(), 0, "{read:?}");
    }
    client.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    let began = Instant::now();
    assert_eq!(client.read_to_end(&mut read).await.unwrap(), 0);
    serving.await.unwrap();
    let lasted = began.elapsed();
    assert!(
        lasted <= 2 * HEAD_TIMEOUT + Duration::from_secs(1),
        "{lasted:?}"
    );
}

/// A client that sends half a head does not delay the end of the process.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_connection_with_half_a_head() {
    let goodbye = CancellationToken::new();
    let (mut client, serving) = served_until(goodbye.clone(), 1024);
    client.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    // The clock only moves once the server has read the bytes.
    sleep(Duration::from_secs(1)).await;
    goodbye.cancel();
    let began = Instant::now();
    serving.await.unwrap();
    let lasted = began.elapsed();
    assert!(lasted <= HEAD_TIMEOUT, "{lasted:?}");
}

/// Its client has seen it accepted, and has not sent its request yet, as during a restart.
#[tokio::test(start_paused = true)]
async fn a_drain_leaves_a_new_connection_time_for_its_first_request() {
    let goodbye = CancellationToken::new();
    let (mut client, serving) = served_until(goodbye.clone(), 1024);
    goodbye.cancel();
    sleep(FIRST_REQUEST / 2).await;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_does_not_delay_a_drain() {
    let goodbye = CancellationToken::new();
    let (_client, serving) = served_until(goodbye.clone(), 1024);
    goodbye.cancel();
    let began = Instant::now();
    serving.await.unwrap();
    let lasted = began.elapsed();
    assert!(lasted <= 2 * FIRST_REQUEST, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_head_has_a_size_limit() {
    for (bytes, status) in [(16 * 1024, "200"), (33 * 1024, "431")] {
        let field = "x".repeat(bytes);
        let sent = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {field}\r\n\r\n");
        let (answer, _) = exchange(&sent).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{bytes}: {answer}");
    }
}

/// HTTP/2: the refusal is a problem, and only ends its stream.
#[tokio::test(start_paused = true)]
async fn an_http2_request_head_has_a_size_limit_and_its_refusal_a_reason() {
    let (client, _serving) = served(64 * 1024);
    let builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
    let _connection = tokio::spawn(connection);
    for (bytes, status) in [(31, 200), (33, 431), (100, 431), (1, 200)] {
        let mut request = request("/");
        let field = HeaderValue::try_from("x".repeat(bytes * 1024)).unwrap();
        request.headers_mut().insert("x", field);
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{bytes} KiB");
        if status == 431 {
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
            let body = response.collect().await.unwrap().to_bytes();
            let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(problem["code"], "request_header_fields_too_large");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_without_requests_ends() {
    let (client, serving) = served(64 * 1024);
    let (mut sender, _connection) = http2_client(client).await;
    let response = sender.send_request(request("/none")).await.unwrap();
    assert_eq!(response.status(), 404);
    let began = Instant::now();
    serving.await.unwrap();
    assert!(began.elapsed() <= WAIT_LIMIT);
    // The sender still exists, so the client did not end the connection.
    assert!(sender.send_request(request("/none")).await.is_err());
}

/// A slow handler does not make a connection idle.
#[tokio::test(start_paused = true)]
async fn a_request_in_progress_keeps_its_connection() {
    let (client, serving) = served(64 * 1024);
    let (mut sender, _connection) = http2_client(client).await;
    let waiting = sender.send_request(request("/never"));
    let waited = timeout(Duration::from_hours(1), waiting).await;
    assert!(waited.is_err(), "the request is still in progress");
    assert!(!serving.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_that_opens_no_window_is_disconnected() {
    for path in ["/", "/large"] {
        let (client, serving) = served(64 * 1024);
        let (mut sender, _connection) = http2_client(client).await;
        let mut response = sender.send_request(request(path)).await.unwrap();
        assert_eq!(response.status(), 200);
        let began = Instant::now();
        serving.await.unwrap();
        assert!(began.elapsed() <= WAIT_LIMIT, "{:?}", began.elapsed());
        let read = response.body_mut().frame().await;
        assert!(read.is_none_or(|frame| frame.is_err()), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    let (mut client, serving) = served(1024);
    let request = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).await.unwrap();
    let began = Instant::now();
    serving.await.unwrap();
    assert!(began.elapsed() <= WAIT_LIMIT, "{:?}", began.elapsed());
}

/// The last bytes of a response are not in a body any more. Only the socket's deadline ends this.
#[tokio::test(start_paused = true)]
async fn a_pending_write_has_a_deadline() {
    let (client, server) = duplex(16);
    let mut limited = WriteLimit::new(server, WRITE_STALL);
    let began = Instant::now();
    let error = limited.write_all(&[0; 64]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(began.elapsed() <= WAIT_LIMIT);
    // Each sent byte restarts the time limit.
    let (mut client, server) = (client, duplex(1));
    client.read_exact(&mut [0; 16]).await.unwrap();
    let (mut reader, writer) = server;
    let mut limited = WriteLimit::new(writer, WRITE_STALL);
    let reading = async {
        for _ in 0..4 {
            sleep(WRITE_STALL / 2).await;
            reader.read_exact(&mut [0]).await.unwrap();
        }
    };
    let (written, ()) = tokio::join!(limited.write_all(&[0; 4]), reading);
    written.unwrap();
}

/// The bytes of an HTTP/2 client that sends requests without responses, up to this stream.
fn never_answered(last: u32) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [head, payload.to_vec()].concat()
    };
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for stream in (1..=last).step_by(2) {
        // GET, http, /never, a: HEADERS with END_STREAM and END_HEADERS.
        let block = [&[0x82, 0x86, 0x44, 6][..], b"/never", &[0x41, 1], b"a"].concat();
        sent.extend(frame(1, 5, stream, &block));
    }
    sent
}

/// Header and payload of the next frame; an error at the end of the connection.
async fn next_frame(client: &mut DuplexStream) -> std::io::Result<([u8; 9], Vec<u8>)> {
    let mut head = [0; 9];
    client.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    client.read_exact(&mut payload).await?;
    Ok((head, payload))
}

/// A request is in progress, so the connection is not idle.
#[tokio::test(start_paused = true)]
async fn a_silent_http2_client_is_pinged_and_disconnected() {
    const PING: u8 = 6;
    let (mut client, serving) = served(64 * 1024);
    let began = Instant::now();
    client.write_all(&never_answered(1)).await.unwrap();
    let mut pinged = None;
    while let Ok((head, _)) = next_frame(&mut client).await {
        if head[3] == PING {
            pinged.get_or_insert(began.elapsed().as_secs());
        }
    }
    serving.await.unwrap();
    assert_eq!((pinged, began.elapsed().as_secs()), (Some(15), 35));
}

#[tokio::test(start_paused = true)]
async fn more_streams_than_offered_are_refused() {
    const RST_STREAM: u8 = 3;
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    let last = 2 * 128 + 1;
    let (mut client, _serving) = served(1024 * 1024);
    client.write_all(&never_answered(last)).await.unwrap();
    loop {
        let (head, payload) = next_frame(&mut client).await.unwrap();
        if head[3] == RST_STREAM {
            assert_eq!(head[5..], last.to_be_bytes(), "the one beyond the limit");
            assert_eq!(payload, REFUSED_STREAM);
            break;
        }
    }
}
