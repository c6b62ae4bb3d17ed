//! An engine inside the test process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use client::properties::HttpVersion;
use client::{Agent, Config, HostPort, Properties, Target, Token, Trust};
use daemon::shutdown::Shutdown;
use engine::clock::{Clock, SystemClock};
use engine::cluster::ClusterMember;
use engine::config::{EngineConfig, FixedTimeouts};
use engine::{RunningEngine, StartError};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::fixtures::{BASE_HOST, unix_seconds};
use crate::{FakePlatform, RawVisitor, TestCa, TestTunnel, Visitor, within};

/// An engine on a free port of the loopback interface, for the host `engine.localhost`: a community
/// engine, or a managed one that follows a [`FakePlatform`].
///
/// Dropping it stops it; [`Self::stop`] shuts it down gracefully.
pub struct TestEngine {
    running: Option<RunningEngine>,
    shutdown: Shutdown,
    addr: SocketAddr,
    ca: TestCa,
    platform: Option<FakePlatform>,
    /// Contains the configuration and its files.
    directory: TempDir,
}

/// The surroundings of an engine.
struct EngineSetup {
    ip: Ipv4Addr,
    /// The platform, and the directory with its token.
    followed: Option<(FakePlatform, TempDir)>,
    member: Option<ClusterMember>,
}

impl Default for EngineSetup {
    fn default() -> Self {
        Self {
            ip: Ipv4Addr::LOCALHOST,
            followed: None,
            member: None,
        }
    }
}

impl TestEngine {
    /// Starts an engine with the default configuration.
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts an engine with additional configuration sections, in YAML.
    pub async fn start_with(sections: &str) -> Self {
        Self::start_at(sections, &[], Arc::new(SystemClock)).await
    }

    /// As [`Self::start_with`], with environment variables that override the file, and with another
    /// clock.
    pub async fn start_at(
        sections: &str,
        variables: &[(&str, &str)],
        clock: Arc<dyn Clock>,
    ) -> Self {
        let settings = (variables, FixedTimeouts::default());
        Self::launch(
            &community(),
            sections,
            settings,
            clock,
            EngineSetup::default(),
        )
        .await
    }

    /// As [`Self::start_with`], with time limits that an interrupted test process does not exceed,
    /// where the configuration has no key for them.
    pub async fn start_unhurried(sections: &str) -> Self {
        let clock = Arc::new(SystemClock);
        let settings: (&[(&str, &str)], _) = (&[], UNHURRIED);
        Self::launch(
            &community(),
            sections,
            settings,
            clock,
            EngineSetup::default(),
        )
        .await
    }

    /// Starts a community engine as a member of a cluster, on an address of the loopback network.
    pub(crate) async fn member(ip: Ipv4Addr, sections: &str, member: ClusterMember) -> Self {
        let setup = EngineSetup {
            ip,
            member: Some(member),
            ..EngineSetup::default()
        };
        let settings: (&[(&str, &str)], _) = (&[], FixedTimeouts::default());
        let clock = Arc::new(SystemClock);
        Self::launch(&community(), sections, settings, clock, setup).await
    }

    /// Starts a managed engine, and waits until it has the platform's state.
    pub async fn managed(platform: &FakePlatform) -> Self {
        Self::managed_with(platform, "").await
    }

    /// As [`Self::managed`], with additional configuration sections, in YAML.
    pub async fn managed_with(platform: &FakePlatform, sections: &str) -> Self {
        let engine = Self::managed_at(platform, None, sections, Arc::new(SystemClock)).await;
        engine.wait_for_changes().await;
        engine
    }

    /// Starts a managed engine that stores its state in a directory of the test (or in its own
    /// one), with another clock. Does not wait for the platform.
    pub async fn managed_at(
        platform: &FakePlatform,
        data_dir: Option<&Path>,
        sections: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let settings: (&[(&str, &str)], _) = (&[], FixedTimeouts::default());
        let setup = EngineSetup::default();
        Self::launch_managed(platform, data_dir, sections, settings, clock, setup).await
    }

