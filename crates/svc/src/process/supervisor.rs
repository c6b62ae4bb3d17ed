//! Notifies the supervisor of this process that it is ready, alive, or stopping.

#[cfg(feature = "server")]
use std::os::fd::{AsFd as _, OwnedFd};

use daemon::{shutdown::Shutdown, supervisor::Supervisor};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::process::environment;

/// Connects to the supervisor that the environment names. Without one, notifications do nothing.
pub(crate) fn connect() -> Result<Supervisor, Failure> {
    Supervisor::of_environment(environment::variables(), std::process::id()).map_err(|error| {
        Failure::from_error("cannot notify the supervisor in NOTIFY_SOCKET", error)
    })
}

/// Reports that the process is ready. From now on a task of the coordinating runtime sends
/// keep-alive messages, and finally reports the stop.
pub(crate) fn notify_ready(shutdown: &Shutdown) -> Result<(), Failure> {
    notify_ready_until(shutdown, CancellationToken::new())
}

/// The same until `replaced`: then another process is the main process.
pub(crate) fn notify_ready_until(
    shutdown: &Shutdown,
    replaced: CancellationToken,
) -> Result<(), Failure> {
    let supervisor = connect()?;
    supervisor.ready();
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let mut beats = supervisor.beat_interval().map(|every| {
            let mut beats = interval(every);
            beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
            beats
        });
        let mut stopping = false;
        loop {
            tokio::select! {
                // The drain of a replaced process starts at the same time.
                biased;
                () = replaced.cancelled() => return,
                () = shutdown.drain().cancelled(), if !stopping => {
                    supervisor.stopping();
                    stopping = true;
                }
                () = shutdown.hard().cancelled() => return,
                () = next_keepalive(beats.as_mut()) => supervisor.send_watchdog_beat(),
            }
        }
    });
    Ok(())
}

/// The next keep-alive tick. Never returns if none are required.
pub(crate) async fn next_keepalive(beats: Option<&mut tokio::time::Interval>) {
    match beats {
        Some(beats) => {
            beats.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Gives copies of listening sockets to the supervisor, so that they stay open in a restart. Those of
/// `removed` listeners are closed.
#[cfg(feature = "server")]
pub(crate) fn keep_listeners_open(
    listeners: &[(&'static str, OwnedFd)],
    removed: &[String],
) -> Result<(), Failure> {
    let supervisor = connect()?;
    for name in removed {
        supervisor.forget(name);
    }
    // One message for each listener: a supervisor queues few, and a lost one would lose connections.
    for of_one in listeners.chunk_by(|(one, _), (next, _)| one == next) {
        let sockets: Vec<_> = of_one.iter().map(|(_, socket)| socket.as_fd()).collect();
        if let Some((name, _)) = of_one.first() {
            supervisor.keep_open(name, &sockets);
        }
    }
    Ok(())
}
