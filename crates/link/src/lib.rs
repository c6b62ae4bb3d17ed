//! The engine link, as seen from an engine (or a relay).
//!
//! [`Link`] follows the platform: it reads the stream of [`api::link`], hands it to a [`Handler`],
//! comes back whenever the connection is lost, and keeps what is known on disk, so that a process
//! that starts while the platform is away serves at once.
//!
//! [`reports`] takes what there is to report ([`Records`]) and sends it ([`Reporter`]), each record
//! once.
//!
//! This crate does not know what any of it means: that is its user's matter.

mod endpoint;
mod folder;
mod follow;
mod lines;
mod pace;
mod reader;
mod reports;
mod spool;
mod state;
mod status;
mod storage;

pub use endpoint::{BadEndpoint, Endpoint};
pub use follow::{Handler, Link};
pub use lines::{Lines, TooLong};
pub use pace::Pace;
pub use reader::{LinkEvent, MAX_SNAPSHOT_BYTES, Reader, StreamError};
pub use reports::{Records, ReportCounts, Reporter, reports};
pub use spool::SpoolLimits;
pub use state::{BadState, State};
pub use status::Status;
pub use types::backoff::Backoff;
