//! The lanes of one agent (extension `lane/2`) on one worker, for small streams.
//!
//! A lane is made of a standing connection when a stream first wants one. Where none has room, the
//! stream has a standing connection for itself.

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
use wire::pool::StreamOpen;

use super::pool::{IdleConnection, PoolPermit};
use super::stream::{PooledStream, TunnelStream};
use super::{Agent, OpenError, StreamSlot};

/// Lanes of one agent on one worker. One writes the most at once. Four and eight were tried with up
/// to 600 visitors at 20 to 100 ms and one per cent of loss, where the streams of one might wait
/// for each other, and gained nothing: what comes behind a lost packet has it noticed at once.
const MOST: usize = 1;

/// Streams on a lane before a further one is made, where there may be one.
const CROWDED: usize = 256;

/// How long a lane may be without a stream.
const UNUSED: Duration = Duration::from_mins(1);

/// How long the agent's system may confirm nothing of what is under way before a lane is given up:
/// what waits on it takes another way then. Long enough for a change of network, since streams that
/// have begun to pass bytes break with the lane.
const STALL: Duration = Duration::from_secs(30);

/// How often a lane whose agent is gone is asked whether somebody here still holds a stream.
const HELD: Duration = Duration::from_secs(15);

/// One worker's lanes.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Vec<LaneEntry>>);

#[derive(Debug)]
struct LaneEntry {
    lane: Lane,
    /// When it last got a stream, or was seen with one.
    at: Instant,
}

impl Lanes {
    /// Begins a stream on the lane that has the fewest; `None` where none has room.
    fn open(&self, open: &StreamOpen, now: Instant) -> Option<LaneStream> {
        let mut lanes = self.0.lock();
        let used = lanes.iter_mut().min_by_key(|used| used.lane.streams())?;
        let stream = used.lane.open(open)?;
        used.at = now;
        Some(stream)
    }

    /// Whether a further lane may be made, and is worth it.
    fn wants_more(&self) -> bool {
        let mut lanes = self.0.lock();
        lanes.retain(|used| !used.lane.is_over());
        lanes.len() < MOST && lanes.iter().all(|used| used.lane.streams() >= CROWDED)
    }

    fn add(&self, lane: &Lane, now: Instant) {
        let lane = lane.clone();
        self.0.lock().push(LaneEntry { lane, at: now });
    }

    /// How many there are, and how many streams are on them.
    pub(super) fn counts(&self) -> (usize, usize) {
        let lanes = self.0.lock();
        let streams = lanes.iter().map(|used| used.lane.streams()).sum();
        (lanes.len(), streams)
    }

    /// Lets go of lanes that nobody has used for a while.
    pub(super) fn trim(&self, now: Instant) {
        self.0.lock().retain_mut(|used| {
            if used.lane.streams() > 0 {
                used.at = now;
            }
            let idle = now.saturating_duration_since(used.at) >= UNUSED;
            if idle {
                used.lane.retire();
            }
            !idle && !used.lane.is_over()
        });
    }

    /// Begins no further streams; those that there are end by themselves.
    pub(super) fn close(&self) {
        for used in self.0.lock().drain(..) {
            used.lane.retire();
        }
    }
}

impl Agent {
    /// Begins a stream that is expected to be small: on a lane, where the agent has them and one
    /// has room, and otherwise on a standing connection.
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
        // Others may have made one while this one waited.
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
            (None, None, _) => Err(OpenError::Gone),
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

    /// Makes a lane of a standing connection.
    fn add_lane(&self, worker: usize, lanes: &Lanes, idle: IdleConnection, now: Instant) {
        let Ok((lane, driver, seat)) = idle.into_lane(STALL) else {
            return;
        };
        lanes.add(&lane, now);
        // Ended meanwhile: what was added behind that is found by nobody.
        if self.ended.is_cancelled() {
            lane.retire();
        }
        if let Some(core) = self.core.upgrade()
            && let Some(at) = core.workers().get(worker)
        {
            let serving = serve(driver, lane, seat, self.ended.clone());
            core.agents.spawn_on(serving, &at.runtime);
        }
    }
}

/// Serves a lane to its end. When its agent is gone, nobody waits long for what the agent would
/// have to say about streams that nobody here holds any more.
async fn serve(
    mut driver: Driver<TlsStream>,
    lane: Lane,
    seat: PoolPermit,
    gone: CancellationToken,
) {
    let abandoned = async {
        gone.cancelled().await;
        loop {
            tokio::time::sleep(HELD).await;
            if lane.held() == 0 {
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

/// Takes a stream from its lane to a standing connection.
#[derive(Debug)]
pub(super) struct MigrateToPool {
    agent: Arc<Agent>,
    worker: usize,
    /// Its opening, once more.
    open: StreamOpen,
}

impl MigrationTarget for MigrateToPool {
    type Connection = PooledStream;

    const CHOOSES: bool = true;

    fn connect(&self) -> ConnectFuture<PooledStream> {
        let (agent, worker, open) = (Arc::clone(&self.agent), self.worker, self.open.clone());
        Box::pin(async move {
            let idle = agent.take_standing(worker).await;
            let idle = idle.map_err(|error: OpenError| io::Error::other(error.to_string()))?;
            let opened = idle.open(&open)?;
            let mut seated = PooledStream::new(opened, agent, worker);
            // The agent waits for it, also where we have nothing more to say.
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
    async fn a_lane_without_a_stream_is_let_go_after_a_minute() {
        let lanes = Lanes::default();
        let begun = Instant::now();
        let lane = || {
            let (near, far) = duplex(1024);
            let standing = StandingConnection::new(near, Side::Engine);
            let (lane, driver) = standing.into_lane().unwrap();
            (lane, driver, far)
        };
        let (used, _driver, _far) = lane();
        lanes.add(&used, begun);
        let open = StreamOpen {
            tunnel_id: "tun_a".to_owned(),
            stream_id: "str_a".to_owned(),
            ..StreamOpen::default()
        };
        let _stream = lanes.open(&open, begun).unwrap();
        let (unused, _driver, _far) = lane();
        lanes.add(&unused, begun);
        lanes.trim(begun + Duration::from_secs(59));
        assert_eq!(lanes.counts(), (2, 1));
        lanes.trim(begun + Duration::from_mins(1));
        assert_eq!(lanes.counts(), (1, 1));
        assert!(unused.is_over() && !used.is_over());
        // A lane with a stream is not without one from its beginning.
        lanes.trim(begun + Duration::from_hours(1));
        assert_eq!(lanes.counts(), (1, 1));
    }
}
