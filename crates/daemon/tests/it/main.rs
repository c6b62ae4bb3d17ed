//! The parts of `daemon` with real files, sockets and signals. The modules have `cfg(test)` so that
//! the lints treat their helpers as tests.

#[cfg(test)]
mod access_log;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod supervisor;
#[cfg(test)]
mod tls;
