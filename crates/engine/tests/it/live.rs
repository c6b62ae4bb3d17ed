//! The live streams over real connections: snapshot, changes, credentials, ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use engine::clock::SystemClock;
use engine::live::{LiveLimits, Owner};
use futures_util::StreamExt;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::support::{
    CREATE, NOW, READ, STREAMS, TestApi, auth, keyring, manual_clock, pat, token,
};

/// One end of a stream, whichever way it travels.
enum Stream {
    Sse {
        response: reqwest::Response,
        read: String,
    },
    WebSocket(Box<WebSocketStream<MaybeTlsStream<TcpStream>>>),
}

const TRANSPORTS: [&str; 2] = ["/api/sse", "/api/websocket"];

impl Stream {
    /// Opens a stream; the status where it is refused.
    async fn open(
        api: &TestApi,
        path: &str,
        query: &str,
        bearer: Option<&str>,
    ) -> Result<Self, u16> {
        if path == "/api/sse" {
            let mut request = api.http.get(api.url(&format!("{path}?{query}")));
            if let Some(bearer) = bearer {
                request = request.bearer_auth(bearer);
            }
            let response = request.send().await.unwrap();
            if response.status() != 200 {
                return Err(response.status().as_u16());
            }
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            assert_eq!(response.headers()["cache-control"], "no-store");
            return Ok(Self::Sse {
                response,
                read: String::new(),
            });
        }
        let mut request = format!("ws://{}{path}?{query}", api.address)
            .into_client_request()
            .unwrap();
        if let Some(bearer) = bearer {
            request
                .headers_mut()
                .insert(AUTHORIZATION, format!("Bearer {bearer}").parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => Ok(Self::WebSocket(Box::new(socket))),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    /// As somebody who may do everything.
    async fn watch(api: &TestApi, path: &str, params: &Value) -> Self {
        let query = format!("params={}", escaped(&params.to_string()));
        Self::open(api, path, &query, Some(&token(&pat())))
            .await
            .unwrap()
    }

    /// The next event; or, where the stream ended, the reason that it gave.
    async fn next(&mut self) -> Result<Value, String> {
        match self {
            Self::Sse { response, read } => loop {
                if let Some((event, rest)) = read.split_once("\n\n") {
                    let event = event.to_owned();
                    *read = rest.to_owned();
                    if let Some(reason) = event.strip_prefix(": closed: ") {
                        assert_eq!(
                            response.chunk().await.unwrap(),
                            None,
                            "nothing after the end"
                        );
                        return Err(reason.to_owned());
                    }
                    let data = event.strip_prefix("data: ").expect("one data line");
                    assert!(!data.contains('\n'));
                    return Ok(serde_json::from_str(data).unwrap());
                }
                let chunk = response
                    .chunk()
                    .await
                    .unwrap()
                    .expect("an end has a reason");
                read.push_str(std::str::from_utf8(&chunk).unwrap());
            },
            Self::WebSocket(socket) => loop {
                match socket.next().await.expect("an end has a reason").unwrap() {
                    Message::Text(text) => return Ok(serde_json::from_str(&text).unwrap()),
                    Message::Close(Some(frame)) => {
                        let code = match frame.reason.as_str() {
                            reason if reason.starts_with("the token") => CloseCode::Policy,
                            reason if reason.starts_with("too slow") => CloseCode::Again,
                            _ => CloseCode::Away,
                        };
                        assert_eq!(frame.code, code);
                        return Err(frame.reason.to_string());
                    }
                    Message::Ping(_) => {}
                    other => panic!("{other:?}"),
                }
            },
        }
    }

    async fn end(&mut self) -> String {
        loop {
            if let Err(reason) = self.next().await {
                return reason;
            }
        }
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        write!(escaped, "%{byte:02X}").unwrap();
    }
    escaped
}

/// What a watcher knows, by id. An event that does not fit is a failure.
#[derive(Debug, Default, PartialEq)]
struct Known(BTreeMap<String, Value>);

impl Known {
    fn apply(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        if kind == "state.initial" {
            assert!(self.0.is_empty(), "a snapshot comes once, and first");
            for list in ["clients", "tunnels"] {
                for object in event["object"][list].as_array().unwrap() {
                    assert!(self.0.insert(id(object), object.clone()).is_none());
                }
            }
            return;
        }
        let object = &event["object"];
        let known = self.0.remove(&id(object)).is_some();
        assert_eq!(known, !kind.ends_with("created"), "{event}");
        if !kind.ends_with("deleted") {
            self.0.insert(id(object), object.clone());
        }
    }
}

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}

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
async fn en_3_the_filters_cut_the_snapshot_and_the_changes() {
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

/// EN-3, EN-4: watchers come and read while another thread changes the state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn en_3_nothing_is_lost_or_doubled_while_the_state_changes() {
    let limits = LiveLimits {
        watcher_queue: 100_000,
        ..LiveLimits::default()
    };
    let api = Arc::new(TestApi::with(manual_clock(), limits, false).await);
    let changing = Arc::clone(&api);
    let (begun, begin) = tokio::sync::oneshot::channel();
    let writer = tokio::task::spawn_blocking(move || {
        let mut owners: Vec<Owner<()>> = vec![changing.client("u0", json!({}))];
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
    let mut expected = Known::default();
    for list in ["/api/clients", "/api/tunnels"] {
        for object in api.json(list).await.1.as_array().unwrap() {
            expected.0.insert(id(object), object.clone());
        }
    }
    for mut stream in streams {
        let mut known = Known::default();
        while !known.0.contains_key(last.client_id.as_str()) {
            known.apply(&stream.next().await.unwrap());
        }
        assert_eq!(known, expected);
    }
}

/// EN-5.
#[tokio::test]
async fn en_5_the_watch_token_rule() {
    let api = TestApi::start().await;
    let listing =
        |actions: Value| json!({"resources": {"tunnels": {"scopes": {"tunnels": actions}}}});
    let with = |ttl: i64, more: Value| auth(NOW, ttl, more);
    let read = || json!({"permissions": [READ]});
    for (rule, claims, expected) in [
        ("EN-5a auth", with(300, read()), 200),
        (
            "EN-5a app",
            json!({"type": "app", "clientId": "c", "iat": NOW, "exp": NOW + 60, "permissions": [READ]}),
            200,
        ),
        (
            "EN-5a pat",
            json!({"type": "pat", "userId": "ann", "iat": NOW, "exp": NOW + 60, "permissions": [READ]}),
            401,
        ),
        (
            "EN-5b no expiry",
            json!({"type": "auth", "userId": "ann", "iat": NOW, "permissions": [READ]}),
            401,
        ),
        ("EN-5b 3660 s", with(3660, read()), 200),
        ("EN-5b 3661 s", with(3661, read()), 401),
        ("EN-5b 1 s", with(1, read()), 200),
        ("EN-5b now", with(0, read()), 401),
        ("EN-5b past", with(-1, read()), 401),
        ("EN-5c list", with(60, listing(json!({"list": true}))), 200),
        (
            "EN-5c list with a filter",
            with(60, listing(json!({"list": {"filters": {"name": "web"}}}))),
            200,
        ),
        (
            "EN-5c list and create",
            with(60, listing(json!({"list": true, "create": true}))),
            401,
        ),
        (
            "EN-5c list and connect",
            with(60, listing(json!({"list": true, "connect": true}))),
            401,
        ),
        (
            "EN-5c connect alone",
            with(60, listing(json!({"connect": true}))),
            401,
        ),
        (
            "EN-5c no listing",
            with(60, listing(json!({"list": false}))),
            401,
        ),
        ("EN-5d read alone", with(60, read()), 200),
        ("EN-5d not narrowed", with(60, json!({})), 401),
        ("EN-5d null", with(60, json!({"permissions": null})), 401),
        (
            "EN-5d with create",
            with(60, json!({"permissions": [READ, CREATE]})),
            401,
        ),
        (
            "EN-5d with streams",
            with(60, json!({"permissions": [READ, STREAMS]})),
            401,
        ),
    ] {
        for path in TRANSPORTS {
            let opened =
                Stream::open(&api, path, &format!("svc.token={}", token(&claims)), None).await;
            let status = opened.as_ref().err().copied().unwrap_or(200);
            assert_eq!(status, expected, "{rule} on {path}");
            if let Ok(mut stream) = opened {
                assert_eq!(stream.next().await.unwrap()["type"], "state.initial");
            }
        }
    }
}

/// EN-3a.
#[tokio::test]
async fn en_3a_a_bearer_of_any_type_opens_a_stream() {
    let api = TestApi::start().await;
    for claims in [
        pat(),
        auth(NOW, 90_000, json!({"permissions": [READ, CREATE]})),
        json!({"type": "app", "clientId": "c", "permissions": [READ]}),
    ] {
        for path in TRANSPORTS {
            let mut stream = Stream::open(&api, path, "", Some(&token(&claims)))
                .await
                .ok()
                .unwrap();
            assert_eq!(stream.next().await.unwrap()["type"], "state.initial");
        }
    }
}

/// ED-1d.
#[tokio::test]
async fn ed_1d_a_present_query_token_is_judged_alone() {
    let api = TestApi::start().await;
    let watch = token(&auth(NOW, 60, json!({"permissions": [READ]})));
    let all = token(&pat());
    for path in TRANSPORTS {
        for (query, bearer, expected) in [
            (format!("svc.token={watch}"), Some("garbage"), 200),
            (format!("svc%2Etoken={watch}&params=%7B%7D"), None, 200),
            ("svc.token=".to_owned(), Some(all.as_str()), 401),
            ("svc.token".to_owned(), Some(&all), 401),
            ("svc.token=x.y.z".to_owned(), Some(&all), 401),
            (
                format!("svc.token={watch}&svc.token={watch}"),
                Some(&all),
                401,
            ),
            (format!("svc.token={all}"), Some(&all), 401),
            // Without compat.rstream it is a parameter like any other.
            (format!("rstream.token={watch}"), None, 401),
            ("rstream.token=".to_owned(), Some(&all), 200),
            (format!("SVC.token={watch}"), None, 401),
        ] {
            let opened = Stream::open(&api, path, &query, bearer).await;
            assert_eq!(opened.err().unwrap_or(200), expected, "{path}?{query}");
        }
    }
}

#[tokio::test]
async fn with_compat_the_other_brands_parameter_counts_as_ours() {
    let api = TestApi::with(manual_clock(), LiveLimits::default(), true).await;
    let watch = token(&auth(NOW, 60, json!({"permissions": [READ]})));
    for (query, expected) in [
        (format!("rstream.token={watch}"), 200),
        (format!("svc.token={watch}"), 200),
        (format!("svc.token={watch}&rstream.token={watch}"), 401),
    ] {
        for path in TRANSPORTS {
            let opened = Stream::open(&api, path, &query, None).await;
            assert_eq!(opened.err().unwrap_or(200), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let api = TestApi::on_system_time().await;
    let now = jiff::Timestamp::now().as_second();
    let query = format!(
        "svc.token={}",
        token(&auth(now, 2, json!({"permissions": [READ]})))
    );
    let mut streams = Vec::new();
    for path in TRANSPORTS {
        streams.push(Stream::open(&api, path, &query, None).await.ok().unwrap());
    }
    for stream in &mut streams {
        assert_eq!(stream.end().await, "the token has expired");
        assert!(
            jiff::Timestamp::now().as_second() >= now + 2,
            "not before its time"
        );
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked_and_no_other_does() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let (revoked, kept) = (
            token(&pat()),
            token(&json!({"type": "pat", "userId": "bob"})),
        );
        let mut ends = Stream::open(&api, path, "", Some(&revoked))
            .await
            .ok()
            .unwrap();
        let mut stays = Stream::open(&api, path, "", Some(&kept))
            .await
            .ok()
            .unwrap();
        stays.next().await.unwrap();
        api.tokens
            .set_revoked([credentials::digest(&revoked)].into());
        assert_eq!(ends.end().await, "the token is no longer valid");
        api.client("ann", json!({}));
        assert_eq!(stays.next().await.unwrap()["type"], "client.created");
        assert_eq!(
            Stream::open(&api, path, "", Some(&revoked)).await.err(),
            Some(401)
        );
        // A key that is taken out of service takes its tokens along.
        api.tokens
            .replace_keys(credentials::Keyring::new())
            .unwrap();
        assert_eq!(stays.end().await, "the token is no longer valid");
        api.tokens.replace_keys(keyring()).unwrap();
    }
}

/// The server's tasks cannot run while this task changes the state without waiting.
#[tokio::test]
async fn a_watcher_that_is_too_slow_is_told_so() {
    for path in TRANSPORTS {
        let limits = LiveLimits {
            watcher_queue: 2,
            ..LiveLimits::default()
        };
        let api = TestApi::with(manual_clock(), limits, false).await;
        let mut stream = Stream::watch(&api, path, &json!({})).await;
        stream.next().await.unwrap();
        for _ in 0..5 {
            api.client("ann", json!({}));
        }
        assert_eq!(stream.next().await.unwrap()["type"], "client.created");
        assert_eq!(
            stream.end().await,
            "too slow: events came faster than they were read"
        );
    }
}

#[tokio::test]
async fn a_stopping_engine_says_so() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let mut stream = Stream::watch(&api, path, &json!({})).await;
        stream.next().await.unwrap();
        api.live.end_subscriptions();
        assert_eq!(stream.end().await, "the engine is stopping");
    }
}

#[tokio::test]
async fn one_watcher_more_than_the_limit_is_503_and_a_place_is_free_again() {
    let limits = LiveLimits {
        watchers: 1,
        ..LiveLimits::default()
    };
    let api = TestApi::with(Arc::new(SystemClock), limits, false).await;
    let stream = Stream::watch(&api, "/api/websocket", &json!({})).await;
    let response = api.get("/api/sse").send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "10");
    drop(stream);
    while api.live.counts().watchers > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.get("/api/sse").send().await.unwrap().status(), 200);
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
    // The server's settings come with its first frames.
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
