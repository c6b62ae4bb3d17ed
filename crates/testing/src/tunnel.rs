//! A tunnel that is online.

use std::sync::Arc;

use client::tunnel::Online;
use client::{Agent, Destination, Properties};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::within;

/// A tunnel whose visitors are forwarded to a service. Dropping it closes it.
pub struct TestTunnel {
    online: Arc<Online>,
    agent: Agent,
    close: oneshot::Sender<()>,
    forwarding: JoinHandle<()>,
}

impl TestTunnel {
    /// Opens a tunnel and waits until it is online.
    pub async fn open(agent: Agent, properties: Properties, to: impl Into<Destination>) -> Self {
        let to = to.into();
        let mut tunnel = agent.open(properties);
        let online = within("tunnel", tunnel.online())
            .await
            .expect("the engine opens the tunnel");
        let (close, mut closing) = oneshot::channel();
        let forwarding = tokio::spawn(async move {
            tokio::select! {
                _closed = tunnel.forward(to) => {}
                // By request, or by dropping the sender.
                _asked = &mut closing => tunnel.close().await,
            }
        });
        Self {
            online,
            agent,
            close,
            forwarding,
        }
    }

    /// The name under which it is published.
    pub fn hostname(&self) -> &str {
        self.online
            .properties
            .hostname
            .as_deref()
            .expect("a published name")
    }

    /// The engine's information about the online tunnel.
    pub fn online(&self) -> &Online {
        &self.online
    }

    /// Its agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Closes it and waits for the engine's confirmation.
    pub async fn close(self) {
        self.close.send(()).expect("the tunnel is open");
        within("end of the tunnel", self.forwarding)
            .await
            .expect("the forwarding task ended");
    }
}
