//! Numbers of live objects.

/// Numbers of live objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub clients: usize,
    pub tunnels: usize,
    pub watchers: usize,
    /// Watchers closed as too slow since the start.
    pub dropped_watchers: u64,
}

/// Numbers of objects of a project that are online.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Online {
    pub clients: u32,
    pub tunnels: u32,
}
