use std::path::Path;

use super::Config;

fn load(yaml: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("platform.yaml");
    std::fs::write(&file, yaml).unwrap();
    Config::load(Some(&file), []).map_err(|error| {
        let text = error.to_string();
        text.split_once("platform.yaml:")
            .map_or(text.clone(), |(_, rest)| rest.to_owned())
    })
}

#[test]
fn a_minimal_file_is_accepted() {
    let config = load("platform: {base_url: 'https://svc.example.com/'}").unwrap();
    assert_eq!(config.base_url, "https://svc.example.com");
    assert_eq!(config.url("/login"), "https://svc.example.com/login");
    assert!(config.is_secure() && config.listen.ip().is_loopback());
}

#[test]
fn the_examples_of_the_documentation_are_accepted() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let heading = "\n# Configuration of a platform\n";
    let (_, platform) = text.split_once(heading).unwrap();
    // The rest of the example belongs to the relay.
    let (platform, _) = platform.split_once("\n# ").unwrap();
    let examples = platform.split("```yaml\n").skip(1);
    let examples: Vec<_> = examples
        .map(|rest| load(rest.split("```").next().unwrap()).unwrap())
        .collect();
    assert_eq!(examples.len(), 3);
}

#[test]
fn the_base_url_must_be_an_origin() {
    for bad in [
        "svc.example.com",
        "http://svc.example.com",
        "https://svc.example.com/a",
        "https://svc.example.com?a",
        "https://user@svc.example.com",
        "https://SVC.example.com",
        "ftp://svc.example.com",
        "https://svc.example.com:443",
        "http://localhost:80",
        "https://",
    ] {
        let error = load(&format!("platform: {{base_url: '{bad}'}}")).unwrap_err();
        assert!(error.contains("platform.base_url"), "{bad}: {error}");
    }
    for good in [
        "http://127.0.0.1:8080",
        "http://localhost:1",
        "http://[::1]:1",
        "https://a:8443",
    ] {
        let config = load(&format!("platform: {{base_url: '{good}'}}")).unwrap();
        assert_eq!(config.base_url, good);
    }
}

#[test]
fn without_tls_only_loopback_listens() {
    let error = load("platform: {base_url: 'http://localhost:8080', listen_addr: '0.0.0.0:8080'}");
    assert!(error.unwrap_err().contains("platform.listen_addr"));
}

#[test]
fn the_second_listener_stays_on_this_machine() {
    let with = |value: &str| {
        load(&format!(
            "platform: {{base_url: 'https://a', listen_addr: '127.0.0.1:8080', \
             local_listen_addr: '{value}'}}"
        ))
    };
    let config = with("127.0.0.1:8081").unwrap();
    assert_eq!(config.local_listen, Some("127.0.0.1:8081".parse().unwrap()));
    for (value, reason) in [
        ("0.0.0.0:8081", "must be on loopback"),
        ("127.0.0.1:8080", "already used"),
        (":1", "not an address"),
    ] {
        let error = with(value).unwrap_err();
        assert!(error.contains("platform.local_listen_addr: "), "{error}");
        assert!(error.contains(reason), "{value}: {error}");
    }
}

