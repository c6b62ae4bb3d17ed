//! Serves tunnels on local addresses, with one stream per connection.

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

use super::local::{Listener, LocalAddress};
use crate::failure::Failure;
use crate::output;
use crate::output::Format;
use crate::process::{agent_metrics::AgentMetrics, descriptors, lifecycle::LifecycleFlags};
use crate::token_refusal;

/// A tunnel with its listener.
struct ServedTunnel {
    tunnel: Arc<str>,
    listener: Listener,
}

/// Serves until the first signal. Open streams may finish after it.
pub(super) async fn serve(
    places: Vec<(String, LocalAddress)>,
    config: Config,
    format: Format,
    lifecycle: &LifecycleFlags,
) -> Result<(), Failure> {
    descriptors::raise_limit();
    let shutdown = lifecycle.listen_for_signals()?;
    let health = lifecycle.health().await?;
    let mut all = Vec::with_capacity(places.len());
    for (tunnel, local) in places {
        all.push(ServedTunnel {
            tunnel: tunnel.into(),
            listener: Listener::bind(&local).await?,
        });
    }
    ready(&all, format)?;
    health.set_ready(true);
    let streams = TaskTracker::new();
    let config = Arc::new(config);
    let serving = all
        .into_iter()
        .map(|served| served.run(&config, &streams, &shutdown, health.metrics()));
    join_all(serving).await;
    health.set_ready(false);
    streams.close();
    tokio::select! {
        () = streams.wait() => Ok(()),
        () = shutdown.hard().cancelled() => Ok(()),
    }
}

impl ServedTunnel {
    /// Accepts connections until the first signal.
    async fn run(
        self,
        config: &Arc<Config>,
        streams: &TaskTracker,
        shutdown: &Shutdown,
        metrics: &AgentMetrics,
    ) {
        let drain = shutdown.drain();
        while let Some(accepted) = drain.run_until_cancelled(self.listener.accept()).await {
            let local = match accepted {
                Ok(local) => local,
                Err(error) => {
                    // The usual cause is a lack of file descriptors. A pause lets other streams
                    // finish.
                    warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (config, tunnel) = (Arc::clone(config), Arc::clone(&self.tunnel));
            let (hard, metrics) = (shutdown.hard().clone(), metrics.clone());
            streams.spawn(async move {
                let joined = proxy_connection(local, &config, &tunnel, &metrics);
                if let Some(Err(error)) = hard.run_until_cancelled(joined).await {
                    report(error, &config, &tunnel).await;
                }
            });
        }
    }
}

/// Reports a connection that was not served.
async fn report(error: ConnectError, config: &Config, tunnel: &str) {
    let failure = token_refusal::explain(Failure::from(error), config).await;
    output::message(&format!("svc://{tunnel}: {}", failure.message()));
    if let Some(hint) = failure.next_step() {
        output::message(&format!("hint: {hint}"));
    }
}

/// Reports once that all addresses listen.
fn ready(all: &[ServedTunnel], format: Format) -> Result<(), Failure> {
    let mut addresses = Vec::with_capacity(all.len());
    for ServedTunnel { tunnel, listener } in all {
        let bound = listener
            .addresses()
            .map_err(|error| Failure::from_error("the address is not known", error))?;
        addresses.push((tunnel, bound));
    }
    match format {
        Format::Json => {
            let tunnels: Vec<_> = addresses
                .iter()
                .map(|(tunnel, bound)| {
                    let mut served = json!({"tunnel": &***tunnel, "listening": bound.first()});
                    // Only a host with several addresses has this member.
                    if let ([_, _, ..], Some(served)) = (bound.as_slice(), served.as_object_mut()) {
                        served.insert("addresses".to_owned(), json!(bound));
                    }
                    served
                })
                .collect();
            let mut line = json!({"status": "ready", "tunnels": tunnels});
            if let ([(_, bound)], Some(line)) = (addresses.as_slice(), line.as_object_mut()) {
                line.insert("listening".to_owned(), json!(bound.first()));
            }
            output::json(&line)
        }
        Format::Text => addresses.iter().try_for_each(|(tunnel, bound)| {
            output::line(&format!("svc://{tunnel} on {}", bound.join(" and ")))
        }),
    }
}

async fn proxy_connection(
    mut local: Box<dyn transport::Stream>,
    config: &Config,
    tunnel: &str,
    metrics: &AgentMetrics,
) -> Result<(), ConnectError> {
    let counter = metrics.streams();
    counter.start();
    let mut stream = dial(config, tunnel).await?;
    // Either side may close at any time, and both notice it.
    let copied = pump(Source::default(), &mut local, &mut stream).await;
    counter.end(copied.result.is_err(), copied.a_to_b, copied.b_to_a);
    Ok(())
}

/// Dials, and retries network failures for a while. An engine that restarts or an agent that
/// reconnects must not break the connection of a program.
async fn dial(config: &Config, tunnel: &str) -> Result<Stream, ConnectError> {
    let started = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        match client::dial(config, tunnel).await {
            Err(error) if error.is_transient() && started.elapsed() < RETRY_FOR => {
                tokio::time::sleep(backoff.next_wait(client::backoff::random())).await;
            }
            dialled => return dialled,
        }
    }
}

/// Pause after a failed accept, so that a lack of file descriptors causes no busy loop.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for retries: it covers the restart of an engine. Programs time out about as late.
const RETRY_FOR: Duration = Duration::from_secs(10);
