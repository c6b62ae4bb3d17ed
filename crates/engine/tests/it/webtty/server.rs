//! A registered server whose commands are controlled by the test. It runs the state machine of real
//! servers over the streams of a real tunnel.

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Agent, Properties};
use testing::within;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tty::admission::{self, LABEL, NONCE_LEN, SERVER_ID, Subject};
use tty::identity::EndpointIdentity;
use tty::message::{Kind, Signal, Stream};
use tty::session::{Command, Exit, Server, Settings};
use tty::size::Size;

use super::link::Link;

/// A running server.
pub(crate) struct TestServer {
    _agent: Agent,
    pub(crate) hostname: Option<String>,
    sessions: UnboundedReceiver<Shell>,
    serving: JoinHandle<()>,
}

/// The command of one session, controlled by the test. Input is echoed as by a terminal.
pub(crate) struct Shell {
    happened: UnboundedReceiver<ShellEvent>,
    orders: UnboundedSender<Order>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ShellEvent {
    Started(Option<Size>),
    Typed(Bytes),
    Resized(Size),
    Signalled(Signal),
    Over,
}

enum Order {
    Show(Bytes),
    Hide(bool),
    Ignore,
    Exit(i32),
    /// Sends a message that does not come from the state machine.
    Say(Kind),
    Cut,
}

/// The transport of a server that accepts connections and opens no WebSocket.
pub(crate) const SILENT: &str = "silent";

/// The keys of a server, for its record and its proofs.
pub(crate) struct Keys(EndpointIdentity);

impl Keys {
    pub(crate) fn new() -> Self {
        Self(EndpointIdentity::generate().unwrap())
    }

    pub(crate) fn told(&self) -> api::link::WebttyServerKeys {
        let public = self.0.public();
        api::link::WebttyServerKeys {
            encryption: public.encryption_text(),
            signing: public.signing.to_text(),
        }
    }
}

impl TestServer {
    /// Opens the tunnel of a server, published or private, in whichever transport.
    pub(crate) async fn start(
        agent: Agent,
        keys: &Keys,
        (project, id): (&str, &str),
        publish: bool,
        transport: &str,
    ) -> Self {
        // A server that never completes a handshake.
        let silent = transport == SILENT;
        let transport = if silent { "websocket" } else { transport };
        let mut labels = std::collections::BTreeMap::from([
            (SERVER_ID.to_owned(), id.to_owned()),
            ("svc.webtty.transport".to_owned(), transport.to_owned()),
        ]);
        let subject = Subject {
            project_id: project,
            server_id: id,
            tunnel_protocol: "webtty",
            tunnel_type: "bytestream",
            labels: &labels,
        };
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).unwrap();
        let now = jiff::Timestamp::now();
        let proof = admission::sign(&keys.0.signing, "wks", subject, nonce, now).unwrap();
        labels.insert(LABEL.to_owned(), proof);
        let properties = Properties::default()
            .named(id.to_owned())
            .kind("bytestream")
            .publish(publish)
            .protocol("webtty")
            .labels(labels);
        let mut tunnel = agent.open(properties);
        let online = within("the tunnel", tunnel.online()).await.unwrap();
        let (send, sessions) = mpsc::unbounded_channel();
        let websocket = transport == "websocket";
        let serving = tokio::spawn(async move {
            while let Some(stream) = tunnel.accept().await {
                let (happens, happened) = mpsc::unbounded_channel();
                let (orders, ordered) = mpsc::unbounded_channel();
                send.send(Shell { happened, orders }).ok();
                tokio::spawn(async move {
                    if silent {
                        std::future::pending::<()>().await;
                        drop(stream);
                        return;
                    }
                    let link = if websocket {
                        let io: Box<dyn super::link::Duplex> = Box::new(stream);
                        Link::websocket(tokio_tungstenite::accept_async(io).await.unwrap())
                    } else {
                        Link::plain(stream)
                    };
                    serve(link, &happens, ordered).await;
                    happens.send(ShellEvent::Over).ok();
                });
            }
        });
        Self {
            _agent: agent,
            hostname: online.properties.hostname.clone(),
            sessions,
            serving,
        }
    }

    /// The command of the next session.
    pub(crate) async fn shell(&mut self) -> Shell {
        within("a session", self.sessions.recv()).await.unwrap()
    }

