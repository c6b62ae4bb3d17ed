mod pair;
mod resume;

use std::time::Instant;

use bytes::Bytes;

use super::*;
use crate::message::{
    Config, Feature, Heartbeat, Kind, OpenCommand, OpenSession, Options, Resume, Signal, Stream,
    TerminalSize, TerminationReason,
};
use crate::size::Size;

const GRACE: Duration = Duration::from_secs(20);

fn settings() -> Settings {
    Settings {
        session_id: "s".to_owned(),
        grace: GRACE,
        idle: None,
        duration: None,
    }
}

fn config(allocate_tty: bool) -> Config {
    Config {
        options: Some(Options {
            allocate_tty,
            ..Options::default()
        }),
        cmd_args: vec!["sh".to_owned()],
        ..Config::default()
    }
}

/// An `Open` of a published client, without our additions.
fn plain_open(tty: bool) -> Kind {
    Kind::Open(Box::new(OpenCommand {
        config: Some(config(tty)),
        ..OpenCommand::default()
    }))
}

fn our_open(tty: bool) -> Kind {
    Kind::Open(Box::new(OpenCommand {
        config: Some(config(tty)),
        session: Some(OpenSession {
            features: vec![Feature::Signals.into(), Feature::Resume.into()],
            ..OpenSession::default()
        }),
        ..OpenCommand::default()
    }))
}

fn drain(server: &mut Server) -> Vec<Command> {
    std::iter::from_fn(|| server.command()).collect()
}

/// Texts of the messages to the client.
fn sent_texts(server: &mut Server) -> Vec<String> {
    let words = drain(server).into_iter().map(|command| match command {
        Command::Send(Kind::Close(close)) => {
            let termination = close.termination.unwrap_or_default();
            format!(
                "close {} {:?} {}",
                close.return_code,
                termination.reason(),
                termination.signal
            )
        }
        Command::Send(Kind::Error(error)) => format!("error: {}", error.msg),
        Command::Send(Kind::Ack(_)) => "ack".to_owned(),
        Command::Send(Kind::Data(data)) => format!("{data:?}"),
        Command::Send(kind) => format!("{kind:?}"),
        Command::Start(_) => "start".to_owned(),
        command => format!("{command:?}"),
    });
    words.collect()
}

fn running(open: Kind, now: Instant) -> Server {
    let mut server = Server::new(settings(), now);
    server.on_message(open, now);
    server.on_started([7; TOKEN_LEN], now);
    assert_eq!(sent_texts(&mut server), ["start", "ack"]);
    server
}

#[test]
fn a_published_client_runs_a_command_in_pipes() {
    let now = Instant::now();
    let mut server = Server::new(settings(), now);
    server.on_message(plain_open(false), now);
    server.on_started([7; TOKEN_LEN], now);
    server.on_message(Kind::data(Stream::Stdin, ""), now);
    server.on_message(Kind::data(Stream::Stdin, "in"), now);
    server.on_message(Kind::end(Stream::Stdin), now);
    server.on_output(Stream::Stdout, "out".into(), now);
    server.on_output(Stream::Stderr, "err".into(), now);
    server.on_exit(Exit::Code(3), now);
    server.on_output_end(Stream::Stdout, now);
    server.on_output_end(Stream::Stderr, now);
    let Some(Command::Start(start)) = server.command() else {
        panic!("a start");
    };
    assert_eq!(start.terminal, None);
    // The bytes are exactly those of the published server.
    let expected = [
        Command::Send(Kind::Ack(crate::message::Ack::default())),
        Command::Input("in".into()),
        Command::EndInput,
        Command::Send(Kind::data(Stream::Stdout, "out")),
        Command::Send(Kind::data(Stream::Stderr, "err")),
        Command::Send(Kind::end(Stream::Stdout)),
        Command::Send(Kind::end(Stream::Stderr)),
        Command::Send(Kind::Close(crate::message::Close {
            return_code: 3,
            termination: None,
        })),
        Command::Disconnect,
    ];
    assert_eq!(drain(&mut server), expected);
    server.on_lost(now);
    assert_eq!(drain(&mut server), [Command::Release]);
}

