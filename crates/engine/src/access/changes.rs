//! The visitors that a change of credentials or rules may affect.
//!
//! Only the visits that a change can affect are authorised again, not all of them. A
//! tenant with frequent changes does not slow down other tenants.

use std::collections::HashSet;
use std::sync::Arc;

use api::link::{EndedToken, Item};
use parking_lot::Mutex;

use super::decide::Proof;
use crate::directory::Directory;

/// The visitors that a change may affect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ChangeScope {
    /// Visitors of this project.
    Project(Arc<str>),
    /// Visitors with a proof of this user, and with a proof that names no user.
    User(Arc<str>),
    /// Visitors with a token or a session of this id, or with a token that came from such a
    /// session.
    Token(Arc<str>),
}

/// Changes that were not processed yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalidations {
    affects_all: bool,
    scopes: HashSet<ChangeScope>,
}

/// Queue of changes that were not processed yet.
#[derive(Debug, Default)]
pub(super) struct PendingInvalidations(Mutex<Invalidations>);

/// Limit of scopes that are processed together. Beyond it, a change affects all visitors.
const MAX_SCOPES: usize = 256;

impl Invalidations {
    /// A change that may affect every visitor.
    pub fn all_visitors() -> Self {
        Self {
            affects_all: true,
            scopes: HashSet::new(),
        }
    }

    /// The scopes of items that will be applied to `directory`. Call this first, because
    /// the directory then still has the owners of the items that will be removed.
    pub(crate) fn of(items: &[Item], directory: &Directory) -> Self {
        let mut invalidations = Self::default();
        for item in items {
            match item {
                Item::Project(project) => {
                    invalidations.add(ChangeScope::Project(project.id.as_str().into()));
                }
                Item::ProjectGone { id } => {
                    invalidations.add(ChangeScope::Project(id.as_str().into()));
                }
                Item::Person(person) => {
                    invalidations.add(ChangeScope::User(person.id.as_str().into()));
                }
                Item::PersonGone { id } => invalidations.add(ChangeScope::User(id.as_str().into())),
                Item::Credential(credential) => {
                    invalidations.add(ChangeScope::User(credential.user_id.as_str().into()));
                    invalidations.add_owner_of(&credential.id, directory);
                }
                Item::CredentialGone { id } => invalidations.add_owner_of(id, directory),
                Item::WebttyServer(server) => {
                    invalidations.add(ChangeScope::Project(server.project_id.as_str().into()));
                }
                Item::WebttyServerGone { id } => {
                    // An unknown server has no tunnel.
                    if let Some(project) = directory.project_of_webtty_server(id) {
                        invalidations.add(ChangeScope::Project(project));
                    }
                }
                Item::Ended(EndedToken { id, .. }) => {
                    invalidations.add(ChangeScope::Token(id.as_str().into()));
                }
                // It decides about no access.
                Item::DomainCertificate(_) => {}
                Item::Keys(_) | Item::RelayKeys(_) | Item::Unknown => {
                    invalidations.affects_all = true;
                }
            }
        }
        invalidations
    }

    /// Adds the visitors of a project.
    pub(crate) fn add_project(&mut self, id: Arc<str>) {
        self.add(ChangeScope::Project(id));
    }

    /// A change with a single scope.
    pub(crate) fn one(scope: ChangeScope) -> Self {
        let mut concerns = Self::default();
        concerns.add(scope);
        concerns
    }

    fn add_owner_of(&mut self, credential: &str, directory: &Directory) {
        // No visitor was admitted with an unknown credential.
        if let Some(known) = directory.credential(credential) {
            self.add(ChangeScope::User(Arc::clone(&known.user_id)));
        }
    }

    fn add(&mut self, scope: ChangeScope) {
        self.scopes.insert(scope);
        self.affects_all |= self.scopes.len() > MAX_SCOPES;
    }

