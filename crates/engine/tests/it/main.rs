//! The engine through its real surfaces: a listening server on port 0, tokens, live state. The
//! modules say `cfg(test)` so that the lints know their helpers for tests too.

#[cfg(test)]
mod access;
#[cfg(test)]
mod api;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod live;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod proxy_protocol;
#[cfg(test)]
mod support;
