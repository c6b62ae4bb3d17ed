//! Custom domains of projects.

use jiff::Timestamp;
use serde_json::json;
use store::domains::{self, CertificateValidation, Domain, State};
use store::{Conflict, SealedBytes, Tx, directory};

use crate::database::{Database, both};
use crate::world::{Person, at, id};

both! {
    a_name_is_pending_in_many_projects_and_held_by_one,
    only_verified_and_warned_names_are_served,
    a_quarantine_ends_at_its_time,
    due_domains_are_claimed_once,
    domains_are_deleted_with_their_project,
    engines_get_the_certificates_of_served_domains,
}

/// A domain of a project, without checks.
pub(crate) fn domain(of: Person, hostname: &str, state: State) -> Domain {
    Domain {
        id: id!(DomainId),
        project_id: of.project,
        hostname: hostname.to_owned(),
        certificate_validation: CertificateValidation::TlsAlpn01,
        token: "token".to_owned(),
        state,
        created_by: of.user,
        created_at: at(0),
        verified_at: None,
        last_checked_at: None,
        last_found_at: None,
        failing_since: None,
        suspended_at: None,
        quarantine_until: None,
        next_check_at: at(60),
        report: None,
        certificate_expires_at: None,
        ordered_expires_at: None,
        order_problem: None,
        next_order_at: None,
    }
}

async fn insert(tx: &mut Tx, domain: &Domain) {
    domains::insert(tx, domain).await.unwrap();
}

async fn a_name_is_pending_in_many_projects_and_held_by_one(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (hers, his) = (
        domain(ann, "app.example.com", State::Pending),
        domain(bob, "app.example.com", State::Pending),
    );
    let mut tx = database.begin().await;
    insert(&mut tx, &hers).await;
    insert(&mut tx, &his).await;
    let holder = domains::holder(&mut tx, "app.example.com").await.unwrap();
    assert_eq!(holder, None);
    let hers = Domain {
        state: State::Verified,
        verified_at: Some(at(1)),
        last_checked_at: Some(at(1)),
        last_found_at: Some(at(1)),
        report: Some(json!({"ownership": "found"})),
        ..hers
    };
    assert!(
        domains::save(&mut tx, &hers, State::Pending, at(1))
            .await
            .unwrap()
    );
    let found = domains::by_id(&mut tx, ann.project, hers.id).await.unwrap();
    assert_eq!(found, Some(hers.clone()));
    let found = domains::by_hostname(&mut tx, ann.project, "app.example.com")
        .await
        .unwrap();
    assert_eq!(found, Some(hers.clone()));
    let found = domains::by_id(&mut tx, bob.project, hers.id).await.unwrap();
    assert_eq!(found, None);
    let holder = domains::holder(&mut tx, "app.example.com").await.unwrap();
    assert_eq!(holder, Some(ann.project));
    tx.commit().await.unwrap();

    // Each state but pending holds the name.
    for state in State::ALL.iter().filter(|state| **state != State::Pending) {
        let mut tx = database.begin().await;
        let held = Domain {
            state: *state,
            ..his.clone()
        };
        let refused = domains::save(&mut tx, &held, State::Pending, at(1))
            .await
            .unwrap_err();
        assert_eq!(refused.conflict(), Some(Conflict::DomainTaken), "{state}");
    }
    let mut tx = database.begin().await;
    let again = domain(ann, "app.example.com", State::Pending);
    let refused = domains::insert(&mut tx, &again).await.unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::DomainExists));
    drop(tx);
    let mut tx = database.begin().await;
    insert(&mut tx, &domain(bob, "*.app.example.com", State::Verified)).await;
    let his_names = domains::of_project(&mut tx, bob.project).await.unwrap();
    let his_names: Vec<_> = his_names.iter().map(|one| one.hostname.as_str()).collect();
    assert_eq!(his_names, ["app.example.com", "*.app.example.com"]);
}

async fn only_verified_and_warned_names_are_served(database: Database) {
    let ann = Person::new(&database, "ann").await;
    for state in State::ALL {
        let mut tx = database.begin().await;
        insert(&mut tx, &domain(ann, "app.example.com", *state)).await;
        let served = domains::served_by(&mut tx, "app.example.com").await;
        let expected = state.is_served().then_some(ann.project);
        assert_eq!(served.unwrap(), expected, "{state}");
        let other = domains::served_by(&mut tx, "other.example.com").await;
        assert_eq!(other.unwrap(), None);
        drop(tx);
    }
}

