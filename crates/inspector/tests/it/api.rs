//! HTTP requests to the API.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use client::tap::Visit;
use inspector::{Inspector, InspectorServer, RecordingMode, Settings, serve};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};

const TOKEN: &str = "0123456789abcdef";

async fn served(inspector: &Inspector) -> InspectorServer {
    served_at(inspector, Ipv4Addr::LOCALHOST).await
}

async fn served_at(inspector: &Inspector, ip: Ipv4Addr) -> InspectorServer {
    let settings = Settings {
        address: Some((ip, 0).into()),
        token: TOKEN.to_owned(),
        version: "0",
    };
    serve(inspector.clone(), settings).await.unwrap()
}

/// Status and body of one request, written as given.
async fn ask(at: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(json!(body)))
}

fn own(at: SocketAddr) -> String {
    format!("Host: {at}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n")
}

fn recorded(inspector: &Inspector, to: &str, bytes: &[(&str, &str)]) {
    let visit = Visit::new("", None);
    let mut stream = inspector.tap(to.parse().unwrap()).stream(&visit).unwrap();
    for (request_text, response) in bytes {
        stream.to_service(request_text.as_bytes());
        stream.to_visitor(response.as_bytes());
    }
    stream.ended(None);
}

#[tokio::test]
async fn only_local_requests_with_the_token_are_answered() {
    // No other program listens on this address of the loopback network, so that none is found on the
    // port after the end of the server.
    let unused = Ipv4Addr::new(127, 99, 0, 1);
    let serving = served_at(&Inspector::new(RecordingMode::Always), unused).await;
    let at = serving.address();
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    for (fields, status) in [
        (format!("Host: {at}\r\n{token}"), 200),
        (format!("Host: localhost:9\r\n{token}"), 200),
        (format!("Host: {at}\r\n"), 401),
        (format!("Host: {at}\r\nAuthorization: Bearer x\r\n"), 401),
        (format!("Host: rebound.example\r\n{token}"), 421),
        (format!("Host: {at}\r\nOrigin: http://{at}\r\n{token}"), 200),
        (
            format!("Host: {at}\r\nOrigin: http://evil.example\r\n{token}"),
            403,
        ),
        (format!("Host: {at}\r\nOrigin: null\r\n{token}"), 403),
        (
            format!("Host: {at}\r\nSec-Fetch-Site: same-site\r\n{token}"),
            403,
        ),
        (
            format!("Host: {at}\r\nSec-Fetch-Site: cross-site\r\n{token}"),
            403,
        ),
    ] {
        let (answered, body) = ask(at, "GET", "/api/state", &fields, "").await;
        assert_eq!(answered, status, "{fields}{body}");
    }
    assert!(serving.url().ends_with(&format!("/#{TOKEN}")));
    let mut open = TcpStream::connect(at).await.unwrap();
    serving.shutdown().await;
    // Another server may listen on the port by now, but not at this connection.
    assert!(matches!(open.read(&mut [0]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn secrets_are_masked_unless_requested_and_search_finds_compressed_text() {
    let inspector = Inspector::new(RecordingMode::Always);
    recorded(
        &inspector,
        "1",
        &[
            (
                "GET /a?token=hush HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer hush\r\nCookie: sid=hush\r\n\r\n",
                "HTTP/1.1 200 OK\r\nSet-Cookie: sid=hush; Path=/\r\nContent-Length: 6\r\n\r\nneedle",
            ),
            (
                "GET /b HTTP/1.1\r\nHost: h\r\n\r\n",
                "HTTP/1.1 204 No Content\r\n\r\n",
            ),
        ],
    );
    let serving = served(&inspector).await;
    let at = serving.address();
    for path in [
        "/api/exchanges/1",
        "/api/exchanges",
        "/api/exchanges/1/curl",
        "/api/har",
    ] {
        let (status, response) = ask(at, "GET", path, &own(at), "").await;
        assert_eq!(status, 200);
        assert!(!response.to_string().contains("hush"), "{path}: {response}");
        if path != "/api/exchanges" {
            let (_, response) = ask(at, "GET", &format!("{path}?reveal=true"), &own(at), "").await;
            assert!(response.to_string().contains("hush"), "{path}: {response}");
        }
    }
    let (_, found) = ask(at, "GET", "/api/exchanges?search=NEEDLE", &own(at), "").await;
    assert_eq!(found["exchanges"].as_array().unwrap().len(), 1);
    assert_eq!(found["exchanges"][0]["id"], 1);
    let (status, response) = ask(at, "GET", "/api/exchanges/9", &own(at), "").await;
    assert_eq!(
        (status, &response["error"]["code"]),
        (404, &json!("not_found"))
    );
    let (status, _) = ask(at, "DELETE", "/api/exchanges", &own(at), "").await;
    assert_eq!(status, 204);
    let (status, _) = ask(at, "GET", "/api/exchanges/1", &own(at), "").await;
    assert_eq!(status, 404);
}

/// Visitor data is plain text for curl: no local file that it sends, and no address pattern.
#[tokio::test]
async fn a_command_for_curl_sends_the_request_and_nothing_else() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = service.local_addr().unwrap().to_string();
    let head = "POST /a/../?a[b]=1&id=[1-3]&c={x,y}&token=hush HTTP/1.1";
    let fields = "Content-Type: text/plain\r\nContent-Length: 11";
    let request = format!("{head}\r\nHost: {to}\r\n{fields}\r\n\r\n@/etc/hosts");
    let inspector = Inspector::new(RecordingMode::Always);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    recorded(&inspector, &to, &[(&request, answer)]);
    let serving = served(&inspector).await;
    let at = serving.address();
    let (status, response) = ask(at, "GET", "/api/exchanges/1/curl", &own(at), "").await;
    assert_eq!(status, 200);
    let response = response.as_str().unwrap().to_owned();

    let sent = tokio::spawn(async move {
        let (mut stream, _) = service.accept().await.unwrap();
        let mut sent = String::new();
        let mut bytes = [0; 4096];
        // Reads as much of a body as announced.
        while !sent.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap_or("0");
            body.len() == length.lines().next().unwrap().parse::<usize>().unwrap()
        }) {
            let length = stream.read(&mut bytes).await.unwrap();
            assert_ne!(length, 0, "{sent}");
            sent.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        sent
    });
    let program = std::env::var("SVC_TEST_CURL").expect("cargo xtask provision sets it");
    let rest = response.strip_prefix("curl ").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("'{program}' -sS --max-time 60 {rest}")]);
    let run = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = run.await.unwrap();
    assert!(output.status.success(), "{response}\n{output:?}");
    let sent = sent.await.unwrap();
    let request_text = "POST /a/../?a[b]=1&id=[1-3]&c={x,y}&token=[masked] HTTP/1.1\r\n";
    assert!(sent.starts_with(request_text), "{response}\n{sent}");
    assert!(sent.ends_with("\r\n\r\n@/etc/hosts"), "{response}\n{sent}");
}

