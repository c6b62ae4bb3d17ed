//! Host names that an operator has taken down.

use store::changes::{self, Change, Kind};
use store::domains::{self, Domain, State};
use store::takedowns::{self, Takedown};
use store::{Paging, Tx, directory};
use types::id::ProjectId;

use crate::database::{Database, both, commit};
use crate::entities::domains::domain;
use crate::postgres;
use crate::world::{Person, at};

both! {
    a_name_is_taken_down_once_and_restored,
    a_takedown_counts_for_each_project_that_gets_the_name,
    a_domain_that_is_verified_during_a_takedown_gets_it,
    a_takedown_during_a_verification_reaches_the_new_holder,
}

fn takedown(of: Person, hostname: &str) -> Takedown {
    Takedown {
        hostname: hostname.to_owned(),
        project_id: of.project,
        reason: "phishing".to_owned(),
        created_by: of.user,
        created_at: at(1),
    }
}

/// The names that engines refuse for a project.
async fn refused(tx: &mut Tx, project: ProjectId) -> Vec<String> {
    let names = directory::taken_down(tx, &[project]).await.unwrap();
    assert!(names.iter().all(|name| name.project_id == project));
    names.into_iter().map(|name| name.hostname).collect()
}

async fn a_name_is_taken_down_once_and_restored(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let name = "web-0000000a.t.example.com";
    let first = takedown(ann, name);
    assert!(takedowns::insert(&mut tx, &first).await.unwrap());
    assert!(!takedowns::insert(&mut tx, &first).await.unwrap());
    let found = takedowns::by_hostname(&mut tx, name).await.unwrap();
    assert_eq!(found, Some(first.clone()));
    let own = takedowns::of_project(&mut tx, ann.project, 10).await;
    assert_eq!(own.unwrap(), std::slice::from_ref(&first));
    let others = takedowns::of_project(&mut tx, bob.project, 10).await;
    assert_eq!(others.unwrap(), []);
    let count = takedowns::count_of_project(&mut tx, ann.project).await;
    assert_eq!(count.unwrap(), 1);
    let all = takedowns::list_all(&mut tx, Paging::DEFAULT).await.unwrap();
    assert_eq!((all.items, all.total), (vec![first.clone()], 1));
    assert_eq!(refused(&mut tx, ann.project).await, [name]);
    assert!(refused(&mut tx, bob.project).await.is_empty());
    let restored = takedowns::delete(&mut tx, name, at(2)).await.unwrap();
    assert_eq!(restored, Some(first));
    let again = takedowns::delete(&mut tx, name, at(2)).await.unwrap();
    assert_eq!(again, None);
    assert!(refused(&mut tx, ann.project).await.is_empty());
}

/// A project cannot avoid a takedown with a domain of another project, or with a wildcard. A pending
/// domain, which each project can add, does not show it the takedowns of others.
async fn a_takedown_counts_for_each_project_that_gets_the_name(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    for (hostname, state) in [
        ("shop.example.com", State::Verified),
        ("*.example.com", State::Verified),
        ("*.example.com", State::Suspended),
        ("example.com", State::Verified),
        ("shop.example.com", State::Pending),
        ("*.example.com", State::Pending),
    ] {
        let mut tx = database.begin().await;
        let of_ann = takedown(ann, "shop.example.com");
        assert!(takedowns::insert(&mut tx, &of_ann).await.unwrap());
        let domain = domain(bob, hostname, state);
        domains::insert(&mut tx, &domain).await.unwrap();
        let has_name = hostname != "example.com" && state != State::Pending;
        let names = refused(&mut tx, bob.project).await;
        assert_eq!(!names.is_empty(), has_name, "{hostname} {state:?}");
        let seen = takedowns::of_project(&mut tx, bob.project, 10).await;
        assert_eq!(!seen.unwrap().is_empty(), has_name, "{hostname} {state:?}");
    }
}

/// Waits until a transaction waits for a lock, on PostgreSQL. On SQLite a second transaction starts
/// only after the first one.
async fn wait_for_lock_waiter(database: &Database) {
    if let Some(url) = &database.url {
        postgres::wait_for_lock_waiter(url).await;
    }
}

/// A project with the wildcard domain of a name, and another one whose domain of the name is
/// pending.
async fn two_projects(database: &Database) -> (Takedown, Domain) {
    let ann = Person::new(database, "ann").await;
    let bob = Person::new(database, "bob").await;
    let held = domain(ann, "*.example.com", State::Verified);
    let pending = domain(bob, "shop.example.com", State::Pending);
    commit!(database, |tx| async {
        domains::insert(tx, &held).await.unwrap();
        domains::insert(tx, &pending).await.unwrap();
    });
    (takedown(ann, "shop.example.com"), pending)
}

async fn verify(tx: &mut Tx, pending: &Domain) {
    let verified = Domain {
        state: State::Verified,
        verified_at: Some(at(2)),
        ..pending.clone()
    };
    let saved = domains::save(tx, &verified, State::Pending, at(2)).await;
    assert!(saved.unwrap());
}

/// The last change is about the new holder, whose project has the takedown. So engines get both
/// together, and do not keep what they got before.
async fn expect_takedown_of_holder(database: &Database, holder: &Domain) {
    let mut tx = database.begin().await;
    let head = changes::head(&mut tx).await.unwrap();
    let last = changes::since(&mut tx, head.version - 1, 10).await.unwrap();
    let change = Change {
        kind: Kind::Project,
        key: holder.project_id.to_string(),
    };
    assert!(last.contains(&change), "{last:?}");
    let names = refused(&mut tx, holder.project_id).await;
    assert_eq!(names, [holder.hostname.as_str()]);
}

async fn a_domain_that_is_verified_during_a_takedown_gets_it(database: Database) {
    let (takedown, pending) = two_projects(&database).await;
    let mut first = database.begin().await;
    assert!(takedowns::insert(&mut first, &takedown).await.unwrap());
    let verifying = async {
        commit!(database, |tx| verify(tx, &pending));
    };
    let finishing = async {
        wait_for_lock_waiter(&database).await;
        first.commit().await.unwrap();
    };
    tokio::join!(verifying, finishing);
    expect_takedown_of_holder(&database, &pending).await;
}

async fn a_takedown_during_a_verification_reaches_the_new_holder(database: Database) {
    let (takedown, pending) = two_projects(&database).await;
    let mut first = database.begin().await;
    verify(&mut first, &pending).await;
    let taking_down = async {
        let inserted = commit!(database, |tx| takedowns::insert(tx, &takedown));
        assert!(inserted.unwrap());
    };
    let finishing = async {
        wait_for_lock_waiter(&database).await;
        first.commit().await.unwrap();
    };
    tokio::join!(taking_down, finishing);
    expect_takedown_of_holder(&database, &pending).await;
}