async fn a_quarantine_ends_at_its_time(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    let held = Domain {
        quarantine_until: Some(at(100)),
        ..domain(ann, "app.example.com", State::Quarantined)
    };
    insert(&mut tx, &held).await;
    let free = async |tx: &mut Tx, name: &str, now: Timestamp| {
        domains::release_quarantined(tx, name, now).await.unwrap()
    };
    assert!(!free(&mut tx, "app.example.com", at(99)).await);
    assert!(!free(&mut tx, "other.example.com", at(100)).await);
    assert!(free(&mut tx, "app.example.com", at(100)).await);
    let holder = domains::holder(&mut tx, "app.example.com").await.unwrap();
    assert_eq!(holder, None);
    // No other state ends with time.
    insert(
        &mut tx,
        &Domain {
            quarantine_until: Some(at(1)),
            ..domain(ann, "app.example.com", State::Suspended)
        },
    )
    .await;
    assert!(!free(&mut tx, "app.example.com", at(100)).await);
}

async fn due_domains_are_claimed_once(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    for (name, due) in [
        ("a.example.com", 10),
        ("b.example.com", 20),
        ("c.example.com", 30),
    ] {
        let domain = Domain {
            next_check_at: at(due),
            ..domain(ann, name, State::Verified)
        };
        insert(&mut tx, &domain).await;
    }
    let claim = async |tx: &mut Tx, now, limit| {
        let claimed = domains::claim(tx, at(now), at(now + 100), limit).await;
        let mut names: Vec<_> = claimed
            .unwrap()
            .into_iter()
            .map(|domain| domain.hostname)
            .collect();
        names.sort();
        names
    };
    assert_eq!(claim(&mut tx, 9, 10).await, [""; 0]);
    assert_eq!(claim(&mut tx, 20, 1).await, ["a.example.com"]);
    assert_eq!(claim(&mut tx, 20, 10).await, ["b.example.com"]);
    assert_eq!(claim(&mut tx, 30, 10).await, ["c.example.com"]);
    assert_eq!(claim(&mut tx, 119, 10).await, [""; 0]);
    // The lease has ended without a result.
    assert_eq!(
        claim(&mut tx, 120, 10).await,
        ["a.example.com", "b.example.com"]
    );
}

async fn domains_are_deleted_with_their_project(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let one = domain(ann, "a.example.com", State::Verified);
    insert(&mut tx, &one).await;
    insert(&mut tx, &domain(ann, "b.example.com", State::Pending)).await;
    insert(&mut tx, &domain(bob, "b.example.com", State::Pending)).await;
    assert!(
        !domains::delete(&mut tx, bob.project, one.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        domains::delete(&mut tx, ann.project, one.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        !domains::delete(&mut tx, ann.project, one.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        !domains::save(&mut tx, &one, State::Verified, at(1))
            .await
            .unwrap()
    );
    assert_eq!(
        domains::delete_all(&mut tx, ann.project, at(1))
            .await
            .unwrap(),
        1
    );
    let his = domains::of_project(&mut tx, bob.project).await.unwrap();
    assert_eq!(his.len(), 1);
}

/// Checks of the domain keep its certificate.
async fn engines_get_the_certificates_of_served_domains(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let domain = domain(ann, "a.example.com", State::Verified);
    insert(&mut tx, &domain).await;
    let certificate = domains::UploadedCertificate {
        chain: "chain".to_owned(),
        sealed_key: SealedBytes(vec![1, 2]),
        expires_at: at(100),
    };
    let set = async |tx: &mut Tx, project| {
        domains::set_certificate(tx, project, domain.id, &certificate, at(1))
            .await
            .unwrap()
    };
    assert!(
        !set(&mut tx, bob.project).await,
        "the domain is another project's"
    );
    assert!(set(&mut tx, ann.project).await);
    let sent = async |tx: &mut Tx| {
        let sent = directory::domain_certificates(tx, ann.project).await;
        sent.unwrap()
    };
    let found = sent(&mut tx).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id, domain.id);
    assert_eq!(found[0].hostname, "a.example.com");
    assert_eq!(found[0].certificate_chain, "chain");
    assert_eq!(found[0].sealed_certificate_key, certificate.sealed_key);
    let listed = directory::domains(&mut tx, &[ann.project]).await.unwrap();
    assert_eq!(listed[0].certificate_expires_at, Some(at(100)));

    // A domain that is not served keeps it.
    let suspended = Domain {
        state: State::Suspended,
        ..domain.clone()
    };
    for (next, before, count) in [
        (&suspended, State::Verified, 0),
        (&domain, State::Suspended, 1),
    ] {
        let saved = domains::save(&mut tx, next, before, at(2)).await;
        assert!(saved.unwrap());
        assert_eq!(sent(&mut tx).await.len(), count);
    }
    let remove = async |tx: &mut Tx| {
        domains::remove_certificate(tx, ann.project, domain.id, at(3))
            .await
            .unwrap()
    };
    assert!(remove(&mut tx).await);
    assert!(!remove(&mut tx).await, "there is none");
    assert!(sent(&mut tx).await.is_empty());
    let found = domains::by_id(&mut tx, ann.project, domain.id)
        .await
        .unwrap();
    assert_eq!(found.unwrap().certificate_expires_at, None);
}
