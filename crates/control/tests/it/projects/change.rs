//! Rename, transfer, delete.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use store::members::Role;
use store::{Paging, audit, billing};
use tokio::task::JoinSet;

use super::{names, order, path, place, preview, project};
use crate::world::{World, both};

both! {
    async fn a_project_is_renamed(url) {
        let world = World::new(url, json!({})).await;
        let person = world.person().await;
        let project = project(&world, person).await;
        let token = world.token(person);
        let rename = async |body: Value| world.call(Method::PATCH, &path(&project), &token, Some(body)).await;
        let renamed = rename(json!({"name": "Better"})).await.expect(200);
        assert_eq!((&renamed["name"], &renamed["id"]), (&json!("Better"), &project["id"]));
        assert_eq!(world.get(&token, &path(&project)).await.expect(200), renamed);
        let found = world.get(&token, "/api/projects/tunnels?q=better").await.expect(200);
        assert_eq!(found["total"], 1);
        for (body, field) in [
            (json!({"name": ""}), Some("name")),
            (json!({"name": "a\u{202e}b"}), Some("name")),
            (json!({"plan": "pro", "name": "x"}), Some("plan")),
            (json!({}), None),
        ] {
            assert_eq!(rename(body.clone()).await.problem(400).1.as_deref(), field, "{body}");
        }
    }

    /// A deleted project is gone, once; its place is free and its endpoint and key are not.
    async fn a_project_is_deleted_once(url) {
        let catalog = json!({"regions": [{"provider": "aws", "region": "eu", "capacity": {"basic": 1}}]});
        let world = Arc::new(World::new(url, catalog).await);
        let person = world.person().await;
        let order = order(&preview(&world, person, "basic").await);
        let project = place(&world, person, &order).await.expect(201);
        assert_eq!(preview(&world, person, "basic").await["available"], false);
        let mut deletions = JoinSet::new();
        for _ in 0..8 {
            let (world, path) = (Arc::clone(&world), path(&project));
            let token = world.token(person);
            deletions.spawn(async move { world.call(Method::DELETE, &path, &token, None).await });
        }
        let mut statuses: Vec<_> = deletions.join_all().await.iter().map(|reply| reply.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 404, 404, 404, 404, 404, 404, 404]);
        assert_eq!(world.get(&world.token(person), &path(&project)).await.problem(404).0, "not_found");
        // CP-4a: the key still stands for the project that is gone; nothing more is created.
        assert_eq!(place(&world, person, &order).await.problem(409).0, "conflict");
        // One place, given back once.
        super::project(&world, person).await;
        assert_eq!(preview(&world, person, "basic").await["available"], false);
    }

    /// A transfer needs the permission in both workspaces.
    async fn a_transfer_needs_both_workspaces(url) {
        let world = World::new(url, json!({})).await;
        let (person, other) = (world.person().await, world.person().await);
        let project = project(&world, person).await;
        let token = world.token(person);
        let transfer = async |to: &str| {
            world.post(&token, &format!("{}/transfer", path(&project)), json!({"workspaceId": to})).await
        };
        let target = other.workspace.to_string();
        assert_eq!(transfer(&target).await.problem(404).0, "not_found");
        assert_eq!(transfer("wks_nothing").await.problem(404).0, "not_found");
        assert_eq!(transfer(person.workspace.as_str()).await.problem(409).0, "conflict");
        world.join(person, other.workspace, Role::Viewer).await;
        assert_eq!(transfer(&target).await.problem(403).0, "insufficient_scope");
        // The audit log's entries of one millisecond have no order.
        world.clock.advance(1);
        let third = world.person().await;
        world.join(person, third.workspace, Role::Admin).await;
        let moved = transfer(third.workspace.as_str()).await.expect(200);
        assert_eq!((&moved["workspaceId"], &moved["id"]), (&json!(third.workspace), &project["id"]));
        assert_eq!(names(&world, third).await, ["My project"]);
        let mut conn = world.app.store.read().await.unwrap();
        for (workspace, actions) in [
            (person.workspace, &["project.transferred", "project.created"][..]),
            (third.workspace, &["project.received"]),
        ] {
            let entries = audit::of_workspace(&mut conn, workspace, Paging::DEFAULT).await.unwrap();
            let told: Vec<_> = entries.items.iter().map(|entry| entry.action.as_str()).collect();
            assert_eq!(told, actions);
        }
    }

    /// CP-4e: what is paid for moves from one subscription to the other, or stays.
    async fn a_paid_project_goes_where_it_is_paid_for(url) {
        let world = World::new(url, json!({"plans": [{"plan": "pro", "monthly_price": 3000}]})).await;
        let (person, other) = (world.person().await, world.person().await);
        world.join(person, other.workspace, Role::Owner).await;
        world.subscribe(person.workspace).await;
        let order = order(&preview(&world, person, "pro").await);
        let project = place(&world, person, &order).await.expect(201);
        let token = world.token(person);
        let body = json!({"workspaceId": other.workspace});
        let transfer = format!("{}/transfer", path(&project));
        let refused = world.post(&token, &transfer, body.clone()).await.expect(402);
        assert!(refused["url"].as_str().unwrap().contains(other.workspace.as_str()));
        let monthly = async |workspace| {
            let mut conn = world.app.store.read().await.unwrap();
            let open = billing::open(&mut conn, workspace).await.unwrap();
            open.map(|subscription| subscription.monthly_amount)
        };
        assert_eq!(monthly(person.workspace).await, Some(3000), "a refused transfer changes nothing");
        world.subscribe(other.workspace).await;
        world.post(&token, &transfer, body).await.expect(200);
        assert_eq!((monthly(person.workspace).await, monthly(other.workspace).await), (Some(0), Some(3000)));
    }
}
