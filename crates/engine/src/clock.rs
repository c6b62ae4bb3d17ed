//! The engine's clock.

pub use daemon::clock::{Clock, ManualClock, SystemClock};
