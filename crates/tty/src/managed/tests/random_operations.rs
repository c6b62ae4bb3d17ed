//! Random operations in random order.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u8),
    Lose(u8),
    Kick(u8),
    Type(u8),
    Ask(u8, u8, bool),
    Resolve(u8, Option<u8>, ControlAction),
    Decide(u8, u8, bool),
    Replay(u8),
    Output,
    Wait(u8),
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..5_u8;
    let action = prop::sample::select(ControlAction::ALL);
    prop_oneof![
        2 => n.clone().prop_map(Step::Join),
        1 => n.clone().prop_map(Step::Lose),
        1 => n.clone().prop_map(Step::Kick),
        6 => n.clone().prop_map(Step::Type),
        4 => (0..8_u8, n.clone(), any::<bool>()).prop_map(|(r, n, one)| Step::Ask(r, n, one)),
        4 => (0..8_u8, prop::option::of(n.clone()), action).prop_map(|(r, by, a)| Step::Resolve(r, by, a)),
        2 => (0..8_u8, n.clone(), any::<bool>()).prop_map(|(r, n, yes)| Step::Decide(r, n, yes)),
        1 => n.clone().prop_map(Step::Replay),
        2 => Just(Step::Output),
        2 => (0..90_u8).prop_map(Step::Wait),
        1 => n.prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// With all operations in any order, at most one participant has control, and it is connected.
    /// Only its input reaches the server, and it is recorded as the author.
    #[test]
    fn only_one_connected_controller_can_type(steps in prop::collection::vec(step(), 1..80)) {
        let mut session = active();
        let mut now = at(0);
        for step in steps {
            drain(&mut session);
            match step {
                Step::Join(n) => {
                    // The last participant has the account of the opener.
                    let new = NewParticipant {
                        id: person(n),
                        person: who(n % 4),
                        grant: [n; 32],
                        may_control: true,
                    };
                    if session.attach(new, now).is_ok() {
                        session.connect(&attach(n), now).unwrap();
                    }
                }
                Step::Lose(n) => session.on_lost(person(n), now),
                Step::Kick(n) => drop(session.kick(person(n), now)),
                Step::Type(n) => {
                    session.expire(now);
                    let is_controller = session.controller_id() == Some(person(n))
                        && session.status() == SessionStatus::Active;
                    drain(&mut session);
                    type_(&mut session, n, "x\r", now);
                    let passed = typed(&mut session);
                    if is_controller {
                        prop_assert_eq!(passed, [("x\r".to_owned(), person(n).to_string())]);
                    } else {
                        prop_assert!(passed.is_empty(), "{:?}", step);
                    }
                }
                Step::Ask(r, n, one) => {
                    let limit = ControlLimit { time: None, lines: one.then_some(1) };
                    let ask = NewControlRequest { limit, ..NewControlRequest::default() };
                    let requested = session.request_control(request(r), person(n), ask, now);
                    prop_assert!(requested.is_err() || requested.is_ok_and(|requested| requested.requester == person(n)));
                }
                Step::Resolve(r, by, action) => {
                    let controller = session.controller_id();
                    let by = by.map_or(OWNER, |n| Approver::Participant(person(n)));
                    let answered = session.resolve(request(r), &by, action, now).map(drop);
                    if let (Approver::Participant(by), ControlAction::Grant, Ok(())) = (&by, action, answered) {
                        prop_assert_eq!(controller, Some(*by));
                    }
                }
                Step::Decide(r, n, grant) => {
                    let decision = Decision { request_id: request(r).to_string(), grant };
                    let kind = Kind::Heartbeat(Heartbeat { decision: Some(decision), ..Heartbeat::default() });
                    session.on_message(person(n), kind, now);
                }
                Step::Replay(n) => {
                    // Each grant of this test is used immediately.
                    prop_assert!(session.connect(&attach(n), now).is_err());
                }
                Step::Output => session.on_server(Kind::data(Stream::Stdout, "out"), now),
                Step::Wait(seconds) => {
                    now += SignedDuration::from_secs(seconds.into());
                    session.on_time(now);
                }
                Step::Read(n) => while session.next_message(person(n)).is_some() {},
            }
            let controller = session.controller_id();
            let connected = session.participants().filter(|p| p.is_connected());
            let connected: Vec<_> = connected.map(|p| p.id).collect();
            prop_assert!(controller.is_none_or(|id| connected.contains(&id)));
            let granted: Vec<_> = session
                .requests()
                .filter(|request| request.status == ControlStatus::Granted)
                .map(|request| request.requester)
                .collect();
            prop_assert!(granted.len() <= 1);
            prop_assert!(granted.iter().all(|id| Some(*id) == controller));
        }
    }
}
