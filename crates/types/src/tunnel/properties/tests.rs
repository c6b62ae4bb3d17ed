use serde_json::{Value, json};

use super::*;

fn resolve(requested: &Value) -> Result<Value, (String, String)> {
    let properties: TunnelProperties = serde_json::from_value(requested.clone()).unwrap();
    let resolved = properties
        .resolve()
        .map_err(|error| (error.field, error.message))?;
    Ok(serde_json::to_value(resolved).unwrap())
}

#[test]
fn defaults_follow_from_the_request() {
    for (requested, resolved) in [
        (
            json!({}),
            json!({"publish": true, "protocol": "http", "type": "bytestream", "http_version": "http/1.1"}),
        ),
        (
            json!({"protocol": "http", "upstream_tls": true}),
            json!({"publish": true, "protocol": "http", "type": "bytestream", "upstream_tls": true}),
        ),
        (
            json!({"http_use_tls": true, "upstream_tls": true}),
            json!({"publish": true, "protocol": "http", "type": "bytestream", "upstream_tls": true}),
        ),
        (
            json!({"http_version": "h2c", "upstream_tls": false}),
            json!({"publish": true, "protocol": "http", "type": "bytestream", "http_version": "h2c", "upstream_tls": false}),
        ),
        (
            json!({"protocol": "http", "http_version": "h3"}),
            json!({"publish": true, "protocol": "http", "type": "datagram", "http_version": "h3"}),
        ),
        (
            json!({"protocol": "tls"}),
            json!({"publish": true, "protocol": "tls", "type": "bytestream", "tls_mode": "terminated"}),
        ),
        (
            json!({"protocol": "tls", "tls_mode": "passthrough", "tls_alpns": ["h2"], "mtls_auth": false}),
            json!({"publish": true, "protocol": "tls", "type": "bytestream", "tls_mode": "passthrough",
                   "tls_alpns": ["h2"], "mtls_auth": false}),
        ),
        (
            json!({"protocol": "tcp", "port": 4000, "token_auth": false}),
            json!({"publish": true, "protocol": "tcp", "type": "bytestream", "port": 4000, "token_auth": false}),
        ),
        (
            json!({"protocol": "quic"}),
            json!({"publish": true, "protocol": "quic", "type": "datagram"}),
        ),
        (
            json!({"publish": false}),
            json!({"publish": false, "type": "bytestream"}),
        ),
        (
            json!({"publish": false, "type": "datagram", "datagram_guaranteed_delivery": true}),
            json!({"publish": false, "type": "datagram", "datagram_guaranteed_delivery": true}),
        ),
        (
            json!({"publish": false, "protocol": "tls"}),
            json!({"publish": false, "protocol": "tls", "type": "bytestream"}),
        ),
        (
            json!({"publish": false, "protocol": "http", "name": "db"}),
            json!({"publish": false, "protocol": "http", "type": "bytestream", "http_version": "http/1.1", "name": "db"}),
        ),
    ] {
        assert_eq!(resolve(&requested), Ok(resolved.clone()), "{requested}");
        assert_eq!(
            resolve(&resolved),
            Ok(resolved),
            "resolving twice changes nothing"
        );
    }
}

