//! Support for tests of the real program with real third-party clients.
//!
//! [`Svc`] is an engine, started on a free port with a certificate created for the test. [`Agent`]
//! is a `svc forward` that is connected to it. [`Curl`] is a visitor, and a [`Visitor`] sends many
//! requests. [`Nginx`] and a [`Service`], which the test answers for, are upstreams. [`python`] is
//! an interpreter with the published SDK, a [`Peer`] is a service written with another library,
//! [`judge`] runs a third-party table of cases, and a [`Relay`] is a network that can be
//! interrupted. [`Platform`] is `svc up`, for clients of its pages, its API and its tools.
//! [`ManagedPair`] is a platform and its engine as separate processes, for tests in which one of
//! them fails. A [`ProxyServer`] is a proxy between an agent and its engine. An [`Authority`] is
//! Pebble, from which servers order certificates. A [`NameServer`] is BIND, [`dig`] and
//! [`kdig`] are its clients. A [`SystemdEngine`] is an engine with the unit of the packages. No crate of
//! this project is used here, so the tests depend only on what users can see.
#![expect(
    clippy::indexing_slicing,
    reason = "of JSON values, where what is missing is null"
)]

mod agent;
mod authority;
mod certificate;
mod control;
mod curl;
mod generator;
mod judge;
mod managed;
mod name_server;
mod nginx;
mod node;
mod peer;
mod platform;
mod postgres;
mod process;
mod proxy;
mod relay;
mod script;
mod service;
mod svc;
mod system;
mod systemd;
mod token;
mod turn;
mod visitor;

pub use agent::Agent;
pub use authority::Authority;
pub use control::Control;
pub use curl::{Answer, Curl, Download};
pub use generator::{API_DOCUMENTS, api_document, beside_python};
pub use judge::{Verdict, judge, provided};
pub use managed::{ManagedPair, eventually};
pub use name_server::{NameServer, dig, kdig};
pub use nginx::Nginx;
pub use node::{node, packages};
pub use peer::Peer;
pub use platform::{CLIENT, NATIVE_CLIENT, Platform};
pub use postgres::Postgres;
pub use process::{Process, run};
pub use proxy::ProxyServer;
pub use relay::Relay;
pub use script::{long_script, python, script};
pub use service::{Call, Service};
pub use svc::{Svc, program};
pub use systemd::SystemdEngine;
pub use turn::{TurnClient, relay as relay_of};
pub use visitor::{UPGRADED, Visit, Visitor, connector};
