//! The engine link, as seen from an engine (or a relay).
//!
//! [`Link`] follows the platform: it reads the stream of [`api::link`], passes it to a [`Handler`]
//! and reconnects after each loss of the connection. It also stores the state on disk, so that a
//! process that starts while the platform is unreachable can serve immediately.
//!
//! [`OpenLink`] is both halves of a process: it opens, runs and ends them together.
//!
//! [`reports`] queues records ([`Records`]) and sends them ([`Reporter`]), each exactly once.
//!
//! This crate does not interpret the items and records; its users do.

mod control_plane;
mod endpoint;
mod folder;
mod follow;
mod hour;
mod reader;
mod reports;
mod running;
mod slots;
mod spool;
mod state;
mod status;
mod storage;
mod times;

pub use control_plane::ControlPlane;
pub use endpoint::{Endpoint, EndpointError, ProbeError, check_token};
pub use follow::{Handler, Link};
pub use hour::{hour_of, report_interval};
pub use reader::{LinkEvent, MAX_SNAPSHOT_BYTES, Reader, StreamError};
pub use reports::{Records, ReportCounts, Reporter, reports};
pub use running::{OpenLink, RunningLink};
pub use spool::SpoolLimits;
pub use state::{State, StateFileError};
pub use status::Status;
pub use times::LinkTimes;
pub use types::backoff::Backoff;
