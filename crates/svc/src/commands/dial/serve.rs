//! Tunnels on local addresses, a stream for each connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use client::{Config, ConnectError, Stream, backoff::Backoff};
use daemon::shutdown::Shutdown;
use futures_util::future::join_all;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tracing::warn;
use transport::{memory::Source, pump};

use super::local::{Listener, Local};
use crate::{
    descriptors,
    failure::{Failure, chain},
    output,
    output::Format,
    signals,
};

/// One tunnel that is served.
struct ServedTunnel {
    tunnel: Arc<str>,
    listener: Listener,
}

/// Serves until the first signal; then what runs may finish.
pub(super) async fn serve(
    places: Vec<(String, Local)>,
    config: Config,
    format: Format,
) -> Result<(), Failure> {
    descriptors::raise_limit();
    let shutdown = signals::listen(signals::DRAIN)?;
    let mut all = Vec::with_capacity(places.len());
    for (tunnel, local) in places {
        all.push(ServedTunnel {
            tunnel: tunnel.into(),
            listener: Listener::bind(&local).await?,
        });
    }
    ready(&all, format)?;
    let streams = TaskTracker::new();
    let config = Arc::new(config);
    let serving = all
        .into_iter()
        .map(|served| served.run(&config, &streams, &shutdown));
    join_all(serving).await;
    streams.close();
    tokio::select! {
        () = streams.wait() => Ok(()),
        () = shutdown.hard().cancelled() => Ok(()),
    }
}

impl ServedTunnel {
    /// Takes connections until the first signal.
    async fn run(self, config: &Arc<Config>, streams: &TaskTracker, shutdown: &Shutdown) {
        let drain = shutdown.drain();
        while let Some(accepted) = drain.run_until_cancelled(self.listener.accept()).await {
            let local = match accepted {
                Ok(local) => local,
                Err(error) => {
                    // Out of descriptors, mostly: a pause lets streams end.
                    warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (config, tunnel) = (Arc::clone(config), Arc::clone(&self.tunnel));
            let hard = shutdown.hard().clone();
            streams.spawn(async move {
                let joined = join(local, &config, &tunnel);
                if let Some(Err(error)) = hard.run_until_cancelled(joined).await {
                    output::message(&format!("svc://{tunnel}: {}", chain(&error)));
                }
            });
        }
    }
}

/// Tells once that all of them listen.
fn ready(all: &[ServedTunnel], format: Format) -> Result<(), Failure> {
    let mut told = Vec::with_capacity(all.len());
    for ServedTunnel { tunnel, listener } in all {
        let address = listener
            .address()
            .map_err(|error| Failure::of("the address is not known", error))?;
        told.push((tunnel, address));
    }
    match format {
        Format::Json => {
            let tunnels: Vec<_> = told
                .iter()
                .map(|(tunnel, address)| json!({"tunnel": &***tunnel, "listening": address}))
                .collect();
            let mut line = json!({"status": "ready", "tunnels": tunnels});
            if let ([(_, address)], Some(line)) = (told.as_slice(), line.as_object_mut()) {
                line.insert("listening".to_owned(), json!(address));
            }
            output::json(&line)
        }
        Format::Text => told.iter().try_for_each(|(tunnel, address)| {
            output::line(&format!("svc://{tunnel} on {address}"))
        }),
    }
}

async fn join(
    mut local: Box<dyn transport::Stream>,
    config: &Config,
    tunnel: &str,
) -> Result<(), ConnectError> {
    let mut stream = dial(config, tunnel).await?;
    // Either side may break off whenever it likes; both know it then.
    drop(pump(Source::default(), &mut local, &mut stream).await);
    Ok(())
}

/// Dials, and for a while again after what a network can cause: an engine that restarts, or an
/// agent that comes back, is not the end of a program's connection.
async fn dial(config: &Config, tunnel: &str) -> Result<Stream, ConnectError> {
    let begun = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        match client::dial(config, tunnel).await {
            Err(error) if error.is_transient() && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(backoff.next_wait(client::backoff::random())).await;
            }
            dialled => return dialled,
        }
    }
}

/// Long enough that a process without descriptors does not spin.
const PAUSE: Duration = Duration::from_millis(100);
/// A restart of an engine; programs give a connection up after some such time.
const PATIENCE: Duration = Duration::from_secs(10);
