use types::id::RANDOM_BYTES;

use super::*;

/// A connection that is reusable unless its service has closed it.
struct Fake {
    moved: bool,
    closed: bool,
}

impl ReusableConnection for Fake {
    fn is_reusable(&mut self) -> bool {
        !self.closed
    }

    fn has_moved(&self) -> bool {
        self.moved
    }
}

fn fresh() -> Fake {
    Fake {
        moved: false,
        closed: false,
    }
}

fn moved() -> Fake {
    Fake {
        moved: true,
        closed: false,
    }
}

fn tunnel(number: u8) -> TunnelId {
    TunnelId::new(1, [number; RANDOM_BYTES])
}

fn keep_many(upstreams: &mut UpstreamPool<Fake>, tunnel: TunnelId, count: usize) -> usize {
    let before = upstreams.idle;
    for _ in 0..count {
        upstreams.keep(tunnel, fresh(), None);
    }
    upstreams.idle - before
}

#[test]
fn a_tunnel_keeps_256_idle_connections_and_a_worker_2048() {
    let mut upstreams = UpstreamPool::default();
    for number in 0..8 {
        assert_eq!(keep_many(&mut upstreams, tunnel(number), 300), 256);
    }
    // The worker has reached its limit, for any tunnel.
    assert_eq!(keep_many(&mut upstreams, tunnel(9), 1), 0);
    assert!(upstreams.take_http1(tunnel(0)).is_some());
    assert_eq!(keep_many(&mut upstreams, tunnel(9), 2), 1);
    drop(upstreams.remove_tunnel(tunnel(1)));
    assert_eq!(keep_many(&mut upstreams, tunnel(9), 300), 255);
    assert_eq!(upstreams.drain_http1(&[tunnel(9), tunnel(2)]).len(), 512);
    assert_eq!(upstreams.idle, 2048 - 1 - 256 - 512 + 1 + 255);
}

#[test]
fn eight_idle_connections_of_a_tunnel_may_have_left_their_lane() {
    let mut upstreams = UpstreamPool::default();
    upstreams.keep(tunnel(0), fresh(), None);
    for _ in 0..20 {
        upstreams.keep(tunnel(0), moved(), None);
    }
    assert_eq!(upstreams.idle, 9);
    let first = upstreams.take_http1(tunnel(0));
    assert!(
        first.is_some_and(|first| !first.moved),
        "migrated connections are taken last"
    );
    assert_eq!(upstreams.idle, 8);
}

#[test]
fn connections_are_kept_idle_for_50_seconds() {
    let mut upstreams = UpstreamPool::default();
    upstreams.keep(tunnel(0), fresh(), None);
    let long = Duration::from_hours(1);
    let now = Instant::now();
    assert!(
        upstreams
            .trim(now + Duration::from_secs(49), long)
            .is_empty()
    );
    assert_eq!(upstreams.trim(now + Duration::from_secs(50), long).len(), 1);
    assert_eq!(upstreams.idle, 0);
    assert!(upstreams.by_tunnel.is_empty());
}

#[test]
fn connections_that_the_service_closed_are_skipped() {
    let mut upstreams = UpstreamPool::default();
    upstreams.keep(tunnel(0), fresh(), None);
    upstreams.keep(
        tunnel(0),
        Fake {
            closed: true,
            ..fresh()
        },
        None,
    );
    assert!(upstreams.take_http1(tunnel(0)).is_some());
    assert!(upstreams.take_http1(tunnel(0)).is_none());
    assert_eq!(upstreams.idle, 0);
}

#[test]
fn connections_are_kept_as_long_as_the_service_announces() {
    let mut upstreams = UpstreamPool::default();
    for announced in [5, 1, 300] {
        upstreams.keep(tunnel(0), fresh(), Some(Duration::from_secs(announced)));
    }
    let now = Instant::now();
    let mut idle_after = |millis| {
        upstreams.trim(now + Duration::from_millis(millis), IDLE_TIMEOUT);
        upstreams.idle
    };
    let left = [400, 600, 3_900, 4_100, 49_000, 51_000].map(&mut idle_after);
    assert_eq!(left, [3, 2, 2, 1, 1, 0]);
}

#[test]
fn connections_are_kept_as_long_as_the_service_has_kept_others() {
    let mut upstreams = UpstreamPool::default();
    let closed = Fake {
        closed: true,
        ..fresh()
    };
    upstreams.keep(tunnel(0), closed, None);
    let start = Instant::now();
    assert_eq!(
        upstreams
            .trim(start + Duration::from_secs(8), IDLE_TIMEOUT)
            .len(),
        1
    );
    upstreams.keep(tunnel(0), fresh(), None);
    let now = Instant::now();
    assert!(
        upstreams
            .trim(now + Duration::from_millis(5_500), IDLE_TIMEOUT)
            .is_empty()
    );
    assert_eq!(
        upstreams
            .trim(now + Duration::from_secs(7), IDLE_TIMEOUT)
            .len(),
        1
    );
    // The observation expires.
    upstreams.trim(now + Duration::from_mins(11), IDLE_TIMEOUT);
    assert!(upstreams.by_tunnel.is_empty());
}
