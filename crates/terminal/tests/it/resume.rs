//! Extensions of our own client: reconnecting, signals, and the reason of the end.

use std::time::Duration;

use bytes::Bytes;
use terminal::client::{Request, Session};
use terminal::server::Transport;
use tty::message::{
    Ack, Heartbeat, Kind, OpenCommand, OpenSession, Payload, Resume, Signal, TerminationReason,
};

use crate::ends::{Host, SOON, ours, script};
use crate::interceptor::{Interceptor, listen, read_to_end};

fn back(ack: &Ack, received: u64) -> OpenCommand {
    let session = ack.session.as_ref().unwrap();
    OpenCommand {
        session: Some(OpenSession {
            features: Vec::new(),
            resume: Some(Resume {
                token: session.resume_token.clone(),
                received,
            }),
            size: None,
        }),
        ..OpenCommand::default()
    }
}

#[tokio::test]
async fn a_shell_outlives_its_connection_and_its_output_is_repeated() {
    let host = Host::new();
    let mut client = host.websocket().await;
    let first = client
        .open(ours("echo one; read x; echo two $x; read y; exit 4", true))
        .await;
    let session = first.session.clone().unwrap();
    assert_eq!(session.grace_seconds, 600);
    client.until("one\r\n").await;
    drop(client);

    // Over the other transport.
    let mut client = host.plain();
    let again = client.open(back(&first, 0)).await;
    let session = again.session.clone().unwrap();
    assert_eq!(session.output_from, Some(0));
    assert_ne!(
        session.resume_token,
        first.session.as_ref().unwrap().resume_token
    );
    client.until("one\r\n").await;
    client.input("x\n").await;
    client.until("two x\r\n").await;
    assert_eq!(host.server.sessions(), 1);

    // A connection that is still open is replaced, and its token is not valid any more.
    let mut thief = host.plain();
    thief.send(&Kind::Open(Box::new(back(&first, 0)))).await;
    assert!(thief.refused().await.contains("session to resume"));
    let mut third = host.plain();
    let received = "one\r\nx\r\ntwo x\r\n".len().try_into().unwrap();
    third.open(back(&again, received)).await;
    assert_eq!(client.said().await, None);
    third.input("y\n").await;
    assert_eq!(third.finish().await.2.return_code, 4);
    host.empty().await;
}

#[tokio::test]
async fn a_forged_token_is_refused() {
    let host = Host::new();
    let mut client = host.plain();
    let ack = client.open(ours("read x", true)).await;
    let token = ack.session.as_ref().unwrap().resume_token.clone();
    for forge in [
        |token: &mut Vec<u8>| token[31] ^= 1,
        |token: &mut Vec<u8>| token[8..].fill(0),
        |token: &mut Vec<u8>| token.truncate(8),
        |token: &mut Vec<u8>| token.clear(),
        |token: &mut Vec<u8>| token[0] ^= 1,
    ] {
        let mut open = back(&ack, 0);
        let resume = open.session.as_mut().unwrap().resume.as_mut().unwrap();
        resume.token = token.clone();
        forge(&mut resume.token);
        let mut thief = host.plain();
        thief.send(&Kind::Open(Box::new(open))).await;
        assert!(thief.refused().await.contains("session to resume"));
    }
    assert_eq!(host.server.sessions(), 1);
    client.input("\n").await;
    client.finish().await;
}

/// A browser keeps a token, and another account may sign in there.
#[tokio::test]
async fn only_the_account_that_opened_a_session_can_resume_it() {
    const ACCOUNT: &str = "svc-user-id";
    let host = Host::new();
    let mut ann = host.websocket_with(&[(ACCOUNT, "usr_ann")]).await;
    let ack = ann.open(ours("read x; echo two $x", true)).await;
    drop(ann);
    let twice = [(ACCOUNT, "usr_ann"), (ACCOUNT, "usr_bob")];
    for heads in [&[(ACCOUNT, "usr_bob")][..], &[], &twice] {
        let mut other = host.websocket_with(heads).await;
        other.send(&Kind::Open(Box::new(back(&ack, 0)))).await;
        assert!(
            other.refused().await.contains("session to resume"),
            "{heads:?}"
        );
    }
    let mut other = host.plain();
    other.send(&Kind::Open(Box::new(back(&ack, 0)))).await;
    assert!(other.refused().await.contains("session to resume"));
    let mut ann = host.websocket_with(&[(ACCOUNT, "usr_ann")]).await;
    ann.open(back(&ack, 0)).await;
    ann.input("x\n").await;
    ann.until("two x").await;
    ann.finish().await;
}

