//! What every server process needs and no domain knows: configuration ([`config`]), TLS material
//! and its reload ([`tls`]), the metrics listener ([`metrics`]), logs ([`logs`]), the access log's
//! writer ([`access_log`]), problem responses ([`problem`]), rates of requests ([`rate_limit`]), how
//! many connections are open ([`connections`]), the size of
//! heads over HTTP/2 ([`head_size`]), stopping ([`shutdown`], [`signals`]), what a supervisor is told
//! ([`supervisor`]), the time of day ([`clock`]), and reading the files that an operator names
//! ([`files`]).
//!
//! Nothing here knows what a tunnel is, reads the process environment, or chooses a runtime: the
//! binary does, and passes values in. Start with [`config::load_checked`], which every process reads
//! first.
//!
//! # Start and stop
//!
//! A server starts in this order, each step for a reason:
//!
//! 1. [`config`]: nothing may happen on behalf of a configuration that is refused.
//! 2. [`logs`]: every later step can speak.
//! 3. [`shutdown`]: a signal during a slow start already counts.
//! 4. [`tls`] and the [`access_log`]: broken files end the process before it has bound a port.
//! 5. [`metrics`], not ready: a listener that is refused (MX-3) ends the process as well.
//! 6. The service's own listeners; then [`metrics::Readiness::set_ready`] and [`supervisor::Supervisor::ready`].
//!
//! It stops in the opposite order: not ready, no admission, work finishes or the hard deadline
//! cuts it, the access log is flushed, the metrics listener goes last so that the drain can be
//! watched.

#[cfg(unix)]
pub mod access_log;
pub mod clock;
pub mod config;
pub mod connections;
pub mod files;
pub mod head_size;
pub mod logs;
pub mod metrics;
pub mod problem;
pub mod rate_limit;
pub mod shutdown;
pub mod signals;
pub mod supervisor;
#[cfg(unix)]
pub mod tls;
