//! Tunnels of a `svc up`, and the use of a second terminal.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use futures_util::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, timeout},
};

use tokio_tungstenite::{
    WebSocketStream, tungstenite,
    tungstenite::{Message, protocol::Role},
};

use crate::installed::{alone, alone_at, up};
use crate::program::{DRAIN, Home, SOON};

/// A visitor of a published address, on this machine.
pub(crate) fn visitor(ready: &Value, url: &str) -> (reqwest::Client, reqwest::Url) {
    let url: reqwest::Url = url.parse().unwrap();
    let ca = std::fs::read(ready["ca_file"].as_str().unwrap()).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().unwrap()));
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .resolve(url.host_str().unwrap(), address)
        .no_proxy()
        .http1_only()
        .build()
        .unwrap();
    (client, url)
}

/// A service that answers each request with the same bytes in capitals.
pub(crate) async fn shouting_service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                stream
                    .write_all(&request.to_ascii_uppercase())
                    .await
                    .unwrap();
            });
        }
    });
    port
}

/// A web service that answers `ok` on each connection, until it is aborted.
pub(crate) async fn web_service(port: u16) -> (JoinHandle<()>, u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
        }
    });
    (service, port)
}

fn online(line: &Value) -> bool {
    line["status"] == "online"
}

#[tokio::test]
async fn the_demo_is_reached_at_its_public_name() {
    let home = Home::new();
    let up = up(&home, &["--demo"]).await;
    let (client, url) = visitor(&up.ready, up.ready["demo_url"].as_str().unwrap());
    let page = client.get(url.clone()).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().await.unwrap().contains("It works"));

    let headers = client
        .get(url.join("/headers").unwrap())
        .header("x-test", "1")
        .send();
    let headers: Value =
        serde_json::from_str(&headers.await.unwrap().text().await.unwrap()).unwrap();
    let pairs = headers["headers"].as_array().unwrap();
    assert!(
        pairs
            .iter()
            .any(|pair| pair[0] == "x-test" && pair[1] == "1"),
        "{headers}"
    );

    let clock = client.get(url.join("/sse").unwrap()).send().await.unwrap();
    let mut ticks = clock.bytes_stream();
    for _ in 0..2 {
        let tick = timeout(SOON, ticks.next()).await.unwrap().unwrap().unwrap();
        assert!(tick.starts_with(b"data: "));
    }
}

#[tokio::test]
async fn a_websocket_to_the_demo_works() {
    let home = Home::new();
    let up = alone(&home, &["--demo"]).await;
    let (client, url) = visitor(&up.ready, up.ready["demo_url"].as_str().unwrap());
    let key = tungstenite::handshake::client::generate_key();
    let upgrade = client
        .get(url.join("/ws").unwrap())
        .version(reqwest::Version::HTTP_11)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key)
        .send()
        .await
        .unwrap();
    assert_eq!(upgrade.status(), 101);
    let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
    assert_eq!(upgrade.headers()["sec-websocket-accept"], accept);
    let stream = upgrade.upgrade().await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    for text in ["hello", "again"] {
        socket.send(Message::text(text)).await.unwrap();
        let back = timeout(SOON, socket.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(back.to_text().unwrap(), text);
    }
}

#[tokio::test]
async fn a_second_terminal_needs_no_flags() {
    let home = Home::new();
    let up = up(&home, &["--demo"]).await;
    let tunnels = home.run(&["tunnels", "-o", "json"]).await.json();
    assert_eq!(tunnels[0]["name"], "demo");
    let clients = home.run(&["clients", "-o", "json"]).await.json();
    assert_eq!(clients[0]["agent"], "svc");
    let table = home.run(&["tunnels"]).await;
    let demo = format!(
        "demo-{}.t.engine.localhost",
        up.ready_field("project_endpoint")
    );
    assert!(table.stdout.contains(&demo), "{table:?}");

    // The context is removed with the process that wrote it.
    assert_eq!(up.running.terminate().await.code, Some(0));
    assert_eq!(home.run(&["tunnels"]).await.code, Some(2));
}

