//! Names below the engine's own host, and custom domains.

use super::*;
use crate::domains::DomainCertificate;

const COMMUNITY: Requester<'_> = Requester {
    project: "default",
    endpoint: None,
};

fn host(name: &str) -> Hostname {
    name.parse().unwrap()
}

fn names() -> Namespace {
    Namespace::new(host("engine.example")).unwrap()
}

/// The names of an engine with these domains, each of a project.
fn names_with(domains: &[(&str, &str)]) -> Namespace {
    let all = Domains::default();
    for (name, project) in domains {
        let domain = Domain {
            name: name.parse().unwrap(),
            project: (*project).into(),
            certificate: DomainCertificate::Own,
        };
        all.insert(domain).unwrap();
    }
    names().with_domains(Arc::new(all))
}

fn resolve(names: &Namespace, name: &str) -> Result<String, HostnameError> {
    let resolved = names.resolve(&host(name), COMMUNITY);
    resolved.map(|hostname| hostname.as_str().to_owned())
}

#[test]
fn a_label_and_its_full_name_are_the_same_request() {
    let full = host("web.t.engine.example");
    assert_eq!(names().resolve(&host("web"), COMMUNITY), Ok(full.clone()));
    assert_eq!(names().resolve(&full, COMMUNITY), Ok(full));
}

