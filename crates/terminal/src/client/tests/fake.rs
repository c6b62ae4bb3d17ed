//! A server without processes: the test defines the output of its command, and the answers to
//! input.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::Message;
use tty::message::{self, Data, Kind, Payload, SealHello, ServerHello, Stream};
use tty::seal::{Channel, Content, Identity, Mark, PublicKey, ServerHandshake};
use tty::session::{Command, Exit, Server, Settings, TOKEN_LEN};

/// The action of the fake command.
pub(super) enum Act {
    Write(Stream, Bytes),
    End(Stream),
    Exit(Exit),
}

/// A server that listens.
pub(super) struct Fake {
    pub(super) url: String,
    /// Received requests, input and signals, as text.
    pub(super) seen: mpsc::UnboundedReceiver<String>,
    /// Closes the existing connections when it changes.
    disconnects: watch::Sender<u32>,
    task: tokio::task::JoinHandle<()>,
}

/// Keys and authorized clients of a sealed server.
#[derive(Clone)]
pub(super) struct SealKeys {
    pub(super) identity: Arc<Identity>,
    pub(super) authorized: Vec<PublicKey>,
}

type Script = Arc<dyn Fn(&str) -> Vec<Act> + Send + Sync>;

struct FakeState {
    script: Script,
    seen: mpsc::UnboundedSender<String>,
    seal_keys: Option<SealKeys>,
    /// Sessions without a connection, by the number of their first connection.
    sessions: Mutex<HashMap<u32, Server>>,
    last_connection: Mutex<u32>,
}

/// One connection of a client, and its session.
struct FakeConnection {
    shared: Arc<FakeState>,
    /// The token that this connection issues: its number in each byte.
    token: [u8; TOKEN_LEN],
    /// Number of the session's first connection.
    session: u32,
    server: Server,
    handshake: Option<ServerHandshake>,
    channel: Option<Channel>,
}

impl Fake {
    /// Starts a server. `script` returns the actions of the command for `open` and for each piece
    /// of input.
    pub(super) async fn start(
        seal_keys: Option<SealKeys>,
        script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let (seen_to, seen) = mpsc::unbounded_channel();
        let (disconnects, disconnected) = watch::channel(0);
        let shared = Arc::new(FakeState {
            script: Arc::new(script),
            seen: seen_to,
            seal_keys,
            sessions: Mutex::default(),
            last_connection: Mutex::default(),
        });
        let task = tokio::spawn(async move {
            loop {
                let (stream, _peer) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared), disconnected.clone()));
            }
        });
        Self {
            url,
            seen,
            disconnects,
            task,
        }
    }

    /// The next received item.
    pub(super) async fn next_received(&mut self) -> String {
        let seen = tokio::time::timeout(Duration::from_mins(1), self.seen.recv());
        seen.await.unwrap().unwrap()
    }

    pub(super) fn disconnect_all(&self) {
        self.disconnects.send_modify(|count| *count += 1);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, shared: Arc<FakeState>, mut disconnects: watch::Receiver<u32>) {
    disconnects.mark_unchanged();
    let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let (mut sink, mut stream) = socket.split();
    let mut connection = FakeConnection::new(shared);
    loop {
        let (kinds, hangs_up) = connection.run_commands();
        for kind in kinds {
            let bytes = message::encode(&kind).unwrap();
            if sink.send(Message::Binary(bytes)).await.is_err() {
                break;
            }
        }
        if hangs_up {
            sink.close().await.ok();
        }
        tokio::select! {
            changed = disconnects.changed() => {
                changed.unwrap();
                connection.detach();
                return;
            }
            message = stream.next() => {
                let kind = match message {
                    Some(Ok(Message::Binary(bytes))) => message::decode(bytes).unwrap(),
                    Some(Ok(_)) => continue,
                    _ => {
                        connection.shared.record("hung up");
                        return;
                    }
                };
                if let Some(answer) = connection.receive(kind) {
                    let bytes = message::encode(&answer).unwrap();
                    sink.send(Message::Binary(bytes)).await.unwrap();
                }
            }
        }
    }
}

impl FakeState {
    fn record(&self, item: &str) {
        self.seen.send(item.to_owned()).ok();
    }

    /// Records an item that the command receives, and returns the actions of the command.
    fn react(&self, item: &str) -> Vec<Act> {
        self.record(item);
        (self.script)(item)
    }
}

impl FakeConnection {
    fn new(shared: Arc<FakeState>) -> Self {
        let number = {
            let mut last_connection = shared.last_connection.lock();
            *last_connection += 1;
            *last_connection
        };
        let settings = Settings {
            session_id: format!("session-{number}"),
            grace: Duration::from_mins(10),
            idle: None,
            duration: None,
        };
        Self {
            shared,
            token: [u8::try_from(number).unwrap(); TOKEN_LEN],
            session: number,
            server: Server::new(settings, Instant::now()),
            handshake: None,
            channel: None,
        }
    }