#[tokio::test]
async fn a_replay_sends_the_changed_request_with_its_masked_values() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = service.local_addr().unwrap().to_string();
    let request = tokio::spawn(async move {
        let (mut stream, _) = service.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let mut length = 0;
        while !request[..length].ends_with(b"changed") {
            length += stream.read(&mut request[length..]).await.unwrap();
        }
        let response = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(response).await.unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let inspector = Inspector::new(RecordingMode::Always);
    recorded(
        &inspector,
        &to,
        &[(
            "POST /a?token=one&b=1 HTTP/1.1\r\nHost: web.test\r\nAuthorization: Bearer two\r\nContent-Length: 3\r\n\r\nwas",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        )],
    );
    let serving = served(&inspector).await;
    let at = serving.address();
    let changes = json!({
        "path": "/a?token=[masked]&b=2",
        "headers": [
            {"name": "Host", "value": "web.test"},
            {"name": "Authorization", "value": "Bearer [masked]"},
            {"name": "X-New", "value": "yes"},
        ],
        "body": {"text": "changed"},
    });
    let path = "/api/exchanges/1/replay";
    let (status, response) = ask(at, "POST", path, &own(at), &changes.to_string()).await;
    assert_eq!((status, &response), (201, &json!({"id": 2})));
    let request = request.await.unwrap().to_lowercase();
    for part in [
        "post /a?token=one&b=2 http/1.1\r\n",
        "host: web.test\r\n",
        "authorization: bearer two\r\n",
        "x-new: yes\r\n",
        "content-length: 7\r\n",
    ] {
        assert!(request.contains(part), "{request}");
    }
    let (_, response) = ask(at, "GET", "/api/exchanges/2", &own(at), "").await;
    assert_eq!(
        (&response["replay_of"], &response["status"]),
        (&json!(1), &json!(201))
    );
    // Nothing listens there: no exchange, and the reason. The port stays bound, so that no other
    // process gets it.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let gone = nobody.local_addr().unwrap().to_string();
    recorded(
        &inspector,
        &gone,
        &[(
            "GET / HTTP/1.1\r\nHost: web.test\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        )],
    );
    let (status, response) = ask(at, "POST", "/api/exchanges/3/replay", &own(at), "{}").await;
    assert_eq!(
        (status, &response["error"]["code"]),
        (502, &json!("service_unavailable"))
    );
    let (status, _) = ask(at, "GET", "/api/exchanges/4", &own(at), "").await;
    assert_eq!(status, 404);
    for (changes, code) in [
        (json!({"path": "nowhere"}), 422),
        (json!({"method": "A B"}), 422),
        (json!({"headers": [{"name": "a b", "value": ""}]}), 422),
        (json!({"unknown": 1}), 422),
    ] {
        let (status, response) = ask(at, "POST", path, &own(at), &changes.to_string()).await;
        assert_eq!(status, code, "{changes} {response}");
    }
}
