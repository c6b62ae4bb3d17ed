//! Start and stop of the platform.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::clock::{Clock, SystemClock};
use daemon::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::app::{App, router};
use crate::config::Config;
use crate::keys::{KeyError, Keys};
use crate::listener;

/// A platform that serves.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Running {
    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has stopped.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the listener ended unexpectedly");
        }
    }
}

/// Why a platform does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Starts a platform: keys, then the database, then the listener.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, StartError> {
    start_with_clock(config, shutdown, Arc::new(SystemClock)).await
}

/// As [`start`], with another clock.
pub async fn start_with_clock(
    config: Config,
    shutdown: Shutdown,
    clock: Arc<dyn Clock>,
) -> Result<Running, StartError> {
    let keys = Keys::load(&config)?;
    let listen = config.listen;
    let app = Arc::new(App {
        config,
        clock,
        keys,
    });
    let failed = |source| StartError::Listen {
        address: listen,
        source,
    };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let task = tokio::spawn(listener::serve(listener, router(app), shutdown));
    Ok(Running { address, task })
}
