//! Names of objects in lists for people, which would otherwise show ids.
//!
//! A list without names is still useful, so a name that cannot be read is never an error. Output for
//! programs has ids.

use std::{collections::HashMap, time::Duration};

use api::control::{
    credentials::{self, CredentialList},
    projects::{self, ProjectList},
    webtty_servers::{self, WebttyServerList},
    workspaces::{LIST_MEMBERS, MemberList},
};
use client::HostPort;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    connection::Connection,
    failure::Failure,
    id_prefix::{Candidate, Candidates},
    output,
    platform::{Session, SessionFlags},
};

/// Names by the ids of their objects.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    /// The name of the object with this id, or else the id.
    pub(crate) fn of(&self, id: &str) -> String {
        self.0.get(id).map_or(id, String::as_str).to_owned()
    }

    /// Adds the tunnels of a list or an event of the Engine API, if they have names.
    pub(crate) fn add_tunnels(&mut self, tunnels: &[Value]) {
        let text = |tunnel: &Value, key: &str| tunnel.get(key)?.as_str().map(str::to_owned);
        let named = |tunnel: &Value| Some((text(tunnel, "id")?, text(tunnel, "name")?));
        self.0.extend(tunnels.iter().filter_map(named));
    }

    /// The people and registered servers that objects of this engine belong to: those of the
    /// context's platform, if the engine is the context's. Empty on a pipe.
    pub(crate) async fn of_engine(connection: &Connection) -> Self {
        let mut names = Self::default();
        if !output::is_terminal() {
            return names;
        }
        let Some(session) = platform_of(connection) else {
            return names;
        };
        let read = async {
            let context = session.context.as_ref();
            if let Some(workspace) = context.and_then(|context| context.workspace_id.as_deref()) {
                names.add_members(&session, workspace).await;
            }
            if let Some(project) = context.and_then(|context| context.project.as_ref()) {
                names.add_servers(&session, &project.id).await;
            }
        };
        // The engine may be reachable while the platform is not.
        drop(timeout(READ_TIMEOUT, read).await);
        names
    }

    /// Adds the email addresses of the members of a workspace.
    pub(crate) async fn add_members(&mut self, session: &Session, workspace_id: &str) {
        let of_page = |list: MemberList| {
            let members = list.members.into_iter();
            members
                .map(|member| Candidate::new(member.id, member.email))
                .collect()
        };
        let ids = [workspace_id];
        self.add(session.candidates(LIST_MEMBERS, &ids, of_page).await);
    }

    /// Adds the names of the caller's credentials.
    pub(crate) async fn add_credentials(&mut self, session: &Session) {
        let of_page = |list: CredentialList| {
            let credentials = list.credentials.into_iter();
            credentials
                .map(|credential| Candidate::new(credential.id, credential.name))
                .collect()
        };
        let credentials = session.candidates(credentials::LIST, &[], of_page);
        self.add(credentials.await);
    }

    /// Adds the names of the caller's projects.
    pub(crate) async fn add_projects(&mut self, session: &Session) {
        let of_page = |list: ProjectList| {
            let projects = list.projects.into_iter();
            projects
                .map(|project| Candidate::new(project.id, project.name))
                .collect()
        };
        self.add(session.candidates(projects::LIST, &[], of_page).await);
    }

    /// Adds one name.
    pub(crate) fn insert(&mut self, id: &str, name: &str) {
        self.0.insert(id.to_owned(), name.to_owned());
    }

    async fn add_servers(&mut self, session: &Session, project_id: &str) {
        let of_page = |list: WebttyServerList| {
            let servers = list.servers.into_iter();
            servers
                .map(|server| Candidate::new(server.id, server.name))
                .collect()
        };
        let ids = [project_id];
        let servers = session.candidates(webtty_servers::LIST, &ids, of_page);
        self.add(servers.await);
    }

    fn add(&mut self, named: Result<Candidates, Failure>) {
        let named = named.unwrap_or_default().all.into_iter();
        self.0.extend(
            named
                .filter(|candidate| !candidate.name.is_empty())
                .map(|candidate| (candidate.id, candidate.name)),
        );
    }
}

/// The platform of the context, if engine and token are the context's own. The token of another
/// platform must not be sent there.
fn platform_of(connection: &Connection) -> Option<Session> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let context = connection.read_context().ok()??;
    let kept = context.engine.as_deref()?.parse::<HostPort>().ok()?;
    let engine = match given(&connection.engine) {
        Some(engine) => engine.parse().ok()?,
        None => kept.clone(),
    };
    if engine != kept || given(&connection.token).is_some() {
        return None;
    }
    let flags = SessionFlags {
        proxy: connection.proxy.clone(),
        context: connection.context.clone(),
        config: connection.config.clone(),
        ..SessionFlags::default()
    };
    flags.open().ok()
}

/// Time limit for names of the platform. A list without names is better than a later one.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
