//! A tunnel as a listener of `axum::serve` (feature `axum`).

use std::{io, net::IpAddr};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::sync::watch;

use crate::{CloseReason, Status, Stream, Tunnel};

/// Serves the streams of a tunnel with axum, without a socket; see [`Tunnel::into_listener`].
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use svc_client::{Agent, Config, Properties};
///
/// # async fn publish(config: Config) -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::connect(config).await?;
/// let mut tunnel = agent.open(Properties::http().named("hello"));
/// println!("{}", tunnel.online().await?.forwarding);
/// let listener = tunnel.into_listener();
/// let over = listener.closed();
/// let router = Router::new().route("/", get(|| async { "hello" }));
/// axum::serve(listener, router)
///     .with_graceful_shutdown(async { drop(over.await) })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TunnelListener {
    tunnel: Tunnel,
}

/// The visitor of a connection that axum serves: `ConnectInfo<Visitor>` in a handler, if the
/// service was made with `into_make_service_with_connect_info::<Visitor>()`.
///
/// A connection of an `http` tunnel has requests of many visitors; `X-Forwarded-For` names each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visitor {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The address of the visitor for which the stream was opened, if the engine sent it.
    pub source_ip: Option<IpAddr>,
}

impl Tunnel {
    /// Converts the tunnel into a listener of `axum::serve`. Dropping the listener closes the
    /// tunnel.
    pub fn into_listener(self) -> TunnelListener {
        TunnelListener { tunnel: self }
    }
}

impl TunnelListener {
    /// Waits until the tunnel is closed, and returns the reason, because `axum::serve` itself would
    /// wait for the next visitor forever. `None` if the agent ended without a reason.
    pub fn closed(&self) -> impl Future<Output = Option<CloseReason>> + Send + use<> {
        let status = self.tunnel.status();
        closed(status)
    }

    /// The tunnel of the listener.
    pub fn tunnel(&self) -> &Tunnel {
        &self.tunnel
    }
}

async fn closed(mut status: watch::Receiver<Status>) -> Option<CloseReason> {
    let over = status.wait_for(|status| matches!(status, Status::Closed(_)));
    match &*over.await.ok()? {
        Status::Closed(closed) => Some(closed.clone()),
        _ => None,
    }
}

impl Listener for TunnelListener {
    type Io = Stream;
    type Addr = Visitor;

    /// The next visitor. It waits forever once the tunnel is closed.
    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.tunnel.accept().await {
            Some(stream) => {
                let visitor = Visitor {
                    stream_id: stream.stream_id().to_owned(),
                    source_ip: stream.source_ip(),
                };
                (stream, visitor)
            }
            None => std::future::pending().await,
        }
    }

    /// A tunnel has no local address.
    fn local_addr(&self) -> io::Result<Self::Addr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Connected<IncomingStream<'_, TunnelListener>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, TunnelListener>) -> Self {
        stream.remote_addr().clone()
    }
}
