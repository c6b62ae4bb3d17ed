//! Requests for control, and the permission to answer them.

use super::*;

#[test]
fn a_grant_gives_control_and_a_revocation_returns_it() {
    let mut session = active();
    join(&mut session, 1, at(0));
    let ask_ = NewControlRequest {
        reason: Some("the disk is full".to_owned()),
        ..NewControlRequest::default()
    };
    session
        .request_control(request(1), person(1), ask_, at(1))
        .unwrap();
    // The controller receives the requester and the reason.
    let notice =
        std::iter::from_fn(|| session.next_message(person(0))).find_map(|kind| match kind {
            Kind::Heartbeat(heartbeat) => heartbeat.notice,
            _ => None,
        });
    let notice = notice.unwrap();
    assert_eq!(
        (notice.kind(), notice.user.as_str(), notice.reason.as_str()),
        (NoticeKind::Requested, "Person 1", "the disk is full")
    );
    assert_eq!(notice.expires_at, 1_700_000_121);
    // The requester forges an answer.
    let decision = |r: u8, grant| {
        Kind::Heartbeat(Heartbeat {
            decision: Some(Decision {
                request_id: request(r).to_string(),
                grant,
            }),
            ..Heartbeat::default()
        })
    };
    session.on_message(person(1), decision(1, true), at(2));
    assert_eq!(session.controller_id(), Some(person(0)));
    // The controller answers in the terminal.
    session.on_message(person(0), decision(1, true), at(2));
    assert_eq!(session.controller_id(), Some(person(1)));
    assert!(notices(&mut session, 1).contains(&NoticeKind::Granted));
    assert_eq!(
        notices(&mut session, 0),
        [NoticeKind::Revoked, NoticeKind::Granted],
        "lost it, and to whom"
    );
    drain(&mut session);
    type_(&mut session, 0, "no", at(3));
    type_(&mut session, 1, "df\r", at(3));
    assert_eq!(
        typed(&mut session),
        [("df\r".to_owned(), person(1).to_string())]
    );
    // The opener revokes control.
    let initiator = Approver::Participant(person(0));
    let revoked = resolve(&mut session, 1, &initiator, ControlAction::Revoke, at(4));
    assert_eq!(revoked, Ok(ControlStatus::Revoked));
    assert_eq!(session.controller_id(), Some(person(0)));
    assert_eq!(
        notices(&mut session, 0),
        [NoticeKind::Granted],
        "it is theirs again"
    );
    let again = resolve(&mut session, 1, &initiator, ControlAction::Revoke, at(4));
    assert_eq!(again, Err(SessionRefusalError::NotGranted));
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn invalid_requests_and_answers_are_refused() {
    let mut session = active();
    join(&mut session, 1, at(0));
    join(&mut session, 2, at(0));
    let approver = |n| Approver::Participant(person(n));
    assert_eq!(
        ask(&mut session, 1, 0, at(0)),
        Err(SessionRefusalError::HasControl)
    );
    assert_eq!(
        ask(&mut session, 1, 9, at(0)),
        Err(SessionRefusalError::NotFound)
    );
    assert_eq!(ask(&mut session, 1, 1, at(0)), Ok(ControlStatus::Pending));
    assert_eq!(
        ask(&mut session, 1, 2, at(0)),
        Err(SessionRefusalError::Invalid("id"))
    );
    assert_eq!(
        ask(&mut session, 2, 1, at(0)),
        Err(SessionRefusalError::IsPending)
    );
    let long = NewControlRequest {
        reason: Some("x".repeat(5000)),
        ..NewControlRequest::default()
    };
    let late = NewControlRequest {
        expires_at: Some(at(0)),
        ..NewControlRequest::default()
    };
    let far = NewControlRequest {
        expires_at: Some(at(3601)),
        ..NewControlRequest::default()
    };
    let none = NewControlRequest {
        limit: ControlLimit {
            time: None,
            lines: Some(0),
        },
        ..NewControlRequest::default()
    };
    for (ask, what) in [
        (long, "reason"),
        (late, "expires_at"),
        (far, "expires_at"),
        (none, "limit"),
    ] {
        let refused = session.request_control(request(2), person(2), ask, at(0));
        assert_eq!(refused.map(drop), Err(SessionRefusalError::Invalid(what)));
    }
    for (by, action, refused) in [
        (
            approver(1),
            ControlAction::Grant,
            SessionRefusalError::NotAllowed,
        ),
        (
            approver(2),
            ControlAction::Grant,
            SessionRefusalError::NotAllowed,
        ),
        (
            approver(2),
            ControlAction::Refuse,
            SessionRefusalError::NotAllowed,
        ),
        (
            approver(2),
            ControlAction::Revoke,
            SessionRefusalError::NotAllowed,
        ),
        (
            approver(9),
            ControlAction::Grant,
            SessionRefusalError::NotFound,
        ),
        (
            OWNER,
            ControlAction::Revoke,
            SessionRefusalError::NotGranted,
        ),
    ] {
        assert_eq!(
            resolve(&mut session, 1, &by, action, at(1)),
            Err(refused),
            "{by:?} {action}"
        );
    }
    assert_eq!(
        resolve(&mut session, 9, &OWNER, ControlAction::Grant, at(1)),
        Err(SessionRefusalError::NotFound)
    );
    assert_eq!(
        resolve(&mut session, 1, &approver(0), ControlAction::Refuse, at(1)),
        Ok(ControlStatus::Refused)
    );
    for action in [ControlAction::Grant, ControlAction::Refuse] {
        assert_eq!(
            resolve(&mut session, 1, &OWNER, action, at(1)),
            Err(SessionRefusalError::NotPending)
        );
    }
    // The answer arrives exactly at the deadline.
    assert_eq!(ask(&mut session, 3, 1, at(0)), Ok(ControlStatus::Pending));
    assert_eq!(
        resolve(&mut session, 3, &OWNER, ControlAction::Grant, at(120)),
        Err(SessionRefusalError::Expired)
    );
    assert_eq!(session.controller_id(), Some(person(0)));
    assert_eq!(ask(&mut session, 4, 1, at(0)), Ok(ControlStatus::Pending));
    assert_eq!(
        resolve(&mut session, 4, &OWNER, ControlAction::Grant, at(119)),
        Ok(ControlStatus::Granted)
    );
    // A participant that left gets no control.
    assert_eq!(ask(&mut session, 5, 2, at(120)), Ok(ControlStatus::Pending));
    session.on_lost(person(2), at(120));
    assert_eq!(
        resolve(&mut session, 5, &OWNER, ControlAction::Grant, at(120)),
        Err(SessionRefusalError::NotPending)
    );
    assert_eq!(
        ask(&mut session, 6, 2, at(120)),
        Err(SessionRefusalError::NotConnected)
    );
}

#[test]
fn control_for_one_command_ends_with_it() {
    let mut session = active();
    join(&mut session, 1, at(0));
    let one = NewControlRequest {
        limit: ControlLimit {
            time: None,
            lines: Some(1),
        },
        ..NewControlRequest::default()
    };
    session
        .request_control(request(1), person(1), one, at(0))
        .unwrap();
    resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(0)).unwrap();
    drain(&mut session);
    type_(&mut session, 1, "upti", at(1));
    type_(&mut session, 1, "me\rrm -rf /\r", at(1));
    type_(&mut session, 1, "reboot\r", at(1));
    let by = person(1).to_string();
    assert_eq!(
        typed(&mut session),
        [("upti".to_owned(), by.clone()), ("me\r".to_owned(), by)]
    );
    assert_eq!(session.controller_id(), Some(person(0)));
    assert_eq!(
        session.requests().next().unwrap().status,
        ControlStatus::Revoked
    );
}

