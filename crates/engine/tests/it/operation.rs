//! Limits, records, metrics and the drain of a running engine.

mod access_log;
mod connections;
mod drain;
mod geo;
mod limits;
mod metrics;
