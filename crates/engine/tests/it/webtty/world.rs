//! A project with a registered server, and users who connect to it.

use std::sync::Arc;

use api::link::{Item, WebttyServer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::clock::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::{FakePlatform, RawVisitor, TestEngine, within};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::Request;

use super::link::{Duplex, Link, Person};
use super::server::{Keys, Shell, TestServer};
use crate::document::compare;

/// Endpoint of the project.
pub(crate) const A: &str = "aaaaaaaa";
/// The server's id.
pub(crate) const SERVER: &str = "wsv_build";

/// Ann owns the server and opens sessions; Bob is a member of the same workspace.
pub(crate) struct World {
    pub(crate) platform: FakePlatform,
    pub(crate) engine: TestEngine,
    /// Data directory of the engine, which includes recordings.
    pub(crate) data: TempDir,
    pub(crate) server: TestServer,
    pub(crate) keys: Keys,
    pub(crate) ann: String,
    pub(crate) anns: String,
    pub(crate) bob: String,
    pub(crate) bobs: String,
    /// All API answers so far.
    pub(crate) answers: Mutex<Vec<String>>,
}

/// Permissions of a member at an engine, below the admin role.
pub(crate) const MEMBER: &[&str] = &[
    "tunnels.resources.read-only",
    "tunnels.streams.create-delete",
    "tunnels.tunnels.create-delete",
    "webtty.sessions.read-only",
    "webtty.sessions.read-write",
];

impl World {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}, true, "plain").await
    }

    pub(crate) async fn with(
        change: impl FnOnce(&mut WebttyServer),
        publish: bool,
        transport: &str,
    ) -> Self {
        let platform = FakePlatform::start().await;
        platform.add_project(A);
        platform.add_person("usr_ann", &[(A, MEMBER)]);
        platform.add_person("usr_bob", &[(A, MEMBER)]);
        let (anns, ann) = platform.add_pat("usr_ann");
        let (bobs, bob) = platform.add_pat("usr_bob");
        let keys = Keys::new();
        let mut server_record = record(&keys);
        change(&mut server_record);
        platform.send(vec![Item::WebttyServer(Box::new(server_record))]);
        let data = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let engine = TestEngine::managed_at(&platform, Some(data.path()), "", clock).await;
        engine.wait_for_changes().await;
        let agent = engine.agent_at(A, &ann).await;
        let server =
            TestServer::start(agent, &keys, (&project(), SERVER), publish, transport).await;
        Self {
            platform,
            engine,
            data,
            server,
            keys,
            ann,
            anns,
            bob,
            bobs,
            answers: Mutex::default(),
        }
    }

    /// Opens a session as Ann, with a running terminal.
    pub(crate) async fn session(&mut self) -> (Person, Shell, String) {
        let mut ann = self.connect_client("", &self.ann).await.unwrap();
        ann.open(true).await;
        let shell = self.server.shell().await;
        let (status, sessions) = self.get("/api/webtty/sessions", &self.ann.clone()).await;
        assert_eq!(status, 200);
        let id = sessions[0]["id"].as_str().unwrap().to_owned();
        (ann, shell, id)
    }

    /// Connects to the published host with a token, without sending a message. Otherwise returns
    /// the status of the refusal.
    pub(crate) async fn connect_client(&self, query: &str, token: &str) -> Result<Person, u16> {
        let host = self.server.hostname.clone().unwrap();
        let visitor = self.engine.visitor().http1(&host).await;
        let request = request(&format!("wss://{host}/{query}"), Some(token));
        upgrade(visitor, request).await
    }

    /// Connects to the stream of a participant.
    pub(crate) async fn connect_participant(
        &self,
        session: &str,
        participant: &str,
        token: Option<&str>,
    ) -> Result<Person, u16> {
        let host = host();
        let visitor = self.engine.visitor().http1(&host).await;
        let path = format!("/api/webtty/sessions/{session}/participants/{participant}/stream");
        upgrade(visitor, request(&format!("wss://{host}{path}"), token)).await
    }

    /// Attaches and joins. Returns the participant's id.
    pub(crate) async fn attach_and_join(&self, session: &str, token: &str) -> (Person, String) {
        let (participant, grant) = self.request_attach(session, token).await;
        let mut person = self
            .connect_participant(session, &participant, None)
            .await
            .unwrap();
        person.attach(session, &participant, &grant).await;
        person.notice(tty::message::NoticeKind::Snapshot).await;
        (person, participant)
    }

    /// Requests to attach. Returns the participant's id and the grant.
    pub(crate) async fn request_attach(&self, session: &str, token: &str) -> (String, Vec<u8>) {
        let path = format!("/api/webtty/sessions/{session}/participants");
        let (status, participant) = self.post(&path, token, &json!({"role": "spectator"})).await;
        assert_eq!(status, 200, "{participant}");
        assert_eq!(participant["role"], "spectator");
        assert_eq!(participant["grant_state"], "requested");
        let grant = participant["attach_grant"].as_str().unwrap();
        let id = participant["id"].as_str().unwrap().to_owned();
        (id, STANDARD.decode(grant).unwrap())
    }

    /// Requests control. Returns the request.
    pub(crate) async fn request_control(
        &self,
        session: &str,
        participant: &str,
        token: &str,
        more: Value,
    ) -> (u16, Value) {
        let mut body = json!({"participant_id": participant, "reason": "to help"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let path = format!("/api/webtty/sessions/{session}/control-requests");
        self.post(&path, token, &body).await
    }

    pub(crate) async fn resolves(
        &self,
        session: &str,
        request: &Value,
        token: &str,
        body: Value,
    ) -> (u16, Value) {
        let id = request["id"].as_str().unwrap();
        let path = format!("/api/webtty/sessions/{session}/control-requests/{id}");
        self.post(&path, token, &body).await
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        self.call("GET", path, token, None).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: &Value) -> (u16, Value) {
        self.call("POST", path, token, Some(body)).await
    }

    /// The listed session, once it matches `wanted`.
    pub(crate) async fn wait_for_session(
        &self,
        session: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("/api/webtty/sessions/{session}");
        let token = self.ann.clone();
        within("the session", async {
            loop {
                let (status, shown) = self.get(&path, &token).await;
                assert_eq!(status, 200);
                if wanted(&shown) {
                    return shown;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let text = body.map(Value::to_string).unwrap_or_default();
        self.call_raw(method, path, token, &text).await
    }

    /// A call with any text as its body.
    pub(crate) async fn call_raw(
        &self,
        method: &str,
        path: &str,
        token: &str,
        text: &str,
    ) -> (u16, Value) {
        let host = host();
        let mut caller = self.engine.visitor().http1(&host).await;
        let fields = format!(
            "authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n",
            text.len()
        );
        caller.request(method, path, &host, &fields).await;
        caller.send(text).await;
        let answer = caller.answer().await;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let value = serde_json::from_str(&said).unwrap_or(Value::Null);
        compare(method, path, answer.status, &value);
        self.answers.lock().push(said);
        (answer.status, value)
    }
}

pub(crate) fn host() -> String {
    format!("{A}.engine.localhost")
}

pub(crate) fn project() -> String {
    format!("prj_{A}")
}

/// The record of the server, as the platform sends it.
pub(crate) fn record(keys: &Keys) -> WebttyServer {
    WebttyServer {
        id: SERVER.to_owned(),
        project_id: project(),
        name: "build".to_owned(),
        status: "active".to_owned(),
        recording_policy: "private".to_owned(),
        encryption_policy: "disabled".to_owned(),
        access_policy: "project_members".to_owned(),
        keys: Some(keys.told()),
    }
}

pub(crate) fn request(address: &str, token: Option<&str>) -> Request<()> {
    let mut request = address.into_client_request().unwrap();
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
    }
    request
}

pub(crate) async fn upgrade(visitor: RawVisitor, request: Request<()>) -> Result<Person, u16> {
    let stream: Box<dyn Duplex> = Box::new(visitor.into_stream());
    let opening = tokio_tungstenite::client_async(request, stream);
    match within("the upgrade", opening).await {
        Ok((socket, _)) => Ok(Person::at(Link::websocket(socket))),
        Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}
