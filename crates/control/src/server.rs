//! Start and stop of the platform.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use daemon::clock::{Clock, SystemClock};
use daemon::config::SecretString;
use daemon::shutdown::Shutdown;
use store::Store;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::app::{App, router};
use crate::config::Config;
use crate::keys::{KeyError, Keys};
use crate::listener;
use crate::oauth::Oauth;
use crate::people::{People, PeopleError};
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
    /// Passwords, mail, or the OpenID provider.
    #[error(transparent)]
    People(#[from] PeopleError),
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
    start_on_each(app, vec![listener], shutdown)
}

/// Serves on several listeners at once, such as both loopback addresses. [`Running::address`] is
/// that of the first.
pub fn start_on_each(
    app: Arc<App>,
    listeners: Vec<TcpListener>,
    shutdown: Shutdown,
) -> Result<Running, StartError> {
    let listen = app.config.listen;
    let address = match listeners.first() {
        Some(first) => first.local_addr(),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let address = address.map_err(|source| StartError::Listen {
        address: listen,
        source,
    })?;
    let task = tokio::spawn(async move {
        let router = router(Arc::clone(&app));
        let serving: JoinSet<()> = listeners
            .into_iter()
            .map(|listener| listener::serve(listener, router.clone(), shutdown.clone()))
            .collect();
        serving.join_all().await;
        // Mails on their way are sent; then nobody needs the database any more.
        app.people.finish().await;
        app.store.close().await;
    });
    Ok(Running { address, task })
}

/// Copies the embedded database to a file that is not there yet, beside whatever uses it.
///
/// # Errors
/// The database is another one, is not there, or cannot be copied.
pub async fn backup(
    database_url: Option<&SecretString>,
    data_dir: &Path,
    target: &Path,
) -> Result<(), store::Error> {
    Store::backup_at(database_url.map(SecretString::expose), data_dir, target).await
}
