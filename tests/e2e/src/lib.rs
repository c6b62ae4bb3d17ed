//! The real program beside real third-party clients.
//!
//! [`Svc`] is an engine, started on a free port with a certificate made for the test; [`Agent`] is
//! `svc forward` beside it. Around them stand [`Curl`] as the visitor, [`Nginx`] and a [`Service`]
//! that the test answers for, as upstreams; [`python`] is an interpreter that has the published
//! SDK, and a [`Relay`] is a network that can be cut. [`Platform`] is `svc up`, for the clients of its
//! pages, its API and its tools. Nothing here uses a crate of ours: what these
//! tests know of the program is what its users know.
#![expect(
    clippy::indexing_slicing,
    reason = "of JSON values, where what is missing is null"
)]

mod agent;
mod certificate;
mod curl;
mod nginx;
mod platform;
mod process;
mod relay;
mod script;
mod service;
mod svc;
mod token;

pub use agent::Agent;
pub use curl::{Answer, Curl, Download};
pub use nginx::Nginx;
pub use platform::{CLIENT, Platform, node, packages};
pub use process::Process;
pub use relay::Relay;
pub use script::{python, script};
pub use service::{Call, Service};
pub use svc::{Svc, free_ports};
