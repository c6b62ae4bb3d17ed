//! Moves of an agent to another process of its engine (`move/1`): the earlier channel serves visitors
//! while a new one opens, so that the tunnels are never offline.

use std::future::pending;

use tokio::sync::oneshot;

use super::session::Session;
use crate::ConnectError;

/// The end of [`Session::run`].
pub(crate) enum SessionExit {
    /// The channel was closed on request (`Ok`) or lost.
    Ended(Result<(), ConnectError>),
    /// The engine asks the agent to open a channel to this process. The session still serves its
    /// streams.
    Moves(Box<Session>, String),
}

/// A move of the agent to another process of the engine.
pub(crate) struct Move {
    pub(crate) process: String,
    /// Notifies the earlier channel.
    pub(crate) arrived: oneshot::Sender<()>,
}

/// Waits until the tunnels are online on the other channel. Returns false if they will not be. Cancel
/// safe.
pub(super) async fn wait_for_arrival(arrival: &mut Option<oneshot::Receiver<()>>) -> bool {
    match arrival {
        Some(arrival) => arrival.await.is_ok(),
        None => pending().await,
    }
}
