//! An engine that is killed while a hundred agents publish a thousand tunnels. All tunnels
//! reconnect at the same time, within the connection limits of one source.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Agent, Properties, Status, Target, Tunnel};
use engine::clock::SystemClock;
use testing::{FakePlatform, TestEngine, Upstream, within};
use tokio::task::JoinSet;

const AGENTS: usize = 100;
const TUNNELS: usize = 10;

const LIMITS: &str = "limits: {max_handshakes_per_source: 8}";

/// The variable with the address of the engine. The agents try it while no engine runs, so it must not
/// become the address of another server.
const ADDRESS: &str = "SVC_TLS__LISTEN_ADDR";

/// Addresses of tunnels: by name, the hostname and the id.
type TunnelAddresses = BTreeMap<String, (String, String)>;

/// Tunnels of a hundred agents. All have a name, and every other one has its own hostname.
struct Herd(Vec<Tunnel>);

impl Herd {
    async fn gather(connect: impl AsyncFn() -> Agent) -> Self {
        let mut herd = Vec::new();
        for number in 0..AGENTS {
            let agent = connect().await;
            for tunnel in 0..TUNNELS {
                let name = format!("a{number}-t{tunnel}");
                let hostname = (tunnel % 2 == 0).then(|| name.clone());
                let mut asked = Properties::http().named(name);
                asked.hostname = hostname;
                herd.push(agent.open(asked));
            }
        }
        Self(herd)
    }

    /// Waits until all tunnels are online with addresses that are not among these.
    async fn wait_online(&self, but: &TunnelAddresses) -> TunnelAddresses {
        let before: BTreeSet<_> = but.values().map(|(_, id)| id.clone()).collect();
        let mut waiting = JoinSet::new();
        for tunnel in &self.0 {
            let (mut status, before) = (tunnel.status(), before.clone());
            waiting.spawn(async move {
                let back = status.wait_for(|status| {
                    matches!(status, Status::Online(now) if !before.contains(&now.tunnel_id))
                });
                let status = back.await.expect("the agent runs").clone();
                let Status::Online(now) = status else {
                    panic!("{status:?}")
                };
                let properties = &now.properties;
                let name = properties.name.clone().expect("it was requested");
                let hostname = properties.hostname.clone().expect("it is published");
                (name, (hostname, now.tunnel_id.clone()))
            });
        }
        let mut places = TunnelAddresses::new();
        while let Some(place) = waiting.join_next().await {
            places.extend([place.unwrap()]);
        }
        places
    }
}

/// Checks that all tunnels reconnect under their names within seconds, with other ids.
async fn check_reconnect(engine: TestEngine, herd: &Herd, before: &TunnelAddresses) -> TestEngine {
    let started_at = Instant::now();
    let engine = Box::pin(engine.kill_and_restart()).await;
    let after = tokio::time::timeout(WAIT_LIMIT, herd.wait_online(before)).await;
    let after = after.expect("all tunnels reconnect");
    let names = |places: &TunnelAddresses| -> BTreeMap<_, _> {
        let places = places.iter();
        places
            .map(|(name, (hostname, _))| (name.clone(), hostname.clone()))
            .collect()
    };
    assert_eq!(names(&after), names(before));
    assert!(
        started_at.elapsed() < WAIT_LIMIT,
        "{:?}",
        started_at.elapsed()
    );
    engine
}

/// A debug build on two cores takes some seconds. An agent that is refused twice waits less than
/// half a second.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

/// EN-9. The engine admits far fewer handshakes at a time than there are agents. A refused agent
/// retries a little later, and none is locked out.
#[tokio::test]
async fn en_9_a_thousand_tunnels_reconnect() {
    let address = ports::lease_address();
    let variables = [(ADDRESS, address.as_str())];
    let engine = TestEngine::start_at(LIMITS, &variables, Arc::new(SystemClock)).await;
    let herd = Herd::gather(async || engine.agent().await).await;
    let before = herd.wait_online(&TunnelAddresses::new()).await;
    assert_eq!(before.len(), AGENTS * TUNNELS);
    let engine = Box::pin(check_reconnect(engine, &herd, &before)).await;
    serves(&engine, herd).await;
}

/// The same while the platform is unreachable. Its data is on disk.
#[tokio::test]
async fn en_9_a_thousand_tunnels_reconnect_without_the_platform() {
    const A: &str = "aaaaaaaa";
    let platform = FakePlatform::start().await;
    platform.add_project(A);
    platform.add_member("usr_ann", &[A]);
    let (_, token) = platform.add_pat("usr_ann");
    let address = ports::lease_address();
    let variables = [(ADDRESS, address.as_str())];
    let engine = TestEngine::managed_with_variables(&platform, LIMITS, &variables).await;
    let herd = Herd::gather(async || engine.agent_at(A, &token).await).await;
    let before = herd.wait_online(&TunnelAddresses::new()).await;
    platform.set_unavailable(true);
    platform.disconnect_all();
    let engine = Box::pin(check_reconnect(engine, &herd, &before)).await;
    serves(&engine, herd).await;
}

/// Visits one of the tunnels.
async fn serves(engine: &TestEngine, mut herd: Herd) {
    let service = Upstream::http1().await;
    let mut tunnel = herd.0.pop().expect("a thousand");
    // The others no longer compete for handshakes.
    drop(herd);
    let online = within("tunnel", tunnel.online()).await.unwrap();
    let host = online.properties.hostname.clone().expect("it is published");
    let target: Target = service.addr().to_string().parse().unwrap();
    let forwarding = tokio::spawn(async move { tunnel.forward(target).await });
    // The agents may still use all handshakes of their source: they open further connections.
    let visitor = engine.visitor().from(Ipv4Addr::new(127, 0, 0, 2));
    let mut visitor = visitor.http1(&host).await;
    assert_eq!(visitor.get("/", &host).await.status, 200);
    forwarding.abort();
}
