use super::{PoolFrame, ReceivedFrame, Side, StreamState};

const RESET_1: PoolFrame = PoolFrame::Reset { stream: 1 };

/// Both ends with the first stream open.
fn open() -> (StreamState, StreamState) {
    let mut engine = StreamState::new(Side::Engine);
    let mut agent = StreamState::new(Side::Agent);
    engine.on_send(PoolFrame::Open).unwrap();
    assert_eq!(agent.on_receive(PoolFrame::Open), Ok(ReceivedFrame::Open));
    (engine, agent)
}

#[test]
fn a_stream_is_over_when_both_directions_ended() {
    let (mut engine, _) = open();
    engine.on_send(PoolFrame::Data).unwrap();
    engine.on_send(PoolFrame::End).unwrap();
    assert!(!engine.is_over());
    assert!(!engine.may_open());
    assert_eq!(engine.on_receive(PoolFrame::Data), Ok(ReceivedFrame::Data));
    assert_eq!(engine.on_receive(PoolFrame::End), Ok(ReceivedFrame::End));
    assert!(engine.is_over());
    engine.on_send(PoolFrame::Open).unwrap();
    assert_eq!(engine.stream(), 2);
}

#[test]
fn nothing_is_sent_or_accepted_without_a_stream() {
    for side in [Side::Engine, Side::Agent] {
        for step in [
            PoolFrame::Data,
            PoolFrame::End,
            RESET_1,
            PoolFrame::Reset { stream: 0 },
        ] {
            assert!(StreamState::new(side).on_send(step).is_err());
            assert!(StreamState::new(side).on_receive(step).is_err());
        }
    }
}

#[test]
fn only_the_engine_opens() {
    assert!(
        StreamState::new(Side::Agent)
            .on_send(PoolFrame::Open)
            .is_err()
    );
    assert!(
        StreamState::new(Side::Engine)
            .on_receive(PoolFrame::Open)
            .is_err()
    );
}

#[test]
fn a_second_stream_waits_for_the_first() {
    let (mut engine, mut agent) = open();
    assert!(engine.on_send(PoolFrame::Open).is_err());
    assert!(agent.on_receive(PoolFrame::Open).is_err());
}

#[test]
fn no_data_follows_an_end() {
    let (mut engine, mut agent) = open();
    engine.on_send(PoolFrame::End).unwrap();
    agent.on_receive(PoolFrame::End).unwrap();
    assert!(engine.on_send(PoolFrame::Data).is_err());
    assert!(engine.on_send(PoolFrame::End).is_err());
    assert!(agent.on_receive(PoolFrame::Data).is_err());
    assert!(agent.on_receive(PoolFrame::End).is_err());
}

#[test]
fn after_a_reset_data_is_discarded_until_the_peer_ends() {
    let (mut engine, mut agent) = open();
    engine.on_send(RESET_1).unwrap();
    assert_eq!(
        engine.on_receive(PoolFrame::Data),
        Ok(ReceivedFrame::Discard)
    );
    assert!(!engine.may_open());

    assert_eq!(agent.on_receive(RESET_1), Ok(ReceivedFrame::Reset));
    assert!(!agent.may_send_data());
    assert!(agent.on_send(PoolFrame::Data).is_err());
    assert!(agent.owes_end());
    agent.on_send(PoolFrame::End).unwrap();
    assert!(agent.is_over());

    assert_eq!(engine.on_receive(PoolFrame::End), Ok(ReceivedFrame::End));
    assert!(engine.may_open());
}

#[test]
fn resets_that_cross_end_the_stream() {
    let (mut engine, mut agent) = open();
    engine.on_send(RESET_1).unwrap();
    agent.on_send(RESET_1).unwrap();
    assert_eq!(engine.on_receive(RESET_1), Ok(ReceivedFrame::Reset));
    assert_eq!(agent.on_receive(RESET_1), Ok(ReceivedFrame::Reset));
    assert!(engine.is_over() && agent.is_over());
}

#[test]
fn a_reset_may_follow_the_own_end() {
    let (mut engine, mut agent) = open();
    engine.on_send(PoolFrame::End).unwrap();
    agent.on_receive(PoolFrame::End).unwrap();
    engine.on_send(RESET_1).unwrap();
    assert_eq!(agent.on_receive(RESET_1), Ok(ReceivedFrame::Reset));
    assert!(agent.owes_end());
}

