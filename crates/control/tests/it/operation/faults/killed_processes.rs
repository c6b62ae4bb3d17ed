//! Processes that are killed in the middle of a creation.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tracing::span;

use super::*;
use crate::postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_a_platform_on_sqlite_that_is_killed_anywhere_creates_all_or_nothing() {
    match settings() {
        None => killed_anywhere(None).await,
        Some(settings) => create_and_be_killed(&settings).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_a_platform_on_postgres_that_is_killed_anywhere_creates_all_or_nothing() {
    killed_anywhere(Some(postgres::new_database().await)).await;
}

/// CP-4a: a process creates a project and is killed after its first statement, its second, and so
/// on, and at last between the commit and the answer. Then another process gets the same request.
async fn killed_anywhere(database: Option<String>) {
    let mut control = TestControl::start_on(SHOP, database.as_deref()).await;
    let person = customer(&control).await;
    let (mut made, mut kills) = (0, 0);
    for statement in 1.. {
        let order = order(&control, &person).await;
        // No other process has the database open, so the next one finds the state that the dead
        // process left.
        control.app.store.close().await;
        let before_the_answer = statement > 1 && kills == statement - 1;
        let status = creator(&control, &person, &order, statement, false);
        let survived = status.success();
        if !survived {
            assert_eq!(status.signal(), Some(9), "{status}");
            kills += 1;
        }
        control = control.restarted().await;
        let again = in_time(create(&control, &person, &order)).await;
        assert_eq!(again.status, 201, "{again:?}");
        made += 1;
        assert_books(&control, &person, made).await;
        if survived {
            assert!(before_the_answer);
            break;
        }
    }
    assert!(kills > 10, "a creation runs more statements than {kills}");

    let order = order(&control, &person).await;
    control.app.store.close().await;
    let status = creator(&control, &person, &order, usize::MAX, true);
    assert_eq!(status.signal(), Some(9), "{status}");
    control = control.restarted().await;
    // The project exists before the request is repeated.
    assert_books(&control, &person, made + 1).await;
    let again = in_time(create(&control, &person, &order)).await;
    assert_eq!(again.status, 201, "{again:?}");
    assert_books(&control, &person, made + 1).await;
}

/// The test that acts as the creator in a child process. The directory names its database.
const CREATOR: &str = concat!(
    module_path!(),
    "::cp_4a_a_platform_on_sqlite_that_is_killed_anywhere_creates_all_or_nothing"
);

/// Runs a platform that creates a project and is killed after this many statements, or before it
/// answers.
fn creator(
    control: &TestControl,
    person: &Person,
    order: &Value,
    statements: usize,
    before_the_answer: bool,
) -> std::process::ExitStatus {
    let settings = json!({
        "directory": control.directory(),
        "token": person.token,
        "path": creation_path(person),
        "order": order,
        "statements": statements,
        "before_the_answer": before_the_answer,
    });
    let output = process(CREATOR, &settings).output();
    let output = output.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("running 1 test"), "{stdout}");
    if output.status.code().is_some() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stdout}\n{stderr}");
    }
    output.status
}

async fn create_and_be_killed(settings: &Value) {
    let text = |name: &str| settings[name].as_str().unwrap();
    let control = TestControl::reopen_in(Path::new(text("directory"))).await;
    let left = settings["statements"].as_u64().unwrap();
    let left = usize::try_from(left).unwrap();
    tracing::subscriber::set_global_default(Killer(AtomicUsize::new(left))).unwrap();
    let answer = control
        .post(text("path"), text("token"), &settings["order"])
        .await;
    if settings["before_the_answer"] == true {
        end();
    }
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Ends this process when the database driver has reported this many statements. The driver reports
/// each completed statement, but on SQLite not the start and end of a transaction.
struct Killer(AtomicUsize);

impl tracing::Subscriber for Killer {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &tracing::Event<'_>) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            end();
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn end() -> ! {
    kill(Pid::this(), Signal::SIGKILL).unwrap();
    unreachable!("killed")
}
