//! Projects, capacity, addresses and servers, and their visibility.

use std::collections::BTreeSet;

use store::members::{self, Role};
use store::projects::{self, List, ProjectSelection, Sort};
use store::webtty_servers::{self, WebttyServer};
use store::{Conflict, Order, Paging, addresses, capacity, workspaces};
use types::id::ProjectId;

use crate::database::{Database, both, commit};
use crate::world::{Person, at, id, new_project};

fn everything(workspaces: &[types::id::WorkspaceId]) -> List<'_> {
    List {
        workspaces,
        selection: ProjectSelection::All,
        search: None,
        sort: Sort::Id,
        order: Order::Asc,
        paging: Paging::DEFAULT,
    }
}

fn ids(projects: &[projects::Project]) -> Vec<ProjectId> {
    projects.iter().map(|project| project.id).collect()
}

both! {
    a_project_is_seen_by_the_active_members_of_its_workspace,
    a_list_is_limited_to_its_workspaces_and_boundary,
    changes_of_a_project_are_read_back,
    capacity_is_never_oversold,
    ports_are_reserved_once_and_the_lowest_free_is_found,
    a_server_record_has_a_unique_name_and_enrols_once,
    a_suspended_project_is_unavailable_until_it_is_resumed,
}

async fn a_project_is_seen_by_the_active_members_of_its_workspace(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let seen = projects::of_user_by_id(&mut tx, ann.user, ann.project)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((seen.project.id, seen.role), (ann.project, Role::Owner));
    let endpoint = seen.project.endpoint.clone();
    let resolved = projects::of_user_by_endpoint(&mut tx, ann.user, &endpoint)
        .await
        .unwrap();
    assert_eq!(resolved, Some(seen.clone()));
    assert_eq!(seen.project.settings, serde_json::json!({}));

    // CP-5: another user's project looks like a missing one.
    assert_eq!(
        projects::of_user_by_endpoint(&mut tx, bob.user, &endpoint)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        projects::of_user_by_id(&mut tx, bob.user, ann.project)
            .await
            .unwrap(),
        None
    );

    members::insert(&mut tx, ann.workspace, bob.user, Role::Viewer, None, at(0))
        .await
        .unwrap();
    assert!(
        projects::of_user_by_id(&mut tx, bob.user, ann.project)
            .await
            .unwrap()
            .is_some()
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
        projects::of_user_by_id(&mut tx, bob.user, ann.project)
            .await
            .unwrap(),
        None
    );
    workspaces::set_status(&mut tx, ann.workspace, workspaces::Status::Suspended, at(1))
        .await
        .unwrap();
    let found = projects::of_user_by_id(&mut tx, ann.user, ann.project);
    assert_eq!(
        found.await.unwrap().unwrap().workspace_status,
        workspaces::Status::Suspended,
        "members still see the events"
    );
    assert!(
        projects::by_endpoint(&mut tx, &endpoint)
            .await
            .unwrap()
            .is_some()
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_list_is_limited_to_its_workspaces_and_boundary(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    let mut own = vec![ann.project];
    for name in ["Zebra_1", "alpha", "Ärger"] {
        let new = new_project(id!(ProjectId), ann, name);
        projects::insert(&mut tx, &new).await.unwrap();
        own.push(new.id);
    }
    let tenant = [ann.workspace];
    let all = projects::list(&mut tx, everything(&tenant)).await.unwrap();
    assert_eq!((all.total, ids(&all.items)), (4, own.clone()));
    let none = projects::list(&mut tx, everything(&[])).await.unwrap();
    assert_eq!(none.total, 0);

    let foreign = [own[1], bob.project];
    let both = [ann.workspace, bob.workspace];
    let only = |projects, workspaces| List {
        selection: ProjectSelection::Only {
            projects,
            workspaces,
        },
        ..everything(&tenant)
    };
    let reached = projects::list(&mut tx, only(&foreign, &[])).await.unwrap();
    assert_eq!(
        (reached.total, ids(&reached.items)),
        (1, vec![own[1]]),
        "never another tenant's"
    );
    let reached = projects::list(&mut tx, only(&[], &both)).await.unwrap();
    assert_eq!(reached.total, 4);
    assert_eq!(
        projects::list(&mut tx, only(&[], &[])).await.unwrap().total,
        0
    );

    for (search, found) in [("ZEBRA_", 1), ("ärg", 1), ("ALPH", 1), ("_", 1), ("%", 0)] {
        let list = List {
            search: Some(search),
            ..everything(&tenant)
        };
        assert_eq!(
            projects::list(&mut tx, list).await.unwrap().total,
            found,
            "{search}"
        );
    }
    // Sorted by bytes, in both databases.
    let list = List {
        sort: Sort::Name,
        order: Order::Desc,
        ..everything(&tenant)
    };
    let sorted = projects::list(&mut tx, list).await.unwrap().items;
    let names: Vec<_> = sorted.iter().map(|project| project.name.as_str()).collect();
    assert_eq!(names, ["Ärger", "ann", "alpha", "Zebra_1"]);

    for sort in [
        Sort::Id,
        Sort::Name,
        Sort::Endpoint,
        Sort::Status,
        Sort::Plan,
        Sort::Deployment,
    ] {
        let mut seen = BTreeSet::new();
        for page in 1..=3 {
            let list = List {
                sort,
                paging: Paging::new(page, 2).unwrap(),
                ..everything(&tenant)
            };
            seen.extend(ids(&projects::list(&mut tx, list).await.unwrap().items));
        }
        assert_eq!(
            seen,
            own.iter().copied().collect(),
            "pages by {sort:?} do not overlap"
        );
    }
    let places = projects::locations(&mut tx, &tenant, 100).await.unwrap();
    assert_eq!(places.len(), 4);
    assert_eq!(
        projects::count_of_workspace(&mut tx, ann.workspace)
            .await
            .unwrap(),
        4
    );
    let paging = Paging::DEFAULT;
    let everybodys = projects::list_all(&mut tx, None, Sort::Name, Order::Asc, paging)
        .await
        .unwrap();
    assert_eq!(everybodys.total, 5);
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn changes_of_a_project_are_read_back(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let project = ann.project;
    let mut tx = database.begin().await;
    assert!(
        projects::rename(&mut tx, project, "Neu", at(1))
            .await
            .unwrap()
    );
    let tenant = [ann.workspace];
    let list = List {
        search: Some("NEU"),
        ..everything(&tenant)
    };
    assert_eq!(projects::list(&mut tx, list).await.unwrap().total, 1);
    assert!(
        projects::set_status(&mut tx, project, projects::Status::Error, at(2))
            .await
            .unwrap()
    );

    let (empty, some) = (
        serde_json::json!({}),
        serde_json::json!({"publishedTcpEnabled": false}),
    );
    assert!(
        projects::set_settings(&mut tx, project, &empty, &some, at(3))
            .await
            .unwrap()
    );
    assert!(
        !projects::set_settings(&mut tx, project, &empty, &empty, at(4))
            .await
            .unwrap(),
        "a lost update"
    );

    assert!(
        !projects::transfer(&mut tx, project, bob.workspace, ann.workspace, at(5))
            .await
            .unwrap()
    );
    assert!(
        projects::transfer(&mut tx, project, ann.workspace, bob.workspace, at(5))
            .await
            .unwrap()
    );
    assert_eq!(
        projects::of_user_by_id(&mut tx, ann.user, project)
            .await
            .unwrap(),
        None
    );
    let seen = projects::of_user_by_id(&mut tx, bob.user, project)
        .await
        .unwrap()
        .unwrap()
        .project;
    assert_eq!(
        (seen.name.as_str(), seen.status, seen.settings),
        ("Neu", projects::Status::Error, some)
    );

    assert!(projects::delete(&mut tx, project, at(6)).await.unwrap());
    assert!(!projects::delete(&mut tx, project, at(6)).await.unwrap());
    assert_eq!(projects::by_id(&mut tx, project).await.unwrap(), None);
    tx.commit().await.unwrap();

    let mut tx = database.begin().await;
    let new = projects::NewProject {
        endpoint: seen.endpoint,
        ..new_project(id!(ProjectId), ann, "again")
    };
    let refused = projects::insert(&mut tx, &new).await.unwrap_err();
    assert_eq!(
        refused.conflict(),
        Some(Conflict::EndpointTaken),
        "not given out twice"
    );
    drop(tx);
    let mut tx = database.begin().await;
    let nowhere = Person {
        workspace: id!(WorkspaceId),
        ..ann
    };
    let new = new_project(id!(ProjectId), nowhere, "lost");
    let refused = projects::insert(&mut tx, &new).await.unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::Reference));
}

async fn capacity_is_never_oversold(database: Database) {
    let mut tx = database.begin().await;
    capacity::set(&mut tx, "other", "here", "pro", Some(3))
        .await
        .unwrap();
    capacity::set(&mut tx, "other", "here", "basic", None)
        .await
        .unwrap();
    assert!(
        !capacity::take(&mut tx, "other", "there", "pro")
            .await
            .unwrap()
    );
    assert!(
        capacity::take(&mut tx, "other", "here", "basic")
            .await
            .unwrap(),
        "no limit"
    );
    tx.commit().await.unwrap();

    let takers: Vec<_> = (0..12)
        .map(|_| {
            let store = database.store.clone();
            tokio::spawn(async move {
                let mut tx = store.begin().await.unwrap();
                let taken = capacity::take(&mut tx, "other", "here", "pro")
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
                usize::from(taken)
            })
        })
        .collect();
    let mut taken = 0;
    for taker in takers {
        taken += taker.await.unwrap();
    }
    assert_eq!(taken, 3);

    let mut tx = database.begin().await;
    capacity::set(&mut tx, "other", "here", "pro", Some(2))
        .await
        .unwrap();
    let all = capacity::all(&mut tx).await.unwrap();
    let pro = all.iter().find(|capacity| capacity.plan == "pro").unwrap();
    assert_eq!((pro.used, pro.total, pro.has_room()), (3, Some(2), false));
    for _ in 0..3 {
        assert!(
            capacity::release(&mut tx, "other", "here", "pro")
                .await
                .unwrap()
        );
    }
    assert!(
        !capacity::release(&mut tx, "other", "here", "pro")
            .await
            .unwrap()
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn ports_are_reserved_once_and_the_lowest_free_is_found(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let address = |project, port| addresses::Address {
        id: id!(AddressId),
        project_id: project,
        cluster_domain: "c".to_owned(),
        port,
        created_at: at(0),
    };
    let mut tx = database.begin().await;
    assert_eq!(
        addresses::lowest_free(&mut tx, "c", 10, 12).await.unwrap(),
        Some(10)
    );
    for port in [10, 12] {
        addresses::insert(&mut tx, &address(ann.project, port))
            .await
            .unwrap();
    }
    assert_eq!(
        addresses::lowest_free(&mut tx, "c", 10, 12).await.unwrap(),
        Some(11)
    );
    addresses::insert(&mut tx, &address(bob.project, 11))
        .await
        .unwrap();
    assert_eq!(
        addresses::lowest_free(&mut tx, "c", 10, 12).await.unwrap(),
        None
    );
    assert_eq!(
        addresses::lowest_free(&mut tx, "c", 10, 13).await.unwrap(),
        Some(13)
    );
    assert_eq!(
        addresses::lowest_free(&mut tx, "d", 10, 12).await.unwrap(),
        Some(10)
    );
    tx.commit().await.unwrap();

    let mut tx = database.begin().await;
    let refused = addresses::insert(&mut tx, &address(bob.project, 10))
        .await
        .unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::PortTaken));
    drop(tx);
    let mut tx = database.begin().await;
    let own = addresses::of_project(&mut tx, ann.project).await.unwrap();
    let release = async |tx: &mut store::Tx, project, id| {
        addresses::release(tx, project, id, at(10)).await.unwrap()
    };
    assert_eq!(release(&mut tx, bob.project, own[0].id).await, None);
    assert_eq!(release(&mut tx, ann.project, own[0].id).await, Some(10));
    assert_eq!(release(&mut tx, ann.project, own[0].id).await, None);
    let own = addresses::of_project(&mut tx, ann.project).await.unwrap();
    assert_eq!(own.len(), 1);

    // Only the former project can reserve a released port.
    let back = async |tx: &mut store::Tx, project| {
        addresses::take_back(tx, "c", project, 10, 12)
            .await
            .unwrap()
    };
    let free = addresses::lowest_free(&mut tx, "c", 10, 12).await.unwrap();
    assert_eq!(free, None);
    assert_eq!(back(&mut tx, bob.project).await, None);
    assert_eq!(back(&mut tx, ann.project).await, Some(10));
    let free = addresses::lowest_free(&mut tx, "c", 10, 12).await.unwrap();
    assert_eq!(free, Some(10));
    assert_eq!(
        addresses::release_all(&mut tx, bob.project, at(10))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        addresses::release_quarantined(&mut tx, "c", at(9))
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        addresses::release_quarantined(&mut tx, "c", at(10))
            .await
            .unwrap(),
        1
    );
    assert_eq!(release(&mut tx, ann.project, own[0].id).await, Some(12));
    assert_eq!(addresses::purge(&mut tx, at(9), 10).await.unwrap(), 0);
    assert_eq!(addresses::purge(&mut tx, at(10), 10).await.unwrap(), 1);
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_server_record_has_a_unique_name_and_enrols_once(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut server = WebttyServer {
        id: id!(WebttyServerId),
        project_id: ann.project,
        name: "Box".to_owned(),
        description: None,
        status: "pending_enrollment".to_owned(),
        recording_policy: "recorded".to_owned(),
        encryption_policy: "disabled".to_owned(),
        access_policy: "project_members".to_owned(),
        labels: serde_json::json!({"a": "b"}),
        enrolment: None,
        enrolled_at: None,
        created_by: ann.user,
        created_at: at(0),
        updated_at: at(0),
    };
    commit!(database, |tx| webtty_servers::insert(tx, &server)).unwrap();
    let mut tx = database.begin().await;
    let again = WebttyServer {
        id: id!(WebttyServerId),
        ..server.clone()
    };
    let refused = webtty_servers::insert(&mut tx, &again).await.unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::ServerNameTaken));
    drop(tx);
    let mut tx = database.begin().await;
    for (project, many) in [(ann.project, 1), (bob.project, 0)] {
        assert_eq!(webtty_servers::count(&mut tx, project).await.unwrap(), many);
    }
    let keys = serde_json::json!({"serverPublicKey": "k"});
    assert!(
        !webtty_servers::enrol(&mut tx, bob.project, server.id, &keys, at(1))
            .await
            .unwrap()
    );
    assert!(
        webtty_servers::enrol(&mut tx, ann.project, server.id, &keys, at(1))
            .await
            .unwrap()
    );
    assert!(
        !webtty_servers::enrol(&mut tx, ann.project, server.id, &keys, at(2))
            .await
            .unwrap()
    );
    "Other".clone_into(&mut server.name);
    "suspended".clone_into(&mut server.status);
    server.updated_at = at(3);
    assert!(webtty_servers::update(&mut tx, &server).await.unwrap());
    let stored = webtty_servers::by_id(&mut tx, ann.project, server.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.name.as_str(), stored.enrolment),
        ("Other", Some(keys))
    );
    assert_eq!(
        webtty_servers::by_id(&mut tx, bob.project, server.id)
            .await
            .unwrap(),
        None
    );
    let paging = Paging::DEFAULT;
    for (search, status, found) in [
        (Some("oth"), None, 1),
        (None, Some("active"), 0),
        (None, Some("suspended"), 1),
    ] {
        let list = webtty_servers::list(&mut tx, ann.project, search, status, paging)
            .await
            .unwrap();
        assert_eq!(list.total, found);
        assert_eq!(list.items.len() as u64, found);
    }
    assert!(
        !webtty_servers::delete(&mut tx, bob.project, server.id, at(4))
            .await
            .unwrap()
    );
    assert!(
        webtty_servers::delete(&mut tx, ann.project, server.id, at(4))
            .await
            .unwrap()
    );
}

