use api::link::{Credential, CredentialProof, Membership, Person, Project};
use serde_json::json;

use super::*;

fn project(id: &str, endpoint: &str) -> Project {
    serde_json::from_value(
        json!({"id": id, "endpoint": endpoint, "workspace_id": "wks_1",
        "plan": "basic", "provider": "other"}),
    )
    .unwrap()
}

fn person(id: &str, permissions: &[&str]) -> Person {
    Person {
        id: id.to_owned(),
        name: String::new(),
        memberships: vec![Membership {
            workspace_id: "wks_1".to_owned(),
            permissions: permissions.iter().map(|name| (*name).to_owned()).collect(),
            role: None,
        }],
        sessions_after: 0,
    }
}

fn pat(id: &str, byte: u8) -> Credential {
    Credential {
        id: id.to_owned(),
        user_id: "usr_1".to_owned(),
        root: None,
        workspace_id: None,
        proof: CredentialProof::Pat {
            sha256: format!("{byte:02x}").repeat(32),
            token_endpoint: None,
        },
        permissions: None,
        resources: None,
        expires_at: None,
    }
}

fn platform() -> Platform {
    Platform {
        base_url: "https://platform.example".to_owned(),
        cluster_domain: "engine.example".to_owned(),
    }
}

#[test]
fn a_snapshot_replaces_everything_and_changes_follow_it() {
    let directory = Directory::default();
    directory.replace(
        platform(),
        vec![
            Item::Project(Box::new(project("prj_1", "e7e8a732"))),
            Item::Person(person("usr_1", &["tunnels.resources.read-only"])),
            Item::Credential(Box::new(pat("crd_1", 1))),
        ],
    );
    assert_eq!(directory.counts(), (1, 1, 1));
    assert!(directory.token(&[1; 32]).is_some());
    let held = directory.project_at("e7e8a732").unwrap();

    directory.apply(vec![Item::CredentialGone {
        id: "crd_1".to_owned(),
    }]);
    assert!(directory.token(&[1; 32]).is_none());

    directory.replace(
        platform(),
        vec![
            Item::Project(Box::new(project("prj_2", "f587ee53"))),
            Item::Credential(Box::new(pat("crd_2", 2))),
        ],
    );
    assert_eq!(directory.counts(), (1, 0, 1));
    assert!(directory.project("prj_1").is_none());
    assert!(directory.project_at("e7e8a732").is_none());
    assert!(
        !held.state().in_use,
        "existing references see that it is gone"
    );
    assert!(directory.token(&[2; 32]).is_some());
}

#[test]
fn a_project_that_changes_is_the_same_project() {
    let directory = Directory::default();
    directory.apply(vec![Item::Project(Box::new(project("prj_1", "e7e8a732")))]);
    let held = directory.project("prj_1").unwrap();
    directory.apply(vec![Item::Project(Box::new(Project {
        suspended: true,
        ..project("prj_1", "e7e8a732")
    }))]);
    assert!(!held.state().in_use);
    assert!(Arc::ptr_eq(&held, &directory.project("prj_1").unwrap()));
}

/// A new state of a credential is another value, and its old hash is not found any more.
#[test]
fn a_rotated_hash_is_removed_and_a_reassigned_one_is_not() {
    let directory = Directory::default();
    directory.apply(vec![Item::Credential(Box::new(pat("crd_1", 1)))]);
    let first = directory.credential("crd_1").unwrap();
    assert!(directory.is_current(&first));
    directory.apply(vec![Item::Credential(Box::new(pat("crd_1", 2)))]);
    assert!(!directory.is_current(&first));
    assert!(directory.token(&[1; 32]).is_none());

    directory.apply(vec![Item::Credential(Box::new(pat("crd_9", 2)))]);
    directory.apply(vec![Item::CredentialGone {
        id: "crd_1".to_owned(),
    }]);
    assert_eq!(&*directory.token(&[2; 32]).unwrap().id, "crd_9");
}

