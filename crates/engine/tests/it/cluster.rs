//! Visitors that reach another engine of the cluster than their tunnel's agent.

mod admission;
mod failures;
mod fake_peer;
mod forwarding;
mod two_engines;
