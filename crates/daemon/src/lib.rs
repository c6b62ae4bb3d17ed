//! Domain-independent parts of every server process: configuration ([`config`]), TLS certificates
//! and their reload ([`tls`]), the metrics listener ([`metrics`]), logs ([`logs`]), the access
//! log's writer ([`access_log`]), problem responses ([`problem`]), rate limits ([`rate_limit`]),
//! connection limits ([`connections`]), counters by key ([`counts`]), maps of limited size ([`generations`]), the size of heads over HTTP/2 ([`head_size`]), stopping
//! ([`shutdown`], [`signals`]), a listener for short answers ([`small_http`]), notifications to a
//! supervisor ([`supervisor`]), the time of day ([`clock`]), reading the files that an operator
//! names ([`files`]), and tests of generated documents ([`documents`]).
//!
//! Nothing here depends on tunnels, reads the process environment (only [`documents`] does, in
//! tests), or chooses a runtime: the binary does that, and passes values in. Start reading with
//! [`config::load`], which every process calls first.
//!
//! # Start and stop
//!
//! A server starts in this order, each step for a reason:
//!
//! 1. [`config`]: an invalid configuration must not have any effect.
//! 2. [`logs`]: every later step can log.
//! 3. [`shutdown`]: a signal during a slow start already counts.
//! 4. [`tls`] and the [`access_log`]: broken files end the process before it has bound a port.
//! 5. [`metrics`], not ready: a listener that is refused (MX-3) ends the process as well.
//! 6. The service's own listeners; then [`metrics::Readiness::set_ready`] and
//!    [`supervisor::Supervisor::ready`].
//!
//! It stops in the opposite order: it reports that it is not ready, admits no new work, and lets
//! current work finish or aborts it at the hard deadline. Then the access log is flushed. The
//! metrics listener stops last, so that the drain can be observed.

#[cfg(unix)]
pub mod access_log;
pub mod clock;
pub mod config;
pub mod connections;
pub mod counts;
#[cfg(unix)]
pub mod descriptors;
pub mod documents;
pub mod files;
pub mod generations;
pub mod head_size;
pub mod logs;
pub mod metrics;
pub mod problem;
pub mod rate_limit;
pub mod shutdown;
pub mod signals;
pub mod small_http;
pub mod supervisor;
#[cfg(unix)]
pub mod tls;
