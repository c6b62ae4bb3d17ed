use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Trust;
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tty::message::{Config, Options, Signal, Stream};
use tty::seal::{Identity, PublicKey, SealError};
use tty::session::{ClientError, Exit};
use tty::size::Size;

use super::super::{
    CommandEnd, ConnectionError, Endpoint, Event, Request, Seal, Session, SessionError,
};
use super::fake::{Act, Fake, SealKeys};

fn endpoint(url: &str) -> Endpoint {
    Endpoint::url(url, None, Trust::Platform).unwrap()
}

fn command(words: &str) -> Config {
    Config {
        cmd_args: words.split(' ').map(str::to_owned).collect(),
        ..Config::default()
    }
}

fn terminal() -> Request {
    Request {
        size: Some(Size::DEFAULT),
        ..Request::new(Config {
            options: Some(Options {
                interactive: true,
                allocate_tty: true,
                send_heartbeat: true,
            }),
            ..Config::default()
        })
    }
}

async fn next(session: &mut Session) -> Event {
    let event = timeout(Duration::from_mins(1), session.event()).await;
    event.unwrap().unwrap()
}

/// All output, and the end.
async fn rest(session: &mut Session) -> (String, Result<CommandEnd, SessionError>) {
    let mut shown = Vec::new();
    loop {
        match next(session).await {
            Event::Output(_, bytes) => shown.extend(bytes),
            Event::Ended(ended) => return (String::from_utf8(shown).unwrap(), ended),
            _ => {}
        }
    }
}

/// A command that echoes, until its input requests its exit.
fn echo(text: &str) -> Vec<Act> {
    match text {
        _ if text.starts_with("open") => vec![],
        "exit" | "end" => vec![
            Act::End(Stream::Stdout),
            Act::End(Stream::Stderr),
            Act::Exit(Exit::Code(7)),
        ],
        text => vec![Act::Write(Stream::Stdout, Bytes::from(text.to_owned()))],
    }
}

/// WT-1: a command with its input, its output and its end.
#[tokio::test]
async fn a_command_runs_with_its_input_and_its_end() {
    let mut fake = Fake::start(None, echo).await;
    let (mut session, input) = Session::start(endpoint(&fake.url), Request::new(command("cat -n")));
    assert!(matches!(
        next(&mut session).await,
        Event::Opened { session_id: Some(id) } if id == "session-1"
    ));
    assert_eq!(fake.next_received().await, "open cat -n");
    assert!(input.typed(Bytes::from_static(b"hello")).await);
    assert_eq!(fake.next_received().await, "hello");
    assert!(input.signal(Signal::User1).await);
    assert_eq!(fake.next_received().await, "signal USR1");
    assert!(input.end().await);
    let (shown, ended) = rest(&mut session).await;
    assert_eq!(shown, "hellosignal USR1");
    let ended = ended.unwrap();
    assert_eq!(ended.code, 7);
    assert_eq!(session.event().await.map(|_| ()), None);
}

#[tokio::test]
async fn input_and_output_are_complete_after_a_lost_connection() {
    let mut fake = Fake::start(None, echo).await;
    let (mut session, input) = Session::start(endpoint(&fake.url), terminal());
    assert!(matches!(next(&mut session).await, Event::Opened { .. }));
    assert_eq!(fake.next_received().await, "open ");
    input.typed(Bytes::from_static(b"one ")).await;
    assert!(matches!(next(&mut session).await, Event::Output(_, bytes) if bytes == "one "));
    fake.disconnect_all();
    assert!(matches!(next(&mut session).await, Event::Lost { .. }));
    input.typed(Bytes::from_static(b"two ")).await;
    assert!(matches!(
        next(&mut session).await,
        Event::Reconnected { missed: 0 }
    ));
    assert!(matches!(next(&mut session).await, Event::Output(_, bytes) if bytes == "two "));
    input
        .resize(Size {
            rows: 50,
            cols: 132,
        })
        .await;
    while fake.next_received().await != "size 132x50" {}
    input.typed(Bytes::from_static(b"exit")).await;
    let (_, ended) = rest(&mut session).await;
    assert_eq!(ended.unwrap().code, 7);
}

