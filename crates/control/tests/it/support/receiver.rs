//! An endpoint of a customer: a TLS server that stores its requests and answers as configured.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// The request line.
    pub(crate) line: String,
    /// Header fields, by their names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        let headers: serde_json::Map<_, _> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        json!({"headers": headers, "body": self.body})
    }
}

/// Reaction to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This status, these further header lines, and this body.
    Status(u16, &'static str, String),
    /// The connection is closed without an answer.
    Hangup,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, "", String::new())
    }
}

/// The server, which stops when dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    otherwise: Arc<Mutex<Reply>>,
    received: watch::Receiver<Vec<ReceivedRequest>>,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Starts one, and writes its certificate authority to a file. It answers 204.
    pub(crate) async fn start(ca_file: &Path) -> Self {
        let acceptor = acceptor(ca_file, &["127.0.0.1", "localhost"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let replies = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, received) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        let otherwise = Arc::new(Mutex::new(Reply::status(204)));
        let (answers, standing) = (Arc::clone(&replies), Arc::clone(&otherwise));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answers) = (acceptor.clone(), Arc::clone(&answers));
                let (sender, standing) = (Arc::clone(&sender), Arc::clone(&standing));
                tokio::spawn(async move {
                    // A client that does not trust the certificate disconnects here.
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let request = read(&mut stream).await;
                    let hangs = request.line.contains(HANG);
                    sender.send_modify(|all| all.push(request));
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    let reply = answers.lock().pop_front();
                    if let Reply::Status(status, lines, body) =
                        reply.unwrap_or_else(|| standing.lock().clone())
                    {
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {status} Status\r\n{lines}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
                        );
                        // The client may have disconnected after reading enough.
                        let _gone = stream.write_all(text.as_bytes()).await;
                        let _gone = stream.shutdown().await;
                    }
                });
            }
        });
        Self {
            address,
            replies,
            otherwise,
            received,
            task,
        }
    }

    /// Sets the answer to all further requests.
    pub(crate) fn always(&self, reply: Reply) {
        *self.otherwise.lock() = reply;
    }

    /// Sets the next answers. Later requests get the previous answer again.
    pub(crate) fn reply(&self, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().extend(replies);
    }

    /// The requests so far.
    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.borrow().clone()
    }

    /// Waits for this number of requests.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<ReceivedRequest> {
        let mut received = self.received.clone();
        let all = received.wait_for(|all| all.len() >= count).await.unwrap();
        all.clone()
    }

    /// An address that accepts every request and never answers.
    pub(crate) fn hanging_url(&self) -> String {
        format!("https://127.0.0.1:{}{HANG}", self.address.port())
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}/in?x=1", self.address.port())
    }
}

/// The number of these requests that are never answered.
pub(crate) fn hanging(all: &[ReceivedRequest]) -> usize {
    all.iter().filter(|one| one.line.contains(HANG)).count()
}

/// The path that is never answered.
const HANG: &str = "/hang";

/// Reads one request.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> ReceivedRequest {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let line = lines.next().unwrap().to_owned();
            let headers: Vec<_> = lines
                .map(|line| line.split_once(": ").unwrap())
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect();
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let length: usize = length.map_or(0, |(_, length)| length.parse().unwrap());
            if body.len() >= length {
                let body = body.to_owned();
                return ReceivedRequest {
                    line,
                    headers,
                    body,
                };
            }
        }
        let read = stream.read_buf(&mut bytes).await.unwrap();
        assert!(read > 0, "the request is incomplete");
    }
}

/// TLS with a certificate for these names, whose authority is written to the file.
pub(crate) fn acceptor(ca_file: &Path, names: &[&str]) -> TlsAcceptor {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
