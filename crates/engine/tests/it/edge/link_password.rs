//! Link passwords, over real connections: the request that the service receives, and that no
//! refused request reaches it.

use std::net::Ipv4Addr;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::properties::LinkPassword;
use client::{ConnectError, Properties, RefusalKind};
use credentials::{Secret, link_password};
use engine::clock::ManualClock;
use futures_util::{SinkExt, StreamExt};
use http::{Method, Request, StatusCode, Version};
use hyper::ext::Protocol;
use jiff::Timestamp;
use serde_json::{Value, json};
use testing::{H2Visitor, ReceivedResponse, TestEngine, Upstream, within};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::browser::Site;

const PASSWORD: &str = "correct horse";

/// The hash of [`PASSWORD`].
static HASH: LazyLock<String> = LazyLock::new(|| hash(PASSWORD));

fn hash(password: &str) -> String {
    link_password::hash(&Secret::new(password), &[7; link_password::SALT_BYTES]).unwrap()
}

/// A tunnel with a password for `ann`.
fn guarded() -> Properties {
    Properties::http().link_passwords(vec![LinkPassword::new("ann", HASH.as_str())])
}

fn credentials(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: {}\r\n", credentials(user, password))
}

/// Sends a GET on its own connection. `fields` are lines including their line ends.
async fn get(engine: &TestEngine, host: &str, target: &str, fields: &str) -> ReceivedResponse {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", target, host, fields).await;
    visitor.answer().await
}

/// The same over HTTP/2.
async fn get_h2(engine: &TestEngine, host: &str, authorization: &[&str]) -> ReceivedResponse {
    let mut visitor = engine.visitor().h2(host).await;
    let mut request = Request::get(format!("https://{host}/"));
    for value in authorization {
        request = request.header("authorization", *value);
    }
    let request = request.body(H2Visitor::empty()).unwrap();
    H2Visitor::collect(visitor.send(request).await.unwrap()).await
}

fn code(answer: &ReceivedResponse) -> (u16, Value) {
    (answer.status, answer.json()["code"].clone())
}

/// The names of the fields that the service received.
fn received_names(answer: &ReceivedResponse) -> Vec<String> {
    let answer = answer.json();
    let fields = answer["headers"].as_array().unwrap().iter();
    fields
        .map(|field| field[0].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_right_password_is_removed_before_the_service() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    assert_eq!(tunnel.online().properties.basic_auth, Some(true));
    // The first is checked, and the result of its check is used for the others.
    let right = credentials("ann", PASSWORD);
    for answer in [
        get(&engine, host, "/", &format!("authorization: {right}\r\n")).await,
        get(&engine, host, "/", &basic("ann", PASSWORD)).await,
        get_h2(&engine, host, &[&right]).await,
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let names = received_names(&answer);
        for absent in ["authorization", "svc-user-id", "svc-auth-method"] {
            assert!(!names.iter().any(|name| name == absent), "{names:?}");
        }
    }
}

#[tokio::test]
async fn without_a_right_password_the_service_receives_nothing() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    let (wrong, unknown) = (credentials("ann", "wrong"), credentials("bob", PASSWORD));
    let right = credentials("ann", PASSWORD);
    for (authorization, expected) in [
        (&[][..], "password_required"),
        (&["Digest a"], "password_required"),
        (&["Bearer a.b.c"], "password_required"),
        (&[wrong.as_str()], "invalid_password"),
        (&[unknown.as_str()], "invalid_password"),
        (&["Basic"], "invalid_password"),
        (&["Basic YW5u"], "invalid_password"),
        (&[right.as_str(), right.as_str()], "invalid_password"),
        (&[right.as_str(), "Digest a"], "invalid_password"),
    ] {
        let fields = authorization
            .iter()
            .map(|value| format!("Authorization: {value}\r\n"));
        let fields: String = fields.collect::<Vec<_>>().concat();
        for answer in [
            get(&engine, host, "/", &fields).await,
            get_h2(&engine, host, authorization).await,
        ] {
            assert_eq!(code(&answer), (401, json!(expected)), "{fields}");
            assert_eq!(
                answer.header("www-authenticate"),
                Some("Basic realm=\"svc\", charset=\"UTF-8\"")
            );
        }
    }
    // A browser shows the page when its dialog is closed.
    let page = get(&engine, host, "/", "Accept: text/html\r\n").await;
    assert_eq!(page.status, 401);
    assert!(
        page.text().contains("This address needs a password."),
        "{}",
        page.text()
    );
    assert_eq!(service.accepted(), 0);
}

