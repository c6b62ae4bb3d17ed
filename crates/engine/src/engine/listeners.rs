//! The listening sockets of an engine: bound here, or inherited.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::descriptors::InheritedSockets;
use daemon::metrics::{MetricsConfig, MetricsError};
use tokio::net::TcpListener;
use tracing::warn;

use crate::config::EngineConfig;
use crate::core::Core;
use crate::handover::Handover;
use crate::listen::{self, serve_peers, serve_plain, serve_tls};
use crate::start_error::StartError;

/// Bound listeners, one of each kind per worker or more.
pub(super) struct Listeners {
    pub(super) tls: Vec<std::net::TcpListener>,
    /// Empty without a plain listener.
    pub(super) http: Vec<std::net::TcpListener>,
    /// Empty outside of a cluster.
    pub(super) peers: Vec<std::net::TcpListener>,
    pub(super) peers_addr: Option<SocketAddr>,
    pub(super) tls_addr: SocketAddr,
    pub(super) http_addr: Option<SocketAddr>,
}

impl Listeners {
    /// Binds the listeners of the configuration, and the one for other engines.
    pub(super) fn bind(
        (config, peers): (&EngineConfig, Option<SocketAddr>),
        workers: usize,
        handover: &Handover,
        sockets: &mut InheritedSockets,
    ) -> Result<Self, StartError> {
        let mut bind_all = |(key, name), address: SocketAddr| {
            let inherited = sockets.take_named_listeners(name, address);
            let bound = inherited.and_then(|inherited| {
                let listeners = if inherited.is_empty() {
                    listen::bind(address, workers)?
                } else {
                    listen::adopt(inherited, workers)?
                };
                handover.keep(name, &listeners)?;
                Ok(listeners)
            });
            bound.map_err(|source| StartError::Listen {
                key,
                address,
                source,
            })
        };
        let tls = bind_all(("tls.listen_addr", "tls"), config.tls)?;
        let http = config
            .http
            .map(|address| bind_all(("http.listen_addr", "http"), address));
        let http = http.transpose()?.unwrap_or_default();
        let bound = peers.map(|address| bind_all(("cluster.listen_addr", "cluster"), address));
        let bound = bound.transpose()?.unwrap_or_default();
        Ok(Self {
            peers_addr: peers.map(|address| local(&bound, address)),
            peers: bound,
            tls_addr: local(&tls, config.tls),
            http_addr: config.http.map(|address| local(&http, address)),
            tls,
            http,
        })
    }

    /// Accepts connections on the workers when this process serves.
    pub(super) fn serve(self, core: &Arc<Core>) {
        // There may be more listeners than workers, if they are those of an earlier process.
        for (listener, worker) in self.tls.into_iter().zip(core.workers().iter().cycle()) {
            let at = Arc::clone(worker);
            // A drain waits for the loop, which may have accepted a connection just before it ends.
            worker.spawn(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve_tls(listener, at).await,
                    Err(error) => warn!(%error, "the TLS listener cannot be used"),
                }
            });
        }
        for (listener, worker) in self.peers.into_iter().zip(core.workers().iter().cycle()) {
            let at = Arc::clone(worker);
            let serving = async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve_peers(listener, at).await,
                    Err(error) => warn!(%error, "the listener for other engines cannot be used"),
                }
            };
            // A drain of the visits does not wait for it.
            core.agents.spawn_on(serving, &worker.runtime);
        }
        for (listener, worker) in self.http.into_iter().zip(core.workers().iter().cycle()) {
            let at = Arc::clone(worker);
            worker.spawn(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => serve_plain(listener, at).await,
                    Err(error) => warn!(%error, "the plain listener cannot be used"),
                }
            });
        }
    }
}

fn local(listeners: &[std::net::TcpListener], configured: SocketAddr) -> SocketAddr {
    let bound = listeners
        .first()
        .and_then(|listener| listener.local_addr().ok());
    bound.unwrap_or(configured)
}

/// The metrics listener; `None` if none is configured (MX-1).
pub(super) fn bind_metrics(
    config: &MetricsConfig,
    handover: &Handover,
    sockets: &mut InheritedSockets,
) -> Result<Option<TcpListener>, MetricsError> {
    // MX-3 is checked before anything is bound.
    config.check()?;
    let Some(address) = config.listener() else {
        return Ok(None);
    };
    let mut bind = || -> io::Result<TcpListener> {
        let inherited = sockets.take_named_listeners("metrics", address)?;
        let inherited = inherited.into_iter().next();
        let listener = match inherited {
            Some(listener) => listener,
            None => std::net::TcpListener::bind(address)?,
        };
        listener.set_nonblocking(true)?;
        handover.keep("metrics", std::slice::from_ref(&listener))?;
        TcpListener::from_std(listener)
    };
    let listener = bind().map_err(|source| MetricsError::Bind { address, source })?;
    Ok(Some(listener))
}
