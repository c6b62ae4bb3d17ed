use std::pin::pin;

use credentials::{Keyring, Secret, TokenKind, VerifiedToken};
use futures_util::StreamExt;
use jiff::Timestamp;
use types::client::Client;
use types::filter::WatchParams;
use types::permission::Permission;

use super::*;
use crate::access::{Tenancy, Tokens};
use crate::api::lifetime::{CredentialGuard, RequiredAccess};
use crate::clock::ManualClock;
use crate::directory::Project;
use crate::live::{LiveLimits, TunnelRegistry, View};

/// A quiet stream sends a comment every 15 s, and an event in between does not delay it.
#[tokio::test(start_paused = true)]
async fn a_comment_keeps_the_connection_alive() {
    let clock = Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH));
    let live: Arc<TunnelRegistry<()>> =
        TunnelRegistry::new(LiveLimits::default(), Arc::<ManualClock>::clone(&clock));
    let tokens = Tokens::new(Keyring::new());
    let token = VerifiedToken {
        kind: TokenKind::Pat,
        identity: credentials::Identity::User("ann".to_owned()),
        user_id: None,
        client_id: None,
        limits: credentials::Limits::none(),
        issued_at: None,
        credential_id: None,
        id: None,
        root: types::root::Root::Token([0; 32]),
        digest: [0; 32],
    };
    let view = View {
        project: Project::COMMUNITY.into(),
        workspace: None,
        params: WatchParams::default(),
        token: Arc::new(token),
        webtty: false,
        compat: false,
    };
    let changes = tokens.changes();
    let project = Arc::new(Project::community());
    let right = RequiredAccess {
        tenancy: Tenancy::Community(Arc::clone(&project)),
        project,
        permission: Permission::TunnelsResourcesReadOnly,
        additional_permission: None,
    };
    let lifetime = CredentialGuard::new(
        Secret::new("text"),
        None,
        Arc::clone(&tokens),
        right,
        clock,
        changes,
    );
    let watch = Watch::new(None, live.subscribe(view).unwrap().events, lifetime);
    let mut lines = pin!(lines(None, watch));
    let mut next = async || lines.next().await.unwrap().unwrap();

    let started = Instant::now();
    assert_eq!(next().await, ": keep-alive\n\n");
    assert_eq!(started.elapsed(), KEEP_ALIVE);
    let mut client = Client::online(live.new_client_id());
    client.project_id = Some(Project::COMMUNITY.to_owned());
    live.add_client(client, &Project::community()).unwrap();
    assert!(next().await.starts_with(b"data: {"));
    assert_eq!(next().await, ": keep-alive\n\n");
    assert_eq!(started.elapsed(), 2 * KEEP_ALIVE);
}
