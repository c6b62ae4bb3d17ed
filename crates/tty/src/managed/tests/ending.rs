//! Forced ends of a session.

use super::*;
use crate::message::{Termination, TerminationReason};

/// The client sends no `Open`, or the server does not answer it.
#[test]
fn a_session_that_does_not_start_in_time_ends() {
    let mut session = opening();
    assert_eq!(session.deadline(), Some(at(5)));
    session.on_time(at(5));
    assert_eq!(session.ending(), Some(EndReason::Abandoned));
    assert!(matches!(
        session.next_message(person(0)),
        Some(Kind::Heartbeat(_) | Kind::Error(_))
    ));
    session.on_server_lost(at(5));
    assert_eq!(session.status(), SessionStatus::Closed);

    let mut session = opening();
    session.on_message(person(0), open(true), at(1));
    session.on_time(at(20));
    assert_eq!(session.status(), SessionStatus::Opening);
    session.on_time(at(21));
    assert_eq!(session.status(), SessionStatus::Errored);
    assert_eq!(session.error(), Some("the server did not answer in time"));
}

/// Participants get the reason of the end, although the server only saw a signal.
#[test]
fn the_close_contains_the_reason_of_the_end() {
    for (why, reason) in [
        (EndReason::Recording, TerminationReason::Recording),
        (EndReason::Drain, TerminationReason::Drain),
        (EndReason::Revoked, TerminationReason::Terminated),
    ] {
        let mut session = active();
        session.stop(why, None, at(1));
        // Only the first reason counts.
        session.stop(EndReason::Terminated, None, at(2));
        let close = Kind::Close(Close {
            return_code: 143,
            termination: Some(Termination {
                reason: TerminationReason::Signalled.into(),
                signal: "TERM".to_owned(),
                detail: String::new(),
            }),
        });
        session.on_server(close, at(3));
        let messages = std::iter::from_fn(|| session.next_message(person(0)));
        let close = messages.filter_map(|kind| match kind {
            Kind::Close(close) => close.termination,
            _ => None,
        });
        let close: Vec<_> = close.collect();
        assert_eq!(close.len(), 1);
        assert_eq!(close[0].reason(), reason);
        assert_eq!(close[0].detail, why.as_str());
        assert_eq!(session.ending(), Some(why));
        assert_eq!(session.exit_code(), Some(143));
    }
}

/// If access is revoked, participants see no further output and lose their waiting output. The
/// command is killed within its grace period. A regular end shows the remaining output.
#[test]
fn en_8_revoked_sessions_show_no_output_and_are_killed() {
    for (why, silent) in [
        (EndReason::Revoked, true),
        (EndReason::Terminated, true),
        (EndReason::Recording, true),
        (EndReason::Drain, false),
        (EndReason::Abandoned, false),
    ] {
        let mut session = active();
        join(&mut session, 1, at(0));
        session.on_server(Kind::data(Stream::Stdout, "waits"), at(0));
        drain(&mut session);
        session.stop(why, None, at(1));
        let done = drain(&mut session);
        let signal = |signal: Signal| {
            Command::ToServer(Kind::Heartbeat(Heartbeat {
                signal: Some(signal.into()),
                ..Heartbeat::default()
            }))
        };
        assert!(done.contains(&signal(Signal::Hangup)), "{why:?}: {done:?}");
        assert_eq!(done.contains(&Command::DropInput), silent, "{why:?}");
        session.on_server(Kind::data(Stream::Stdout, "goes on"), at(1));
        for n in [0, 1] {
            let messages: Vec<_> = std::iter::from_fn(|| session.next_message(person(n))).collect();
            let shown = messages.iter().any(|kind| matches!(kind, Kind::Data(_)));
            assert_eq!(shown, !silent, "{why:?}: {messages:?}");
        }
        drain(&mut session);
        session.on_time(at(5) - SignedDuration::from_nanos(1));
        assert!(!drain(&mut session).contains(&signal(Signal::Kill)));
        session.on_time(at(5));
        let killed = drain(&mut session);
        assert!(killed.contains(&signal(Signal::Kill)), "{why:?}");
        assert!(!killed.contains(&Command::HangUpServer));
        session.on_time(at(6));
        let done = drain(&mut session);
        assert!(done.contains(&Command::HangUpServer), "{why:?}");
        assert!(!done.contains(&signal(Signal::Kill)), "once");
    }
}

/// A dismissed participant gets the notice, and no output of the terminal: neither waiting output
/// nor output while its stream is still connected.
#[test]
fn en_8_dismissed_participants_see_no_further_output() {
    let mut session = active();
    join(&mut session, 1, at(0));
    session.on_server(Kind::data(Stream::Stdout, "waits"), at(0));
    session.kick(person(1), at(1)).unwrap();
    session.on_server(Kind::data(Stream::Stdout, "goes on"), at(1));
    let messages: Vec<_> = std::iter::from_fn(|| session.next_message(person(1))).collect();
    assert!(
        !messages.iter().any(|kind| matches!(kind, Kind::Data(_))),
        "{messages:?}"
    );
    assert!(!messages.is_empty());
}
