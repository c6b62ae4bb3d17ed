//! Conversion of changes into the current items of the link.

use std::collections::BTreeSet;
use std::str::FromStr;

use api::link::Item;
use jiff::Timestamp;
use store::changes::{Change, Kind};
use store::{Conn, directory};
use types::id::{CredentialId, ProjectId, UserId, WebttyServerId, WorkspaceId};

use super::cluster::Cluster;
use super::items::{self, Parts};
use crate::app::App;

/// Ids of changed objects, by kind.
#[derive(Debug, Default)]
struct ChangedIds {
    projects: BTreeSet<ProjectId>,
    people: BTreeSet<UserId>,
    credentials: BTreeSet<CredentialId>,
    webtty_servers: BTreeSet<WebttyServerId>,
    ended: Vec<String>,
}

/// The current items for these changes, without the keys. Removals come first, so that no user has
/// more access in between than before or after. `None` if there are so many changes that the whole
/// state has to be sent instead.
pub(super) async fn items(
    conn: &mut Conn,
    (app, cluster): (&App, &Cluster),
    changes: &[Change],
    now: Timestamp,
) -> Result<Option<Vec<Item>>, store::Error> {
    let Some(changed_ids) = ChangedIds::of(conn, cluster, changes).await? else {
        return Ok(None);
    };
    let served = &cluster.directory;
    let ids: Vec<_> = changed_ids.projects.iter().copied().collect();
    let projects = served.projects(conn, &ids).await?;
    let ever_served_ids = served.ever_served(conn, &ids).await?;
    // Nothing of projects of other clusters.
    let ids: Vec<_> = projects.iter().map(|project| project.id).collect();
    let parts_of_projects = Parts::of(conn, cluster, &ids).await?;
    let mut certificates = Vec::new();
    for id in items::with_certificates(cluster, &parts_of_projects.domains) {
        certificates.extend(directory::domain_certificates(conn, id).await?);
        if certificates.len() > MAX_CERTIFICATES {
            return Ok(None);
        }
    }
    let ids: Vec<_> = changed_ids.people.iter().copied().collect();
    let people = served.people(conn, &ids).await?;
    let parts = served.memberships(conn, &ids).await?;
    let ids: Vec<_> = changed_ids.credentials.iter().copied().collect();
    let mut credentials = served.credentials(conn, &ids, now).await?;
    credentials.retain(|row| cluster.accepts(row));
    let ids: Vec<_> = changed_ids.webtty_servers.iter().copied().collect();
    let webtty_servers = served.webtty_servers(conn, &ids).await?;
    let ended = directory::ended(conn, changed_ids.ended).await?;

    let existing: BTreeSet<_> = credentials.iter().map(|row| row.id).collect();
    let removed = changed_ids.credentials.difference(&existing);
    let mut result: Vec<Item> = removed
        .map(|id| Item::CredentialGone { id: id.to_string() })
        .collect();
    let existing: BTreeSet<_> = webtty_servers.iter().map(|row| row.id).collect();
    let removed = changed_ids.webtty_servers.difference(&existing);
    result.extend(removed.map(|id| Item::WebttyServerGone { id: id.to_string() }));
    result.extend(ended.into_iter().map(items::ended_object));
    let existing: BTreeSet<_> = people.iter().map(|row| row.id).collect();
    let removed = changed_ids.people.difference(&existing);
    result.extend(removed.map(|id| Item::PersonGone { id: id.to_string() }));
    let existing: BTreeSet<_> = projects.iter().map(|row| row.id).collect();
    let removed = ever_served_ids
        .into_iter()
        .filter(|id| !existing.contains(id));
    result.extend(removed.map(|id| Item::ProjectGone { id: id.to_string() }));
    result.extend(items::people(people, &parts));
    result.extend(credentials.into_iter().filter_map(items::credential));
    result.extend(items::projects(cluster, projects, &parts_of_projects));
    let certificates = certificates.into_iter();
    result.extend(certificates.filter_map(|row| items::certificate(app, row)));
    result.extend(webtty_servers.into_iter().map(items::webtty_server));
    Ok(Some(result))
}

impl ChangedIds {
    async fn of(
        conn: &mut Conn,
        cluster: &Cluster,
        changes: &[Change],
    ) -> Result<Option<Self>, store::Error> {
        let mut changed_ids = Self::default();
        let mut workspaces: Vec<WorkspaceId> = Vec::new();
        let mut joined: Vec<WorkspaceId> = Vec::new();
        for change in changes {
            match change.kind {
                Kind::Keys => {}
                Kind::Project => changed_ids.projects.extend(id::<ProjectId>(change)),
                Kind::Workspace => workspaces.extend(id::<WorkspaceId>(change)),
                Kind::Members => joined.extend(id::<WorkspaceId>(change)),
                Kind::Person => changed_ids.people.extend(id::<UserId>(change)),
                Kind::Credential => changed_ids.credentials.extend(id::<CredentialId>(change)),
                Kind::WebttyServer => changed_ids
                    .webtty_servers
                    .extend(id::<WebttyServerId>(change)),
                Kind::Ended => changed_ids.ended.push(change.key.clone()),
            }
        }
        let changed: Vec<_> = changed_ids.projects.iter().copied().collect();
        for workspace in joined {
            // If the cluster serves another project of the workspace, it already has these members.
            if !cluster
                .directory
                .serves_other(conn, workspace, &changed)
                .await?
            {
                changed_ids
                    .people
                    .extend(directory::members(conn, workspace, MAX_ITEMS).await?);
            }
            if changed_ids.exceeds_limit() {
                return Ok(None);
            }
        }
        if !workspaces.is_empty() {
            let projects = cluster.directory.projects_of(conn, &workspaces, MAX_ITEMS);
            changed_ids.projects.extend(projects.await?);
        }
        let people: Vec<_> = changed_ids.people.iter().copied().collect();
        if !people.is_empty() {
            let credentials_of_people = directory::credentials_of(conn, &people, MAX_ITEMS).await?;
            changed_ids.credentials.extend(credentials_of_people);
        }
        Ok((!changed_ids.exceeds_limit()).then_some(changed_ids))
    }

    fn exceeds_limit(&self) -> bool {
        let Self {
            projects,
            people,
            credentials,
            webtty_servers,
            ended,
        } = self;
        let most = usize::try_from(MAX_ITEMS).unwrap_or(usize::MAX);
        let named = projects.len() + people.len() + credentials.len() + webtty_servers.len();
        named + ended.len() >= most
    }
}

/// Parses the id in a change. An invalid id matches no object.
fn id<T: FromStr>(change: &Change) -> Option<T> {
    change.key.parse().ok()
}

/// Maximum number of objects in one step. For more, the whole state is sent, which is read in
/// pages.
pub(super) const MAX_ITEMS: u32 = 2_000;

/// Maximum number of certificates in one step, except for those of the last project: 20 MiB at most,
/// and usually 3.
const MAX_CERTIFICATES: usize = 500;
