//! The section `certs.acme`.

use acme::{ChallengeKind, DnsProvider};
use dns::KeyAlgorithm;

use super::*;

const AGREED: [(&str, &str); 2] = [
    ("certs.acme.terms_agreed", "true"),
    ("certs.acme.state_dir", "/state"),
];

fn settings(variables: &[(&str, &str)]) -> Result<acme::Settings, ConfigError> {
    let is_replaced = |key: &str| variables.iter().any(|(other, _)| *other == key);
    let defaults = AGREED.into_iter().filter(|(key, _)| !is_replaced(key));
    let variables: Vec<_> = defaults.chain(variables.iter().copied()).collect();
    with(&variables).map(|config| config.acme.unwrap())
}

#[test]
fn a_certificate_from_an_authority_has_these_defaults() {
    let settings = settings(&[]).unwrap();
    assert_eq!(
        settings.directory,
        "https://acme-v02.api.letsencrypt.org/directory"
    );
    assert_eq!(settings.names, ["tunnel.example.com"]);
    assert_eq!(settings.challenges, [ChallengeKind::TlsAlpn01]);
    assert!(settings.dns.is_none());
    assert_eq!(settings.state_dir, Path::new("/state"));
    assert!(with(&[]).unwrap().acme.is_none());
}

#[test]
fn wildcards_are_ordered_only_with_a_program_for_dns() {
    let settings = settings(&[
        ("certs.acme.challenges", "[tls-alpn-01, dns-01]"),
        ("certs.acme.dns_program", "/program"),
    ])
    .unwrap();
    assert_eq!(
        settings.names,
        ["tunnel.example.com", "*.t.tunnel.example.com"]
    );
    let Some(DnsProvider::Program(program)) = settings.dns else {
        panic!("{settings:?}");
    };
    assert_eq!(program.path, Path::new("/program"));
}

#[test]
fn mistakes_of_the_section_are_refused() {
    for (key, value, reason) in [
        ("terms_agreed", "false", "terms of service"),
        ("directory", "http://ca.example/", "only on loopback"),
        ("directory", "ca.example", "not an https address"),
        ("directory", "https://user@ca.example/", "user name"),
        ("contact", "[admin]", "not a mail address"),
        ("challenges", "[]", "at least one"),
        ("challenges", "[http-01]", "set http.enabled"),
        ("challenges", "[tls-alpn-01, tls-alpn-01]", "twice"),
        ("dns_program", "/program", "add dns-01"),
        ("dns_propagation_seconds", "3601", "not between"),
        ("dns_program_timeout_seconds", "0", "not between"),
        ("external_account.key_id", "kid", "required"),
        ("profile", "short lived", "not a profile"),
    ] {
        let key = format!("certs.acme.{key}");
        let error = settings(&[(&key, value)]).unwrap_err();
        assert!(error.message.contains(reason), "{key}={value}: {error}");
    }
    let error = settings(&[("certs.acme.challenges", "[dns-01]")]).unwrap_err();
    assert_eq!(error.key, "certs.acme.dns_program");
}

/// Settings with `dns-01`.
fn dns(variables: &[(&str, &str)]) -> Result<DnsProvider, ConfigError> {
    let challenges = ("certs.acme.challenges", "[tls-alpn-01, dns-01]");
    let keys = variables.iter().map(|(key, _)| format!("certs.acme.{key}"));
    let keys: Vec<String> = keys.collect();
    let values = variables.iter().map(|(_, value)| *value);
    let variables = keys.iter().map(String::as_str).zip(values);
    let variables: Vec<_> = variables.chain([challenges]).collect();
    settings(&variables).map(|settings| settings.dns.unwrap())
}

#[test]
fn a_name_server_is_updated() {
    for (server, host, port) in [
        ("ns1.example.com", "ns1.example.com", 53),
        ("ns1.example.com:5353", "ns1.example.com", 5353),
        ("192.0.2.1", "192.0.2.1", 53),
        ("192.0.2.1:5353", "192.0.2.1", 5353),
        ("2001:db8::1", "2001:db8::1", 53),
        ("[2001:db8::1]:5353", "2001:db8::1", 5353),
    ] {
        let provider = dns(&[
            ("dns_update.server", server),
            ("dns_update.key_file", "/key"),
            ("dns_update.algorithm", "hmac-sha512"),
            ("dns_propagation_seconds", "7"),
        ]);
        let Ok(DnsProvider::Update {
            update,
            propagation,
        }) = provider
        else {
            panic!("{server}: {provider:?}");
        };
        assert_eq!((update.server.as_str(), update.port), (host, port));
        assert_eq!(update.key.algorithm, Some(KeyAlgorithm::HmacSha512));
        assert_eq!(propagation.as_secs(), 7);
    }
}

