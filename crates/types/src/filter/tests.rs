use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::id::{ClientId, TunnelId};
use crate::tunnel::TunnelProperties;

fn list(text: &str) -> Result<ListParams<TunnelFilter>, ParamError> {
    ListParams::parse(text, false)
}

fn fault(text: &str) -> String {
    list(text).unwrap_err().to_string()
}

/// EN-2.
#[test]
fn en_2_params_are_limit_and_filters() {
    assert_eq!(list("{}").unwrap(), ListParams::default());
    let params =
        list(r#"{"limit":1000,"filters":{"name":"web","labels":{"a":"b","c":null}}}"#).unwrap();
    assert_eq!(params.limit, Some(1000));
    assert_eq!(params.filters.name.as_deref(), Some("web"));
    assert_eq!(params.filters.labels.get("c"), Some(&None));
}

/// EN-2.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn en_2_errors_name_the_field() {
    for (text, field, message) in [
        ("", "params", "not well-formed JSON"),
        ("{", "params", "not well-formed JSON"),
        ("[]", "params", "expected an object"),
        ("null", "params", "expected an object"),
        (
            r#"{"limit":0}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":1001}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":-1}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":60.0}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":1e2}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":"1"}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":true}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":null}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (
            r#"{"limit":99999999999999999999}"#,
            "limit",
            "expected an integer from 1 to 1000",
        ),
        (r#"{"cursor":1}"#, "cursor", "unknown key"),
        (r#"{"filters":[]}"#, "filters", "expected an object"),
        (r#"{"filters":null}"#, "filters", "expected an object"),
        (
            r#"{"filters":{"nmae":"web"}}"#,
            "filters.nmae",
            "unknown key",
        ),
        (
            r#"{"filters":{"name":1}}"#,
            "filters.name",
            "expected a string",
        ),
        (
            r#"{"filters":{"name":null}}"#,
            "filters.name",
            "expected a string",
        ),
        (
            r#"{"filters":{"publish":"true"}}"#,
            "filters.publish",
            "expected true or false",
        ),
        (
            r#"{"filters":{"labels":{"a":1}}}"#,
            "filters.labels.a",
            "expected a string",
        ),
        (
            r#"{"filters":{"labels":null}}"#,
            "filters.labels",
            "expected an object",
        ),
        (
            r#"{"filters":{"rstream_auth":true}}"#,
            "filters.rstream_auth",
            "unknown key",
        ),
        (
            r#"{"filters":{"name":"a","name":"a"}}"#,
            "filters.name",
            "a member is repeated",
        ),
        (r#"{"limit":1,"limit":1}"#, "limit", "a member is repeated"),
    ] {
        let error = list(text).unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.message.as_str()),
            (field, message),
            "{text}"
        );
    }
    assert_eq!(
        fault(r#"{"filters":{"protocol":"smtp"}}"#),
        "filters.protocol: expected one of `http` `tls` `tcp` `dtls` `quic` `webtty`"
    );
}

/// EN-2.
#[test]
fn en_2_depth_and_size_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert!(list(&nested(33)).unwrap_err().message.contains("deeply"));
    assert_eq!(list(&nested(32)).unwrap_err().message, "unknown key");
    let long = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2));
    assert!(list(&long(16 * 1024)).is_ok());
    assert_eq!(list(&long(16 * 1024 + 1)).unwrap_err().field, "params");
}