#[tokio::test]
async fn a_forwarded_service_is_published_watched_and_removed() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let mut events = home.start(&["events"]);
    assert_eq!(events.json().await["type"], "state.initial");

    let port = shouting_service().await.to_string();
    let mut agent = home.start(&[
        "forward",
        &port,
        "--tcp",
        "--name",
        "shout",
        "--client-label",
        "site=bern",
        "-o",
        "json",
    ]);
    let first = agent.json().await;
    assert_eq!(first["status"], "online");
    assert_eq!(first["name"], "shout");
    assert_eq!(first["forwarded"], format!("localhost:{port}"));
    assert!(first["tunnel_id"].as_str().unwrap().starts_with("tun_"));
    let forwarding = first["forwarding"].as_str().unwrap();
    let public_port = u16::try_from(first["port"].as_u64().unwrap()).unwrap();
    assert_eq!(forwarding, format!("engine.localhost:{public_port}"));

    let created = events
        .json_where(|event| event["type"] == "tunnel.created")
        .await;
    assert_eq!(created["object"]["name"], "shout");

    let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, public_port))
        .await
        .unwrap();
    visitor.write_all(b"hello").await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(SOON, visitor.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer, "HELLO");
    for active in [true, false] {
        let line = agent.json().await;
        assert_eq!(line["active"], active, "{line}");
        assert_eq!(line["source_ip"], "127.0.0.1");
        assert_eq!(line["stream_id"].as_str().unwrap().len(), 24);
        assert!(line["date"].is_string());
    }

    let output = agent.terminate().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.stdout.ends_with("{\"status\":\"closed\"}\n"),
        "{output:?}"
    );
    events
        .json_where(|event| event["type"] == "tunnel.deleted")
        .await;
    assert_eq!(events.terminate().await.code, Some(0));
}

#[tokio::test]
async fn a_service_may_restart_behind_its_tunnel() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let (service, port) = web_service(ports::lease()).await;
    let port_text = port.to_string();
    let args = ["forward", &port_text, "--hostname", "web", "-o", "json"];
    let mut agent = home.start(&args);
    let ready = agent.json().await;
    assert_eq!(ready["hostname"], "web.t.engine.localhost");
    let (client, url) = visitor(&up.ready, ready["forwarding"].as_str().unwrap());
    assert_eq!(client.get(url.clone()).send().await.unwrap().status(), 200);

    service.abort();
    assert!(service.await.unwrap_err().is_cancelled());
    assert_eq!(client.get(url.clone()).send().await.unwrap().status(), 502);

    let (_service, _) = web_service(port).await;
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
    assert_eq!(agent.terminate().await.code, Some(0));
}

