//! Schedules of faults, random and chosen.

use proptest::prelude::*;

use crate::model::{Cluster, ENGINES, HOLD, Step};

const NAMES: u8 = 2;

fn any_step() -> impl Strategy<Value = Step> {
    let engine = || 0..ENGINES;
    prop_oneof![
        3 => (1..120u64).prop_map(Step::Wait),
        1 => (HOLD - 60..HOLD + 60).prop_map(Step::Wait),
        4 => engine().prop_map(Step::Renew),
        3 => engine().prop_map(Step::Beat),
        4 => (engine(), 1..30usize).prop_map(|(engine, count)| Step::Deliver(engine, count)),
        6 => (engine(), 0..2u8, 0..NAMES)
            .prop_map(|(engine, owner, name)| Step::Open(engine, owner, name)),
        3 => (engine(), 0..NAMES, any::<bool>())
            .prop_map(|(engine, name, reachable)| Step::Close(engine, name, reachable)),
        1 => engine().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Two engines never admit visitors under one name for different owners, whatever is lost or
    /// late: renewals, changes, whole engines.
    #[test]
    fn a_name_is_never_served_for_two_owners(
        clock_errors in prop::array::uniform3(-10..=10i64),
        steps in prop::collection::vec(any_step(), 1..300),
    ) {
        let mut cluster = Cluster::new(clock_errors);
        for step in steps {
            cluster.step(step);
            for name in 0..NAMES {
                let owners = cluster.served_owners(name);
                let is_one = owners.windows(2).all(|pair| pair[0] == pair[1]);
                prop_assert!(is_one, "{step:?}: {owners:?}");
            }
        }
    }
}

fn cluster_after(steps: &[Step]) -> Cluster {
    let mut cluster = Cluster::new([0; ENGINES]);
    for step in steps {
        cluster.step(*step);
    }
    cluster
}

#[test]
fn the_names_of_a_killed_engine_are_claimed_by_their_owner_at_once() {
    let mut cluster = cluster_after(&[
        Step::Renew(0),
        Step::Renew(1),
        Step::Open(0, 1, 0),
        Step::Restart(0),
        Step::Open(1, 0, 0),
    ]);
    assert!(!cluster.has_agent(1, 0), "another owner");
    cluster.step(Step::Open(1, 1, 0));
    assert!(cluster.has_agent(1, 0), "the same owner");
}

#[test]
fn another_owner_gets_the_name_when_the_hold_has_ended() {
    for close in [Step::Close(0, 0, true), Step::Restart(0)] {
        let steps = [
            Step::Renew(0),
            Step::Renew(1),
            Step::Open(0, 1, 0),
            close,
            Step::Wait(HOLD - 1),
            Step::Renew(1),
            Step::Beat(1),
            Step::Deliver(1, 100),
            Step::Open(1, 0, 0),
        ];
        let mut cluster = cluster_after(&steps);
        assert!(!cluster.has_agent(1, 0), "{close:?}");
        cluster.step(Step::Wait(1));
        cluster.step(Step::Deliver(1, 100));
        cluster.step(Step::Open(1, 0, 0));
        assert!(cluster.has_agent(1, 0), "{close:?}");
    }
}

#[test]
fn an_engine_without_contact_gives_way_when_it_learns_of_the_takeover() {
    let mut cluster = cluster_after(&[
        Step::Renew(0),
        Step::Renew(1),
        Step::Open(0, 1, 0),
        Step::Open(1, 1, 0),
    ]);
    assert_eq!(cluster.served_owners(0).len(), 2, "the same owner");
    cluster.step(Step::Deliver(0, 100));
    assert_eq!(cluster.served_owners(0).len(), 1);
    assert!(!cluster.has_agent(0, 0));
}