#[tokio::test]
async fn a_failed_resume_is_reported_with_its_reason() {
    let fake = Fake::start(None, echo).await;
    let request = Request {
        resumes: false,
        ..terminal()
    };
    let (mut session, _input) = Session::start(endpoint(&fake.url), request);
    assert!(matches!(next(&mut session).await, Event::Opened { .. }));
    fake.disconnect_all();
    let (_, ended) = rest(&mut session).await;
    assert!(
        matches!(
            ended,
            Err(SessionError::Connection(_) | SessionError::HungUp)
        ),
        "{ended:?}"
    );
}

#[tokio::test]
async fn leaving_ends_the_command() {
    let mut fake = Fake::start(None, echo).await;
    let (mut session, _input) = Session::start(endpoint(&fake.url), terminal());
    assert!(matches!(next(&mut session).await, Event::Opened { .. }));
    assert_eq!(fake.next_received().await, "open ");
    session.leave().await;
    // Size that follows the open, then the end.
    let mut seen = fake.next_received().await;
    while seen.starts_with("size") {
        seen = fake.next_received().await;
    }
    assert_eq!(seen, "signal HUP");
}

/// A slow reader pauses the command, and loses no output.
#[tokio::test]
async fn a_slow_reader_gets_everything() {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let fake = Fake::start(None, move |text| {
        if text == "end" {
            return Vec::new();
        }
        let mut acts: Vec<_> = (0..3)
            .map(|_| Act::Write(Stream::Stdout, piece.clone()))
            .collect();
        acts.extend(echo("exit"));
        acts
    })
    .await;
    let (mut session, _input) = Session::start(endpoint(&fake.url), Request::new(command("yes")));
    let (shown, ended) = rest(&mut session).await;
    assert_eq!(shown.len(), 3 * 64 * 1024);
    assert_eq!(ended.unwrap().code, 7);
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    // The port is bound, but does not listen.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("ws://{}", held.local_addr().unwrap());
    let (mut session, _input) = Session::start(endpoint(&url), Request::new(command("true")));
    let (_, ended) = rest(&mut session).await;
    assert!(
        matches!(
            ended,
            Err(SessionError::Connection(
                ConnectionError::Unreachable { .. }
            ))
        ),
        "{ended:?}"
    );
}

struct Keys {
    client: Arc<Identity>,
    server: Arc<Identity>,
}

impl Keys {
    fn new() -> Self {
        let [client, server] = [(), ()].map(|()| Arc::new(Identity::generate().unwrap()));
        Self { client, server }
    }

    fn seal_keys(&self, authorized: &[PublicKey]) -> SealKeys {
        SealKeys {
            identity: Arc::clone(&self.server),
            authorized: authorized.to_vec(),
        }
    }

    fn request(&self, server: PublicKey) -> Request {
        Request {
            seal: Some(Seal {
                identity: Arc::clone(&self.client),
                server,
                context: Vec::new(),
            }),
            ..Request::new(command("cat"))
        }
    }
}

/// WT-5: both ends have each other's key, also after a lost connection.
#[tokio::test]
async fn a_sealed_session_runs_and_resumes() {
    let keys = Keys::new();
    let mut fake = Fake::start(Some(keys.seal_keys(&[keys.client.public()])), echo).await;
    let request = keys.request(keys.server.public());
    let (mut session, input) = Session::start(endpoint(&fake.url), request);
    assert!(matches!(next(&mut session).await, Event::Opened { .. }));
    assert_eq!(fake.next_received().await, "open cat");
    input.typed(Bytes::from_static(b"secret")).await;
    assert_eq!(fake.next_received().await, "secret");
    assert!(matches!(next(&mut session).await, Event::Output(_, bytes) if bytes == "secret"));
    fake.disconnect_all();
    assert!(matches!(next(&mut session).await, Event::Lost { .. }));
    assert!(matches!(
        next(&mut session).await,
        Event::Reconnected { missed: 0 }
    ));
    input.end().await;
    let (_, ended) = rest(&mut session).await;
    assert_eq!(ended.unwrap().code, 7);
}

