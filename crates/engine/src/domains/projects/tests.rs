use std::path::Path;
use std::slice::from_ref;
use std::time::Duration;

use acme::{KeyType, WallClock};
use serde_json::json;

use super::*;

fn of_projects() -> (ProjectDomains, Arc<Domains>) {
    let domains = Arc::new(Domains::default());
    let base = "engine.example".parse().unwrap();
    let of_projects = ProjectDomains::new(Arc::clone(&domains), base, None);
    (of_projects, domains)
}

fn project(id: &str, names: &[&str]) -> Item {
    let domain = |name: &&str| {
        json!({
            "id": format!("dom_{name}"),
            "hostname": name,
            "certificate_validation": "tls_alpn_01",
        })
    };
    let domains: Vec<_> = names.iter().map(domain).collect();
    let project = serde_json::from_value(json!({
        "id": id,
        "endpoint": id,
        "workspace_id": "wks_1",
        "plan": "basic",
        "provider": "other",
        "domains": domains,
    }));
    Item::Project(Box::new(project.unwrap()))
}

fn holder(domains: &Domains, host: &str) -> Option<String> {
    domains.at(host).map(|domain| domain.project.to_string())
}

#[test]
fn domains_follow_the_changes_of_their_project() {
    let (of_projects, domains) = of_projects();
    of_projects.apply(&[project("a", &["app.example.com", "*.shop.example.com"])]);
    assert_eq!(holder(&domains, "app.example.com").as_deref(), Some("a"));
    assert_eq!(holder(&domains, "x.shop.example.com").as_deref(), Some("a"));
    of_projects.apply(&[project("a", &["*.shop.example.com"])]);
    assert_eq!(holder(&domains, "app.example.com"), None);
    assert_eq!(holder(&domains, "x.shop.example.com").as_deref(), Some("a"));
    of_projects.apply(&[Item::ProjectGone { id: "a".to_owned() }]);
    assert_eq!(holder(&domains, "x.shop.example.com"), None);
}

#[test]
fn a_snapshot_removes_what_it_does_not_contain() {
    let (of_projects, domains) = of_projects();
    of_projects.apply(&[
        project("a", &["a.example.com"]),
        project("b", &["b.example.com"]),
    ]);
    of_projects.replace(&[project("b", &["c.example.com"])]);
    assert_eq!(holder(&domains, "a.example.com"), None);
    assert_eq!(holder(&domains, "b.example.com"), None);
    assert_eq!(holder(&domains, "c.example.com").as_deref(), Some("b"));
}

/// The changes of two projects may arrive in any order.
#[test]
fn a_domain_moves_to_another_project() {
    let (of_projects, domains) = of_projects();
    let name = "app.example.com";
    of_projects.apply(&[project("a", &[name])]);
    of_projects.apply(&[project("b", &[name])]);
    assert_eq!(holder(&domains, name).as_deref(), Some("b"));
    of_projects.apply(&[project("a", &[])]);
    assert_eq!(holder(&domains, name).as_deref(), Some("b"));
    of_projects.apply(&[project("b", &[]), project("a", &[name])]);
    assert_eq!(holder(&domains, name).as_deref(), Some("a"));
}

#[test]
fn names_that_an_engine_cannot_serve_are_left_out() {
    let (of_projects, domains) = of_projects();
    let names = [
        "engine.example",
        "a.engine.example",
        "co.uk",
        "a b",
        "ok.example.com",
    ];
    of_projects.apply(&[project("a", &names)]);
    for refused in ["engine.example", "a.engine.example", "co.uk", "a b"] {
        assert_eq!(holder(&domains, refused), None, "{refused}");
    }
    assert_eq!(holder(&domains, "ok.example.com").as_deref(), Some("a"));
}

fn settings(challenges: Vec<ChallengeKind>, state_dir: &Path) -> Settings {
    Settings {
        directory: "https://ca.example/directory".to_owned(),
        contact: Vec::new(),
        external_account: None,
        key_type: KeyType::default(),
        profile: None,
        ca_file: None,
        challenges,
        dns: None,
        challenge_alias: None,
        names: Vec::new(),
        state_dir: state_dir.to_owned(),
        first_retry: Duration::from_mins(5),
    }
}

