//! What tests stand on: engines and agents in this process, upstreams that behave and that
//! misbehave, visitors that send any bytes, certificates.
//!
//! Everything starts in one line on a free port of the loopback interface, and ends when it is
//! dropped. Nothing here sleeps: an upstream goes on when the test opens its [`Gate`], and tells
//! in [`Report`]s what has reached it.
//!
//! * [`TestEngine`], [`TestTunnel`]: an engine, and a service that is published by it.
//! * [`FakePlatform`]: what a managed engine follows and reports to.
//! * [`Upstream`]: servers that answer well, over HTTP/1.1, h2c, TLS, WebSocket and gRPC.
//! * [`ScriptedUpstream`]: HTTP/1.1 servers that do not; [`Nobody`]: none at all.
//! * [`Visitor`]: a client of an edge, raw ([`RawVisitor`]), over HTTP/2 ([`H2Visitor`]) or as any
//!   TLS client.
//! * [`grpc`]: a service with all four kinds of calls, and its client.
//!
//! What goes wrong here is a failed expectation of the test that runs it, so everything panics
//! with a message instead of returning errors.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation here fails the test that runs it"
)]

mod certificate;
mod engine;
pub mod grpc;
mod nobody;
mod patience;
mod platform;
mod tunnel;
mod upstream;
mod visitor;

pub use certificate::{IssuedCertificate, TestCa};
pub use engine::TestEngine;
pub use nobody::Nobody;
pub use patience::within;
pub use platform::{FakePlatform, TestApp};
pub use tunnel::TestTunnel;
pub use upstream::{EventSource, Gate, Report, ScriptedUpstream, Step, Upstream};
pub use visitor::{Answer, H2Body, H2Visitor, RawVisitor, Stream, Visitor};
