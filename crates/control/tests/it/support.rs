//! A platform in this process, its users, and their requests.

mod answer;
mod browser;
mod database;
mod document;
pub(crate) mod name_server;
pub(crate) mod receiver;
mod statements;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use control::app::App;
use control::config::{Config, PasswordCost};
use control::people::password::Password;
use control::people::secret_link::LinkSecret;
use control::router::router;
use daemon::clock::{Clock as _, ManualClock};
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::members::Role;
use store::projects::NewProject;
use store::sessions::Session;
use store::users::NewUser;
use store::{PasswordHash, SecretHash, credentials, members, projects, sessions, users};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tower::ServiceExt as _;
use types::id::{ProjectId, SessionId, UserId, WorkspaceId};

pub(crate) use self::answer::Answer;
pub(crate) use self::browser::Browser;
pub(crate) use self::document::DOCUMENT;
pub(crate) use self::statements::recorded;
use crate::migrated;

pub(crate) const BASE_URL: &str = "https://svc.example";
pub(crate) const START: &str = "2026-01-01T00:00:00Z";
/// A callback of the OAuth client `web`.
pub(crate) const CALLBACK: &str = "https://client.example/callback?x=1";
/// Another callback, on the user's machine.
pub(crate) const LOOPBACK: &str = "http://127.0.0.1:49152/callback";
/// Password of every test user.
pub(crate) const PASSWORD: &str = "correct horse battery";

/// Runs each of these functions as a test on SQLite and on PostgreSQL. They are functions of the
/// same file that take a [`TestControl`].
macro_rules! both {
    ($($name:ident,)+) => {
        mod on_sqlite {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name($crate::support::TestControl::start("").await)).await;
            }
        )+}

        mod on_postgres {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name($crate::support::TestControl::postgres().await)).await;
            }
        )+}
    };
}
pub(crate) use both;

/// A platform with its own database, whose clock stands still.
pub(crate) struct TestControl {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) router: Router,
    database: Option<String>,
    directory: PathBuf,
    /// Removes the directory on drop, if it belongs to this platform.
    kept: Option<TempDir>,
}

/// A user with [`PASSWORD`], a workspace, and an unrestricted personal access token.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) user: UserId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) token: String,
}

/// A project of a user.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) id: ProjectId,
    pub(crate) endpoint: String,
}

impl TestControl {
    /// Starts one on the embedded database, with further configuration sections.
    pub(crate) async fn start(sections: &str) -> Self {
        Self::open(sections, None).await
    }

    /// Starts one on PostgreSQL.
    pub(crate) async fn postgres() -> Self {
        Self::open("", Some(migrated::on_postgres().await)).await
    }

    /// Starts one on each database, for tests that go through their own table.
    pub(crate) async fn both() -> [Self; 2] {
        [Self::start("").await, Self::postgres().await]
    }

    /// Starts one on each database, and for each a second process with its own directory and the
    /// same secret, like two machines.
    pub(crate) async fn pairs(sections: &str) -> [[Self; 2]; 2] {
        let mut pairs = Vec::new();
        for database in [None, Some(migrated::on_postgres().await)] {
            let first = Self::open(sections, database).await;
            let second = first.second_process().await.unwrap();
            pairs.push([first, second]);
        }
        pairs.try_into().ok().unwrap()
    }

    /// Starts one on a database at this address, or on the embedded one.
    pub(crate) async fn start_on(sections: &str, database: Option<&str>) -> Self {
        Self::open(sections, database.map(str::to_owned)).await
    }

    async fn open(sections: &str, database: Option<String>) -> Self {
        Self::start_with(sections, database, |_| ()).await
    }

    /// The same, after `prepare` has changed the future data directory.
    pub(crate) async fn start_with(
        sections: &str,
        database: Option<String>,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        prepare(&data);
        if database.is_none() {
            migrated::on_sqlite(&data).await;
        }
        configuration(directory.path(), database.as_deref(), sections);
        let mut control = Self::reopen_in(directory.path()).await;
        control.database = database;
        control.kept = Some(directory);
        control
    }

    /// Starts one with this `base_url`, with the clock at `now` and with these engines.
    pub(crate) async fn at(
        base_url: &str,
        now: Timestamp,
        engines: &Value,
        sections: &str,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        migrated::on_sqlite(&directory.path().join("data")).await;
        let config = configuration_beside(directory.path(), None, sections, engines);
        let config = Config {
            base_url: base_url.to_owned(),
            ..config
        };
        let clock = Arc::new(ManualClock::at(now));
        Self::opened(config, clock, directory).await.unwrap()
    }

    /// Starts another process on the data that a platform left in its directory.
    pub(crate) async fn reopen_in(directory: &Path) -> Self {
        let config = load(&directory.join("platform.yaml"));
        let clock = Arc::new(ManualClock::at(START.parse().unwrap()));
        let app = control::open(config, Arc::<ManualClock>::clone(&clock)).await;
        Self::over(app.unwrap(), clock, directory)
    }

