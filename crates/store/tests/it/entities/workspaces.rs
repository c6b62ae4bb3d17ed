//! Workspaces, their members, invitations into them.

use store::invitations::{self, NewInvitation};
use store::members::{self, Role};
use store::{Conflict, Order, Paging, projects, workspaces};

use crate::database::{Database, both, commit};
use crate::world::{Person, at, hash, id, new_project};

both! {
    a_deleted_workspace_has_no_projects_in_any_order,
    of_many_that_accept_an_invitation_one_does,
    an_invitation_is_accepted_revoked_or_over,
    a_workspace_is_seen_by_its_active_members,
    the_last_owner_cannot_be_removed,
    a_role_of_a_group_is_changed_by_groups_until_a_person_changes_it,
    a_workspace_is_renamed_suspended_and_deleted_when_empty,
}

fn invitation(person: Person, secret: u8) -> NewInvitation {
    NewInvitation {
        id: id!(InvitationId),
        workspace_id: person.workspace,
        email: "new@example.com".to_owned(),
        role: Role::Member,
        hash: hash(secret),
        invited_by: person.user,
        expires_at: at(100),
        now: at(0),
    }
}

async fn of_many_that_accept_an_invitation_one_does(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let invited = invitation(ann, 9);
    commit!(database, |tx| invitations::insert(tx, &invited)).unwrap();
    let other = database.open_again().await.unwrap();
    let tries = (0..8).map(|n| {
        let store = if n % 2 == 0 {
            database.store.clone()
        } else {
            other.clone()
        };
        tokio::spawn(async move {
            let mut tx = store.begin().await.unwrap();
            let got = invitations::accept(&mut tx, hash(9), ann.user, at(1))
                .await
                .unwrap();
            tx.commit().await.unwrap();
            usize::from(got.is_some())
        })
    });
    let mut accepted = 0;
    for attempt in tries.collect::<Vec<_>>() {
        accepted += attempt.await.unwrap();
    }
    assert_eq!(accepted, 1);
}

async fn an_invitation_is_accepted_revoked_or_over(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let [open, revoked] = [invitation(ann, 1), invitation(ann, 2)];
    for new in [&open, &revoked] {
        invitations::insert(&mut tx, new).await.unwrap();
    }
    assert!(
        !invitations::revoke(&mut tx, bob.workspace, revoked.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        invitations::revoke(&mut tx, ann.workspace, revoked.id, at(1))
            .await
            .unwrap()
    );
    assert_eq!(
        invitations::accept(&mut tx, hash(2), bob.user, at(2))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        invitations::accept(&mut tx, hash(1), bob.user, at(100))
            .await
            .unwrap(),
        None
    );
    assert!(
        invitations::by_open_link(&mut tx, hash(1), at(2))
            .await
            .unwrap()
            .is_some()
    );
    let accepted = invitations::accept(&mut tx, hash(1), bob.user, at(2))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (accepted.accepted_by, accepted.accepted_at),
        (Some(bob.user), Some(at(2)))
    );
    assert_eq!(
        invitations::by_open_link(&mut tx, hash(1), at(2))
            .await
            .unwrap(),
        None
    );
    assert!(
        !invitations::revoke(&mut tx, ann.workspace, open.id, at(3))
            .await
            .unwrap()
    );
    let listed = invitations::list(&mut tx, ann.workspace, Paging::new(2, 1).unwrap())
        .await
        .unwrap();
    assert_eq!(
        (listed.total, listed.items[0].id),
        (2, open.id),
        "newest first"
    );
}

