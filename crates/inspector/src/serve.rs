//! The page and its API, on this machine.
//!
//! What is recorded is as secret as the traffic, so a request must show the token of this run; and
//! since every page that the person visits can make their browser send requests here, a request
//! must also name this server by an address or as `localhost` (no name can be pointed here), and
//! may not come from another site.

mod api;
mod guard;
mod page;

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, middleware};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::Inspector;

/// How the page is served.
pub struct Settings {
    /// Where; without one [`PORT`] of loopback, or the next that is free.
    pub address: Option<SocketAddr>,
    /// The token of this run: random, fit for an address.
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

/// A page that is served. Dropped, it is not any more.
#[derive(Debug)]
pub struct InspectorServer {
    address: SocketAddr,
    token: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// What handlers share.
struct State {
    inspector: Inspector,
    token: String,
    version: &'static str,
    /// Answers of replays that are being read.
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
/// The address cannot be listened on.
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
        // Accepting errors are waited out there; it has no others.
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
    /// What a person opens. The token is behind `#`, which browsers send to nobody.
    pub fn url(&self) -> String {
        format!("http://{}/#{}", self.address, self.token)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it, and what it still reads.
    pub async fn shutdown(mut self) {
        self.state.stop.cancel();
        self.state.tasks.close();
        self.state.tasks.wait().await;
        // A browser may keep a connection open for as long as it likes.
        if tokio::time::timeout(GRACE, &mut self.task).await.is_err() {
            self.task.abort();
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
    // As many tunnels as anybody inspects beside each other, then any port.
    for port in (PORT..PORT + 20).chain([0]) {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first port that is tried.
pub const PORT: u16 = 4040;

/// How long a page may take to be told the end.
const GRACE: Duration = Duration::from_millis(500);
