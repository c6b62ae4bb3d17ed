//! A database that is gone, slow, silent, read-only or full, processes that are killed, and clocks
//! that jump: requests are answered in time and without details, nothing is lost, nothing is
//! doubled, and what comes back is used again by the same process.

mod clock;
mod creation;
mod full;
mod gone;
mod killed;
mod read_only;
mod slow;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Answer, Person, TestControl};

/// A catalogue that sells `pro` from one place, with more room than any test takes.
const SHOP: &str =
    "catalog: {regions: [{provider: aws, region: eu, capacity: {basic: 1000, pro: 1000}}]}";
/// What a client has to wait at the very most: for a place in the pool, then for answers, once to
/// know who it is and once for what it asks.
const PATIENCE: Duration = Duration::from_secs(45);

/// Somebody with a subscription, who has called before: the use of the token is noted, so that
/// calls that read do nothing but read.
async fn customer(control: &TestControl) -> Person {
    customer_named(control, "ann").await
}

async fn customer_named(control: &TestControl, name: &str) -> Person {
    let person = control.person(name).await;
    let mut tx = control.app.store.begin().await.unwrap();
    let billing = control.app.shop.billing();
    billing
        .subscribe(&mut tx, person.workspace, "EUR", control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(who(control, &person).await.status, 200);
    person
}

async fn who(control: &TestControl, person: &Person) -> Answer {
    control.get("/api/whoami", &person.token).await
}

async fn list(control: &TestControl, person: &Person) -> Answer {
    control
        .get("/api/projects/tunnels?pageSize=100", &person.token)
        .await
}

fn creation_path(person: &Person) -> String {
    format!("/api/workspaces/{}/projects/tunnels", person.workspace)
}

/// A creation of the paid plan as it was previewed, under a key of its own.
async fn order(control: &TestControl, person: &Person) -> Value {
    static KEYS: AtomicU64 = AtomicU64::new(1);
    let path = format!("{}/plan/config", creation_path(person));
    let answer = control.get(&path, &person.token).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let preview = answer.json();
    let plans = preview["plans"].as_array().unwrap();
    let plan = plans.iter().find(|plan| plan["plan"] == "pro").unwrap();
    json!({
        "name": "My project",
        "plan": "pro",
        "provider": "aws",
        "region": "eu",
        "creationFingerprint": plan["creationFingerprint"],
        "idempotencyKey": format!("fault-{}", KEYS.fetch_add(1, Ordering::Relaxed)),
    })
}

async fn create(control: &TestControl, person: &Person, order: &Value) -> Answer {
    control
        .post(&creation_path(person), &person.token, order)
        .await
}

/// There are so many projects, and exactly what they cost and take.
async fn assert_books(control: &TestControl, person: &Person, projects: u64) {
    assert_account(control, person, projects).await;
    assert_places(control, projects).await;
}

/// So many places of the paid plan are taken.
async fn assert_places(control: &TestControl, projects: u64) {
    let mut read = control.app.store.read().await.unwrap();
    let places = store::capacity::all(&mut read).await.unwrap();
    let place = places.iter().find(|place| place.plan == "pro").unwrap();
    assert_eq!(u64::try_from(place.used).unwrap(), projects, "places");
}

/// The person has so many projects, and each one is charged once.
async fn assert_account(control: &TestControl, person: &Person, projects: u64) {
    let found = list(control, person).await;
    assert_eq!(found.status, 200, "{found:?}");
    assert_eq!(found.json()["total"], projects);
    let mut read = control.app.store.read().await.unwrap();
    let one = store::Paging::new(1, 1).unwrap();
    let workspace = person.workspace;
    let invoices = store::billing::invoices(&mut read, workspace, one).await;
    assert_eq!(invoices.unwrap().total, projects, "invoices");
    let changes = store::billing::changes(&mut read, workspace, one).await;
    // The first is its beginning.
    let changes = changes.unwrap().total - 1;
    assert_eq!(changes, projects, "changes of the subscription");
    let audit = store::audit::of_workspace(&mut read, workspace, one).await;
    assert_eq!(audit.unwrap().total, projects, "entries in the audit");
}

/// The answer of a platform whose database cannot be used: when to come again, and nothing about
/// why.
#[track_caller]
fn assert_unavailable(answer: &Answer) {
    assert_eq!(answer.problem(), (503, "service_unavailable".to_owned()));
    let wait: u32 = answer.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait));
    let text = answer.text.to_lowercase();
    for word in [
        "sql",
        "postgres",
        "database",
        "relation",
        "disk",
        "connection",
        "/",
    ] {
        let text = text.replace("about:blank", "");
        assert!(!text.contains(word), "{word} in {text}");
    }
}

/// What comes of it, within the time that a client waits.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("no answer after {:?}", began.elapsed()))
}

/// Runs the same test in a process of its own, which is told what to do there.
fn process(test: &str, settings: &Value) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SETTINGS, settings.to_string());
    command
}

/// What this process was told, if it is one of those.
fn settings() -> Option<Value> {
    let settings = std::env::var(SETTINGS).ok()?;
    Some(serde_json::from_str(&settings).unwrap())
}

const SETTINGS: &str = "SVC_TEST_PROCESS";
