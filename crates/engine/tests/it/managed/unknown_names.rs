//! Server names that no project has, at an engine that orders certificates for custom domains.

use std::fs::{self, DirBuilder, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use api::control::domains::DomainCertificateValidation;
use api::link::{CustomDomain, Project, Record};
use serde_json::json;
use testing::{FakePlatform, TestCa, TestEngine, Visitor, within};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::A;

/// A domain with a stored certificate.
const APP: &str = "app.example.com";
/// A domain without one, which is ordered immediately.
const NEW: &str = "new.example.org";
/// No project has a name below it.
const UNKNOWN: &str = "unknown.example.net";
/// The names of the engine's own order.
const OWN: [&str; 3] = [
    "engine.localhost",
    "*.t.engine.localhost",
    "*.engine.localhost",
];
/// A key for updates of a name server, in base64.
const KEY: &str = "a2V5LW9mLXRlc3RzLXdpdGgtdGhpcnR5LXR3by1ieXRlcw==";
const NAMES: usize = 100;

/// A server that counts its connections, and closes them.
struct CountingServer {
    address: SocketAddr,
    count: watch::Receiver<usize>,
}

impl CountingServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, count) = watch::channel(0);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                sender.send_modify(|count| *count += 1);
            }
        });
        Self { address, count }
    }

    fn count(&self) -> usize {
        *self.count.borrow()
    }

    async fn wait_for_connection(&self) {
        let mut count = self.count.clone();
        within("a connection", count.wait_for(|count| *count > 0))
            .await
            .unwrap();
    }
}

/// Stores a certificate as an earlier order does. It is not due for centuries.
fn store(state_dir: &Path, directory: &str, ca: &TestCa, names: &[&str]) {
    let issued = ca.issue(names);
    let file = json!({
        "directory": directory,
        "names": names,
        "chain": issued.cert_pem,
        "key": issued.key_pem,
    });
    // Directories to which others may write are refused, whatever the umask of the tests is.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(state_dir).unwrap();
    fs::write(state_dir.join("certificate.json"), file.to_string()).unwrap();
}

/// Gives these domains to a project.
fn with_domains(project: &mut Project, names: &[&str]) {
    let domain = |name: &&str| CustomDomain {
        id: format!("dom_{name}"),
        hostname: (*name).to_owned(),
        certificate_validation: DomainCertificateValidation::TlsAlpn01,
        has_certificate: false,
        challenge_alias: None,
    };
    project.domains = names.iter().map(domain).collect();
}

/// The names of the directories in which the states of domains are.
fn domains_on_disk(state_dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(state_dir.join("domains")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// True for a name that visitors have invented, also if it is below a domain of a project.
fn has_invented_name(text: &str) -> bool {
    text.contains(UNKNOWN) || text.contains(&format!(".{APP}"))
}

/// Handshakes with names that no project has place no order, ask no name server, store nothing and
/// report nothing. A domain that the platform adds afterwards is ordered immediately.
#[tokio::test]
async fn a_handshake_for_an_unknown_name_costs_nothing() {
    let authority = CountingServer::start().await;
    let name_server = CountingServer::start().await;
    let (ca, state) = (TestCa::new(), tempfile::tempdir().unwrap());
    let directory = format!("http://{}/directory", authority.address);
    store(state.path(), &directory, &ca, &OWN);
    let of_app = state.path().join("domains").join(APP);
    store(&of_app, &directory, &ca, &[APP]);
    let key = state.path().join("tsig.key");
    fs::write(&key, KEY).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    // Without it, the authorities of this machine are read, which may have none.
    let roots = state.path().join("ca.pem");
    fs::write(&roots, ca.pem()).unwrap();
    let server = name_server.address.to_string();
    let variables = [
        ("SVC_CERTS__ACME__DIRECTORY", directory.as_str()),
        ("SVC_CERTS__ACME__TERMS_AGREED", "true"),
        ("SVC_CERTS__ACME__CA_FILE", roots.to_str().unwrap()),
        ("SVC_CERTS__ACME__CHALLENGES", "[tls-alpn-01, dns-01]"),
        ("SVC_CERTS__ACME__STATE_DIR", state.path().to_str().unwrap()),
        ("SVC_CERTS__ACME__DNS_UPDATE__SERVER", server.as_str()),
        ("SVC_CERTS__ACME__DNS_UPDATE__KEY_NAME", "test"),
        (
            "SVC_CERTS__ACME__DNS_UPDATE__KEY_FILE",
            key.to_str().unwrap(),
        ),
    ];
    let platform = FakePlatform::start().await;
    platform.add_project_with(A, |project| with_domains(project, &[APP]));
    let metrics = "metrics: {prometheus: {enabled: true, listen_addr: '127.0.0.1:0'}}";
    let engine = TestEngine::managed_with_variables(&platform, metrics, &variables).await;

    let visitor = Visitor::new(engine.addr(), &ca);
    let client = ca.client(&["http/1.1"]);
    let is_known = visitor.try_connect(APP, &client).await.is_some();
    assert!(is_known, "the stored certificate is in use");
    for number in 0..NAMES {
        for parent in [UNKNOWN, APP] {
            let name = format!("n{number}.{parent}");
            let refused = visitor.try_connect(&name, &client).await;
            assert!(refused.is_none(), "{name} has no certificate");
        }
    }
    assert_eq!(authority.count(), 0, "requests to the authority");
    assert_eq!(domains_on_disk(state.path()), [APP]);
    let text = engine.scrape().await;
    assert!(!has_invented_name(&text), "{text}");

    // Names of the platform are ordered, so that the server would have counted other orders.
    platform.add_project_with(A, |project| with_domains(project, &[APP, NEW]));
    authority.wait_for_connection().await;
    assert_eq!(domains_on_disk(state.path()), [APP, NEW]);
    assert_eq!(name_server.count(), 0, "requests to the name server");
    // The end of the engine sends the reports that are left.
    engine.stop().await;
    for record in platform.records() {
        assert!(!has_invented_name(&format!("{record:?}")), "{record:?}");
        let is_visit = matches!(record, Record::Stream(_) | Record::Event(_));
        assert!(!is_visit, "{record:?}");
    }
}