    /// As [`Self::managed_with`], with another clock and the time limits of
    /// [`Self::start_unhurried`].
    pub async fn managed_unhurried(
        platform: &FakePlatform,
        sections: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let settings: (&[(&str, &str)], _) = (&[], UNHURRIED);
        let setup = EngineSetup::default();
        let engine = Self::launch_managed(platform, None, sections, settings, clock, setup).await;
        engine.wait_for_changes().await;
        engine
    }

    /// As [`Self::managed_with`], with environment variables that override the file.
    pub async fn managed_with_variables(
        platform: &FakePlatform,
        sections: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let clock = Arc::new(SystemClock);
        let settings = (variables, FixedTimeouts::default());
        let setup = EngineSetup::default();
        let engine = Self::launch_managed(platform, None, sections, settings, clock, setup).await;
        engine.wait_for_changes().await;
        engine
    }

    /// As [`Self::managed`], as a member of a cluster, on an address of the loopback network.
    pub(crate) async fn managed_member(
        ip: Ipv4Addr,
        platform: &FakePlatform,
        member: ClusterMember,
    ) -> Self {
        let setup = EngineSetup {
            ip,
            member: Some(member),
            ..EngineSetup::default()
        };
        let settings: (&[(&str, &str)], _) = (&[], FixedTimeouts::default());
        let clock = Arc::new(SystemClock);
        let engine = Self::launch_managed(platform, None, "", settings, clock, setup).await;
        engine.wait_for_changes().await;
        engine
    }

    async fn launch_managed(
        platform: &FakePlatform,
        data_dir: Option<&Path>,
        sections: &str,
        settings: (&[(&str, &str)], FixedTimeouts),
        clock: Arc<dyn Clock>,
        setup: EngineSetup,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let token = directory.path().join("enrolment-token");
        std::fs::write(&token, platform.secret()).expect("a directory that can be written");
        let own = directory.path().join("state");
        let control_plane = format!(
            "control_plane: {{url: '{}', token_file: '{}', data_dir: '{}'}}",
            platform.url(),
            token.display(),
            data_dir.unwrap_or(&own).display(),
        );
        let setup = EngineSetup {
            followed: Some((platform.clone(), directory)),
            ..setup
        };
        Self::launch(&control_plane, sections, settings, clock, setup).await
    }

    async fn launch(
        kind: &str,
        sections: &str,
        (variables, fixed): (&[(&str, &str)], FixedTimeouts),
        clock: Arc<dyn Clock>,
        setup: EngineSetup,
    ) -> Self {
        let EngineSetup {
            ip,
            followed,
            member,
        } = setup;
        let (platform, directory) = followed.unzip();
        let directory = directory.unwrap_or_else(|| tempfile::tempdir().expect("a directory"));
        let ca = TestCa::new();
        let names = [BASE_HOST, "*.engine.localhost", "*.t.engine.localhost"];
        // Time-outs are long, so that they do not expire during a test. A name is known to be
        // unused from the start, because no engine ran before.
        let unhurried = if sections.contains("timeouts:") {
            ""
        } else {
            "timeouts: {stream_request_seconds: 600, startup_grace_seconds: 0}"
        };
        let (cert, key) = ca.issue(&names).write_to(directory.path());
        let file = directory.path().join("engine.yaml");
        let yaml = format!(
            "engine: {{host: {BASE_HOST}}}\n\
             tls: {{listen_addr: '{ip}:0'}}\n\
             certs: {{static: {{enabled: true, cert_file: '{}', key_file: '{}'}}}}\n\
             {kind}\n\
             {unhurried}\n\
             {sections}\n",
            cert.display(),
            key.display(),
        );
        std::fs::write(&file, yaml).expect("a directory that can be written");
        let variables = variables
            .iter()
            .map(|(name, value)| (String::from(*name), String::from(*value)));
        let mut config = EngineConfig::load(Some(&file), variables)
            .unwrap_or_else(|error| panic!("the configuration of the test: {error}"));
        config.timeouts.fixed = fixed;
        let shutdown = Shutdown::new(config.timeouts.drain);
        let stop = shutdown.clone();
        let running = match member {
            Some(member) => Box::pin(engine::start_in_cluster(config, stop, clock, member)).await,
            None => Box::pin(engine::start_with_clock(config, stop, clock)).await,
        };
        let running = running.unwrap_or_else(|error| panic!("the engine: {error}"));
        let addr = running.tls_addr();
        Self {
            running: Some(running),
            shutdown,
            addr,
            ca,
            platform,
            directory,
        }
    }

