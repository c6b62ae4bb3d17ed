//! Start and stop of the platform.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use daemon::clock::{Clock, SystemClock};
use daemon::config::SecretString;
use daemon::shutdown::Shutdown;
use store::Store;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::app::{App, router};
use crate::config::Config;
use crate::keys::{KeyError, Keys};
use crate::listener;
use crate::oauth::Oauth;
use crate::people::People;
use crate::people::password::HashError;
use crate::plans::{Shop, ShopError};

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
    /// The catalogue, or what it needs.
    #[error(transparent)]
    Shop(#[from] ShopError),
    /// The database.
    #[error("the database cannot be opened: {0}")]
    Database(#[from] store::Error),
    /// The hash of passwords.
    #[error(transparent)]
    Passwords(#[from] HashError),
}

/// Opens what a platform works on: the keys, then the database, whose migrations apply themselves.
pub async fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Arc<App>, StartError> {
    let keys = Keys::load(&config)?;
    let url = config.database_url.as_ref().map(SecretString::expose);
    let store = Store::open(url, &config.data_dir).await?;
    let people = People::open(&config)?;
    let shop = Shop::open(&config, &keys)?;
    shop.publish(&store).await?;
    Ok(Arc::new(App {
        store,
        config,
        clock,
        keys,
        people,
        shop,
        oauth: Oauth::default(),
    }))
}

/// Opens a platform and serves it.
pub async fn start(config: Config, shutdown: Shutdown) -> Result<Running, StartError> {
    let listen = config.listen;
    let app = open(config, Arc::new(SystemClock)).await?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|source| StartError::Listen {
            address: listen,
            source,
        })?;
    start_on(app, listener, shutdown)
}

/// Serves on a listener that is there: for whoever needs the port before the configuration.
pub fn start_on(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<Running, StartError> {
    let address = listener.local_addr().map_err(|source| StartError::Listen {
        address: app.config.listen,
        source,
    })?;
    let task = tokio::spawn(async move {
        listener::serve(listener, router(Arc::clone(&app)), shutdown).await;
        // Mails on their way are sent; then nobody needs the database any more.
        app.people.finish().await;
        app.store.close().await;
    });
    Ok(Running { address, task })
}