#[test]
fn a_reset_that_crossed_the_last_end_does_not_touch_the_next_stream() {
    let (mut engine, mut agent) = open();
    agent.on_send(PoolFrame::End).unwrap();
    engine.on_receive(PoolFrame::End).unwrap();
    // The agent aborts receiving while the engine's end is in flight.
    engine.on_send(PoolFrame::End).unwrap();
    agent.on_send(RESET_1).unwrap();
    engine.on_send(PoolFrame::Open).unwrap();
    assert_eq!(engine.on_receive(RESET_1), Ok(ReceivedFrame::Ignored));
    assert!(engine.may_send_data());
    assert_eq!(agent.on_receive(PoolFrame::End), Ok(ReceivedFrame::End));
    assert_eq!(agent.on_receive(PoolFrame::Open), Ok(ReceivedFrame::Open));
}

#[test]
fn a_reset_of_a_future_stream_is_refused() {
    let (mut engine, mut agent) = open();
    assert!(engine.on_receive(PoolFrame::Reset { stream: 2 }).is_err());
    assert!(agent.on_send(PoolFrame::Reset { stream: 2 }).is_err());
}

#[test]
fn a_second_reset_of_a_running_stream_is_refused() {
    let (mut engine, mut agent) = open();
    engine.on_send(RESET_1).unwrap();
    assert!(engine.on_send(RESET_1).is_err());
    agent.on_receive(RESET_1).unwrap();
    assert!(agent.on_receive(RESET_1).is_err());
}

#[test]
fn a_retired_connection_finishes_its_stream_and_opens_no_other() {
    let (mut engine, mut agent) = open();
    engine.on_send(PoolFrame::Retire).unwrap();
    assert_eq!(
        agent.on_receive(PoolFrame::Retire),
        Ok(ReceivedFrame::Retire)
    );
    engine.on_send(PoolFrame::Data).unwrap();
    assert!(!engine.may_close() && !agent.may_close());
    engine.on_send(PoolFrame::End).unwrap();
    agent.on_receive(PoolFrame::End).unwrap();
    agent.on_send(PoolFrame::End).unwrap();
    engine.on_receive(PoolFrame::End).unwrap();
    assert!(engine.may_close() && agent.may_close());
    assert!(engine.on_send(PoolFrame::Open).is_err());
    assert!(agent.on_receive(PoolFrame::Open).is_err());
}

#[test]
fn an_open_that_crossed_a_retire_must_be_refused() {
    let mut engine = StreamState::new(Side::Engine);
    let mut agent = StreamState::new(Side::Agent);
    agent.on_send(PoolFrame::Retire).unwrap();
    assert!(!agent.may_close(), "an OPEN may be in flight");
    engine.on_send(PoolFrame::Open).unwrap();
    assert_eq!(
        agent.on_receive(PoolFrame::Open),
        Ok(ReceivedFrame::OpenAfterRetire)
    );
    agent.on_send(RESET_1).unwrap();
    assert_eq!(
        engine.on_receive(PoolFrame::Retire),
        Ok(ReceivedFrame::Retire)
    );
    assert_eq!(engine.on_receive(RESET_1), Ok(ReceivedFrame::Reset));
    engine.on_send(PoolFrame::End).unwrap();
    assert!(engine.may_close());
}

#[test]
fn a_side_retires_once() {
    let mut engine = StreamState::new(Side::Engine);
    engine.on_send(PoolFrame::Retire).unwrap();
    assert!(engine.on_send(PoolFrame::Retire).is_err());
    engine.on_receive(PoolFrame::Retire).unwrap();
    assert!(engine.on_receive(PoolFrame::Retire).is_err());
}

#[test]
fn a_refused_step_changes_nothing() {
    let (mut engine, _) = open();
    let before = format!("{engine:?}");
    assert!(engine.on_send(PoolFrame::Open).is_err());
    assert!(engine.on_receive(PoolFrame::Open).is_err());
    assert_eq!(format!("{engine:?}"), before);
}
