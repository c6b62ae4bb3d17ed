//! What ends a session that did not end by itself.

use super::*;
use crate::message::{Termination, TerminationReason};

/// A client that says nothing, and a server that does not answer.
#[test]
fn a_session_that_does_not_begin_in_time_is_over() {
    let mut session = opening();
    assert_eq!(session.deadline(), Some(at(5)));
    session.on_time(at(5));
    assert_eq!(session.ending(), Some(Ending::Abandoned));
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
        (Ending::Recording, TerminationReason::Recording),
        (Ending::Drain, TerminationReason::Drain),
        (Ending::Revoked, TerminationReason::Terminated),
    ] {
        let mut session = active();
        session.stop(why, None, at(1));
        // The first reason counts.
        session.stop(Ending::Terminated, None, at(2));
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