/// A proxy to a server that handles each connection, in order, as `guests` states.
async fn proxy(fake: &Fake, fates: &'static [ConnectionFate]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let inside = fake.url.trim_start_matches("ws://").trim_end_matches('/');
    let inside = inside.to_owned();
    let task = tokio::spawn(async move {
        for fate in fates
            .iter()
            .chain(std::iter::repeat(&ConnectionFate::Forward))
        {
            let (mut stream, _) = listener.accept().await.unwrap();
            match fate {
                ConnectionFate::Forward => {
                    let mut inner = TcpStream::connect(&inside).await.unwrap();
                    tokio::spawn(async move { copy_bidirectional(&mut stream, &mut inner).await });
                }
                ConnectionFate::Drop => {
                    let read = stream.read(&mut [0; 4096]).await.unwrap();
                    assert!(read > 0);
                }
                ConnectionFate::HangUp => {
                    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                    socket.next().await.unwrap().unwrap();
                    socket.close(None).await.unwrap();
                    while let Some(Ok(_)) = socket.next().await {}
                }
            }
        }
    });
    (url, task)
}

enum ConnectionFate {
    /// Forwards the connection.
    Forward,
    /// Drops the connection without an answer.
    Drop,
    /// Closes the connection after the hello.
    HangUp,
}

/// The network recovers after a while.
#[tokio::test]
async fn a_client_resumes_after_several_attempts() {
    let keys = Keys::new();
    let fake = Fake::start(Some(keys.seal_keys(&[keys.client.public()])), echo).await;
    let fates = &[
        ConnectionFate::Forward,
        ConnectionFate::Drop,
        ConnectionFate::HangUp,
        ConnectionFate::Drop,
    ];
    let (url, proxy) = proxy(&fake, fates).await;
    let request = keys.request(keys.server.public());
    let (mut session, input) = Session::start(endpoint(&url), request);
    assert!(matches!(next(&mut session).await, Event::Opened { .. }));
    fake.disconnect_all();
    assert!(matches!(next(&mut session).await, Event::Lost { .. }));
    assert!(matches!(
        next(&mut session).await,
        Event::Reconnected { .. }
    ));
    input.end().await;
    let (_, ended) = rest(&mut session).await;
    assert_eq!(ended.unwrap().code, 7);
    proxy.abort();
}

/// A first connection that fails is reported with a likely cause, without retries.
#[tokio::test]
async fn a_connection_that_is_closed_at_the_start_is_reported() {
    let keys = Keys::new();
    let fake = Fake::start(None, echo).await;
    let (url, proxy) = proxy(&fake, &[ConnectionFate::HangUp]).await;
    let request = keys.request(keys.server.public());
    let (mut session, _input) = Session::start(endpoint(&url), request);
    let (_, ended) = rest(&mut session).await;
    assert!(matches!(ended, Err(SessionError::NoHello)), "{ended:?}");
    proxy.abort();
}

/// WT-5: an unauthorized client and an unknown server fail closed.
#[tokio::test]
async fn unknown_keys_are_rejected() {
    let keys = Keys::new();
    let stranger = Identity::generate().unwrap().public();
    let mut fake = Fake::start(Some(keys.seal_keys(&[stranger])), echo).await;
    let request = keys.request(keys.server.public());
    let (mut session, _input) = Session::start(endpoint(&fake.url), request);
    let (_, ended) = rest(&mut session).await;
    assert!(
        matches!(ended, Err(SessionError::Server(ClientError::Refused(_)))),
        "{ended:?}"
    );
    let (mut session, _input) = Session::start(endpoint(&fake.url), keys.request(stranger));
    let (_, ended) = rest(&mut session).await;
    assert!(
        matches!(
            ended,
            Err(SessionError::Server(_) | SessionError::NotSealed)
        ),
        "{ended:?}"
    );
    while let Ok(seen) = fake.seen.try_recv() {
        assert_eq!(seen, "hung up");
    }
}

/// WT-5: the client aborts if a server answers without sealing.
#[tokio::test]
async fn an_unsealed_server_receives_no_command() {
    let keys = Keys::new();
    let mut fake = Fake::start(None, echo).await;
    let request = keys.request(keys.server.public());
    let (mut session, _input) = Session::start(endpoint(&fake.url), request);
    let (_, ended) = rest(&mut session).await;
    assert!(
        matches!(
            ended,
            Err(SessionError::NotSealed
                | SessionError::Server(_)
                | SessionError::Seal(SealError::WrongRecipient))
        ),
        "{ended:?}"
    );
    while let Ok(seen) = fake.seen.try_recv() {
        assert!(!seen.starts_with("open"), "{seen}");
    }
}
