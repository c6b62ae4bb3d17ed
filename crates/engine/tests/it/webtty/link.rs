//! The client end of a WebTTY connection in a test.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use testing::within;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tty::frame;
use tty::message::{
    self, Attach, AttachRole, Close, Config, Heartbeat, Kind, Notice, NoticeKind, OpenCommand,
    OpenSession, Options, Payload, Signal, Stream,
};
use tty::size::Size;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Messages over either transport.
pub(crate) enum Link {
    Plain(Box<dyn Duplex>, frame::Decoder),
    Websocket(Box<WebSocketStream<Box<dyn Duplex>>>),
}

impl Link {
    pub(crate) fn plain(io: impl Duplex + 'static) -> Self {
        Self::Plain(Box::new(io), frame::Decoder::new())
    }

    pub(crate) fn websocket(socket: WebSocketStream<Box<dyn Duplex>>) -> Self {
        Self::Websocket(Box::new(socket))
    }

    /// The next message, or `None` at any kind of end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Kind> {
        match self {
            Self::Plain(io, decoder) => loop {
                if let Some(kind) = decoder.next().unwrap() {
                    return Some(kind);
                }
                let mut bytes = [0; 4096];
                match io.read(&mut bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(count) => decoder.push(&bytes[..count]),
                }
            },
            Self::Websocket(socket) => loop {
                match socket.next().await {
                    Some(Ok(Message::Binary(bytes))) => {
                        return Some(message::decode(bytes).unwrap());
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                    Some(Ok(_)) => {}
                }
            },
        }
    }

    pub(crate) async fn send(&mut self, kind: &Kind) -> bool {
        match self {
            Self::Plain(io, _) => {
                let frame = frame::encode(kind).unwrap();
                io.write_all(&frame).await.is_ok() && io.flush().await.is_ok()
            }
            Self::Websocket(socket) => {
                let bytes = message::encode(kind).unwrap();
                socket.send(Message::Binary(bytes)).await.is_ok()
            }
        }
    }

    /// Sends a text frame, which is not a message.
    pub(crate) async fn send_text(&mut self, text: &str) {
        let Self::Websocket(socket) = self else {
            panic!("a WebSocket")
        };
        socket.send(Message::text(text.to_owned())).await.unwrap();
    }
}

/// A user at a terminal.
pub(crate) struct Person {
    pub(crate) link: Link,
    /// Output received so far, as bytes.
    pub(crate) shown: Vec<u8>,
    /// Length of the output that was already checked.
    looked: usize,
    /// Notices that the test has not yet read.
    notices: Vec<Notice>,
    pub(crate) closed: Option<Close>,
    pub(crate) error: Option<String>,
    over: bool,
}

impl Person {
    pub(crate) fn at(link: Link) -> Self {
        Self {
            link,
            shown: Vec::new(),
            looked: 0,
            notices: Vec::new(),
            closed: None,
            error: None,
            over: false,
        }
    }

    pub(crate) async fn send(&mut self, kind: Kind) {
        self.link.send(&kind).await;
    }

    /// Starts a command, with a terminal of 5 rows and 20 columns or without one.
    pub(crate) async fn open(&mut self, terminal: bool) {
        self.open_with(terminal, &["work"]).await;
    }

