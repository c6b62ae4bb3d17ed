//! The state of an engine's membership, for operators.

use std::time::Duration;

use ownership::{Engine, EngineId, NameCounts};

/// A snapshot of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// This run of the engine.
    pub engine: EngineId,
    /// True if the engine may serve its names.
    pub is_serving: bool,
    /// Time since the machine started at which the engine stops serving without further contact;
    /// `None` if it does not serve.
    pub serves_until: Option<Duration>,
    /// Time since the last renewal of the lease; `None` without a lease.
    pub lease_age: Option<Duration>,
    /// Time that the last successful request to the store took.
    pub latency: Option<Duration>,
    /// The last revision of the store that the engine has read.
    pub revision: u64,
    /// Names of the whole cluster.
    pub names: NameCounts,
    /// Names of this engine.
    pub own_names: usize,
    /// All engines of the cluster.
    pub engines: Vec<(EngineId, Engine)>,
    /// The last failure since the engine was in contact with the store.
    pub failure: Option<String>,
}