/// True if a message tells its reader which key to change or remove.
fn names_next_step(message: &str) -> bool {
    let steps = ["remove ", "set ", "use ", "is 1 to 65535"];
    steps.iter().any(|step| message.contains(step))
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn contradictions_are_refused_by_name() {
    for (requested, field) in [
        (
            json!({"http_use_tls": true, "upstream_tls": false}),
            "http_use_tls",
        ),
        (json!({"protocol": "tls", "type": "datagram"}), "type"),
        (json!({"protocol": "tcp", "type": "datagram"}), "type"),
        (json!({"protocol": "webtty", "type": "datagram"}), "type"),
        (json!({"protocol": "dtls", "type": "bytestream"}), "type"),
        (json!({"protocol": "quic", "type": "bytestream"}), "type"),
        (
            json!({"protocol": "http", "http_version": "h3", "type": "bytestream"}),
            "type",
        ),
        (json!({"protocol": "http", "type": "datagram"}), "type"),
        (json!({"type": "datagram"}), "protocol"),
        (json!({"publish": false, "protocol": "dtls"}), "protocol"),
        (json!({"publish": false, "protocol": "quic"}), "protocol"),
        (
            json!({"upstream_tls": true, "http_version": "http/1.1"}),
            "http_version",
        ),
        (json!({"http_version": "h2"}), "http_version"),
        (json!({"tls_mode": "passthrough"}), "tls_mode"),
        (
            json!({"protocol": "tls", "tls_mode": "passthrough", "tls_min_version": "tls1.3"}),
            "tls_min_version",
        ),
        (
            json!({"protocol": "tls", "tls_mode": "passthrough", "tls_ciphers": ["x"]}),
            "tls_ciphers",
        ),
        (
            json!({"protocol": "tls", "tls_mode": "passthrough", "mtls_auth": true}),
            "mtls_auth",
        ),
        (
            json!({"protocol": "tls", "tls_mode": "passthrough", "upstream_tls": true}),
            "upstream_tls",
        ),
        (
            json!({"protocol": "tls", "http_version": "h2c"}),
            "http_version",
        ),
        (json!({"protocol": "tls", "token_auth": true}), "token_auth"),
        (json!({"protocol": "tls", "svc_auth": true}), "svc_auth"),
        (
            json!({"protocol": "tls", "challenge_mode": true}),
            "challenge_mode",
        ),
        (json!({"protocol": "tls", "basic_auth": true}), "basic_auth"),
        (
            json!({"protocol": "webtty", "basic_auth": true}),
            "basic_auth",
        ),
        (json!({"publish": false, "basic_auth": true}), "basic_auth"),
        (json!({"svc_auth": true, "basic_auth": true}), "basic_auth"),
        (json!({"protocol": "tcp", "hostname": "web"}), "hostname"),
        (
            json!({"protocol": "tcp", "tls_mode": "terminated"}),
            "tls_mode",
        ),
        (json!({"protocol": "tcp", "tls_alpns": ["h2"]}), "tls_alpns"),
        (
            json!({"protocol": "tcp", "tls_ciphers": ["x"]}),
            "tls_ciphers",
        ),
        (
            json!({"protocol": "tcp", "tls_min_version": "tls1.2"}),
            "tls_min_version",
        ),
        (json!({"protocol": "tcp", "mtls_auth": true}), "mtls_auth"),
        (
            json!({"protocol": "tcp", "upstream_tls": true}),
            "upstream_tls",
        ),
        (json!({"protocol": "tcp", "token_auth": true}), "token_auth"),
        (
            json!({"protocol": "tcp", "http_version": "h2c"}),
            "http_version",
        ),
        (json!({"protocol": "tcp", "port": 0}), "port"),
        (json!({"protocol": "http", "port": 4000}), "port"),
        (
            json!({"protocol": "http", "datagram_guaranteed_delivery": true}),
            "datagram_guaranteed_delivery",
        ),
        (json!({"publish": false, "hostname": "web"}), "hostname"),
        (
            json!({"publish": false, "trusted_ips": ["::/0"]}),
            "trusted_ips",
        ),
        (json!({"publish": false, "geo_ip": ["DE"]}), "geo_ip"),
        (
            json!({"publish": false, "protocol": "tls", "mtls_auth": true}),
            "mtls_auth",
        ),
        (
            json!({"publish": false, "protocol": "http", "token_auth": true}),
            "token_auth",
        ),
    ] {
        let (refused, message) = resolve(&requested).unwrap_err();
        assert_eq!(refused, field, "{requested}");
        assert!(names_next_step(&message), "{requested}: {message}");
    }
}

#[test]
fn limits_are_enforced() {
    let labels = |count: usize| {
        (0..count)
            .map(|n| (n.to_string(), json!("")))
            .collect::<serde_json::Map<_, _>>()
    };
    let ranges = |count: usize| vec!["192.0.2.0/24"; count];
    for (requested, field) in [
        (json!({"labels": labels(65)}), "labels"),
        (json!({"labels": {"": "x"}}), "labels"),
        (json!({"labels": {"k".repeat(129): "x"}}), "labels"),
        (json!({"labels": {"k\n": "x"}}), "labels"),
        (json!({"labels": {"k": "v".repeat(4097)}}), "labels.k"),
        (json!({"labels": {"k": "\u{0}"}}), "labels.k"),
        (json!({"trusted_ips": ranges(65)}), "trusted_ips"),
        (json!({"tls_alpns": ["h2", ""]}), "tls_alpns.1"),
        (json!({"tls_alpns": ["h2", "h2"]}), "tls_alpns"),
        (json!({"tls_ciphers": ["x".repeat(256)]}), "tls_ciphers.0"),
    ] {
        assert_eq!(
            resolve(&requested).map_err(|(field, _)| field),
            Err(field.to_owned()),
            "{requested}"
        );
    }
    assert!(resolve(&json!({"labels": labels(64), "trusted_ips": ranges(64)})).is_ok());
}