#[tokio::test]
async fn a_private_tunnel_is_dialled_on_standard_streams_and_on_a_port() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let port = shouting_service().await.to_string();
    let mut agent = home.start(&[
        "forward",
        &port,
        "--bytestream",
        "--name",
        "shout",
        "-o",
        "json",
    ]);
    assert_eq!(agent.json().await["forwarding"], "svc://shout");

    let output = home
        .run_with_input(&["dial", "svc://shout"], b"over stdin")
        .await;
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "OVER STDIN"),
        "{output:?}"
    );

    let mut dial = home.start(&[
        "dial",
        "svc://shout",
        "--listen",
        "127.0.0.1:0",
        "-o",
        "json",
    ]);
    let address = dial.json().await["listening"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let mut local = TcpStream::connect(&address).await.unwrap();
        local.write_all(b"over a port").await.unwrap();
        local.shutdown().await.unwrap();
        let mut answer = String::new();
        timeout(SOON, local.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(answer, "OVER A PORT");
    }
    assert_eq!(dial.terminate().await.code, Some(0));

    let unknown = home.run(&["dial", "svc://nobody"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.stderr.contains("hint: `svc tunnels`"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn a_service_receives_visitor_addresses_of_tcp_and_private_tunnels() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = shouting_service().await.to_string();
    let args = ["forward", &port, "--tcp", "--proxy-protocol", "v1"];
    let mut public = home.start(&[&args, &["-o", "json"][..]].concat());
    let public_port = u16::try_from(public.json().await["port"].as_u64().unwrap()).unwrap();
    let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, public_port))
        .await
        .unwrap();
    visitor.write_all(b"hello").await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(SOON, visitor.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (header, said) = answer.split_once("\r\n").unwrap();
    assert!(
        header.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 0 "),
        "{header}"
    );
    assert_eq!(said, "HELLO");

    let args = ["forward", &port, "--bytestream", "--name", "told"];
    let mut private = home.start(&[&args, &["--proxy-protocol=v1", "-o", "json"][..]].concat());
    assert!(online(&private.json().await));
    let dialled = home.run_with_input(&["dial", "svc://told"], b"hello").await;
    assert!(
        dialled.stdout.starts_with("PROXY TCP4 127.0.0.1 "),
        "{dialled:?}"
    );
    assert!(dialled.stdout.ends_with("\r\nHELLO"), "{dialled:?}");
}

#[tokio::test]
async fn refusals_end_an_agent_with_different_exit_codes() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let unavailable = home.run(&["forward", "3000", "--challenge-mode"]).await;
    assert_eq!(unavailable.code, Some(5), "{unavailable:?}");
    assert!(
        unavailable.stderr.contains("challenge_mode"),
        "{unavailable:?}"
    );

    let unauthorized = home.run(&["forward", "3000", "--token", "a.b.c"]).await;
    assert_eq!(unauthorized.code, Some(3), "{unauthorized:?}");
    let unauthorized = home.run(&["tunnels", "--token", "a.b.c"]).await;
    assert_eq!(unauthorized.code, Some(3), "{unauthorized:?}");

    let secret = std::fs::read_to_string(jwt_secret(&up.ready)).unwrap();
    let reader = home
        .run(&[
            "token",
            "mint",
            "--secret",
            &secret,
            "--permission",
            "tunnels.resources.read-only",
        ])
        .await;
    let forbidden = home
        .run(&["forward", "3000", "--token", reader.stdout.trim()])
        .await;
    assert_eq!(forbidden.code, Some(3), "{forbidden:?}");
}

#[tokio::test]
async fn a_name_is_taken_over_by_the_same_identity_and_refused_to_another() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = shouting_service().await.to_string();
    let mut first = home.start(&["forward", &port, "--tcp", "--name", "one", "-o", "json"]);
    assert!(online(&first.json().await));

    let secret = std::fs::read_to_string(jwt_secret(&up.ready)).unwrap();
    let other = home
        .run(&[
            "token",
            "mint",
            "--secret",
            &secret,
            "--user",
            "somebody-else",
        ])
        .await;
    let refused = home
        .run(&[
            "forward",
            &port,
            "--tcp",
            "--name",
            "one",
            "--token",
            other.stdout.trim(),
        ])
        .await;
    assert_eq!(refused.code, Some(4), "{refused:?}");

    let mut second = home.start(&["forward", &port, "--tcp", "--name", "one", "-o", "json"]);
    assert!(online(&second.json().await));
    let displaced = first.ended().await;
    assert_eq!(displaced.code, Some(4), "{displaced:?}");
    assert!(
        displaced.stderr.contains("took the tunnel over"),
        "{displaced:?}"
    );
    assert_eq!(second.terminate().await.code, Some(0));
}

