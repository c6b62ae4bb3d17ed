//! What a managed engine knows of its platform: projects, people, credentials, what was ended.
//!
//! One writer, the engine link, puts items in ([`Directory::replace`], [`Directory::apply`]);
//! everybody else reads without a lock, on the path of each request. Items are compiled when they
//! come: a boundary or a range that cannot be read refuses, and is not looked at again.
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

use api::link::{Address, Ended, Item, Platform};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use types::permission::Permission;

pub use self::authority::{Authority, Chain, Validity};
pub use self::credential::{Credential, Proof};
pub use self::person::Person;
pub use self::project::{GeoRule, Project, ProjectPolicy, ProjectState};
pub use self::webtty::{NotAdmitted, WebttyServer};
use crate::access::Digest;

/// What the platform told. Shared by every worker.
#[derive(Debug, Default)]
pub struct Directory {
    platform: ArcSwapOption<Platform>,
    projects: papaya::HashMap<Arc<str>, Arc<Project>>,
    endpoints: papaya::HashMap<Arc<str>, Arc<Project>>,
    /// Reserved TCP ports, and whose they are.
    ports: papaya::HashMap<u16, Arc<str>>,
    people: papaya::HashMap<Arc<str>, Arc<Person>>,
    credentials: papaya::HashMap<Arc<str>, Arc<Credential>>,
    /// Personal access tokens by the hash of their text.
    tokens: papaya::HashMap<Digest, Arc<Credential>>,
    /// Client certificates by the hash of the certificate. Several people can register one: no key
    /// is asked for, so nobody's place is taken.
    certificates: papaya::HashMap<Digest, Arc<[Arc<Credential>]>>,
    /// Credentials that accept every certificate of an authority.
    authorities: ArcSwap<Vec<Arc<Credential>>>,
    /// Registered servers of terminals.
    webtty_servers: papaya::HashMap<Arc<str>, Arc<WebttyServer>>,
    /// Tokens and sessions that were ended, until nothing can come of them anyway.
    ended: papaya::HashMap<Arc<str>, i64>,
    /// Sessions that ended here, and of which the platform may not know yet: no snapshot brings them
    /// back.
    ended_here: papaya::HashMap<Arc<str>, i64>,
    /// Held while items are put in: there is one writer, and this keeps it so.
    writing: Mutex<()>,
}

impl Directory {
    /// Puts a whole snapshot in force. What is not in it is no more.
    pub fn replace(&self, platform: Platform, items: Vec<Item>) {
        let _writing = self.writing.lock();
        let mut kept = SnapshotIds::default();
        for item in &items {
            kept.note(item);
        }
        for item in items {
            self.put(item);
        }
        // From here on, what is not known is not there: so not before.
        self.platform.store(Some(Arc::new(platform)));
        for id in missing(&self.projects, &kept.projects) {
            self.put(Item::ProjectGone { id });
        }
        for id in missing(&self.people, &kept.people) {
            self.put(Item::PersonGone { id });
        }
        for id in missing(&self.credentials, &kept.credentials) {
            self.put(Item::CredentialGone { id });
        }
        for id in missing(&self.webtty_servers, &kept.webtty_servers) {
            self.put(Item::WebttyServerGone { id });
        }
        for id in missing(&self.ended, &kept.ended) {
            self.ended.pin().remove(id.as_str());
        }
    }

    /// Puts changes in force, in their order.
    pub fn apply(&self, items: Vec<Item>) {
        let _writing = self.writing.lock();
        for item in items {
            self.put(item);
        }
    }

    /// Forgets what was ended and is past its time anyway, at `now` (Unix seconds).
    pub fn forget_ended(&self, now: i64) {
        self.ended.pin().retain(|_, until| *until > now);
        self.ended_here.pin().retain(|_, until| *until > now);
    }

    /// What holds for the whole cluster; `None` before the first snapshot.
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