    pub(crate) fn stop(&self) {
        self.serving.abort();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shell {
    pub(crate) fn shows(&self, text: &str) {
        self.shows_bytes(Bytes::copy_from_slice(text.as_bytes()));
    }

    pub(crate) fn shows_bytes(&self, bytes: Bytes) {
        self.orders.send(Order::Show(bytes)).ok();
    }

    pub(crate) fn hides(&self, hidden: bool) {
        self.orders.send(Order::Hide(hidden)).ok();
    }

    /// From now on only KILL ends it.
    pub(crate) fn ignores_signals(&self) {
        self.orders.send(Order::Ignore).ok();
    }

    pub(crate) fn exits(&self, code: i32) {
        self.orders.send(Order::Exit(code)).ok();
    }

    /// Sends a message that a real server never sends.
    pub(crate) fn says(&self, kind: Kind) {
        self.orders.send(Order::Say(kind)).ok();
    }

    /// Breaks the connection.
    pub(crate) fn disconnect(&self) {
        self.orders.send(Order::Cut).ok();
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> ShellEvent {
        within("the server", self.happened.recv()).await.unwrap()
    }

    /// Waits until this input has arrived, in any number of pieces.
    pub(crate) async fn wait_for_input(&mut self, keys: &str) {
        let mut typed = Vec::new();
        while typed.len() < keys.len() {
            if let ShellEvent::Typed(bytes) = self.next().await {
                typed.extend_from_slice(&bytes);
            }
        }
        assert_eq!(String::from_utf8_lossy(&typed), keys);
    }

    /// Waits for the end of the session at the server.
    pub(crate) async fn wait_for_end(&mut self) {
        while self.next().await != ShellEvent::Over {}
    }
}

async fn serve(
    mut link: Link,
    happens: &UnboundedSender<ShellEvent>,
    mut ordered: UnboundedReceiver<Order>,
) {
    let settings = Settings {
        session_id: "its own".to_owned(),
        grace: Duration::ZERO,
        idle: None,
        duration: None,
    };
    let mut server = Server::new(settings, Instant::now());
    let (mut terminal, mut stubborn) = (false, false);
    loop {
        while let Some(command) = server.command() {
            let now = Instant::now();
            match command {
                Command::Start(start) => {
                    terminal = start.terminal.is_some();
                    happens.send(ShellEvent::Started(start.terminal)).ok();
                    server.on_started([7; 32], now);
                }
                Command::Send(kind) => {
                    if !link.send(&kind).await {
                        server.on_lost(now);
                    }
                }
                Command::Input(bytes) => {
                    happens.send(ShellEvent::Typed(bytes.clone())).ok();
                    server.on_output(Stream::Stdout, bytes, now);
                }
                Command::Resize(size) => {
                    happens.send(ShellEvent::Resized(size)).ok();
                }
                Command::Signal(signal) => {
                    happens.send(ShellEvent::Signalled(signal)).ok();
                    let ends = matches!(signal, Signal::Terminate | Signal::Hangup) && !stubborn;
                    if ends || signal == Signal::Kill {
                        ends_with(&mut server, terminal, Exit::Signal(15, "TERM"));
                    }
                }
                Command::Release => return,
                Command::Disconnect
                | Command::EndInput
                | Command::HoldOutput
                | Command::ReadOutput
                | Command::Redraw => {}
            }
        }
        let deadline = server.deadline();
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = link.next() => match heard {
                Some(kind) => server.on_message(kind, Instant::now()),
                None => server.on_lost(Instant::now()),
            },
            order = ordered.recv() => match order {
                Some(Order::Show(bytes)) => server.on_output(Stream::Stdout, bytes, Instant::now()),
                Some(Order::Hide(hidden)) => server.on_secret_input(hidden),
                Some(Order::Ignore) => stubborn = true,
                Some(Order::Exit(code)) => ends_with(&mut server, terminal, Exit::Code(code)),
                Some(Order::Say(kind)) => drop(link.send(&kind).await),
                Some(Order::Cut) | None => return,
            },
            () = due => server.on_time(Instant::now()),
        }
    }
}

fn ends_with(server: &mut Server, terminal: bool, exit: Exit) {
    let now = Instant::now();
    server.on_exit(exit, now);
    server.on_output_end(Stream::Stdout, now);
    if !terminal {
        server.on_output_end(Stream::Stderr, now);
    }
}
