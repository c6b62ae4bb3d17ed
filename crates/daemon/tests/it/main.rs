//! The parts of `daemon` against real files, sockets and signals. The modules say `cfg(test)` so
//! that the lints know their helpers for tests too.

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
