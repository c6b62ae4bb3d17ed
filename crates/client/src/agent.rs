//! The agent: it keeps one control channel to an engine and restores it.

mod actor;
mod announcement;
pub(crate) mod channel;
mod data_path;
mod exchange;
pub(crate) mod forward;
pub(crate) mod hello;
mod host;
mod inbound;
mod lanes;
mod moving;
mod pool;
mod session;
pub(crate) mod shared;
pub mod tap;
pub mod target;
pub mod tunnel;

use std::{num::NonZeroU32, ops::Deref, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{Config, ConnectError, Properties, Refusal, Stream, Tunnel, connect::Connector};

pub use pool::MAX_POOL;
use shared::{AgentState, Failures};

/// An agent of an engine. Clones are handles of the same agent.
///
/// The agent connects, and reconnects after every failure that a network can cause, without limit
/// and with jittered delays. A reconnect restores every open tunnel. The agent ends on its own only
/// when the engine refuses it ([`AgentStatus::Ended`]). When the last handle and the last tunnel
/// are dropped, it disconnects from the engine; [`Agent::close`] waits for that and for the open
/// streams.
#[derive(Clone, Debug)]
pub struct Agent {
    owner: Arc<Owner>,
}

/// The state of an agent. There are always these four states, but their fields may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentStatus {
    /// The agent is opening a channel.
    Connecting,
    /// The agent has a channel.
    #[non_exhaustive]
    Online {
        /// The engine's id of the agent.
        client_id: String,
    },
    /// The agent lost its channel, or could not open one, and waits for the next attempt.
    #[non_exhaustive]
    Disconnected {
        /// Reason of the failure.
        error: Arc<str>,
        /// Delay before the next attempt.
        retry_in: Duration,
    },
    /// The agent has ended: `None` after its owner closed it, otherwise the refusal by the engine.
    Ended(Option<Refusal>),
}

impl Agent {
    /// Starts an agent on the current runtime and returns before it is connected. The agent retries
    /// without limit, even if the network or the engine's certificate is at fault;
    /// [`Agent::connect`] fails if the configuration is wrong.
    ///
    /// # Errors
    /// The trust or the address cannot be used. Nothing was sent in this case.
    ///
    /// # Panics
    /// Outside a tokio runtime that has IO and time.
    pub fn start(config: Config) -> Result<Self, ConnectError> {
        let connector = Connector::new(
            config.engine.clone(),
            &config.trust,
            &config.proxies,
            &[wire::handshake::ALPN_SVC],
        )?;
        let shared = Arc::new(AgentState::new(config, connector));
        tokio::spawn(actor::run(Arc::clone(&shared)));
        Ok(Self {
            owner: Arc::new(Owner(shared)),
        })
    }

    /// Starts an agent and waits until it has a channel. Network failures are retried, within
    /// [`Config::connect_timeout`] and [`Config::connect_attempts`].
    ///
    /// # Errors
    /// As [`Agent::start`]; or the first lasting error ([`ConnectError::is_lasting`]), such as
    /// [`ConnectError::Certificate`] and [`ConnectError::Refused`]; or
    /// [`ConnectError::ConnectTimeout`] or [`ConnectError::ConnectAttempts`], with the last failure
    /// as their source.
    ///
    /// # Panics
    /// As [`Agent::start`].
    ///
    /// # Cancellation
    /// Safe: dropping the future ends the agent.
    pub async fn connect(config: Config) -> Result<Self, ConnectError> {
        let (limit, attempts) = (config.connect_timeout, config.connect_attempts);
        let agent = Self::start(config)?;
        let online = agent.first_channel(attempts);
        match limit {
            None => online.await?,
            Some(limit) => match tokio::time::timeout(limit, online).await {
                Ok(opened) => opened?,
                Err(_elapsed) => {
                    let source = agent.owner.failures().borrow().last.clone().map(Box::new);
                    return Err(ConnectError::ConnectTimeout { limit, source });
                }
            },
        }
        Ok(agent)
    }

    async fn first_channel(&self, attempts: Option<NonZeroU32>) -> Result<(), ConnectError> {
        let mut failures = self.owner.failures();
        let online = self.online();
        tokio::pin!(online);
        loop {
            let Failures { count, last } = failures.borrow_and_update().clone();
            if let Some(error) = last {
                if error.is_lasting() {
                    return Err(error);
                }
                if attempts.is_some_and(|most| count >= most.get()) {
                    return Err(ConnectError::ConnectAttempts {
                        attempts: count,
                        source: Box::new(error),
                    });
                }
            }
            tokio::select! {
                biased;
                Ok(()) = failures.changed() => {}
                opened = &mut online => return opened.map(drop),
            }
        }
    }