#[tokio::test]
async fn a_client_that_does_not_reconnect_loses_its_shell() {
    let host = Host::with(|settings| settings.limits.grace = Duration::from_millis(50));
    let mut client = host.plain();
    let ack = client.open(ours("sleep 600", true)).await;
    drop(client);
    host.empty().await;
    let mut client = host.plain();
    client.send(&Kind::Open(Box::new(back(&ack, 0)))).await;
    assert!(client.refused().await.contains("session to resume"));
}

#[tokio::test]
async fn signals_are_delivered_and_the_exit_status_is_reported() {
    let host = Host::new();
    for (signal, name) in [(Signal::User1, "USR1"), (Signal::Kill, "KILL")] {
        let mut client = host.plain();
        client.open(ours("echo ready; exec sleep 600", false)).await;
        client.until("ready").await;
        let heartbeat = Heartbeat {
            signal: Some(signal.into()),
            ..Heartbeat::default()
        };
        client.send(&Kind::Heartbeat(heartbeat)).await;
        let close = client.finish().await.2;
        let number = i32::from(signal);
        assert_eq!(close.return_code, 128 + number);
        let termination = close.termination.unwrap();
        assert_eq!(termination.signal, name);
        assert_eq!(termination.reason(), TerminationReason::Signalled);
    }
}