#[tokio::test]
async fn a_password_is_refused_beside_a_second_credential() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let alone = engine.publish_as(guarded(), service.addr()).await;
    let both = engine
        .publish_as(guarded().token_auth(true), service.addr())
        .await;
    let token = engine.token(json!({}));
    let bearer = format!("Bearer {token}");
    let right = credentials("ann", PASSWORD);
    let ambiguous = (400, json!("ambiguous_credentials"));
    for host in [alone.hostname(), both.hostname()] {
        let target = format!("/?svc.token={token}");
        let answer = get(&engine, host, &target, &basic("ann", PASSWORD)).await;
        assert_eq!(code(&answer), ambiguous, "in the query");
        let fields = format!("Authorization: {bearer}\r\n{}", basic("ann", PASSWORD));
        let answer = get(&engine, host, "/", &fields).await;
        assert_eq!(code(&answer), ambiguous, "in the header");
        let answer = get_h2(&engine, host, &[&right, &bearer]).await;
        assert_eq!(code(&answer), ambiguous, "in the header, over HTTP/2");
    }
    assert_eq!(service.accepted(), 0);
    // Each one alone is accepted where the tunnel accepts it.
    let host = both.hostname();
    for authorization in [&right, &bearer] {
        let answer = get_h2(&engine, host, &[authorization]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = get(&engine, host, "/", "").await;
    assert_eq!(code(&answer), (401, json!("password_required")));
    assert_eq!(
        answer.json()["detail"],
        "This address needs a password or a token."
    );
    // Browsers use the first challenge that they support.
    let fields = basic("ann", "wrong");
    for answer in [answer, get(&engine, host, "/", &fields).await] {
        let challenges = answer.headers.iter();
        let challenges = challenges.filter(|(name, _)| name == "www-authenticate");
        let challenges: Vec<_> = challenges.map(|(_, value)| value.as_str()).collect();
        let expected = [
            "Basic realm=\"svc\", charset=\"UTF-8\"",
            "Bearer realm=\"svc\"",
        ];
        assert_eq!(challenges, expected);
    }
}

/// At other tunnels the header belongs to the service.
#[tokio::test]
async fn basic_credentials_are_untouched_without_a_link_password() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let answer = get(&engine, tunnel.hostname(), "/", &basic("ann", PASSWORD)).await;
    assert_eq!(answer.status, 200);
    assert!(received_names(&answer).contains(&"authorization".to_owned()));
}

/// The body of a request waits for the check, and the connection is kept.
#[tokio::test]
async fn each_request_of_a_connection_is_decided() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let fields = format!("{}Content-Length: 5\r\n", basic("ann", PASSWORD));
    let head = format!("POST / HTTP/1.1\r\nHost: {host}\r\n{fields}\r\nhello");
    visitor.send(head).await;
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["body"], "hello");
    for (fields, status) in [
        (String::new(), 401),
        (basic("ann", PASSWORD), 200),
        (basic("ann", "wrong"), 401),
        (basic("ann", PASSWORD), 200),
    ] {
        visitor.request("GET", "/", host, &fields).await;
        assert_eq!(visitor.answer().await.status, status, "{fields}");
    }
}

