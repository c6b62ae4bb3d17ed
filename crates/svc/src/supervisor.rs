//! Whoever supervises this process is told when it serves, that it is alive, and when it stops.

use daemon::{shutdown::Shutdown, supervisor::Supervisor};
use tokio::time::{MissedTickBehavior, interval};

use crate::{environment, failure::Failure};

/// The supervisor that the environment names, or nobody.
pub(crate) fn connect() -> Result<Supervisor, Failure> {
    Supervisor::of_environment(environment::variables(), std::process::id())
        .map_err(|error| Failure::of("the supervisor in NOTIFY_SOCKET cannot be told", error))
}

/// Says that the process serves. From now on it is told to be alive, by a task of the runtime that
/// coordinates it, until the stop that is said as well.
pub(crate) fn serving(shutdown: &Shutdown) -> Result<(), Failure> {
    let supervisor = connect()?;
    supervisor.ready();
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        let mut beats = supervisor.beat_every().map(|every| {
            let mut beats = interval(every);
            beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
            beats
        });
        let mut stopping = false;
        loop {
            tokio::select! {
                () = shutdown.drain().cancelled(), if !stopping => {
                    supervisor.stopping();
                    stopping = true;
                }
                () = shutdown.hard().cancelled() => return,
                () = next(beats.as_mut()) => supervisor.beat(),
            }
        }
    });
    Ok(())
}

/// The next beat; never, where none is wanted.
pub(crate) async fn next(beats: Option<&mut tokio::time::Interval>) {
    match beats {
        Some(beats) => {
            beats.tick().await;
        }
        None => std::future::pending().await,
    }
}
