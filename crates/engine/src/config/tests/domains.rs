//! The section `domains`.

use acme::DnsProvider;

use super::*;

/// [`LEAST`] with further sections, or all errors.
fn load(sections: &str) -> Result<EngineConfig, ConfigErrors> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("engine.yaml");
    fs::write(&path, format!("{LEAST}{sections}\n")).unwrap();
    EngineConfig::load(Some(&path), [])
}

fn names(config: &EngineConfig) -> Vec<&str> {
    let domains = config.domains.iter();
    domains.map(|domain| domain.name.as_str()).collect()
}

#[test]
fn domains_are_kept_in_lower_case_a_labels() {
    let config = load(
        "domains:\n- name: APP.example.com\n- name: '*.app.example.com'\n- name: bücher.example\n\
         - {name: shop.example, cert_file: shop.pem, key_file: shop.key}",
    )
    .unwrap();
    assert_eq!(
        names(&config),
        [
            "app.example.com",
            "*.app.example.com",
            "xn--bcher-kva.example",
            "shop.example"
        ]
    );
    let files = config.domains[3].certificate.as_ref().unwrap();
    assert_eq!(files.cert, Path::new("shop.pem"));
    assert_eq!(files.key, Path::new("shop.key"));
    assert!(config.domains[0].certificate.is_none());
    assert!(with(&[]).unwrap().domains.is_empty());
}

#[test]
fn wrong_names_are_refused_with_their_key_and_reason() {
    for (entries, key, reason) in [
        ("{}", "domains.0.name", "required"),
        ("{name: 192.0.2.1}", "domains.0.name", "IP address"),
        ("{name: localhost}", "domains.0.name", "one label"),
        ("{name: co.uk}", "domains.0.name", "public suffix"),
        ("{name: 'a.*.example.com'}", "domains.0.name", "first label"),
        ("{name: a_b.example.com}", "domains.0.name", "host name"),
        ("{name: tunnel.example.com}", "domains.0.name", "own host"),
        (
            "{name: '*.tunnel.example.com'}",
            "domains.0.name",
            "own host",
        ),
        (
            "{name: a.t.tunnel.example.com}",
            "domains.0.name",
            "own host",
        ),
        (
            "{name: a.example.com}, {name: A.example.com}",
            "domains.1.name",
            "listed twice",
        ),
        (
            "{name: a.example.com, cert_file: a.pem}",
            "domains.0.key_file",
            "required",
        ),
        (
            "{name: a.example.com, key_file: a.pem}",
            "domains.0.cert_file",
            "required",
        ),
    ] {
        let error = first(load(&format!("domains: [{entries}]")).unwrap_err());
        assert_eq!(error.key, key, "{entries}: {error}");
        assert!(error.message.contains(reason), "{entries}: {error}");
    }
}

/// A wildcard may have a name that leads to another server: that name is not granted to tunnels.
#[test]
fn a_name_is_a_domain_or_leads_to_another_server() {
    let routes = "tls: {routes: [{server_name: App.example.com, to: '127.0.0.1:1'}]}\n";
    let load = |domains: &str| load(&format!("{routes}domains: [{domains}]"));
    let error = first(load("{name: APP.example.com}").unwrap_err());
    assert_eq!(error.key, "domains.0.name");
    assert!(error.message.contains("tls.routes"), "{error}");
    for other in [
        "'*.example.com'",
        "'*.app.example.com'",
        "other.example.com",
    ] {
        assert!(load(&format!("{{name: {other}}}")).is_ok(), "{other}");
    }
}

/// The responder answers for the challenges of the domains without files.
#[test]
fn the_responder_has_the_challenges_of_the_domains() {
    let load = |responder: &str| {
        let acme = format!(
            "{{terms_agreed: true, state_dir: /state, challenges: [dns-01], dns_responder: \
             {{listen_addr: ['192.0.2.1:53']{responder}}}}}"
        );
        let sections = "domains:\n- name: app.example.org\n- name: '*.app.example.org'\n\
                        - {name: files.example.org, cert_file: a.pem, key_file: a.key}";
        let text = LEAST.replace("certs: {", &format!("certs: {{acme: {acme}, "));
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("engine.yaml");
        fs::write(&path, format!("{text}{sections}\n")).unwrap();
        let acme = EngineConfig::load(Some(&path), []).map(|config| config.acme.unwrap());
        acme.map(|acme| match acme.dns {
            Some(DnsProvider::Responder(settings)) => settings,
            other => panic!("{other:?}"),
        })
    };
    let plain = load("").unwrap();
    let alias = load(", zone: acme.example.net").unwrap();
    let challenge = "_acme-challenge.app.example.org";
    assert!(plain.zones.contain(challenge));
    assert_eq!(plain.published_name(challenge), challenge);
    let name_of_alias = "app.example.org.acme.example.net";
    assert_eq!(alias.published_name(challenge), name_of_alias);
    for (name, is_answered) in [
        ("_acme-challenge.t.tunnel.example.com", true),
        ("_acme-challenge.files.example.org", false),
        ("app.example.org", false),
    ] {
        assert_eq!(plain.zones.contain(name), is_answered, "{name}");
    }
}

