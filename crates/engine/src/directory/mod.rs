//! State that a managed engine has received from its platform: projects, users, credentials, and
//! ended tokens and sessions.
//!
//! There is one writer, the link to the platform, which applies items ([`Directory::replace`],
//! [`Directory::apply`]). All other code reads without a lock, on the path of each request. Items
//! are compiled when they arrive. A boundary or a range that cannot be parsed refuses all requests
//! and is not parsed again.
//!
//! A community engine has no directory. Its one project is [`Project::community`].

mod authority;
mod credential;
mod person;
mod project;
#[cfg(test)]
mod tests;
mod webtty;

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use api::link::{Address, EndedToken, Item, Platform};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use types::permission::Permission;

pub use self::authority::{Authority, Chain, Validity};
pub use self::credential::{Credential, CredentialMatcher};
pub use self::person::Person;
pub use self::project::{GeoRule, Project, ProjectPolicy, ProjectState};
pub use self::webtty::{ServerAdmissionError, WebttyServer};
use crate::access::Digest;

/// State received from the platform. Shared by every worker.
#[derive(Debug, Default)]
pub struct Directory {
    platform: ArcSwapOption<Platform>,
    projects: papaya::HashMap<Arc<str>, Arc<Project>>,
    endpoints: papaya::HashMap<Arc<str>, Arc<Project>>,
    /// Reserved TCP ports, and their projects.
    ports: papaya::HashMap<u16, Arc<str>>,
    people: papaya::HashMap<Arc<str>, Arc<Person>>,
    credentials: papaya::HashMap<Arc<str>, Arc<Credential>>,
    /// Personal access tokens by the hash of their text.
    tokens: papaya::HashMap<Digest, Arc<Credential>>,
    /// Client certificates by the hash of the certificate. Several users can register the same one:
    /// registering requires no private key, so a user must not be able to block another one.
    certificates: papaya::HashMap<Digest, Arc<[Arc<Credential>]>>,
    /// Credentials that accept every certificate of an authority.
    authorities: ArcSwap<Vec<Arc<Credential>>>,
    /// Registered servers of terminals.
    webtty_servers: papaya::HashMap<Arc<str>, Arc<WebttyServer>>,
    /// Tokens and sessions that were ended, kept until they would have expired.
    ended: papaya::HashMap<Arc<str>, i64>,
    /// Sessions that ended on this engine and that the platform may not have received yet: a
    /// snapshot must not restore them.
    ended_here: papaya::HashMap<Arc<str>, i64>,
    /// Held while items are applied, so that there is only one writer.
    writing: Mutex<()>,
}

impl Directory {
    /// Applies a complete snapshot. Objects that are not in it are removed.
    pub fn replace(&self, platform: Platform, items: Vec<Item>) {
        let _writing = self.writing.lock();
        let mut snapshot_ids = SnapshotIds::default();
        for item in &items {
            snapshot_ids.note(item);
        }
        for item in items {
            self.put(item);
        }
        // Stored after all items: from here on, an object that is missing does not exist.
        self.platform.store(Some(Arc::new(platform)));
        for id in missing(&self.projects, &snapshot_ids.projects) {
            self.put(Item::ProjectGone { id });
        }
        for id in missing(&self.people, &snapshot_ids.people) {
            self.put(Item::PersonGone { id });
        }
        for id in missing(&self.credentials, &snapshot_ids.credentials) {
            self.put(Item::CredentialGone { id });
        }
        for id in missing(&self.webtty_servers, &snapshot_ids.webtty_servers) {
            self.put(Item::WebttyServerGone { id });
        }
        for id in missing(&self.ended, &snapshot_ids.ended) {
            self.ended.pin().remove(id.as_str());
        }
    }

    /// Applies changes in their order.
    pub fn apply(&self, items: Vec<Item>) {
        let _writing = self.writing.lock();
        for item in items {
            self.put(item);
        }
    }

    /// Drops ended tokens and sessions that would have expired at `now` (Unix seconds).
    pub fn forget_ended(&self, now: i64) {
        self.ended.pin().retain(|_, until| *until > now);
        self.ended_here.pin().retain(|_, until| *until > now);
    }

