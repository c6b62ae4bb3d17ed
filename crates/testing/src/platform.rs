//! A platform that sends the updates of a test to engines, and stores their reports.

mod served;
mod sign_in;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use api::link::{
    CHANGES, Credential, CredentialProof, EndedToken, Item, Keys, Membership, Person, Project,
    REPORTS, Record, SIGN_IN,
};
use axum::Router;
use axum::routing::{get, post};
use credentials::SigningKey;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use types::permission::Permission;

use crate::fixtures::unix_seconds;
use crate::within;

/// A platform for managed engines ([`crate::TestEngine::managed`]), on a free port of the loopback
/// interface. Clones share it; it stops with the last one.
///
/// Each call that adds something sends one change to the linked engines immediately.
/// [`crate::TestEngine::wait_for_changes`] waits until an engine has applied it.
#[derive(Clone)]
pub struct FakePlatform {
    shared: Arc<PlatformState>,
    _server: Arc<Server>,
}

struct Server(JoinHandle<()>);

struct PlatformState {
    address: SocketAddr,
    key: EncodingKey,
    sent: Mutex<SentState>,
    /// Counts the changes, to wake the connections.
    version: watch::Sender<u64>,
    /// Number of times that all connections were closed.
    cuts: watch::Sender<u64>,
    /// Number of times that an invalid line was sent.
    garbage: watch::Sender<u64>,
    connections: watch::Sender<usize>,
    reported: watch::Sender<ReceivedReports>,
    behavior: Mutex<PlatformBehavior>,
}

/// Configured behaviour of the platform.
#[derive(Default)]
struct PlatformBehavior {
    is_unavailable: bool,
    refuses: bool,
    is_silent: bool,
    lost_receipts: usize,
}

struct SentState {
    /// Distinguishes two histories.
    mark: u64,
    /// The current items, by kind and id.
    items: BTreeMap<String, Item>,
    /// The changes since the mark, the first of which is version 1.
    log: Vec<Vec<Item>>,
    next: u32,
}

/// Received reports, each batch once.
#[derive(Default)]
struct ReceivedReports {
    through: BTreeMap<String, u64>,
    records: Vec<Record>,
    requests: usize,
}

/// An application of a user, which signs its own tokens.
pub struct TestApp {
    /// Id of its credential.
    pub id: String,
    key: EncodingKey,
}

impl TestApp {
    /// A token with these claims, and defaults for the required claims of an application's tokens.
    pub fn token(&self, claims: Value) -> String {
        let defaults = json!({"type": "app", "clientId": self.id,
            "iat": unix_seconds(), "exp": unix_seconds() + 3600});
        sign(claims, &defaults, &self.key, None)
    }
}

