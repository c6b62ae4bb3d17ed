//! Limits of a project's plan for its tunnels: requests per second, which are refused above the
//! limit, and bytes per second, which are throttled. In addition there are limits for every
//! project: concurrent visits, and messages of its agents.
//!
//! Usage is kept for each tunnel and for the project, in lock-free token buckets ([`bucket`]). The
//! rates belong to the project and are read each time, so that a change by the platform applies
//! immediately. A community engine has no rates and does nothing here.

mod bucket;
mod messages;
mod meters;
mod order;
mod requests;
mod sources;
mod throttled_stream;
mod visit_permit;

pub(crate) use self::messages::{ChangeRate, MessageRate, monotonic};
pub(crate) use self::meters::{BandwidthLimit, Meters};
pub(crate) use self::order::ArrivalOrder;
pub(crate) use self::requests::count_request;
pub(crate) use self::sources::{SourceVisit, SourceVisits, VisitCount};
pub(crate) use self::throttled_stream::ThrottledStream;
pub(crate) use self::visit_permit::{ConcurrencyError, VisitPermit, permit_visit};