#[test]
fn a_terminal_has_a_size_and_its_input_does_not_end() {
    let now = Instant::now();
    let mut server = running(plain_open(true), now);
    let size = |row, col| {
        Kind::Parameter(
            TerminalSize {
                row,
                col,
                ..TerminalSize::default()
            }
            .into(),
        )
    };
    server.on_message(size(40, 100), now);
    server.on_message(size(0, 0), now);
    server.on_message(Kind::end(Stream::Stdin), now);
    server.on_message(Kind::data(Stream::Stdin, "x"), now);
    assert_eq!(
        drain(&mut server),
        [
            Command::Resize(Size::new(40, 100).unwrap()),
            Command::Input("x".into())
        ]
    );
}

#[test]
fn a_message_out_of_order_ends_the_session_with_an_error() {
    let heartbeat = |signal: Option<i32>| {
        Kind::Heartbeat(Heartbeat {
            signal,
            ..Heartbeat::default()
        })
    };
    // Before the `Open`.
    for (kind, why) in [
        (Kind::data(Stream::Stdin, "x"), "an unexpected data"),
        (
            Kind::Ack(crate::message::Ack::default()),
            "an unexpected ack",
        ),
        (
            Kind::Attach(Box::default()),
            "this server does not support joining sessions",
        ),
        (heartbeat(Some(9)), "a signal before the open"),
        (
            Kind::Open(Box::new(OpenCommand {
                session_key_grant: Some(crate::message::SessionKeyGrant::default()),
                ..OpenCommand::default()
            })),
            "this server does not support this encryption",
        ),
        (
            Kind::Open(Box::new(OpenCommand {
                session: Some(OpenSession {
                    resume: Some(Resume::default()),
                    ..OpenSession::default()
                }),
                ..OpenCommand::default()
            })),
            "the session to resume does not exist",
        ),
    ] {
        let now = Instant::now();
        let mut server = Server::new(settings(), now);
        server.on_message(kind, now);
        assert_eq!(
            sent_texts(&mut server),
            [format!("error: {why}"), "Disconnect".to_owned()]
        );
        server.on_lost(now);
        assert_eq!(drain(&mut server), [Command::Release]);
    }
    // While the command runs: it does not outlive a client that violates the protocol.
    for (kind, why) in [
        (plain_open(false), "an unexpected open"),
        (Kind::data(Stream::Stdout, "x"), "data that is not input"),
        (
            Kind::Parameter(TerminalSize::default().into()),
            "a size without a terminal",
        ),
        (
            Kind::Close(crate::message::Close::default()),
            "an unexpected close",
        ),
        (heartbeat(Some(77)), "an unknown signal"),
        (heartbeat(Some(0)), "an unknown signal"),
    ] {
        let now = Instant::now();
        let mut server = running(plain_open(false), now);
        server.on_message(kind, now);
        assert_eq!(
            sent_texts(&mut server),
            [
                format!("error: {why}"),
                "Disconnect".to_owned(),
                "Signal(Hangup)".to_owned()
            ]
        );
        server.on_exit(Exit::Signal(1, "HUP"), now);
        server.on_time(now + CLOSE_DEADLINE);
        assert_eq!(drain(&mut server), [Command::Release], "{why}");
    }
}

#[test]
fn messages_during_the_start_do_not_orphan_the_command() {
    let now = Instant::now();
    let mut server = Server::new(settings(), now);
    server.on_message(our_open(true), now);
    server.on_message(plain_open(true), now);
    assert_eq!(
        sent_texts(&mut server),
        ["start", "error: an unexpected open", "Disconnect"]
    );
    server.on_started([7; TOKEN_LEN], now);
    assert_eq!(drain(&mut server), [Command::Signal(Signal::Hangup)]);
    server.on_time(now + STOP_GRACE);
    assert_eq!(drain(&mut server), [Command::Signal(Signal::Kill)]);
    server.on_exit(Exit::Signal(9, "KILL"), now);
    server.on_output_end(Stream::Stdout, now);
    assert_eq!(drain(&mut server), [Command::Release]);

    let mut server = Server::new(settings(), now);
    server.on_message(our_open(true), now);
    server.on_lost(now);
    server.on_start_failed("no such file", now);
    assert_eq!(sent_texts(&mut server), ["start", "Release"]);
}

