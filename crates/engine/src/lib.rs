//! The edge: listeners, agents, live state, access decisions, the Engine API.

pub mod config;
