//! Tests of ownership: three engines on one store under random faults, and the memory of a view. The
//! modules say `cfg(test)` so that the lints treat their helpers as tests.

#[cfg(test)]
#[cfg(target_os = "linux")]
mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
mod schedules;