#[test]
fn all_mistakes_are_reported_together() {
    let errors = load("domains: [{name: co.uk, cert_file: a.pem}, {name: localhost}]").unwrap_err();
    let keys: Vec<_> = errors.into_iter().map(|error| error.key).collect();
    for key in ["domains.0.name", "domains.0.key_file", "domains.1.name"] {
        assert!(keys.iter().any(|found| found == key), "{keys:?}");
    }
}

#[test]
fn the_number_of_domains_is_bounded() {
    use std::fmt::Write as _;
    let mut sections = String::from("domains:\n");
    for number in 0..=crate::domains::MAX_DOMAINS {
        writeln!(sections, "- name: a{number}.example.com").unwrap();
    }
    let error = first(load(&sections).unwrap_err());
    assert_eq!(error.key, "domains");
    assert!(error.message.contains("at most 10000"), "{error}");
}

/// Domains whose visitors get no usable certificate.
#[test]
fn a_domain_without_a_certificate_is_warned_about() {
    let dir = TempDir::new().unwrap();
    let pair = |name: &str, names: &[&str]| {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let files = CertFiles {
            cert: dir.path().join(format!("{name}.pem")),
            key: dir.path().join(format!("{name}.key")),
        };
        fs::write(&files.cert, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    };
    let own = pair(
        "own",
        &[
            "tunnel.example.com",
            "*.t.tunnel.example.com",
            "own.example.com",
        ],
    );
    let domain = |name: &str, certificate: Option<CertFiles>| DomainConfig {
        name: name.parse().unwrap(),
        certificate,
    };
    let warnings = |variables: &[(&str, &str)], domains: Vec<DomainConfig>| {
        let mut config = with(variables).unwrap();
        config.certificate = Some(own.clone());
        config.domains = domains;
        let warnings = config.inspect(1_800_000_000).unwrap();
        let about = warnings.into_iter().filter(|it| it.key == "domains");
        about.map(|it| it.message).collect::<Vec<_>>()
    };
    let acme = [
        ("certs.acme.terms_agreed", "true"),
        ("certs.acme.state_dir", "/nonexistent"),
    ];
    let app = || domain("app.example.com", None);
    let wildcard = || domain("*.example.com", None);
    let nothing = Vec::<String>::new();
    let own_name = domain("own.example.com", None);
    assert_eq!(warnings(&[], vec![own_name]), nothing);
    let found = warnings(&[], vec![app()]);
    assert!(
        found[0].contains("app.example.com has no certificate"),
        "{found:?}"
    );
    assert!(found[0].contains("certs.acme"), "{found:?}");
    assert_eq!(warnings(&acme, vec![app()]), nothing);
    let found = warnings(&acme, vec![wildcard()]);
    assert!(found[0].contains("a wildcard needs dns-01"), "{found:?}");
    let other = pair("other", &["other.example.com"]);
    let found = warnings(&[], vec![domain("app.example.com", Some(other))]);
    assert!(found[0].contains("does not include the name"), "{found:?}");
    let matching = pair("matching", &["*.example.com"]);
    let both = vec![
        domain("a.example.com", Some(matching.clone())),
        domain("*.example.com", Some(matching)),
    ];
    assert_eq!(warnings(&[], both), nothing);
    let missing = CertFiles {
        cert: dir.path().join("missing.pem"),
        key: dir.path().join("missing.key"),
    };
    let mut config = with(&[]).unwrap();
    config.certificate = Some(own);
    config.domains = vec![app(), domain("b.example.com", Some(missing))];
    let error = first(config.inspect(1_800_000_000).unwrap_err());
    assert_eq!(error.key, "domains.1.cert_file");
}