/// EN-9: agents reconnect to a restarted engine without their state, and open their tunnels again.
#[tokio::test]
async fn an_agent_and_an_event_stream_reconnect_after_an_engine_crash() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let first = alone_at(&home, &port).await;
    let service = shouting_service().await.to_string();
    let mut agent = home.start(&["forward", &service, "--tcp", "--name", "one", "-o", "json"]);
    assert!(online(&agent.json().await));
    let mut events = home.start(&["events"]);
    assert_eq!(events.json().await["type"], "state.initial");

    first.running.signal(Signal::SIGKILL);
    drop(first.running.ended().await);
    agent
        .json_where(|line| line["status"] == "disconnected")
        .await;
    let _again = alone_at(&home, &port).await;
    agent.json_where(online).await;
    // The event stream starts again, with a snapshot.
    events
        .json_where(|event| event["type"] == "state.initial")
        .await;
}

#[tokio::test]
async fn a_drain_lets_a_stream_finish_and_a_second_signal_does_not_wait() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = shouting_service().await.to_string();
    let mut events = home.start(&["events", "--events", "state.initial,tunnel.deleted"]);
    assert_eq!(events.json().await["type"], "state.initial");
    for (hurry, expected) in [(false, "HELLO"), (true, "")] {
        let mut agent = home.start(&["forward", &port, "--tcp", "-o", "json"]);
        let public_port = u16::try_from(agent.json().await["port"].as_u64().unwrap()).unwrap();
        let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, public_port))
            .await
            .unwrap();
        visitor.write_all(b"hello").await.unwrap();
        assert_eq!(agent.json().await["active"], true);
        agent.signal(Signal::SIGTERM);
        events.json().await;
        let started_at = Instant::now();
        // The first signal has been processed. Two signals at the same time would count as one.
        if hurry {
            agent.signal(Signal::SIGTERM);
        }
        let mut answer = String::new();
        if !hurry {
            visitor.shutdown().await.unwrap();
        }
        // An aborted stream may end with an error. The test only needs to see that no answer
        // arrived.
        drop(
            timeout(SOON, visitor.read_to_string(&mut answer))
                .await
                .unwrap(),
        );
        assert_eq!(answer, expected);
        assert_eq!(agent.ended().await.code, Some(0));
        assert!(started_at.elapsed() < DRAIN, "{:?}", started_at.elapsed());
    }
}

fn jwt_secret(ready: &Value) -> std::path::PathBuf {
    Path::new(ready["ca_file"].as_str().unwrap()).with_file_name("jwt.secret")
}

/// `python3 -m http.server` and other services close the connection after each response. The visitor
/// has the whole response, so the agent reports no failure.
#[tokio::test]
async fn a_service_that_closes_after_its_response_has_not_failed() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let (_service, port) = web_service(0).await;
    let mut agent = home.start(&["forward", &port.to_string(), "-o", "json"]);
    let first = agent.json_where(online).await;
    let (client, url) = visitor(&up.ready, first["forwarding"].as_str().unwrap());
    for _ in 0..2 {
        let response = client.get(url.clone()).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        let ended = agent.json_where(|line| line["active"] == false).await;
        assert_eq!(ended["error"], Value::Null, "{ended}");
    }
}

/// gRPC in most languages uses BoringSSL, which refuses a certificate with an IP address if its CA
/// has a constraint on addresses.
#[tokio::test]
async fn the_development_ca_works_with_boringssl() {
    const CLIENT: &str = "import sys, grpc
ca = open(sys.argv[1], 'rb').read()
options = [('grpc.ssl_target_name_override', sys.argv[3])]
credentials = grpc.ssl_channel_credentials(ca)
channel = grpc.secure_channel('ipv4:127.0.0.1:' + sys.argv[2], credentials, options)
grpc.channel_ready_future(channel).result(timeout=20)";
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let url: reqwest::Url = up.ready_field("engine_url").parse().unwrap();
    let python = std::env::var_os("SVC_TEST_PYTHON");
    let python = python.expect("SVC_TEST_PYTHON is not set: run cargo xtask test");
    let mut command = tokio::process::Command::new(python);
    let port = url.port().unwrap().to_string();
    let host = url.host_str().unwrap();
    command.args(["-c", CLIENT, up.ready_field("ca_file"), &port, host]);
    let ended = timeout(SOON, command.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
}
