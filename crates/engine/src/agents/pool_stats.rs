//! Numbers of standing connections, for the metrics.

/// Numbers of standing connections, by their current use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolStats {
    pub(crate) idle: usize,
    /// With one stream each.
    pub(crate) busy: usize,
    pub(crate) lanes: usize,
    /// Streams on lanes.
    pub(crate) on_lanes: usize,
}

impl std::ops::Add for PoolStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            idle: self.idle + other.idle,
            busy: self.busy + other.busy,
            lanes: self.lanes + other.lanes,
            on_lanes: self.on_lanes + other.on_lanes,
        }
    }
}
