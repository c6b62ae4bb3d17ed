//! Token authentication at the edge, over real connections: the forwarded request, and that no
//! refused request reaches the service.

use std::sync::Arc;

use client::Properties;
use engine::clock::{Clock, ManualClock};
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};
use testing::{H2Visitor, ReceivedResponse, ScriptedUpstream, TestEngine, TestTunnel, Upstream};

use crate::support::{READ, STREAMS, signed};

fn guarded() -> Properties {
    Properties::http()
        .named("web")
        .token_auth(true)
        .labels([("tier".to_owned(), "web".to_owned())].into())
}

/// Sends a GET on its own connection. `fields` are lines including their line ends.
async fn get(engine: &TestEngine, host: &str, target: &str, fields: &str) -> ReceivedResponse {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", target, host, fields).await;
    visitor.answer().await
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The values of a field that the service received.
fn received_values<'a>(answer: &'a Value, name: &str) -> Vec<&'a str> {
    let fields = answer["headers"].as_array().unwrap().iter();
    fields
        .filter(|field| field[0] == name)
        .map(|field| field[1].as_str().unwrap())
        .collect()
}

/// An accepted proof, and the request that the service receives.
struct Passes {
    target: String,
    fields: String,
    forwarded: &'static str,
    authorization: Vec<String>,
}

/// ED-1, ED-1a.
#[tokio::test]
async fn ed_1_ed_1a_the_proof_is_not_forwarded() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let good = engine.token(json!({}));
    let data = "Bearer application-data";
    for Passes {
        target,
        fields,
        forwarded,
        authorization,
    } in [
        Passes {
            target: "/a?b=%20".to_owned(),
            fields: bearer(&good),
            forwarded: "/a?b=%20",
            authorization: vec![],
        },
        Passes {
            target: "/".to_owned(),
            fields: format!("authorization: bEARER {good}\r\n"),
            forwarded: "/",
            authorization: vec![],
        },
        Passes {
            target: format!("/?svc.token={good}"),
            fields: String::new(),
            forwarded: "/",
            authorization: vec![],
        },
        Passes {
            target: format!("/a?b=%2f&svc.token={good}&c"),
            fields: format!("Authorization: {data}\r\n"),
            forwarded: "/a?b=%2f&c",
            authorization: vec![data.to_owned()],
        },
        // The header is data in this case, whatever it contains.
        Passes {
            target: format!("/?svc%2Etoken={good}&&"),
            fields: bearer(&good),
            forwarded: "/?&",
            authorization: vec![format!("Bearer {good}")],
        },
        Passes {
            target: format!("/?svc.token={good}"),
            fields: "Authorization: Basic YTpi\r\n".to_owned(),
            forwarded: "/",
            authorization: vec!["Basic YTpi".to_owned()],
        },
    ] {
        let answer = get(&engine, tunnel.hostname(), &target, &fields).await;
        assert_eq!(answer.status, 200, "{target}");
        let answer = answer.json();
        assert_eq!(answer["target"], forwarded);
        assert_eq!(
            received_values(&answer, "authorization"),
            authorization,
            "{target}"
        );
        assert_eq!(received_values(&answer, "svc-user-id"), ["usr_tester"]);
        assert_eq!(received_values(&answer, "svc-auth-method"), ["token"]);
    }
}

