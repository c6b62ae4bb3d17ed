//! Fills a database with half a million log rows of one project and as many of others, searches them and
//! prints how long each answer took.
//!
//! ```sh
//! cargo run --release -p store --example search                       # SQLite, in a directory that goes
//! cargo run --release -p store --example search -- postgres://…       # an empty database
//! ```
#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::error::Error;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use store::logs::{self, List, Log};
use store::{Order, Paging, Period, Store};
use types::id::{LogId, ProjectId, WorkspaceId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let directory = tempfile::tempdir()?;
    let store = Store::open(url.as_deref(), directory.path()).await?;
    for (number, project) in (0..).zip([project(1), project(2)]) {
        let text = AssertSqlSafe(fill(url.is_none(), number, project));
        if let Some(url) = &url {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
            sqlx::raw_sql("VACUUM ANALYZE logs")
                .execute(&mut connection)
                .await?;
        } else {
            let url = format!(
                "sqlite://{}",
                directory.path().join("platform.db").display()
            );
            let mut connection = SqliteConnection::connect(&url).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
        }
        let mut tx = store.begin().await?;
        let began = Instant::now();
        logs::index(&mut tx, u32::MAX).await?;
        tx.commit().await?;
        println!("indexed in {:.1?}", began.elapsed());
    }
    println!("| text | rows | median | longest |\n|---|---:|---:|---:|");
    for text in [
        "needle",
        "nothing-at-all",
        "zzzzzz",
        "/4821",
        "203.0.113.7",
        "10.0.0.77",
        "c-17.t.example",
        "post",
        "example.com",
    ] {
        let mut times = Vec::new();
        let mut total = 0;
        for _ in 0..11 {
            let mut read = store.read().await?;
            let began = Instant::now();
            total = logs::list(&mut read, list(text)).await?.total;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let (middle, longest) = (times.get(5).copied(), times.last().copied());
        println!(
            "| `{text}` | {total} | {} | {} |",
            millis(middle),
            millis(longest)
        );
    }
    let mut times = Vec::new();
    for batch in 0..20 {
        let mut tx = store.begin().await?;
        let began = Instant::now();
        for row in 0..1000 {
            let number = batch * 1000 + row;
            logs::insert(
                &mut tx,
                &log(number),
                &format!("a-7.t.example.com /api/{number} get 203.0.113.9 10.0.0.7"),
            )
            .await?;
        }
        logs::index(&mut tx, 2000).await?;
        tx.commit().await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (middle, longest) = (times.get(10).copied(), times.last().copied());
    println!(
        "batch of 1000 rows: median {}, longest {}",
        millis(middle),
        millis(longest)
    );
    Ok(())
}

fn project(number: u8) -> ProjectId {
    ProjectId::new(0, [number; 10])
}

fn list(text: &str) -> List<'_> {
    List {
        project: project(1),
        period: Period::default(),
        outcome: None,
        tunnel: None,
        stream: None,
        search: Some(text),
        after: None,
        order: Order::Desc,
        paging: Paging::DEFAULT,
    }
}

fn log(number: u64) -> Log {
    let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000);
    Log {
        id: LogId::new(number, [3; 10]),
        workspace_id: WorkspaceId::new(0, [1; 10]),
        project_id: project(1),
        stream_id: format!("new{number}"),
        tunnel_id: None,
        user_id: None,
        outcome: "connected".to_owned(),
        summary: serde_json::json!({"pad": "x".repeat(900)}),
        created_at: now + SignedDuration::from_secs(i64::try_from(number).unwrap_or_default()),
        expires_at: now + SignedDuration::from_hours(1000),
    }
}

/// Rows with hosts, paths of words and numbers, and addresses; one has a needle.
fn fill(is_embedded: bool, number: u32, project: ProjectId) -> String {
    let id = if is_embedded {
        format!("printf('log_%026d', {number} * 1000000 + i)")
    } else {
        format!("'log_' || lpad(CAST({number} * 1000000 + i AS TEXT), 26, '0')")
    };
    let letter = |step: &str| format!("substr('abcdefghijklmnopqrstuvwxyz', 1 + {step} % 26, 1)");
    let word = |seed: &str| {
        let letters = [7, 29, 113, 431, 1733].map(|step| letter(&format!("({seed} / {step})")));
        letters.join(" || ")
    };
    format!(
        "INSERT INTO logs (id, workspace_id, project_id, stream_id, outcome, search, summary, created_at, expires_at) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) \
         SELECT {id}, 'w', '{project}', 's' || i, 'connected', {} || '-' || (i % 40) || '.t.example.com /api/v1/' || \
         {} || '/' || {} || '/' || (CAST(i AS BIGINT) * 7919 % 9999991) || CASE WHEN i % 3 = 0 THEN ' post' ELSE ' get' END \
         || ' 203.0.' || (i / 254 % 256) || '.' || (i % 254) || ' 10.0.0.' || (i % 200) || \
         CASE WHEN i = 166666 THEN ' needle' ELSE '' END, '{{\"pad\":\"{}\"}}', \
         1760000000000000 + CAST(i AS BIGINT) * 4000000, 1900000000000000 FROM n",
        letter("i"),
        word("(i % 3000 * 17)"),
        word("(i % 2500 * 31)"),
        "x".repeat(900),
    )
}

fn millis(time: Option<Duration>) -> String {
    format!("{:.1} ms", time.unwrap_or_default().as_secs_f64() * 1000.0)
}
