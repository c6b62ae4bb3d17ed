//! Rename, transfer, delete.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use store::members::Role;
use store::{Paging, audit, billing};
use tokio::task::JoinSet;

use super::{names, order, path, place, preview, project};
use crate::support::{Person, TestControl, both};

both! {
    a_project_is_renamed,
    a_project_is_deleted_once,
    a_transfer_needs_both_workspaces,
    a_paid_project_moves_only_where_it_is_paid_for,
    a_moved_project_is_paid_for_every_day,
}

async fn a_project_is_renamed(control: TestControl) {
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    let token = &person.token;
    let rename = async |body: Value| {
        control
            .send(Method::PATCH, &path(&project), Some(token), Some(&body))
            .await
    };
    let renamed = rename(json!({"name": "Better"})).await.expect(200);
    assert_eq!(
        (&renamed["name"], &renamed["id"]),
        (&json!("Better"), &project["id"])
    );
    assert_eq!(
        control.get(&path(&project), token).await.expect(200),
        renamed
    );
    let found = control
        .get("/api/projects/tunnels?q=better", token)
        .await
        .expect(200);
    assert_eq!(found["total"], 1);
    for (body, field) in [
        (json!({"name": ""}), Some("name")),
        (json!({"name": "a\u{202e}b"}), Some("name")),
        (json!({"plan": "pro", "name": "x"}), Some("plan")),
        (json!({}), Some("name")),
    ] {
        assert_eq!(
            rename(body.clone()).await.refused(400).1.as_deref(),
            field,
            "{body}"
        );
    }
}

/// A deleted project is gone. Its capacity is free, but its endpoint and its key are not.
async fn a_project_is_deleted_once(control: TestControl) {
    let catalog =
        json!({"regions": [{"provider": "aws", "region": "eu", "capacity": {"basic": 1}}]});
    let control = Arc::new(control.configured(json!({"catalog": catalog})).await);
    let person = control.person("ada").await;
    let order = order(&preview(&control, &person, "basic").await);
    let project = place(&control, &person, &order).await.expect(201);
    assert_eq!(
        preview(&control, &person, "basic").await["available"],
        false
    );
    let mut deletions = JoinSet::new();
    for _ in 0..8 {
        let (control, path) = (Arc::clone(&control), path(&project));
        let token = person.token.clone();
        deletions.spawn(async move {
            control
                .send(Method::DELETE, &path, Some(&token), None)
                .await
        });
    }
    let mut statuses: Vec<_> = deletions
        .join_all()
        .await
        .iter()
        .map(|reply| reply.status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404, 404, 404, 404, 404, 404]);
    assert_eq!(
        control
            .get(&path(&project), &person.token)
            .await
            .refused(404)
            .0,
        "not_found"
    );
    // CP-4a: the key still refers to the deleted project, so nothing is created.
    assert_eq!(
        place(&control, &person, &order).await.refused(409).0,
        "conflict"
    );
    // The capacity is released once.
    super::project(&control, &person).await;
    assert_eq!(
        preview(&control, &person, "basic").await["available"],
        false
    );
}