#[tokio::test]
async fn web_sockets_need_the_password() {
    let engine = TestEngine::start().await;
    let service = Upstream::websocket().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    let request = |authorization: Option<String>| {
        let mut request = format!("wss://{host}/").into_client_request().unwrap();
        if let Some(value) = authorization {
            let headers = request.headers_mut();
            headers.insert("authorization", value.parse().unwrap());
        }
        request
    };
    for refused in [None, Some(credentials("ann", "wrong"))] {
        let stream = engine.visitor().http1(host).await.into_stream();
        let opened = tokio_tungstenite::client_async(request(refused), stream).await;
        let Err(error) = opened else {
            panic!("the upgrade was allowed");
        };
        assert!(error.to_string().contains("401"), "{error}");
    }
    assert_eq!(service.accepted(), 0);
    let stream = engine.visitor().http1(host).await.into_stream();
    let right = credentials("ann", PASSWORD);
    let opened = tokio_tungstenite::client_async(request(Some(right.clone())), stream).await;
    let (mut socket, _) = opened.unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    let echoed = socket.next().await.unwrap().unwrap();
    assert_eq!(echoed, Message::text("hello"));

    // Extended CONNECT, after a response: only then have the settings arrived that allow it.
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/", host).await.status, 401);
    for (value, status) in [
        (credentials("ann", "wrong"), StatusCode::UNAUTHORIZED),
        (right, StatusCode::OK),
    ] {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("https://{host}/"))
            .version(Version::HTTP_2)
            .extension(Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .header("authorization", value)
            .body(H2Visitor::empty())
            .unwrap();
        assert_eq!(visitor.send(request).await.unwrap().status(), status);
    }
}

/// Browsers repeat an entered password with requests that pages of other sites cause.
#[tokio::test]
async fn pages_of_other_origins_cannot_use_the_password() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    let own = format!("Origin: https://{host}\r\n");
    let own = own.as_str();
    let foreign = "Origin: https://evil.example\r\n";
    let refused = (403, json!("cross_site_request"));
    for (method, fields, passes) in [
        ("POST", "", true),
        ("POST", own, true),
        ("POST", "Sec-Fetch-Site: same-origin\r\n", true),
        ("POST", foreign, false),
        ("POST", "Origin: null\r\n", false),
        ("POST", "Sec-Fetch-Site: cross-site\r\n", false),
        ("DELETE", foreign, false),
        ("GET", foreign, true),
        ("GET", "Sec-Fetch-Site: cross-site\r\n", true),
    ] {
        let before = service.accepted();
        let fields = format!("Content-Length: 0\r\n{}{fields}", basic("ann", PASSWORD));
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request(method, "/", host, &fields).await;
        let answer = visitor.answer().await;
        if passes {
            assert_eq!(answer.status, 200, "{method} {fields}");
        } else {
            assert_eq!(code(&answer), refused, "{method} {fields}");
            assert_eq!(service.accepted(), before, "{method} {fields}");
        }
    }
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let fields = format!("{}{upgrade}{foreign}", basic("ann", PASSWORD));
    let before = service.accepted();
    let answer = get(&engine, host, "/", &fields).await;
    assert_eq!(code(&answer), refused, "a WebSocket");
    assert_eq!(service.accepted(), before);
}

#[tokio::test]
async fn a_source_with_many_wrong_passwords_has_to_wait() {
    // A clock that stands still: the source gains no attempt, however long a check takes.
    let clock = Arc::new(ManualClock::at(Timestamp::now()));
    let engine = TestEngine::start_at("", &[], clock).await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), service.addr()).await;
    let host = tunnel.hostname();
    // The right password is known before.
    let right = basic("ann", PASSWORD);
    assert_eq!(get(&engine, host, "/", &right).await.status, 200);
    let mut guesses = 0;
    let limited = loop {
        let guess = basic("ann", &format!("guess {guesses}"));
        let answer = get(&engine, host, "/", &guess).await;
        if answer.status != 401 {
            break answer;
        }
        guesses += 1;
    };
    assert_eq!(guesses, 20);
    assert_eq!(code(&limited), (429, json!("too_many_requests")));
    let wait: u32 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    // A visitor whose password is known is not affected, and neither is another source.
    assert_eq!(get(&engine, host, "/", &right).await.status, 200);
    let elsewhere = engine.visitor().from(Ipv4Addr::new(127, 0, 0, 2));
    let mut visitor = elsewhere.http1(host).await;
    let wrong = basic("ann", "another guess");
    visitor.request("GET", "/", host, &wrong).await;
    assert_eq!(visitor.answer().await.status, 401);
}

