//! Snapshot, changes, and the transports of both.

use std::sync::Arc;

use engine::live::{ClientHandle, LiveLimits};
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{ClientView, Stream, TRANSPORTS, id};
use crate::support::{TestApi, manual_clock, pat, token};

/// EN-3, EN-4.
#[tokio::test]
async fn en_3_en_4_a_stream_is_the_snapshot_and_then_every_change() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let ann = api.client("ann", json!({"os": "linux"}));
        api.tunnel(&ann, json!({"name": "web"}));
        let mut stream = Stream::watch(&api, path, &json!({})).await;
        let initial = stream.next().await.unwrap();
        assert_eq!(initial["type"], "state.initial");
        assert_eq!(initial["object"]["snapshot_at"], "2027-01-15T08:00:00.000Z");
        assert_eq!(
            initial["object"]["clients"][0]["id"],
            ann.client_id.as_str()
        );
        assert_eq!(initial["object"]["tunnels"][0]["name"], "web");
        assert!(initial["id"].as_str().unwrap().starts_with("evt_"));
        let db = api.tunnel(&ann, json!({"name": "db", "publish": false}));
        api.live.update_client(&ann.client_id, |client| {
            client.os = Some("macos".to_owned());
        });
        api.live.close_tunnel(&ann.client_id, &db.view.id);
        api.live.remove_client(&ann.client_id);
        for (kind, member, value) in [
            ("tunnel.created", "name", "db"),
            ("client.updated", "os", "macos"),
            ("tunnel.deleted", "name", "db"),
            ("tunnel.deleted", "name", "web"),
            ("client.deleted", "os", "macos"),
        ] {
            let event = stream.next().await.unwrap();
            assert_eq!(
                (&event["type"], &event["object"][member]),
                (&json!(kind), &json!(value)),
                "{path}"
            );
            assert_eq!(event["user_id"], "ann");
            assert_eq!(event["project_id"], "default");
            assert_eq!(event["created_at"], "2027-01-15T08:00:00.000Z");
        }
    }
}

/// EN-3.
#[tokio::test]
async fn en_3_the_filters_apply_to_the_snapshot_and_the_changes() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let ann = api.client("ann", json!({"os": "linux"}));
        api.tunnel(&ann, json!({"name": "web", "labels": {"env": "prod"}}));
        api.tunnel(&ann, json!({"name": "dev"}));
        let params = json!({"tunnels": {"labels": {"env": "prod"}}, "clients": {"os": "macos"}});
        let mut stream = Stream::watch(&api, path, &params).await;
        let initial = stream.next().await.unwrap();
        assert_eq!(initial["object"]["clients"], json!([]));
        assert_eq!(initial["object"]["tunnels"].as_array().unwrap().len(), 1);
        api.tunnel(&ann, json!({"name": "dev2"}));
        api.client("bob", json!({"os": "linux"}));
        api.client("bob", json!({"os": "macos"}));
        assert_eq!(stream.next().await.unwrap()["type"], "client.created");
        api.tunnel(&ann, json!({"name": "web2", "labels": {"env": "prod"}}));
        assert_eq!(stream.next().await.unwrap()["object"]["name"], "web2");
    }
}

