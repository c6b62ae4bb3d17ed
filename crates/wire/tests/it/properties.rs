//! Tunnel properties: requested values arrive, and invalid ones are named.

use jiff::Timestamp;
use types::tunnel::{Tunnel, TunnelProperties};
use wire::message::{self, BoolValue};
use wire::properties::{OpenedTunnel, opened, request, requested};
use wire::{Error, ErrorCode};

/// Every property that a client may set, with a value other than the default.
fn every_property() -> TunnelProperties {
    TunnelProperties {
        name: Some("web".parse().unwrap()),
        tunnel_type: Some("datagram".parse().unwrap()),
        publish: Some(true),
        protocol: Some("http".parse().unwrap()),
        labels: [("env".to_owned(), "test".to_owned())].into(),
        geo_ip: vec!["CH".parse().unwrap(), "FR".parse().unwrap()],
        trusted_ips: vec!["192.0.2.0/24".parse().unwrap()],
        hostname: Some("web.t.example.com".parse().unwrap()),
        port: Some(65_535),
        tls_mode: Some("passthrough".parse().unwrap()),
        tls_alpns: vec!["h2".to_owned(), "http/1.1".to_owned()],
        tls_ciphers: vec!["TLS13_AES_128_GCM_SHA256".to_owned()],
        tls_min_version: Some("tls1.3".parse().unwrap()),
        mtls_auth: Some(false),
        http_version: Some("h2c".parse().unwrap()),
        http_use_tls: Some(false),
        upstream_tls: Some(true),
        datagram_guaranteed_delivery: Some(true),
        allow_cross_region_routing: Some(false),
        token_auth: Some(true),
        svc_auth: Some(false),
        share: Some(true),
        allowed_origins: vec!["https://app.example.com".parse().unwrap()],
        pass_headers: vec!["x-forwarded-port".parse().unwrap()],
        identity: vec!["email".parse().unwrap(), "id=x-user".parse().unwrap()],
        challenge_mode: Some(true),
        basic_auth: Some(true),
        time_to_first_byte_seconds: Some(3600),
    }
}

#[test]
fn every_property_arrives() {
    let properties = every_property();
    assert_eq!(requested(&request(&properties)), Ok(properties));
}

#[test]
fn an_empty_request_stays_empty() {
    assert_eq!(
        request(&TunnelProperties::default()),
        message::TunnelProperties::default()
    );
    assert_eq!(
        requested(&message::TunnelProperties::default()),
        Ok(TunnelProperties::default())
    );
}

#[test]
fn an_opened_tunnel_is_read_back() {
    let id = "tun_01h455vb4pex5vsknk084sn02q".parse().unwrap();
    let client = "cli_01h455vb4pex5vsknk084sn02q".parse().unwrap();
    let mut tunnel = Tunnel::online(id, client, every_property());
    tunnel.host = Some("web.t.example.com:8443".to_owned());
    tunnel.creation_date = Some(Timestamp::new(1_700_000_000, 123_000_000).unwrap());
    let read = OpenedTunnel::parse(&opened(&tunnel)).unwrap();
    assert_eq!(read.id, tunnel.id);
    assert_eq!(read.creation_date, tunnel.creation_date);
    assert_eq!(read.host, tunnel.host);
    assert_eq!(read.properties, tunnel.properties);
}

#[test]
fn a_response_without_an_id_is_refused() {
    let refused = OpenedTunnel::parse(&message::TunnelProperties::default()).unwrap_err();
    assert_eq!(refused.field, "id");
}

#[test]
fn a_client_may_repeat_values_of_the_engine() {
    let wire = message::TunnelProperties {
        id: Some("whatever".into()),
        host: Some("web.t.example.com".into()),
        creation_date: Some(message::Timestamp {
            seconds: i64::MAX,
            nanos: -1,
        }),
        ..message::TunnelProperties::default()
    };
    assert_eq!(requested(&wire), Ok(TunnelProperties::default()));
}

#[test]
fn invalid_fields_are_named() {
    type Change = fn(&mut message::TunnelProperties);
    let cases: [(&str, Change); 13] = [
        ("name", |p| p.name = Some("a b".into())),
        ("name", |p| p.name = Some("".into())),
        ("type", |p| p.r#type = Some("stream".into())),
        ("protocol", |p| p.protocol = Some("HTTP".into())),
        ("geo_ip.1", |p| {
            p.geoip = vec!["CH".to_owned(), "CHE".to_owned()];
        }),
        ("trusted_ips.0", |p| {
            p.trusted_ips = vec!["10.0.0.0/33".to_owned()];
        }),
        ("hostname", |p| p.hostname = Some("a..b".into())),
        ("port", |p| p.port = Some(0.into())),
        ("port", |p| p.port = Some(65_536.into())),
        ("tls_mode", |p| p.tls_mode = Some("off".into())),
        ("tls_min_version", |p| {
            p.tls_min_version = Some("tls1.1".into());
        }),
        ("http_version", |p| p.http_version = Some("http/2".into())),
        ("mtls_cacert_pem", |p| p.mtls_cacert_pem = Some("".into())),
    ];
    for (field, break_it) in cases {
        let mut wire = request(&every_property());
        break_it(&mut wire);
        let refused = requested(&wire).unwrap_err();
        assert_eq!(refused.field, field);
        let told = Error::from(refused);
        assert_eq!(told.kind(), ErrorCode::InvalidRequest);
        assert!(told.text().contains(field), "{told}");
    }
}

#[test]
fn a_response_repeats_no_hash() {
    let user = message::BasicAuthUser {
        user: "ann".to_owned(),
        password_hash: Some("$argon2id$".into()),
    };
    assert!(!format!("{user:?}").contains("argon2id"));
    let wire = message::TunnelProperties {
        basic_auth: vec![user.clone(), user],
        ..message::TunnelProperties::default()
    };
    let properties = requested(&wire).unwrap();
    assert_eq!(properties.basic_auth, Some(true));
    let entries = request(&properties).basic_auth;
    assert_eq!(entries, [message::BasicAuthUser::default()]);
}

#[test]
fn absent_and_false_are_different() {
    let mut wire = message::TunnelProperties::default();
    assert_eq!(requested(&wire).unwrap().publish, None);
    wire.publish = Some(BoolValue { value: false });
    assert_eq!(requested(&wire).unwrap().publish, Some(false));
}