/// EN-3.
#[test]
fn en_3_watch_params_are_clients_tunnels_and_webtty() {
    let params = WatchParams::parse(
        r#"{"clients":{"os":"linux"},"tunnels":{"publish":true},"webtty":true}"#,
        false,
    )
    .unwrap();
    assert_eq!(params.clients.os.as_deref(), Some("linux"));
    assert_eq!(params.tunnels.publish, Some(true));
    assert!(params.webtty);
    assert!(
        WatchParams::parse(r#"{"webtty":{}}"#, false)
            .unwrap()
            .webtty
    );
    for (text, field) in [
        (r#"{"limit":1}"#, "limit"),
        (r#"{"filters":{}}"#, "filters"),
        (r#"{"clients":{"name":"x"}}"#, "clients.name"),
        (r#"{"tunnels":{"os":"x"}}"#, "tunnels.os"),
        (r#"{"webtty":{"a":1}}"#, "webtty.a"),
        (r#"{"webtty":1}"#, "webtty"),
    ] {
        assert_eq!(
            WatchParams::parse(text, false).unwrap_err().field,
            field,
            "{text}"
        );
    }
}

#[test]
fn the_other_spelling_needs_compat() {
    let read = |text: &str| ListParams::<TunnelFilter>::parse(text, true);
    assert_eq!(
        read(r#"{"filters":{"rstream_auth":true}}"#)
            .unwrap()
            .filters
            .svc_auth,
        Some(true)
    );
    assert!(read(r#"{"filters":{"rstream_auth":true,"svc_auth":true}}"#).is_err());
}

/// EN-2.
#[test]
fn en_2_params_are_in_the_query_once() {
    let ok = |query: &str| params_of_query(query).unwrap();
    assert_eq!(ok(""), None);
    assert_eq!(ok("a=1&Params=%7B%7D"), None);
    assert_eq!(
        ok("a=%zz&params=%7B%22limit%22:+1%7D&b").as_deref(),
        Some(r#"{"limit": 1}"#)
    );
    assert_eq!(ok("p%61rams={}").as_deref(), Some("{}"));
    for (query, message) in [
        ("params", "is empty"),
        ("params=", "is empty"),
        ("params={}&params={}", "is repeated"),
        ("params={}&p%61rams", "is repeated"),
        ("params=%7", "contains an invalid escape"),
        ("params=%zz", "contains an invalid escape"),
        ("params=%22%ff%22", "is not UTF-8"),
        ("params=%22%c0%80%22", "is not UTF-8"),
    ] {
        let error = params_of_query(query).unwrap_err();
        assert_eq!(
            (error.field.as_str(), error.message.as_str()),
            ("params", message),
            "{query}"
        );
    }
}

fn tunnel() -> Tunnel {
    let properties = TunnelProperties {
        name: Some("web".parse().unwrap()),
        protocol: Some(Protocol::Http),
        hostname: Some("web.t.example.com".parse().unwrap()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ..TunnelProperties::default()
    };
    let mut tunnel = Tunnel::online(
        TunnelId::new(1, [1; 10]),
        ClientId::new(2, [2; 10]),
        properties.resolve().unwrap(),
    );
    tunnel.user_id = Some("u1".to_owned());
    tunnel
}

/// EN-2a.
#[test]
fn en_2a_tunnel_filters_are_combined_with_and() {
    let tunnel = tunnel();
    let (id, client_id) = (tunnel.id.to_string(), tunnel.client_id.to_string());
    let matches = |filters: Value| {
        ListParams::<TunnelFilter>::parse(&json!({"filters": filters}).to_string(), false)
            .unwrap()
            .filters
            .matches(&tunnel)
    };
    for (matching, other) in [
        (json!({"id": id}), json!({"id": "x"})),
        (json!({"name": "web"}), json!({"name": "we"})),
        (json!({"type": "bytestream"}), json!({"type": "datagram"})),
        (json!({"status": "online"}), json!({"status": "offline"})),
        (json!({"client_id": client_id}), json!({"client_id": id})),
        (json!({"user_id": "u1"}), json!({"user_id": "u2"})),
        (json!({"publish": true}), json!({"publish": false})),
        (json!({"protocol": "http"}), json!({"protocol": "tls"})),
        (
            json!({"hostname": "Web.t.example.com"}),
            json!({"hostname": "t.example.com"}),
        ),
        (
            json!({"http_version": "http/1.1"}),
            json!({"http_version": "h2c"}),
        ),
        (json!({"svc_auth": false}), json!({"svc_auth": true})),
        (
            json!({"labels": {"team": "a"}}),
            json!({"labels": {"team": "b"}}),
        ),
        (
            json!({"labels": {"team": null}}),
            json!({"labels": {"other": null}}),
        ),
        (
            json!({"name": "web", "publish": true}),
            json!({"name": "web", "publish": false}),
        ),
        (json!({}), json!({"labels": {"team": "a", "other": "b"}})),
    ] {
        assert!(matches(matching.clone()), "{matching}");
        assert!(!matches(other.clone()), "{other}");
    }
}

/// EN-2b.
#[test]
fn en_2b_client_filters() {
    let mut client = Client::online(ClientId::new(1, [1; 10]));
    client.labels.insert("rack".to_owned(), "7".to_owned());
    for field in [
        &mut client.agent,
        &mut client.channel,
        &mut client.version,
        &mut client.os,
        &mut client.arch,
        &mut client.user_id,
    ] {
        *field = Some("x".to_owned());
    }
    let matches = |filters: &Value| {
        ClientFilter::from_json(filters, "filters", false)
            .unwrap()
            .matches(&client)
    };
    for field in ["agent", "channel", "version", "os", "arch", "user_id"] {
        assert!(matches(&json!({field: "x"})), "{field}");
        assert!(!matches(&json!({field: "y"})), "{field}");
    }
    assert!(
        !matches(&json!({"protocol_version": "x"})),
        "an absent field equals nothing"
    );
    assert!(matches(&json!({"labels": {"rack": null}, "id": client.id})));
    assert!(!matches(&json!({"labels": {"rack": "8"}})));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in r#"[{}\[\]:",a-z0-9.é ]{0,48}"#) {
        let _answered = (list(&text).is_ok(), WatchParams::parse(&text, true).is_ok());
    }

    #[test]
    fn any_query_is_answered(query in "(params|[&=%+a-f0-9{}\u{e9}]){0,24}") {
        if let Ok(None) = params_of_query(&query) {
            prop_assert_eq!(ListParams::<ClientFilter>::from_query(&query, false), Ok(ListParams::default()));
        }
    }
}