/// The results of checks belong to a password.
#[tokio::test]
async fn a_changed_password_applies_immediately() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let named = |hash: &str| {
        Properties::http()
            .named("web")
            .hostname("web")
            .link_passwords(vec![LinkPassword::new("", hash)])
    };
    let tunnel = engine.publish_as(named(&HASH), service.addr()).await;
    let host = tunnel.hostname().to_owned();
    let before = basic("anybody", PASSWORD);
    assert_eq!(get(&engine, &host, "/", &before).await.status, 200);
    tunnel.close().await;
    let changed = hash("another password");
    let tunnel = engine.publish_as(named(&changed), service.addr()).await;
    assert_eq!(tunnel.hostname(), host);
    assert_eq!(get(&engine, &host, "/", &before).await.status, 401);
    let after = basic("anybody", "another password");
    assert_eq!(get(&engine, &host, "/", &after).await.status, 200);
}

#[tokio::test]
async fn unusable_link_passwords_are_refused_by_name() {
    let engine = TestEngine::start().await;
    let agent = engine.agent().await;
    let of = |hash: &str| Properties::http().link_passwords(vec![LinkPassword::new("ann", hash)]);
    let expensive = HASH.replacen("m=19456", "m=1000000", 1);
    let twice = vec![LinkPassword::new("ann", HASH.as_str()); 2];
    let many = (0..17).map(|user| LinkPassword::new(user.to_string(), HASH.as_str()));
    let mut without = Properties::http();
    without.basic_auth = Some(true);
    let mut tls = guarded();
    tls.protocol = Some("tls".into());
    for (properties, reason) in [
        (of("secret"), "basic_auth.0: the hash is not a PHC string"),
        (of(&expensive), "basic_auth.0: the hash needs more than"),
        (without, "basic_auth.0: the hash is not a PHC string"),
        (
            Properties::http().link_passwords(twice),
            "basic_auth: a user name is repeated",
        ),
        (
            Properties::http().link_passwords(many.collect()),
            "basic_auth: at most 16 entries",
        ),
        (
            tls,
            "basic_auth: only http tunnels have this option: remove it, or set protocol to http",
        ),
    ] {
        let mut tunnel = agent.open(properties);
        let closed = within("refusal", tunnel.online()).await.unwrap_err();
        let ConnectError::Refused(refusal) = closed else {
            panic!("{closed:?}")
        };
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.message.contains(reason), "{}", refusal.message);
    }
}

/// A managed engine with a challenge: the right password replaces it, as a token does.
#[tokio::test]
async fn a_managed_engine_checks_link_passwords() {
    let site = Site::start(guarded().challenge_mode(true)).await;
    let answer = site.get("/", "").await;
    assert_eq!(code(&answer), (403, json!("challenge_required")));
    let answer = site.get("/", &basic("ann", "wrong")).await;
    assert_eq!(code(&answer), (401, json!("invalid_password")));
    assert_eq!(site.service.accepted(), 0);
    let answer = site.get("/", &basic("ann", PASSWORD)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = site.get("/.well-known/svc/session", "").await.json();
    assert_eq!(answer["policies"], json!(["challenge-mode", "basic-auth"]));
}

/// A browser could only be sent to the sign-in or be asked for a password.
#[tokio::test]
async fn browser_sessions_and_link_passwords_exclude_each_other() {
    let site = Site::start(guarded()).await;
    let agent = site.tunnel.agent();
    let mut tunnel = agent.open(guarded().svc_auth(true));
    let closed = within("refusal", tunnel.online()).await.unwrap_err();
    let reason = "it cannot be combined with svc_auth (--svc-auth)";
    assert!(closed.to_string().contains(reason), "{closed}");
}