#[test]
fn unreadable_rules_refuse_all_requests() {
    let odd: Project = serde_json::from_value(json!({"id": "prj_1", "endpoint": "e7e8a732",
        "workspace_id": "wks_1", "plan": "basic", "provider": "other",
        "settings": {"trustedIps": ["somewhere"]}}))
    .unwrap();
    assert!(ProjectState::compile(&odd).policy.unreadable);
    for sha256 in ["", "zz", &"A".repeat(64), &"é".repeat(32)] {
        let credential = super::Credential::compile(Credential {
            proof: CredentialProof::Certificate {
                sha256: sha256.to_owned(),
            },
            ..pat("crd_1", 1)
        });
        assert!(
            matches!(credential.proof, CredentialMatcher::Unverifiable),
            "{sha256}"
        );
    }
    let narrowed = super::Credential::compile(Credential {
        permissions: Some(vec!["tunnels.fly".to_owned()]),
        resources: Some(json!([])),
        ..pat("crd_1", 1)
    });
    assert_eq!(
        narrowed.limits.permissions(),
        Some(types::permission::Permissions::NONE)
    );
    assert!(!narrowed.limits.boundary().reaches("prj_1", Some("wks_1")));
}

#[test]
fn country_rules_refuse_an_unknown_country() {
    let rule = |settings| {
        let project = serde_json::from_value(json!({"id": "prj_1", "endpoint": "e7e8a732",
            "workspace_id": "wks_1", "plan": "basic", "provider": "other", "settings": settings}))
        .unwrap();
        ProjectState::compile(&project).policy.geo.unwrap()
    };
    let (swiss, german) = ("CH".parse().unwrap(), "DE".parse().unwrap());
    let allow = rule(json!({"geoIp": {"allow": ["CH"]}}));
    assert!(allow.admits(Some(&swiss)) && !allow.admits(Some(&german)) && !allow.admits(None));
    let deny = rule(json!({"geoIp": {"deny": ["CH"]}}));
    assert!(!deny.admits(Some(&swiss)) && deny.admits(Some(&german)) && !deny.admits(None));
}

#[test]
fn ended_tokens_are_stored_until_they_expire() {
    let directory = Directory::default();
    directory.apply(vec![Item::Ended(EndedToken {
        id: "tok_1".to_owned(),
        until: 100,
    })]);
    directory.forget_ended(99);
    assert!(directory.is_ended("tok_1"));
    directory.forget_ended(100);
    assert!(!directory.is_ended("tok_1"));
}

/// An unchanged object is always found: readers do not lock.
#[test]
fn unchanged_objects_are_always_found() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let directory = Directory::default();
    let reserved = |plan: &str| Project {
        addresses: vec![Address {
            id: "adr_1".to_owned(),
            port: 4000,
        }],
        plan: plan.to_owned(),
        ..project("prj_1", "e7e8a732")
    };
    let tell = |round: i64| {
        let credential = Credential {
            expires_at: Some(round),
            ..pat("crd_1", 1)
        };
        directory.apply(vec![
            Item::Project(Box::new(reserved("basic"))),
            Item::Credential(Box::new(credential)),
        ]);
    };
    tell(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..50_000).for_each(tell);
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert!(directory.is_reserved(4000));
            assert!(directory.credential("crd_1").is_some());
            assert!(directory.token(&[1; 32]).is_some());
        }
    });
    directory.apply(vec![Item::Project(Box::new(project("prj_1", "e7e8a732")))]);
    assert!(!directory.is_reserved(4000), "the reservation was removed");
}

#[test]
fn an_endpoint_that_moved_stays_with_its_new_project() {
    let directory = Directory::default();
    let first = Item::Project(Box::new(project("prj_1", "e7e8a732")));
    directory.replace(platform(), vec![first]);
    let second = Item::Project(Box::new(project("prj_2", "e7e8a732")));
    directory.replace(platform(), vec![second]);
    assert_eq!(&*directory.project_at("e7e8a732").unwrap().id, "prj_2");
}

/// Several users register one certificate: each has a credential, and removing one does not affect
/// the others.
#[test]
fn a_certificate_identifies_every_user_that_registered_it() {
    let directory = Directory::default();
    let certificate = |id: &str| {
        let proof = CredentialProof::Certificate {
            sha256: "07".repeat(32),
        };
        Item::Credential(Box::new(Credential {
            proof,
            ..pat(id, 1)
        }))
    };
    let known = || {
        let all = directory.certificates(&[7; 32]);
        all.iter().map(|one| one.id.to_string()).collect::<Vec<_>>()
    };
    directory.apply(vec![certificate("crd_1"), certificate("crd_2")]);
    assert_eq!(known(), ["crd_1", "crd_2"]);
    directory.apply(vec![Item::CredentialGone {
        id: "crd_2".to_owned(),
    }]);
    assert_eq!(known(), ["crd_1"]);
    directory.apply(vec![Item::CredentialGone {
        id: "crd_1".to_owned(),
    }]);
    assert!(known().is_empty());
    assert_eq!(directory.certificates.len(), 0);
}
