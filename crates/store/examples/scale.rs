//! Fills a database with a hundred thousand projects, a million log rows and two hundred thousand
//! events, asks what requests ask, and prints how long each answer took and how it was found.
//!
//! ```sh
//! cargo run --release -p store --example scale                        # SQLite, in a directory that goes
//! cargo run --release -p store --example scale -- postgres://…        # an empty database
//! cargo run --release -p store --example scale -- --tenth             # a tenth of it all
//! ```
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what it prints is what it is for"
)]

use std::error::Error;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use store::projects::{List, ProjectSelection, Sort};
use store::{Conn, Order, Paging, Period, Store, events, logs, projects, usage, workspaces};
use types::id::{EventId, LogId, ProjectId, TunnelId, UserId, WorkspaceId};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut size = Size::FULL;
    let mut url = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--tenth" => size = Size::TENTH,
            _ => url = Some(argument),
        }
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("platform.db");
    let store = Store::open(url.as_deref(), directory.path()).await?;
    let began = Instant::now();
    for text in size.fill(url.is_none()) {
        let text = AssertSqlSafe(text);
        if let Some(url) = &url {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
        } else {
            let url = format!("sqlite://{}", file.display());
            let mut connection = SqliteConnection::connect(&url).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
        }
    }
    eprintln!("filled in {:.0?}", began.elapsed());
    let name = if url.is_none() {
        "SQLite"
    } else {
        "PostgreSQL"
    };
    println!("### {name}: {size:?}\n");
    println!("| what | median | longest | rows | total | read by |\n|---|---:|---:|---:|---:|---|");
    let mut bench = Bench { store, size };
    bench.projects().await?;
    bench.records().await?;
    Ok(())
}

/// Numbers of rows.
#[derive(Clone, Copy, Debug)]
struct Size {
    workspaces: u32,
    projects: u32,
    logs: u32,
    events: u32,
}

impl Size {
    const FULL: Self = Self {
        workspaces: 300,
        projects: 100_000,
        logs: 1_000_000,
        events: 200_000,
    };
    const TENTH: Self = Self {
        workspaces: 300,
        projects: 10_000,
        logs: 100_000,
        events: 20_000,
    };

