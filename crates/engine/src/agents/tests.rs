use types::id::RANDOM_BYTES;

use super::*;

const OPEN_DEADLINE: Duration = Duration::from_secs(10);

fn agent(workers: usize) -> (Arc<Agent>, mpsc::Receiver<ControlCommand>) {
    Agent::new(AgentInfo {
        pending: Arc::default(),
        tasks: TaskTracker::new(),
        runtimes: Box::default(),
        client_id: ClientId::new(1, [1; RANDOM_BYTES]),
        pools: workers,
        lanes: workers,
        reports_delivery: false,
        forwards: None,
        max_streams: 10_000,
        open_deadline: OPEN_DEADLINE,
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

/// An agent that opens connections slowly, on a busy machine or a bad line, loses no visitor. One
/// that opens none loses them after the deadline.
#[tokio::test(start_paused = true)]
async fn a_visitor_waits_while_the_agent_opens_connections() {
    let (agent, _orders) = agent(0);
    let others = agent.request_permits.acquire_many(64).await.unwrap();
    let progress = async {
        for _ in 0..5 {
            tokio::time::sleep(OPEN_DEADLINE * 9 / 10).await;
            agent.opened_on_request.fetch_add(1, Ordering::Relaxed);
        }
        drop(others);
    };
    let (permit, ()) = tokio::join!(agent.acquire_request(), progress);
    drop(permit.unwrap());

    let others = agent.request_permits.acquire_many(64).await.unwrap();
    let since = tokio::time::Instant::now();
    let refused = agent.acquire_request().await;
    assert!(matches!(refused, Err(OpenError::Deadline)));
    assert_eq!(since.elapsed(), OPEN_DEADLINE);
    drop(others);
}
