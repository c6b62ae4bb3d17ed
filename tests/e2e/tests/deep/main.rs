//! Slow end-to-end tests, which `cargo xtask deep` runs and `cargo xtask test` only compiles.

#[cfg(test)]
mod generated_clients;
