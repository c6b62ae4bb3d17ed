//! A platform in this process, people in it, and what they send.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use control::app::{App, router};
use control::config::Config;
use control::people::secret_link::LinkSecret;
use daemon::clock::{Clock as _, ManualClock};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::members::Role;
use store::projects::NewProject;
use store::sessions::Session;
use store::users::NewUser;
use store::{SecretHash, credentials, members, projects, sessions, users, workspaces};
use tempfile::TempDir;
use tower::ServiceExt as _;
use types::id::{ProjectId, SessionId, UserId, WorkspaceId};

use crate::postgres;

/// A platform on a database of its own, whose clock stands still.
pub(crate) struct TestControl {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) router: Router,
    ids: AtomicU64,
    directory: TempDir,
}

/// Somebody with a workspace, and a personal access token that is not narrowed.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) user: UserId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) token: String,
}

/// A project of somebody.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) id: ProjectId,
    pub(crate) endpoint: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl TestControl {
    /// One on each database.
    pub(crate) async fn both() -> [Self; 2] {
        let address = postgres::new_database().await;
        [
            Self::start("").await,
            Self::start_on("", Some(&address)).await,
        ]
    }

    /// One on the embedded database, with further sections of the configuration.
    pub(crate) async fn start(sections: &str) -> Self {
        Self::start_on(sections, None).await
    }

    async fn start_on(sections: &str, database: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("platform.yaml");
        let database = database.map_or(String::new(), |url| format!(", database_url: '{url}'"));
        let yaml = format!(
            "platform: {{base_url: '{BASE_URL}', data_dir: '{}'{database}}}\n\
             engines: [{{cluster_domain: engine.example}}]\n\
             {sections}\n",
            directory.path().join("data").display(),
        );
        std::fs::write(&file, yaml).unwrap();
        let config = Config::load(Some(&file), []).unwrap();
        let clock = Arc::new(ManualClock::at(START.parse().unwrap()));
        let app = control::open(config, Arc::<ManualClock>::clone(&clock)).await;
        let app = app.unwrap();
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            ids: AtomicU64::new(1),
            directory,
        }
    }

    /// The same database, keys and clock under a new process.
    pub(crate) async fn restarted(self) -> Self {
        let config = self.app.config.clone();
        self.app.store.close().await;
        let clock = self.clock;
        let app = control::open(config, Arc::<ManualClock>::clone(&clock)).await;
        let app = app.unwrap();
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            ids: self.ids,
            directory: self.directory,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Bytes that no other id of this platform has.
    fn unique(&self) -> [u8; 10] {
        let mut bytes = [0; 10];
        let number = self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes[2..].copy_from_slice(&number);
        bytes
    }

    /// Somebody with a workspace of their own.
    pub(crate) async fn person(&self, name: &str) -> Person {
        let now = self.now();
        let millis = u64::try_from(now.as_millisecond()).unwrap();
        let user = UserId::new(millis, self.unique());
        let workspace = WorkspaceId::new(millis, self.unique());
        let mut tx = self.app.store.begin().await.unwrap();
        let new = NewUser {
            id: user,
            email: format!("{name}@example.com"),
            name: name.to_owned(),
            password_hash: None,
            role: users::Role::User,
            email_verified: true,
            now,
        };
        users::insert(&mut tx, &new).await.unwrap();
        workspaces::insert(&mut tx, workspace, workspaces::Type::Personal, name, now)
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

    /// A session of somebody, as the `Cookie` header that their browser sends.
    pub(crate) async fn session(&self, of: &Person) -> String {
        let now = self.now();
        let millis = u64::try_from(now.as_millisecond()).unwrap();
        let secret = LinkSecret::draw().unwrap();
        let session = Session {
            id: SessionId::new(millis, self.unique()),
            hash: SecretHash(secret.hash()),
            user_id: of.user,
            csrf_hash: SecretHash(LinkSecret::draw().unwrap().hash()),
            user_agent: None,
            ip: None,
            second_factor_at: None,
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

    /// Makes somebody a member of another's workspace.
    pub(crate) async fn join(&self, who: &Person, workspace: WorkspaceId, role: Role) {
        let mut tx = self.app.store.begin().await.unwrap();
        members::insert(&mut tx, workspace, who.user, role, None, self.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// A project in somebody's workspace.
    pub(crate) async fn project(&self, of: &Person) -> Project {
        let unique = self.unique();
        let now = self.now();
        let id = ProjectId::new(u64::try_from(now.as_millisecond()).unwrap(), unique);
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
            now,
        };
        projects::insert(&mut tx, &new).await.unwrap();
        tx.commit().await.unwrap();
        Project { id, endpoint }
    }

    /// A token of type `auth` of somebody, with these permissions and boundaries.
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

    /// Sends a request with a bearer token and a JSON body, where there are any.
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

    /// Sends a request as it is.
    pub(crate) async fn send_raw(&self, mut request: Request<Body>) -> Answer {
        let peer = SocketAddr::from(([192, 0, 2, 1], 40_000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    /// The status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json");
        (
            self.status,
            self.json()["code"].as_str().unwrap().to_owned(),
        )
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) const BASE_URL: &str = "https://svc.example";
pub(crate) const START: &str = "2026-01-01T00:00:00Z";
