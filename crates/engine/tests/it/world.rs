//! A managed engine with one project, a user who may do everything in it, and a clock.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::link::Project;
use client::{Properties, Target};
use engine::clock::ManualClock;
use jiff::Timestamp;
use rustls::pki_types::ServerName;
use testing::{FakePlatform, RawVisitor, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

/// Endpoint of the project.
pub(crate) const A: &str = "aaaaaaaa";

/// Source address of a trusted proxy, for [`World::visitor_from`].
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub(crate) struct World {
    pub(crate) platform: FakePlatform,
    pub(crate) engine: TestEngine,
    /// Stands still, a minute ahead, so that tokens created during the test are already valid.
    pub(crate) clock: Arc<ManualClock>,
    /// A token of `usr_ann`.
    pub(crate) token: String,
}

impl World {
    /// Starts the engine with further configuration sections in YAML, next to `edge`.
    pub(crate) async fn with(sections: &str) -> Self {
        let (platform, token) = platform().await;
        let clock = clock();
        let time = Arc::clone(&clock);
        let engine = TestEngine::managed_at(&platform, None, &with_proxy(sections), time).await;
        engine.wait_for_changes().await;
        Self {
            platform,
            engine,
            clock,
            token,
        }
    }

    /// As [`Self::with`], with the time limits of [`TestEngine::managed_unhurried`].
    pub(crate) async fn unhurried(sections: &str) -> Self {
        let (platform, token) = platform().await;
        let clock = clock();
        let time = Arc::clone(&clock);
        let engine = TestEngine::managed_unhurried(&platform, &with_proxy(sections), time).await;
        Self {
            platform,
            engine,
            clock,
            token,
        }
    }

    pub(crate) async fn publish(&self, properties: Properties, service: &Upstream) -> TestTunnel {
        let agent = self.engine.agent_at(A, &self.token).await;
        let target: Target = service.addr().to_string().parse().unwrap();
        TestTunnel::open(agent, properties, target).await
    }

    /// Changes the project, and waits until the engine has received the change.
    pub(crate) async fn change(&self, change: impl FnOnce(&mut Project)) {
        self.platform.add_project_with(A, change);
        self.engine.wait_for_changes().await;
    }

    pub(crate) fn set_forward(&self, by: Duration) {
        use engine::clock::Clock as _;
        self.clock.set(self.clock.now() + by);
    }

    /// A visitor with an address that a trusted proxy reports.
    pub(crate) async fn visitor_from(&self, address: &str, host: &str) -> RawVisitor {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((PROXY, 0).into()).unwrap();
        let mut stream = socket.connect(self.engine.addr()).await.unwrap();
        let header = format!("PROXY TCP4 {address} 198.51.100.1 40000 443\r\n");
        stream.write_all(header.as_bytes()).await.unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let connector = TlsConnector::from(self.engine.ca().client(&["http/1.1"]));
        let connecting = connector.connect(name, stream);
        RawVisitor::new(within("TLS session", connecting).await.unwrap())
    }

    /// True if the engine closes a connection from a reported address before any byte of TLS.
    pub(crate) async fn is_closed_unread(&self, address: &str) -> bool {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((PROXY, 0).into()).unwrap();
        let mut stream = socket.connect(self.engine.addr()).await.unwrap();
        let header = format!("PROXY TCP4 {address} 198.51.100.1 40000 443\r\n");
        stream.write_all(header.as_bytes()).await.unwrap();
        let read = within("end of the connection", stream.read(&mut [0; 1])).await;
        read.unwrap_or(0) == 0
    }
}

/// A platform with the project and its user, and a token of the user.
async fn platform() -> (FakePlatform, String) {
    let platform = FakePlatform::start().await;
    platform.add_project(A);
    platform.add_member("usr_ann", &[A]);
    let (_, token) = platform.add_pat("usr_ann");
    (platform, token)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::now() + Duration::from_mins(1)))
}

fn with_proxy(sections: &str) -> String {
    format!("edge: {{trusted_proxies: [{PROXY}]}}\n{sections}")
}
