use super::*;
use crate::Error;

/// The frames that both directions of a stream can send.
const STEPS: [FrameStep; 5] = [
    FrameStep::Data,
    FrameStep::End,
    FrameStep::Reset,
    FrameStep::Move,
    FrameStep::Taken,
];

#[test]
fn a_direction_is_finished_once() {
    for last in [FrameStep::End, FrameStep::Move, FrameStep::Reset] {
        let mut engine = StreamState::new();
        engine.on_send(FrameStep::Data).unwrap();
        engine.on_send(last).unwrap();
        for step in [FrameStep::Data, FrameStep::End, FrameStep::Move] {
            assert!(engine.on_send(step).is_err(), "{last:?}, {step:?}");
        }
        let mut agent = StreamState::new();
        agent.on_receive(last).unwrap();
        for step in [FrameStep::Data, FrameStep::End, FrameStep::Move] {
            assert!(agent.on_receive(step).is_err(), "{last:?}, {step:?}");
        }
        assert!(!agent.is_over());
        agent.on_send(FrameStep::End).unwrap();
        assert!(agent.is_over());
    }
}

#[test]
fn taken_is_sent_until_the_direction_ends() {
    let mut state = StreamState::new();
    state.on_send(FrameStep::End).unwrap();
    state.on_send(FrameStep::Taken).unwrap();
    // It refers to bytes that we sent before our end.
    assert_eq!(state.on_receive(FrameStep::Taken), Ok(FrameEffect::Taken));
    state.on_receive(FrameStep::End).unwrap();
    assert!(state.on_send(FrameStep::Taken).is_err());
    assert_eq!(state.on_receive(FrameStep::Taken), Ok(FrameEffect::Taken));
    let mut given_up = StreamState::new();
    given_up.on_receive(FrameStep::Reset).unwrap();
    assert!(given_up.on_receive(FrameStep::Taken).is_err());
    assert!(given_up.on_send(FrameStep::Taken).is_err());
    given_up.on_send(FrameStep::Reset).unwrap();
    assert!(given_up.on_send(FrameStep::Taken).is_err());
}

/// The number of bytes that a sender counts as waiting is never less than the number that its
/// reader has. So a sender that stays within its window never sends too much, and read bytes free
/// the window again.
#[test]
fn both_ends_keep_the_same_window() {
    for side in [Side::Engine, Side::Agent] {
        let mut random = 7_usize;
        let mut draw = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let other = match side {
            Side::Engine => Side::Agent,
            Side::Agent => Side::Engine,
        };
        let (mut sending, mut reading) = (SendWindow::new(side), ReceiveWindow::new(other));
        let (mut unread, mut told, mut total) = (0, 0, 0);
        for _ in 0..10_000 {
            let len = draw(3 * MAX_DATA).min(sending.available());
            sending.on_send(len);
            reading.on_data(len).unwrap();
            unread += len;
            total += len;
            let read = draw(unread + 1);
            unread -= read;
            told += reading.on_read(read);
            // They arrive later, and sometimes several together.
            if draw(3) == 0 {
                for _ in 0..std::mem::take(&mut told) {
                    sending.on_taken().unwrap();
                }
            }
            assert!(unread <= window(side));
        }
        assert!(total > 100 * window(side), "{total} bytes in all");
        // A reader of everything has reported all but the last part of it.
        told += reading.on_read(unread);
        for _ in 0..told {
            sending.on_taken().unwrap();
        }
        assert!(sending.available() > window(side) - unit(side));
        assert_eq!(sending.on_taken(), Err(InvalidWindowUpdateError));
        let more = sending.available();
        reading.on_data(more).unwrap();
        assert_eq!(reading.on_data(1), Err(WindowExceededError));
    }
}

#[test]
fn bytes_of_an_aborted_stream_are_discarded() {
    let mut state = StreamState::new();
    state.on_send(FrameStep::End).unwrap();
    state.on_send(FrameStep::Reset).unwrap();
    assert_eq!(state.on_receive(FrameStep::Data), Ok(FrameEffect::Discard));
    assert!(!state.is_over());
    assert_eq!(state.on_receive(FrameStep::End), Ok(FrameEffect::End));
    assert!(state.is_over());
    // It crossed our own frame.
    assert_eq!(state.on_receive(FrameStep::Reset), Ok(FrameEffect::Ignored));
    assert!(state.on_receive(FrameStep::Data).is_err());
}

/// A complete direction stays complete, and the side that aborted receives nothing more.
#[test]
fn a_reset_after_the_end_keeps_the_stream_complete() {
    let mut state = StreamState::new();
    state.on_receive(FrameStep::Data).unwrap();
    state.on_receive(FrameStep::End).unwrap();
    assert_eq!(state.on_receive(FrameStep::Reset), Ok(FrameEffect::Reset));
    assert!(state.is_ended() && !state.is_reset());
    assert!(state.is_aborted_by_peer() && !state.may_send());
    assert!(state.on_receive(FrameStep::Reset).is_err());
    assert!(state.on_receive(FrameStep::Taken).is_err());
    state.on_send(FrameStep::End).unwrap();
    assert!(state.is_over());
}

/// Two ends that follow the rules never cause errors for each other, in any order of frames.
#[test]
fn ends_that_follow_the_rules_agree() {
    // Each random byte is one action: one end sends a frame, or receives the next one.
    let mut random = 1_u64;
    for _ in 0..20_000 {
        let mut ends = [StreamState::new(); 2];
        let mut in_flight = [Vec::new(), Vec::new()];
        for _ in 0..24 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let choice = (random >> 33) as usize;
            let who = choice % 2;
            if (choice / 2).is_multiple_of(2) {
                let step = STEPS[choice / 4 % STEPS.len()];
                if ends[who].on_send(step).is_ok() {
                    in_flight[who].push(step);
                }
            } else if !in_flight[1 - who].is_empty() {
                let step = in_flight[1 - who].remove(0);
                ends[who].on_receive(step).unwrap();
            }
        }
    }
}

#[test]
fn a_reset_has_its_reason_or_only_its_code() {
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
            step: FrameStep::Reset,
            bytes: &[],
            error: arrives,
        };
        assert_eq!(event, Some(reset));
    }
}
