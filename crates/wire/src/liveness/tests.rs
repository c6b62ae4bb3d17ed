use std::time::{Duration, Instant};

use super::{AgentLiveness, EngineLiveness, MAX_TIMEOUT, OLD_TIMEOUT};
use crate::error::ErrorCode;
use crate::message::{ControlChannelLiveness, Heartbeat};

fn proposal(interval_ms: u32) -> ControlChannelLiveness {
    terms(interval_ms, 0)
}

fn terms(interval_ms: u32, timeout_ms: u32) -> ControlChannelLiveness {
    ControlChannelLiveness {
        heartbeat_interval_ms: interval_ms,
        heartbeat_timeout_ms: timeout_ms,
    }
}

fn sequence(sequence: u64) -> Heartbeat {
    Heartbeat {
        sequence,
        acknowledgement: 0,
    }
}

fn acknowledgement(acknowledgement: u64) -> Heartbeat {
    Heartbeat {
        sequence: 0,
        acknowledgement,
    }
}

#[test]
fn the_timeout_is_three_intervals_within_bounds() {
    let now = Instant::now();
    for (interval, timeout) in [
        (100, 10_000),
        (3_333, 10_000),
        (5_000, 15_000),
        (60_000, 180_000),
        (300_000, 900_000),
    ] {
        let (answer, liveness) = EngineLiveness::negotiate(Some(proposal(interval)), now).unwrap();
        assert_eq!(answer, Some(terms(interval, timeout)));
        assert_eq!(
            liveness.deadline(),
            now + Duration::from_millis(timeout.into())
        );
    }
}

#[test]
fn an_interval_out_of_range_is_refused() {
    for interval in [0, 99, 300_001, u32::MAX] {
        let refused =
            EngineLiveness::negotiate(Some(proposal(interval)), Instant::now()).unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::InvalidRequest);
    }
}

#[test]
fn the_engine_acknowledges_increasing_sequences() {
    let now = Instant::now();
    let (_, mut engine) = EngineLiveness::negotiate(Some(proposal(1_000)), now).unwrap();
    assert_eq!(
        engine.on_heartbeat(sequence(1), now),
        Ok(Some(acknowledgement(1)))
    );
    assert_eq!(
        engine.on_heartbeat(sequence(5), now),
        Ok(Some(acknowledgement(5)))
    );
    for wrong in [
        sequence(5),
        sequence(4),
        sequence(0),
        Heartbeat {
            sequence: 6,
            acknowledgement: 1,
        },
    ] {
        assert!(engine.on_heartbeat(wrong, now).is_err(), "{wrong:?}");
    }
    assert_eq!(
        engine.on_heartbeat(sequence(u64::MAX), now),
        Ok(Some(acknowledgement(u64::MAX)))
    );
    assert!(engine.on_heartbeat(sequence(0), now).is_err());
}

#[test]
fn any_frame_moves_the_engines_deadline() {
    let now = Instant::now();
    let (_, mut engine) = EngineLiveness::negotiate(Some(proposal(1_000)), now).unwrap();
    let later = now + Duration::from_secs(9);
    engine.on_frame(later);
    assert_eq!(engine.deadline(), later + Duration::from_secs(10));
    let later = later + Duration::from_secs(1);
    engine.on_heartbeat(sequence(1), later).unwrap();
    assert_eq!(engine.deadline(), later + Duration::from_secs(10));
}

#[test]
fn an_old_client_gets_no_heartbeats_and_a_longer_timeout() {
    let now = Instant::now();
    let (answer, mut engine) = EngineLiveness::negotiate(None, now).unwrap();
    assert_eq!(answer, None);
    assert_eq!(engine.deadline(), now + MAX_TIMEOUT);
    assert_eq!(engine.on_heartbeat(Heartbeat::default(), now), Ok(None));
    assert_eq!(engine.on_heartbeat(Heartbeat::default(), now), Ok(None));
    assert_eq!(engine.deadline(), now + OLD_TIMEOUT);
}

