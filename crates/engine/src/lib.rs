//! The edge: listeners, agents, live state, access decisions, the Engine API.

pub mod access;
pub mod api;
pub mod clock;
pub mod live;
