//! An Engine API with its own port, and hand-made tokens.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use aws_lc_rs::hmac;
use axum::Router;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::{Keyring, Secret, VerifiedToken};
use engine::access::{Tenancy, Tokens, TunnelPolicy};
use engine::api::{AnswerBudget, Api, RateLimiter, TunnelCloser};
use engine::clock::{Clock, ManualClock};
use engine::config::ApiRates;
use engine::config::QuotaPercent;
use engine::directory::Project;
use engine::live::{ClientHandle, Identity, LiveLimits, LiveTunnel, TunnelRegistry};
use engine::webtty::Sessions;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use types::client::Client;
use types::tunnel::TunnelProperties;

use crate::document::compare;

pub(crate) const SECRET: &str = "a secret of thirty-two bytes or more";
pub(crate) const READ: &str = "tunnels.resources.read-only";
pub(crate) const CREATE: &str = "tunnels.tunnels.create-delete";
pub(crate) const STREAMS: &str = "tunnels.streams.create-delete";

/// Requests per minute, too many to be reached by these tests.
const RATE: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();

/// Start time of the manual clocks (Unix seconds).
pub(crate) const NOW: i64 = 1_800_000_000;

/// A token with these claims, signed with [`SECRET`].
pub(crate) fn token(claims: &Value) -> String {
    signed(claims, SECRET)
}