impl FakePlatform {
    /// Starts a platform for the cluster `engine.localhost`, initially only with keys.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        Self::start_on(listener)
    }

    /// Starts a platform on an open listener.
    pub fn start_on(listener: TcpListener) -> Self {
        let (pem, key) = ed25519();
        let public = SigningKey::from_pem(&pem).expect("an Ed25519 key");
        let mut jwk = public.public_jwk().expect("a public key");
        jwk["kid"] = json!(KID);
        let keys = Item::Keys(Keys {
            jwks: json!({"keys": [jwk]}),
        });
        let shared = Arc::new(PlatformState {
            address: listener.local_addr().expect("an address"),
            key,
            sent: Mutex::new(SentState {
                mark: 1,
                items: BTreeMap::new(),
                log: Vec::new(),
                next: 0,
            }),
            version: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            garbage: watch::Sender::new(0),
            connections: watch::Sender::new(0),
            reported: watch::Sender::new(ReceivedReports::default()),
            behavior: Mutex::default(),
        });
        let router = Router::new()
            .route(CHANGES, get(served::changes))
            .route(REPORTS, post(served::reports))
            .route(SIGN_IN, get(sign_in::page).post(sign_in::sign_in))
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("a server");
        });
        let platform = Self {
            shared,
            _server: Arc::new(Server(server)),
        };
        platform.send(vec![keys]);
        platform
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.shared.address)
    }

    /// The enrolment secret of the cluster.
    pub fn secret(&self) -> &'static str {
        ENROLMENT_SECRET
    }

    /// Sends one change, and stores it for engines that connect later.
    pub fn send(&self, items: Vec<Item>) {
        let mut sent = self.shared.sent.lock();
        for item in &items {
            let removed_key = match item {
                Item::ProjectGone { id } => Some(format!("project {id}")),
                Item::PersonGone { id } => Some(format!("person {id}")),
                Item::CredentialGone { id } => Some(format!("credential {id}")),
                Item::WebttyServerGone { id } => Some(format!("server {id}")),
                _ => None,
            };
            if let Some(removed_key) = removed_key {
                sent.items.remove(&removed_key);
                continue;
            }
            let key = match item {
                Item::Project(project) => format!("project {}", project.id),
                Item::Person(person) => format!("person {}", person.id),
                Item::Credential(credential) => format!("credential {}", credential.id),
                Item::WebttyServer(server) => format!("server {}", server.id),
                Item::Ended(ended) => format!("ended {}", ended.id),
                // In the order of the link, it follows its project.
                Item::DomainCertificate(certificate) => {
                    let project = &certificate.project_id;
                    format!("project {project} certificate {}", certificate.id)
                }
                _ => "keys".to_owned(),
            };
            sent.items.insert(key, item.clone());
        }
        sent.log.push(items);
        let version = sent.log.len() as u64;
        self.shared.version.send_replace(version);
    }

    /// Version of the last change.
    pub fn version(&self) -> u64 {
        *self.shared.version.borrow()
    }

    /// Adds a project at `<endpoint>.engine.localhost` (eight hexadecimal digits), in a separate
    /// workspace: ids `prj_<endpoint>` and `wks_<endpoint>`.
    pub fn add_project(&self, endpoint: &str) -> Project {
        self.add_project_with(endpoint, |_| {})
    }

    /// As [`Self::add_project`], with changes. Calling it again with the same endpoint changes the
    /// project.
    pub fn add_project_with(&self, endpoint: &str, change: impl FnOnce(&mut Project)) -> Project {
        let mut project: Project = serde_json::from_value(json!({
            "id": format!("prj_{endpoint}"),
            "endpoint": endpoint,
            "workspace_id": format!("wks_{endpoint}"),
            "plan": "basic",
            "provider": "other",
        }))
        .expect("a project");
        change(&mut project);
        self.send(vec![Item::Project(Box::new(project.clone()))]);
        project
    }

    /// Makes a user a member of the workspaces of these projects, with a role that allows
    /// everything.
    pub fn add_member(&self, user: &str, endpoints: &[&str]) {
        let all: Vec<_> = Permission::ALL.iter().map(|one| one.as_str()).collect();
        let memberships: Vec<_> = endpoints
            .iter()
            .map(|endpoint| (*endpoint, all.as_slice()))
            .collect();
        self.add_person(user, &memberships);
    }

    /// Gives a user roles with these permissions in the workspaces of these projects. Calling it
    /// again for the same user replaces the roles.
    pub fn add_person(&self, user: &str, memberships: &[(&str, &[&str])]) {
        let memberships = memberships
            .iter()
            .map(|(endpoint, permissions)| Membership {
                workspace_id: format!("wks_{endpoint}"),
                permissions: permissions.iter().map(|name| (*name).to_owned()).collect(),
                role: None,
            });
        self.send(vec![Item::Person(Person {
            id: user.to_owned(),
            name: String::new(),
            memberships: memberships.collect(),
            sessions_after: 0,
        })]);
    }

    /// Issues a personal access token without own limits. Returns the id of its credential and the
    /// token.
    pub fn add_pat(&self, user: &str) -> (String, String) {
        self.add_pat_with(user, |_| {})
    }

    /// As [`Self::add_pat`], with changes of the credential.
    pub fn add_pat_with(
        &self,
        user: &str,
        change: impl FnOnce(&mut Credential),
    ) -> (String, String) {
        let number = self.number();
        let endpoint = format!("{number:08x}");
        let claims = json!({"type": "pat", "userId": user, "token_endpoint": endpoint});
        let token = self.mint(claims);
        let proof = CredentialProof::Pat {
            sha256: hex::encode(credentials::digest(&token)),
            token_endpoint: Some(endpoint),
        };
        (self.add_credential(number, user, proof, change), token)
    }

    /// Registers an application of a user.
    pub fn add_app(&self, user: &str) -> TestApp {
        let (pem, key) = ed25519();
        let pair = KeyPair::from_pem(&pem).expect("a key pair");
        let proof = CredentialProof::App {
            public_key: pair.public_key_pem(),
        };
        let id = self.add_credential(self.number(), user, proof, |_| {});
        TestApp { id, key }
    }

    /// Registers a credential with any kind of proof. Returns its id.
    pub fn add_credential_with(
        &self,
        user: &str,
        proof: CredentialProof,
        change: impl FnOnce(&mut Credential),
    ) -> String {
        self.add_credential(self.number(), user, proof, change)
    }

    fn add_credential(
        &self,
        number: u32,
        user: &str,
        proof: CredentialProof,
        change: impl FnOnce(&mut Credential),
    ) -> String {
        let mut credential = Credential {
            id: format!("crd_{number}"),
            user_id: user.to_owned(),
            root: None,
            workspace_id: None,
            proof,
            permissions: None,
            resources: None,
            expires_at: None,
        };
        change(&mut credential);
        let id = credential.id.clone();
        self.send(vec![Item::Credential(Box::new(credential))]);
        id
    }

    /// Revokes a credential.
    pub fn revoke(&self, credential: &str) {
        let id = credential.to_owned();
        self.send(vec![Item::CredentialGone { id }]);
    }

    /// Revokes a token (by its `jti`) or a session of the platform.
    pub fn revoke_token(&self, id: &str) {
        let until = i64::try_from(unix_seconds()).unwrap_or(i64::MAX) + 7200;
        self.send(vec![Item::Ended(EndedToken {
            id: id.to_owned(),
            until,
        })]);
    }

    /// Deletes a project.
    pub fn remove_project(&self, project: &Project) {
        let id = project.id.clone();
        self.send(vec![Item::ProjectGone { id }]);
    }

    /// A token with these claims, signed by the platform. By default it is an `auth` token with a
    /// lifetime of one hour, from a session (`ses_…`) of its user.
    pub fn mint(&self, claims: Value) -> String {
        let mut defaults = json!({"type": "auth", "iat": unix_seconds(), "iss": self.base_url()});
        if claims.get("type").is_none_or(|kind| kind == "auth") {
            defaults["exp"] = json!(unix_seconds() + 3600);
            defaults["sourceCredentialId"] = json!(SESSION);
        }
        sign(claims, &defaults, &self.shared.key, Some(KID))
    }

    /// The address that is the issuer of tokens.
    pub fn base_url(&self) -> String {
        self.url()
    }

    /// Closes every connection. Engines reconnect and continue from their cursor.
    pub fn disconnect_all(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Makes the platform unavailable (it closes and refuses all connections), or available again.
    pub fn set_unavailable(&self, away: bool) {
        self.shared.behavior.lock().is_unavailable = away;
        self.disconnect_all();
    }

    /// Makes the platform refuse the enrolment secret (401), or accept it again.
    pub fn set_refuses(&self, refuses: bool) {
        self.shared.behavior.lock().refuses = refuses;
        self.disconnect_all();
    }

    /// Stops sending on open connections without closing them, or continues.
    pub fn set_silent(&self, mute: bool) {
        self.shared.behavior.lock().is_silent = mute;
    }

    /// Sends an invalid line on every connection.
    pub fn send_invalid_line(&self) {
        self.shared.garbage.send_modify(|count| *count += 1);
    }

    /// Accepts the next batches without sending receipts.
    pub fn lose_receipts(&self, count: usize) {
        self.shared.behavior.lock().lost_receipts = count;
    }

    /// Invalidates all earlier cursors, as if the database was restored from a backup.
    pub fn restore(&self) {
        let mut sent = self.shared.sent.lock();
        sent.mark += 1;
        drop(sent);
        self.disconnect_all();
    }

    /// Waits until this number of engines is linked.
    pub async fn wait_for_engines(&self, engines: usize) {
        let mut connections = self.shared.connections.subscribe();
        let reached = connections.wait_for(|count| *count == engines);
        within("engines that follow", reached)
            .await
            .expect("a sender");
    }

    /// Number of received reports, including duplicates.
    pub fn reports(&self) -> usize {
        self.shared.reported.borrow().requests
    }

    /// Waits until this number of reports has been received.
    pub async fn wait_for_reports(&self, requests: usize) {
        let mut reported = self.shared.reported.subscribe();
        let reached = reported.wait_for(|reported| reported.requests >= requests);
        within("reports", reached).await.expect("a sender");
    }

    /// All reported records so far, in order of arrival.
    pub fn records(&self) -> Vec<Record> {
        self.shared.reported.borrow().records.clone()
    }

    /// Waits for the first record for which `choose` returns a value.
    pub async fn wait_for_record<T>(&self, choose: impl Fn(&Record) -> Option<T>) -> T {
        let mut reported = self.shared.reported.subscribe();
        let find = |reported: &ReceivedReports| reported.records.iter().find_map(&choose);
        let reached = reported.wait_for(|reported| find(reported).is_some());
        let reached = within("record", reached).await.expect("a sender");
        find(&reached).expect("the record was found")
    }

    fn number(&self) -> u32 {
        let mut sent = self.shared.sent.lock();
        sent.next += 1;
        sent.next
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ed25519() -> (String, EncodingKey) {
    let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key can be made");
    let pem = pair.serialize_pem();
    let key = EncodingKey::from_ed_pem(pem.as_bytes()).expect("a key in PEM");
    (pem, key)
}

fn sign(mut claims: Value, defaults: &Value, key: &EncodingKey, kid: Option<&str>) -> String {
    let object = claims.as_object_mut().expect("an object of claims");
    for (name, value) in defaults.as_object().into_iter().flatten() {
        object.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = kid.map(str::to_owned);
    jsonwebtoken::encode(&header, &claims, key).expect("a token")
}

const KID: &str = "platform-1";

/// The default session of tokens from [`FakePlatform::mint`].
const SESSION: &str = "ses_01h455vb4pex5vsknk084sn02q";

const ENROLMENT_SECRET: &str = "an-enrolment-secret-of-tests";