#[test]
fn control_for_a_time_ends_with_it() {
    let mut session = active();
    join(&mut session, 1, at(0));
    let minute = NewControlRequest {
        limit: ControlLimit {
            time: Some(std::time::Duration::from_mins(1)),
            lines: None,
        },
        ..NewControlRequest::default()
    };
    session
        .request_control(request(1), person(1), minute, at(0))
        .unwrap();
    resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(10)).unwrap();
    drain(&mut session);
    type_(&mut session, 1, "a", at(69));
    // No timer fired, but the input is dropped.
    type_(&mut session, 1, "b", at(70));
    assert_eq!(
        typed(&mut session),
        [("a".to_owned(), person(1).to_string())]
    );
    assert_eq!(session.controller_id(), Some(person(0)));
}

#[test]
fn a_leaving_controller_returns_control_and_an_abandoned_session_ends() {
    let mut session = active();
    join(&mut session, 1, at(0));
    ask(&mut session, 1, 1, at(0)).unwrap();
    resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(0)).unwrap();
    session.kick(person(1), at(1)).unwrap();
    assert!(notices(&mut session, 1).contains(&NoticeKind::Kicked));
    assert_eq!(session.controller_id(), Some(person(0)));
    type_(&mut session, 1, "x", at(1));
    assert!(typed(&mut session).is_empty());
    assert_eq!(
        session.kick(person(1), at(1)),
        Err(SessionRefusalError::NotFound)
    );

    join(&mut session, 2, at(1));
    session.on_lost(person(0), at(10));
    assert_eq!(session.controller_id(), None);
    // The opener reconnects over another stream and gets control without an answer.
    let new = NewParticipant {
        id: person(3),
        person: who(0),
        grant: [3; 32],
        may_control: true,
    };
    session.attach(new, at(20)).unwrap();
    session.connect(&attach(3), at(20)).unwrap();
    assert_eq!(ask(&mut session, 3, 3, at(20)), Ok(ControlStatus::Granted));
    session.on_time(at(75));
    assert_eq!(session.status(), SessionStatus::Active);
    session.on_lost(person(3), at(80));
    // A spectator alone does not keep the session.
    session.on_time(at(139));
    assert_eq!(session.status(), SessionStatus::Active);
    drain(&mut session);
    session.on_time(at(140));
    assert_eq!(session.status(), SessionStatus::Closing);
    let terminate = Kind::Heartbeat(Heartbeat {
        signal: Some(Signal::Terminate.into()),
        ..Heartbeat::default()
    });
    assert!(drain(&mut session).contains(&Command::ToServer(terminate)));
    // A published server does not support signals, so its connection is closed.
    session.on_time(at(150));
    assert!(drain(&mut session).contains(&Command::HangUpServer));
    session.on_server_lost(at(150));
    assert_eq!(session.status(), SessionStatus::Closed);
    assert_eq!(session.deadline(), None);
}

