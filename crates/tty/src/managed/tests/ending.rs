//! What ends a session that did not end by itself.

use super::*;
use crate::message::{Termination, TerminationReason};

/// A client that says nothing, and a server that does not answer.
#[test]
fn a_session_that_does_not_begin_in_time_is_over() {
    let mut session = opening();
    assert_eq!(session.deadline(), Some(at(5)));
    session.on_time(at(5));
    assert_eq!(session.ending(), Some(EndReason::Abandoned));
    assert!(matches!(
        session.take(person(0)),
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

/// Whoever takes part learns what it ended for: the server saw only a signal.
#[test]
fn the_reason_is_in_the_close() {
    for (why, reason) in [
        (EndReason::Recording, TerminationReason::Recording),
        (EndReason::Drain, TerminationReason::Drain),
        (EndReason::Revoked, TerminationReason::Terminated),
    ] {
        let mut session = active();
        session.stop(why, None, at(1));
        // The first reason counts.
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
        let told = std::iter::from_fn(|| session.take(person(0)));
        let close = told.filter_map(|kind| match kind {
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

/// What was let in is taken back: nobody is shown what the command goes on to write, nor what waited
/// for them, and it is killed within the time that a command has. What ends in order shows its end.
#[test]
fn en_8_what_was_taken_back_shows_nothing_more_and_is_killed() {
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
            let told: Vec<_> = std::iter::from_fn(|| session.take(person(n))).collect();
            let shown = told.iter().any(|kind| matches!(kind, Kind::Data(_)));
            assert_eq!(shown, !silent, "{why:?}: {told:?}");
        }
        drain(&mut session);
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

/// Who is sent away gets what is to be said, and nothing of the terminal: neither what waited nor what
/// comes while their stream is still there.
#[test]
fn en_8_who_is_sent_away_is_shown_nothing_more() {
    let mut session = active();
    join(&mut session, 1, at(0));
    session.on_server(Kind::data(Stream::Stdout, "waits"), at(0));
    session.kick(person(1), at(1)).unwrap();
    session.on_server(Kind::data(Stream::Stdout, "goes on"), at(1));
    let told: Vec<_> = std::iter::from_fn(|| session.take(person(1))).collect();
    assert!(
        !told.iter().any(|kind| matches!(kind, Kind::Data(_))),
        "{told:?}"
    );
    assert!(!told.is_empty());
}