    fn merge(&mut self, other: Self) {
        self.affects_all |= other.affects_all;
        for scope in other.scopes {
            if self.affects_all {
                self.scopes.clear();
                return;
            }
            self.add(scope);
        }
    }

    /// Returns true if a visitor of a project that was admitted with this proof may be affected.
    pub fn affects(&self, project: &str, proof: Option<&Proof>) -> bool {
        self.affects_all
            || self
                .scopes
                .iter()
                .any(|scope| scope.affects(project, proof))
    }
}

impl ChangeScope {
    fn affects(&self, project: &str, proof: Option<&Proof>) -> bool {
        match self {
            Self::Project(id) => **id == *project,
            Self::User(user) => proof.is_some_and(|proof| {
                let named = proof.user_id();
                named.is_none_or(|named| *named == **user)
            }),
            Self::Token(id) => proof.is_some_and(|proof| match proof {
                Proof::Token { token, .. } => {
                    let names = [&token.id, &token.credential_id];
                    names.into_iter().flatten().any(|name| **name == **id)
                }
                Proof::Session(session) => session.ends_with(id),
                Proof::Certificate { .. } => false,
            }),
        }
    }
}

impl PendingInvalidations {
    pub(super) fn add(&self, invalidations: Invalidations) {
        self.0.lock().merge(invalidations);
    }

    pub(super) fn take(&self) -> Invalidations {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(id: &str) -> Item {
        Item::ProjectGone { id: id.to_owned() }
    }

    #[test]
    fn a_change_of_a_project_affects_only_its_visitors() {
        let concerns = Invalidations::of(&[project("prj_1")], &Directory::default());
        assert!(concerns.affects("prj_1", None));
        assert!(!concerns.affects("prj_2", None));
    }

    #[test]
    fn a_change_of_a_user_affects_visitors_with_a_proof_of_the_user() {
        let session = |user: &str| {
            Proof::Session(Arc::new(crate::browser::Session {
                user_id: user.to_owned(),
                issued_at: 0,
                id: "one".to_owned(),
                platform_session: Some("ses_1".to_owned()),
                name: None,
                email: None,
                shared: Vec::new(),
            }))
        };
        let gone = Item::PersonGone {
            id: "usr_ann".to_owned(),
        };
        let concerns = Invalidations::of(&[gone], &Directory::default());
        assert!(concerns.affects("prj_1", Some(&session("usr_ann"))));
        assert!(!concerns.affects("prj_1", Some(&session("usr_eve"))));
        assert!(!concerns.affects("prj_1", None));
    }

    #[test]
    fn the_end_of_a_session_affects_its_visitors() {
        let session = Proof::Session(Arc::new(crate::browser::Session {
            user_id: "usr_ann".to_owned(),
            issued_at: 0,
            id: "one".to_owned(),
            platform_session: Some("ses_1".to_owned()),
            name: None,
            email: None,
            shared: Vec::new(),
        }));
        for (id, touches) in [
            ("edge:one", true),
            ("ses_1", true),
            ("one", false),
            ("edge:ses_1", false),
            ("edge:two", false),
            ("ses_2", false),
        ] {
            let ended = Item::Ended(EndedToken {
                id: id.to_owned(),
                until: 0,
            });
            let concerns = Invalidations::of(&[ended], &Directory::default());
            assert_eq!(concerns.affects("prj_1", Some(&session)), touches, "{id}");
        }
    }

    #[test]
    fn a_full_queue_of_changes_affects_all_visitors() {
        let waiting = PendingInvalidations::default();
        for number in 0..=MAX_SCOPES {
            let item = project(&format!("prj_{number}"));
            waiting.add(Invalidations::of(&[item], &Directory::default()));
        }
        let concerns = waiting.take();
        assert!(concerns.affects("prj_other", None));
        assert!(concerns.scopes.len() <= MAX_SCOPES + 1);
        assert_eq!(waiting.take(), Invalidations::default());
    }
}