    /// All projects, in no order.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.projects.pin().values().map(Arc::clone).collect()
    }

    /// Whether a TCP port is reserved for some project.
    pub fn is_reserved(&self, port: u16) -> bool {
        self.ports.pin().contains_key(&port)
    }

    /// The person with this user id.
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

    /// The credentials of exactly this client certificate, by the hash of its DER form: one of each
    /// person who registered it.
    pub fn certificates(&self, digest: &Digest) -> Arc<[Arc<Credential>]> {
        let known = self.certificates.pin().get(digest).map(Arc::clone);
        known.unwrap_or_default()
    }

    /// The credentials that accept every certificate of an authority.
    pub fn authorities(&self) -> Arc<Vec<Arc<Credential>>> {
        self.authorities.load_full()
    }

    /// The registered server of terminals with this id, where it is of this project.
    pub fn webtty_server(&self, project: &str, id: &str) -> Option<Arc<WebttyServer>> {
        let servers = self.webtty_servers.pin();
        let server = servers.get(id)?;
        (*server.project_id == *project).then(|| Arc::clone(server))
    }

    pub(crate) fn project_of_webtty_server(&self, id: &str) -> Option<Arc<str>> {
        let servers = self.webtty_servers.pin();
        servers.get(id).map(|server| Arc::clone(&server.project_id))
    }

    /// Whether a token (by its `jti`) or a session was ended before its time.
    pub fn is_ended(&self, id: &str) -> bool {
        self.ended.pin().contains_key(id) || self.ended_here.pin().contains_key(id)
    }

    /// Ends something here, until nothing can come of it anyway (Unix seconds).
    pub(crate) fn end(&self, id: &str, until: i64) {
        self.ended_here.pin().insert(id.into(), until);
    }

    /// Whether this credential is still what is known under its id.
    pub fn is_current(&self, credential: &Arc<Credential>) -> bool {
        let known = self.credentials.pin();
        known
            .get(&*credential.id)
            .is_some_and(|known| Arc::ptr_eq(known, credential))
    }

    /// Whether what was begun with this credential may go on at `now` (Unix seconds): it is still
    /// what is known under its id, or what is known differs in its end alone, which is to come. A
    /// credential that was rotated is good until its overlap ends.
    pub fn is_still_valid(&self, credential: &Arc<Credential>, now: i64) -> bool {
        self.credential(&credential.id).is_some_and(|known| {
            Arc::ptr_eq(&known, credential)
                || known.is_but_its_end(credential) && !known.is_expired(now)
        })
    }

    /// The name of a person, where there is one.
    pub fn name_of(&self, user_id: &str) -> Option<String> {
        let people = self.people.pin();
        let name = people.get(user_id).map(|person| person.name.as_ref());
        name.filter(|name| !name.is_empty()).map(str::to_owned)
    }

    /// Whether a person has a part in the project whose role allows this. What a credential of
    /// theirs allows is judged apart from it.
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

    /// How much is known: projects, people, credentials.
    pub fn counts(&self) -> (usize, usize, usize) {
        (
            self.projects.len(),
            self.people.len(),
            self.credentials.len(),
        )
    }

    fn put(&self, item: Item) {
        match item {
            Item::Project(told) => self.put_project(&told),
            Item::ProjectGone { id } => {
                self.forget_webtty_servers(&id);
                if let Some(gone) = self.projects.pin().remove(id.as_str()) {
                    self.forget_ports(&gone.id, &gone.state().addresses);
                    gone.end();
                    self.forget_endpoint(gone);
                }
            }
            Item::Person(told) => {
                let person = Person::compile(told);
                self.people
                    .pin()
                    .insert(Arc::clone(&person.id), Arc::new(person));
            }
            Item::PersonGone { id } => {
                self.people.pin().remove(id.as_str());
            }
            Item::Credential(told) => {
                let known = self.credential(&told.id);
                if known.is_some_and(|known| known.says(&told)) {
                    return;
                }
                self.put_credential(&Arc::new(Credential::compile(*told)));
            }
            Item::CredentialGone { id } => self.forget_credential(&id),
            Item::WebttyServer(told) => self.put_webtty_server(&told),
            Item::WebttyServerGone { id } => {
                if let Some(gone) = self.webtty_servers.pin().remove(id.as_str()) {
                    gone.end();
                }
            }
            Item::Ended(Ended { id, until }) => {
                self.ended.pin().insert(id.into(), until);
            }
            // The keys go to those who verify with them; those of relays are not told to engines.
            Item::Keys(_) | Item::RelayKeys(_) | Item::Unknown => {}
        }
    }

    /// A project that is known keeps its place: tunnels hold it, and see the new state at once.
    fn put_project(&self, told: &api::link::Project) {
        let projects = self.projects.pin();
        if let Some(known) = projects.get(told.id.as_str())
            && known.endpoint.as_deref() == Some(&*told.endpoint)
        {
            // A port that stays is never anybody's, not even for a moment.
            self.note_ports(&known.id, &told.addresses);
            let before = known.state().addresses.clone();
            known.update(ProjectState::compile(told));
            let given_back = before.iter().filter(|old| !told.addresses.contains(old));
            self.forget_ports(&known.id, given_back);
            return;
        }
        let project = Arc::new(Project::managed(told));
        self.note_ports(&project.id, &told.addresses);
        projects.insert(Arc::clone(&project.id), Arc::clone(&project));
        self.endpoints
            .pin()
            .insert(told.endpoint.as_str().into(), project);
    }

    fn put_webtty_server(&self, told: &api::link::WebttyServer) {
        let servers = self.webtty_servers.pin();
        let known = servers.get(told.id.as_str()).map(Arc::clone);
        let server = Arc::new(WebttyServer::compile(told, known.as_deref()));
        servers.insert(Arc::clone(&server.id), Arc::clone(&server));
        if let Some(known) = known
            && !known.goes_on_as(&server)
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
            // Only where it is still this project's: another one may have it by now.
            if ports.get(&address.port) == Some(project) {
                ports.remove(&address.port);
            }
        }
    }

    fn forget_endpoint(&self, gone: &Arc<Project>) {
        let endpoints = self.endpoints.pin();
        // As with ports.
        if let Some(endpoint) = &gone.endpoint
            && endpoints
                .get(endpoint)
                .is_some_and(|known| Arc::ptr_eq(known, gone))
        {
            endpoints.remove(endpoint);
        }
    }

    /// The new state is in force before the old one is not: nobody comes to a moment without both.
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
            Proof::Pat { digest, .. } => {
                self.tokens.pin().insert(*digest, Arc::clone(credential));
            }
            Proof::Certificate { digest } => {
                let certificates = self.certificates.pin();
                let known = certificates.get(digest).map_or(&[][..], |known| known);
                let all = known.iter().chain([credential]).map(Arc::clone).collect();
                certificates.insert(*digest, all);
            }
            Proof::Authority(_) => {
                let mut all = Vec::clone(&self.authorities.load());
                all.push(Arc::clone(credential));
                self.authorities.store(Arc::new(all));
            }
            Proof::App { .. } | Proof::Nothing => {}
        }
    }

    fn forget_credential(&self, id: &str) {
        if let Some(gone) = self.credentials.pin().remove(id) {
            self.forget_index(gone);
        }
    }

    fn forget_index(&self, gone: &Arc<Credential>) {
        // Only where the index still leads to it: another credential may have its hash by now.
        let is_it =
            |known: Option<&Arc<Credential>>| known.is_some_and(|known| Arc::ptr_eq(known, gone));
        match &gone.proof {
            Proof::Pat { digest, .. } => {
                let tokens = self.tokens.pin();
                if is_it(tokens.get(digest)) {
                    tokens.remove(digest);
                }
            }
            Proof::Certificate { digest } => {
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
            Proof::Authority(_) => {
                let mut all = Vec::clone(&self.authorities.load());
                all.retain(|known| !Arc::ptr_eq(known, gone));
                self.authorities.store(Arc::new(all));
            }
            Proof::App { .. } | Proof::Nothing => {}
        }
    }
}

/// Ids that a snapshot holds.
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
