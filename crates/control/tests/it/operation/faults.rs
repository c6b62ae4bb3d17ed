//! Databases that are gone, slow, silent, read-only or full, killed processes, and clock jumps.
//! Requests are answered in time and without details, nothing is lost or duplicated, and the same
//! process uses a recovered database again.

mod clock;
mod creation;
mod database_restart;
mod full_database;
mod killed_processes;
mod read_only;
mod slow;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Answer, Person, TestControl};

/// A catalogue that sells `pro` from one location, with more capacity than any test uses.
const SHOP: &str =
    "catalog: {regions: [{provider: aws, region: eu, capacity: {basic: 1000, pro: 1000}}]}";
/// The longest wait of a client: for a connection of the pool, then for the database, once to
/// authenticate and once for the request.
const WAIT_LIMIT: Duration = Duration::from_secs(45);

/// A user with a subscription who has called before. The use of the token is recorded already, so
/// that read requests only read.
async fn customer(control: &TestControl) -> Person {
    customer_named(control, "ann").await
}

async fn customer_named(control: &TestControl, name: &str) -> Person {
    let person = control.person(name).await;
    let mut tx = control.app.store.begin().await.unwrap();
    let billing = control.app.plan_service.billing();
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

/// A creation of the paid plan as previewed, with its own idempotency key.
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

/// Checks the number of projects, their cost and their capacity.
async fn assert_books(control: &TestControl, person: &Person, projects: u64) {
    assert_account(control, person, projects).await;
    assert_places(control, projects).await;
}

/// Checks how much capacity of the paid plan is used.
async fn assert_places(control: &TestControl, projects: u64) {
    let mut read = control.app.store.read().await.unwrap();
    let places = store::capacity::all(&mut read).await.unwrap();
    let place = places.iter().find(|place| place.plan == "pro").unwrap();
    assert_eq!(u64::try_from(place.used).unwrap(), projects, "places");
}

/// Checks that the user has this many projects, and that each one is charged once.
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
    // The first change is the start of the subscription.
    let changes = changes.unwrap().total - 1;
    assert_eq!(changes, projects, "changes of the subscription");
    let audit = store::audit::list(
        &mut read,
        store::audit::Scope::Workspace(workspace),
        &store::audit::Filter::default(),
        one,
    )
    .await;
    assert_eq!(audit.unwrap().total, projects, "entries in the audit");
}

/// The answer of a platform whose database cannot be used: a time to retry, and no reason.
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

/// The result of `work` within the time that a client waits.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let started_at = Instant::now();
    let done = tokio::time::timeout(WAIT_LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("no answer after {:?}", started_at.elapsed()))
}

/// Runs the test at this path (`module_path!()` and its name) in a separate process with these
/// settings.
fn process(test: &str, settings: &Value) -> Command {
    let (_program, test) = test.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(SETTINGS, settings.to_string());
    command
}

/// The settings of this process, if it is a child process.
fn settings() -> Option<Value> {
    let settings = std::env::var(SETTINGS).ok()?;
    Some(serde_json::from_str(&settings).unwrap())
}

const SETTINGS: &str = "SVC_TEST_PROCESS";
