//! An interceptor between a terminal client and a test server. It can change, drop or add messages.

use client::Trust;
use futures_util::{SinkExt as _, StreamExt as _};
use terminal::client::{CommandEnd, Endpoint, Event, Session, SessionError};
use terminal::server::Transport;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tty::message::{self, Kind};

use crate::ends::{Host, SOON};

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageSender {
    Client,
    Server,
}

/// The interceptor. It stops when dropped.
pub(crate) struct Interceptor {
    pub(crate) endpoint: Endpoint,
    task: JoinHandle<()>,
}

impl Interceptor {
    /// `change` gets the number of the connection, the sender and the message, and returns the
    /// messages that are forwarded instead. `None` breaks the connection.
    pub(crate) async fn start(
        host: Host,
        mut change: impl FnMut(usize, MessageSender, Kind) -> Option<Vec<Kind>> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                serve(&host, stream, |from, kind| change(number, from, kind)).await;
            }
        });
        Self {
            endpoint: Endpoint::url(&url, None, Trust::Platform).unwrap(),
            task,
        }
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves connections without an interceptor, until the task ends.
pub(crate) async fn listen(host: &Host) -> (Endpoint, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let server = host.server.clone();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            server.spawn(stream, Transport::WebSocket, None);
        }
    });
    let endpoint = Endpoint::url(&url, None, Trust::Platform);
    (endpoint.unwrap(), task)
}

/// Serves one connection after the other, since a client has one at a time.
async fn serve(
    host: &Host,
    stream: TcpStream,
    mut change: impl FnMut(MessageSender, Kind) -> Option<Vec<Kind>>,
) {
    let mut client = tokio_tungstenite::accept_async(stream).await.unwrap();
    let stream = host.stream(Transport::WebSocket);
    let (mut server, _) = tokio_tungstenite::client_async("ws://host/", stream)
        .await
        .unwrap();
    loop {
        let (from, received) = tokio::select! {
            received = client.next() => (MessageSender::Client, received),
            received = server.next() => (MessageSender::Server, received),
        };
        let kind = match received {
            Some(Ok(Message::Binary(bytes))) => message::decode(bytes).unwrap(),
            Some(Ok(Message::Close(frame))) => {
                let (one, other) = (client.close(frame.clone()), server.close(frame));
                drop(tokio::join!(one, other));
                return;
            }
            Some(Ok(_)) => continue,
            Some(Err(_)) | None => return,
        };
        let Some(kinds) = change(from, kind) else {
            return;
        };
        for kind in kinds {
            let message = Message::Binary(message::encode(&kind).unwrap());
            let sent = match from {
                MessageSender::Client => server.send(message).await,
                MessageSender::Server => client.send(message).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// Reads the session to its end. Returns its output, and how it ended.
pub(crate) async fn read_to_end(
    session: &mut Session,
) -> (Vec<u8>, Result<CommandEnd, SessionError>) {
    let mut output = Vec::new();
    loop {
        let event = timeout(SOON, session.event()).await;
        match event.expect("an event in time").unwrap() {
            Event::Output(_, bytes) => output.extend(bytes),
            Event::Ended(ended) => return (output, ended),
            _ => {}
        }
    }
}