    /// The same with another command.
    pub(crate) async fn open_with(&mut self, terminal: bool, command: &[&str]) {
        let size = Size { rows: 5, cols: 20 };
        self.send(Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                options: Some(Options {
                    allocate_tty: terminal,
                    interactive: true,
                    send_heartbeat: true,
                }),
                cmd_args: command.iter().map(|part| (*part).to_owned()).collect(),
                ..Config::default()
            }),
            session: Some(OpenSession {
                features: vec![1, 2, 3],
                resume: None,
                size: terminal.then(|| size.into()),
            }),
            ..OpenCommand::default()
        })))
        .await;
        let acked = self.until("the ack", |person, kind| match kind {
            Kind::Ack(ack) => {
                assert!(person.shown.is_empty(), "the ack comes first");
                Some(ack.session.clone())
            }
            _ => None,
        });
        let session = acked.await.expect("the session of the ack");
        assert_eq!(session.features, [1], "the engine adds it");
        assert!(
            session.session_id.starts_with("wts_"),
            "{}",
            session.session_id
        );
    }

    /// Presents a grant.
    pub(crate) async fn attach(&mut self, session: &str, participant: &str, grant: &[u8]) {
        self.send(Kind::Attach(Box::new(Attach {
            session_id: session.to_owned(),
            participant_id: participant.to_owned(),
            attach_grant: grant.to_vec(),
            requested_role: AttachRole::Spectator.into(),
            ..Attach::default()
        })))
        .await;
    }

    pub(crate) async fn type_text(&mut self, keys: &str) {
        let bytes = Bytes::copy_from_slice(keys.as_bytes());
        self.send(Kind::data(Stream::Stdin, bytes)).await;
    }

    pub(crate) async fn signals(&mut self, signal: Signal) {
        self.send(Kind::Heartbeat(Heartbeat {
            signal: Some(signal.into()),
            ..Heartbeat::default()
        }))
        .await;
    }

    /// Waits until this text appears in the output.
    pub(crate) async fn wait_for_output(&mut self, text: &str) {
        self.looked = 0;
        if self.has_output(text) {
            return;
        }
        self.until(text, |person, _| person.has_output(text).then_some(()))
            .await;
    }

    /// Output that was checked is not checked again, except for a possible partial match at its
    /// end.
    fn has_output(&mut self, text: &str) -> bool {
        let new = &self.shown[self.looked..];
        let found = new.windows(text.len()).any(|part| part == text.as_bytes());
        self.looked = self.shown.len().saturating_sub(text.len());
        found
    }

    /// Waits for a notice of this kind, and takes it.
    pub(crate) async fn notice(&mut self, wanted: NoticeKind) -> Notice {
        let find = |person: &mut Self| {
            let mut all = person.notices.iter();
            let place = all.position(|notice| notice.kind() == wanted)?;
            Some(person.notices.remove(place))
        };
        if let Some(notice) = find(self) {
            return notice;
        }
        self.until(&format!("{wanted:?}"), |person, _| find(person))
            .await
    }

    /// Waits for the end of the connection.
    pub(crate) async fn wait_for_close(&mut self) {
        while self.step("the end").await.is_some() {}
    }

    /// The current screen, drawn by a terminal of the same size.
    pub(crate) fn screen(&self) -> Vec<String> {
        let mut screen = tty::screen::Screen::new(Size { rows: 5, cols: 20 }).unwrap();
        screen.feed(&self.shown);
        let rows = screen.rows();
        rows.iter().map(|row| row.trim_end().to_owned()).collect()
    }

    /// Waits a while for a message that must not arrive.
    pub(crate) async fn assert_quiet(&mut self, what: &str) {
        let before = self.shown.len();
        let listening = async { while self.step(what).await.is_some() {} };
        tokio::time::timeout(Duration::from_millis(200), listening)
            .await
            .ok();
        assert_eq!(self.shown.len(), before, "{what}");
    }

    async fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Self, &Kind) -> Option<T>,
    ) -> T {
        loop {
            let kind = self.step(what).await;
            let kind = kind.unwrap_or_else(|| panic!("{what}: it was over: {:?}", self.error));
            if let Some(found) = found(self, &kind) {
                return found;
            }
        }
    }

    async fn step(&mut self, what: &str) -> Option<Kind> {
        if self.over {
            return None;
        }
        let Some(kind) = within(what, self.link.next()).await else {
            self.over = true;
            return None;
        };
        match &kind {
            Kind::Data(data) => {
                if let Some(Payload::Data(bytes)) = &data.payload {
                    self.shown.extend_from_slice(bytes);
                }
            }
            Kind::Heartbeat(heartbeat) => {
                if let Some(notice) = &heartbeat.notice {
                    if notice.kind() == NoticeKind::Snapshot {
                        self.shown.clear();
                        self.looked = 0;
                    }
                    self.notices.push((**notice).clone());
                }
            }
            Kind::Close(close) => self.closed = Some(close.clone()),
            Kind::Error(error) => self.error = Some(error.msg.clone()),
            _ => {}
        }
        Some(kind)
    }
}