async fn a_suspended_project_is_unavailable_until_it_is_resumed(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    let only = [ann.project];
    assert!(!projects::are_suspended(&mut tx, &only).await.unwrap());
    assert!(!projects::are_suspended(&mut tx, &[]).await.unwrap());
    assert!(
        projects::suspend(&mut tx, ann.project, at(1))
            .await
            .unwrap()
    );
    let again = projects::suspend(&mut tx, ann.project, at(2)).await;
    assert!(!again.unwrap(), "once");
    assert!(projects::are_suspended(&mut tx, &only).await.unwrap());
    let other = projects::Status::Active;
    let changed = projects::set_status(&mut tx, ann.project, other, at(2)).await;
    assert!(!changed.unwrap(), "only an operator ends a suspension");
    let found = projects::by_id(&mut tx, ann.project).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.status, projects::Status::Unavailable);
    assert_eq!(found.suspended_at, Some(at(1)));
    assert!(projects::resume(&mut tx, ann.project, at(3)).await.unwrap());
    assert!(!projects::resume(&mut tx, ann.project, at(3)).await.unwrap());
    let found = projects::by_id(&mut tx, ann.project).await;
    let found = found.unwrap().unwrap();
    assert_eq!(found.status, projects::Status::Active);
    assert_eq!(found.suspended_at, None);
    workspaces::set_status(&mut tx, ann.workspace, workspaces::Status::Suspended, at(4))
        .await
        .unwrap();
    assert!(projects::are_suspended(&mut tx, &only).await.unwrap());
}