#[test]
fn the_agent_starts_immediately_and_keeps_the_interval() {
    let start = Instant::now();
    let mut agent =
        AgentLiveness::accept(Some(proposal(1_000)), Some(terms(1_000, 10_000)), start).unwrap();
    assert_eq!(agent.next_heartbeat(start), Some(sequence(1)));
    assert_eq!(
        agent.next_heartbeat(start + Duration::from_millis(999)),
        None
    );
    assert_eq!(agent.heartbeat_at(), start + Duration::from_secs(1));
    // Very late: one heartbeat, not four.
    let late = start + Duration::from_secs(5);
    assert_eq!(agent.next_heartbeat(late), Some(sequence(2)));
    assert_eq!(agent.next_heartbeat(late), None);
    assert_eq!(agent.heartbeat_at(), late + Duration::from_secs(1));
}

#[test]
fn the_agent_refuses_parameters_that_it_did_not_propose() {
    let now = Instant::now();
    for (requested, answer) in [
        (None, Some(terms(1_000, 10_000))),
        (Some(proposal(1_000)), Some(terms(2_000, 10_000))),
        (Some(proposal(1_000)), Some(terms(1_000, 999))),
        (Some(proposal(1_000)), Some(terms(1_000, 900_001))),
    ] {
        assert!(
            AgentLiveness::accept(requested, answer, now).is_err(),
            "{requested:?} {answer:?}"
        );
    }
    for answer in [terms(1_000, 1_000), terms(1_000, 900_000)] {
        assert!(AgentLiveness::accept(Some(proposal(1_000)), Some(answer), now).is_ok());
    }
}

#[test]
fn an_acknowledgement_increases_and_is_not_ahead() {
    let now = Instant::now();
    let mut agent =
        AgentLiveness::accept(Some(proposal(1_000)), Some(terms(1_000, 10_000)), now).unwrap();
    assert!(
        agent.on_heartbeat(acknowledgement(1), now).is_err(),
        "nothing was sent"
    );
    for second in 0..3 {
        agent
            .next_heartbeat(now + Duration::from_secs(second))
            .unwrap();
    }
    agent.on_heartbeat(acknowledgement(2), now).unwrap();
    for wrong in [
        acknowledgement(0),
        acknowledgement(1),
        acknowledgement(2),
        acknowledgement(4),
        Heartbeat {
            sequence: 3,
            acknowledgement: 3,
        },
    ] {
        assert!(agent.on_heartbeat(wrong, now).is_err(), "{wrong:?}");
    }
    agent.on_heartbeat(acknowledgement(3), now).unwrap();
}

#[test]
fn any_frame_moves_the_agents_deadline() {
    let now = Instant::now();
    let mut agent =
        AgentLiveness::accept(Some(proposal(1_000)), Some(terms(1_000, 10_000)), now).unwrap();
    assert_eq!(agent.deadline(), Some(now + Duration::from_secs(10)));
    let later = now + Duration::from_secs(4);
    agent.on_frame(later);
    assert_eq!(agent.deadline(), Some(later + Duration::from_secs(10)));
}

#[test]
fn with_an_old_engine_heartbeats_are_empty_and_unanswered() {
    let now = Instant::now();
    let mut agent = AgentLiveness::accept(Some(proposal(1_000)), None, now).unwrap();
    assert_eq!(agent.next_heartbeat(now), Some(Heartbeat::default()));
    assert_eq!(agent.heartbeat_at(), now + Duration::from_secs(1));
    assert_eq!(agent.deadline(), None);
    assert!(agent.on_heartbeat(acknowledgement(1), now).is_err());
}

#[test]
fn both_ends_agree_for_an_hour() {
    let start = Instant::now();
    let requested = AgentLiveness::propose(Duration::from_secs(1));
    let (answer, mut engine) = EngineLiveness::negotiate(Some(requested), start).unwrap();
    let mut agent = AgentLiveness::accept(Some(requested), answer, start).unwrap();
    for second in 0..3_600 {
        let now = start + Duration::from_secs(second);
        let heartbeat = agent.next_heartbeat(now).unwrap();
        let back = engine.on_heartbeat(heartbeat, now).unwrap().unwrap();
        agent.on_heartbeat(back, now).unwrap();
        assert!(engine.deadline() > now && agent.deadline() > Some(now));
    }
}
