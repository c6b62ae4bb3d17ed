//! Attaching to a session, and the output for late participants.

use super::*;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn a_grant_attaches_once_in_time_to_its_session_for_its_participant() {
    let mut session = active();
    let new = |n: u8| NewParticipant {
        id: person(n),
        person: who(n),
        grant: [n; GRANT_LEN],
        may_control: true,
    };
    let expires_at = session.attach(new(1), at(0)).unwrap();
    assert_eq!(expires_at, at(30));
    session.attach(new(2), at(0)).unwrap();
    assert_eq!(
        session.attach(new(1), at(0)),
        Err(SessionRefusalError::Invalid("id"))
    );

    let of = |change: fn(&mut Attach)| {
        let mut attach = attach(1);
        change(&mut attach);
        attach
    };
    for (name, attach, refused) in [
        (
            "forged",
            of(|a| a.attach_grant = vec![9; 32]),
            SessionRefusalError::BadGrant,
        ),
        (
            "empty",
            of(|a| a.attach_grant = Vec::new()),
            SessionRefusalError::BadGrant,
        ),
        (
            "longer",
            of(|a| a.attach_grant.push(1)),
            SessionRefusalError::BadGrant,
        ),
        (
            "another's",
            of(|a| a.participant_id = person(2).to_string()),
            SessionRefusalError::BadGrant,
        ),
        (
            "nobody's",
            of(|a| a.participant_id = person(3).to_string()),
            SessionRefusalError::BadGrant,
        ),
        (
            "no id",
            of(|a| a.participant_id = "x".to_owned()),
            SessionRefusalError::BadGrant,
        ),
        (
            "the first one's",
            of(|a| a.participant_id = person(0).to_string()),
            SessionRefusalError::BadGrant,
        ),
        (
            "another session's",
            of(|a| a.session_id = WebttySessionId::new(1, [1; 10]).to_string()),
            SessionRefusalError::BadGrant,
        ),
        (
            "as the controller",
            of(|a| a.requested_role = AttachRole::Controller.into()),
            SessionRefusalError::NotAsController,
        ),
    ] {
        assert_eq!(session.connect(&attach, at(1)), Err(refused), "{name}");
    }
    assert_eq!(
        session.connect(&attach(1), at(30)),
        Err(SessionRefusalError::Expired),
        "late"
    );
    let nearly = at(30) - SignedDuration::from_nanos(1);
    assert_eq!(session.connect(&attach(1), nearly), Ok(person(1)));
    assert_eq!(
        session.connect(&attach(1), nearly),
        Err(SessionRefusalError::BadGrant),
        "replayed"
    );
    session.on_lost(person(1), at(5));
    assert_eq!(
        session.connect(&attach(1), at(6)),
        Err(SessionRefusalError::BadGrant),
        "replayed later"
    );
    // The other grant was never used.
    assert_eq!(session.deadline(), Some(at(5)));
    session.on_time(at(30));
    assert_eq!(
        session.connect(&attach(2), at(30)),
        Err(SessionRefusalError::BadGrant)
    );
}

#[test]
fn late_participants_get_the_screen_and_later_output() {
    let mut session = active();
    session.on_server(Kind::data(Stream::Stdout, "$ make\r\n"), at(1));
    let new = NewParticipant {
        id: person(1),
        person: who(1),
        grant: [1; 32],
        may_control: true,
    };
    session.attach(new, at(1)).unwrap();
    session.connect(&attach(1), at(1)).unwrap();
    session.on_server(Kind::data(Stream::Stdout, "before the first take"), at(1));
    let Some(Kind::Heartbeat(heartbeat)) = session.next_message(person(1)) else {
        panic!("a notice");
    };
    let notice = heartbeat.notice.unwrap();
    assert_eq!(notice.kind(), NoticeKind::Snapshot);
    assert_eq!(
        notice.size.unwrap().size(),
        Some(Size { rows: 5, cols: 20 })
    );
    let Some(Kind::Data(Data {
        payload: Some(Payload::Data(bytes)),
        ..
    })) = session.next_message(person(1))
    else {
        panic!("a screen");
    };
    let mut late = crate::screen::Screen::new(Size { rows: 5, cols: 20 }).unwrap();
    late.feed(&bytes);
    assert_eq!(late.rows()[..2], ["$ make", "before the first tak"]);
    assert_eq!(session.next_message(person(1)), None);
    session.on_server(Kind::data(Stream::Stdout, "x"), at(1));
    assert_eq!(
        session.next_message(person(1)),
        Some(Kind::data(Stream::Stdout, "x"))
    );
}

