//! The keys of a tunnel: its name within its project, and its global host name.

use std::sync::Arc;

use types::tunnel::{Hostname, Protocol, TunnelName, TunnelProperties};

use super::LiveTunnel;

/// Name of a tunnel within its project.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NameKey {
    project: Arc<str>,
    name: TunnelName,
}

/// [`NameKey`] borrowed. The fields have the same hash, in the same order.
#[derive(Hash)]
pub(super) struct NameRef<'a> {
    pub(super) project: &'a str,
    pub(super) name: &'a str,
}

impl NameKey {
    pub(super) fn of<A>(tunnel: &LiveTunnel<A>) -> Option<Self> {
        let name = tunnel.view.properties.name.clone()?;
        Some(Self {
            project: Arc::clone(&tunnel.identity.project),
            name,
        })
    }
}

impl papaya::Equivalent<NameKey> for NameRef<'_> {
    fn equivalent(&self, key: &NameKey) -> bool {
        self.project == &*key.project && self.name == key.name.as_str()
    }
}

/// The host name by which visitors reach a tunnel. A private tunnel has none. A TCP tunnel is
/// reached by its port; the host name that is shown for it is the engine's.
pub(crate) fn routed_hostname(properties: &TunnelProperties) -> Option<&Hostname> {
    let published =
        properties.publish.unwrap_or(true) && properties.protocol != Some(Protocol::Tcp);
    properties.hostname.as_ref().filter(|_| published)
}

/// The port by which visitors reach a published TCP tunnel.
pub(super) fn routed_port(properties: &TunnelProperties) -> Option<u16> {
    let published = properties.publish.unwrap_or(true);
    properties
        .port
        .filter(|_| published && properties.protocol == Some(Protocol::Tcp))
}
