//! Credentials that open an event stream.

use engine::live::LiveLimits;
use serde_json::{Value, json};

use super::{Stream, TRANSPORTS};
use crate::support::{CREATE, NOW, READ, STREAMS, TestApi, auth, manual_clock, pat, token};

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
async fn ed_1d_a_query_token_is_checked_alone() {
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
            // Without compat.rstream it is an ordinary parameter.
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
async fn with_compat_the_other_brands_parameter_is_accepted() {
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
