//! Conversion of changes into the current items of the link.

use std::collections::BTreeSet;
use std::str::FromStr;

use api::link::Item;
use jiff::Timestamp;
use store::changes::{Change, Kind};
use store::{Conn, directory};
use types::id::{CredentialId, ProjectId, UserId, WebttyServerId, WorkspaceId};

use super::cluster::Cluster;
use super::items;

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
    cluster: &Cluster,
    changes: &[Change],
    now: Timestamp,
) -> Result<Option<Vec<Item>>, store::Error> {
    let Some(about) = ChangedIds::of(conn, cluster, changes).await? else {
        return Ok(None);
    };
    let served = &cluster.directory;
    let ids: Vec<_> = about.projects.iter().copied().collect();
    let projects = served.projects(conn, &ids).await?;
    let were = served.ever_served(conn, &ids).await?;
    let ports = directory::ports(conn, &cluster.domain, &ids).await?;
    let ids: Vec<_> = about.people.iter().copied().collect();
    let people = served.people(conn, &ids).await?;
    let parts = served.parts(conn, &ids).await?;
    let ids: Vec<_> = about.credentials.iter().copied().collect();
    let mut credentials = served.credentials(conn, &ids, now).await?;
    credentials.retain(|row| cluster.knows(row));
    let ids: Vec<_> = about.webtty_servers.iter().copied().collect();
    let webtty_servers = served.webtty_servers(conn, &ids).await?;
    let ended = directory::ended(conn, about.ended).await?;

    let there: BTreeSet<_> = credentials.iter().map(|row| row.id).collect();
    let gone = about.credentials.difference(&there);
    let mut news: Vec<Item> = gone
        .map(|id| Item::CredentialGone { id: id.to_string() })
        .collect();
    let there: BTreeSet<_> = webtty_servers.iter().map(|row| row.id).collect();
    let gone = about.webtty_servers.difference(&there);
    news.extend(gone.map(|id| Item::WebttyServerGone { id: id.to_string() }));
    news.extend(ended.into_iter().map(items::ended));
    let there: BTreeSet<_> = people.iter().map(|row| row.id).collect();
    let gone = about.people.difference(&there);
    news.extend(gone.map(|id| Item::PersonGone { id: id.to_string() }));
    let there: BTreeSet<_> = projects.iter().map(|row| row.id).collect();
    let gone = were.into_iter().filter(|id| !there.contains(id));
    news.extend(gone.map(|id| Item::ProjectGone { id: id.to_string() }));
    news.extend(items::people(people, &parts));
    news.extend(credentials.into_iter().filter_map(items::credential));
    news.extend(items::projects(cluster, projects, &ports));
    news.extend(webtty_servers.into_iter().map(items::webtty_server));
    Ok(Some(news))
}

impl ChangedIds {
    async fn of(
        conn: &mut Conn,
        cluster: &Cluster,
        changes: &[Change],
    ) -> Result<Option<Self>, store::Error> {
        let mut about = Self::default();
        let mut workspaces: Vec<WorkspaceId> = Vec::new();
        let mut joined: Vec<WorkspaceId> = Vec::new();
        for change in changes {
            match change.kind {
                Kind::Keys => {}
                Kind::Project => about.projects.extend(id::<ProjectId>(change)),
                Kind::Workspace => workspaces.extend(id::<WorkspaceId>(change)),
                Kind::Members => joined.extend(id::<WorkspaceId>(change)),
                Kind::Person => about.people.extend(id::<UserId>(change)),
                Kind::Credential => about.credentials.extend(id::<CredentialId>(change)),
                Kind::WebttyServer => about.webtty_servers.extend(id::<WebttyServerId>(change)),
                Kind::Ended => about.ended.push(change.key.clone()),
            }
        }
        let changed: Vec<_> = about.projects.iter().copied().collect();
        for workspace in joined {
            // If the workspace has another project there, its members already have their items.
            if !cluster
                .directory
                .serves_other(conn, workspace, &changed)
                .await?
            {
                about
                    .people
                    .extend(directory::members(conn, workspace, MOST).await?);
            }
            if about.is_too_much() {
                return Ok(None);
            }
        }
        if !workspaces.is_empty() {
            let projects = cluster.directory.projects_of(conn, &workspaces, MOST);
            about.projects.extend(projects.await?);
        }
        let people: Vec<_> = about.people.iter().copied().collect();
        if !people.is_empty() {
            let own = directory::credentials_of(conn, &people, MOST).await?;
            about.credentials.extend(own);
        }
        Ok((!about.is_too_much()).then_some(about))
    }

    fn is_too_much(&self) -> bool {
        let Self {
            projects,
            people,
            credentials,
            webtty_servers,
            ended,
        } = self;
        let most = usize::try_from(MOST).unwrap_or(usize::MAX);
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
pub(super) const MOST: u32 = 2_000;
