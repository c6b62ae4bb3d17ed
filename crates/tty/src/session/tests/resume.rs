//! Clients that lose their connection and resume.

use super::*;

#[test]
fn a_lost_client_resumes_once_with_its_token() {
    let now = Instant::now();
    let mut server = running(our_open(true), now);
    server.on_output(Stream::Stdout, "hello ".into(), now);
    server.on_lost(now);
    server.on_output(Stream::Stdout, "world".into(), now);
    drain(&mut server);

    let back = |token: [u8; TOKEN_LEN], received| OpenSession {
        features: Vec::new(),
        resume: Some(Resume {
            token: token.to_vec(),
            received,
        }),
        size: Some(Size::DEFAULT.into()),
    };
    // A forged token, and tokens of the wrong length.
    assert!(!server.accepts(back([8; TOKEN_LEN], 0).resume.as_ref().unwrap()));
    assert!(!server.accepts(&Resume::default()));
    server.on_resume(&back([8; TOKEN_LEN], 0), [9; TOKEN_LEN], now);
    assert_eq!(server.command(), None);

    let first = back([7; TOKEN_LEN], 4);
    server.on_resume(&first, [9; TOKEN_LEN], now + GRACE / 2);
    let commands = drain(&mut server);
    let Some(Command::Send(Kind::Ack(ack))) = commands.first() else {
        panic!("an ack: {commands:?}");
    };
    assert_eq!(ack.session.as_ref().unwrap().output_from, Some(4));
    assert_eq!(
        commands[1..],
        [
            Command::Send(Kind::data(Stream::Stdout, "o ")),
            Command::Send(Kind::data(Stream::Stdout, "world")),
            Command::Resize(Size::DEFAULT),
        ]
    );
    // The answer may be lost, so the first token stays valid until the client sends a message.
    assert!(server.accepts(first.resume.as_ref().unwrap()));
    server.on_message(Kind::Heartbeat(Heartbeat::default()), now);
    // The old token is used again.
    assert!(!server.accepts(first.resume.as_ref().unwrap()));
    // The older connection that still seems alive is closed.
    server.on_resume(&back([9; TOKEN_LEN], 11), [10; TOKEN_LEN], now);
    assert_eq!(server.command(), Some(Command::Disconnect));
    drain(&mut server);
    // The count exceeds the sent bytes.
    server.on_resume(&back([10; TOKEN_LEN], 12), [11; TOKEN_LEN], now);
    assert!(sent_texts(&mut server).contains(&"error: more was received than was sent".to_owned()));
}

/// A client that gets an acknowledgement of more input sends more, and its acknowledgement of
/// output comes after that input.
#[test]
fn input_is_not_acknowledged_before_the_command_takes_it() {
    let now = Instant::now();
    let mut server = running(our_open(false), now);
    let acknowledged = |server: &mut Server| {
        let received = drain(server)
            .into_iter()
            .filter_map(|command| match command {
                Command::Send(Kind::Heartbeat(heartbeat)) => heartbeat.received,
                _ => None,
            });
        received.last()
    };
    let piece = Bytes::from(vec![b'x'; REPLAY]);
    let replay = u64::try_from(REPLAY).unwrap();
    server.on_message(Kind::data(Stream::Stdin, piece.clone()), now);
    assert_eq!(acknowledged(&mut server), Some(replay));
    server.on_message(Kind::data(Stream::Stdin, piece), now);
    assert_eq!(acknowledged(&mut server), None);
    server.on_time(now + HEARTBEAT);
    assert_eq!(acknowledged(&mut server), Some(replay));
    server.on_input_taken(REPLAY / 4 - 1);
    assert_eq!(acknowledged(&mut server), None);
    server.on_input_taken(1);
    assert_eq!(acknowledged(&mut server), Some(replay + replay / 4));
    server.on_input_taken(REPLAY);
    assert_eq!(acknowledged(&mut server), Some(2 * replay));
}

/// A peer may acknowledge bytes that it has not received. They are then lost, and the peer is
/// informed.
#[test]
fn acknowledged_bytes_are_not_requested_again() {
    let now = Instant::now();
    let arrived = |received| {
        Kind::Heartbeat(Heartbeat {
            received: Some(received),
            ..Heartbeat::default()
        })
    };
    let mut server = running(our_open(false), now);
    server.on_output(Stream::Stdout, "0123456789".into(), now);
    server.on_message(arrived(5), now);
    server.on_lost(now);
    drain(&mut server);
    let open = OpenSession {
        resume: Some(Resume {
            token: vec![7; TOKEN_LEN],
            received: 3,
        }),
        ..OpenSession::default()
    };
    server.on_resume(&open, [9; TOKEN_LEN], now);
    let error = "error: less was received than was reported".to_owned();
    assert!(sent_texts(&mut server).contains(&error));

    let mut client = Client::open(config(false), None, now);
    let ack = |input_received| {
        Kind::Ack(crate::message::Ack {
            session: Some(crate::message::AckSession {
                resume_token: vec![7; TOKEN_LEN],
                input_received,
                ..crate::message::AckSession::default()
            }),
        })
    };
    client.on_message(ack(0), now);
    client.on_input("0123456789".into());
    client.on_message(arrived(5), now);
    assert!(client.on_lost());
    client.reopen(now);
    client.on_message(ack(3), now);
    let last = std::iter::from_fn(|| client.command()).last();
    let failed = ClientCommand::Failed(ClientError::Unexpected("ack"));
    assert_eq!(last, Some(failed));
}

