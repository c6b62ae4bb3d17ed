//! Host names that an operator has taken down.

use store::domains::{self, State};
use store::takedowns::{self, Takedown};
use store::{Paging, Tx, directory};
use types::id::ProjectId;

use crate::database::{Database, both};
use crate::entities::domains::domain;
use crate::world::{Person, at};

both! {
    a_name_is_taken_down_once_and_restored,
    a_takedown_counts_for_each_project_that_gets_the_name,
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