/// ED-1, ED-1b: also next to a valid bearer, and over both versions of HTTP.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn ed_1_ed_1b_a_refused_request_does_not_reach_the_service() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let host = tunnel.hostname();
    let good = engine.token(json!({}));
    let foreign = signed(
        &json!({"type": "pat", "userId": "ann"}),
        "another secret of at least 32 bytes",
    );
    let expired = engine.token(json!({"exp": 1}));
    let unauthenticated = (401, "unauthenticated");
    let invalid = (401, "invalid_token");
    let malformed = (400, "invalid_request");
    for (target, authorization, expected) in [
        ("/".to_owned(), None, unauthenticated),
        ("/?token=x".to_owned(), None, unauthenticated),
        (format!("/?SVC.TOKEN={good}"), None, unauthenticated),
        (
            "/".to_owned(),
            Some("Basic YTpi".to_owned()),
            unauthenticated,
        ),
        ("/".to_owned(), Some("Bearer".to_owned()), invalid),
        ("/".to_owned(), Some("Bearer garbage".to_owned()), invalid),
        ("/".to_owned(), Some(format!("Bearer {foreign}")), invalid),
        ("/".to_owned(), Some(format!("Bearer {expired}")), invalid),
        (
            "/".to_owned(),
            Some(format!("Bearer {good}, Bearer {good}")),
            invalid,
        ),
        (
            format!("/?svc.token={foreign}"),
            Some(format!("Bearer {good}")),
            invalid,
        ),
        (
            format!("/?svc.token={expired}"),
            Some(format!("Bearer {good}")),
            invalid,
        ),
        (
            "/?svc.token=".to_owned(),
            Some(format!("Bearer {good}")),
            malformed,
        ),
        (
            "/?svc.token".to_owned(),
            Some(format!("Bearer {good}")),
            malformed,
        ),
        (
            "/?svc.token=a.b".to_owned(),
            Some(format!("Bearer {good}")),
            malformed,
        ),
        (
            "/?svc.token=a.b.%zz".to_owned(),
            Some(format!("Bearer {good}")),
            malformed,
        ),
        (
            format!("/?svc.token={good}&svc.token={good}"),
            Some(format!("Bearer {good}")),
            malformed,
        ),
        (
            format!("/?svc.token={good}&x&svc%2etoken="),
            None,
            malformed,
        ),
    ] {
        let fields = authorization.as_ref();
        let fields = fields.map_or(String::new(), |value| format!("Authorization: {value}\r\n"));
        let mut answers = vec![get(&engine, host, &target, &fields).await];
        let mut request = Request::get(format!("https://{host}{target}"));
        if let Some(value) = &authorization {
            request = request.header("authorization", value);
        }
        let mut visitor = engine.visitor().h2(host).await;
        let request = request.body(H2Visitor::full("")).unwrap();
        let response = visitor.send(request).await.unwrap();
        answers.push(H2Visitor::collect(response).await);
        for answer in answers {
            let problem = answer.json();
            let actual = (answer.status, problem["code"].as_str().unwrap());
            assert_eq!(actual, expected, "{target} {authorization:?}");
            let challenge = answer.header("www-authenticate");
            match expected.1 {
                // RFC 6750 section 3.1: no error code for a request without credentials.
                "unauthenticated" => assert!(!challenge.unwrap().contains("error")),
                "invalid_token" => assert!(challenge.unwrap().contains("invalid_token")),
                _ => assert_eq!(challenge, None),
            }
            let text = answer.text();
            assert!(!text.contains(&good) && !text.contains(&foreign));
        }
    }
    // Two fields, each of which alone would be valid or ignored.
    let two = format!("{}{}", bearer(&good), "Authorization: Basic YTpi\r\n");
    assert_eq!(get(&engine, host, "/", &two).await.status, 401);
    assert_eq!(upstream.accepted(), 0);
}

/// ED-1: each request of a connection is checked separately.
#[tokio::test]
async fn ed_1_a_valid_request_does_not_authorise_the_next() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let host = tunnel.hostname();
    let valid = bearer(&engine.token(json!({})));
    let mut visitor = engine.visitor().http1(host).await;
    for (fields, status) in [(valid.as_str(), 200), ("", 401), (&valid, 200), ("", 401)] {
        visitor.request("GET", "/", host, fields).await;
        assert_eq!(visitor.answer().await.status, status);
    }
    visitor.request("GET", "/", host, &valid).await;
    let served = visitor.answer().await.json();
    assert_eq!(
        (&served["connection"], &served["request"]),
        (&1.into(), &3.into()),
        "the refused ones were not passed on, and the connection was kept"
    );
}

