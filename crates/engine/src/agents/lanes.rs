//! The lanes of one agent (extension `lane/2`) on one worker, for small streams.
//!
//! A lane is made from a standing connection when a stream first needs one. If no lane has
//! capacity, the stream gets a standing connection of its own.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::TlsStream;
use transport::lane::{
    Budget, ConnectFuture, Driver, Lane, LaneStream, MigratingStream, MigrationTarget,
};
use transport::permit::Permit;
use wire::pool::StreamOpen;

use super::pool::IdleConnection;
use super::stream::{PooledStream, TunnelStream};
use super::{Agent, OpenError, StreamSlot};

/// Lanes of one agent on one worker. With a single lane each write carries the most frames. Four
/// and eight lanes were tested with up to 600 visitors at 20 to 100 ms and one per cent loss, where
/// streams of one lane may wait for each other. They gained nothing, because packets behind a lost
/// one reveal the loss immediately.
const MAX_LANES_PER_WORKER: usize = 1;

/// Streams on a lane above which a further lane is made, if the limit allows one.
const STREAMS_BEFORE_NEXT_LANE: usize = 256;

/// Time that a lane may be without a stream.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Time that the peer's system may acknowledge nothing in flight before a lane is aborted. Waiting
/// streams then use another connection. It is long enough for a change of network, because streams
/// that have started to transfer bytes break with the lane.
const STALL: Duration = Duration::from_secs(30);

/// Interval for checking that a stream of this engine is still on a lane whose agent is gone.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// One worker's lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Vec<LaneEntry>>);

#[derive(Debug)]
struct LaneEntry {
    lane: Lane,
    /// Time of its last stream, or of the last check that found one.
    last_used: Instant,
}

impl Lanes {
    /// Opens a stream on the lane with the fewest streams; `None` if no lane has capacity.
    fn open(&self, open: &StreamOpen, now: Instant) -> Option<LaneStream> {
        let mut lanes = self.0.lock();
        let used = lanes.iter_mut().min_by_key(|used| used.lane.streams())?;
        let stream = used.lane.open(open)?;
        used.last_used = now;
        Some(stream)
    }

    /// Returns true if a further lane is allowed and useful.
    fn wants_more(&self) -> bool {
        let mut lanes = self.0.lock();
        lanes.retain(|used| !used.lane.is_over());
        lanes.len() < MAX_LANES_PER_WORKER
            && lanes
                .iter()
                .all(|used| used.lane.streams() >= STREAMS_BEFORE_NEXT_LANE)
    }

    fn add(&self, lane: &Lane, now: Instant) {
        let lane = lane.clone();
        self.0.lock().push(LaneEntry {
            lane,
            last_used: now,
        });
    }

    /// Number of lanes, and number of streams on them.
    pub(super) fn counts(&self) -> (usize, usize) {
        let lanes = self.0.lock();
        let streams = lanes.iter().map(|used| used.lane.streams()).sum();
        (lanes.len(), streams)
    }

    /// Closes lanes that have been unused for a while.
    pub(super) fn trim(&self, now: Instant) {
        self.0.lock().retain_mut(|used| {
            if used.lane.streams() > 0 {
                used.last_used = now;
            }
            let idle = now.saturating_duration_since(used.last_used) >= IDLE_TIMEOUT;
            if idle {
                used.lane.retire();
            }
            !idle && !used.lane.is_over()
        });
    }

    /// Opens no further streams; existing ones end on their own.
    pub(super) fn close(&self) {
        for used in self.0.lock().drain(..) {
            used.lane.retire();
        }
    }
}

impl Agent {
    /// Opens a stream that is expected to be small: on a lane, if the agent supports lanes and one
    /// has capacity, and otherwise on a standing connection.
    pub(super) async fn open_small(
        self: &Arc<Self>,
        slot: StreamSlot,
        worker: usize,
        open: &StreamOpen,
        budget: Budget,
    ) -> Result<TunnelStream, OpenError> {
        let lanes = self.lanes.get(worker);
        let more = lanes.is_some_and(Lanes::wants_more);
        if !more && let Some(stream) = lanes.and_then(|lanes| lanes.open(open, Instant::now())) {
            return Ok(self.on_lane(stream, slot, worker, open, budget));
        }
        let idle = self.take_standing(worker).await?;
        let Some(lanes) = lanes else {
            return self.open_standing(slot, worker, idle, open);
        };
        // Another task may have made one while this one waited.
        let now = Instant::now();
        let spare = if lanes.wants_more() {
            self.add_lane(worker, lanes, idle, now);
            None
        } else {
            Some(idle)
        };
        match (lanes.open(open, now), spare, self.pool(worker)) {
            (Some(stream), spare, pool) => {
                if let Some((idle, pool)) = spare.zip(pool) {
                    pool.put(idle, now);
                }
                Ok(self.on_lane(stream, slot, worker, open, budget))
            }
            (None, Some(idle), _) => self.open_standing(slot, worker, idle, open),
            (None, None, _) => Err(self.disconnected()),
        }
    }

