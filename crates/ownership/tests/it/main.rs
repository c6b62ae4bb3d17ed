//! Tests of ownership: three engines on one store under random faults, and the memory of a view.

#[cfg(target_os = "linux")]
mod memory;
mod model;
mod schedules;
