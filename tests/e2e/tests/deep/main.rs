//! Slow end-to-end tests, which `cargo xtask deep` runs and `cargo xtask test` only compiles.

#[cfg(test)]
mod generated_clients;
#[cfg(test)]
mod load_service;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod systemd;
#[cfg(test)]
mod visited_agent;

/// Held by each test while it runs, because some measure times.
#[cfg(test)]
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
