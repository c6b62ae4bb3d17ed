use super::*;
use crate::Error;

/// What a direction of ours, and one of theirs, can come to.
const STEPS: [Step; 5] = [Step::Data, Step::End, Step::Reset, Step::Move, Step::Next];

#[test]
fn a_direction_is_finished_once() {
    for last in [Step::End, Step::Move, Step::Reset] {
        let mut engine = StreamState::new(Side::Engine);
        engine.on_send(Step::Next).unwrap();
        engine.on_send(Step::Data).unwrap();
        engine.on_send(last).unwrap();
        for step in [Step::Data, Step::Next, Step::End, Step::Move] {
            assert!(engine.on_send(step).is_err(), "{last:?}, {step:?}");
        }
        let mut agent = StreamState::new(Side::Agent);
        agent.on_receive(last).unwrap();
        for step in [Step::Data, Step::Next, Step::End, Step::Move] {
            assert!(agent.on_receive(step).is_err(), "{last:?}, {step:?}");
        }
        assert!(!agent.is_over());
        agent.on_send(Step::End).unwrap();
        assert!(agent.is_over());
    }
}

#[test]
fn only_the_engine_begins_an_exchange() {
    assert!(StreamState::new(Side::Agent).on_send(Step::Next).is_err());
    let at_engine = StreamState::new(Side::Engine).on_receive(Step::Next);
    assert_eq!(at_engine, Err(Violation(FrameType::Next)));
}

#[test]
fn what_is_given_up_is_discarded_until_the_peer_has_finished() {
    let mut state = StreamState::new(Side::Engine);
    state.on_send(Step::End).unwrap();
    state.on_send(Step::Reset).unwrap();
    assert_eq!(state.on_receive(Step::Data), Ok(Received::Discard));
    assert!(!state.is_over());
    assert_eq!(state.on_receive(Step::End), Ok(Received::End));
    assert!(state.is_over());
    // It crossed our own.
    assert_eq!(state.on_receive(Step::Reset), Ok(Received::Late));
    assert!(state.on_receive(Step::Data).is_err());
}

/// Two ends that keep the rules never break them for each other, whatever they say in which order.
#[test]
fn ends_that_keep_the_rules_agree() {
    // Each byte of the script is one move: who says what, or who hears the next.
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let mut ends = [Side::Engine, Side::Agent].map(StreamState::new);
        let mut under_way = [Vec::new(), Vec::new()];
        for _ in 0..24 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let choice = (random >> 33) as usize;
            let who = choice % 2;
            if (choice / 2).is_multiple_of(2) {
                let step = STEPS[choice / 4 % STEPS.len()];
                if ends[who].on_send(step).is_ok() {
                    under_way[who].push(step);
                }
            } else if !under_way[1 - who].is_empty() {
                let step = under_way[1 - who].remove(0);
                ends[who].on_receive(step).unwrap();
            }
        }
    }
}

#[test]
fn a_reset_carries_its_reason_and_a_long_one_its_code() {
    for (error, arrives) in [
        (None, None),
        (
            Some(Error::invalid_stream("gone")),
            Some(Error::invalid_stream("gone")),
        ),
        (
            Some(Error::invalid_stream("x".repeat(MAX_RESET))),
            Some(Error {
                message: None,
                ..Error::invalid_stream("")
            }),
        ),
    ] {
        let mut bytes = Vec::new();
        encode_reset(7, error.as_ref(), &mut bytes);
        let event = Decoder::new().next(&mut &*bytes).unwrap();
        let reset = Event::Step {
            stream: 7,
            step: Step::Reset,
            bytes: &[],
            error: arrives,
        };
        assert_eq!(event, Some(reset));
    }
}
