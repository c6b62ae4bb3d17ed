//! A small mail server (RFC 5321, RFC 3207, RFC 4954).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub(super) const PASSWORD: &str = "the mail password";

/// Behaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behaviour {
    Takes,
    /// It also accepts addresses beyond ASCII (RFC 6531).
    TakesAnyAddress,
    /// It offers no STARTTLS, and accepts everything unencrypted.
    OffersNoTls,
    /// 550, with the recipient's address in the text.
    RefusesForGood,
    /// 451 for the first attempt.
    RefusesOnce,
    /// The first connection is closed immediately.
    ClosesOnce,
    /// The connection is closed after the mail was accepted.
    ClosesAfterTaking,
    /// It never sends anything.
    Hangs,
}

/// An accepted mail.
#[derive(Clone, Debug)]
pub(super) struct ReceivedMail {
    pub(super) from: String,
    pub(super) to: String,
    /// The parameters of the sender.
    pub(super) parameters: String,
    pub(super) text: String,
    pub(super) was_encrypted: bool,
    pub(super) was_signed_in: bool,
}

/// Stops when dropped.
pub(super) struct MailServer {
    port: u16,
    authority: String,
    shared: Arc<MailServerState>,
    task: JoinHandle<()>,
}

struct MailServerState {
    does: Behaviour,
    tls: TlsAcceptor,
    mails: Mutex<Vec<ReceivedMail>>,
    /// True once a recipient was named in any way.
    heard: Mutex<bool>,
    connections: watch::Sender<usize>,
    /// Connections whose mail was not yet accepted, and their highest number.
    without_mail: AtomicUsize,
    most: AtomicUsize,
}

