//! Two engines of one cluster.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use client::{Properties, Target};
use engine::cluster::{
    ClusterDirectory, ClusterFiles, ClusterMember, PeerAddress, RemoteTunnel, engine_name,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;
use types::tunnel::Protocol;

use crate::{FakePlatform, TestCa, TestEngine, TestTunnel, Visitor, within};

/// Id of the clusters of tests.
pub const CLUSTER: &str = "tests";

/// Id of the engine that visitors reach.
pub const VISITED: &str = "engine-1";

/// Id of the engine that agents connect to.
pub const SERVING: &str = "engine-2";

/// Address of the engine that visitors reach.
const VISITED_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Project of community engines.
const PROJECT: &str = "default";

/// Two engines of one cluster, in this process. Agents connect to the second one and visitors to the
/// first one, which has another address of the loopback network.
pub struct TestCluster {
    visited: TestEngine,
    serving: TestEngine,
    authority: ClusterAuthority,
    /// The directory of the visited engine.
    directory: Arc<TestDirectory>,
    serving_directory: Arc<TestDirectory>,
}

/// The authority of a cluster, with the files of its engines.
pub struct ClusterAuthority {
    ca: TestCa,
    files: TempDir,
}

/// The directory of one engine, which the test fills.
#[derive(Debug)]
pub struct TestDirectory {
    names: Mutex<HashMap<String, Arc<RemoteTunnel>>>,
    peers: watch::Sender<Arc<[PeerAddress]>>,
    ports: watch::Sender<Arc<[Arc<RemoteTunnel>]>>,
}

impl TestCluster {
    /// Starts both engines, and waits until they are connected.
    pub async fn start() -> Self {
        Self::start_with("", "").await
    }

    /// The same, with additional configuration sections of the visited and of the serving engine, in
    /// YAML.
    pub async fn start_with(of_visited: &str, of_serving: &str) -> Self {
        let authority = ClusterAuthority::new();
        let (member, serving_directory) = authority.member(SERVING);
        let serving = TestEngine::member(Ipv4Addr::LOCALHOST, of_serving, member).await;
        let (member, directory) = authority.member(VISITED);
        let visited = TestEngine::member(VISITED_IP, of_visited, member).await;
        let cluster = Self {
            visited,
            serving,
            authority,
            directory,
            serving_directory,
        };
        cluster.link().await;
        cluster
    }

    /// As [`Self::start`], with managed engines that follow a platform.
    pub async fn managed(platform: &FakePlatform) -> Self {
        let authority = ClusterAuthority::new();
        let (member, serving_directory) = authority.member(SERVING);
        let serving = TestEngine::managed_member(Ipv4Addr::LOCALHOST, platform, member).await;
        let (member, directory) = authority.member(VISITED);
        let visited = TestEngine::managed_member(VISITED_IP, platform, member).await;
        let cluster = Self {
            visited,
            serving,
            authority,
            directory,
            serving_directory,
        };
        cluster.link().await;
        cluster
    }

    /// Connects the visited engine to the serving one.
    async fn link(&self) {
        let address = self.serving.running().peers_addr();
        let address = address.expect("a member of a cluster");
        self.directory.set_peers([(SERVING, address)]);
        self.wait_for_link(true).await;
    }

    /// Waits until the visited engine is connected to the serving one, or no longer connected.
    pub async fn wait_for_link(&self, is_connected: bool) {
        let waiting = self.visited.running().wait_for_peer(SERVING, is_connected);
        within("change of the link between the engines", waiting).await;
    }

    /// The engine that visitors reach.
    pub fn visited(&self) -> &TestEngine {
        &self.visited
    }

    /// The engine that agents connect to.
    pub fn serving(&self) -> &TestEngine {
        &self.serving
    }

    /// Both engines.
    pub fn into_engines(self) -> (TestEngine, TestEngine) {
        (self.visited, self.serving)
    }

    /// The authority of the cluster.
    pub fn authority(&self) -> &ClusterAuthority {
        &self.authority
    }

    /// The directory of the visited engine.
    pub fn directory(&self) -> &Arc<TestDirectory> {
        &self.directory
    }

    /// The directory of the serving engine. At first it has no other engine.
    pub fn serving_directory(&self) -> &Arc<TestDirectory> {
        &self.serving_directory
    }

    /// A visitor of the visited engine.
    pub fn visitor(&self) -> Visitor {
        self.visited.visitor()
    }

    /// Publishes a service with HTTP/1.1 at the serving engine, and tells the visited one.
    pub async fn publish(&self, service: SocketAddr) -> TestTunnel {
        self.publish_as(Properties::http(), service).await
    }

    /// Opens a tunnel at the serving engine, and tells the visited one.
    pub async fn publish_as(&self, properties: Properties, service: SocketAddr) -> TestTunnel {
        let target: Target = service.to_string().parse().expect("a target");
        let tunnel = TestTunnel::open(self.serving.agent().await, properties, target).await;
        self.announce(&tunnel);
        tunnel
    }

    /// Tells the visited engine a tunnel of the serving one.
    pub fn announce(&self, tunnel: &TestTunnel) {
        let entry = Arc::new(self.entry(tunnel));
        if entry.view().properties.protocol == Some(Protocol::Tcp) {
            self.directory.set_ports([entry]);
        } else {
            self.directory.set_name(tunnel.hostname(), Some(entry));
        }
    }

    /// The entry of a tunnel of the serving engine.
    pub fn entry(&self, tunnel: &TestTunnel) -> RemoteTunnel {
        let running = self.serving.running();
        let entry = running.directory_entry(PROJECT, &tunnel.online().tunnel_id, Some(1));
        entry.expect("the tunnel is online")
    }
}

impl ClusterAuthority {
    /// A new authority.
    pub fn new() -> Self {
        Self {
            ca: TestCa::new(),
            files: tempfile::tempdir().expect("a directory"),
        }
    }

    /// The authority.
    pub fn ca(&self) -> &TestCa {
        &self.ca
    }

    /// The certificate of an engine with its key.
    pub fn files(&self, engine: &str) -> ClusterFiles {
        let folder = self.files.path().join(engine);
        std::fs::create_dir_all(&folder).expect("a directory that can be written");
        let issued = self.ca.issue(&[&engine_name(CLUSTER, engine)]);
        let (certificate, key) = issued.write_to(&folder);
        let authority: PathBuf = folder.join("ca.pem");
        std::fs::write(&authority, self.ca.pem()).expect("a directory that can be written");
        ClusterFiles {
            authority,
            certificate,
            key,
        }
    }

    /// The section `cluster` of an engine's configuration, in YAML, with a store at these addresses.
    /// `advertise` is the address for the other engines; port 0 is that of the listener.
    pub fn section(&self, engine: &str, advertise: &str, store: &[String]) -> String {
        let files = self.files(engine);
        format!(
            "cluster: {{name: {CLUSTER}, engine: {engine}, listen_addr: '127.0.0.1:0', \
             advertise: '{advertise}', ca_file: '{}', cert_file: '{}', key_file: '{}', \
             etcd: {{endpoints: ['{}']}}}}",
            files.authority.display(),
            files.certificate.display(),
            files.key.display(),
            store.join("', '"),
        )
    }

    /// An engine of the cluster, and its directory.
    pub fn member(&self, engine: &str) -> (ClusterMember, Arc<TestDirectory>) {
        let directory = Arc::new(TestDirectory::default());
        let member = ClusterMember {
            cluster: CLUSTER.to_owned(),
            engine: engine.to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            files: self.files(engine),
            directory: Arc::clone(&directory) as Arc<dyn ClusterDirectory>,
        };
        (member, directory)
    }
}

impl Default for ClusterAuthority {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for TestDirectory {
    fn default() -> Self {
        Self {
            names: Mutex::default(),
            peers: watch::Sender::new(Arc::from([])),
            ports: watch::Sender::new(Arc::from([])),
        }
    }
}

impl TestDirectory {
    /// Sets or removes the entry of a host name.
    pub fn set_name(&self, hostname: &str, entry: Option<Arc<RemoteTunnel>>) {
        let mut names = self.names.lock();
        match entry {
            Some(entry) => drop(names.insert(hostname.to_owned(), entry)),
            None => drop(names.remove(hostname)),
        }
    }

    /// Sets the other engines.
    pub fn set_peers(&self, peers: impl IntoIterator<Item = (&'static str, SocketAddr)>) {
        let peers = peers.into_iter().map(|(engine, address)| PeerAddress {
            engine: engine.to_owned(),
            address: address.to_string(),
            zone: None,
        });
        self.peers.send_replace(peers.collect());
    }

    /// Sets the TCP tunnels of other engines.
    pub fn set_ports(&self, entries: impl IntoIterator<Item = Arc<RemoteTunnel>>) {
        self.ports.send_replace(entries.into_iter().collect());
    }
}

impl ClusterDirectory for TestDirectory {
    fn servers(&self, hostname: &str) -> Option<Arc<RemoteTunnel>> {
        self.names.lock().get(hostname).cloned()
    }

    fn peers(&self) -> watch::Receiver<Arc<[PeerAddress]>> {
        self.peers.subscribe()
    }

    fn ports(&self) -> watch::Receiver<Arc<[Arc<RemoteTunnel>]>> {
        self.ports.subscribe()
    }
}