#[test]
fn deadlines_apply_exactly() {
    let now = Instant::now();
    let just = Duration::from_nanos(1);
    let mut server = Server::new(settings(), now);
    assert_eq!(server.deadline(), Some(now + OPEN_DEADLINE));
    server.on_time(now + OPEN_DEADLINE.saturating_sub(just));
    assert_eq!(server.command(), None);
    server.on_time(now + OPEN_DEADLINE);
    assert_eq!(
        sent_texts(&mut server),
        ["error: no command was opened in time", "Disconnect"]
    );
    server.on_time(now + OPEN_DEADLINE + CLOSE_DEADLINE);
    assert_eq!(drain(&mut server), [Command::Release]);

    // A process that the command left behind has its pipe.
    let mut server = running(plain_open(false), now);
    server.on_exit(Exit::Code(0), now);
    server.on_output(Stream::Stdout, "late".into(), now);
    server.on_time(now + CLOSE_DEADLINE.saturating_sub(just));
    assert_eq!(sent_texts(&mut server), ["Data(Stdout, 4 bytes)"]);
    server.on_time(now + CLOSE_DEADLINE);
    assert_eq!(
        sent_texts(&mut server),
        ["close 0 Unspecified ", "Disconnect"]
    );
}

/// Output from before the end is not truncated for a slow client.
#[test]
fn unread_output_is_not_treated_as_endless_output() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let ended = |open: Kind| {
        let mut server = running(open, now);
        server.on_exit(Exit::Code(0), now);
        server
    };
    // Output stays unread for `unread` seconds. Returns the second after which it is truncated.
    let cut = |server: &mut Server, unread: u32| {
        (1..200).find(|n| {
            let now = now + second * *n;
            if *n <= unread {
                server.on_output_paused(now);
            }
            server.on_time(now);
            sent_texts(server)
                .iter()
                .any(|text| text.starts_with("close") || text == "Release")
        })
    };
    let beats = |server: &mut Server| {
        server.on_message(Kind::Heartbeat(Heartbeat::default()), now);
        server.on_read_paused(now + second * 100);
    };
    assert_eq!(cut(&mut ended(plain_open(false)), 0), Some(5));
    assert_eq!(cut(&mut ended(plain_open(false)), 12), Some(17));
    // A client that sends no heartbeats.
    assert_eq!(cut(&mut ended(plain_open(false)), 100), Some(30));
    let mut server = ended(our_open(false));
    beats(&mut server);
    assert_eq!(cut(&mut server, 100), Some(105));
    // The server shuts down.
    let mut server = running(our_open(false), now);
    server.terminate(TerminationReason::Drain, "", now);
    server.on_exit(Exit::Code(0), now);
    beats(&mut server);
    assert_eq!(cut(&mut server, 100), Some(30));
    // A disconnected client: its grace period applies, and then the session ends.
    let mut server = ended(our_open(false));
    server.on_lost(now);
    assert_eq!(cut(&mut server, 100), Some(25));
    // A process was left behind, and continues to write.
    let mut server = ended(our_open(true));
    beats(&mut server);
    server.on_output(Stream::Stdout, vec![b'x'; 2 * 1024 * 1024 + 1].into(), now);
    drain(&mut server);
    assert_eq!(cut(&mut server, 100), Some(5));
}