#[tokio::test]
async fn hidden_input_is_announced_before_it_is_typed() {
    let host = Host::new();
    let mut client = host.plain();
    client
        .open(ours(
            "stty -echo; echo password; read x; stty echo; echo shown; read y",
            true,
        ))
        .await;
    let told = async |client: &mut crate::ends::Client| loop {
        match client.receive().await {
            Some(Kind::Heartbeat(Heartbeat {
                secret_input: Some(secret),
                ..
            })) => return secret,
            Some(Kind::Heartbeat(_) | Kind::Data(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(told(&mut client).await);
    client.input("secret\n").await;
    assert!(!told(&mut client).await);
    client.input("\n").await;
    let (output, ..) = client.finish().await;
    assert!(!output.contains("secret"), "{output}");
}

#[tokio::test]
async fn limits_end_a_session_with_their_reason() {
    for (idle, reason) in [
        (true, TerminationReason::Idle),
        (false, TerminationReason::Duration),
    ] {
        let host = Host::with(|settings| {
            let limit = Some(Duration::from_millis(300));
            if idle {
                settings.limits.idle = limit;
            } else {
                settings.limits.duration = limit;
            }
        });
        let mut client = host.plain();
        client
            .open(ours(
                "while :; do echo x; sleep 0.05; [ $1 ] || :; done",
                true,
            ))
            .await;
        if idle {
            // Output counts as activity, so this one prints nothing.
            drop(client);
            client = host.plain();
            client.open(ours("sleep 600", true)).await;
        }
        let close = client.finish().await.2;
        assert_eq!(close.termination.unwrap().reason(), reason);
        host.server.kill();
    }
}

/// A limit also applies to a command that never stops writing.
#[tokio::test]
async fn a_flood_does_not_outlast_its_limit() {
    let host = Host::with(|settings| {
        settings.limits.duration = Some(Duration::from_millis(300));
    });
    let mut client = host.plain();
    client.open(ours("exec yes", true)).await;
    let close = client.finish().await.2;
    let reason = close.termination.unwrap().reason();
    assert_eq!(reason, TerminationReason::Duration);
}

#[tokio::test]
async fn sessions_have_a_limit() {
    let host = Host::with(|settings| settings.limits.sessions = 2);
    let mut clients = [host.plain(), host.plain()];
    for client in &mut clients {
        client.open(ours("read x", true)).await;
    }
    let mut third = host.plain();
    third
        .send(&Kind::Open(Box::new(script("true", false))))
        .await;
    assert!(third.refused().await.contains("session limit"));
    for client in &mut clients {
        client.input("\n").await;
        client.finish().await;
    }
    host.empty().await;
    let mut fourth = host.plain();
    fourth.open(script("true", false)).await;
    fourth.finish().await;
}

#[tokio::test]
async fn a_server_that_stops_notifies_its_clients_and_leaves_no_process() {
    let host = Host::new();
    let mut shell = host.plain();
    // An interactive shell ignores TERM.
    shell
        .open(ours("trap '' TERM; echo ready; read x", true))
        .await;
    shell.until("ready").await;
    let mut pipe = host.websocket().await;
    pipe.open(ours("sleep 601 & echo $!; wait", false)).await;
    let child: i32 = pipe.until("\n").await.trim().parse().unwrap();
    let server = host.server.clone();
    let drained = tokio::spawn(async move { server.drain().await });
    for client in [&mut shell, &mut pipe] {
        let close = client.finish().await.2;
        assert_eq!(
            close.termination.unwrap().reason(),
            TerminationReason::Drain
        );
    }
    let mut late = host.plain();
    assert!(late.refused().await.contains("shutting down"));
    drop((shell, pipe, late));
    tokio::time::timeout(SOON, drained).await.unwrap().unwrap();
    // A signal takes a moment to take effect.
    let stat = format!("/proc/{child}/stat");
    let gone = async {
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("it is gone");
}

/// A close that did not arrive is sent again. An ended session takes no slot.
#[tokio::test]
async fn a_client_that_loses_the_connection_at_the_end_gets_the_exit_status() {
    let host = Host::with(|settings| settings.limits.sessions = 1);
    let mut client = host.websocket().await;
    let ack = client.open(ours("echo bye; exit 3", false)).await;
    client.finish().await;
    // Without a goodbye.
    drop(client);
    let mut other = host.websocket().await;
    other.open(ours("read x", false)).await;
    let mut client = host.websocket().await;
    client.open(back(&ack, 0)).await;
    let (output, _, close) = client.finish().await;
    assert_eq!((output.as_str(), close.return_code), ("bye\n", 3));

    // The same for `terminal::client`, with an interceptor.
    let host = Host::new();
    let interceptor = Interceptor::start(host, |connection, _, kind| {
        let is_cut = connection == 0 && matches!(kind, Kind::Close(_));
        (!is_cut).then_some(vec![kind])
    });
    let interceptor = interceptor.await;
    let request = Request::new(script("echo bye; exit 3", false).config.unwrap());
    let (mut session, _input) = Session::start(interceptor.endpoint.clone(), request);
    let (shown, ended) = read_to_end(&mut session).await;
    assert_eq!((shown.as_slice(), ended.unwrap().code), (&b"bye\n"[..], 3));
}

/// Writing waits for reading and the other way round, and neither waits for itself.
#[tokio::test]
async fn pipes_that_write_more_than_they_read_end() {
    let host = Host::new();
    let (endpoint, listening) = listen(&host).await;
    let request = Request::new(script("sed 's/./&&&&&&&&/g'", false).config.unwrap());
    let (mut session, input) = Session::start(endpoint, request);
    let line = [vec![b'x'; 63], vec![b'\n']].concat();
    let piece = Bytes::from(line.repeat(512));
    let typing = async {
        for _ in 0..64 {
            assert!(input.typed(piece.clone()).await);
        }
        input.end().await;
    };
    let ((shown, ended), ()) = tokio::join!(read_to_end(&mut session), typing);
    assert_eq!(ended.unwrap().code, 0);
    assert_eq!(shown.len(), 64 * 512 * (8 * 63 + 1));
    listening.abort();
}

/// A client that does not read blocks its command, and the server's memory does not grow.
#[tokio::test]
async fn a_client_that_does_not_read_blocks_its_command() {
    let host = Host::new();
    let mut client = host.plain();
    client
        .open(script("head -c 3000000 /dev/zero; echo done >&2", false))
        .await;
    // Another client is served in the meantime.
    let mut other = host.plain();
    other.open(script("echo other", false)).await;
    assert_eq!(other.finish().await.0, "other\n");
    let mut bytes = 0;
    loop {
        match client.said().await {
            Some(Kind::Data(data)) => {
                if let Some(Payload::Data(data)) = data.payload {
                    bytes += data.len();
                }
            }
            Some(Kind::Close(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bytes, 3_000_000 + "done\n".len());
    drop(host.stream(Transport::Plain));
}

/// A command that does not read blocks its client, because the waiting input is limited.
#[tokio::test]
async fn a_command_that_does_not_read_blocks_its_client() {
    const PIECE: usize = 16 * 1024;
    let host = Host::new();
    let mut client = host.plain();
    client.open(script("sleep 600", false)).await;
    // From here on time passes only when no task is runnable.
    tokio::time::pause();
    let mut taken = 0;
    let typing = async {
        loop {
            client.input(&"x".repeat(PIECE)).await;
            taken += PIECE;
        }
    };
    let held = tokio::time::timeout(Duration::from_secs(1), typing).await;
    held.expect_err("it is blocked");
    // In addition to the waiting input: a message, the pipe of the command, and the stream with its
    // reader.
    let beside = PIECE + 3 * 64 * 1024;
    let most = 256 * 1024;
    assert!((most..=most + beside).contains(&taken), "{taken}");
}