pub(crate) fn signed(claims: &Value, secret: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!(
        "{}.{}",
        part(&json!({"alg": "HS256", "typ": "JWT"})),
        part(claims)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Claims of a personal access token that may do everything and never expires.
pub(crate) fn pat() -> Value {
    json!({"type": "pat", "userId": "ann"})
}

/// Claims of an `auth` token that is valid for `ttl` seconds from `now`, with additional or
/// replaced claims.
pub(crate) fn auth(now: i64, ttl: i64, more: Value) -> Value {
    let mut claims = json!({"type": "auth", "userId": "ann", "iat": now, "exp": now + ttl});
    let Value::Object(more) = more else {
        panic!("claims are an object")
    };
    for (name, claim) in more {
        claims[name] = claim;
    }
    claims
}

pub(crate) fn keyring() -> Keyring {
    Keyring::new().with_secret(&Secret::new(SECRET)).unwrap()
}

/// Closes tunnels in the live state. There are no agents here to notify.
#[derive(Debug)]
struct LiveCloser(Arc<TunnelRegistry<()>>);

impl TunnelCloser<()> for LiveCloser {
    fn close(&self, tunnel: &LiveTunnel<()>, _caller: &VerifiedToken) -> bool {
        self.0.close_for_caller(tunnel)
    }
}

/// A running Engine API; it stops when dropped.
pub(crate) struct TestApi {
    pub(crate) address: SocketAddr,
    pub(crate) live: Arc<TunnelRegistry<()>>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) http: reqwest::Client,
    /// WebSockets that have not ended.
    pub(crate) upgraded: TaskTracker,
    /// True if answers have members that the document does not list.
    compat: bool,
    router: Router,
    server: JoinHandle<()>,
}

impl TestApi {
    /// Starts with a clock that stands still at [`NOW`].
    pub(crate) async fn start() -> Self {
        Self::with(manual_clock(), LiveLimits::default(), false).await
    }

    pub(crate) async fn with(clock: Arc<dyn Clock>, limits: LiveLimits, compat: bool) -> Self {
        Self::with_terminals(clock, limits, compat, Arc::default()).await
    }

    /// Starts with terminal sessions and their recorder.
    pub(crate) async fn with_terminals(
        clock: Arc<dyn Clock>,
        limits: LiveLimits,
        compat: bool,
        terminals: Arc<Sessions>,
    ) -> Self {
        let project = Arc::new(Project::community());
        let live = TunnelRegistry::new(limits, Arc::clone(&clock));
        let tokens = Tokens::new(keyring().with_compat(compat));
        let upgraded = TaskTracker::new();
        let rates = ApiRates {
            per_credential: RATE,
            per_project: RATE,
            per_source: RATE,
        };
        let rates = RateLimiter::with(rates, Arc::clone(&clock));
        let api = Api {
            live: Arc::clone(&live),
            closer: Arc::new(LiveCloser(Arc::clone(&live))),
            tokens: Arc::clone(&tokens),
            clock,
            tenancy: Tenancy::Community(Arc::clone(&project)),
            terminals,
            link: None,
            compat,
            answers: AnswerBudget::with(64 * 1024 * 1024, QuotaPercent(25)),
            rates,
            upgraded: upgraded.clone(),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = engine::api::router(Arc::new(api)).layer(axum::Extension(project));
        let served = router.clone();
        let server = tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
        Self {
            upgraded,
            compat,
            router,
            address,
            live,
            tokens,
            http: reqwest::Client::new(),
            server,
        }
    }

    /// A connection without a network, with at most `bytes` in flight. On a paused clock, time
    /// passes only when both ends wait.
    pub(crate) fn in_memory(&self, bytes: usize) -> DuplexStream {
        let (client, server) = tokio::io::duplex(bytes);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service)
            .with_upgrades();
        tokio::spawn(async move { connection.await.ok() });
        client
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request with a token that may do everything.
    pub(crate) fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(self.url(path)).bearer_auth(token(&pat()))
    }

    /// `GET` with a token of `claims`, answered with a JSON body.
    pub(crate) async fn json_as(&self, claims: &Value, path: &str) -> (u16, Value) {
        let response = self
            .http
            .get(self.url(path))
            .bearer_auth(token(claims))
            .send()
            .await
            .unwrap();
        self.read(path, response).await
    }

    pub(crate) async fn json(&self, path: &str) -> (u16, Value) {
        self.json_as(&pat(), path).await
    }

    /// A list with `params`.
    pub(crate) async fn list(&self, path: &str, params: &Value) -> (u16, Value) {
        let request = self.get(path).query(&[("params", params.to_string())]);
        let response = request.send().await.unwrap();
        self.read(path, response).await
    }

    /// The status and the body of an answer to `GET`, after its comparison with the document.
    async fn read(&self, path: &str, response: reqwest::Response) -> (u16, Value) {
        let status = response.status().as_u16();
        let body = response.json().await.unwrap();
        if !self.compat {
            compare("GET", path, status, &body);
        }
        (status, body)
    }

    /// Connects a client of `user` with these fields.
    pub(crate) fn client(&self, user: &str, fields: Value) -> ClientHandle<()> {
        let mut shown = serde_json::to_value(Client::online(self.live.new_client_id())).unwrap();
        shown["project_id"] = json!(Project::COMMUNITY);
        shown["user_id"] = json!(user);
        let Value::Object(fields) = fields else {
            panic!("fields are an object")
        };
        for (name, value) in fields {
            shown[name] = value;
        }
        let client: Client = serde_json::from_value(shown).unwrap();
        let project = Arc::new(Project::community());
        let client_id = self.live.add_client(client, &project).unwrap().id;
        let identity = Identity::new(
            Project::COMMUNITY,
            &credentials::Identity::User(user.to_owned()),
        );
        ClientHandle {
            identity,
            project,
            client_id,
            agent: Arc::new(()),
        }
    }

    pub(crate) fn tunnel(&self, owner: &ClientHandle<()>, asked: Value) -> Arc<LiveTunnel<()>> {
        let properties = serde_json::from_value::<TunnelProperties>(asked)
            .unwrap()
            .resolve()
            .unwrap();
        let policy = TunnelPolicy::compile(&properties);
        self.live
            .open_tunnel(owner.clone(), properties, policy)
            .unwrap()
            .tunnel
    }
}

impl Drop for TestApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub(crate) fn manual_clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap()))
}

/// The ids of a listed array.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|object| object["name"].as_str().unwrap_or_default())
        .collect()
}
