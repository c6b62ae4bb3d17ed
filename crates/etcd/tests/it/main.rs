//! Clusters of engines on real etcd servers, with faults. The modules say `cfg(test)` so that the lints
//! treat their helpers as tests.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod entries;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod support;