    /// Executes all commands of the session. Returns the messages to send, and true if the
    /// connection ends after them.
    fn run_commands(&mut self) -> (Vec<Kind>, bool) {
        let mut out = Vec::new();
        let mut hangs_up = false;
        while let Some(command) = self.server.command() {
            let now = Instant::now();
            let acts = match command {
                Command::Start(start) => {
                    self.server.on_started(self.token, now);
                    let words = start.config.cmd_args.join(" ");
                    self.shared.react(&format!("open {words}"))
                }
                Command::Input(bytes) => {
                    self.server.on_input_taken(bytes.len());
                    self.shared.react(&String::from_utf8_lossy(&bytes))
                }
                Command::EndInput => self.shared.react("end"),
                Command::Resize(size) => {
                    let item = format!("size {}x{}", size.cols, size.rows);
                    self.shared.record(&item);
                    Vec::new()
                }
                Command::Signal(signal) => {
                    let item = format!("signal {}", signal.name());
                    self.shared.react(&item)
                }
                Command::Send(kind) => {
                    out.extend(sealed(&mut self.channel, kind));
                    Vec::new()
                }
                Command::Disconnect => {
                    hangs_up = true;
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for act in acts {
                match act {
                    Act::Write(stream, bytes) => self.server.on_output(stream, bytes, now),
                    Act::End(stream) => self.server.on_output_end(stream, now),
                    Act::Exit(exit) => self.server.on_exit(exit, now),
                }
            }
        }
        (out, hangs_up)
    }

    /// Handles a message. Returns the answer if it is the first one of a sealed connection.
    fn receive(&mut self, kind: Kind) -> Option<Kind> {
        let shared = Arc::clone(&self.shared);
        let kind = match (&shared.seal_keys, kind) {
            (Some(keys), Kind::ClientHello(hello)) => {
                let hello = hello.seal.unwrap();
                return Some(self.answer_hello(keys, &hello));
            }
            (Some(_), Kind::Open(open)) => {
                let ready = self.handshake.take().unwrap();
                self.channel = Some(ready.confirm(&open).unwrap());
                Kind::Open(open)
            }
            (Some(_), Kind::Data(data)) => opened(self.channel.as_mut().unwrap(), data),
            (_, kind) => kind,
        };
        let resume = match &kind {
            Kind::Open(open) => open.session.clone().filter(|s| s.resume.is_some()),
            _ => None,
        };
        let now = Instant::now();
        match resume {
            Some(session) => {
                let resume = session.resume.as_ref().unwrap();
                let mut all = shared.sessions.lock();
                let found = all.iter().find(|(_, server)| server.accepts(resume));
                let resumed_id = *found.unwrap().0;
                let mut server = all.remove(&resumed_id).unwrap();
                server.on_resume(&session, self.token, now);
                self.server = server;
                self.session = resumed_id;
                shared.record("resumed");
            }
            None => self.server.on_message(kind, now),
        }
        None
    }

    fn answer_hello(&mut self, keys: &SealKeys, hello: &SealHello) -> Kind {
        let accepted = ServerHandshake::accept(
            &keys.identity,
            b"",
            hello,
            |client| keys.authorized.contains(client),
            [[1; 32], [2; 32]],
        );
        match accepted {
            Ok((ready, answer)) => {
                self.handshake = Some(ready);
                Kind::ServerHello(Box::new(ServerHello {
                    seal: Some(answer),
                    ..ServerHello::default()
                }))
            }
            Err(error) => Kind::error(&error.to_string()),
        }
    }

    /// Keeps the session for another connection.
    fn detach(mut self) {
        self.server.on_lost(Instant::now());
        let mut sessions = self.shared.sessions.lock();
        sessions.insert(self.session, self.server);
    }
}

fn sealed(channel: &mut Option<Channel>, kind: Kind) -> Vec<Kind> {
    let Some(channel) = channel else {
        return vec![kind];
    };
    let mut seal = |stream: Stream, content| {
        let payload = channel.sealer.seal(stream, &content).unwrap();
        Kind::Data(Data {
            r#type: stream.into(),
            payload: Some(Payload::EncryptedData(Box::new(payload))),
        })
    };
    match kind {
        Kind::Data(data) => {
            let content = match &data.payload {
                Some(Payload::Data(bytes)) => Content::Data(bytes.clone()),
                _ => Content::End,
            };
            vec![seal(data.r#type(), content)]
        }
        Kind::Close(close) => {
            let exit = Content::Exit(close.return_code);
            vec![seal(Stream::Stdout, exit), Kind::Close(close)]
        }
        Kind::Ack(ack) => {
            let session = ack.session.as_ref().unwrap();
            let mark = Content::Mark(Mark {
                token: session.resume_token.as_slice().try_into().unwrap(),
                output_from: session.output_from.unwrap_or_default(),
                input_received: session.input_received,
            });
            vec![seal(Stream::Stdout, mark), Kind::Ack(ack)]
        }
        other => vec![other],
    }
}

fn opened(channel: &mut Channel, data: Data) -> Kind {
    let stream = data.r#type();
    let Some(Payload::EncryptedData(payload)) = data.payload else {
        panic!("unsealed data from the client");
    };
    match channel.opener.open(stream, &payload).unwrap() {
        Content::Data(bytes) => Kind::data(stream, bytes),
        _ => Kind::end(stream),
    }
}
