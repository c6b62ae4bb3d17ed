//! Sessions over real sockets, against the state machine of a server.

mod fake;
mod participants;
mod sessions;

use client::{Config, Token};
use serde_json::{Value, json};
use types::webtty::Transport;

use super::inventory::{FindError, Server, UnreachableError, find, servers};
use super::{Endpoint, Url, UrlError};

#[test]
fn addresses_are_read_and_written() {
    for (text, written) in [
        ("ws://127.0.0.1:8080", "ws://127.0.0.1:8080/"),
        ("ws://[::1]:8080/x", "ws://[::1]:8080/x"),
        ("wss://box.example", "wss://box.example/"),
        (
            "wss://box.example:8443/a?b=c",
            "wss://box.example:8443/a?b=c",
        ),
        ("wss://box.example?b=c", "wss://box.example/?b=c"),
    ] {
        assert_eq!(Url::parse(text).unwrap().to_string(), written);
    }
    for text in [
        "",
        "box",
        "http://box",
        "ws://",
        "ws://a:0",
        "ws://a:99999",
        "ws://u:p@a",
        "ws://a/#b",
        "svc://a",
    ] {
        assert_eq!(Url::parse(text), Err(UrlError), "{text}");
    }
    let url = Url::parse("wss://a/?session_mode=x").unwrap();
    let url = url.with_parameter("session_mode", "interactive");
    assert_eq!(
        url.with_parameter("origin", "api").path,
        "/?session_mode=x&origin=api"
    );
    let url = Url::parse("wss://a").unwrap().with_parameter("a", "b");
    assert_eq!(url.path, "/?a=b");
}

#[test]
fn a_server_is_described_by_its_labels() {
    let tunnel = json!({
        "id": "tun_1", "name": "build", "status": "online", "protocol": "http", "publish": true,
        "host": "build.t.engine.localhost", "token_auth": true, "type": "bytestream",
        "labels": {
            "application-protocol": "svc.webtty", "svc.webtty.capabilities": "exec, fs",
            "svc.webtty.fs.mode": "read-only", "svc.webtty.os_family": "linux",
            "svc.webtty.label.site": "bern", "svc.webtty.server_id": "somebody-else",
            "site": "not ours",
        },
    });
    let server = Server::of_tunnel(&tunnel).unwrap();
    assert_eq!(
        serde_json::to_value(&server).unwrap(),
        json!({
            "status": "online", "tunnel_id": "tun_1", "tunnel_protocol": "http",
            "tunnel_type": "bytestream", "transport": "websocket", "managed": false,
            "tunnel_name": "build", "target": "build", "svc_url": "svc://build", "publish": true,
            "host": "build.t.engine.localhost", "token_auth": true,
            "capabilities": ["exec", "fs"], "exec_path": "/", "fs_path": "/fs",
            "fs_backend": "webdav", "fs_mode": "read-only", "os_family": "linux",
            "labels": {"site": "bern"},
        })
    );
    assert!(!server.requires_seal());
    for (label, value) in [
        ("e2e", "required"),
        ("host_key_id", "x"),
        ("encryption_policy", "explicit_key"),
    ] {
        let mut tunnel = tunnel.clone();
        tunnel["labels"][format!("svc.webtty.{label}")] = json!(value);
        assert!(
            Server::of_tunnel(&tunnel).unwrap().requires_seal(),
            "{label}"
        );
    }
    let managed = json!({
        "id": "tun_2", "protocol": "webtty", "labels": {
            "svc.webtty.server_id": "srv_1", "svc.webtty.server_name": "Build",
            "svc.webtty.transport": "plain",
        },
    });
    let managed = Server::of_tunnel(&managed).unwrap();
    assert_eq!(
        (managed.target.as_str(), managed.svc_url.as_str()),
        ("Build", "svc://srv_1")
    );
    assert_eq!(managed.transport, Some(Transport::Plain));
    for other in [
        json!({"id": "t", "protocol": "http"}),
        json!({"id": "t", "protocol": "tcp", "labels": {"application-protocol": "svc.webtty"}}),
        json!({"id": "t", "labels": {"application-protocol": "other"}}),
    ] {
        assert_eq!(Server::of_tunnel(&other), None, "{other}");
    }
}