async fn a_workspace_is_seen_by_its_active_members(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    members::insert(
        &mut tx,
        ann.workspace,
        bob.user,
        Role::Viewer,
        Some(at(1)),
        at(2),
    )
    .await
    .unwrap();
    let seen = workspaces::of_user(&mut tx, bob.user).await.unwrap();
    let seen: Vec<_> = seen
        .iter()
        .map(|seen| (seen.id, seen.member_role))
        .collect();
    assert_eq!(
        seen,
        [(ann.workspace, Role::Viewer), (bob.workspace, Role::Owner)]
    );
    assert_eq!(
        workspaces::of_user_by_id(&mut tx, ann.user, bob.workspace)
            .await
            .unwrap(),
        None
    );

    members::set_status(
        &mut tx,
        ann.workspace,
        bob.user,
        members::Status::Suspended,
        at(9),
    )
    .await
    .unwrap();
    assert_eq!(
        workspaces::of_user(&mut tx, bob.user).await.unwrap().len(),
        1
    );
    assert_eq!(
        workspaces::of_user_in_any_status(&mut tx, bob.user)
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        workspaces::of_user_by_id(&mut tx, bob.user, ann.workspace)
            .await
            .unwrap(),
        None
    );

    let paging = Paging::DEFAULT;
    let found = members::list(
        &mut tx,
        ann.workspace,
        Some("BOB"),
        members::Sort::Name,
        Order::Asc,
        paging,
    );
    assert_eq!(found.await.unwrap().items[0].id, bob.user);
    for sort in [members::Sort::Id, members::Sort::Email, members::Sort::Role] {
        let all = members::list(&mut tx, ann.workspace, None, sort, Order::Desc, paging)
            .await
            .unwrap();
        assert_eq!(all.total, 2);
    }
    let twice = members::insert(&mut tx, ann.workspace, bob.user, Role::Admin, None, at(3)).await;
    assert_eq!(twice.unwrap_err().conflict(), Some(Conflict::AlreadyMember));
}

async fn a_role_of_a_group_is_changed_by_groups_until_a_person_changes_it(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (workspace, user) = (ann.workspace, bob.user);
    let mut tx = database.begin().await;
    members::insert_by_group(&mut tx, workspace, user, Role::Viewer, at(0))
        .await
        .unwrap();
    let given = members::by_group(&mut tx, user).await.unwrap();
    assert_eq!(given.len(), 1, "the own workspace is not of a group");
    assert_eq!(
        (given[0].workspace_id, given[0].role),
        (workspace, Role::Viewer)
    );
    let changed = members::set_role_by_group(&mut tx, workspace, user, Role::Admin, at(1)).await;
    assert!(changed.unwrap());
    let by_person = members::set_role(&mut tx, workspace, user, Role::Member, at(2)).await;
    assert!(by_person.unwrap());
    let changed = members::set_role_by_group(&mut tx, workspace, user, Role::Viewer, at(3)).await;
    assert!(!changed.unwrap());
    let removed = members::delete_by_group(&mut tx, workspace, user, at(3)).await;
    assert!(!removed.unwrap());
    assert_eq!(members::by_group(&mut tx, user).await.unwrap(), []);
    let member = members::by_user(&mut tx, workspace, user).await.unwrap();
    assert_eq!(member.unwrap().role, Role::Member);
    assert!(
        members::delete(&mut tx, workspace, user, at(4))
            .await
            .unwrap()
    );
    members::insert_by_group(&mut tx, workspace, user, Role::Viewer, at(5))
        .await
        .unwrap();
    // Otherwise the next group would add an active member.
    let suspended = members::Status::Suspended;
    let is_set = members::set_status(&mut tx, workspace, user, suspended, at(6)).await;
    assert!(is_set.unwrap());
    let removed = members::delete_by_group(&mut tx, workspace, user, at(6)).await;
    assert!(!removed.unwrap());
    let active = members::Status::Active;
    let is_set = members::set_status(&mut tx, workspace, user, active, at(6)).await;
    assert!(is_set.unwrap());
    let removed = members::delete_by_group(&mut tx, workspace, user, at(6)).await;
    assert!(removed.unwrap());
    assert_eq!(
        members::by_user(&mut tx, workspace, user).await.unwrap(),
        None
    );
}

async fn the_last_owner_cannot_be_removed(database: Database) {
    let (ann, bob, eve) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
        Person::new(&database, "eve").await,
    );
    let (workspace, owner) = (ann.workspace, ann.user);
    let mut tx = database.begin().await;
    members::insert(&mut tx, workspace, bob.user, Role::Admin, None, at(0))
        .await
        .unwrap();
    assert!(
        !members::delete(&mut tx, workspace, owner, at(9))
            .await
            .unwrap()
    );
    assert!(
        !members::set_role(&mut tx, workspace, owner, Role::Member, at(9))
            .await
            .unwrap()
    );
    assert!(
        !members::set_status(&mut tx, workspace, owner, members::Status::Suspended, at(9))
            .await
            .unwrap()
    );
    assert!(
        members::set_role(&mut tx, workspace, bob.user, Role::Owner, at(9))
            .await
            .unwrap()
    );
    assert_eq!(members::owners(&mut tx, workspace).await.unwrap(), 2);
    // However many other members there are.
    members::insert(&mut tx, workspace, eve.user, Role::Viewer, None, at(0))
        .await
        .unwrap();
    for (limit, expected) in [(9, &[owner, bob.user][..]), (1, &[owner])] {
        let found = members::first_owners(&mut tx, workspace, limit).await;
        let found: Vec<_> = found.unwrap().iter().map(|member| member.id).collect();
        assert_eq!(found, expected);
    }
    tx.commit().await.unwrap();

    // Both leave at the same time, and one of them has to stay.
    let leave = |user| {
        let store = database.store.clone();
        tokio::spawn(async move {
            let mut tx = store.begin().await.unwrap();
            let left = members::delete(&mut tx, workspace, user, at(9))
                .await
                .unwrap();
            tx.commit().await.unwrap();
            left
        })
    };
    let (first, second) = (leave(owner), leave(bob.user));
    assert!(first.await.unwrap() ^ second.await.unwrap());
    let mut read = database.store.read().await.unwrap();
    assert_eq!(members::owners(&mut read, workspace).await.unwrap(), 1);
}

