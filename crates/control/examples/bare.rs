//! The comparison for the platform in `bench/platform.py`: a server that answers a constant, and one
//! that asks the database the one thing that matters, with nothing around it. It also fills a
//! platform's database for the bench.
//!
//! ```sh
//! bare seed platform.yaml 16 1000       # sixteen people with a workspace, a thousand projects each
//! bare serve 127.0.0.1:8081 [sqlite:///path/platform.db | postgres://…]
//! ```
#![expect(clippy::print_stdout, reason = "it tells the bench what it made")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use ::credentials::{AccessClaims, Secret};
use axum::Router;
use axum::extract::{Path as Segment, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use control::app::App;
use control::config::Config;
use control::credentials::CredentialWithSecret;
use daemon::clock::SystemClock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{PgPool, Row as _, SqlitePool};
use store::members::Role;
use store::projects::NewProject;
use store::users::NewUser;
use store::{credentials, members, projects, users, workspaces};
use types::id::{ProjectId, UserId, WorkspaceId};
use types::permission::Permission;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["seed", config, people, each] => seed(config, people.parse()?, each.parse()?).await,
        ["serve", listen] => serve(listen, Database::None).await,
        ["serve", listen, url] => serve(listen, Database::open(url).await?).await,
        _ => Err("bare seed CONFIG PEOPLE PROJECTS | bare serve ADDRESS [DATABASE]".into()),
    }
}

/// Makes people, each with a workspace, a token and projects, and prints them as JSON.
async fn seed(config: &str, people: u64, each: u64) -> Outcome<()> {
    let config = Config::load(Some(Path::new(config)), [])?;
    let app = control::open(config, Arc::new(SystemClock)).await?;
    let mut made = Vec::new();
    for number in 1..=people {
        made.push(person(&app, number, each).await?);
    }
    app.store.close().await;
    println!("{}", Value::from(made));
    Ok(())
}

async fn person(app: &App, number: u64, each: u64) -> Outcome<Value> {
    let now = app.now();
    let millis = u64::try_from(now.as_millisecond())?;
    let unique = |kind: u16, number: u64| {
        let mut bytes = [0; 10];
        let (head, tail) = bytes.split_at_mut(2);
        head.copy_from_slice(&kind.to_be_bytes());
        tail.copy_from_slice(&number.to_be_bytes());
        bytes
    };
    let user = UserId::new(millis, unique(1, number));
    let workspace = WorkspaceId::new(millis, unique(2, number));
    let mut tx = app.store.begin().await?;
    let new = NewUser {
        id: user,
        email: format!("{number}@example.com"),
        name: format!("Person {number}"),
        password_hash: None,
        role: users::Role::User,
        email_verified: true,
        now,
    };
    users::insert(&mut tx, &new).await?;
    let (kind, name) = (workspaces::Type::Personal, "Bench");
    workspaces::insert(&mut tx, workspace, kind, name, now).await?;
    members::insert(&mut tx, workspace, user, Role::Owner, None, now).await?;
    let issued = control::credentials::issue_pat(app, user, "bench", None);
    let issued = issued.map_err(|_| "no credential could be issued")?;
    credentials::insert(&mut tx, &issued.credential).await?;
    let access = access_token(app, user)?;
    credentials::insert(&mut tx, &access.credential).await?;
    let mut endpoint = String::new();
    for project in 0..each {
        let serial = number * 1_000_000 + project;
        endpoint = format!("{serial:08x}");
        let new = NewProject {
            id: ProjectId::new(millis, unique(3, serial)),
            workspace_id: workspace,
            endpoint: endpoint.clone(),
            name: format!("project {project}"),
            plan: "basic".to_owned(),
            provider: "other".to_owned(),
            region: Some("local".to_owned()),
            routing: "regional".to_owned(),
            deployment: "shared".to_owned(),
            created_by: user,
            now,
        };
        projects::insert(&mut tx, &new).await?;
    }
    tx.commit().await?;
    Ok(json!({
        "token": text(issued.token)?,
        "oauth_token": text(access.token)?,
        "key": issued.credential.token_endpoint,
        "workspace": workspace,
        "endpoint": endpoint,
    }))
}

