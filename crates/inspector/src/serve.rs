//! The inspector page and its API, served on this machine.
//!
//! The records are as secret as the traffic, so a request must have the token of this run. Any web
//! page that the user visits can make the browser send requests here. A request must therefore also
//! use an address or `localhost` as its host (any other name could be pointed here), and must not
//! come from another site.

mod api;
mod guard;
mod page;

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, middleware};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::Inspector;

/// Settings of the page's server.
pub struct Settings {
    /// Listen address; by default [`PORT`] on loopback, or the next free port.
    pub address: Option<SocketAddr>,
    /// The token of this run: random, URL-safe.
    pub token: String,
    /// The program's version, for archives.
    pub version: &'static str,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A running server of the page. Dropping it stops it.
#[derive(Debug)]
pub struct InspectorServer {
    address: SocketAddr,
    token: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// State shared by the handlers.
struct State {
    inspector: Inspector,
    token: String,
    version: &'static str,
    /// Tasks that read responses of replays.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// Serves the page of an inspector.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve(inspector: Inspector, settings: Settings) -> io::Result<InspectorServer> {
    let listener = listen(settings.address).await?;
    let address = listener.local_addr()?;
    let state = Arc::new(State {
        inspector,
        token: settings.token.clone(),
        version: settings.version,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    });
    let guarded = middleware::from_fn_with_state(Arc::clone(&state), guard::token);
    let app = Router::new()
        .nest("/api", api::router().layer(guarded))
        .merge(page::router())
        .layer(middleware::from_fn(guard::same_site))
        .with_state(Arc::clone(&state));
    let stop = state.stop.clone();
    let task = tokio::spawn(async move {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned());
        // The library itself retries accept errors; it has no others.
        drop(served.await);
    });
    Ok(InspectorServer {
        address,
        token: settings.token,
        state,
        task,
    })
}

impl InspectorServer {
    /// The address to open. The token is in the fragment, which browsers never send.
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server and its reading tasks.
    pub async fn shutdown(mut self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
        // A browser may keep a connection open for any time.
        if tokio::time::timeout(GRACE, &mut self.task).await.is_err() {
            self.task.abort();
            // The listener is closed when the task has ended.
            (&mut self.task).await.ok();
        }
    }
}

impl Drop for InspectorServer {
    fn drop(&mut self) {
        self.state.stop.cancel();
        self.task.abort();
    }
}

async fn listen(address: Option<SocketAddr>) -> io::Result<TcpListener> {
    if let Some(address) = address {
        return TcpListener::bind(address).await;
    }
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    // Enough ports for several tunnels at the same time, then any free port.
    for port in (PORT..PORT + 20).chain([0]) {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first port to try.
pub const PORT: u16 = 4040;

/// Maximum time to finish open requests at the end.
const GRACE: Duration = Duration::from_millis(500);