#[test]
fn the_command_ends_after_the_grace_period_of_a_lost_client() {
    let now = Instant::now();
    let mut server = running(our_open(true), now);
    server.on_lost(now);
    server.on_time(now + GRACE.saturating_sub(Duration::from_nanos(1)));
    assert_eq!(server.command(), None);
    server.on_time(now + GRACE);
    assert_eq!(drain(&mut server), [Command::Signal(Signal::Hangup)]);
    assert!(!server.accepts(&Resume {
        token: vec![7; TOKEN_LEN],
        received: 0
    }));

    // The command ended while the client was disconnected: the result is kept for the same time.
    let mut server = running(our_open(true), now);
    server.on_lost(now);
    server.on_output(Stream::Stdout, "bye".into(), now);
    server.on_output_end(Stream::Stdout, now);
    server.on_exit(Exit::Code(5), now);
    assert_eq!(server.command(), None);
    let open = OpenSession {
        resume: Some(Resume {
            token: vec![7; TOKEN_LEN],
            received: 0,
        }),
        ..OpenSession::default()
    };
    server.on_resume(&open, [9; TOKEN_LEN], now);
    assert_eq!(
        sent_texts(&mut server),
        [
            "ack",
            "Data(Stdout, 3 bytes)",
            "Data(Stdout, end)",
            "close 5 Exited ",
            "Disconnect"
        ]
    );

    // A published client cannot resume.
    let mut server = running(plain_open(true), now);
    server.on_lost(now);
    assert_eq!(drain(&mut server), [Command::Signal(Signal::Hangup)]);
}

/// The last messages may be lost like all others.
#[test]
fn a_client_can_receive_the_end_within_the_grace_period() {
    let now = Instant::now();
    let left = |open: Kind| {
        let mut server = running(open, now);
        server.on_output(Stream::Stdout, "bye".into(), now);
        server.on_output_end(Stream::Stdout, now);
        server.on_exit(Exit::Code(5), now);
        let end = [
            "Data(Stdout, 3 bytes)",
            "Data(Stdout, end)",
            "close 5 Exited ",
            "Disconnect",
        ];
        assert_eq!(sent_texts(&mut server), end);
        server.on_lost(now);
        server
    };
    // The client closed after it had received everything.
    let mut server = left(our_open(true));
    assert_eq!(server.command(), None);
    assert!(server.is_closed());
    server.on_end_received();
    assert_eq!(drain(&mut server), [Command::Release]);
    // The client resumes without having received it, and is lost again.
    let mut server = left(our_open(true));
    let open = OpenSession {
        resume: Some(Resume {
            token: vec![7; TOKEN_LEN],
            received: 1,
        }),
        ..OpenSession::default()
    };
    server.on_resume(&open, [9; TOKEN_LEN], now + GRACE / 2);
    server.on_end_received();
    let end = [
        "ack",
        "Data(Stdout, 2 bytes)",
        "Data(Stdout, end)",
        "close 5 Exited ",
        "Disconnect",
    ];
    assert_eq!(sent_texts(&mut server), end);
    server.on_lost(now + GRACE / 2);
    server.on_time(now + GRACE);
    assert_eq!(server.command(), None);
    server.on_time(now + GRACE / 2 + GRACE);
    assert_eq!(drain(&mut server), [Command::Release]);
    // Clients cannot resume on a server that shuts down.
    let mut server = left(our_open(true));
    server.terminate(TerminationReason::Drain, "", now);
    assert_eq!(drain(&mut server), [Command::Release]);
    let mut server = running(our_open(true), now);
    server.on_exit(Exit::Code(5), now);
    server.terminate(TerminationReason::Drain, "", now);
    server.on_output_end(Stream::Stdout, now);
    drain(&mut server);
    server.on_lost(now);
    assert_eq!(drain(&mut server), [Command::Release]);
}

#[test]
fn the_output_for_a_lost_client_is_bounded() {
    let now = Instant::now();
    let chunk = Bytes::from(vec![b'x'; 4096]);
    // A terminal drops the oldest output and redraws.
    let mut server = running(our_open(true), now);
    server.on_lost(now);
    for _ in 0..REPLAY / 4096 + 10 {
        server.on_output(Stream::Stdout, chunk.clone(), now);
    }
    let open = |received| OpenSession {
        resume: Some(Resume {
            token: vec![7; TOKEN_LEN],
            received,
        }),
        ..OpenSession::default()
    };
    server.on_resume(&open(0), [9; TOKEN_LEN], now);
    let commands = drain(&mut server);
    assert!(commands.contains(&Command::Redraw));
    let sent = commands
        .iter()
        .filter(|c| matches!(c, Command::Send(Kind::Data(_))));
    assert_eq!(sent.count(), REPLAY / 4096);

    // A pipe loses no output: the command waits.
    let mut server = running(our_open(false), now);
    for _ in 0..REPLAY / 4096 {
        server.on_output(Stream::Stdout, chunk.clone(), now);
    }
    assert_eq!(drain(&mut server).last(), Some(&Command::HoldOutput));
    server.on_message(
        Kind::Heartbeat(Heartbeat {
            received: Some(4096),
            ..Heartbeat::default()
        }),
        now,
    );
    assert_eq!(drain(&mut server), [Command::ReadOutput]);
}