/// EN-11.
#[test]
fn en_11_a_name_that_is_no_label_and_no_domain_is_refused_with_the_next_step() {
    let names = names_with(&[("app.example", "default")]);
    for (requested, reason) in [
        ("shop.example.net", "`domains`"),
        ("a.app.example", "`domains`"),
        ("engine.example", "single label"),
        ("web.engine.example", "single label"),
        ("t.engine.example", "single label"),
        ("a.b.t.engine.example", "single label"),
    ] {
        let error = resolve(&names, requested).unwrap_err().to_string();
        assert!(error.contains("`hostname`"), "{error}");
        assert!(error.contains("not available"), "{error}");
        assert!(error.contains(reason), "{requested}: {error}");
    }
    let managed = Requester {
        project: "prj_a",
        endpoint: Some("e7e8a732"),
    };
    let error = names.resolve(&host("app.example"), managed).unwrap_err();
    let error = error.to_string();
    // The engine receives only domains that are served, so that it cannot distinguish the causes.
    for part in [
        "svc domain add app.example",
        "pending, suspended or quarantined",
        "svc domain show app.example",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_configured_domain_is_resolved_to_itself() {
    let names = names_with(&[("app.example.net", "default"), ("*.example.net", "default")]);
    for requested in ["app.example.net", "other.example.net"] {
        assert_eq!(resolve(&names, requested).as_deref(), Ok(requested));
        let named = names.classify(requested);
        assert!(
            matches!(named, Some(PublishedName::Domain(_))),
            "{requested}"
        );
    }
    assert_eq!(
        resolve(&names, "app"),
        Ok("app.t.engine.example".to_owned()),
        "labels stay below the engine's own host"
    );
    for none in [
        "example.net",
        "a.b.example.net",
        "engine.example",
        "x.engine.example",
    ] {
        assert!(names.classify(none).is_none(), "{none}");
    }
}

/// A wildcard above the engine's host does not give its names to tunnels.
#[test]
fn the_names_of_the_engine_are_never_those_of_a_domain() {
    let base = Namespace::new(host("tunnel.example.com")).unwrap();
    let all = Domains::default();
    let domain = Domain {
        name: "*.example.com".parse().unwrap(),
        project: "default".into(),
        certificate: DomainCertificate::Own,
    };
    all.insert(domain).unwrap();
    let names = base.with_domains(Arc::new(all));
    assert!(names.classify("tunnel.example.com").is_none());
    assert!(matches!(
        names.resolve(&host("tunnel.example.com"), COMMUNITY),
        Err(HostnameError::Reserved(_))
    ));
    assert!(names.classify("app.example.com").is_some());
}

#[test]
fn the_domain_of_another_project_is_refused_as_an_unknown_one_is() {
    let names = names_with(&[("app.example", "prj_a")]);
    let resolve = |project| {
        let requester = Requester {
            project,
            endpoint: Some("e7e8a732"),
        };
        names.resolve(&host("app.example"), requester)
    };
    assert_eq!(resolve("prj_a"), Ok(host("app.example")));
    assert_eq!(
        resolve("prj_b"),
        Err(HostnameError::NotOfProject(host("app.example")))
    );
}

#[test]
fn a_base_host_that_is_too_long_for_names_is_refused() {
    let long = format!(
        "{}.{}.{}.{}",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(50)
    );
    assert_eq!(
        Namespace::new(host(&long)).unwrap_err(),
        HostnameError::TooLong
    );
}

#[test]
fn names_of_a_project_end_with_its_endpoint() {
    let names = names();
    let requester = Requester {
        project: "prj_a",
        endpoint: Some("e7e8a732"),
    };
    let resolve = |name: &str| names.resolve(&host(name), requester);
    let full = host("web-e7e8a732.t.engine.example");
    for requested in ["web", "web-e7e8a732", "web-e7e8a732.t.engine.example"] {
        assert_eq!(resolve(requested), Ok(full.clone()), "{requested}");
    }
    for other in [
        "web-f587ee53.t.engine.example",
        "web.t.engine.example",
        "-e7e8a732x.t.engine.example",
    ] {
        let Ok(other) = other.parse::<Hostname>() else {
            continue;
        };
        assert_eq!(
            names.resolve(&other, requester),
            Err(HostnameError::OtherProject),
            "{other}"
        );
    }
    let drawn = names.draw_with(|| 7, Some("e7e8a732"), |_| false);
    assert_eq!(drawn, Some(host("r00000007-e7e8a732.t.engine.example")));
    assert_eq!(names.label_of("e7e8a732.engine.example"), Some("e7e8a732"));
    for none in ["engine.example", "a.t.engine.example", "xengine.example"] {
        assert_eq!(names.label_of(none), None, "{none}");
    }
    let endpoint = |name| {
        let named = names.classify(name)?;
        named.endpoint()
    };
    assert_eq!(endpoint("web-e7e8a732.t.engine.example"), Some("e7e8a732"));
    for none in [
        "web.t.engine.example",
        "-a.t.engine.example",
        "a-b.engine.example",
    ] {
        assert_eq!(endpoint(none), None, "{none}");
    }
}

#[test]
fn drawing_avoids_names_in_use_and_is_bounded() {
    let mut next = 0;
    let drawn = names().draw_with(
        || {
            next += 1;
            next
        },
        None,
        |host| host.first_label() == "r00000001",
    );
    assert_eq!(drawn, Some(host("r00000002.t.engine.example")));
    assert_eq!(names().draw_with(|| 7, None, |_| true), None);
}

#[test]
fn a_custom_name_belongs_to_the_project_of_its_domain() {
    let names = names_with(&[("app.example", "prj_a"), ("*.shop.example", "prj_b")]);
    for (host, project, expected) in [
        ("app.example", "prj_a", true),
        ("app.example", "prj_b", false),
        ("x.shop.example", "prj_b", true),
        ("x.shop.example", "prj_a", false),
        ("shop.example", "prj_b", false),
    ] {
        assert_eq!(names.is_domain_of(host, project), expected, "{host}");
    }
    let properties = |hostname: &str, is_published| TunnelProperties {
        hostname: Some(host(hostname)),
        publish: Some(is_published),
        ..TunnelProperties::default()
    };
    let custom = |hostname: &str, is_published| {
        let properties = properties(hostname, is_published);
        names.custom_name(&properties).cloned()
    };
    assert_eq!(custom("app.example", true), Some(host("app.example")));
    assert_eq!(custom("app.example", false), None, "a private tunnel");
    assert_eq!(custom("web.t.engine.example", true), None);
    assert_eq!(custom("engine.example", true), None);
    for (hostname, project, expected) in [
        ("app.example", "prj_a", false),
        ("app.example", "prj_b", true),
        ("gone.example", "prj_a", true),
        ("web.t.engine.example", "prj_a", false),
    ] {
        let lost = names.has_lost_name(&properties(hostname, true), project);
        assert_eq!(lost, expected, "{hostname}");
    }
    let private = properties("gone.example", false);
    assert!(!names.has_lost_name(&private, "prj_a"));
}
