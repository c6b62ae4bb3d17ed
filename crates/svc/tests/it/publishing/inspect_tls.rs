//! Inspecting a TLS service. Visitors notice no difference.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::installed::{RunningUp, alone};
use crate::local_platform::up::visitor;
use crate::program::{Home, RunningCommand};

/// A service on its own port. Its certificate is self-signed and for another name.
pub(super) async fn service<F, C>(protocols: &[&str], serve: F) -> String
where
    F: Fn(TlsStream<TcpStream>) -> C + Clone + Send + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    let made = rcgen::generate_simple_self_signed(["elsewhere.test".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream).await;
                }
            });
        }
    });
    format!("https://{address}")
}

/// Answers each request with a description of it and of its connection.
pub(super) async fn tell(stream: TlsStream<TcpStream>) {
    let session = stream.get_ref().1;
    let name = session.server_name().map(str::to_owned);
    let alpn = session.alpn_protocol();
    let alpn = alpn.map(|name| String::from_utf8_lossy(name).into_owned());
    let is_http2 = alpn.as_deref() == Some("h2");
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = json!({
            "alpn": alpn,
            "name": name,
            "version": format!("{:?}", request.version()),
            "scheme": request.uri().scheme_str(),
            "path": request.uri().path(),
            "host": field(&request, "host"),
            "destination": field(&request, "destination"),
        });
        let answer = Response::new(Full::<Bytes>::from(seen.to_string()));
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let io = TokioIo::new(stream);
    // A connection that the peer drops is not an error.
    if is_http2 {
        let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        http2.serve_connection(io, service).await.ok();
    } else {
        let http1 = hyper::server::conn::http1::Builder::new();
        http1.serve_connection(io, service).await.ok();
    }
}

fn field(request: &Request<Incoming>, name: &str) -> Option<String> {
    let value = request.headers().get(name)?.to_str();
    value.ok().map(str::to_owned)
}

/// An agent with an inspector, or without.
struct Agent {
    running: RunningCommand,
    online: Value,
    client: reqwest::Client,
    url: reqwest::Url,
}

impl Agent {
    async fn forward(home: &Home, up: &RunningUp, target: &str, inspect: &str) -> Self {
        let inspect = format!("--inspect={inspect}");
        let args = [
            "forward",
            target,
            "--hostname",
            "web",
            &inspect,
            "-o",
            "json",
        ];
        let mut running = home.start(&args);
        let online = running.json().await;
        assert_eq!(online["status"], "online", "{online}");
        let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
        Self {
            running,
            online,
            client,
            url,
        }
    }

    async fn get(&self, path: &str) -> reqwest::Result<(u16, Value)> {
        let url = self.url.join(path).unwrap();
        let asked = self.client.get(url).header("accept", "application/json");
        let answer = asked.send().await?;
        let status = answer.status().as_u16();
        let body = answer.bytes().await?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((status, value))
    }

    /// Calls the inspector.
    async fn inspector(&self, method: reqwest::Method, path: &str) -> Value {
        let page = self.online["inspector"].as_str().unwrap();
        let (page, token) = page.split_once('#').unwrap();
        let asked = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = asked
            .request(method, format!("{page}{path}"))
            .json(&json!({}));
        let answer = asked.bearer_auth(token).send().await.unwrap();
        answer.json().await.unwrap()
    }

    /// Stops it. Its connections ended normally or because the edge dropped them, which either
    /// direction may report first.
    async fn end(self) {
        let output = self.running.terminate().await;
        assert_eq!(output.code, Some(0), "{output:?}");
        for line in output.stdout.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let error = line.get("error").and_then(Value::as_str);
            let dropped = [None, Some("connection reset"), Some("broken pipe")];
            assert!(dropped.contains(&error), "{line}");
        }
    }

    /// Waits until the output has this error of a connection.
    async fn wait_for_error(&mut self, error: &str) {
        self.running.json_where(|line| line["error"] == error).await;
    }
}

#[tokio::test]
async fn a_tls_service_is_inspected_and_sees_the_same_connections() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    for (protocols, version) in [
        (&["h2", "http/1.1"][..], "HTTP/2.0"),
        (&["http/1.1"], "HTTP/1.1"),
        (&[], "HTTP/1.1"),
    ] {
        let target = service(protocols, tell).await;
        let unseen = Agent::forward(&home, &up, &target, "off").await;
        let before = unseen.get("/a").await.unwrap();
        assert_eq!(before.1["version"], version);
        assert_eq!(before.1["name"], "web.t.engine.localhost");
        unseen.end().await;

        let agent = Agent::forward(&home, &up, &target, "0").await;
        assert_eq!(agent.get("/a").await.unwrap(), before);
        let list = agent.inspector(reqwest::Method::GET, "api/exchanges").await;
        let seen = &list["exchanges"][0];
        assert_eq!(
            (&seen["path"], &seen["status"]),
            (&json!("/a"), &json!(200))
        );

        let replayed = agent
            .inspector(reqwest::Method::POST, "api/exchanges/1/replay")
            .await;
        let id = replayed["id"]
            .as_u64()
            .unwrap_or_else(|| panic!("{replayed}"));
        let body = format!("api/exchanges/{id}/response/body");
        let again = agent.inspector(reqwest::Method::GET, &body).await;
        assert_eq!(again["version"], before.1["version"]);
        assert_eq!(again["name"], before.1["name"]);
        assert_eq!(again["scheme"], before.1["scheme"]);
        agent.end().await;
    }
    up.stop().await;
}

#[tokio::test]
async fn a_visitor_gets_the_same_error_from_a_service_whose_tls_fails() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let without_tls = format!("https://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    });
    let other_protocol = service(&["imap"], |_| async {}).await;
    let silent = service(&[], |_| async {}).await;
    for target in [&without_tls, &other_protocol, &silent] {
        let mut results = Vec::new();
        for inspect in ["off", "0"] {
            let agent = Agent::forward(&home, &up, target, inspect).await;
            let (status, answer) = agent.get("/").await.unwrap();
            results.push((status, answer["code"].clone()));
            assert_eq!(agent.running.terminate().await.code, Some(0));
        }
        assert_eq!(results[0], (502, json!("upstream_unreachable")), "{target}");
        assert_eq!(results[0], results[1], "{target}");
    }
    up.stop().await;
}

/// Answers without a length, and ends the connection with or without a `close_notify`.
async fn answer_to_the_end(mut stream: TlsStream<TcpStream>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let cut = head.starts_with(b"GET /cut ");
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall or half";
    stream.write_all(answer).await.unwrap();
    stream.flush().await.unwrap();
    if !cut {
        stream.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_truncated_answer_does_not_look_complete() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let target = service(&[], answer_to_the_end).await;
    for inspect in ["off", "0"] {
        let mut agent = Agent::forward(&home, &up, &target, inspect).await;
        let whole = agent.get("/whole").await.unwrap();
        assert_eq!(whole, (200, json!("all or half")), "{inspect}");
        let cut = agent.get("/cut").await;
        assert!(cut.is_err(), "{inspect}: {cut:?}");
        let error = "the connection to the service ended without a complete response";
        agent.wait_for_error(error).await;
        agent.end().await;
    }
    up.stop().await;
}
