//! The process: its environment, descriptors, signals, log and supervisor.

pub(crate) mod agent_metrics;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod lifecycle;
pub(crate) mod logging;
pub(crate) mod random;
#[cfg(feature = "server")]
pub(crate) mod replacement;
pub(crate) mod signals;
pub(crate) mod supervisor;
