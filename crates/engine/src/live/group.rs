//! The holders of a name: one tunnel, or several of one identity that share it.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::LiveTunnel;
use crate::config::FixedTimeouts;

/// Current load of an agent, for choosing among those that share a name.
pub trait LoadMetric: Send + Sync + 'static {
    /// Number of its active streams.
    fn load(&self) -> usize {
        0
    }
}

impl LoadMetric for () {}
impl LoadMetric for &'static str {}

/// The holders of a name.
#[derive(Debug)]
pub(super) enum NameHolders<A> {
    One(Arc<LiveTunnel<A>>),
    Several(Arc<Group<A>>),
}

/// Tunnels that share a name, oldest first.
#[derive(Debug)]
pub(super) struct Group<A> {
    oldest: Arc<LiveTunnel<A>>,
    members: Box<[Arc<LiveTunnel<A>>]>,
    /// Start of the next search, so that members with equal load take turns.
    turn: AtomicUsize,
}

impl<A> Clone for NameHolders<A> {
    fn clone(&self) -> Self {
        match self {
            Self::One(tunnel) => Self::One(Arc::clone(tunnel)),
            Self::Several(group) => Self::Several(Arc::clone(group)),
        }
    }
}

impl<A> NameHolders<A> {
    pub(super) fn members(&self) -> &[Arc<LiveTunnel<A>>] {
        match self {
            Self::One(tunnel) => std::slice::from_ref(tunnel),
            Self::Several(group) => &group.members,
        }
    }

    /// Adds this tunnel, or replaces its earlier state.
    pub(super) fn with(&self, tunnel: &Arc<LiveTunnel<A>>) -> Self {
        let others = self
            .members()
            .iter()
            .filter(|other| other.seq != tunnel.seq);
        let mut members: Vec<_> = others.chain([tunnel]).map(Arc::clone).collect();
        members.sort_by_key(|member| member.seq);
        Self::of(members).unwrap_or_else(|| Self::One(Arc::clone(tunnel)))
    }

    /// Removes the tunnel with this number; `None` if no tunnel is left.
    pub(super) fn without(&self, seq: u64) -> Option<Self> {
        let others = self.members().iter().filter(|other| other.seq != seq);
        Self::of(others.map(Arc::clone).collect())
    }

    fn of(members: Vec<Arc<LiveTunnel<A>>>) -> Option<Self> {
        match <[_; 1]>::try_from(members) {
            Ok([one]) => Some(Self::One(one)),
            Err(members) => {
                let oldest = members.first().map(Arc::clone)?;
                Some(Self::Several(Arc::new(Group {
                    oldest,
                    members: members.into(),
                    turn: AtomicUsize::new(0),
                })))
            }
        }
    }
}

impl<A: LoadMetric> NameHolders<A> {
    /// The tunnel for the next visitor: the one with the lowest load among those that did not fail
    /// recently.
    pub(super) fn choose(&self) -> Arc<LiveTunnel<A>> {
        match self {
            Self::One(tunnel) => Arc::clone(tunnel),
            Self::Several(group) => {
                let turn = group.turn.fetch_add(1, Ordering::Relaxed);
                let best = group.best(turn, |_| true);
                best.unwrap_or_else(|| Arc::clone(&group.oldest))
            }
        }
    }

    /// A tunnel to replace one that failed, among those that the visitor may use.
    pub(super) fn failover(
        &self,
        failed: &LiveTunnel<A>,
        admits: impl Fn(&LiveTunnel<A>) -> bool,
    ) -> Option<Arc<LiveTunnel<A>>> {
        let may = |member: &LiveTunnel<A>| member.seq != failed.seq && admits(member);
        match self {
            // The one that failed is gone already.
            Self::One(tunnel) => may(tunnel).then(|| Arc::clone(tunnel)),
            Self::Several(group) => group.best(0, may),
        }
    }
}

impl<A: LoadMetric> Group<A> {
    fn best(
        &self,
        turn: usize,
        may: impl Fn(&LiveTunnel<A>) -> bool,
    ) -> Option<Arc<LiveTunnel<A>>> {
        let count = self.members.len();
        let from = turn.checked_rem(count).unwrap_or_default();
        let (behind, ahead) = self.members.split_at(from);
        let candidates = ahead.iter().chain(behind);
        candidates
            .filter(|member| may(member))
            .min_by_key(|member| (member.health.is_failing(), member.agent.load()))
            .map(Arc::clone)
    }
}

/// Recent failures of a tunnel. The data path itself is the health check.
#[derive(Debug)]
pub struct Health {
    /// Time after a failure in which the tunnel counts as failing.
    period: Duration,
    /// Milliseconds of [`since_start`] until which it counts as failing; 0 if it does not.
    until: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Self::new(FixedTimeouts::default().failing_tunnel)
    }
}

impl Health {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            until: AtomicU64::new(0),
        }
    }

    /// Records a failure: others that share its name are preferred for a while.
    pub fn record_failure(&self) {
        let until = since_start() + self.period;
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.until.store(millis, Ordering::Relaxed);
    }

    /// Records a success.
    pub fn record_success(&self) {
        // Read first: the cache line is shared, and nearly always has this value.
        if self.until.load(Ordering::Relaxed) != 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    fn is_failing(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != 0 && since_start() < Duration::from_millis(until)
    }
}

fn since_start() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