    /// Opens a platform with this configuration, if it starts.
    pub(crate) async fn opened(
        config: Config,
        clock: Arc<ManualClock>,
        directory: TempDir,
    ) -> Result<Self, control::StartError> {
        let app = control::open(config, Arc::<ManualClock>::clone(&clock)).await?;
        let mut control = Self::over(app, clock, directory.path());
        control.kept = Some(directory);
        Ok(control)
    }

    fn over(app: Arc<App>, clock: Arc<ManualClock>, directory: &Path) -> Self {
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            database: None,
            directory: directory.to_owned(),
            kept: None,
        }
    }

    /// The configuration of a second process on the same database, and its directory.
    pub(crate) fn config_beside(&self) -> (Config, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let mut config = self.app.config.clone();
        let own = std::mem::replace(&mut config.data_dir, directory.path().join("data"));
        if config.database_url.is_none() {
            let url = format!("sqlite://{}", own.join("platform.db").display());
            config.database_url = Some(daemon::config::SecretString::new(url));
        }
        (config, directory)
    }

    /// Starts a second process on the same database, with the same secret and clock.
    pub(crate) async fn second_process(&self) -> Result<Self, control::StartError> {
        let (mut config, directory) = self.config_beside();
        config.secret_file = Some(self.app.config.data_dir.join("platform.secret"));
        Self::opened(config, Arc::clone(&self.clock), directory).await
    }

    /// Restarts the process with the same database, keys and clock.
    pub(crate) async fn restarted(self) -> Self {
        let config = self.app.config.clone();
        self.restarted_with(config).await
    }

    /// Restarts the process with further configuration sections.
    pub(crate) async fn configured(self, sections: Value) -> Self {
        let sections: Vec<_> = sections
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, section)| format!("{name}: {section}\n"))
            .collect();
        let database = self.database.as_deref();
        let config = configuration(&self.directory, database, &sections.concat());
        self.restarted_with(config).await
    }

    /// Restarts the process with this configuration.
    pub(crate) async fn restarted_with(self, config: Config) -> Self {
        self.app.store.close().await;
        let clock = self.clock;
        let app = control::open(config, Arc::<ManualClock>::clone(&clock)).await;
        let app = app.unwrap();
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            database: self.database,
            directory: self.directory,
            kept: self.kept,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.now().as_millisecond()).unwrap()
    }

    /// A new user with a workspace.
    pub(crate) async fn person(&self, name: &str) -> Person {
        self.person_with(name, true).await
    }

    /// A new user with a workspace, and a mail address that is verified or not.
    pub(crate) async fn person_with(&self, name: &str, email_verified: bool) -> Person {
        let now = self.now();
        let user = UserId::new(self.millis(), unique());
        let workspace = WorkspaceId::new(self.millis(), unique());
        let password = self.hashed_password().await;
        let mut tx = self.app.store.begin().await.unwrap();
        let new = NewUser {
            id: user,
            email: format!("{}@example.com", name.to_lowercase()),
            name: name.to_owned(),
            password_hash: Some(password),
            role: users::Role::User,
            email_verified,
            now,
        };
        users::insert(&mut tx, &new).await.unwrap();
        let kind = store::workspaces::Type::Personal;
        store::workspaces::insert(&mut tx, workspace, kind, name, now)
            .await
            .unwrap();
        members::insert(&mut tx, workspace, user, Role::Owner, None, now)
            .await
            .unwrap();
        let issued = control::credentials::issue_pat(&self.app, user, "test", None).unwrap();
        credentials::insert(&mut tx, &issued.credential)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let token = issued.token.unwrap().expose().to_vec();
        Person {
            user,
            workspace,
            token: String::from_utf8(token).unwrap(),
        }
    }

    /// Computed once, because it is slow on purpose.
    async fn hashed_password(&self) -> PasswordHash {
        static HASH: OnceCell<String> = OnceCell::const_new();
        let make = || {
            self.app
                .people
                .passwords
                .hash(Password::typed(PASSWORD).unwrap())
        };
        let hash = HASH.get_or_try_init(make).await.unwrap();
        PasswordHash(hash.clone())
    }

    /// A browser without a session.
    pub(crate) fn browser(&self) -> Browser<'_> {
        Browser::new(self)
    }

    /// A browser in which this user is signed in.
    pub(crate) async fn signed_in(&self, name: &str) -> Browser<'_> {
        let mut browser = self.browser();
        let answer = browser.sign_in(name, PASSWORD).await;
        assert_eq!(answer.location.as_deref(), Some("/"));
        browser
    }

    /// A session of a user, as the `Cookie` header that their browser sends.
    pub(crate) async fn session(&self, of: &Person) -> String {
        let now = self.now();
        let secret = LinkSecret::draw().unwrap();
        let session = Session {
            id: SessionId::new(self.millis(), unique()),
            hash: SecretHash(secret.hash()),
            user_id: of.user,
            user_agent: None,
            ip: None,
            second_factor_at: None,
            proved_at: now,
            created_at: now,
            rotated_at: now,
            last_seen_at: now,
            expires_at: now + SignedDuration::from_hours(1),
            permissions: None,
            resources: None,
        };
        let mut tx = self.app.store.begin().await.unwrap();
        sessions::insert(&mut tx, &session).await.unwrap();
        tx.commit().await.unwrap();
        format!("__Host-svc_session={}", secret.reveal())
    }

    /// The mails that were sent, oldest first.
    pub(crate) async fn mails(&self) -> Vec<String> {
        self.app.people.finish().await;
        let Ok(entries) = std::fs::read_dir(self.directory().join("data/mail")) else {
            return Vec::new();
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap())
            .collect()
    }

    /// Makes a user a member of another user's workspace.
    pub(crate) async fn join(&self, who: &Person, workspace: WorkspaceId, role: Role) {
        let mut tx = self.app.store.begin().await.unwrap();
        members::insert(&mut tx, workspace, who.user, role, None, self.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Gives the workspace an active subscription.
    pub(crate) async fn subscribe(&self, workspace: WorkspaceId) {
        let mut tx = self.app.store.begin().await.unwrap();
        let billing = self.app.plan_service.billing();
        billing
            .subscribe(&mut tx, workspace, "EUR", self.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// A project in the user's workspace.
    pub(crate) async fn project(&self, of: &Person) -> Project {
        let unique = unique();
        let id = ProjectId::new(self.millis(), unique);
        let endpoint = format!(
            "{:08x}",
            u32::from_be_bytes([7, unique[7], unique[8], unique[9]])
        );
        let mut tx = self.app.store.begin().await.unwrap();
        let new = NewProject {
            id,
            workspace_id: of.workspace,
            endpoint: endpoint.clone(),
            name: "project".to_owned(),
            plan: "basic".to_owned(),
            provider: "other".to_owned(),
            region: Some("local".to_owned()),
            routing: "regional".to_owned(),
            deployment: "shared".to_owned(),
            created_by: of.user,
            now: self.now(),
        };
        projects::insert(&mut tx, &new).await.unwrap();
        tx.commit().await.unwrap();
        Project { id, endpoint }
    }

    /// An `auth` token of a user, with these permissions and boundaries.
    pub(crate) async fn delegated(&self, of: &Person, body: Value) -> String {
        let answer = self.post("/api/tokens", &of.token, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, Some(token), None).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, Some(token), Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, token: &str) -> Answer {
        self.send(Method::DELETE, path, Some(token), None).await
    }

    /// Sends a request, with a bearer token and a JSON body if they are given.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.send_raw(request.body(body).unwrap()).await
    }

    /// Sends a request unchanged, from [`PEER`].
    pub(crate) async fn send_raw(&self, request: Request<Body>) -> Answer {
        self.send_from(SocketAddr::from((PEER, 40_000)), request)
            .await
    }

    /// Sends a request unchanged, from this address.
    pub(crate) async fn send_from(&self, peer: SocketAddr, mut request: Request<Body>) -> Answer {
        request.extensions_mut().insert(ConnectInfo(peer));
        let asked = document::operation(request.method(), request.uri().path());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let location = parts.headers.get(LOCATION);
        let answer = Answer {
            status: parts.status.as_u16(),
            location: location.map(|path| path.to_str().unwrap().to_owned()),
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        };
        if let Some(operation) = asked {
            document::check(operation, &answer);
        }
        answer
    }
}

/// Default source address of requests.
pub(crate) const PEER: [u8; 4] = [192, 0, 2, 1];

/// A configuration with its data in this directory.
pub(crate) fn configuration(directory: &Path, database: Option<&str>, sections: &str) -> Config {
    configuration_beside(directory, database, sections, &engines())
}

/// The one engine of most platforms in these tests.
pub(crate) fn engines() -> Value {
    json!([{"cluster_domain": "engine.example", "tcp_ports": "20000-20999"}])
}

fn configuration_beside(
    directory: &Path,
    database: Option<&str>,
    sections: &str,
    engines: &Value,
) -> Config {
    let file = directory.join("platform.yaml");
    let platform = json!({
        "base_url": BASE_URL,
        "data_dir": directory.join("data"),
        "database_url": database,
        "drain_seconds": 0,
    });
    let oauth = json!({"clients": [
        {"id": "web", "name": "Web Client", "redirect_uris": [CALLBACK, LOOPBACK]},
        {"id": "other", "redirect_uris": ["https://other.example/callback"]},
        {"id": "agent", "name": "Agent <b>"},
        {
            "id": "native",
            "redirect_uris": ["http://127.0.0.1/callback"],
            "loopback_any_port": true,
        },
    ]});
    let has_clients = sections.lines().any(|line| line.starts_with("oauth:"));
    let oauth = if has_clients {
        String::new()
    } else {
        format!("oauth: {oauth}\n")
    };
    let yaml = format!("platform: {platform}\nengines: {engines}\n{oauth}{sections}\n");
    std::fs::write(&file, yaml).unwrap();
    load(&file)
}

/// Loads a configuration, with cheap password hashes.
pub(crate) fn load(file: &Path) -> Config {
    let config = Config::load(Some(file), []).unwrap();
    Config {
        password_cost: PasswordCost::LowestForTests,
        ..config
    }
}

/// A counter for unique values.
pub(crate) fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// Bytes for a unique id.
fn unique() -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&next().to_be_bytes());
    bytes
}