/// ED-1c: types, permission, boundary.
#[tokio::test]
async fn ed_1c_tokens_that_reach_the_tunnel() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let boundary = |leaf: Value| json!({"resources": {"tunnels": leaf}});
    let connect = |rule: Value| {
        boundary(json!({"projects": ["default"], "scopes": {"tunnels": {"connect": rule}}}))
    };
    for (claims, status) in [
        (json!({"type": "pat"}), 200),
        (json!({"type": "auth"}), 200),
        (json!({"type": "app", "clientId": "app-1"}), 200),
        (json!({"type": "session"}), 401),
        (json!({"permissions": [STREAMS]}), 200),
        (json!({"permissions": [READ]}), 403),
        (json!({"permissions": []}), 403),
        (boundary(json!({"projects": ["default"]})), 200),
        (boundary(json!({"projects": ["other"]})), 403),
        (boundary(json!({"workspaces": ["wks_1"]})), 403),
        (boundary(json!({})), 403),
        (boundary(json!([])), 403),
        (connect(json!(true)), 200),
        (connect(json!(false)), 403),
        (connect(json!({"filters": {"name": "web"}})), 200),
        (connect(json!({"filters": {"name": "db"}})), 403),
        (
            connect(json!({"filters": {"labels": {"tier": "web"}}})),
            200,
        ),
        (connect(json!({"filters": {"labels": {"tier": "db"}}})), 403),
        (
            boundary(json!({"projects": ["default"], "scopes": {"tunnels": {"list": true}}})),
            403,
        ),
    ] {
        let before = upstream.accepted();
        let fields = bearer(&engine.token(claims.clone()));
        let answer = get(&engine, tunnel.hostname(), "/", &fields).await;
        assert_eq!(answer.status, status, "{claims}");
        if status != 200 {
            assert_eq!(upstream.accepted(), before, "{claims}");
        }
        if status == 403 {
            assert_eq!(answer.json()["code"], "insufficient_scope");
            let challenge = answer.header("www-authenticate").unwrap();
            assert!(
                challenge.contains(STREAMS),
                "missing permission: {challenge}"
            );
        }
    }
}

/// ED-1d: on the engine's own host a query credential is read for streams only, and must be the
/// only credential.
#[tokio::test]
async fn ed_1d_the_query_has_priority_on_tunnels_only() {
    let engine = TestEngine::start().await;
    let host = engine.host();
    let watch = engine.token(json!({"permissions": [READ]}));
    let valid = bearer(&engine.token(json!({})));
    let query = |path: &str, token: &str| format!("{path}?svc.token={token}");
    for (target, fields, status) in [
        (query("/api/tunnels", &watch), "", 401),
        (query("/api/tunnels", &watch), valid.as_str(), 200),
        (query("/api/clients", "a.b.c"), valid.as_str(), 200),
        (query("/api/sse", "a.b.c"), valid.as_str(), 401),
        (query("/api/websocket", "a.b.c"), valid.as_str(), 401),
    ] {
        let answer = get(&engine, host, &target, fields).await;
        assert_eq!(answer.status, status, "{target}");
    }
    let mut stream = engine.visitor().http1(host).await;
    let target = query("/api/sse", &watch);
    stream
        .request("GET", &target, host, "Authorization: Bearer a.b.c\r\n")
        .await;
    assert_eq!(stream.head().await.status, 200);
}