#[test]
fn the_queue_of_a_slow_viewer_is_bounded_and_replaced_by_the_screen() {
    let mut session = active();
    join(&mut session, 1, at(0));
    let chunk = Bytes::from(vec![b'x'; 4096]);
    for _ in 0..100 {
        session.on_server(Kind::data(Stream::Stdout, chunk.clone()), at(1));
        // The controller reads, so the server is never paused.
        assert!(!session.pauses_server());
        assert_eq!(
            session.next_message(person(0)),
            Some(Kind::data(Stream::Stdout, chunk.clone()))
        );
        drain(&mut session);
    }
    session.on_server(Kind::data(Stream::Stdout, "\x1b[H\x1b[2Jend"), at(1));
    let got: Vec<Kind> = std::iter::from_fn(|| session.next_message(person(1))).collect();
    assert_eq!(got.len(), 2, "a notice and a screen");
    let Some(Kind::Data(Data {
        payload: Some(Payload::Data(bytes)),
        ..
    })) = got.last()
    else {
        panic!("a screen");
    };
    let mut screen = crate::screen::Screen::new(Size { rows: 5, cols: 20 }).unwrap();
    screen.feed(bytes);
    assert_eq!(screen.rows()[0], "end");

    // Only the controller makes the command wait.
    for _ in 0..VIEWER_QUEUE / 4096 {
        assert!(!session.pauses_server());
        session.on_server(Kind::data(Stream::Stdout, chunk.clone()), at(1));
    }
    assert!(session.pauses_server());
    session.next_message(person(0));
    session.next_message(person(0));
    assert!(!session.pauses_server());
}

#[test]
fn participants_and_pending_requests_are_limited() {
    let mut session = active();
    for n in 1..=u8::try_from(MAX_PARTICIPANTS - 1).unwrap() {
        join(&mut session, n, at(0));
        let requested = ask(&mut session, n, n, at(0));
        let expected = if usize::from(n) <= MAX_PENDING {
            Ok(ControlStatus::Pending)
        } else {
            Err(SessionRefusalError::TooMany)
        };
        assert_eq!(requested, expected, "{n}");
    }
    let new = NewParticipant {
        id: ParticipantId::new(1, [1; 10]),
        person: who(1),
        grant: [1; 32],
        may_control: true,
    };
    assert_eq!(
        session.attach(new, at(0)),
        Err(SessionRefusalError::TooMany)
    );
}

/// Beyond a limit, the oldest participants that left and their requests are removed.
#[test]
fn listed_participants_are_limited() {
    let mut session = active();
    let id = |n: u64| ParticipantId::new(2000 + n, [0; 10]);
    for n in 0..1100 {
        let new = NewParticipant {
            id: id(n),
            person: who(1),
            grant: [1; GRANT_LEN],
            may_control: true,
        };
        session.attach(new, at(0)).unwrap();
        let connecting = Attach {
            participant_id: id(n).to_string(),
            ..attach(1)
        };
        session.connect(&connecting, at(0)).unwrap();
        let request_id = ControlRequestId::new(2000 + n, [0; 10]);
        session
            .request_control(request_id, id(n), NewControlRequest::default(), at(0))
            .unwrap();
        session.on_lost(id(n), at(0));
        drain(&mut session);
    }
    assert_eq!(session.participants().count(), 1024);
    assert_eq!(session.requests().count(), 1024);
    // The opener stays in the list.
    let listed: Vec<_> = session.participants().map(|one| one.id).collect();
    assert!(listed.contains(&person(0)) && listed.contains(&id(1099)));
    assert!(!listed.contains(&id(0)));
}