    /// Address of agents, visitors and the Engine API.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base host.
    pub fn host(&self) -> &'static str {
        BASE_HOST
    }

    /// The certificate authority of the engine.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The plain and metrics listeners, and other information about the running engine.
    pub fn running(&self) -> &RunningEngine {
        self.running
            .as_ref()
            .expect("the engine runs until it is stopped")
    }

    /// A visitor of published names.
    pub fn visitor(&self) -> Visitor {
        Visitor::new(self.addr, &self.ca)
    }

    /// A token with these claims, and with defaults for the identity and a lifetime of one hour.
    pub fn token(&self, mut claims: Value) -> String {
        let named = claims.get("userId").is_some() || claims.get("clientId").is_some();
        let defaults = json!({"type": "auth", "exp": unix_seconds() + 3600});
        let identity = if named {
            json!({})
        } else {
            json!({"userId": "usr_tester"})
        };
        let object = claims.as_object_mut().expect("an object of claims");
        for (name, value) in [defaults, identity]
            .iter()
            .filter_map(Value::as_object)
            .flatten()
        {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).expect("a token")
    }

    /// A token with exactly this header and these claims, and a valid HS256 signature.
    pub fn signed(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::HS256);
        format!("{signed}.{}", signature.expect("a signature"))
    }

    /// The configuration of an agent, with a token that allows everything.
    pub fn agent_config(&self) -> Config {
        let address = HostPort::new(BASE_HOST, self.addr.port()).expect("an address");
        let mut config = Config::new(address, Token::new(&self.token(json!({}))));
        config.trust = Trust::Roots(vec![self.ca.certificate()]);
        config
    }

    /// The text of the metrics.
    pub async fn scrape(&self) -> String {
        let addr = self.running().metrics_addr().expect("metrics");
        let stream = TcpStream::connect(addr).await.expect("a connection");
        let answer = RawVisitor::new(stream).get("/metrics", "localhost").await;
        assert_eq!(answer.status, 200);
        answer.text().to_owned()
    }

    /// Connects an agent.
    pub async fn agent(&self) -> Agent {
        let connecting = Agent::connect(self.agent_config());
        within("control channel", connecting)
            .await
            .expect("the engine accepts the agent")
    }

    /// Waits until the engine has applied everything that the platform has sent.
    pub async fn wait_for_changes(&self) {
        let platform = self.platform.as_ref().expect("a managed engine");
        let status = self.running().link().expect("a managed engine");
        within(
            "the changes of the platform",
            status.wait_for_version(platform.version()),
        )
        .await;
    }

    /// The configuration of an agent for a project of a managed engine.
    pub fn agent_config_at(&self, endpoint: &str, token: &str) -> Config {
        let host = format!("{endpoint}.{BASE_HOST}");
        let address = HostPort::new(&host, self.addr.port()).expect("an address");
        let mut config = Config::new(address, Token::new(token));
        config.trust = Trust::Roots(vec![self.ca.certificate()]);
        config
    }

    /// Connects an agent to a project of a managed engine.
    pub async fn agent_at(&self, endpoint: &str, token: &str) -> Agent {
        let connecting = Agent::connect(self.agent_config_at(endpoint, token));
        within("control channel", connecting)
            .await
            .expect("the engine accepts the agent")
    }

    /// Publishes a service with HTTP/1.1, with a separate agent.
    pub async fn publish(&self, service: SocketAddr) -> TestTunnel {
        self.publish_as(Properties::http(), service).await
    }

    /// Publishes a service with HTTP/2 without TLS.
    pub async fn publish_h2c(&self, service: SocketAddr) -> TestTunnel {
        let h2c = Properties::http().http_version(HttpVersion::H2c);
        self.publish_as(h2c, service).await
    }

    /// Publishes a service with HTTP over TLS.
    pub async fn publish_tls(&self, service: SocketAddr) -> TestTunnel {
        self.publish_as(Properties::http().upstream_tls(true), service)
            .await
    }

    /// Opens a tunnel to a service, with a separate agent.
    pub async fn publish_as(&self, properties: Properties, service: SocketAddr) -> TestTunnel {
        let target: Target = service.to_string().parse().expect("a target");
        TestTunnel::open(self.agent().await, properties, target).await
    }

    /// Drains the engine and waits until it has stopped. Only WebSockets of tunnels have a time
    /// limit, that of `timeouts.drain_seconds`.
    pub async fn stop(mut self) {
        self.shutdown.request();
        if let Some(running) = self.running.take() {
            within("end of the engine", running.stopped()).await;
        }
    }

    /// Stops the engine at once, as far as other processes can tell: its connections are closed within
    /// their messages.
    pub async fn kill(mut self) {
        self.shutdown.request();
        self.shutdown.request();
        if let Some(running) = self.running.take() {
            within("end of the engine", running.stopped()).await;
        }
    }

    /// Simulates a killed process and the start of another one on the same address with the files
    /// on disk. The address must be leased, because nothing listens there for a while.
    pub async fn kill_and_restart(mut self) -> Self {
        self.shutdown.request();
        self.shutdown.request();
        if let Some(running) = self.running.take() {
            within("end of the engine", running.stopped()).await;
        }
        let file = self.directory.path().join("engine.yaml");
        let yaml = std::fs::read_to_string(&file).expect("the configuration");
        let yaml = yaml.replace("'127.0.0.1:0'", &format!("'{}'", self.addr));
        std::fs::write(&file, yaml).expect("a directory that can be written");
        let config = EngineConfig::load(Some(&file), []).expect("the configuration was valid");
        self.shutdown = Shutdown::new(config.timeouts.drain);
        let starting = async {
            loop {
                match engine::start(config.clone(), self.shutdown.clone()).await {
                    Ok(running) => return running,
                    // A killed process would release these resources immediately, but the tasks
                    // here need a moment.
                    Err(StartError::DataDir { .. } | StartError::Listen { .. }) => {
                        tokio::task::yield_now().await;
                    }
                    Err(error) => panic!("the engine: {error}"),
                }
            }
        };
        self.running = Some(Box::pin(within("start of the engine", starting)).await);
        self
    }

    /// The directory of its configuration, certificate (`cert.pem`) and key (`key.pem`).
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        // The second request ends the drain immediately.
        self.shutdown.request();
        self.shutdown.request();
    }
}

fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// The section of a community engine.
fn community() -> String {
    format!("auth: {{jwt: {{enabled: true, token_jwt_secret: {SECRET}}}}}")
}

/// Longer than any test takes.
const UNHURRIED: FixedTimeouts = FixedTimeouts {
    update: Duration::from_mins(10),
    first_request: Duration::from_mins(10),
    websocket_close: Duration::from_mins(10),
    stream_open: Duration::from_mins(10),
    failing_tunnel: Duration::from_mins(10),
};

/// Only for engines of a single test.
const SECRET: &str = "a-secret-of-tests-that-is-long-enough-for-hs256";