async fn a_workspace_is_renamed_suspended_and_deleted_when_empty(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    assert!(
        workspaces::rename(&mut tx, ann.workspace, "Größe", at(1))
            .await
            .unwrap()
    );
    assert!(
        workspaces::set_billing(&mut tx, ann.workspace, Some("active"), true, at(2))
            .await
            .unwrap()
    );
    assert!(
        workspaces::set_status(&mut tx, ann.workspace, workspaces::Status::Suspended, at(3))
            .await
            .unwrap()
    );
    let workspace = workspaces::by_id(&mut tx, ann.workspace)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (workspace.name.as_str(), workspace.has_payment_method),
        ("Größe", true)
    );
    assert_eq!(workspace.subscription_status.as_deref(), Some("active"));
    let found = workspaces::list(
        &mut tx,
        Some("GRÖSSE"),
        workspaces::Sort::Name,
        Order::Asc,
        Paging::DEFAULT,
    );
    assert_eq!(found.await.unwrap().total, 0);
    let found = workspaces::list(
        &mut tx,
        Some("GRÖß"),
        workspaces::Sort::Id,
        Order::Asc,
        Paging::DEFAULT,
    );
    assert_eq!(found.await.unwrap().items, [workspace]);

    assert!(
        !workspaces::delete(&mut tx, ann.workspace, at(4))
            .await
            .unwrap(),
        "it has a project"
    );
    projects::delete(&mut tx, ann.project, at(4)).await.unwrap();
    assert!(
        workspaces::delete(&mut tx, ann.workspace, at(4))
            .await
            .unwrap()
    );
    assert!(
        workspaces::of_user(&mut tx, ann.user)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        workspaces::by_id(&mut tx, ann.workspace).await.unwrap(),
        None
    );
}

async fn a_deleted_workspace_has_no_projects_in_any_order(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut made = Vec::new();
    for round in 0..12 {
        let place = Person {
            workspace: id!(WorkspaceId),
            ..ann
        };
        commit!(database, |tx| workspaces::insert(
            tx,
            place.workspace,
            workspaces::Type::Team,
            "w",
            at(0)
        ))
        .unwrap();
        let new = new_project(id!(ProjectId), place, "p");
        let (store, moved) = (database.store.clone(), round % 3 == 0);
        let creation = tokio::spawn(async move {
            let mut tx = store.begin().await.unwrap();
            let done = if moved {
                let (from, to) = (bob.workspace, new.workspace_id);
                projects::transfer(&mut tx, bob.project, from, to, at(1)).await
            } else {
                projects::insert(&mut tx, &new).await.map(|()| true)
            };
            match done {
                Ok(true) => tx.commit().await.unwrap(),
                Ok(false) => {}
                Err(error) => assert_eq!(error.conflict(), Some(Conflict::Reference)),
            }
        });
        let store = database.store.clone();
        let deletion = tokio::spawn(async move {
            let mut tx = store.begin().await.unwrap();
            let deleted = workspaces::delete(&mut tx, place.workspace, at(1)).await;
            tx.commit().await.unwrap();
            deleted.unwrap()
        });
        creation.await.unwrap();
        let deleted = deletion.await.unwrap();
        let mut read = database.store.read().await.unwrap();
        let projects = projects::count_of_workspace(&mut read, place.workspace);
        made.push((deleted, projects.await.unwrap()));
    }
    assert!(
        made.iter()
            .all(|(deleted, projects)| !deleted || *projects == 0),
        "{made:?}"
    );
}
