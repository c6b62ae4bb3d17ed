//! A terminal server in this process, behind a connection that can be cut.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use terminal::{
    keys::{KeyList, read_identity},
    server::{AuthToken, Execution, Files, Limits, Policy, Seal, Server, Settings, Transport, Web},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Options of a server.
#[derive(Default)]
pub(super) struct Options {
    /// The required bearer token.
    pub(super) token: Option<&'static str>,
    /// Directory of its file transfers.
    pub(super) files: Option<PathBuf>,
    /// Its identity, and its list of authorised clients.
    pub(super) seal: Option<(PathBuf, PathBuf)>,
}

/// A server that listens.
pub(super) struct TestServer {
    pub(super) address: SocketAddr,
    cut: watch::Sender<u32>,
    tasks: [JoinHandle<()>; 2],
}

impl TestServer {
    pub(super) async fn start(home: &Path, options: Options) -> Self {
        let seal = options.seal.map(|(identity, authorized)| Seal {
            identity: Arc::new(read_identity(&identity).unwrap()),
            context: Vec::new(),
            authorized: Arc::new(move |key| {
                KeyList::read(&authorized).is_ok_and(|list| list.contains(key))
            }),
        });
        let environment = BTreeMap::from([
            ("PATH", "/usr/bin:/bin"),
            ("PS1", "ready> "),
            ("HOME", home.to_str().unwrap()),
        ]);
        let settings = Settings {
            policy: Policy {
                execution: Execution::Spawn,
                shell: Some("/bin/sh".into()),
                environment: environment
                    .into_iter()
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            },
            limits: Limits {
                sessions: 16,
                grace: Duration::from_mins(10),
                idle: None,
                duration: None,
            },
            seal,
            web: Web {
                token: options.token.map(|token| AuthToken::new(token).unwrap()),
                files: options
                    .files
                    .map(|root| Files::new(&root, false, 1024 * 1024).unwrap()),
                ..Web::default()
            },
        };
        let server = Server::new(settings, Arc::new(|_event| {}), &[]);
        let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = inner.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, peer) = inner.accept().await.unwrap();
                server.spawn(stream, Transport::WebSocket, Some(peer.ip()));
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, cuts) = watch::channel(0);
        let carrying = tokio::spawn(async move {
            loop {
                let (mut near, _peer) = listener.accept().await.unwrap();
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(behind).await.unwrap();
                    tokio::select! {
                        _ended = copy_bidirectional(&mut near, &mut far) => {}
                        _cut = cuts.changed() => {}
                    }
                });
            }
        });
        Self {
            address,
            cut,
            tasks: [serving, carrying],
        }
    }

    pub(super) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Breaks all current connections.
    pub(super) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
