//! A server for a test, and a client whose messages the test chooses.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use terminal::server::{
    AuthToken, Execution, Files, Limits, Origins, Policy, Seal, Server, Settings, Transport, Web,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tty::frame;
use tty::message::{
    self, Config, Environment, Feature, Kind, OpenCommand, OpenSession, Options, Payload, Stream,
    Workdir,
};
use tty::size::Size;

/// Longer than any step of these tests takes.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// A server, and its options.
pub(crate) struct Host {
    pub(crate) server: Server,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let path = std::env::var_os("PATH").unwrap();
        let mut settings = Settings {
            policy: Policy {
                execution: Execution::Spawn,
                shell: Some("/bin/sh".into()),
                environment: vec![("PATH".into(), path), ("HOME".into(), "/".into())],
            },
            limits: Limits {
                sessions: 8,
                // Sessions that do not wait for it end long before.
                grace: Duration::from_mins(10),
                idle: None,
                duration: None,
            },
            seal: None,
            web: Web {
                token: None,
                origins: Origins::Any,
                files: None,
            },
        };
        change(&mut settings);
        Self {
            server: Server::new(settings, Arc::new(|_| {}), &[]),
        }
    }

    pub(crate) fn sealed(seal: Seal) -> Self {
        Self::with(|settings| settings.seal = Some(seal))
    }

    pub(crate) fn files(root: &Path, read_only: bool) -> Self {
        Self::with(|settings| {
            settings.web.files = Some(Files::new(root, read_only, 1000).unwrap());
        })
    }

    pub(crate) fn guarded(token: &str, origins: &[&str]) -> Self {
        Self::with(|settings| {
            settings.web.token = AuthToken::new(token);
            settings.web.origins =
                Origins::These(origins.iter().map(|it| (*it).to_owned()).collect());
        })
    }

    /// Opens a stream to it.
    pub(crate) fn stream(&self, speaks: Transport) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.server.spawn(theirs, speaks, None);
        ours
    }

    pub(crate) fn plain(&self) -> Client {
        Client::Plain(self.stream(Transport::Plain), frame::Decoder::new())
    }

    pub(crate) async fn websocket(&self) -> Client {
        self.websocket_with(&[]).await
    }

    /// Opens a WebSocket with these additional headers.
    pub(crate) async fn websocket_with(&self, heads: &[(&'static str, &str)]) -> Client {
        let stream = self.stream(Transport::WebSocket);
        let mut request = "ws://host/".into_client_request().unwrap();
        for (name, value) in heads {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let opening = tokio_tungstenite::client_async(request, stream);
        let (socket, _) = opening.await.unwrap();
        Client::WebSocket(Box::new(socket))
    }

    /// Waits until all sessions are over.
    pub(crate) async fn empty(&self) {
        let wait = async {
            while self.server.sessions() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, wait).await.expect("no session is left");
    }
}

/// A client over either transport.
pub(crate) enum Client {
    Plain(DuplexStream, frame::Decoder),
    WebSocket(Box<WebSocketStream<DuplexStream>>),
}

impl Client {
    pub(crate) async fn send(&mut self, kind: &Kind) {
        match self {
            Self::Plain(stream, _) => {
                let bytes = frame::encode(kind).unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
            Self::WebSocket(socket) => {
                let message = Message::Binary(message::encode(kind).unwrap());
                socket.send(message).await.unwrap();
            }
        }
    }

    /// The next message, or `None` at the end.
    pub(crate) async fn receive(&mut self) -> Option<Kind> {
        timeout(SOON, self.next()).await.expect("a message in time")
    }

    async fn next(&mut self) -> Option<Kind> {
        match self {
            Self::Plain(stream, decoder) => loop {
                if let Some(kind) = decoder.next().unwrap() {
                    return Some(kind);
                }
                let mut buffer = [0; 4096];
                match stream.read(&mut buffer).await {
                    Ok(read @ 1..) => decoder.push(&buffer[..read]),
                    _ => return None,
                }
            },
            Self::WebSocket(socket) => loop {
                match socket.next().await? {
                    Ok(Message::Binary(bytes)) => return Some(message::decode(bytes).unwrap()),
                    Ok(Message::Close(frame)) => {
                        assert_eq!(frame.unwrap().reason, "finished");
                    }
                    Ok(_) => {}
                    Err(_) => return None,
                }
            },
        }
    }

    /// The next message that is not a heartbeat.
    pub(crate) async fn said(&mut self) -> Option<Kind> {
        loop {
            match self.receive().await {
                Some(Kind::Heartbeat(_)) => {}
                said => return said,
            }
        }
    }

    /// Sends an open message, and receives the ack.
    pub(crate) async fn open(&mut self, open: OpenCommand) -> message::Ack {
        self.send(&Kind::Open(Box::new(open))).await;
        match self.said().await {
            Some(Kind::Ack(ack)) => ack,
            other => panic!("no ack: {other:?}"),
        }
    }

    pub(crate) async fn input(&mut self, text: &str) {
        self.send(&Kind::data(Stream::Stdin, text.to_owned())).await;
    }

    /// Output up to a text.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.said().await {
                Some(Kind::Data(data)) => match data.payload {
                    Some(Payload::Data(bytes)) => seen.push_str(&String::from_utf8_lossy(&bytes)),
                    other => panic!("{other:?} before `{text}`: {seen}"),
                },
                other => panic!("{other:?} before `{text}`: {seen}"),
            }
        }
        seen
    }

    /// Everything up to the close: both streams, and the close message.
    pub(crate) async fn finish(&mut self) -> (String, String, message::Close) {
        let mut all = [Vec::new(), Vec::new()];
        let mut ended = 0;
        loop {
            match self.said().await {
                Some(Kind::Data(data)) => {
                    let stream = usize::from(data.r#type() == Stream::Stderr);
                    match data.payload {
                        Some(Payload::Data(bytes)) => all[stream].extend_from_slice(&bytes),
                        Some(Payload::Eos(_)) => ended += 1,
                        other => panic!("{other:?}"),
                    }
                }
                Some(Kind::Close(close)) => {
                    assert!(ended > 0, "the end of a stream comes before the close");
                    let [output, errors] = all.map(|all| String::from_utf8(all).unwrap());
                    return (output, errors, close);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The error message, after which the server disconnects.
    pub(crate) async fn refused(&mut self) -> String {
        let said = self.said().await;
        match said {
            Some(Kind::Error(error)) => error.msg,
            Some(Kind::ProtocolError(error)) => error.msg,
            other => panic!("no error: {other:?}"),
        }
    }
}

/// An open message like that of a published client.
pub(crate) fn published(args: &[&str], terminal: bool) -> OpenCommand {
    OpenCommand {
        config: Some(Config {
            options: Some(Options {
                interactive: terminal,
                allocate_tty: terminal,
                send_heartbeat: false,
            }),
            cmd_args: args.iter().map(|it| (*it).to_owned()).collect(),
            ..Config::default()
        }),
        ..OpenCommand::default()
    }
}

/// `sh -c script`.
pub(crate) fn script(script: &str, terminal: bool) -> OpenCommand {
    published(&["sh", "-c", script], terminal)
}

/// The same from a client of this project.
pub(crate) fn ours(text: &str, terminal: bool) -> OpenCommand {
    OpenCommand {
        session: Some(OpenSession {
            features: vec![Feature::Signals.into(), Feature::Resume.into()],
            resume: None,
            size: terminal.then(|| Size::new(30, 90).unwrap().into()),
        }),
        ..script(text, terminal)
    }
}

pub(crate) fn with_environment(
    mut open: OpenCommand,
    workdir: &str,
    variables: &[(&str, &str)],
) -> OpenCommand {
    let config = open.config.as_mut().unwrap();
    config.workdir = Some(Workdir {
        value: workdir.to_owned(),
    });
    let variable = |(key, value): &(&str, &str)| Environment {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    config.env_vars = variables.iter().map(variable).collect();
    open
}