/// A transfer needs the permission in both workspaces.
async fn a_transfer_needs_both_workspaces(control: TestControl) {
    let (person, other) = (control.person("ada").await, control.person("eve").await);
    let project = project(&control, &person).await;
    let token = &person.token;
    let transfer = async |to: &str| {
        control
            .post(
                &format!("{}/transfer", path(&project)),
                token,
                &json!({"workspaceId": to}),
            )
            .await
    };
    let target = other.workspace.to_string();
    assert_eq!(transfer(&target).await.refused(404).0, "not_found");
    assert_eq!(transfer("wks_nothing").await.refused(404).0, "not_found");
    assert_eq!(
        transfer(person.workspace.as_str()).await.refused(409).0,
        "conflict"
    );
    control.join(&person, other.workspace, Role::Viewer).await;
    assert_eq!(transfer(&target).await.refused(403).0, "insufficient_scope");
    // Audit log entries of one millisecond are not ordered.
    control.clock.advance(1);
    let third = control.person("max").await;
    control.join(&person, third.workspace, Role::Admin).await;
    let moved = transfer(third.workspace.as_str()).await.expect(200);
    assert_eq!(
        (&moved["workspaceId"], &moved["id"]),
        (&json!(third.workspace), &project["id"])
    );
    assert_eq!(names(&control, &third).await, ["My project"]);
    let mut conn = control.app.store.read().await.unwrap();
    for (workspace, actions) in [
        (
            person.workspace,
            &["project.transferred", "project.created"][..],
        ),
        (third.workspace, &["project.received"]),
    ] {
        let entries = audit::list(
            &mut conn,
            audit::Scope::Workspace(workspace),
            &audit::Filter::default(),
            Paging::DEFAULT,
        )
        .await
        .unwrap();
        let logged_actions: Vec<_> = entries
            .items
            .iter()
            .map(|entry| entry.action.as_str())
            .collect();
        assert_eq!(logged_actions, actions);
    }
}

/// A user with a paid project, and a second workspace without a subscription.
async fn paid(control: TestControl) -> (TestControl, [Person; 2], Value) {
    let control = control
        .configured(json!({"catalog": {"plans": [{"plan": "pro", "monthly_price": 3000}]}}))
        .await;
    let (person, other) = (control.person("ada").await, control.person("eve").await);
    control.join(&person, other.workspace, Role::Owner).await;
    control.subscribe(person.workspace).await;
    let order = order(&preview(&control, &person, "pro").await);
    let project = place(&control, &person, &order).await.expect(201);
    (control, [person, other], project)
}

/// CP-4e: the payment for a project moves from one subscription to the other, or the project stays.
async fn a_paid_project_moves_only_where_it_is_paid_for(control: TestControl) {
    let (control, [person, other], project) = paid(control).await;
    let token = &person.token;
    let body = json!({"workspaceId": other.workspace});
    let transfer = format!("{}/transfer", path(&project));
    let refused = control
        .post(&transfer, token, &body.clone())
        .await
        .expect(402);
    assert!(
        refused["url"]
            .as_str()
            .unwrap()
            .contains(other.workspace.as_str())
    );
    let monthly = async |workspace| {
        let mut conn = control.app.store.read().await.unwrap();
        let open = billing::open(&mut conn, workspace).await.unwrap();
        open.map(|subscription| subscription.monthly_amount)
    };
    assert_eq!(
        monthly(person.workspace).await,
        Some(3000),
        "a refused transfer changes nothing"
    );
    control.subscribe(other.workspace).await;
    control.post(&transfer, token, &body).await.expect(200);
    assert_eq!(
        (
            monthly(person.workspace).await,
            monthly(other.workspace).await
        ),
        (Some(0), Some(3000))
    );
}

/// A user with subscriptions that start on different days cannot avoid a charge by moving a project
/// between them.
async fn a_moved_project_is_paid_for_every_day(control: TestControl) {
    let (control, [person, other], project) = paid(control).await;
    let transfer = format!("{}/transfer", path(&project));
    let charged = async |workspace| {
        let mut conn = control.app.store.read().await.unwrap();
        let invoices = billing::invoices(&mut conn, workspace, Paging::DEFAULT).await;
        let invoices = invoices.unwrap().items;
        invoices
            .iter()
            .map(|invoice| invoice.amount)
            .collect::<Vec<_>>()
    };
    let moves = async |to: &Person| {
        let body = json!({"workspaceId": to.workspace});
        control
            .post(&transfer, &person.token, &body)
            .await
            .expect(200);
    };
    control.clock.advance(10 * 24 * 3600);
    control.subscribe(other.workspace).await;
    moves(&other).await;
    // Ten days of a month of 31, which follow the days that were already paid for.
    assert_eq!(charged(other.workspace).await, [967]);
    control.clock.advance(15 * 24 * 3600);
    moves(&person).await;
    assert_eq!(
        charged(person.workspace).await,
        [3000],
        "and back within paid days"
    );
}
