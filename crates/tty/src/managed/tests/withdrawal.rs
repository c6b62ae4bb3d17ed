//! Requests that end without a grant: the controller gets a notice, because it can no longer answer
//! them.

use super::*;

/// A client of the controller keeps the ids of the requests that its user can answer.
#[test]
fn the_controller_gets_notices_of_requests_that_it_can_no_longer_answer() {
    let mut session = active();
    for n in 1..=4 {
        join(&mut session, n, at(0));
        ask(&mut session, n, n, at(0)).unwrap();
    }
    while session.next_message(person(0)).is_some() {}
    let withdrawal = |n| Approver::Caller {
        participant: person(n),
        caller: who(n),
    };
    resolve(
        &mut session,
        1,
        &withdrawal(1),
        ControlAction::Revoke,
        at(1),
    )
    .unwrap();
    resolve(&mut session, 2, &OWNER, ControlAction::Refuse, at(1)).unwrap();
    // There is no notice of its own answer.
    let controller = Approver::Participant(person(0));
    resolve(&mut session, 3, &controller, ControlAction::Refuse, at(1)).unwrap();
    session.on_time(at(120));
    let received: Vec<_> = std::iter::from_fn(|| session.next_message(person(0)))
        .filter_map(|kind| match kind {
            Kind::Heartbeat(heartbeat) => heartbeat.notice,
            _ => None,
        })
        .map(|notice| (notice.kind(), notice.request_id, notice.user))
        .collect();
    let of = |kind, n: u8| (kind, request(n).to_string(), format!("Person {n}"));
    assert_eq!(
        received,
        [
            of(NoticeKind::Revoked, 1),
            of(NoticeKind::Refused, 2),
            of(NoticeKind::Expired, 4),
        ]
    );
    // The requester gets the same notice, and other participants none.
    assert!(notices(&mut session, 1).contains(&NoticeKind::Revoked));
    assert!(!notices(&mut session, 3).contains(&NoticeKind::Revoked));
}

#[test]
fn a_withdrawn_request_is_not_repeated_immediately() {
    let mut session = active();
    join(&mut session, 1, at(0));
    let own = Approver::Participant(person(1));
    ask(&mut session, 1, 1, at(0)).unwrap();
    resolve(&mut session, 1, &own, ControlAction::Revoke, at(0)).unwrap();
    assert_eq!(
        ask(&mut session, 2, 1, at(4)),
        Err(SessionRefusalError::IsPending)
    );
    assert_eq!(ask(&mut session, 2, 1, at(5)), Ok(ControlStatus::Pending));
    // The pause begins with the request, so it delays no user who has thought about it.
    resolve(&mut session, 2, &own, ControlAction::Revoke, at(60)).unwrap();
    assert_eq!(ask(&mut session, 3, 1, at(60)), Ok(ControlStatus::Pending));
    resolve(&mut session, 3, &OWNER, ControlAction::Refuse, at(60)).unwrap();
    assert_eq!(ask(&mut session, 4, 1, at(60)), Ok(ControlStatus::Pending));
}
