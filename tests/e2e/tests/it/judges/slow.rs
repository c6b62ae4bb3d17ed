//! slowhttptest: hundreds of slow visitors at an engine with short deadlines. Their connections are
//! closed at the deadline, other visitors are served all the time, and in the end the engine has
//! released all resources.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Curl, Nginx, Service, Svc, eventually, provided};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// Visitors of one attack, which connect within two seconds.
const VISITORS: &str = "100";
const RATE: &str = "50";

/// An attack: its flags, its path, and its expected end.
struct Attack {
    name: &'static str,
    flags: &'static [&'static str],
    path: &'static str,
    end: &'static str,
}

/// The deadlines closed every connection before the tool's time limit.
const CLOSED: &str = "No open connections left";
/// The tool kept its connections until its time limit.
const HELD: &str = "Hit test time limit";

const ATTACKS: [Attack; 5] = [
    Attack {
        name: "slowloris: a head that never ends",
        flags: &["-H", "-i", "2", "-l", "60"],
        path: "/seen",
        end: CLOSED,
    },
    Attack {
        name: "R-U-Dead-Yet: a body that stands still for longer than the deadline",
        flags: &["-B", "-i", "12", "-l", "60"],
        path: "/read",
        end: CLOSED,
    },
    // Each byte restarts the deadline, but the rate is below `limits.min_body_rate`.
    Attack {
        name: "R-U-Dead-Yet: a byte a second",
        flags: &["-B", "-i", "1", "-x", "2", "-l", "60"],
        path: "/read",
        end: CLOSED,
    },
    // A reader that reads a little now and then is allowed, and its buffered data is limited. TCP
    // disconnects one that reads nothing for two minutes.
    Attack {
        name: "slow read",
        flags: &[
            "-X", "-n", "1", "-z", "5", "-w", "10", "-y", "20", "-l", "8",
        ],
        path: "/large",
        end: HELD,
    },
    Attack {
        name: "Apache killer: thousands of ranges",
        flags: &["-R", "-a", "5", "-b", "2000", "-l", "60"],
        path: "/large",
        end: CLOSED,
    },
];

#[test]
fn hundreds_of_slow_visitors_affect_no_other_visitor_and_leave_nothing() -> Result<()> {
    let mut svc = Svc::engine_with(&json!({
        "timeouts": {"http_idle_seconds": 10},
        "metrics": {"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}},
    }))?;
    let nginx = Nginx::start()?;
    fs::write(nginx.root().join("large"), vec![b'x'; 16 << 20])?;
    // The limits of the attacked tunnel do not apply to the visitors that have to be served.
    let limited = ["--http", "--time-to-first-byte", "5s"];
    let agent = Agent::forward(&svc, &nginx.http1(), &limited)?;
    let unlimited = Agent::forward(&svc, &nginx.http1(), &["--http"])?;
    let runtime = tokio::runtime::Runtime::new()?;
    let relay = runtime.block_on(relay(&svc, agent.hostname()?))?;
    let curl = Curl::new(&svc);
    let seen = unlimited.url("/seen");
    assert_eq!(curl.status(&[&seen])?, 200);
    // Another tunnel of the engine, because nginx itself may suffer from the attack.
    let other = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let others = other.url("/");
    assert_eq!(curl.status(&[&others])?, 200);
    let before = EngineResources::by(&mut svc)?;

    let over = AtomicBool::new(false);
    let (ended, served) = thread::scope(|scope| {
        // Consecutive requests for the duration of the attacks.
        let visitor = scope.spawn(|| -> Result<u32> {
            let mut served = 0;
            while !over.load(Ordering::SeqCst) {
                ensure!(curl.status(&["--max-time", "20", &others])? == 200);
                served += 1;
            }
            Ok(served)
        });
        let attacks = ATTACKS.each_ref().map(|attack| {
            let command = command(attack, relay, &agent);
            scope.spawn(move || -> Result<Output> { Ok(command?.output()?) })
        });
        let ended: Vec<_> = attacks
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        over.store(true, Ordering::SeqCst);
        (ended, visitor.join())
    });
    for (attack, ended) in ATTACKS.iter().zip(ended) {
        let output = ended.expect("an attack")?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output_text.contains(attack.end),
            "{}: {output_text}",
            attack.name
        );
    }
    assert_ne!(served.expect("the other visitor")?, 0);
    assert_eq!(curl.status(&[&seen])?, 200);

    let mut after = before;
    eventually("what the visitors held is let go", || {
        after = EngineResources::by(&mut svc)?;
        // Connections of the agents stay open for a minute for later visitors.
        let kept = after.pooled.saturating_sub(before.pooled);
        Ok(after.streams == 0 && after.descriptors <= before.descriptors + kept + 8)
    })?;
    assert!(
        after.memory < before.memory + 64,
        "{before:?}, then {after:?}"
    );
    Ok(())
}

fn command(attack: &Attack, relay: SocketAddr, agent: &Agent) -> Result<Command> {
    let mut command = Command::new(provided("SVC_TEST_SLOWHTTPTEST")?);
    command
        .args(["-c", VISITORS, "-r", RATE, "-v", "1", "-p", "5"])
        .args(attack.flags)
        .args(["-d", &relay.to_string()])
        .args(["-u", &agent.url(attack.path).replace("https://", "http://")]);
    Ok(command)
}

/// Adds TLS to the tool's connections, because the tool cannot send a server name and the edge
/// needs one. It reads no faster than its peer, so that a slow reader stays slow.
async fn relay(svc: &Svc, name: &str) -> Result<SocketAddr> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(svc.ca_file())? {
        roots.add(authority?)?;
    }
    let config = ClientConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(name.to_owned())?;
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let engine = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut visitor, _)) = listener.accept().await {
            let (connector, name) = (connector.clone(), name.clone());
            tokio::spawn(async move {
                let stream = TcpStream::connect(engine).await?;
                let mut stream = connector.connect(name, stream).await?;
                tokio::io::copy_bidirectional(&mut visitor, &mut stream).await
            });
        }
    });
    Ok(address)
}

/// Resources of the engine.
#[derive(Clone, Copy, Debug)]
struct EngineResources {
    descriptors: usize,
    /// MiB in memory. Like the descriptors, only known on Linux.
    memory: u64,
    /// Requests in flight.
    streams: usize,
    /// Standing connections of the agents.
    pooled: usize,
}

impl EngineResources {
    fn by(svc: &mut Svc) -> Result<Self> {
        let metrics = svc.ready()["metrics_url"].as_str();
        let metrics = format!("{}/metrics", metrics.context("no metrics")?);
        let metrics = Curl::plain().get(&[&metrics])?.text();
        ensure!(
            metrics.contains("svc_streams_active "),
            "no metrics: {metrics}"
        );
        let count = |name: &str| -> usize {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
            values.sum()
        };
        let (descriptors, memory) = if cfg!(target_os = "linux") {
            in_process(svc.process().id())?
        } else {
            (0, 0)
        };
        Ok(Self {
            descriptors,
            memory,
            streams: count("svc_streams_active "),
            pooled: count("svc_pool_connections{"),
        })
    }
}

/// Open descriptors, and MiB in memory, as Linux reports them.
fn in_process(id: u32) -> Result<(usize, u64)> {
    let process = format!("/proc/{id}");
    let status = fs::read_to_string(format!("{process}/status"))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|line| line.trim().strip_suffix(" kB"));
    let memory: u64 = memory.context("no VmRSS")?.parse()?;
    Ok((
        fs::read_dir(format!("{process}/fd"))?.count(),
        memory / 1024,
    ))
}