#[test]
fn granted_control_returns_to_an_opener_that_reconnected() {
    for (name, by, may_control, back) in [
        ("the same person", 0, true, Some(person(2))),
        ("the same person, who may only watch", 0, false, None),
        ("somebody else", 5, true, None),
        ("a program of the same person", 9, true, None),
    ] {
        let mut session = active();
        join(&mut session, 1, at(0));
        ask(&mut session, 1, 1, at(0)).unwrap();
        resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(0)).unwrap();
        session.on_lost(person(0), at(1));
        let new = NewParticipant {
            id: person(2),
            person: if by == 9 {
                program(0, "crd_a")
            } else {
                who(by)
            },
            grant: [2; 32],
            may_control,
        };
        session.attach(new, at(2)).unwrap();
        session.connect(&attach(2), at(2)).unwrap();
        assert_eq!(session.controller_id(), Some(person(1)), "{name}");
        session.on_lost(person(1), at(3));
        assert_eq!(session.controller_id(), back, "{name}");
        let received = notices(&mut session, 2);
        let is_notified = received.contains(&NoticeKind::Granted);
        assert_eq!(is_notified, back.is_some(), "{name}: {received:?}");
    }
    // An opener whose stream is still connected keeps its role.
    let mut session = active();
    let new = NewParticipant {
        id: person(2),
        person: who(0),
        grant: [2; 32],
        may_control: true,
    };
    session.attach(new, at(0)).unwrap();
    session.connect(&attach(2), at(0)).unwrap();
    ask(&mut session, 1, 2, at(0)).unwrap();
    resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(0)).unwrap();
    session.on_lost(person(2), at(1));
    assert_eq!(session.controller_id(), Some(person(0)));
}

/// EN-8: a party cannot give granted control to itself, and cannot answer its own requests by a
/// call with any credential. The stream that opened the session may answer programs with the
/// person's own token.
#[test]
fn en_8_a_party_cannot_grant_its_own_requests() {
    let mut session = active_of(program(0, "crd_own"));
    join_as(&mut session, 1, program(0, "crd_a"), at(0));
    join_as(&mut session, 2, program(0, "crd_a"), at(0));
    join_as(&mut session, 3, program(0, "crd_own"), at(0));
    let owner = |credential: &str| Approver::Owner(program(0, credential));
    ask(&mut session, 1, 1, at(0)).unwrap();
    for by in [
        owner("crd_a"),
        Approver::Caller {
            participant: person(0),
            caller: program(0, "crd_a"),
        },
    ] {
        let granted = resolve(&mut session, 1, &by, ControlAction::Grant, at(0));
        assert_eq!(granted, Err(SessionRefusalError::OwnRequest), "{by:?}");
    }
    let granted = resolve(
        &mut session,
        1,
        &owner("crd_own"),
        ControlAction::Grant,
        at(0),
    );
    assert_eq!(granted, Ok(ControlStatus::Granted));
    // A party with granted control cannot grant another request of its own.
    ask(&mut session, 2, 2, at(1)).unwrap();
    let holder = Approver::Participant(person(1));
    let granted = resolve(&mut session, 2, &holder, ControlAction::Grant, at(1));
    assert_eq!(granted, Err(SessionRefusalError::OwnRequest));
    // The opener granted it, so a call can revoke it as well.
    let revoked = resolve(
        &mut session,
        1,
        &owner("crd_own"),
        ControlAction::Revoke,
        at(2),
    );
    assert_eq!(revoked, Ok(ControlStatus::Revoked));
    assert_eq!(session.controller_id(), Some(person(0)));
    ask(&mut session, 3, 3, at(3)).unwrap();
    let granted = resolve(
        &mut session,
        3,
        &owner("crd_own"),
        ControlAction::Grant,
        at(3),
    );
    assert_eq!(granted, Err(SessionRefusalError::OwnRequest));
    let stream = Approver::Participant(person(0));
    let granted = resolve(&mut session, 3, &stream, ControlAction::Grant, at(3));
    assert_eq!(granted, Ok(ControlStatus::Granted));
    // The opener revokes on its own stream.
    let decision = Decision {
        request_id: request(3).to_string(),
        grant: false,
    };
    let heartbeat = Heartbeat {
        decision: Some(decision),
        ..Heartbeat::default()
    };
    session.on_message(person(0), Kind::Heartbeat(heartbeat), at(4));
    assert_eq!(session.controller_id(), Some(person(0)));
}

