//! Ports that a new process takes over, so that a tunnel keeps its port when the engine is replaced.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Weak;

use serde::{Deserialize, Serialize};

use super::{BoundListeners, PortOwner, State, TcpPorts};
use crate::listen::socket::adopt;
use crate::live::Identity;

/// A port and its owner, for another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PortRecord {
    number: u16,
    project: String,
    subject: Subject,
    /// Name of the tunnel.
    tunnel: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    User(String),
    Client(String),
}

/// Listeners of an earlier process that wait for their tunnel.
#[derive(Debug)]
pub(super) struct InheritedPort {
    owner: PortOwner,
    listeners: Vec<std::net::TcpListener>,
}

impl TcpPorts {
    /// The open ports with copies of their sockets.
    pub(crate) fn export(&self) -> Vec<(PortRecord, Vec<OwnedFd>)> {
        let ports: Vec<_> = self.state.lock().open.values().cloned().collect();
        let exported = ports.into_iter().map(|port| {
            let listeners = port.listeners.lock();
            let open = listeners.iter().filter_map(Weak::upgrade);
            let copies = open.filter_map(|listener| listener.as_fd().try_clone_to_owned().ok());
            let copies = copies.collect();
            drop(listeners);
            (PortRecord::of(port.number, &port.owner), copies)
        });
        exported.collect()
    }

    /// Keeps the port of an earlier process for its tunnel.
    pub(crate) fn inherit(&self, record: PortRecord, sockets: Vec<OwnedFd>) {
        let number = record.number;
        let Some(owner) = record.owner() else { return };
        let listeners: Vec<_> = sockets.into_iter().map(Into::into).collect();
        if listeners.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if owner.1.is_some() {
            state.memory.store(&owner, number, None, self.clock.now());
        }
        let port = InheritedPort { owner, listeners };
        state.inherited.insert(number, port);
    }

    /// Closes the ports whose tunnels have not returned.
    pub(crate) fn forget_inherited(&self) {
        let inherited = std::mem::take(&mut self.state.lock().inherited);
        drop(inherited);
    }

    /// The listeners of an earlier process for a tunnel, if it was the owner. With a reserved port,
    /// the identity is the owner.
    pub(super) fn take_inherited(
        &self,
        state: &mut State,
        number: u16,
        is_owner: impl Fn(&PortOwner) -> bool,
    ) -> Option<BoundListeners> {
        let is_owned = state
            .inherited
            .get(&number)
            .is_some_and(|port| is_owner(&port.owner));
        if !is_owned {
            return None;
        }
        let port = state.inherited.remove(&number)?;
        let listeners = adopt(port.listeners, self.workers).ok()?;
        self.pending_ports.lock().insert(number);
        Some(BoundListeners {
            number,
            listeners,
            pending_ports: std::sync::Arc::clone(&self.pending_ports),
        })
    }
}

impl PortRecord {
    fn of(number: u16, owner: &PortOwner) -> Self {
        let (identity, tunnel) = owner;
        Self {
            number,
            project: identity.project.to_string(),
            subject: match &identity.subject {
                credentials::Identity::User(id) => Subject::User(id.clone()),
                credentials::Identity::Client(id) => Subject::Client(id.clone()),
            },
            tunnel: tunnel.as_ref().map(|name| name.as_str().to_owned()),
        }
    }

    /// `None` if the name of the tunnel is not valid.
    fn owner(self) -> Option<PortOwner> {
        let subject = match self.subject {
            Subject::User(id) => credentials::Identity::User(id),
            Subject::Client(id) => credentials::Identity::Client(id),
        };
        let tunnel = self.tunnel.map(|name| name.parse()).transpose().ok()?;
        Some((Identity::new(&self.project, &subject), tunnel))
    }
}
