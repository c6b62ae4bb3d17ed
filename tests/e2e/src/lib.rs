//! The real program beside real third-party clients.
//!
//! [`Svc`] is an engine, started on a free port with a certificate made for the test; [`Agent`] is
//! `svc forward` beside it. Around them stand [`Curl`] as the visitor, [`Nginx`] and a [`Service`]
//! that the test answers for, as upstreams; [`python`] is an interpreter that has the published
//! SDK, a [`Peer`] is a service made with another library, [`judge`] runs a table of somebody else's,
//! and a [`Relay`] is a network that can be cut. [`Platform`] is `svc up`, for the clients of its
//! pages, its API and its tools; [`Managed`] is a platform and its engine as processes of their own,
//! for what happens when one of them fails. Nothing here uses a crate of ours: what these tests know
//! of the program is what its users know.
#![expect(
    clippy::indexing_slicing,
    reason = "of JSON values, where what is missing is null"
)]

mod agent;
mod certificate;
mod control;
mod curl;
mod judge;
mod managed;
mod nginx;
mod peer;
mod platform;
mod postgres;
mod process;
mod relay;
mod script;
mod service;
mod svc;
mod system;
mod token;
mod turn;

pub use agent::Agent;
pub use control::Control;
pub use curl::{Answer, Curl, Download};
pub use judge::{Verdict, judge, provided};
pub use managed::{Managed, eventually};
pub use nginx::Nginx;
pub use peer::Peer;
pub use platform::{CLIENT, Platform, node, packages};
pub use postgres::Postgres;
pub use process::Process;
pub use relay::Relay;
pub use script::{python, script};
pub use service::{Call, Service};
pub use svc::{Svc, program};
pub use turn::{TurnClient, relay as relay_of};
