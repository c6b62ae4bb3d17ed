//! The section `certs.acme`.

use acme::ChallengeKind;

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
    assert_eq!(settings.dns, None);
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
    assert_eq!(settings.dns.unwrap().path, Path::new("/program"));
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
    ] {
        let key = format!("certs.acme.{key}");
        let error = settings(&[(&key, value)]).unwrap_err();
        assert!(error.message.contains(reason), "{key}={value}: {error}");
    }
    let error = settings(&[("certs.acme.challenges", "[dns-01]")]).unwrap_err();
    assert_eq!(error.key, "certs.acme.dns_program");
}

#[test]
fn files_and_an_authority_can_be_used_together_or_alone() {
    let with_files = [&AGREED[..], &[]].concat();
    assert!(with(&with_files).unwrap().certificate.is_some());
    let without = [&AGREED[..], &[("certs.static.enabled", "false")]].concat();
    assert!(with(&without).unwrap().certificate.is_none());
}
