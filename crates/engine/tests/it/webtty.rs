//! Managed terminals through a managed engine: a registered server behind a real agent connection,
//! users who open sessions, and users who join them.

mod bounds;
mod chain;
mod control;
mod events;
mod faults;
mod joining;
mod link;
mod permissions;
mod server;
mod sessions;
mod transports;
mod world;
