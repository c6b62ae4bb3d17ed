//! Users, workspaces and projects at the start of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use store::members::{self, Role};
use store::projects::{self, NewProject};
use store::users::{self, NewUser};
use store::workspaces::{self, Type};
use store::{SecretHash, Tx};
use types::id::{ProjectId, UserId, WorkspaceId};

use crate::database::{Database, commit};

/// An id that is later than all earlier ones.
macro_rules! id {
    ($kind:ident) => {
        types::id::$kind::new($crate::world::next(), [7; 10])
    };
}
pub(crate) use id;

/// A counter for ids.
pub(crate) fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// A time, this many seconds after the start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let beginning = Timestamp::from_second(1_700_000_000).unwrap();
    beginning + SignedDuration::from_secs(seconds)
}

/// A unique hash.
pub(crate) fn hash(of: u8) -> SecretHash {
    SecretHash([of; 32])
}

/// A user with a workspace and a project in it.
#[derive(Clone, Copy)]
pub(crate) struct Person {
    pub(crate) user: UserId,
    pub(crate) workspace: WorkspaceId,
    pub(crate) project: ProjectId,
}

impl Person {
    pub(crate) async fn new(database: &Database, name: &str) -> Self {
        let person = Self {
            user: id!(UserId),
            workspace: id!(WorkspaceId),
            project: id!(ProjectId),
        };
        commit!(database, |tx| person.insert(tx, name));
        person
    }

    async fn insert(&self, tx: &mut Tx, name: &str) {
        users::insert(tx, &new_user(self.user, name)).await.unwrap();
        workspaces::insert(tx, self.workspace, Type::Personal, name, at(0))
            .await
            .unwrap();
        members::insert(tx, self.workspace, self.user, Role::Owner, None, at(0))
            .await
            .unwrap();
        projects::insert(tx, &new_project(self.project, *self, name))
            .await
            .unwrap();
    }
}

pub(crate) fn new_user(id: UserId, name: &str) -> NewUser {
    NewUser {
        id,
        email: format!("{name}@Example.com"),
        name: name.to_owned(),
        password_hash: None,
        role: users::Role::User,
        email_verified: false,
        now: at(0),
    }
}

pub(crate) fn new_project(id: ProjectId, person: Person, name: &str) -> NewProject {
    NewProject {
        id,
        workspace_id: person.workspace,
        endpoint: format!("{:08x}", next()),
        name: name.to_owned(),
        plan: "basic".to_owned(),
        provider: "other".to_owned(),
        region: Some("here".to_owned()),
        routing: "regional".to_owned(),
        deployment: "shared".to_owned(),
        created_by: person.user,
        now: at(0),
    }
}