    fn on_lane(
        self: &Arc<Self>,
        stream: LaneStream,
        slot: StreamSlot,
        worker: usize,
        open: &StreamOpen,
        budget: Budget,
    ) -> TunnelStream {
        let to = MigrateToPool {
            agent: Arc::clone(self),
            worker,
            open: StreamOpen {
                moved: true,
                ..open.clone()
            },
        };
        TunnelStream::on_lane(MigratingStream::new(stream, to, budget), slot)
    }

    /// Makes a lane from a standing connection.
    fn add_lane(&self, worker: usize, lanes: &Lanes, idle: IdleConnection, now: Instant) {
        let Ok((lane, driver, seat)) = idle.into_lane(STALL) else {
            return;
        };
        lanes.add(&lane, now);
        // If the agent has ended meanwhile, nothing else would close this lane.
        if self.ended.is_cancelled() {
            lane.retire();
        }
        if let Some(runtime) = self.runtimes.get(worker) {
            let serving = serve(driver, lane, seat, self.ended.clone());
            self.tasks.spawn_on(serving, runtime);
        }
    }
}

/// Serves a lane until it ends. When its agent is gone, it does not wait long for the agent's last
/// frames about streams that the engine no longer uses.
async fn serve(mut driver: Driver<TlsStream>, lane: Lane, seat: Permit, gone: CancellationToken) {
    let abandoned = async {
        gone.cancelled().await;
        loop {
            tokio::time::sleep(ORPHAN_CHECK_INTERVAL).await;
            if lane.streams_in_use() == 0 {
                return;
            }
        }
    };
    tokio::select! {
        ended = poll_fn(|cx| driver.poll_accept(cx)) => if let Err(error) = ended {
            debug!(%error, "a lane broke");
        },
        () = abandoned => {}
    }
    drop(seat);
}

/// Moves a stream from its lane to a standing connection.
#[derive(Debug)]
pub(super) struct MigrateToPool {
    agent: Arc<Agent>,
    worker: usize,
    /// The opening of the stream, sent again on the standing connection.
    open: StreamOpen,
}

impl MigrationTarget for MigrateToPool {
    type Connection = PooledStream;

    const PROVIDES_CONNECTION: bool = true;

    fn connect(&self) -> ConnectFuture<PooledStream> {
        let (agent, worker, open) = (Arc::clone(&self.agent), self.worker, self.open.clone());
        Box::pin(async move {
            let idle = agent.take_standing(worker).await;
            let idle = idle.map_err(|error: OpenError| io::Error::other(error.to_string()))?;
            let opened = idle.open(&open)?;
            let mut seated = PooledStream::new(opened, agent, worker);
            // The agent waits for the opening, even if no bytes follow.
            tokio::io::AsyncWriteExt::flush(&mut seated).await?;
            Ok(seated)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use transport::standing::StandingConnection;
    use wire::pool::Side;

    use super::*;

    #[tokio::test]
    async fn a_lane_without_a_stream_is_closed_after_a_minute() {
        let lanes = Lanes::default();
        let started = Instant::now();
        let lane = || {
            let (near, far) = duplex(1024);
            let standing = StandingConnection::new(near, Side::Engine);
            let (lane, driver) = standing.into_lane().unwrap();
            (lane, driver, far)
        };
        let (used, _driver, _far) = lane();
        lanes.add(&used, started);
        let open = StreamOpen {
            tunnel_id: "tun_a".to_owned(),
            stream_id: "str_a".to_owned(),
            ..StreamOpen::default()
        };
        let _stream = lanes.open(&open, started).unwrap();
        let (unused, _driver, _far) = lane();
        lanes.add(&unused, started);
        lanes.trim(started + Duration::from_secs(59));
        assert_eq!(lanes.counts(), (2, 1));
        lanes.trim(started + Duration::from_mins(1));
        assert_eq!(lanes.counts(), (1, 1));
        assert!(unused.is_over() && !used.is_over());
        // A lane does not count as unused while it has a stream, however old.
        lanes.trim(started + Duration::from_hours(1));
        assert_eq!(lanes.counts(), (1, 1));
    }
}