    /// Statements that make it all, by the database itself. User 1 is a member of every workspace,
    /// user 2 of workspace 2. Half of the log rows and events are of project 1, in the last thirty
    /// days; the others are spread over a thousand projects.
    #[expect(
        clippy::too_many_lines,
        reason = "an example fills tables in one sequence"
    )]
    fn fill(self, sqlite: bool) -> Vec<String> {
        let Self {
            workspaces,
            projects,
            logs,
            events,
        } = self;
        let numbers = |count: u32| {
            if sqlite {
                format!(
                    "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})"
                )
            } else {
                format!("WITH numbers (i) AS (SELECT generate_series(1, {count}))")
            }
        };
        let pad = |number: &str| {
            if sqlite {
                format!("printf('%026d', {number})")
            } else {
                format!("lpad(CAST({number} AS TEXT), 26, '0')")
            }
        };
        let hex = |number: &str| {
            if sqlite {
                format!("printf('%08x', {number})")
            } else {
                format!("lpad(to_hex({number}), 8, '0')")
            }
        };
        let word = "CASE i % 5 WHEN 0 THEN 'billing' WHEN 1 THEN 'camera' WHEN 2 THEN 'staging' WHEN 3 THEN 'printer' ELSE 'build' END";
        let month = 30 * 86_400_i64 * 1_000_000;
        let time = |count: u32| {
            format!(
                "{} + CAST(i AS BIGINT) * {}",
                START - month,
                month / i64::from(count)
            )
        };
        let owner = format!(
            "'prj_' || {}",
            pad("CASE WHEN i % 2 = 0 THEN 1 ELSE i % 1000 + 2 END")
        );
        let parent = pad(&format!("i % {workspaces} + 1"));
        let (id, endpoint) = (pad("i"), hex("i"));
        let tunnel = pad("i % 50");
        vec![
            format!(
                "INSERT INTO users (id, email, email_key, name, search, status, role, email_verified, created_at, updated_at) \
                 {} SELECT 'usr_' || {id}, 'e' || i, 'e' || i, 'n', 'n', 'active', 'user', FALSE, 0, 0 FROM numbers",
                numbers(2)
            ),
            format!(
                "INSERT INTO workspaces (id, kind, name, search, status, has_payment_method, created_at, updated_at) \
                 {} SELECT 'wks_' || {id}, 'team', 'w' || i, 'w' || i, 'active', FALSE, 0, 0 FROM numbers",
                numbers(workspaces)
            ),
            format!(
                "INSERT INTO members (workspace_id, user_id, role, status, joined_at) \
                 {} SELECT 'wks_' || {id}, 'usr_' || {}, 'owner', 'active', 0 FROM numbers",
                numbers(workspaces),
                pad("1")
            ),
            format!(
                "INSERT INTO members (workspace_id, user_id, role, status, joined_at) \
                 VALUES ('wks_00000000000000000000000002', 'usr_00000000000000000000000002', 'owner', 'active', 0)"
            ),
            format!(
                "INSERT INTO projects (id, workspace_id, endpoint, name, search, plan, provider, routing, deployment, status, settings, created_by, created_at, updated_at) \
                 {} SELECT 'prj_' || {id}, 'wks_' || {parent}, {endpoint}, 'Service ' || {word} || ' ' || i, 'service ' || {word} || ' ' || i || ' ' || {endpoint}, \
                 CASE WHEN i % 3 = 0 THEN 'pro' ELSE 'basic' END, 'other', 'regional', 'shared', 'active', '{{}}', 'usr_{:026}', i, i FROM numbers",
                numbers(projects),
                1
            ),
            format!(
                "INSERT INTO logs (id, workspace_id, project_id, stream_id, tunnel_id, outcome, search, summary, created_at, expires_at) \
                 {} SELECT 'log_' || {id}, 'wks_{:026}', {owner}, 's' || i, 'tun_' || {tunnel}, CASE WHEN i % 7 = 0 THEN 'denied' ELSE 'connected' END, \
                 'www.example.com /path/' || i || ' 192.0.2.' || (i % 250), '{{\"method\":\"GET\",\"status\":200,\"bytes\":1234}}', {}, 0 FROM numbers",
                numbers(logs),
                1,
                time(logs)
            ),
            format!(
                "INSERT INTO events (id, kind, category, workspace_id, project_id, payload, created_at, expires_at) \
                 {} SELECT 'evt_' || {id}, CASE WHEN i % 7 = 0 THEN 'tunnel.created' ELSE 'tunnel.deleted' END, 'lifecycle', 'wks_{:026}', {owner}, '{{\"tunnel\":{{}}}}', {}, 0 FROM numbers",
                numbers(events),
                1,
                time(events)
            ),
            format!(
                "INSERT INTO usage (project_id, hour, streams, failed_streams, upstream_bytes, downstream_bytes) \
                 {} SELECT 'prj_' || {}, {} + CAST(i / 200 AS BIGINT) * 3600000000, i, 1, i, i FROM numbers",
                numbers(200 * 720),
                pad("i % 200 + 1"),
                START - month
            ),
            if sqlite { "ANALYZE" } else { "VACUUM ANALYZE" }.to_owned(),
        ]
    }
}

struct Bench {
    store: Store,
    size: Size,
}