#[test]
fn certificates_are_ordered_for_domains_that_the_authority_can_validate() {
    use DomainCertificateValidation::{Dns01, TlsAlpn01};

    let all = [
        ChallengeKind::TlsAlpn01,
        ChallengeKind::Http01,
        ChallengeKind::Dns01,
    ];
    for (kind, name, validation, expected) in [
        (0, "app.example.com", TlsAlpn01, true),
        (1, "app.example.com", TlsAlpn01, true),
        (2, "app.example.com", TlsAlpn01, false),
        (0, "app.example.com", Dns01, false),
        (2, "app.example.com", Dns01, true),
        (0, "*.example.com", Dns01, false),
        (2, "*.example.com", Dns01, true),
    ] {
        let settings = settings(vec![all[kind]], Path::new(""));
        let name = name.parse().unwrap();
        let found = can_be_validated(&name, validation, &settings);
        assert_eq!(found, expected, "{name} {validation:?} {:?}", all[kind]);
    }
}

/// The responder has a zone for delegated challenges, and the platform another one.
#[test]
fn a_responder_has_to_answer_for_the_delegated_challenge() {
    let zones = vec![dns::Zone::of_challenges("acme.example.net").unwrap()];
    let responder = |alias_zone: Option<&str>| {
        DnsProvider::Responder(acme::ResponderSettings {
            listen: Vec::new(),
            zones: dns::Zones::new("engine.example", zones.clone()).unwrap(),
            alias_zone: alias_zone.map(str::to_owned),
        })
    };
    let name = "*.app.example.com".parse().unwrap();
    for (dns, alias, expected) in [
        (None, Some("id.acme.example.net"), true),
        (
            Some(responder(Some("acme.example.net"))),
            Some("id.acme.example.net"),
            true,
        ),
        (
            Some(responder(Some("acme.example.net"))),
            Some("id.other.example"),
            false,
        ),
        (Some(responder(Some("acme.example.net"))), None, true),
        (Some(responder(None)), Some("id.acme.example.net"), true),
        (Some(responder(None)), None, false),
    ] {
        let settings = Settings {
            dns,
            ..settings(vec![ChallengeKind::Dns01], Path::new(""))
        };
        assert_eq!(has_answer(&name, alias, &settings), expected, "{alias:?}");
    }
}

/// A project whose only domain has an uploaded certificate.
fn with_certificate(id: &str, name: &str) -> Item {
    let mut item = project(id, &[name]);
    if let Item::Project(project) = &mut item {
        project.domains[0].has_certificate = true;
    }
    item
}

fn uploaded(project: &str, name: &str) -> Item {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Item::DomainCertificate(Box::new(link::DomainCertificate {
        id: format!("dom_{name}"),
        project_id: project.to_owned(),
        hostname: name.to_owned(),
        chain: made.cert.pem(),
        private_key: made.signing_key.serialize_pem(),
    }))
}

#[test]
fn an_uploaded_certificate_is_used_until_it_is_removed() {
    let (of_projects, domains) = of_projects();
    let name = "app.example.com";
    let current = || domains.certificate_of(name);
    let first = uploaded("a", name);
    of_projects.apply(&[with_certificate("a", name)]);
    assert!(current().is_none(), "it has not arrived");
    of_projects.apply(&[uploaded("b", name)]);
    assert!(current().is_none(), "the domain is another project's");
    of_projects.apply(std::slice::from_ref(&first));
    let used = current().unwrap();
    // Each change of the project repeats it.
    of_projects.apply(&[with_certificate("a", name), first]);
    assert!(Arc::ptr_eq(&used, &current().unwrap()));
    of_projects.apply(&[with_certificate("a", name), uploaded("a", name)]);
    let other = current().unwrap();
    assert_ne!(used.cert, other.cert);
    // One for another name, or without its key, changes nothing.
    let mut broken = [uploaded("a", "other.example.com"), uploaded("a", name)];
    if let [Item::DomainCertificate(one), Item::DomainCertificate(two)] = &mut broken {
        name.clone_into(&mut one.hostname);
        two.private_key.clear();
    }
    of_projects.apply(&broken);
    assert!(Arc::ptr_eq(&other, &current().unwrap()));
    of_projects.apply(&[project("a", &[name])]);
    assert!(current().is_none(), "it was removed");
}

#[test]
fn the_time_of_an_uploaded_certificate_is_known() {
    let (of_projects, _) = of_projects();
    let names = ["app.example.com", "own.example.com"];
    of_projects.apply(&[with_certificate("a", names[0]), uploaded("a", names[0])]);
    of_projects.apply(&[project("b", &[names[1]])]);
    let left = |name: &str, now| of_projects.seconds_left(&name.parse().unwrap(), now);
    // The certificates of the tests expire in the year 4096.
    assert!(left(names[0], 1_906_502_400).unwrap() > EXPIRY_NOTICE);
    assert!(left(names[0], 70_000_000_000).unwrap() < 0);
    assert_eq!(left(names[1], 0), None);
}