/// ED-7: the checked path is the path that the service receives, byte for byte.
#[tokio::test]
async fn ed_7_a_path_is_checked_as_the_service_sees_it() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let host = tunnel.hostname();
    let within = |regex: &str| {
        let connect = json!({"params": {"path": {"regex": regex}}});
        let scopes = json!({"tunnels": {"connect": connect}});
        let leaf = json!({"projects": ["default"], "scopes": scopes});
        bearer(&engine.token(json!({"resources": {"tunnels": leaf}})))
    };
    let absolute = format!("https://{host}/docs/a");
    let docs = within("/docs/.*");
    for (target, forwarded) in [
        ("/docs/a", "/docs/a"),
        ("/docs/", "/docs/"),
        (absolute.as_str(), "/docs/a"),
        // The query is not part of the path and stays unchanged.
        ("/docs/a?x=%2F..%2f&y=//", "/docs/a?x=%2F..%2f&y=//"),
        ("/docs/%61%2D%7e", "/docs/a-~"),
        ("/docs/./b/../a", "/docs/a"),
        ("/x/../docs/a", "/docs/a"),
        ("/docs/%2e/a", "/docs/a"),
        ("/docs/%C3%A9", "/docs/%C3%A9"),
        ("/docs/a;v=1", "/docs/a;v=1"),
        ("/docs/a//b", "/docs/a//b"),
    ] {
        let answer = get(&engine, host, target, &docs).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert_eq!(answer.json()["target"], forwarded);
    }
    let before = upstream.accepted();
    for target in [
        "/",
        "/docs",
        "/secret",
        "/x/docs/a",
        "/docs/../secret",
        "/docs/%2e%2e/secret",
        "/docs/.%2E/secret",
        "/docs/a/../../secret",
        "/secret?/docs/a",
        // Paths that two parsers could read differently.
        "/docs/a%2Fb",
        "/docs/..%2fsecret",
        "/docs/a%5Cb",
        "/docs/a\\b",
        "/docs/%252e%252e/secret",
        "/docs/%c0%ae%c0%ae/secret",
        "/docs/%ff",
        "/docs/%00",
        "/docs/%0d%0a",
        "/docs/%7f",
        "//docs/a",
        "/docs/..;/secret",
        "/docs/.;x/a",
    ] {
        let answer = get(&engine, host, target, &docs).await;
        assert_eq!(answer.status, 403, "{target}");
        assert_eq!(answer.json()["code"], "insufficient_scope", "{target}");
    }
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("OPTIONS", "*", host, &docs).await;
    assert_eq!(visitor.answer().await.status, 403);
    assert_eq!(upstream.accepted(), before);

    // The pattern matches the whole path, unless it has anchors.
    for (regex, target, status) in [
        ("/a|/b", "/b", 200),
        ("/a|/b", "/ax", 403),
        ("/a|/b", "/xb", 403),
        ("^/a", "/ax", 200),
        ("^/a$", "/ax", 403),
        ("(", "/a", 403),
        ("", "/", 403),
        ("(?=/a).*", "/a", 403),
    ] {
        let answer = get(&engine, host, target, &within(regex)).await;
        assert_eq!(answer.status, status, "{regex} on {target}");
    }
    // Without a path in the boundary the target is forwarded unchanged.
    let any = bearer(&engine.token(json!({})));
    let answer = get(&engine, host, "/docs/..%2fsecret", &any).await;
    assert_eq!(answer.json()["target"], "/docs/..%2fsecret");
}

/// ED-1: a verification is cached until the token expires, and not a second longer.
#[tokio::test]
async fn ed_1_a_cached_token_ends_when_it_expires() {
    let now = Timestamp::now();
    let clock = Arc::new(ManualClock::at(now));
    let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let engine = TestEngine::start_at("", &[], shared).await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let token = engine.token(json!({"exp": now.as_second() + 60}));
    let mut visitor = engine.visitor().http1(tunnel.hostname()).await;
    let fields = bearer(&token);
    for (later, status) in [(0, 200), (1, 200), (59, 200), (60, 401), (61, 401)] {
        clock.set(Timestamp::from_second(now.as_second() + later).unwrap());
        visitor
            .request("GET", "/", tunnel.hostname(), &fields)
            .await;
        let answer = visitor.answer().await;
        assert_eq!(answer.status, status, "after {later} s");
    }
}

/// ED-1: two secrets are valid at the same time, so that a rotation refuses no visitor.
#[tokio::test]
async fn ed_1_two_secrets_are_valid_during_a_rotation() {
    let next = "the-secret-that-comes-next-and-is-long-enough";
    let variable = ("SVC_AUTH__JWT__TOKEN_JWT_SECRETS", &*format!("[{next}]"));
    let clock = Arc::new(engine::clock::SystemClock);
    let engine = TestEngine::start_at("", &[variable], clock).await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let claims = json!({"type": "pat", "userId": "usr_tester"});
    for (token, status) in [
        (engine.token(claims.clone()), 200),
        (signed(&claims, next), 200),
        (
            signed(&claims, "a-third-secret-that-nobody-has-configured"),
            401,
        ),
    ] {
        let answer = get(&engine, tunnel.hostname(), "/", &bearer(&token)).await;
        assert_eq!(answer.status, status);
    }
}