impl Bench {
    #[expect(
        clippy::too_many_lines,
        reason = "an example fills tables in one sequence"
    )]
    async fn projects(&mut self) -> Outcome<()> {
        let [everywhere, one] = [1, 2].map(user);
        let mut read = self.store.read().await?;
        let all = workspaces::of_user(&mut read, everywhere).await?;
        let all: Vec<WorkspaceId> = all.iter().map(|found| found.id).collect();
        let few: Vec<ProjectId> = (1..=20).map(project).collect();
        drop(read);
        self.ask("resolve an endpoint", async |conn| {
            projects::of_user_by_endpoint(conn, everywhere, "00000929").await?;
            Ok((1, 1))
        })
        .await?;
        let workspace = [workspace(2)];
        let last = self.size.projects / 100;
        for (who, tenant, search, sort, page) in [
            ("one workspace", &workspace[..], None, Sort::Id, 1),
            (
                "one workspace, by name",
                &workspace[..],
                None,
                Sort::Name,
                1,
            ),
            (
                "one workspace, by plan",
                &workspace[..],
                None,
                Sort::Plan,
                1,
            ),
            (
                "one workspace, search",
                &workspace[..],
                Some("camera"),
                Sort::Id,
                1,
            ),
            ("every workspace", &all[..], None, Sort::Id, 1),
            ("every workspace, by name", &all[..], None, Sort::Name, 1),
            (
                "every workspace, search",
                &all[..],
                Some("camera 77"),
                Sort::Id,
                1,
            ),
            (
                "every workspace, search for nothing there",
                &all[..],
                Some("zebra"),
                Sort::Name,
                1,
            ),
            ("every workspace, last page", &all[..], None, Sort::Id, last),
        ] {
            let list = List {
                workspaces: tenant,
                selection: ProjectSelection::All,
                search,
                sort,
                order: Order::Asc,
                paging: page_of(page)?,
            };
            self.ask(&format!("projects: {who}"), async |conn| {
                let found = projects::list(conn, list).await?;
                Ok((found.items.len(), found.total))
            })
            .await?;
        }
        let list = List {
            workspaces: &all,
            selection: ProjectSelection::Only {
                projects: &few,
                workspaces: &[],
            },
            search: None,
            sort: Sort::Name,
            order: Order::Asc,
            paging: page_of(1)?,
        };
        self.ask(
            "projects: twenty by their ids, of every workspace",
            async |conn| {
                let found = projects::list(conn, list).await?;
                Ok((found.items.len(), found.total))
            },
        )
        .await?;
        for (what, search, sort) in [
            ("all", None, Sort::Id),
            ("all, by name", None, Sort::Name),
            ("all, search", Some("camera 77"), Sort::Id),
        ] {
            self.ask(&format!("operator: {what}"), async |conn| {
                let paging = Paging::DEFAULT;
                let found = projects::list_all(conn, search, sort, Order::Asc, paging).await?;
                Ok((found.items.len(), found.total))
            })
            .await?;
        }
        self.ask("workspaces of a member", async |conn| {
            let found = workspaces::of_user(conn, one).await?;
            Ok((found.len(), 0))
        })
        .await
    }

    #[expect(
        clippy::too_many_lines,
        reason = "an example fills tables in one sequence"
    )]
    async fn records(&mut self) -> Outcome<()> {
        let end = Timestamp::from_microsecond(START)?;
        let days = |days: i64| Period {
            start: Some(end - SignedDuration::from_hours(24 * days)),
            end: Some(end),
        };
        let logs = logs::List {
            project: project(1),
            period: days(30),
            outcome: None,
            tunnel: None,
            stream: None,
            search: None,
            after: None,
            order: Order::Desc,
            paging: Paging::DEFAULT,
        };
        let middle = u64::from(self.size.logs / 2);
        for (what, list) in [
            (
                "of a day",
                logs::List {
                    period: days(1),
                    ..logs
                },
            ),
            ("of 30 days", logs),
            (
                "of 30 days, oldest first",
                logs::List {
                    order: Order::Asc,
                    ..logs
                },
            ),
            (
                "of 30 days, denied",
                logs::List {
                    outcome: Some("denied"),
                    ..logs
                },
            ),
            (
                "of 30 days, one tunnel",
                logs::List {
                    tunnel: Some(tunnel(8)),
                    ..logs
                },
            ),
            (
                "of 30 days, denied in one tunnel",
                logs::List {
                    outcome: Some("denied"),
                    tunnel: Some(tunnel(8)),
                    ..logs
                },
            ),
            (
                "after an id",
                logs::List {
                    after: Some(LogId::new(0, [0; 10])),
                    ..logs
                },
            ),
            (
                "after the middle one",
                logs::List {
                    after: Some(id("log", middle)?),
                    ..logs
                },
            ),
            (
                "last page",
                logs::List {
                    paging: page_of(1000)?,
                    ..logs
                },
            ),
            (
                "search, many",
                logs::List {
                    search: Some("192.0.2.4"),
                    ..logs
                },
            ),
            (
                "search, one",
                logs::List {
                    search: Some("/path/77778 "),
                    ..logs
                },
            ),
            (
                "search, none",
                logs::List {
                    search: Some("zebra"),
                    ..logs
                },
            ),
        ] {
            self.ask(&format!("logs: {what}"), async |conn| {
                let found = logs::list(conn, list).await?;
                Ok((found.items.len(), found.total))
            })
            .await?;
        }
        let events = events::List {
            project: project(1),
            period: days(30),
            kind: None,
            after: None,
            order: Order::Asc,
            paging: Paging::DEFAULT,
        };
        let middle: EventId = id("evt", u64::from(self.size.events / 2))?;
        for (what, list) in [
            ("of 30 days", events),
            (
                "one type",
                events::List {
                    kind: Some("tunnel.created"),
                    ..events
                },
            ),
            (
                "after an id",
                events::List {
                    after: Some(middle),
                    ..events
                },
            ),
            (
                "last page",
                events::List {
                    paging: page_of(1000)?,
                    ..events
                },
            ),
        ] {
            self.ask(&format!("events: {what}"), async |conn| {
                let found = events::list(conn, list).await?;
                Ok((found.items.len(), found.total))
            })
            .await?;
        }
        self.ask("usage: sum of 30 days", async |conn| {
            usage::sum(conn, project(7), days(30)).await?;
            Ok((1, 0))
        })
        .await?;
        self.ask("usage: hours of 30 days", async |conn| {
            let hours = usage::hours(conn, project(7), days(30)).await?;
            Ok((hours.len(), 0))
        })
        .await
    }

    /// Asks eleven times and prints a line of the table.
    async fn ask(
        &mut self,
        what: &str,
        question: impl AsyncFn(&mut Conn) -> Result<(usize, u64), store::Error>,
    ) -> Outcome<()> {
        let mut times = Vec::new();
        let mut rows = (0, 0);
        for _ in 0..ROUNDS {
            let mut read = self.store.read().await?;
            let began = Instant::now();
            rows = question(&mut read).await?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let mut read = self.store.read().await?;
        read.record_plans();
        question(&mut read).await?;
        let middle = times.get(ROUNDS / 2).copied().unwrap_or_default();
        let longest = times.last().copied().unwrap_or_default();
        let total = if rows.1 > 0 {
            rows.1.to_string()
        } else {
            String::new()
        };
        println!(
            "| {what} | {} | {} | {} | {total} | {} |",
            millis(middle),
            millis(longest),
            rows.0,
            found_by(read.plans())
        );
        Ok(())
    }
}