    /// Settings of the whole cluster; `None` before the first snapshot.
    pub fn platform(&self) -> Option<Arc<Platform>> {
        self.platform.load_full()
    }

    /// The project with this id.
    pub fn project(&self, id: &str) -> Option<Arc<Project>> {
        self.projects.pin().get(id).map(Arc::clone)
    }

    /// The project with this endpoint, in lower case.
    pub fn project_at(&self, endpoint: &str) -> Option<Arc<Project>> {
        self.endpoints.pin().get(endpoint).map(Arc::clone)
    }

    /// All projects, unordered.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.projects.pin().values().map(Arc::clone).collect()
    }

    /// Returns true if a TCP port is reserved for any project.
    pub fn is_reserved(&self, port: u16) -> bool {
        self.ports.pin().contains_key(&port)
    }

    /// The user with this id.
    pub fn person(&self, user_id: &str) -> Option<Arc<Person>> {
        self.people.pin().get(user_id).map(Arc::clone)
    }

    /// The credential with this id.
    pub fn credential(&self, id: &str) -> Option<Arc<Credential>> {
        self.credentials.pin().get(id).map(Arc::clone)
    }

    /// The personal access token with this hash.
    pub fn token(&self, digest: &Digest) -> Option<Arc<Credential>> {
        self.tokens.pin().get(digest).map(Arc::clone)
    }

    /// The credentials for exactly this client certificate, by the hash of its DER form: one for
    /// each user who registered it.
    pub fn certificates(&self, digest: &Digest) -> Arc<[Arc<Credential>]> {
        let known = self.certificates.pin().get(digest).map(Arc::clone);
        known.unwrap_or_default()
    }

    /// The credentials that accept every certificate of an authority.
    pub fn authorities(&self) -> Arc<Vec<Arc<Credential>>> {
        self.authorities.load_full()
    }

    /// The registered terminal server with this id, if it belongs to this project.
    pub fn webtty_server(&self, project: &str, id: &str) -> Option<Arc<WebttyServer>> {
        let servers = self.webtty_servers.pin();
        let server = servers.get(id)?;
        (*server.project_id == *project).then(|| Arc::clone(server))
    }

    pub(crate) fn project_of_webtty_server(&self, id: &str) -> Option<Arc<str>> {
        let servers = self.webtty_servers.pin();
        servers.get(id).map(|server| Arc::clone(&server.project_id))
    }

    /// Returns true if a token (by its `jti`) or a session was ended before its expiry.
    pub fn is_ended(&self, id: &str) -> bool {
        self.ended.pin().contains_key(id) || self.ended_here.pin().contains_key(id)
    }

    /// Ends a token or session on this engine, until it would have expired (Unix seconds).
    pub(crate) fn end(&self, id: &str, until: i64) {
        self.ended_here.pin().insert(id.into(), until);
    }

    /// Returns true if this credential is still the current one of its id.
    pub fn is_current(&self, credential: &Arc<Credential>) -> bool {
        let known = self.credentials.pin();
        known
            .get(&*credential.id)
            .is_some_and(|known| Arc::ptr_eq(known, credential))
    }

    /// Returns true if connections that were opened with this credential may continue at `now`
    /// (Unix seconds). That is the case if it is still the current one of its id, or if the current
    /// one only differs in an expiry that is in the future. A rotated credential is valid until its
    /// overlap ends.
    pub fn is_still_valid(&self, credential: &Arc<Credential>, now: i64) -> bool {
        self.credential(&credential.id).is_some_and(|known| {
            Arc::ptr_eq(&known, credential)
                || known.differs_only_in_expiry(credential) && !known.is_expired(now)
        })
    }

    /// The name of a user, if there is one.
    pub fn name_of(&self, user_id: &str) -> Option<String> {
        let people = self.people.pin();
        let name = people.get(user_id).map(|person| person.name.as_ref());
        name.filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// Returns true if a user's role in the project allows this. The permissions of the user's
    /// credential are checked separately.
    pub fn permits(
        &self,
        user_id: Option<&str>,
        project: &Project,
        permission: Permission,
    ) -> bool {
        let state = project.state();
        let workspace = state.workspace_id.as_deref().unwrap_or_default();
        user_id.is_some_and(|user| {
            let people = self.people.pin();
            people
                .get(user)
                .is_some_and(|person| person.allows(workspace, permission))
        })
    }

    /// Number of projects, users and credentials.
    pub fn counts(&self) -> (usize, usize, usize) {
        (
            self.projects.len(),
            self.people.len(),
            self.credentials.len(),
        )
    }

    fn put(&self, item: Item) {
        match item {
            Item::Project(record) => self.put_project(&record),
            Item::ProjectGone { id } => {
                self.forget_webtty_servers(&id);
                if let Some(gone) = self.projects.pin().remove(id.as_str()) {
                    self.forget_ports(&gone.id, &gone.state().addresses);
                    gone.end();
                    self.forget_endpoint(gone);
                }
            }
            Item::Person(record) => {
                let person = Person::compile(record);
                self.people
                    .pin()
                    .insert(Arc::clone(&person.id), Arc::new(person));
            }
            Item::PersonGone { id } => {
                self.people.pin().remove(id.as_str());
            }
            Item::Credential(record) => {
                let known = self.credential(&record.id);
                if known.is_some_and(|known| known.is_compiled_from(&record)) {
                    return;
                }
                self.put_credential(&Arc::new(Credential::compile(*record)));
            }
            Item::CredentialGone { id } => self.forget_credential(&id),
            Item::WebttyServer(record) => self.put_webtty_server(&record),
            Item::WebttyServerGone { id } => {
                if let Some(gone) = self.webtty_servers.pin().remove(id.as_str()) {
                    gone.end();
                }
            }
            Item::Ended(EndedToken { id, until }) => {
                self.ended.pin().insert(id.into(), until);
            }
            // The keys go to the token verifier, certificates to the domains; engines do not receive the
            // keys of relays.
            Item::Keys(_) | Item::RelayKeys(_) | Item::DomainCertificate(_) | Item::Unknown => {}
        }
    }

    /// A known project is updated in place: tunnels refer to it and see the new state immediately.
    fn put_project(&self, record: &api::link::Project) {
        let projects = self.projects.pin();
        if let Some(known) = projects.get(record.id.as_str())
            && known.endpoint.as_deref() == Some(&*record.endpoint)
        {
            // A port that the project keeps must not be unassigned, not even for a moment.
            self.note_ports(&known.id, &record.addresses);
            let before = known.state().addresses.clone();
            known.update(ProjectState::compile(record));
            let given_back = before.iter().filter(|old| !record.addresses.contains(old));
            self.forget_ports(&known.id, given_back);
            return;
        }
        let project = Arc::new(Project::managed(record));
        self.note_ports(&project.id, &record.addresses);
        projects.insert(Arc::clone(&project.id), Arc::clone(&project));
        self.endpoints
            .pin()
            .insert(record.endpoint.as_str().into(), project);
    }

    fn put_webtty_server(&self, record: &api::link::WebttyServer) {
        let servers = self.webtty_servers.pin();
        let known = servers.get(record.id.as_str()).map(Arc::clone);
        let server = Arc::new(WebttyServer::compile(record, known.as_deref()));
        servers.insert(Arc::clone(&server.id), Arc::clone(&server));
        if let Some(known) = known
            && !known.sessions_continue_under(&server)
        {
            known.end();
        }
    }

    fn forget_webtty_servers(&self, project: &str) {
        self.webtty_servers.pin().retain(|_, server| {
            let stays = *server.project_id != *project;
            if !stays {
                server.end();
            }
            stays
        });
    }

    fn note_ports(&self, project: &Arc<str>, addresses: &[Address]) {
        let ports = self.ports.pin();
        for address in addresses {
            ports.insert(address.port, Arc::clone(project));
        }
    }

    fn forget_ports<'a>(
        &self,
        project: &Arc<str>,
        addresses: impl IntoIterator<Item = &'a Address>,
    ) {
        let ports = self.ports.pin();
        for address in addresses {
            // Only if it still belongs to this project: it may have been assigned to another one.
            if ports.get(&address.port) == Some(project) {
                ports.remove(&address.port);
            }
        }
    }

    fn forget_endpoint(&self, gone: &Arc<Project>) {
        let endpoints = self.endpoints.pin();
        // Same rule as for ports.
        if let Some(endpoint) = &gone.endpoint
            && endpoints
                .get(endpoint)
                .is_some_and(|known| Arc::ptr_eq(known, gone))
        {
            endpoints.remove(endpoint);
        }
    }

    /// The new state is added before the old one is removed, so that readers always find one.
    fn put_credential(&self, credential: &Arc<Credential>) {
        let credentials = self.credentials.pin();
        let old = credentials.insert(Arc::clone(&credential.id), Arc::clone(credential));
        self.index_credential(credential);
        if let Some(old) = old {
            self.forget_index(old);
        }
    }

    fn index_credential(&self, credential: &Arc<Credential>) {
        match &credential.proof {
            CredentialMatcher::Pat { digest, .. } => {
                self.tokens.pin().insert(*digest, Arc::clone(credential));
            }
            CredentialMatcher::Certificate { digest } => {
                let certificates = self.certificates.pin();
                let known = certificates.get(digest).map_or(&[][..], |known| known);
                let all = known.iter().chain([credential]).map(Arc::clone).collect();
                certificates.insert(*digest, all);
            }
            CredentialMatcher::Authority(_) => {
                let mut all = Vec::clone(&self.authorities.load());
                all.push(Arc::clone(credential));
                self.authorities.store(Arc::new(all));
            }
            CredentialMatcher::App { .. } | CredentialMatcher::Unverifiable => {}
        }
    }

    fn forget_credential(&self, id: &str) {
        if let Some(gone) = self.credentials.pin().remove(id) {
            self.forget_index(gone);
        }
    }

    fn forget_index(&self, gone: &Arc<Credential>) {
        // Only if the index still refers to it: another credential may have the hash by now.
        let is_it =
            |known: Option<&Arc<Credential>>| known.is_some_and(|known| Arc::ptr_eq(known, gone));
        match &gone.proof {
            CredentialMatcher::Pat { digest, .. } => {
                let tokens = self.tokens.pin();
                if is_it(tokens.get(digest)) {
                    tokens.remove(digest);
                }
            }
            CredentialMatcher::Certificate { digest } => {
                let certificates = self.certificates.pin();
                let known = certificates.get(digest).map_or(&[][..], |known| known);
                let others = known.iter().filter(|known| !Arc::ptr_eq(known, gone));
                let others: Arc<[_]> = others.map(Arc::clone).collect();
                if others.is_empty() {
                    certificates.remove(digest);
                } else {
                    certificates.insert(*digest, others);
                }
            }
            CredentialMatcher::Authority(_) => {
                let mut all = Vec::clone(&self.authorities.load());
                all.retain(|known| !Arc::ptr_eq(known, gone));
                self.authorities.store(Arc::new(all));
            }
            CredentialMatcher::App { .. } | CredentialMatcher::Unverifiable => {}
        }
    }
}

/// Ids in a snapshot.
#[derive(Default)]
struct SnapshotIds {
    projects: HashSet<String>,
    people: HashSet<String>,
    credentials: HashSet<String>,
    webtty_servers: HashSet<String>,
    ended: HashSet<String>,
}

impl SnapshotIds {
    fn note(&mut self, item: &Item) {
        match item {
            Item::Project(project) => self.projects.insert(project.id.clone()),
            Item::Person(person) => self.people.insert(person.id.clone()),
            Item::Credential(credential) => self.credentials.insert(credential.id.clone()),
            Item::WebttyServer(server) => self.webtty_servers.insert(server.id.clone()),
            Item::Ended(ended) => self.ended.insert(ended.id.clone()),
            _ => false,
        };
    }
}

fn missing<V>(known: &papaya::HashMap<Arc<str>, V>, kept: &HashSet<String>) -> Vec<String>
where
    Arc<str>: Hash + Eq,
{
    let known = known.pin();
    let gone = known.keys().filter(|id| !kept.contains(&***id));
    gone.map(ToString::to_string).collect()
}
