use types::id::RANDOM_BYTES;

use super::*;

fn agent(workers: usize) -> (Arc<Agent>, mpsc::Receiver<ControlCommand>) {
    Agent::new(AgentInfo {
        pending: Arc::default(),
        tasks: TaskTracker::new(),
        runtimes: Box::default(),
        client_id: ClientId::new(1, [1; RANDOM_BYTES]),
        pools: workers,
        lanes: workers,
        max_streams: 10_000,
        open_seconds: Histogram::noop(),
    })
}

fn tunnel() -> TunnelId {
    TunnelId::new(1, [2; RANDOM_BYTES])
}

#[test]
fn the_queue_of_control_commands_is_bounded() {
    let (agent, mut orders) = agent(0);
    let order = || Kind::PoolReq(PoolReq::default()).into();
    for number in 0..1024 {
        assert!(agent.send(order()).is_ok(), "{number}");
    }
    assert!(agent.send(order()).is_err());
    // The call does not wait for capacity either.
    agent.taken_over(tunnel());
    assert!(orders.try_recv().is_ok());
    assert!(agent.send(order()).is_ok());
    assert!(agent.send(order()).is_err());
}

#[test]
fn an_agent_has_64_lanes_at_most() {
    let lanes = |workers| agent(workers).0.lanes.len();
    assert_eq!(lanes(2), 2);
    assert_eq!(lanes(64), 64);
    assert_eq!(lanes(100), 64);
}
