//! Labels of containers in the JSON of the engine's API.

use serde_json::json;

use super::*;

/// A container with these labels, as in `GET /containers/{id}/json`.
fn container(labels: &Value) -> Container {
    let inspected = json!({
        "Id": "f1",
        "Name": "/shop",
        "State": {"Status": "running", "Running": true, "Paused": false},
        "Config": {"Image": "shop:1", "Labels": labels, "ExposedPorts": {"8080/tcp": {}}},
        "HostConfig": {"NetworkMode": "back"},
        "NetworkSettings": {
            "Networks": {
                "back": {"IPAddress": "172.18.0.2", "GlobalIPv6Address": ""},
                "front": {"IPAddress": "", "GlobalIPv6Address": "fd00::2"}
            },
            "Ports": {
                "8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": "49153"},
                             {"HostIp": "::", "HostPort": "49153"}],
                "9090/tcp": null
            }
        }
    });
    serde_json::from_value(inspected).unwrap()
}

fn read(labels: &Value) -> Option<ContainerTunnel> {
    LabelParser::new(false).parse(&container(labels))
}

/// Each tunnel as `key name target`.
fn tunnels(found: &ContainerTunnel) -> Vec<String> {
    found
        .tunnels
        .iter()
        .map(|(key, wanted)| {
            let name = wanted.properties.name.as_deref().unwrap();
            format!("{key} {name} {}", wanted.destination.target)
        })
        .collect()
}

#[test]
fn an_enabled_container_with_one_port_needs_no_other_label() {
    let found = read(&json!({"svc.enable": "true", "com.example": "1"})).unwrap();
    assert_eq!(tunnels(&found), ["docker/shop shop 172.18.0.2:8080"]);
    assert_eq!(found.errors, Vec::<String>::new());
    for labels in [
        json!({}),
        json!(null),
        json!({"svc.port": "80"}),
        json!({"svc.enable": "false", "svc.port": "80"}),
    ] {
        assert_eq!(read(&labels), None, "{labels}");
    }
}

#[test]
fn labels_are_the_keys_of_a_file() {
    let found = read(&json!({
        "svc.enable": "true", "svc.port": "9090", "svc.name": "api", "svc.protocol": "tcp",
        "svc.public-port": "20001", "svc.trusted-ips": "192.0.2.0/24, ::1",
        "svc.proxy_protocol": "v2", "svc.label.team": "shop", "svc.network": "front",
        "svc.token-auth": "false",
    }))
    .unwrap();
    assert_eq!(found.errors, Vec::<String>::new());
    assert_eq!(tunnels(&found), ["docker/shop api [fd00::2]:9090"]);
    let wanted = &found.tunnels["docker/shop"];
    assert_eq!(
        serde_json::to_value(&wanted.properties).unwrap(),
        json!({"name": "api", "publish": true, "protocol": "tcp", "labels": {"team": "shop"},
               "trusted_ips": ["192.0.2.0/24", "::1"], "token_auth": false, "port": 20001})
    );
    assert_eq!(
        wanted.destination.proxy_protocol,
        Some(client::ProxyProtocol::V2)
    );
}

#[test]
fn host_headers_require_plain_http() {
    let labels = |more: serde_json::Value| {
        let mut labels = json!({
            "svc.enable": "true", "svc.port": "80", "svc.host-header": "rewrite",
        });
        if let (Some(all), serde_json::Value::Object(more)) = (labels.as_object_mut(), more) {
            all.extend(more);
        }
        read(&labels).unwrap()
    };
    let found = labels(json!({}));
    assert_eq!(found.errors, Vec::<String>::new());
    let wanted = &found.tunnels["docker/shop"];
    assert_eq!(
        wanted.destination.host_header,
        Some(client::HostHeader::Rewrite)
    );
    for other in [
        json!({"svc.protocol": "tcp"}),
        json!({"svc.http-version": "h2c"}),
        json!({"svc.upstream-tls": "true"}),
    ] {
        let found = labels(other);
        assert!(found.tunnels.is_empty());
        assert!(
            found.errors.iter().any(|error| error.contains("host")),
            "{:?}",
            found.errors
        );
    }
}

#[test]
fn an_invalid_tunnel_of_a_container_is_skipped_alone() {
    let found = read(&json!({
        "svc.enable": "true",
        "svc.network": "back",
        "svc.tunnels.web.port": "8080",
        "svc.tunnels.admin.target": "https://172.18.0.2:8443",
        "svc.tunnels.admin.name": "admin",
        "svc.tunnels.bad.port": "8081",
        "svc.tunnels.bad.hostnme": "x",
        "svc.tunnels.worse.port": "http",
        "svc.tunnels.worse.token-auth": "yes",
    }))
    .unwrap();
    assert_eq!(
        tunnels(&found),
        [
            "docker/shop/admin admin https://172.18.0.2:8443",
            "docker/shop/web shop-web 172.18.0.2:8080",
        ]
    );
    assert_eq!(
        found.errors,
        [
            "container shop: svc.tunnels.bad.hostnme: unknown label; the nearest known one is \
             svc.hostname",
            "container shop: svc.tunnels.worse.token-auth: expected true or false",
            "container shop: svc.tunnels.worse.port: expected the port of the service, 1 to 65535",
        ]
    );
}

#[test]
fn invalid_values_are_reported_by_their_label() {
    for (labels, error) in [
        (
            json!({"svc.enable": "yes"}),
            "container shop: svc.enable: expected true or false",
        ),
        (
            json!({"svc.enable": "true", "svc.network": "none"}),
            "container shop: svc.network: it has no address in `none`",
        ),
        (
            json!({"svc.enable": "true", "svc.public-port": "0", "svc.protocol": "tcp"}),
            "container shop: svc.public-port: a port is 1 to 65535",
        ),
        (
            json!({"svc.enable": "true", "svc.trusted-ips": "x"}),
            "container shop: svc.trusted-ips.0: ",
        ),
        (
            json!({"svc.enable": "true", "svc.labels": "x"}),
            "container shop: svc.labels: write svc.label.<key>",
        ),
    ] {
        let found = read(&labels).unwrap();
        assert_eq!(tunnels(&found), Vec::<String>::new(), "{labels}");
        assert_eq!(found.errors.len(), 1, "{found:?}");
        assert!(found.errors[0].starts_with(error), "{found:?}");
    }
}

#[test]
fn published_ports_are_used_if_requested() {
    let reader = LabelParser::new(true);
    let found = reader
        .parse(&container(&json!({"svc.enable": "true"})))
        .unwrap();
    assert_eq!(tunnels(&found), ["docker/shop shop 127.0.0.1:49153"]);
    let labels = json!({"svc.enable": "true", "svc.port": "9090"});
    let found = reader.parse(&container(&labels)).unwrap();
    assert_eq!(
        found.errors,
        ["container shop: svc.port: the container does not publish its port 9090"]
    );
}

#[test]
fn a_container_in_the_host_network_is_on_loopback() {
    let mut container = container(&json!({"svc.enable": "true"}));
    "host".clone_into(&mut container.host_config.network_mode);
    let found = LabelParser::new(false).parse(&container).unwrap();
    assert_eq!(tunnels(&found), ["docker/shop shop 127.0.0.1:8080"]);
}
