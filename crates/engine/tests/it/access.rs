//! Tokens, keys, and the decision about a visitor.

mod decisions;
mod keys;
mod permits;

use std::sync::Arc;

use engine::access::{Tenancy, TunnelPolicy};
use engine::directory::Project;
use engine::live::{ClientHandle, Identity, LiveLimits, LiveTunnel, TunnelRegistry};
use serde_json::Value;
use types::client::Client;
use types::tunnel::TunnelProperties;

use crate::support::manual_clock;

fn community() -> Tenancy {
    Tenancy::Community(Arc::new(Project::community()))
}

/// An online tunnel with the requested guards.
fn tunnel(asked: Value) -> Arc<LiveTunnel<()>> {
    let live = TunnelRegistry::new(LiveLimits::default(), manual_clock());
    let project = Arc::new(Project::community());
    let mut client = Client::online(live.new_client_id());
    client.project_id = Some(Project::COMMUNITY.to_owned());
    let client_id = live.add_client(client, &project).unwrap().id;
    let identity = Identity::new(
        Project::COMMUNITY,
        &credentials::Identity::User("ann".to_owned()),
    );
    let properties: TunnelProperties = serde_json::from_value::<TunnelProperties>(asked)
        .unwrap()
        .resolve()
        .unwrap();
    let policy = TunnelPolicy::compile(&properties);
    let owner = ClientHandle {
        identity,
        project,
        client_id,
        agent: Arc::new(()),
    };
    live.open_tunnel(owner, properties, policy).unwrap().tunnel
}