/// Any client that may open a tunnel writes its labels. It must not obtain another user's token by
/// that.
#[test]
fn the_token_is_only_sent_to_the_engine_of_a_server() {
    let config = || Config::new("127.0.0.1:1".parse().unwrap(), Token::new("svc_engine"));
    let shown = |tunnel: &Value, given: Option<&str>| {
        let server = Server::of_tunnel(tunnel).unwrap();
        match server.endpoint(config(), given.map(Token::new)) {
            Ok(Endpoint::Url { url, bearer, .. }) => {
                let bearer = bearer.map(|token| token.expose().to_owned());
                Ok((url.to_string(), bearer))
            }
            Ok(Endpoint::Private { .. }) => panic!("it is public"),
            Err(error) => Err(error),
        }
    };
    let tunnel = |protocol: &str, token_auth: bool, path: &str| {
        json!({
            "id": "tun_1", "protocol": protocol, "publish": true, "host": "a.example",
            "token_auth": token_auth,
            "labels": {
                "application-protocol": "svc.webtty", "svc.webtty.exec.path": path,
            },
        })
    };
    let url = "wss://a.example/x".to_owned();
    for (tunnel, given, bearer) in [
        (tunnel("http", true, "/x"), None, Some("svc_engine")),
        (tunnel("webtty", false, "/x"), None, Some("svc_engine")),
        (tunnel("http", false, "/x"), None, None),
        (tunnel("http", false, "/x"), Some("own"), Some("own")),
        (tunnel("http", true, "/x"), Some("own"), Some("own")),
    ] {
        let bearer = bearer.map(str::to_owned);
        assert_eq!(shown(&tunnel, given), Ok((url.clone(), bearer)), "{tunnel}");
    }
    // The path would continue the host: `wss://a.example.evil.example/`.
    for path in [".evil.example/", "x", ":8443/", "@evil.example/"] {
        let address = format!("wss://a.example{path}");
        let refused = shown(&tunnel("http", true, path), None);
        assert_eq!(refused, Err(UnreachableError::Address(address)));
    }
}

#[test]
fn a_name_selects_one_server_that_is_online() {
    let tunnel = |id: &str, name: &str, status: &str| {
        json!({
            "id": id, "name": name, "status": status,
            "labels": {"application-protocol": "svc.webtty"},
        })
    };
    let all = servers(&[
        tunnel("tun_1", "build", "online"),
        tunnel("tun_2", "build", "online"),
        tunnel("tun_3", "old", "offline"),
        tunnel("tun_4", "tun_1", "online"),
        tunnel("tun_5", "moved", "offline"),
        tunnel("tun_6", "moved", "online"),
        tunnel("tun_7", "wsv_01kdvdna00e00800000000000f", "online"),
    ]);
    let id = |wanted: &str| find(&all, wanted).map(|server| server.tunnel_id.as_str());
    assert_eq!(id("tun_2"), Ok("tun_2"));
    // An id is not confused with a name that was chosen to look like it.
    assert_eq!(id("tun_1"), Ok("tun_1"));
    assert_eq!(
        id("wsv_01kdvdna00e00800000000000f").ok(),
        None,
        "nor one that is away"
    );
    assert_eq!(id("moved"), Ok("tun_6"));
    assert_eq!(id("old"), Err(FindError::Offline("old".to_owned())));
    assert_eq!(id("none"), Err(FindError::Unknown("none".to_owned())));
    let error = id("build").unwrap_err().to_string();
    assert!(error.contains("svc://tun_1, svc://tun_2"), "{error}");
}