/// EN-8: a program that opened a session cannot take control back from the person that took it
/// over.
#[test]
fn en_8_a_program_cannot_take_control_back_from_a_person() {
    let mut session = active_of(program(0, "crd_a"));
    join(&mut session, 1, at(0));
    ask(&mut session, 1, 1, at(0)).unwrap();
    let person_ = Approver::Owner(Person {
        root: Some(Root::Session("ses_other".into())),
        ..who(0)
    });
    resolve(&mut session, 1, &person_, ControlAction::Grant, at(0)).unwrap();
    let program_ = program(0, "crd_a");
    for by in [
        Approver::Owner(program_.clone()),
        Approver::Caller {
            participant: person(0),
            caller: program_.clone(),
        },
    ] {
        let revoked = resolve(&mut session, 1, &by, ControlAction::Revoke, at(1));
        assert_eq!(revoked, Err(SessionRefusalError::NeedsPerson), "{by:?}");
    }
    let dismissed = session.dismiss(person(1), &program_, true, at(1));
    assert_eq!(dismissed, Err(SessionRefusalError::NeedsPerson));
    assert_eq!(session.controller_id(), Some(person(1)));
    let revoked = resolve(&mut session, 1, &person_, ControlAction::Revoke, at(2));
    assert_eq!(revoked, Ok(ControlStatus::Revoked));
}

/// EN-8: permission to dismiss participants.
#[test]
fn en_8_a_token_alone_cannot_dismiss_the_opener_or_the_controller() {
    let own = program(0, "crd_own");
    let session_of = |n: u8| Person {
        root: Some(Root::Session("ses_other".into())),
        ..who(n)
    };
    // The first participant opened the session, the second has control, the third only watches.
    for (name, whom, caller, owns, done) in [
        (
            "the opener, by its token",
            0,
            own.clone(),
            true,
            Err(SessionRefusalError::NeedsPerson),
        ),
        ("the opener, by its person", 0, session_of(0), true, Ok(())),
        (
            "the controller, by its token",
            1,
            program(1, "crd_b"),
            false,
            Err(SessionRefusalError::NeedsPerson),
        ),
        (
            "the controller, by its person",
            1,
            session_of(1),
            false,
            Ok(()),
        ),
        (
            "the controller, by an owner",
            1,
            session_of(0),
            true,
            Ok(()),
        ),
        (
            "the controller, by an owner's token",
            1,
            own.clone(),
            true,
            Err(SessionRefusalError::NeedsPerson),
        ),
        (
            "a spectator, by its token",
            2,
            program(2, "crd_c"),
            false,
            Ok(()),
        ),
        (
            "a spectator, by an owner's token",
            2,
            own,
            true,
            Err(SessionRefusalError::NeedsPerson),
        ),
        (
            "a spectator, by a stranger",
            2,
            session_of(5),
            false,
            Err(SessionRefusalError::NotAllowed),
        ),
        (
            "nobody",
            9,
            session_of(0),
            true,
            Err(SessionRefusalError::NotFound),
        ),
    ] {
        let mut session = active_of(program(0, "crd_own"));
        join_as(&mut session, 1, program(1, "crd_b"), at(0));
        join_as(&mut session, 2, program(2, "crd_c"), at(0));
        ask(&mut session, 1, 1, at(0)).unwrap();
        resolve(&mut session, 1, &OWNER, ControlAction::Grant, at(0)).unwrap();
        let dismissed = session.dismiss(person(whom), &caller, owns, at(1));
        assert_eq!(dismissed, done, "{name}");
    }
}
