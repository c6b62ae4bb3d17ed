//! One key, one project: also under parallel posts, lost answers and retries (CP-4a).

use proptest::prelude::*;
use store::idempotency::{self, Claim};
use store::{SecretHash, Store, projects};
use types::id::ProjectId;

use crate::database::{Database, both};
use crate::world::{Person, at, hash, id, new_project};

/// Creates a project like the route. `answered: false` is a process that dies before its commit.
async fn create(
    store: Store,
    person: Person,
    key: String,
    body: SecretHash,
    answered: bool,
) -> Option<Result<ProjectId, RefusedError>> {
    let mut tx = store.begin().await.unwrap();
    let id = id!(ProjectId);
    let claim = idempotency::claim(&mut tx, person.workspace, &key, body, id, at(0));
    match claim.await.unwrap() {
        Claim::Claimed => {
            let new = new_project(id, person, "made");
            projects::insert(&mut tx, &new).await.unwrap();
        }
        Claim::AlreadyUsed(taken) if taken.body_hash == body => return Some(Ok(taken.project_id)),
        Claim::AlreadyUsed(_) => return Some(Err(RefusedError)),
    }
    if !answered {
        return None;
    }
    tx.commit().await.unwrap();
    Some(Ok(id))
}

#[derive(Debug, PartialEq)]
struct RefusedError;

/// Random parallel requests: their key, their body, and whether the process survives until the
/// commit.
async fn one_key_is_one_project(
    database: &Database,
    person: Person,
    requests: Vec<(u8, u8, bool)>,
) {
    let before = count(database, person).await;
    let round = crate::world::next();
    let tasks: Vec<_> = requests
        .iter()
        .map(|(key, body, answered)| {
            let key = format!("{round}-{key}");
            tokio::spawn(create(
                database.store.clone(),
                person,
                key,
                hash(*body),
                *answered,
            ))
        })
        .collect();
    let mut answers = Vec::new();
    for (task, (key, body, _)) in tasks.into_iter().zip(&requests) {
        if let Some(answer) = task.await.unwrap() {
            answers.push((*key, *body, answer));
        }
    }
    let mut created = std::collections::BTreeSet::new();
    for (key, body, answer) in &answers {
        for (other_key, other_body, other) in &answers {
            if key == other_key && body == other_body && answer.is_ok() {
                assert!(other == answer, "the same request got another answer");
            }
            if key == other_key && body != other_body {
                assert!(answer.is_err() || other.is_err(), "one key, two bodies");
            }
        }
        if let Ok(id) = answer {
            created.insert(*id);
        }
    }
    assert_eq!(count(database, person).await - before, created.len() as u64);
}

async fn count(database: &Database, person: Person) -> u64 {
    let mut read = database.store.read().await.unwrap();
    projects::count_of_workspace(&mut read, person.workspace)
        .await
        .unwrap()
}

both! {
    any_parallel_requests_create_one_project_per_key,
    a_key_belongs_to_one_workspace_and_expires,
}

async fn any_parallel_requests_create_one_project_per_key(database: Database) {
    let person = Person::new(&database, "ann").await;
    let requests = prop::collection::vec((0..3_u8, 0..2_u8, prop::bool::weighted(0.7)), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let handle = tokio::runtime::Handle::current();
    let ran = tokio::task::spawn_blocking(move || {
        runner.run(&requests, |requests| {
            handle.block_on(one_key_is_one_project(&database, person, requests));
            Ok(())
        })
    });
    ran.await.unwrap().unwrap();
}

async fn a_key_belongs_to_one_workspace_and_expires(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    for person in [ann, bob] {
        let claim = idempotency::claim(
            &mut tx,
            person.workspace,
            "k",
            hash(1),
            person.project,
            at(0),
        );
        assert_eq!(claim.await.unwrap(), Claim::Claimed);
    }
    let found = idempotency::find(&mut tx, ann.workspace, "k")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.project_id, ann.project);
    assert_eq!(idempotency::purge(&mut tx, at(0), 100).await.unwrap(), 0);
    assert_eq!(idempotency::purge(&mut tx, at(1), 100).await.unwrap(), 2);
    assert_eq!(
        idempotency::find(&mut tx, ann.workspace, "k")
            .await
            .unwrap(),
        None
    );
}
