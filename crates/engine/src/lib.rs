//! The edge of the platform: it accepts agents and visitors, and joins them.
//!
//! A visitor's connection is classified once ([`listen`]), routed once ([`live`]), authorized once
//! ([`access`]) and then carried over one stream to an agent ([`agents`], [`edge`]). The Engine API
//! ([`api`]) shows what is online. All live state is in process memory and has one owner. Engines of
//! one [`cluster`] forward visitors to each other.
//!
//! This crate depends on no SQL and on no control plane, so the community engine cannot contain
//! hosted code. Start with [`start`].

pub mod access;
mod agents;
pub mod api;
pub mod browser;
pub mod clock;
pub mod cluster;
pub mod config;
mod core;
pub mod directory;
pub mod domains;
mod edge;
mod engine;
mod geo;
mod handover;
mod limits;
mod listen;
pub mod live;
mod managed;
mod membership;
mod metrics;
mod random;
mod start_error;
mod storage;
mod tunnel_closer;
pub mod webtty;

pub use engine::{RunningEngine, start, start_from, start_in_cluster, start_with_clock};
pub use geo::GeoError;
pub use handover::{HandoverError, Origin, Replacement};
pub use start_error::StartError;