    /// Receiver of the agent's state and its changes.
    pub fn status(&self) -> watch::Receiver<AgentStatus> {
        self.owner.status()
    }

    /// The error of the last attempt to open a channel that failed, with its type. The reason in
    /// [`AgentStatus::Disconnected`] is its text.
    pub fn last_failure(&self) -> Option<ConnectError> {
        self.owner.failures().borrow().last.clone()
    }

    /// Receiver of the round-trip time of the newest heartbeat. `None` without a channel, and at an
    /// engine that does not answer heartbeats.
    pub fn round_trip(&self) -> watch::Receiver<Option<Duration>> {
        self.owner.round_trip()
    }

    /// Requests a tunnel and returns immediately. [`Tunnel::online`] waits for the response.
    pub fn open(&self, properties: Properties) -> Tunnel {
        let (entry, streams) = self.owner.add(properties, None, None);
        Tunnel::new(Arc::clone(&self.owner), entry, streams)
    }

    /// The same, preferably with this host name. If the engine refuses the name, because another
    /// identity has it for example, it chooses another one. `properties` must not contain a host
    /// name, which would be required.
    pub fn open_at(&self, properties: Properties, hostname: impl Into<String>) -> Tunnel {
        let (entry, streams) = self.owner.add(properties, None, Some(hostname.into()));
        Tunnel::new(Arc::clone(&self.owner), entry, streams)
    }

    /// The same for properties that expire, such as a signed label: `renew` updates the properties
    /// before each request to the engine, including those after a reconnect. It must not block.
    pub fn open_renewed(
        &self,
        properties: Properties,
        renew: impl Fn(&mut Properties) + Send + Sync + 'static,
    ) -> Tunnel {
        let (entry, streams) = self.owner.add(properties, Some(Arc::new(renew)), None);
        Tunnel::new(Arc::clone(&self.owner), entry, streams)
    }

    /// Opens a stream to a private tunnel of the same engine, with the agent's own token.
    ///
    /// # Errors
    /// As [`dial`](crate::dial()).
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn dial(&self, name_or_id: &str) -> Result<Stream, ConnectError> {
        crate::dial(self.owner.config(), name_or_id).await
    }

    /// Disconnects from the engine. Tunnels close immediately. Accepted streams may finish until
    /// `deadline` has passed, and are then closed. Streams that the program accepted
    /// ([`Tunnel::accept`]) are waited for as well, but the program has to close them.
    ///
    /// Returns true if every stream finished in time.
    ///
    /// # Cancellation
    /// Dropping the future leaves an agent that accepts no further streams, and does not close the
    /// running ones.
    pub async fn close(&self, deadline: Duration) -> bool {
        self.owner.stop.cancel();
        let mut status = self.status();
        let drained = tokio::time::timeout(deadline, async {
            // An error means that the actor has already ended.
            drop(
                status
                    .wait_for(|status| matches!(status, AgentStatus::Ended(_)))
                    .await,
            );
            self.owner.streams.wait().await;
        });
        let drained = drained.await.is_ok();
        self.owner.kill.cancel();
        drained
    }

    /// Waits until the agent has a channel.
    ///
    /// # Errors
    /// The agent was refused or closed. Network failures are not errors: the wait continues.
    ///
    /// # Cancellation
    /// Safe: nothing is lost, and the agent continues.
    pub async fn online(&self) -> Result<String, ConnectError> {
        let mut status = self.status();
        let seen = status
            .wait_for(|status| matches!(status, AgentStatus::Online { .. } | AgentStatus::Ended(_)))
            .await
            .map_err(|_gone| ConnectError::Closed)?;
        match &*seen {
            AgentStatus::Online { client_id } => Ok(client_id.clone()),
            AgentStatus::Ended(Some(refusal)) => Err(refusal.clone().into()),
            _ => Err(ConnectError::Closed),
        }
    }
}

/// Shared by handles and tunnels: the agent ends when the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Owner(Arc<AgentState>);

impl Deref for Owner {
    type Target = AgentState;

    fn deref(&self) -> &AgentState {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}