/// State of the command line after a user approved a login.
fn access_token(app: &App, user: UserId) -> Outcome<CredentialWithSecret> {
    let scope = [
        Permission::AccountProjectsReadOnly,
        Permission::AccountWorkspacesReadOnly,
    ];
    let claims = AccessClaims {
        client_id: "svc-cli".to_owned(),
        resource: app.config.base_url.clone(),
        scope: scope.into_iter().collect(),
    };
    // Whole seconds, as in the token.
    let begins = Timestamp::from_second(app.now().as_second())?;
    let times = (begins, begins + SignedDuration::from_hours(24));
    let issued =
        control::credentials::issue_access_token(app, user, "svc-cli", claims, None, times);
    issued.map_err(|_| "no access token could be issued".into())
}

fn text(token: Option<Secret>) -> Outcome<String> {
    let token = token.ok_or("a credential without a token")?;
    Ok(String::from_utf8(token.expose().to_vec())?)
}

/// The database of the queries.
#[derive(Clone)]
enum Database {
    None,
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    async fn open(url: &str) -> Outcome<Self> {
        Ok(if url.starts_with("sqlite:") {
            Self::Sqlite(SqlitePool::connect(url).await?)
        } else {
            Self::Postgres(PgPool::connect(url).await?)
        })
    }

    /// The first row's columns, as text.
    async fn one(
        &self,
        query: &'static str,
        key: &str,
    ) -> Result<Option<Vec<String>>, sqlx::Error> {
        Ok(match self {
            Self::None => None,
            Self::Sqlite(pool) => {
                let row = sqlx::query(query).bind(key).fetch_optional(pool).await?;
                row.map(|row| (0..row.len()).map(|at| row.try_get(at)).collect())
                    .transpose()?
            }
            Self::Postgres(pool) => {
                let row = sqlx::query(query).bind(key).fetch_optional(pool).await?;
                row.map(|row| (0..row.len()).map(|at| row.try_get(at)).collect())
                    .transpose()?
            }
        })
    }
}

async fn serve(listen: &str, database: Database) -> Outcome<()> {
    let router = Router::new()
        .route("/constant", get(constant))
        .route("/whoami", get(whoami))
        .route("/resolve/{endpoint}", get(resolve))
        .with_state(database);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn constant() -> Response {
    let body = json!({"id": "usr_0", "name": "Person 1", "email": "1@example.com", "kind": "pat"});
    axum::Json(body).into_response()
}

/// The person behind a credential, by the credential's public part: what a signature has to be
/// added to.
async fn whoami(State(database): State<Database>, headers: HeaderMap) -> Response {
    let key = headers.get("x-key").and_then(|key| key.to_str().ok());
    answer(&database, WHOAMI, key.unwrap_or_default()).await
}

async fn resolve(State(database): State<Database>, Segment(endpoint): Segment<String>) -> Response {
    answer(&database, RESOLVE, &endpoint).await
}

async fn answer(database: &Database, query: &'static str, key: &str) -> Response {
    match database.one(query, key).await {
        Ok(Some(columns)) => axum::Json(columns).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

const WHOAMI: &str = "SELECT u.id, u.name, u.email, u.status, u.role, c.id, c.kind, c.name \
    FROM credentials c JOIN users u ON u.id = c.user_id \
    WHERE c.token_endpoint = $1 AND c.revoked_at IS NULL";
const RESOLVE: &str = "SELECT p.id, p.workspace_id, p.endpoint, p.name, p.plan, p.provider, p.routing, \
    p.deployment, p.status, m.role FROM projects p \
    JOIN members m ON m.workspace_id = p.workspace_id AND m.status = 'active' \
    JOIN workspaces w ON w.id = p.workspace_id AND w.status = 'active' AND w.deleted_at IS NULL \
    WHERE p.deleted_at IS NULL AND p.endpoint = $1";