/// An upload of one project must not repeat the warnings of all others in the log.
#[test]
fn an_upload_warns_only_about_its_own_domain() {
    let (of_projects, _) = of_projects();
    let names = ["a.example.com", "b.example.com"];
    // The certificates of the tests have expired by then.
    let now = 70_000_000_000;
    let expiring = |now| {
        let found = of_projects.expiring(now).into_iter();
        let mut found: Vec<_> = found.map(|(name, _)| name.to_string()).collect();
        found.sort();
        found
    };
    of_projects.apply(&[with_certificate("a", names[0]), uploaded("a", names[0])]);
    assert_eq!(expiring(now), [names[0]]);
    of_projects.apply(&[with_certificate("b", names[1]), uploaded("b", names[1])]);
    assert_eq!(expiring(now), [names[1]]);
    assert!(expiring(now).is_empty());
    assert_eq!(expiring(now + WARNING_INTERVAL), names);
    assert_eq!(expiring(now), names, "the clock was set back");
}

/// The project of a domain that is suspended or in quarantine.
fn holding(id: &str, held: &[&str]) -> Item {
    let mut item = project(id, &[]);
    if let Item::Project(project) = &mut item {
        project.held = held.iter().map(|name| (*name).to_owned()).collect();
    }
    item
}

/// Its owner can repair its records; until then no wildcard above makes it another project's.
#[test]
fn a_name_that_another_project_holds_is_in_no_wildcard() {
    let (of_projects, domains) = of_projects();
    let at = |host: &str| holder(&domains, host);
    let app = "app.example.com";
    let (served, wildcard) = (project("b", &[app]), project("a", &["*.example.com"]));
    let suspended = holding("b", &[app]);
    of_projects.replace(&[served.clone(), wildcard.clone()]);
    assert_eq!(at(app).as_deref(), Some("b"));
    assert!(of_projects.former_holders(from_ref(&suspended)).is_empty());
    of_projects.apply(from_ref(&suspended));
    assert_eq!(at(app), None);
    assert_eq!(at("other.example.com").as_deref(), Some("a"));
    of_projects.replace(&[suspended.clone(), wildcard.clone()]);
    assert_eq!(at(app), None, "a snapshot has the same");
    // Released, or verified again.
    of_projects.apply(&[holding("b", &[])]);
    assert_eq!(at(app).as_deref(), Some("a"));
    let former = of_projects.former_holders(from_ref(&suspended));
    assert_eq!(former.first().map(|id| &**id), Some("a"));
    of_projects.apply(&[suspended.clone(), served]);
    assert_eq!(at(app).as_deref(), Some("b"));
    // A project that is not in a snapshot holds nothing.
    of_projects.apply(&[suspended]);
    of_projects.replace(&[wildcard]);
    assert_eq!(at(app).as_deref(), Some("a"));
}

#[test]
fn the_wildcard_of_a_project_includes_the_names_that_it_holds() {
    let (of_projects, domains) = of_projects();
    let mut own = project("a", &["*.example.com"]);
    if let Item::Project(project) = &mut own {
        project.held = vec!["app.example.com".to_owned()];
    }
    of_projects.apply(&[own]);
    let found = holder(&domains, "app.example.com");
    assert_eq!(found.as_deref(), Some("a"));
}

#[test]
fn former_holders_of_names_are_found() {
    let (of_projects, _) = of_projects();
    of_projects.apply(&[project("a", &["*.example.com", "app.example.org"])]);
    for (name, expected) in [
        ("app.example.com", Some("a")),
        ("*.example.com", Some("a")),
        ("app.example.org", Some("a")),
        ("a.app.example.com", None),
        ("example.com", None),
    ] {
        let former = of_projects.former_holders(&[project("b", &[name])]);
        assert_eq!(former.first().map(|id| &**id), expected, "{name}");
        let own = of_projects.former_holders(&[project("a", &[name])]);
        assert!(own.is_empty(), "{name}");
    }
}

