use clap::Parser as _;
use serde_json::Value;

use super::super::files;
use super::*;
use crate::commands::server::up::Args as UpArgs;

/// The way of these options, or the text of the refusal.
fn dns_way(options: &[&str]) -> Result<DnsWay, String> {
    let server = [
        "up",
        "--public",
        "engine.example.com",
        "--email",
        "admin@example.com",
    ];
    let args = UpArgs::try_parse_from([&server[..], options].concat());
    let args = args.map_err(|error| error.to_string())?;
    args.server.dns().map_err(|failure| failure.to_string())
}

#[test]
fn records_of_challenges_have_one_way() {
    let responder = |port, zone: Option<&str>| DnsWay::Responder {
        port,
        zone: zone.map(str::to_owned),
    };
    for (options, expected) in [
        (&["--dns-port", "5353"][..], responder(5353, None)),
        (&[], responder(53, None)),
        (
            &["--dns-zone", "Acme.Example.NET."],
            responder(53, Some("acme.example.net")),
        ),
        (
            &["--dns-program", "/usr/local/bin/records"],
            DnsWay::Program("/usr/local/bin/records".into()),
        ),
        (
            &["--dns-update", "192.0.2.53", "--dns-key", "/etc/svc/key"],
            DnsWay::Update {
                server: "192.0.2.53".to_owned(),
                key_file: "/etc/svc/key".into(),
            },
        ),
    ] {
        assert_eq!(dns_way(options).unwrap(), expected, "{options:?}");
    }
    for (options, named) in [
        (&["--dns-update", "192.0.2.53"][..], "--dns-key"),
        (&["--dns-key", "/etc/svc/key"], "--dns-update"),
        (
            &["--dns-program", "/p", "--dns-update", "192.0.2.53"],
            "--dns-program",
        ),
        (
            &["--dns-program", "/p", "--dns-zone", "a.example"],
            "--dns-zone",
        ),
        (&["--dns-zone", "https://a.example"], "is not a host name"),
    ] {
        let refusal = dns_way(options).unwrap_err();
        assert!(refusal.contains(named), "{options:?}: {refusal}");
    }
}

#[test]
fn the_profile_is_in_the_section_of_each_certificate() {
    let arguments = [
        "up",
        "--public",
        "engine.example.com",
        "--email",
        "admin@example.com",
        "--agree-terms",
        "--public-address",
        "127.0.0.1",
        "--listen-address",
        "127.0.0.1",
        "--resolver",
        "127.0.0.1",
    ];
    for profile in [None, Some("shortlived")] {
        let given = profile.map(|profile| ["--acme-profile", profile]);
        let given = given.as_slice().as_flattened();
        let args = UpArgs::try_parse_from([&arguments[..], given].concat()).unwrap();
        let options = args.server.check("engine.example.com").unwrap();
        assert_eq!(options.authority.profile.as_deref(), profile);
        let section = files::acme(&options, &[], Path::new("/var/lib/svc"));
        assert_eq!(section.get("profile").and_then(Value::as_str), profile);
    }
}

#[test]
fn only_names_that_an_authority_can_validate_are_hosts() {
    for (given, expected) in [
        ("engine.example.com", "engine.example.com"),
        ("Engine.Example.COM.", "engine.example.com"),
    ] {
        assert_eq!(host_name(given, false).unwrap(), expected);
    }
    for (given, reason) in [
        ("203.0.113.7", "is an address"),
        ("[2001:db8::7]", "is an address"),
        ("localhost", "is this machine"),
        ("engine.localhost", "is this machine"),
        ("https://engine.example.com", "is not a host name"),
        ("engine.example.com:443", "is not a host name"),
        ("engine..example", "is not a host name"),
        ("*.example.com", "is not a host name"),
        ("", "is not a host name"),
        ("engine", "only one label"),
    ] {
        let failure = host_name(given, false).unwrap_err();
        assert!(failure.message().contains(reason), "{given}: {failure}");
        assert!(failure.next_step().is_some(), "{given}");
    }
    assert!(host_name("engine.localhost", true).is_ok());
}

/// The test has no terminal, so there is no question.
#[test]
fn without_consent_the_option_is_named() {
    let authority = Authority {
        directory: "https://ca.example/directory".to_owned(),
        ca_file: None,
        profile: None,
        is_staging: false,
    };
    authority.consent(true).unwrap();
    if prompt::is_possible() {
        return;
    }
    let failure = authority.consent(false).unwrap_err();
    let text = failure.message();
    assert!(text.contains("have not been accepted"), "{text}");
    assert!(text.contains("https://ca.example/directory"), "{text}");
    let hint = failure.next_step().unwrap();
    assert!(hint.contains("--agree-terms"), "{hint}");
}

#[test]
fn mail_addresses_have_a_domain() {
    assert!(email("admin@example.com").is_ok());
    for bad in [
        "",
        "admin",
        "admin@localhost",
        "@example.com",
        "a@b@c.d",
        "a b@c.d",
    ] {
        assert!(email(bad).is_err(), "{bad}");
    }
}

#[test]
fn given_addresses_are_local_or_behind_a_nat() {
    let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
    let found = ServerAddresses::find(&[loopback], Some(loopback)).unwrap();
    assert_eq!(found.exact(), [loopback]);
    assert_eq!(found.own_address(), loopback);
    let outside: IpAddr = "203.0.113.7".parse().unwrap();
    let found = ServerAddresses::find(&[outside], None).unwrap();
    assert_eq!(found.public, [outside]);
    assert!(found.local.is_empty());
    assert_eq!(found.exact(), [IpAddr::from(Ipv4Addr::UNSPECIFIED)]);
}

/// Clouds translate IPv4 and route IPv6.
#[test]
fn a_nat_of_one_family_leaves_the_other_as_it_is() {
    let [v4, v6]: [IpAddr; 2] = ["203.0.113.7", "2001:db8::7"].map(|ip| ip.parse().unwrap());
    let addresses = |local: &[IpAddr]| ServerAddresses {
        public: vec![v4, v6],
        local: local.to_vec(),
        listen: Ipv6Addr::UNSPECIFIED.into(),
    };
    let mixed = addresses(&[v6]);
    assert_eq!(mixed.behind_nat(), Some(v4));
    assert_eq!(mixed.exact(), [v6, Ipv4Addr::UNSPECIFIED.into()]);
    assert!(mixed.name_server().contains(&v6));
    let direct = addresses(&[v4, v6]);
    assert_eq!(direct.behind_nat(), None);
    assert_eq!(direct.exact(), [v4, v6]);
    assert_eq!(direct.name_server(), [v4, v6]);
    let elsewhere = ServerAddresses {
        public: vec![v6],
        ..addresses(&[])
    };
    assert!(elsewhere.exact().is_empty());
}

#[test]
fn private_addresses_are_not_public() {
    for private in [
        "10.0.0.5",
        "100.64.0.1",
        "192.168.1.2",
        "fd00::1",
        "fe80::1",
        "127.0.0.1",
    ] {
        assert!(is_private(private.parse().unwrap()), "{private}");
    }
    for public in ["203.0.113.7", "100.128.0.1", "2001:db8::7"] {
        assert!(!is_private(public.parse().unwrap()), "{public}");
    }
}
