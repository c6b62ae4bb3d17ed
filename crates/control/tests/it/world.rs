//! A platform for one test: its own database, its own clock, people with tokens, and requests
//! through the real router.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use control::app::{App, router};
use control::config::Config;
use credentials::{Identity, MintRequest, Provenance, Source, TokenKind, mint_from};
use daemon::clock::ManualClock;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::credentials::{self as stored, Kind};
use store::members::{self, Role};
use store::users::{self, NewUser};
use store::workspaces::{self, Type};
use tempfile::TempDir;
use tower::ServiceExt as _;
use types::id::{CredentialId, UserId, WorkspaceId};
use types::permission::Permission;

/// A platform that nobody reaches but the test.
pub(crate) struct World {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Arc<ManualClock>,
    router: Router,
    _directory: TempDir,
}

/// A person with a workspace of their own, who owns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Person {
    pub(crate) user: UserId,
    pub(crate) workspace: WorkspaceId,
    credential: CredentialId,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl World {
    /// A platform on a database at `url`, or on an embedded one, with `catalog` in its
    /// configuration.
    pub(crate) async fn new(url: Option<String>, catalog: Value) -> Self {
        Self::with(url, json!({"catalog": catalog})).await
    }

    /// A platform with more in its configuration.
    pub(crate) async fn with(url: Option<String>, mut config: Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        config["platform"] = json!({
            "base_url": "https://svc.example.com",
            "data_dir": directory.path().join("data"),
            "database_url": url,
        });
        config["engines"] = json!([{"cluster_domain": "engine.example.com"}]);
        let file = directory.path().join("platform.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let config = Config::load(Some(&file), []).unwrap();
        let start: Timestamp = "2026-04-16T12:00:00Z".parse().unwrap();
        let clock = Arc::new(ManualClock::at(start));
        let app = control::open(config, Arc::clone(&clock) as _)
            .await
            .unwrap();
        Self {
            router: router(Arc::clone(&app)),
            app,
            clock,
            _directory: directory,
        }
    }

    /// A person with a workspace.
    pub(crate) async fn person(&self) -> Person {
        let number = next();
        let now = self.app.now();
        let person = Person {
            user: UserId::new(number, [7; 10]),
            workspace: WorkspaceId::new(number, [7; 10]),
            credential: CredentialId::new(number, [7; 10]),
        };
        let user = NewUser {
            id: person.user,
            email: format!("{number}@example.com"),
            name: format!("Person {number}"),
            password_hash: None,
            role: users::Role::User,
            email_verified: true,
            now,
        };
        let credential = stored::Credential {
            id: person.credential,
            user_id: person.user,
            workspace_id: None,
            kind: Kind::Pat,
            name: "test".to_owned(),
            token_hash: None,
            token_endpoint: None,
            public_key: None,
            certificate_fingerprint: None,
            certificate: None,
            issuer_fingerprint: None,
            permissions: None,
            resources: None,
            created_at: now,
            updated_at: now,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            rotated_to: None,
            oauth_client: None,
        };
        let mut tx = self.app.store.begin().await.unwrap();
        users::insert(&mut tx, &user).await.unwrap();
        let (workspace, kind) = (person.workspace, Type::Personal);
        workspaces::insert(&mut tx, workspace, kind, "Mine", now)
            .await
            .unwrap();
        members::insert(&mut tx, workspace, person.user, Role::Owner, None, now)
            .await
            .unwrap();
        stored::insert(&mut tx, &credential).await.unwrap();
        tx.commit().await.unwrap();
        person
    }

    /// Makes the person a member of another's workspace.
    pub(crate) async fn join(&self, person: Person, workspace: WorkspaceId, role: Role) {
        let now = self.app.now();
        let mut tx = self.app.store.begin().await.unwrap();
        members::insert(&mut tx, workspace, person.user, role, None, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Gives the workspace a subscription in good standing.
    pub(crate) async fn subscribe(&self, workspace: WorkspaceId) {
        let mut tx = self.app.store.begin().await.unwrap();
        let billing = self.app.shop.billing();
        billing
            .subscribe(&mut tx, workspace, "EUR", self.app.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// A token of the person with every permission.
    pub(crate) fn token(&self, person: Person) -> String {
        self.narrow_token(person, None, None)
    }

    /// A token of the person with these permissions and boundaries.
    pub(crate) fn narrow_token(
        &self,
        person: Person,
        permissions: Option<&[Permission]>,
        resources: Option<Value>,
    ) -> String {
        let request = MintRequest {
            kind: TokenKind::Auth,
            identity: Identity::User(person.user.to_string()),
            ttl_seconds: Some(3600),
            permissions: permissions.map(<[_]>::to_vec),
            resources,
        };
        let provenance = Provenance {
            issuer: self.app.config.base_url.clone(),
            id: next().to_string(),
            source: Source::Credential {
                id: person.credential.to_string(),
                updated_at: self.app.now().to_string(),
            },
        };
        let now = self.app.now().as_second();
        let token = mint_from(self.app.keys.signing(), &request, Some(&provenance), now).unwrap();
        String::from_utf8(token.expose().to_vec()).unwrap()
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> Reply {
        self.call(Method::GET, path, token, None).await
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: Value) -> Reply {
        self.call(Method::POST, path, token, Some(body)).await
    }

    /// One request, through the router.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> Reply {
        self.call_from("192.0.2.1:1", method, path, token, body)
            .await
    }

    /// One request of a caller at this address.
    pub(crate) async fn call_from(
        &self,
        peer: &str,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> Reply {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| body.to_string().into());
        let mut request = request.body(body).unwrap();
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Reply {
            status,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }
}

impl Reply {
    /// The body, of an answer with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&self.text).unwrap()
    }

    /// The code of a problem with this status.
    #[track_caller]
    pub(crate) fn problem(self, status: u16) -> (String, Option<String>) {
        let body = self.expect(status);
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        (text("code").unwrap(), text("field"))
    }
}

/// Counts up, for what must differ.
pub(crate) fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// Runs each test on the embedded database and on PostgreSQL.
macro_rules! both {
    ($($(#[doc = $doc:literal])* async fn $name:ident($url:ident) $body:block)+) => {
        $($(#[doc = $doc])* async fn $name($url: Option<String>) $body)+

        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(None).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(Some(crate::postgres::new_database().await)).await;
                }
            )+
        }
    };
}
pub(crate) use both;