/// The parts of a plan that show how rows are found.
fn found_by(plans: &[String]) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for line in plans {
        let line = line.trim_start_matches([' ', '-', '>']);
        let line = line.split("  (cost").next().unwrap_or(line).trim();
        let tells = ["SCAN", "SEARCH", "USE TEMP", "Scan", "Sort"];
        let tells = tells.iter().any(|word| {
            line.starts_with(word) || line.contains(" Scan") || line.contains(" Only Scan")
        });
        if tells
            && !line.contains("json_each")
            && !line.starts_with("Sort Key")
            && parts.last() != Some(&line)
        {
            parts.push(line);
        }
    }
    parts.join("; ")
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

fn page_of(page: u32) -> Outcome<Paging> {
    Ok(Paging::new(page, 100).ok_or("no such page")?)
}

fn id<T: std::str::FromStr>(prefix: &str, number: u64) -> Outcome<T> {
    format!("{prefix}_{number:026}")
        .parse()
        .map_err(|_| "no id".into())
}

fn user(number: u64) -> UserId {
    id("usr", number).unwrap_or(UserId::new(0, [0; 10]))
}

fn workspace(number: u64) -> WorkspaceId {
    id("wks", number).unwrap_or(WorkspaceId::new(0, [0; 10]))
}

fn project(number: u64) -> ProjectId {
    id("prj", number).unwrap_or(ProjectId::new(0, [0; 10]))
}

fn tunnel(number: u64) -> TunnelId {
    id("tun", number).unwrap_or(TunnelId::new(0, [0; 10]))
}

/// Enough for a median on a machine that also does other work.
const ROUNDS: usize = 11;
/// 2026-01-01, in microseconds.
const START: i64 = 1_767_225_600_000_000;
