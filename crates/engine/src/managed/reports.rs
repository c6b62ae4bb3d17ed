//! The queue of reports to the platform.

use link::Records;

use super::usage::Usage;

/// The queue for reports from all parts of the engine.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) records: Records,
    pub(crate) usage: Usage,
}