#[test]
fn heartbeats_are_sent_and_a_client_that_stops_sending_them_is_lost() {
    let now = Instant::now();
    let mut server = running(our_open(true), now);
    assert_eq!(server.deadline(), Some(now + HEARTBEAT));
    server.on_time(now + HEARTBEAT);
    assert_eq!(drain(&mut server).len(), 1);
    // It never sent heartbeats, so their absence means nothing.
    server.on_time(now + SILENCE * 2);
    assert_eq!(drain(&mut server).len(), 1);
    let later = now + SILENCE * 2;
    server.on_message(Kind::Heartbeat(Heartbeat::default()), later);
    server.on_time(later + SILENCE);
    assert_eq!(drain(&mut server), [Command::Disconnect]);
    // The client is lost, but the session is not over: it may resume within the grace period.
    assert_eq!(server.deadline(), Some(later + SILENCE + GRACE));
}

#[test]
fn a_client_is_not_silent_while_reading_from_it_is_paused() {
    let now = Instant::now();
    let mut server = running(our_open(true), now);
    server.on_message(Kind::Heartbeat(Heartbeat::default()), now);
    server.on_read_paused(now + SILENCE);
    server.on_time(now + SILENCE);
    assert!(matches!(
        drain(&mut server)[..],
        [Command::Send(Kind::Heartbeat(_))]
    ));
    server.on_bad_message("an unknown WebTTY message", now + SILENCE);
    assert_eq!(
        sent_texts(&mut server),
        [
            "error: an unknown WebTTY message",
            "Disconnect",
            "Signal(Hangup)"
        ]
    );
}

#[test]
fn signals_reach_the_command_and_its_end_reaches_the_client() {
    let now = Instant::now();
    let mut server = running(our_open(true), now);
    server.on_message(
        Kind::Heartbeat(Heartbeat {
            signal: Some(Signal::User1.into()),
            ..Heartbeat::default()
        }),
        now,
    );
    assert_eq!(drain(&mut server), [Command::Signal(Signal::User1)]);
    server.on_exit(Exit::Signal(10, "USR1"), now);
    server.on_output_end(Stream::Stdout, now);
    assert_eq!(
        sent_texts(&mut server),
        [
            "Data(Stdout, end)",
            "close 138 Signalled USR1",
            "Disconnect"
        ]
    );
}

#[test]
fn limits_and_operators_end_a_command_with_a_reason() {
    let end = |server: &mut Server, now| {
        server.on_exit(Exit::Signal(15, "TERM"), now);
        server.on_output_end(Stream::Stdout, now);
        sent_texts(server)
    };
    let now = Instant::now();
    let minute = Duration::from_mins(1);
    let limited = Settings {
        idle: Some(minute),
        duration: Some(minute * 3),
        ..settings()
    };
    for (busy, after, reason) in [(false, 1, "Idle"), (true, 3, "Duration")] {
        let mut server = Server::new(limited.clone(), now);
        server.on_message(our_open(true), now);
        server.on_started([7; TOKEN_LEN], now);
        let mut at = now;
        while at < now + minute * after {
            if busy {
                server.on_output(Stream::Stdout, "x".into(), at);
            }
            at += Duration::from_secs(30);
            let commands = drain(&mut server);
            assert!(
                !commands.iter().any(|c| matches!(c, Command::Signal(_))),
                "{reason}"
            );
            server.on_time(at);
        }
        assert!(
            drain(&mut server).contains(&Command::Signal(Signal::Hangup)),
            "{reason}"
        );
        assert!(end(&mut server, at).contains(&format!("close 143 {reason} TERM")));
    }
    for (terminal, signal) in [(true, Signal::Hangup), (false, Signal::Terminate)] {
        let mut server = running(our_open(terminal), now);
        server.terminate(TerminationReason::Drain, "the server is shutting down", now);
        server.terminate(TerminationReason::Terminated, "", now);
        assert_eq!(drain(&mut server), [Command::Signal(signal)]);
        assert_eq!(server.stop_reason(), Some(TerminationReason::Drain));
        server.on_output_end(Stream::Stderr, now);
        assert!(end(&mut server, now).contains(&"close 143 Drain TERM".to_owned()));
    }
}
