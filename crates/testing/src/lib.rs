//! Test fixtures: in-process engines and agents, well-behaved and misbehaving upstreams, visitors
//! that send arbitrary bytes, certificates.
//!
//! Everything starts with one line on a free port of the loopback interface, and ends when it is
//! dropped. Nothing here sleeps: an upstream continues when the test opens its [`Gate`], and
//! reports received data in [`Report`]s.
//!
//! * [`TestEngine`], [`TestTunnel`]: an engine, and a service that it publishes.
//! * [`cluster`]: two engines of one cluster.
//! * [`FakePlatform`]: the platform that a managed engine follows and reports to.
//! * [`Upstream`]: well-behaved servers, over HTTP/1.1, h2c, TLS, WebSocket and gRPC.
//! * [`ScriptedUpstream`]: misbehaving HTTP/1.1 servers; [`ClosedPort`]: an address without a
//!   server.
//! * [`Visitor`]: a client of an edge, raw ([`RawVisitor`]), over HTTP/2 ([`H2Visitor`]) or as any
//!   TLS client.
//! * [`EtcdServers`]: the store of a cluster of engines, with members that can be stopped and paused.
//! * [`grpc`]: a service with all four kinds of calls, and its client.
//!
//! A failure here is a failed expectation of the calling test, so all functions panic with a
//! message instead of returning errors.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed expectation here fails the test that runs it"
)]

mod certificate;
mod closed_port;
pub mod cluster;
mod deadline;
mod engine;
mod etcd_servers;
mod fixtures;
pub mod grpc;
mod platform;
mod tunnel;
mod upstream;
mod visitor;

pub use certificate::{IssuedCertificate, TestCa};
pub use closed_port::ClosedPort;
pub use deadline::within;
pub use engine::TestEngine;
pub use etcd_servers::EtcdServers;
pub use platform::{FakePlatform, TestApp};
pub use tunnel::TestTunnel;
pub use upstream::{EventSource, Gate, Report, ScriptedUpstream, Step, Upstream};
pub use visitor::{H2Body, H2Visitor, RawVisitor, ReceivedResponse, Stream, Visitor};
