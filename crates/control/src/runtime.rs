//! The process: jobs, health, metrics, randomness, clocks and authorities.

pub(crate) mod authorities;
pub mod clock_skew;
pub mod geo;
pub mod health;
pub mod jobs;
pub(crate) mod metrics;
pub mod random;
