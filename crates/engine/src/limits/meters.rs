//! Usage and bandwidth that tunnels and projects are metered by.

use std::sync::atomic::{AtomicU64, Ordering};

use api::link::Limits;

use super::bucket::Bucket;

/// Recent usage of a tunnel or of a project.
#[derive(Debug, Default)]
pub struct Meters {
    pub(super) requests: Bucket,
    /// Bytes towards services.
    pub(super) up: Bucket,
    /// Bytes from services.
    pub(super) down: Bucket,
}

/// Bytes per second in each direction, shared by all reads and writes.
#[derive(Debug)]
pub struct BandwidthLimit {
    project: AtomicU64,
    tunnel: AtomicU64,
}

/// No limit.
const UNLIMITED: u64 = u64::MAX;

impl BandwidthLimit {
    pub(crate) fn new(limits: &Limits) -> Self {
        let speed = Self {
            project: AtomicU64::new(UNLIMITED),
            tunnel: AtomicU64::new(UNLIMITED),
        };
        speed.set(limits);
        speed
    }

    pub(crate) fn set(&self, limits: &Limits) {
        let set = |speed: &AtomicU64, limit: Option<u64>| {
            speed.store(limit.unwrap_or(UNLIMITED), Ordering::Relaxed);
        };
        set(&self.project, limits.bytes_per_second);
        set(&self.tunnel, limits.tunnel_bytes_per_second);
    }

    /// The limits of a tunnel and of the whole project.
    pub(super) fn get(&self) -> [Option<u64>; 2] {
        [&self.tunnel, &self.project].map(|speed| {
            let speed = speed.load(Ordering::Relaxed);
            (speed != UNLIMITED).then_some(speed)
        })
    }
}
