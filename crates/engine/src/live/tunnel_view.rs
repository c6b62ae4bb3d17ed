//! The API object of a tunnel in lists and events.

use jiff::Timestamp;
use types::client::Client;
use types::id::TunnelId;
use types::tunnel::{Tunnel, TunnelProperties};

use super::ClientHandle;

/// The object for lists and events; the owner's fields come from its client.
pub(super) fn tunnel_resource<A>(
    id: TunnelId,
    owner: &ClientHandle<A>,
    client: &Client,
    properties: TunnelProperties,
    now: Timestamp,
) -> Tunnel {
    let mut view = Tunnel::online(id, owner.client_id, properties);
    view.creation_date = Some(now);
    view.project_id = Some(owner.identity.project.to_string());
    view.user_id.clone_from(&client.user_id);
    view.workspace_id.clone_from(&client.workspace_id);
    view.cluster_id.clone_from(&client.cluster_id);
    view.plan.clone_from(&client.plan);
    view.provider.clone_from(&client.provider);
    view.region.clone_from(&client.region);
    view.host = authority(&view.properties);
    view
}

/// Restores the keys of a tunnel after a change.
pub(super) fn restore_keys(view: &mut Tunnel, old: &Tunnel) {
    view.id = old.id;
    view.client_id = old.client_id;
    view.project_id.clone_from(&old.project_id);
    view.properties.name.clone_from(&old.properties.name);
    view.properties
        .hostname
        .clone_from(&old.properties.hostname);
    view.properties.publish = old.properties.publish;
    view.properties.protocol = old.properties.protocol;
}

/// Address of a published tunnel: `host`, or `host:port` if the port is not that of https.
fn authority(properties: &TunnelProperties) -> Option<String> {
    let hostname = properties.hostname.as_ref()?;
    Some(match properties.port {
        None | Some(443) => hostname.to_string(),
        Some(port) => format!("{hostname}:{port}"),
    })
}