/// EN-3, EN-4: clients connect and read while another thread changes the state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn en_3_no_event_is_lost_or_duplicated_while_the_state_changes() {
    let limits = LiveLimits {
        watcher_queue: 100_000,
        ..LiveLimits::default()
    };
    let api = Arc::new(TestApi::with(manual_clock(), limits, false).await);
    let changing = Arc::clone(&api);
    let (begun, begin) = tokio::sync::oneshot::channel();
    let writer = tokio::task::spawn_blocking(move || {
        let mut owners: Vec<ClientHandle<()>> = vec![changing.client("u0", json!({}))];
        let mut begun = Some(begun);
        for step in 0..1500_usize {
            if step == 100 {
                begun.take().unwrap().send(()).unwrap();
            }
            let place = step * 7 % owners.len();
            match step % 7 {
                0 => owners.push(changing.client(&format!("u{}", step % 3), json!({}))),
                1 | 2 | 4 => {
                    changing.tunnel(
                        &owners[place],
                        json!({"labels": {"step": step.to_string()}}),
                    );
                }
                3 => {
                    changing
                        .live
                        .update_client(&owners[place].client_id, |client| {
                            client.version = Some(step.to_string());
                        });
                }
                5 if owners.len() > 3 => {
                    changing
                        .live
                        .remove_client(&owners.swap_remove(place).client_id);
                }
                _ => {
                    let name = format!("n{}", step % 4);
                    let user = format!("u{}", step % 3);
                    let owner = changing.client(&user, json!({}));
                    changing.tunnel(&owner, json!({"name": format!("{user}-{name}")}));
                    owners.push(owner);
                }
            }
        }
    });
    begin.await.unwrap();
    let mut streams = Vec::new();
    for number in 0..12 {
        streams.push(Stream::watch(&api, TRANSPORTS[number % 2], &json!({})).await);
    }
    writer.await.unwrap();
    let last = api.client("last", json!({}));
    let mut expected = ClientView::default();
    for list in ["/api/clients", "/api/tunnels"] {
        for object in api.json(list).await.1.as_array().unwrap() {
            expected.0.insert(id(object), object.clone());
        }
    }
    for mut stream in streams {
        let mut known = ClientView::default();
        while !known.0.contains_key(last.client_id.as_str()) {
            known.apply(&stream.next().await.unwrap());
        }
        assert_eq!(known, expected);
    }
}

/// EN-4.
#[tokio::test]
async fn en_4_a_plain_get_is_426() {
    let api = TestApi::start().await;
    let response = api.get("/api/websocket").send().await.unwrap();
    assert_eq!(response.status(), 426);
    assert_eq!(response.headers()["upgrade"], "websocket");
    assert_eq!(
        response.json::<Value>().await.unwrap()["code"],
        "upgrade_required"
    );
}

#[tokio::test]
async fn pages_of_any_origin_may_read_server_sent_events() {
    let api = TestApi::start().await;
    for (query, status) in [("", 200), ("?params=x", 400)] {
        let response = api.get(&format!("/api/sse{query}")).send().await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
    }
    let list = api.get("/api/tunnels").send().await.unwrap();
    assert!(list.headers().get("access-control-allow-origin").is_none());
}

/// EN-4 over HTTP/2 (RFC 8441).
#[tokio::test]
async fn en_4_extended_connect_opens_the_stream() {
    let api = TestApi::start().await;
    let socket = TcpStream::connect(api.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(async move { connection.await.unwrap() });
    let connect = |protocol: &'static str| {
        http::Request::builder()
            .method("CONNECT")
            .uri(format!("http://{}/api/websocket", api.address))
            .header("sec-websocket-version", "13")
            .header(AUTHORIZATION, format!("Bearer {}", token(&pat())))
            .extension(h2::ext::Protocol::from_static(protocol))
            .body(())
            .unwrap()
    };
    // The server's settings arrive with its first frames.
    while !client.is_extended_connect_protocol_enabled() {
        client = client.ready().await.unwrap();
        tokio::task::yield_now().await;
    }
    let (other, _keep) = client.send_request(connect("connect-udp"), false).unwrap();
    assert_eq!(other.await.unwrap().status(), 426);
    let (response, _keep) = client.send_request(connect("websocket"), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let frame = body.data().await.unwrap().unwrap();
    // RFC 6455, 5.2: a final text frame, not masked, with two bytes of length.
    assert_eq!(frame[..2], [0x81, 126]);
    let event: Value = serde_json::from_slice(&frame[4..]).unwrap();
    assert_eq!(event["type"], "state.initial");
    connection.abort();
}
