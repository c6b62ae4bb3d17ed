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
use tty::message::{self, Data, Kind, Payload, ServerHello, Stream};
use tty::seal::{Channel, Content, Identity, Mark, PublicKey, ServerHandshake};
use tty::session::{Command, Exit, Server, Settings, TOKEN_LEN};

/// Action of a command.
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
    /// Breaks the existing connections when it changes.
    pub(super) broken: watch::Sender<u32>,
    task: tokio::task::JoinHandle<()>,
}

/// Keys and authorized clients of a sealed server.
#[derive(Clone)]
pub(super) struct Lock {
    pub(super) identity: Arc<Identity>,
    pub(super) authorized: Vec<PublicKey>,
}

type Script = Arc<dyn Fn(&str) -> Vec<Act> + Send + Sync>;

struct FakeState {
    script: Script,
    seen: mpsc::UnboundedSender<String>,
    lock: Option<Lock>,
    sessions: Mutex<HashMap<u32, Server>>,
    tokens: Mutex<u32>,
}

impl Fake {
    /// Starts a server. `script` returns the actions of the command for `open` and for each piece
    /// of input.
    pub(super) async fn start(
        lock: Option<Lock>,
        script: impl Fn(&str) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let (seen_to, seen) = mpsc::unbounded_channel();
        let (broken, breaks) = watch::channel(0);
        let shared = Arc::new(FakeState {
            script: Arc::new(script),
            seen: seen_to,
            lock,
            sessions: Mutex::default(),
            tokens: Mutex::default(),
        });
        let task = tokio::spawn(async move {
            loop {
                let (stream, _peer) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared), breaks.clone()));
            }
        });
        Self {
            url,
            seen,
            broken,
            task,
        }
    }

    /// The next received item.
    pub(super) async fn sees(&mut self) -> String {
        let seen = tokio::time::timeout(Duration::from_mins(1), self.seen.recv());
        seen.await.unwrap().unwrap()
    }

    pub(super) fn break_all(&self) {
        self.broken.send_modify(|count| *count += 1);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn serve(stream: TcpStream, shared: Arc<FakeState>, mut breaks: watch::Receiver<u32>) {
    breaks.mark_unchanged();
    let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let (mut sink, mut stream) = socket.split();
    let mut id = {
        let mut tokens = shared.tokens.lock();
        *tokens += 1;
        *tokens
    };
    let settings = Settings {
        session_id: format!("session-{id}"),
        grace: Duration::from_mins(10),
        idle: None,
        duration: None,
    };
    let mut server = Some(Server::new(settings, Instant::now()));
    let mut handshake = None;
    let mut channel: Option<Channel> = None;
    loop {
        let machine = server.as_mut().unwrap();
        let mut out = Vec::new();
        let mut hangs_up = false;
        while let Some(command) = machine.command() {
            let now = Instant::now();
            let acts = match command {
                Command::Start(start) => {
                    machine.on_started([u8::try_from(id).unwrap(); TOKEN_LEN], now);
                    let words = start.config.cmd_args.join(" ");
                    shared.seen.send(format!("open {words}")).ok();
                    (shared.script)(&format!("open {words}"))
                }
                Command::Input(bytes) => {
                    machine.on_input_taken(bytes.len());
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    shared.seen.send(text.clone()).ok();
                    (shared.script)(&text)
                }
                Command::EndInput => {
                    shared.seen.send("end".to_owned()).ok();
                    (shared.script)("end")
                }
                Command::Resize(size) => {
                    let text = format!("size {}x{}", size.cols, size.rows);
                    shared.seen.send(text).ok();
                    Vec::new()
                }
                Command::Signal(signal) => {
                    shared.seen.send(format!("signal {}", signal.name())).ok();
                    (shared.script)(&format!("signal {}", signal.name()))
                }
                Command::Send(kind) => {
                    out.extend(sealed(&mut channel, kind));
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
                    Act::Write(stream, bytes) => machine.on_output(stream, bytes, now),
                    Act::End(stream) => machine.on_output_end(stream, now),
                    Act::Exit(exit) => machine.on_exit(exit, now),
                }
            }
        }
        for kind in out {
            let bytes = message::encode(&kind).unwrap();
            if sink.send(Message::Binary(bytes)).await.is_err() {
                break;
            }
        }
        if hangs_up {
            sink.close().await.ok();
        }
        tokio::select! {
            changed = breaks.changed() => {
                changed.unwrap();
                let mut machine = server.take().unwrap();
                machine.on_lost(Instant::now());
                shared.sessions.lock().insert(id, machine);
                return;
            }
            message = stream.next() => {
                let kind = match message {
                    Some(Ok(Message::Binary(bytes))) => message::decode(bytes).unwrap(),
                    Some(Ok(_)) => continue,
                    _ => {
                        shared.seen.send("hung up".to_owned()).ok();
                        return;
                    }
                };
                let now = Instant::now();
                let kind = match (&shared.lock, kind) {
                    (Some(lock), Kind::ClientHello(hello)) => {
                        let hello = hello.seal.unwrap();
                        let accepted = ServerHandshake::accept(
                            &lock.identity, b"", &hello,
                            |client| lock.authorized.contains(client), [[1; 32], [2; 32]],
                        );
                        let answer = match accepted {
                            Ok((shaken, answer)) => {
                                handshake = Some(shaken);
                                Kind::ServerHello(Box::new(ServerHello {
                                    seal: Some(answer),
                                    ..ServerHello::default()
                                }))
                            }
                            Err(error) => Kind::error(&error.to_string()),
                        };
                        let bytes = message::encode(&answer).unwrap();
                        sink.send(Message::Binary(bytes)).await.unwrap();
                        continue;
                    }
                    (Some(_), Kind::Open(open)) => {
                        channel = Some(handshake.take().unwrap().confirm(&open).unwrap());
                        Kind::Open(open)
                    }
                    (Some(_), Kind::Data(data)) => opened(channel.as_mut().unwrap(), data),
                    (_, kind) => kind,
                };
                let resume = match &kind {
                    Kind::Open(open) => open.session.clone().filter(|s| s.resume.is_some()),
                    _ => None,
                };
                match resume {
                    Some(session) => {
                        let resume = session.resume.as_ref().unwrap();
                        let mut all = shared.sessions.lock();
                        let known = all.iter().find(|(_, server)| server.accepts(resume));
                        let known = *known.unwrap().0;
                        let mut machine = all.remove(&known).unwrap();
                        machine.on_resume(&session, [u8::try_from(id).unwrap(); TOKEN_LEN], now);
                        server = Some(machine);
                        id = known;
                        shared.seen.send("back".to_owned()).ok();
                    }
                    None => server.as_mut().unwrap().on_message(kind, now),
                }
            }
        }
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
        panic!("in the clear");
    };
    match channel.opener.open(stream, &payload).unwrap() {
        Content::Data(bytes) => Kind::data(stream, bytes),
        _ => Kind::end(stream),
    }
}