/// The platform gets a zone while the engine runs, and loses it again.
#[test]
fn orders_follow_the_zone_for_delegated_challenges() {
    let state = tempfile::tempdir().unwrap();
    let zones = vec![dns::Zone::of_challenges("acme.example.net").unwrap()];
    let settings = Settings {
        dns: Some(DnsProvider::Responder(acme::ResponderSettings {
            listen: Vec::new(),
            zones: dns::Zones::new("engine.example", zones).unwrap(),
            alias_zone: None,
        })),
        ..settings(vec![ChallengeKind::Dns01], state.path())
    };
    let now: WallClock = Arc::new(|| 1_906_502_400);
    let provider = daemon::tls::provider();
    let set = CertificateSet::open(settings.clone(), Arc::default(), provider, now).unwrap();
    let domains = Arc::new(Domains::default());
    let base = "engine.example".parse().unwrap();
    let orders = Some((set, settings));
    let of_projects = ProjectDomains::new(Arc::clone(&domains), base, orders);
    let name = "*.app.example.com";
    let is_ordered = |alias: Option<&str>| {
        let mut item = project("a", &[name]);
        if let Item::Project(project) = &mut item {
            project.domains[0].certificate_validation = DomainCertificateValidation::Dns01;
            project.domains[0].challenge_alias = alias.map(str::to_owned);
        }
        of_projects.apply(&[item]);
        let domain = domains.at("a.app.example.com").unwrap();
        matches!(domain.certificate, DomainCertificate::Ordered(_))
    };
    assert!(!is_ordered(None), "the responder has no zone of the owner");
    assert!(is_ordered(Some("id.acme.example.net")));
    assert!(!is_ordered(Some("id.other.example")));
}

#[test]
fn orders_end_with_their_domain() {
    let state = tempfile::tempdir().unwrap();
    let settings = settings(vec![ChallengeKind::TlsAlpn01], state.path());
    let provider = daemon::tls::provider();
    let now: WallClock = Arc::new(|| 1_906_502_400);
    let set = CertificateSet::open(settings.clone(), Arc::default(), provider, now).unwrap();
    let domains = Arc::new(Domains::default());
    let base = "engine.example".parse().unwrap();
    let orders = Some((set.clone(), settings));
    let of_projects = ProjectDomains::new(Arc::clone(&domains), base, orders);
    of_projects.apply(&[project("a", &["a.example.com", "b.example.com"])]);
    let domain = domains.at("a.example.com").unwrap();
    assert!(matches!(domain.certificate, DomainCertificate::Ordered(_)));
    assert!(format!("{set:?}").contains("names: 2"), "{set:?}");
    of_projects.apply(&[project("a", &["b.example.com"])]);
    assert!(format!("{set:?}").contains("names: 1"), "{set:?}");
}

/// Visitors get the certificate of the wildcard above until the domain has another one.
#[test]
fn an_ordered_certificate_that_has_expired_is_used_only_without_another_one() {
    let state = tempfile::tempdir().unwrap();
    let settings = settings(vec![ChallengeKind::TlsAlpn01], state.path());
    let (name, wildcard) = ("app.example.com", "*.example.com");
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let file = json!({
        "directory": settings.directory,
        "names": [name],
        "chain": made.cert.pem(),
        "key": made.signing_key.serialize_pem(),
    });
    let folder = acme::domain_state_dir(state.path(), name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("certificate.json"), file.to_string()).unwrap();

    let domains = Domains::default();
    let add = |name: &str, certificate| {
        let domain = Domain {
            name: name.parse().unwrap(),
            project: "a".into(),
            certificate,
        };
        domains.insert(domain).unwrap();
    };
    // The certificates of the tests have expired by then.
    let now: WallClock = Arc::new(|| 70_000_000_000);
    let provider = daemon::tls::provider();
    let set = CertificateSet::open(settings, Arc::default(), Arc::clone(&provider), now).unwrap();
    add(name, DomainCertificate::Ordered(set.add(name)));
    let used = domains.certificate_of(name).unwrap();
    assert_eq!(used.cert.first(), Some(made.cert.der()));

    let other = rcgen::generate_simple_self_signed([wildcard.to_owned()]).unwrap();
    let (chain, key) = (other.cert.pem(), other.signing_key.serialize_pem());
    let names = [wildcard.to_owned()];
    let issued = IssuedCertificate::parse(&chain, &key, &names, &provider).unwrap();
    add(
        wildcard,
        DomainCertificate::Uploaded(Some(Arc::new(issued))),
    );
    let used = domains.certificate_of(name).unwrap();
    assert_eq!(used.cert.first(), Some(other.cert.der()));
}
