//! The list of active visits.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;
use types::tunnel::TlsVersion;

use super::signal::RevocationSignal;
use crate::access::Proof;
use crate::agents::Agent;
use crate::live::LiveTunnel;

/// The active visits of one worker.
#[derive(Debug, Default)]
pub(crate) struct ActiveVisits(pub(super) Mutex<Slab<Arc<ActiveVisit>>>);

/// An active request or connection, with the data that its authorisation depends on.
#[derive(Debug)]
pub(super) struct ActiveVisit {
    pub(super) tunnel: Arc<LiveTunnel<Agent>>,
    pub(super) peer: IpAddr,
    pub(super) tls_version: Option<TlsVersion>,
    pub(super) proof: Option<Proof>,
    pub(super) signal: Arc<RevocationSignal>,
}