#[test]
fn headers_of_proxies_need_tls_and_a_proxy() {
    let with = |listen: &str, more: &str, tls: &str| {
        load(&format!(
            "platform: {{base_url: 'https://a', data_dir: /data, listen_addr: '{listen}'{more}}}\n\
             tls: {{proxy_protocol: true{tls}}}"
        ))
    };
    let acme = ", acme: {terms_agreed: true}";
    let trusted = ", trusted_proxies: [192.0.2.1]";
    assert!(with("127.0.0.1:8080", "", acme).unwrap().proxy_protocol);
    assert!(with("[::]:443", trusted, acme).unwrap().proxy_protocol);
    for (listen, tls, reason) in [
        ("127.0.0.1:8080", "", "needs a certificate"),
        ("[::]:443", acme, "platform.trusted_proxies"),
    ] {
        let error = with(listen, "", tls).unwrap_err();
        assert!(error.contains("tls.proxy_protocol: "), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn an_unknown_key_is_named_with_a_similar_one() {
    let error = load("platform: {base_urll: 'x'}").unwrap_err();
    assert!(
        error.contains("base_urll") && error.contains("base_url"),
        "{error}"
    );
}

#[test]
fn errors_name_the_key_of_a_bad_value() {
    for (yaml, key) in [
        ("trusted_proxies: ['x']", "platform.trusted_proxies.0"),
        ("listen_addr: ':80'", "platform.listen_addr"),
        ("signing_keys: ['']", "platform.signing_keys.0"),
        ("data_dir: ''", "platform.data_dir"),
        ("abuse_contact: 'http://a'", "platform.abuse_contact"),
    ] {
        let error = load(&format!("platform: {{base_url: 'https://a', {yaml}}}")).unwrap_err();
        assert!(error.contains(key), "{error}");
    }
    let error = load("platform: {base_url: 'https://a'}\nengines: [{cluster_domain: 'a..b'}]");
    assert!(error.unwrap_err().contains("engines.0.cluster_domain"));
    let error =
        load("platform: {base_url: 'https://a'}\nengines: [{cluster_domain: 'a.b', ca_file: ''}]");
    assert!(error.unwrap_err().contains("engines.0.ca_file"));
    // A region needs an engine, also one with another error.
    let error = load(
        "platform: {base_url: 'https://a'}\nengines: [{cluster_domain: 'a.b', ca_file: ''}]\n\
         catalog: {regions: [{provider: aws, region: eu-west-1}]}",
    )
    .unwrap_err();
    assert!(
        error.contains("engines.0.ca_file") && !error.contains("catalog"),
        "{error}"
    );
    let error = load("platform: {base_url: 'https://a'}\nturn: {port: 0}");
    assert!(error.unwrap_err().contains("turn.port"));
}

#[test]
fn mail_is_written_to_a_folder_or_sent_to_a_server() {
    let base = "platform: {base_url: 'https://a'}\n";
    for (yaml, key) in [
        ("mail: {smtp: {port: 25}, from: a@b.c}", "mail.smtp.host"),
        ("mail: {smtp: {host: m.example}}", "mail.from"),
        ("mail: {smtp: {host: m.example}, from: 'x'}", "mail.from"),
        (
            "mail: {smtp: {host: m.example}, from: a@b.c, folder: x}",
            "mail.folder",
        ),
        ("mail: {folder: ''}", "mail.folder"),
        (
            "mail: {smtp: {host: m.example, tls: none}, from: a@b.c}",
            "mail.smtp.tls",
        ),
        (
            "mail: {smtp: {host: localhost, tls: none, ca_file: x}, from: a@b.c}",
            "mail.smtp.ca_file",
        ),
        (
            "mail: {smtp: {host: m.example, tls: ssl}, from: a@b.c}",
            "mail.smtp.tls",
        ),
        (
            "mail: {smtp: {host: m.example, username: x}, from: a@b.c}",
            "mail.smtp.password_file",
        ),
        (
            "mail: {smtp: {host: m.example, password_file: x}, from: a@b.c}",
            "mail.smtp.username",
        ),
        (
            "mail: {smtp: {host: 'm example'}, from: a@b.c}",
            "mail.smtp.host",
        ),
        (
            "mail: {smtp: {host: m.example, port: 0}, from: a@b.c}",
            "mail.smtp.port",
        ),
        (
            "mail: {smtp: {host: m.example, passwort_file: x}, from: a@b.c}",
            "mail.smtp.passwort_file",
        ),
    ] {
        let error = load(&format!("{base}{yaml}")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{yaml}: {error}");
    }
    for (tls, port) in [("starttls", 587), ("implicit", 465), ("none", 25)] {
        let yaml = format!("{base}mail: {{smtp: {{host: 127.0.0.1, tls: {tls}}}, from: a@b.c}}");
        let crate::mail::MailTransport::Smtp(smtp) = load(&yaml).unwrap().mail.transport else {
            panic!("a folder");
        };
        assert_eq!(smtp.port, port);
    }
}

#[test]
fn a_provider_is_configured_completely_or_not_at_all() {
    let base = "platform: {base_url: 'https://a'}\n";
    assert!(load(base).unwrap().openid.is_none());
    for (yaml, key) in [
        ("client_id: x", "openid.issuer"),
        ("issuer: 'https://id.example'", "openid.client_id"),
        ("issuer: 'http://id.example', client_id: x", "openid.issuer"),
        ("issuer: 'id.example', client_id: x", "openid.issuer"),
        (
            "issuer: 'https://id.example?a=b', client_id: x",
            "openid.issuer",
        ),
        (
            "issuer: 'https://id.example', client_id: ''",
            "openid.client_id",
        ),
        (
            "issuer: 'https://id.example', client_id: x, scopes: [email]",
            "openid.scopes",
        ),
        (
            "issuer: 'https://id.example', client_id: x, scopes: ['openid email']",
            "openid.scopes.0",
        ),
        (
            "issuer: 'https://id.example', client_id: x, sign_up: domains",
            "openid.domains",
        ),
        (
            "issuer: 'https://id.example', client_id: x, domains: [a.example]",
            "openid.domains",
        ),
        (
            "issuer: 'https://id.example', client_id: x, sign_up: domains, domains: ['@a']",
            "openid.domains.0",
        ),
        (
            "issuer: 'https://id.example', client_id: x, sign_up: everybody",
            "openid.sign_up",
        ),
        (
            "issuer: 'https://id.example', client_id: x, client_secret_file: ''",
            "openid.client_secret_file",
        ),
        (
            "issuer: 'https://id.example', client_id: x, client_secret: y",
            "openid.client_secret",
        ),
    ] {
        let error = load(&format!("{base}openid: {{{yaml}}}")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{yaml}: {error}");
    }
    let good = "openid: {issuer: 'https://id.example/realm/', client_id: x}";
    let openid = load(&format!("{base}{good}")).unwrap().openid.unwrap();
    assert_eq!(openid.name, "id.example");
    assert_eq!(openid.scope, "openid email profile");
    assert_eq!(openid.sign_up, crate::people::openid::SignUp::Invited);
}

#[test]
fn the_rules_for_groups_are_complete() {
    for (yaml, key) in [
        ("groups_claim: groups", "openid.groups_claim"),
        ("groups_claim: 'a b', groups: [{}]", "openid.groups_claim"),
        ("groups: [{}]", "openid.groups_claim"),
        ("groups_claim: g, groups: [{}]", "openid.groups.0.workspace"),
        (
            "groups_claim: g, \
             groups: [{group: a, workspace: prj_01h455vb4pex5vsknk084sn02q}]",
            "openid.groups.0.workspace",
        ),
        (
            "groups_claim: g, \
             groups: [{workspace: wks_01h455vb4pex5vsknk084sn02q}]",
            "openid.groups.0.group",
        ),
        (
            "groups_claim: g, \
             groups: [{group: a, workspace: wks_01h455vb4pex5vsknk084sn02q, role: owner}]",
            "openid.groups.0.role",
        ),
    ] {
        let base = "platform: {base_url: 'https://a'}\n";
        let openid = format!("openid: {{issuer: 'https://id.example', client_id: x, {yaml}}}");
        let error = load(&format!("{base}{openid}")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{yaml}: {error}");
    }
}

/// A key that is only allowed with another one is not refused because the other one is wrong.
#[test]
fn consequences_of_wrong_values_of_a_provider_are_not_reported() {
    for (yaml, key) in [
        ("groups_claim: g, groups: 7", "openid.groups"),
        ("groups_claim: g, groups: [7]", "openid.groups.0"),
        ("groups_claim: g, gruops: []", "openid.gruops"),
        ("domains: [a.example], sign_up: 7", "openid.sign_up"),
        ("domains: [a.example], sign_up: all", "openid.sign_up"),
        ("domains: [a.example], trust_email: 7", "openid.trust_email"),
        ("email_claim: upn, trust_email: 7", "openid.trust_email"),
    ] {
        let base = "platform: {base_url: 'https://a'}\n";
        let openid = format!("openid: {{issuer: 'https://id.example', client_id: x, {yaml}}}");
        let error = load(&format!("{base}{openid}")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{yaml}: {error}");
        assert!(!error.contains("only allowed with"), "{yaml}: {error}");
    }
    let regions = "catalog: {regions: [{provider: other, region: a}]}";
    let error = load(&format!(
        "platform: {{base_url: 'https://a'}}\nengines: 7\n{regions}"
    ))
    .unwrap_err();
    assert!(error.contains("engines: "), "{error}");
    assert!(!error.contains("no engine is configured"), "{error}");
}

/// Addresses without a confirmation are accepted from an issuer of one tenant only, and for domains
/// that the operator lists.
#[test]
fn an_issuer_of_many_tenants_is_not_trusted_with_addresses() {
    let tenant = "2d8a4f6e-0b1c-4d5e-8f90-a1b2c3d4e5f6";
    let load = |issuer: &str, more: &str| {
        let base = "platform: {base_url: 'https://a'}\n";
        let openid = format!("openid: {{issuer: '{issuer}', client_id: x, {more}}}");
        load(&format!("{base}{openid}"))
    };
    let trust = "trust_email: true, domains: [a.example]";
    let entra = "https://login.microsoftonline.com";
    for (issuer, more, key) in [
        (
            format!("{entra}/{tenant}/v2.0"),
            "trust_email: true",
            "openid.domains",
        ),
        (format!("{entra}/common/v2.0"), trust, "openid.trust_email"),
        (
            format!("{entra}/organizations/v2.0"),
            trust,
            "openid.trust_email",
        ),
        (
            format!("{entra}/consumers/v2.0"),
            trust,
            "openid.trust_email",
        ),
        (
            format!("{entra}/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0"),
            trust,
            "openid.trust_email",
        ),
        (format!("{entra}/v2.0"), trust, "openid.trust_email"),
        (
            "https://sts.windows.net/common/".to_owned(),
            trust,
            "openid.trust_email",
        ),
        (
            "https://accounts.google.com".to_owned(),
            trust,
            "openid.trust_email",
        ),
        (
            "https://id.example".to_owned(),
            "email_claim: upn",
            "openid.email_claim",
        ),
        (
            "https://id.example".to_owned(),
            "trust_email: true, domains: [a.example], email_claim: ''",
            "openid.email_claim",
        ),
        (
            "https://id.example".to_owned(),
            "trust_email: true, domains: ['*.a.example']",
            "openid.domains.0",
        ),
    ] {
        let error = load(&issuer, more).unwrap_err();
        assert!(error.contains(key), "{issuer} {more}: {error}");
    }
    for issuer in [
        format!("{entra}/{tenant}/v2.0"),
        format!("https://sts.windows.net/{tenant}/"),
        "https://id.example/realms/main".to_owned(),
    ] {
        let config = load(&issuer, trust).unwrap().openid.unwrap();
        assert_eq!(config.email.claim(), "email", "{issuer}");
    }
}

#[test]
fn numbers_of_the_platform_have_limits() {
    for (bad, key) in [
        ("database_connections: 3", "platform.database_connections"),
        (
            "database_connections: 1001",
            "platform.database_connections",
        ),
        ("drain_seconds: 301", "platform.drain_seconds"),
    ] {
        let yaml = format!("platform: {{base_url: 'https://svc.example.com', {bad}}}");
        let error = load(&yaml).unwrap_err();
        assert!(error.contains(key), "{bad}: {error}");
    }
    let yaml = "platform: {base_url: 'https://svc.example.com', database_connections: 4, drain_seconds: 0}";
    let config = load(yaml).unwrap();
    assert_eq!(config.database_connections, Some(4));
    assert!(config.drain_period.is_zero());
}

#[test]
fn a_certificate_is_ordered_for_the_host_of_the_platform() {
    let config = load(
        "platform: {base_url: 'https://svc.example.com:8443', data_dir: /data}\n\
         tls: {http_listen_addr: '[::]:80', acme: {terms_agreed: true, challenges: [http-01]}}",
    );
    let tls = config.unwrap().tls.unwrap();
    assert_eq!(tls.http_listen, Some("[::]:80".parse().unwrap()));
    assert!(tls.files.is_none());
    let settings = tls.acme.unwrap();
    assert_eq!(settings.names, ["svc.example.com"]);
    assert_eq!(settings.state_dir, Path::new("/data/acme"));
}

#[test]
fn mistakes_of_an_ordered_certificate_are_refused() {
    let acme = "acme: {terms_agreed: true}";
    let files = "cert_file: a, key_file: b";
    for (base_url, tls, key, reason) in [
        ("https://a", "acme: {}", "tls.acme.terms_agreed", "terms"),
        ("https://192.0.2.1", acme, "platform.base_url", "DNS name"),
        ("https://[::1]", acme, "platform.base_url", "DNS name"),
        ("http://localhost:8080", acme, "tls.acme", "must be https"),
        (
            "https://a",
            "acme: {terms_agreed: true, challenges: [http-01]}",
            "tls.acme.challenges",
            "set tls.http_listen_addr",
        ),
        (
            "https://a",
            "http_listen_addr: '[::]:80'",
            "tls.http_listen_addr",
            "tls.acme",
        ),
        (
            "https://a",
            format!("{files}, http_listen_addr: '127.0.0.1:8080'").as_str(),
            "tls.http_listen_addr",
            "already used",
        ),
        (
            "https://a",
            format!("{files}, http_listen_addr: ':80'").as_str(),
            "tls.http_listen_addr",
            "not an address",
        ),
    ] {
        let yaml = format!("platform: {{base_url: '{base_url}'}}\ntls: {{{tls}}}");
        let error = load(&yaml).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{yaml}: {error}");
        assert!(error.contains(reason), "{yaml}: {error}");
    }
}