#[test]
fn the_responder_has_the_zones_of_the_challenges() {
    let responder = |variables: &[(&str, &str)]| match dns(variables) {
        Ok(DnsProvider::Responder(settings)) => settings,
        other => panic!("{other:?}"),
    };
    let listen = ("dns_responder.listen_addr", "['192.0.2.1:53']");
    let challenge = "_acme-challenge.t.tunnel.example.com";
    let plain = responder(&[listen]);
    assert_eq!(
        plain.listen,
        ["192.0.2.1:53".parse::<std::net::SocketAddr>().unwrap()]
    );
    assert_eq!(plain.published_name(challenge), challenge);
    for (name, is_answered) in [
        (challenge, true),
        ("_acme-challenge.tunnel.example.com", true),
        ("t.tunnel.example.com", false),
        ("tunnel.example.com", false),
    ] {
        assert_eq!(plain.zones.contain(name), is_answered, "{name}");
    }

    let with_alias = responder(&[listen, ("dns_responder.zone", "acme.example.net")]);
    let alias = "t.tunnel.example.com.acme.example.net";
    assert_eq!(with_alias.published_name(challenge), alias);
    assert!(with_alias.zones.contain(alias));
    assert!(!with_alias.zones.contain(challenge));

    let with_zone = responder(&[
        listen,
        ("dns_responder.serve_zone", "true"),
        ("dns_responder.addresses", "['192.0.2.1', '2001:db8::1']"),
        ("dns_responder.zone", "acme.example.net"),
    ]);
    assert!(with_zone.zones.contain("a.t.tunnel.example.com"));
    assert_eq!(with_zone.published_name(challenge), challenge);
}

/// Each key with its value, beside the others, is refused for the reason.
fn assert_refused(others: &[(&'static str, &'static str)], rows: &[[&'static str; 3]]) {
    for [key, value, reason] in rows {
        // The last value of a key counts.
        let others = others.iter().filter(|(name, _)| name != key).copied();
        let variables: Vec<_> = others.chain([(*key, *value)]).collect();
        let error = dns(&variables).unwrap_err();
        assert!(error.message.contains(reason), "{key}={value}: {error}");
    }
}

#[test]
fn mistakes_of_updates_are_refused() {
    let update = [
        ("dns_update.server", "ns1.example.com"),
        ("dns_update.key_file", "/key"),
    ];
    let rows = [
        ["dns_program", "/program", "only one of"],
        ["dns_responder.serve_zone", "false", "only one of"],
        ["dns_update.server", "a b", "not a host"],
        ["dns_update.server", "ns1.example.com:x", "not a host"],
        ["dns_update.server", "192.0.2.1:0", "not a host"],
        ["dns_update.zone", "a..b", "not a DNS name"],
        ["dns_update.algorithm", "hmac-md5", "none of"],
    ];
    assert_refused(&update, &rows);
    let rows = [["dns_update.key_name", "k", "required"]];
    assert_refused(&update[..1], &rows);
    assert_refused(&update[1..], &rows);
    let unused = [
        ("certs.acme.dns_update.server", "ns1.example.com"),
        ("certs.acme.dns_update.key_file", "/key"),
    ];
    let error = settings(&unused).unwrap_err();
    assert!(error.message.contains("add dns-01"), "{error}");
}

#[test]
fn mistakes_of_the_responder_are_refused() {
    let zone = [
        ("dns_responder.listen_addr", "['127.0.0.1:53']"),
        ("dns_responder.serve_zone", "true"),
        ("dns_responder.addresses", "['192.0.2.1']"),
    ];
    let own = "_acme-challenge.tunnel.example.com";
    let rows = [
        ["dns_responder.listen_addr", "[]", "at least one"],
        ["dns_responder.listen_addr", "[a]", "not an address"],
        ["dns_responder.zone", "a..b", "not a DNS name"],
        ["dns_responder.serve_zone", "true", "required"],
        ["dns_responder.addresses", "['::1']", "set serve_zone"],
        ["dns_responder.name_server", own, "use another name"],
        ["dns_responder.caa", "[letsencrypt.org]", "set serve_zone"],
        ["dns_responder.caa_account", "true", "list the authority"],
    ];
    assert_refused(&zone[..1], &rows);
    let nine = "[a.b, a.c, a.d, a.e, a.f, a.g, a.h, a.i, a.j]";
    let rows = [
        ["dns_responder.caa", "['a b']", "not a DNS name"],
        ["dns_responder.caa", nine, "at most 8"],
    ];
    assert_refused(&zone, &rows);
}

#[test]
fn files_and_an_authority_can_be_used_together_or_alone() {
    let with_files = [&AGREED[..], &[]].concat();
    assert!(with(&with_files).unwrap().certificate.is_some());
    let without = [&AGREED[..], &[("certs.static.enabled", "false")]].concat();
    assert!(with(&without).unwrap().certificate.is_none());
}