impl MailServer {
    pub(super) async fn start(does: Behaviour, implicit: bool) -> Self {
        let (tls, authority) = certificate();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(MailServerState {
            does,
            tls,
            mails: Mutex::default(),
            heard: Mutex::new(false),
            connections: watch::Sender::new(0),
            without_mail: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let task = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    shared.connections.send_modify(|count| *count += 1);
                    let without_mail = shared.without_mail.fetch_add(1, Ordering::Relaxed) + 1;
                    shared.most.fetch_max(without_mail, Ordering::Relaxed);
                    tokio::spawn(Arc::clone(&shared).serve(stream, implicit));
                }
            }
        });
        Self {
            port,
            authority,
            shared,
            task,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn mails(&self) -> Vec<ReceivedMail> {
        self.shared.mails.lock().clone()
    }

    pub(super) fn has_recipient(&self) -> bool {
        *self.shared.heard.lock()
    }

    pub(super) fn connections(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// The highest number of parallel connections whose mail was not yet accepted.
    pub(super) fn most_at_once(&self) -> usize {
        self.shared.most.load(Ordering::Relaxed)
    }

    /// Waits for the first connection.
    pub(super) async fn connected(&self) {
        let mut connections = self.shared.connections.subscribe();
        connections.wait_for(|count| *count > 0).await.unwrap();
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MailServerState {
    async fn serve(self: Arc<Self>, stream: TcpStream, implicit: bool) {
        let is_first = *self.connections.borrow() == 1;
        match self.does {
            Behaviour::ClosesOnce if is_first => return,
            Behaviour::Hangs => std::future::pending().await,
            _ => {}
        }
        if implicit {
            if let Ok(stream) = self.tls.accept(stream).await {
                self.talk(BufReader::new(stream), true, true, is_first)
                    .await;
            }
            return;
        }
        let mut stream = BufReader::new(stream);
        if self.talk(&mut stream, false, true, is_first).await
            && let Ok(stream) = self.tls.accept(stream.into_inner()).await
        {
            self.talk(BufReader::new(stream), true, false, is_first)
                .await;
        }
    }

    /// The answer to `EHLO`, except before TLS.
    fn extensions(&self) -> String {
        let utf8 = match self.does {
            Behaviour::TakesAnyAddress => "250-SMTPUTF8\r\n",
            _ => "",
        };
        format!("250-mail.example\r\n{utf8}250-8BITMIME\r\n250 AUTH PLAIN")
    }

    /// Returns true if the client starts TLS now.
    async fn talk<S>(&self, mut stream: S, encrypted: bool, greets: bool, is_first: bool) -> bool
    where
        S: tokio::io::AsyncBufRead + AsyncRead + AsyncWrite + Unpin,
    {
        let (mut from, mut to, mut signed_in) = (String::new(), String::new(), false);
        let mut parameters = String::new();
        // After STARTTLS the client sends first (RFC 3207 section 4.2).
        if greets {
            say(&mut stream, "220 mail.example").await;
        }
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return false;
            }
            let line = line.trim_end();
            let (verb, rest) = line.split_once([' ', ':']).unwrap_or((line, ""));
            match verb.to_ascii_uppercase().as_str() {
                "EHLO" if encrypted || self.does == Behaviour::OffersNoTls => {
                    say(&mut stream, &self.extensions()).await;
                }
                "EHLO" => say(&mut stream, "250-mail.example\r\n250 STARTTLS").await,
                "STARTTLS" if self.does != Behaviour::OffersNoTls => {
                    say(&mut stream, "220 go on").await;
                    return true;
                }
                "AUTH" => {
                    *self.heard.lock() = true;
                    let expected = BASE64_STANDARD.encode(format!("\0svc\0{PASSWORD}"));
                    signed_in = rest.strip_prefix("PLAIN ") == Some(&expected);
                    let answer = if signed_in { "235 welcome" } else { "535 no" };
                    say(&mut stream, answer).await;
                }
                "MAIL" => {
                    *self.heard.lock() = true;
                    from = address(rest);
                    let (_, rest) = rest.split_once('>').unwrap();
                    rest.trim().clone_into(&mut parameters);
                    say(&mut stream, "250 ok").await;
                }
                "RCPT" => {
                    to = address(rest);
                    match self.does {
                        Behaviour::RefusesForGood => {
                            say(&mut stream, &format!("550 <{to}> is unknown")).await;
                        }
                        Behaviour::RefusesOnce if is_first => say(&mut stream, "451 later").await,
                        _ => say(&mut stream, "250 ok").await,
                    }
                }
                "DATA" => {
                    say(&mut stream, "354 go on").await;
                    let text = data(&mut stream).await;
                    self.mails.lock().push(ReceivedMail {
                        from: from.clone(),
                        to: to.clone(),
                        parameters: parameters.clone(),
                        text,
                        was_encrypted: encrypted,
                        was_signed_in: signed_in,
                    });
                    self.without_mail.fetch_sub(1, Ordering::Relaxed);
                    say(&mut stream, "250 taken").await;
                    if self.does == Behaviour::ClosesAfterTaking {
                        return false;
                    }
                }
                "QUIT" => {
                    say(&mut stream, "221 bye").await;
                    return false;
                }
                _ => say(&mut stream, "502 what?").await,
            }
        }
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    // A disconnected client gets no answer.
    stream
        .write_all(format!("{text}\r\n").as_bytes())
        .await
        .ok();
    stream.flush().await.ok();
}

/// The mail without the dot stuffing of the protocol (RFC 5321 section 4.5.2).
async fn data(stream: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> String {
    let mut text = String::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line == ".\r\n" || line.is_empty() {
            return text;
        }
        text.push_str(line.strip_prefix('.').unwrap_or(&line));
    }
}

fn address(rest: &str) -> String {
    let start = rest.find('<').unwrap() + 1;
    rest[start..rest.find('>').unwrap()].to_owned()
}

/// A certificate for `localhost`, and its issuing authority.
fn certificate() -> (TlsAcceptor, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (
        TlsAcceptor::from(Arc::new(config)),
        authority_certificate.pem(),
    )
}
