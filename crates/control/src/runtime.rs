//! The process: jobs, health, metrics, randomness and clocks.

pub mod clock_skew;
pub mod geo;
pub mod health;
pub mod jobs;
pub(crate) mod metrics;
pub mod random;