/// The address is checked first, so that an untrusted client gets no information about the other
/// guards.
#[tokio::test]
async fn trusted_ips_are_checked_before_every_credential() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let elsewhere = guarded().trusted_ips(vec!["192.0.2.0/24".to_owned()]);
    let tunnel = engine.publish_as(elsewhere, upstream.addr()).await;
    let valid = bearer(&engine.token(json!({})));
    let claimed = format!("{valid}X-Forwarded-For: 192.0.2.7\r\nForwarded: for=192.0.2.7\r\n");
    for (target, fields) in [
        ("/", valid.as_str()),
        ("/", ""),
        ("/?svc.token=", ""),
        ("/", &claimed),
    ] {
        let answer = get(&engine, tunnel.hostname(), target, fields).await;
        assert_eq!(answer.status, 403);
        assert_eq!(answer.json()["code"], "address_not_trusted");
    }
    assert_eq!(upstream.accepted(), 0);
}

/// ED-1: one record per request, with the rule that decided and the duration, and without secrets.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn ed_1_the_access_log_has_a_record_for_each_request() {
    let logs = tempfile::tempdir().unwrap();
    let path = logs.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {path:?}}}")).await;
    let upstream = Upstream::http1().await;
    let broken = ScriptedUpstream::cuts_the_head().await;
    let tunnel: TestTunnel = engine.publish_as(guarded(), upstream.addr()).await;
    let failing = engine.publish(broken.addr()).await;
    let valid = engine.token(json!({}));
    let weak = engine.token(json!({"permissions": [READ]}));
    let host = tunnel.hostname().to_owned();
    let failing_host = failing.hostname().to_owned();
    let visits = [
        (
            &host,
            format!("/bytes/1000?a=hush&svc.token={valid}"),
            String::new(),
        ),
        (&host, "/a?hush".to_owned(), bearer(&valid)),
        (&host, "/b?hush".to_owned(), bearer(&weak)),
        (&host, "/c?hush".to_owned(), bearer("hush.hush.hush")),
        (&host, "/d?svc.token=hush".to_owned(), bearer(&valid)),
        (&host, "/e?hush".to_owned(), String::new()),
        (&failing_host, "/f?hush".to_owned(), String::new()),
    ];
    for (host, target, fields) in &visits {
        get(&engine, host, target, fields).await;
    }
    let tunnel_id = tunnel.online().tunnel_id.clone();
    tunnel.close().await;
    failing.close().await;
    engine.stop().await;

    let log = std::fs::read_to_string(&path).unwrap();
    for secret in [valid.as_str(), &weak, "hush", "?", "svc.token"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
    let records: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), visits.len());
    let mut ids: Vec<_> = records
        .iter()
        .map(|record| record["id"].as_str().unwrap())
        .collect();
    assert!(ids.iter().all(|id| id.len() == 24), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), records.len());
    let expected = [
        ("/bytes/1000", 200, "token", "served"),
        ("/a", 200, "token", "served"),
        ("/b", 403, "permission", "refused"),
        ("/c", 401, "token", "refused"),
        ("/d", 400, "query_credential", "refused"),
        ("/e", 401, "token", "refused"),
        ("/f", 502, "public", "failed"),
    ];
    // A record is written when its visit ends, possibly after the next visit has started.
    for (path, status, rule, outcome) in expected {
        let record = records.iter().find(|record| record["path"] == path);
        let record = record.unwrap_or_else(|| panic!("no record of {path} in {log}"));
        let actual = (
            record["status"].as_u64().unwrap(),
            record["rule"].as_str().unwrap(),
            record["outcome"].as_str().unwrap(),
        );
        assert_eq!(actual, (status, rule, outcome), "{record}");
        assert_eq!(
            (&record["kind"], &record["method"]),
            (&"http".into(), &"GET".into())
        );
        assert_eq!(record["source_ip"], "127.0.0.1");
        assert!(
            record["time"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .is_ok()
        );
        assert!(record["total_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(
            record["reason"].is_string(),
            outcome != "served",
            "{record}"
        );
        if outcome == "served" {
            assert_eq!(record["tunnel_id"], tunnel_id);
            assert_eq!(record["host"], host);
            assert_eq!(record["user_id"], "usr_tester");
            let open = record["open_ms"].as_f64().unwrap();
            let first_byte = record["first_byte_ms"].as_f64().unwrap();
            assert!(open <= first_byte && first_byte <= record["total_ms"].as_f64().unwrap());
            assert!(record["bytes_out"].as_u64().unwrap() > 0);
        } else {
            assert!(record["first_byte_ms"].is_null(), "{record}");
        }
    }
}
