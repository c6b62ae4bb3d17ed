//! The operator's side: access to it, the immediate effects of a suspension, and its end.

use http::Method;
use serde_json::{Value, json};
use store::users::{self, Role};
use store::{members, workspaces};

use crate::support::{Person, TestControl, both};

both! {
    only_an_operator_with_an_unrestricted_credential_has_access,
    lists_are_searched_sorted_and_paged,
    a_suspended_user_has_no_access_until_resumed,
    sessions_of_a_user_are_listed_and_ended,
    the_last_operator_cannot_be_removed,
    an_operator_makes_users_operators_and_ends_it,
    a_suspended_workspace_is_read_and_not_used,
    a_suspended_project_is_unavailable,
    projects_of_a_suspended_workspace_get_no_tokens,
}

/// A user who is an operator.
pub(super) async fn operator(control: &TestControl, name: &str) -> Person {
    let person = control.person(name).await;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.now();
    users::set_role(&mut tx, person.user, Role::Admin, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    person
}

fn reason() -> Value {
    json!({"reason": "Sends spam; ticket 4711."})
}

/// The actions of the operator's audit log, with their reasons.
async fn audit(control: &TestControl, who: &Person) -> Vec<(String, Value)> {
    let answer = control
        .get("/api/operator/audit?pageSize=100", &who.token)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let entries = answer.json()["entries"].as_array().unwrap().clone();
    let entry = |entry: &Value| {
        let action = entry["action"].as_str().unwrap().to_owned();
        (action, entry["details"]["reason"].clone())
    };
    entries.iter().map(entry).collect()
}

async fn only_an_operator_with_an_unrestricted_credential_has_access(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let missing = control.get("/api/nothing", &ada.token).await;
    let permissions = control
        .delegated(&ops, json!({"permissions": ["account.projects.read-only"]}))
        .await;
    let resources = json!({"tunnels": {"workspaces": [ops.workspace]}});
    let bounded = control
        .post(
            "/api/credentials",
            &ops.token,
            &json!({"type": "pat", "name": "bounded", "resources": resources}),
        )
        .await;
    assert_eq!(bounded.status, 201, "{bounded:?}");
    let bounded = bounded.json()["token"].as_str().unwrap().to_owned();
    for path in [
        "/api/operator/users",
        "/api/operator/workspaces",
        "/api/operator/projects",
        "/api/operator/audit",
    ] {
        let nobody = control.send(Method::GET, path, None, None).await;
        assert_eq!(nobody.problem(), (401, "unauthenticated".to_owned()));
        for token in [&ada.token, &permissions, &bounded] {
            let answer = control.get(path, token).await;
            assert_eq!(answer.status, 404, "{path}: {answer:?}");
            assert_eq!(answer.text, missing.text, "{path}");
        }
        assert_eq!(control.get(path, &ops.token).await.status, 200, "{path}");
    }
    // A user without the role gets the same answer for an invalid body.
    let path = format!("/api/operator/users/{}/suspend", ops.user);
    let answer = control.post(&path, &ada.token, &json!({"x": 1})).await;
    assert_eq!(answer.status, 404);
}

async fn lists_are_searched_sorted_and_paged(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let list = async |path: &str| {
        let answer = control.get(path, &ops.token).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    };
    let users = list("/api/operator/users?q=ADA@&sort=email&order=desc").await;
    assert_eq!(users["total"], 1);
    assert_eq!(users["users"][0]["email"], "ada@example.com");
    assert_eq!(users["users"][0]["status"], "active");
    let users = list("/api/operator/users?sort=name&order=desc&pageSize=1").await;
    assert_eq!(
        (&users["total"], &users["totalPages"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(users["users"][0]["name"], "ops");
    let workspaces = list("/api/operator/workspaces?q=ada").await;
    assert_eq!(workspaces["workspaces"][0]["id"], ada.workspace.as_str());
    let path = format!("/api/operator/projects?q={}", project.endpoint);
    let projects = list(&path).await;
    assert_eq!(projects["projects"][0]["id"], project.id.as_str());
    for bad in ["sort=password", "order=up", "page=0", "x=1"] {
        let path = format!("/api/operator/users?{bad}");
        let answer = control.get(&path, &ops.token).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    let nothing = control.get("/api/operator/users/x", &ops.token).await;
    assert_eq!(nothing.status, 404);
}

async fn a_suspended_user_has_no_access_until_resumed(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let delegated = control
        .delegated(&ada, json!({"permissions": ["account.projects.read-only"]}))
        .await;
    let cookie = control.session(&ada).await;
    let with_cookie = async || {
        let request = http::Request::builder()
            .uri("/api/whoami")
            .header("cookie", &cookie)
            .body(axum::body::Body::empty())
            .unwrap();
        control.send_raw(request).await.status
    };
    assert_eq!(with_cookie().await, 200);
    let path = format!("/api/operator/users/{}", ada.user);
    for bad in [
        json!({}),
        json!({"reason": " "}),
        json!({"reason": "a".repeat(501)}),
    ] {
        let answer = control
            .post(&format!("{path}/suspend"), &ops.token, &bad)
            .await;
        assert_eq!(answer.status, 400, "{bad}");
    }
    let answer = control
        .post(&format!("{path}/suspend"), &ops.token, &reason())
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["status"], "suspended");
    let again = control
        .post(&format!("{path}/suspend"), &ops.token, &reason())
        .await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));
    for token in [&ada.token, &delegated] {
        let answer = control.get("/api/whoami", token).await;
        assert_eq!(answer.problem(), (401, "invalid_token".to_owned()));
    }
    assert_eq!(with_cookie().await, 401);
    let resume = format!("{path}/resume");
    let answer = control.send(Method::POST, &resume, Some(&ops.token), None);
    assert_eq!(answer.await.json()["status"], "active");
    for token in [&ada.token, &delegated] {
        assert_eq!(control.get("/api/whoami", token).await.status, 200);
    }
    assert_eq!(with_cookie().await, 401, "sessions have ended permanently");
    let entries = audit(&control, &ops).await;
    assert!(entries.contains(&("user.resumed".to_owned(), Value::Null)));
    let why = (
        "user.suspended".to_owned(),
        json!("Sends spam; ticket 4711."),
    );
    assert!(entries.contains(&why), "{entries:?}");
    let filter = format!(
        "?action=user.suspended&actor={}&target={}",
        ops.user, ada.user
    );
    let log = format!("/api/operator/audit{filter}");
    assert_eq!(control.get(&log, &ops.token).await.expect(200)["total"], 1);
}

async fn sessions_of_a_user_are_listed_and_ended(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let (mut here, mut there) = (
        control.signed_in("ada").await,
        control.signed_in("ada").await,
    );
    let path = format!("/api/operator/users/{}/sessions", ada.user);
    let answer = control.get(&path, &ada.token).await;
    assert_eq!(answer.problem(), (404, "not_found".to_owned()));
    let list = control.get(&path, &ops.token).await.expect(200);
    let list = list["sessions"].as_array().unwrap().clone();
    assert_eq!(list.len(), 2, "{list:?}");
    assert!(list.iter().all(|session| session["current"] == false));
    let id = list[0]["id"].as_str().unwrap();
    let one = format!("{path}/{id}");
    // The user's own token is not an operator's, and another user does not have this session.
    let of_eve = format!("/api/operator/users/{}/sessions/{id}", eve.user);
    for (path, token) in [(&one, &ada.token), (&of_eve, &ops.token)] {
        let answer = control.delete(path, token).await;
        assert_eq!(answer.problem(), (404, "not_found".to_owned()));
    }
    control.delete(&one, &ops.token).await.expect(204);
    let mut statuses = Vec::new();
    for browser in [&mut here, &mut there] {
        let answer = browser.api(Method::GET, "/api/user", Value::Null).await;
        statuses.push(answer.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 401]);
    let again = control.delete(&one, &ops.token).await;
    assert_eq!(again.problem(), (404, "not_found".to_owned()));
    let entries = audit(&control, &ops).await;
    let ended = entries
        .iter()
        .filter(|entry| entry.0 == "user.sessions_ended");
    assert_eq!(ended.count(), 1, "{entries:?}");
}

async fn the_last_operator_cannot_be_removed(control: TestControl) {
    let (one, two) = (
        operator(&control, "one").await,
        operator(&control, "two").await,
    );
    let suspend = async |who: &Person, whom: &Person| {
        let path = format!("/api/operator/users/{}/suspend", whom.user);
        control.post(&path, &who.token, &reason()).await.status
    };
    assert_eq!(
        suspend(&one, &one).await,
        409,
        "operators cannot suspend themselves"
    );
    // Two operators suspend each other at the same time. One comes first, and the other is not an
    // operator any more.
    let (a, b) = tokio::join!(suspend(&one, &two), suspend(&two, &one));
    assert!([a, b].contains(&200), "{a} {b}");
    assert!(
        [a, b].iter().any(|status| [401, 404].contains(status)),
        "{a} {b}"
    );
    let mut read = control.app.store.read().await.unwrap();
    assert!(users::any_admin(&mut read).await.unwrap());
}

async fn an_operator_makes_users_operators_and_ends_it(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let change = async |who: &Person, whom: &Person, body: Value| {
        let path = format!("/api/operator/users/{}", whom.user);
        let answer = control.send(Method::PATCH, &path, Some(&who.token), Some(&body));
        answer.await
    };
    let (admin, user) = (json!({"role": "admin"}), json!({"role": "user"}));
    let refused = change(&ada, &ada, admin.clone()).await;
    assert_eq!(refused.problem(), (404, "not_found".to_owned()));
    for bad in [
        json!({}),
        json!({"role": "owner"}),
        json!({"role": "admin", "x": 1}),
    ] {
        assert_eq!(change(&ops, &ada, bad.clone()).await.status, 400, "{bad}");
    }
    let own = change(&ops, &ops, user.clone()).await;
    assert_eq!(own.problem(), (409, "conflict".to_owned()));

    let changed = change(&ops, &ada, admin.clone()).await.expect(200);
    assert_eq!(changed["role"], "admin");
    // It takes effect at once, and a repetition changes nothing.
    let unused = change(&ada, &eve, admin.clone()).await.expect(200);
    assert!(unused.get("lastSeenAt").is_none(), "{unused}");
    let list = control.get("/api/operator/users?q=ADA@", &ops.token).await;
    let list = list.expect(200);
    assert!(list["users"][0]["lastSeenAt"].is_string(), "{list}");
    change(&ops, &ada, admin.clone()).await.expect(200);
    let changed = change(&ops, &ada, user.clone()).await.expect(200);
    assert_eq!(changed["role"], "user");
    let refused = control.get("/api/operator/users", &ada.token).await;
    assert_eq!(refused.status, 404);

    // Of two operators who end each other's role at the same time, one remains.
    let (a, b) = tokio::join!(
        change(&ops, &eve, user.clone()),
        change(&eve, &ops, user.clone())
    );
    let statuses = [a.status, b.status];
    assert!(
        statuses.contains(&200) && statuses.contains(&404),
        "{statuses:?}"
    );
    let remains = if a.status == 200 { &ops } else { &eve };
    let entries = audit(&control, remains).await;
    let changes = entries
        .iter()
        .filter(|entry| entry.0 == "user.role_changed");
    assert_eq!(changes.count(), 4, "{entries:?}");

    let suspend = format!("/api/operator/users/{}/suspend", ada.user);
    let suspended = control.post(&suspend, &remains.token, &reason()).await;
    assert_eq!(suspended.status, 200);
    let refused = change(remains, &ada, admin).await;
    assert_eq!(refused.problem(), (409, "conflict".to_owned()));
}

async fn a_suspended_workspace_is_read_and_not_used(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let path = format!("/api/operator/workspaces/{}", ada.workspace);
    let answer = control
        .post(&format!("{path}/suspend"), &ops.token, &reason())
        .await;
    assert_eq!(answer.json()["status"], "suspended", "{answer:?}");
    let workspace = format!("/api/workspaces/{}", ada.workspace);
    let tunnels = format!("/api/projects/tunnels/{}", project.id);
    let members = format!("{workspace}/members");
    let log = format!("{workspace}/audit");
    let settings = format!("{tunnels}/settings");
    for path in [&workspace, &tunnels, &members, &log, &settings] {
        let answer = control.get(path, &ada.token).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    let seen = control.get(&workspace, &ada.token).await.json();
    assert_eq!(seen["status"], "suspended");
    let entries = control.get(&log, &ada.token).await.json();
    let entries = entries["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["details"] == reason()));
    let name = json!({"name": "other"});
    let invitation = json!({"email": "eve@example.com", "role": "member"});
    let own = format!("{members}/{}", ada.user);
    let refused = [
        (Method::PATCH, &workspace, Some(&name)),
        (Method::PATCH, &tunnels, Some(&name)),
        (Method::DELETE, &tunnels, None),
        (Method::DELETE, &own, None),
        (
            Method::POST,
            &format!("{workspace}/invitations"),
            Some(&invitation),
        ),
        (
            Method::POST,
            &format!("{tunnels}/turn-server/credentials"),
            None,
        ),
    ];
    for (method, path, body) in &refused {
        let answer = control
            .send(method.clone(), path, Some(&ada.token), *body)
            .await;
        let problem = (403, "workspace_suspended".to_owned());
        assert_eq!(answer.problem(), problem, "{method} {path}");
    }
    let resume = format!("{path}/resume");
    let answer = control.send(Method::POST, &resume, Some(&ops.token), None);
    assert_eq!(answer.await.json()["status"], "active");
    let renamed = control.send(Method::PATCH, &workspace, Some(&ada.token), Some(&name));
    assert_eq!(renamed.await.status, 200);
    let entries = audit(&control, &ops).await;
    assert!(entries.contains(&("workspace.resumed".to_owned(), Value::Null)));
}

async fn a_suspended_project_is_unavailable(control: TestControl) {
    let ops = operator(&control, "ops").await;
    let ada = control.person("ada").await;
    let (project, other) = (control.project(&ada).await, control.project(&ada).await);
    let path = format!("/api/operator/projects/{}", project.id);
    let answer = control
        .post(&format!("{path}/suspend"), &ops.token, &reason())
        .await;
    assert!(answer.json()["suspendedAt"].is_string(), "{answer:?}");
    let tunnels = format!("/api/projects/tunnels/{}", project.id);
    let seen = control.get(&tunnels, &ada.token).await.json();
    assert_eq!(seen["status"], "unavailable");
    let mint = async |projects: Value| {
        let body = json!({
            "permissions": ["tunnels.resources.read-only"],
            "resources": {"tunnels": {"projects": projects}},
        });
        control.post("/api/tokens", &ada.token, &body).await
    };
    let name = json!({"name": "other"});
    let target = json!({"workspaceId": ops.workspace});
    let turn = format!("{tunnels}/turn-server/credentials");
    let by_endpoint = format!(
        "/api/projects/tunnels/resolve/{}/turn-server/credentials",
        project.endpoint
    );
    control
        .join(&ada, ops.workspace, members::Role::Owner)
        .await;
    let refused = [
        control
            .send(Method::PATCH, &tunnels, Some(&ada.token), Some(&name))
            .await,
        control
            .post(&format!("{tunnels}/transfer"), &ada.token, &target)
            .await,
        control
            .send(Method::POST, &turn, Some(&ada.token), None)
            .await,
        control
            .send(Method::POST, &by_endpoint, Some(&ada.token), None)
            .await,
        mint(json!([project.id])).await,
    ];
    for answer in refused {
        assert_eq!(answer.problem(), (409, "project_suspended".to_owned()));
    }
    assert_eq!(mint(json!([project.id, other.id])).await.status, 200);
    let resume = format!("{path}/resume");
    let answer = control.send(Method::POST, &resume, Some(&ops.token), None);
    let answer = answer.await;
    assert_eq!(answer.json()["status"], "active", "{answer:?}");
    assert_eq!(mint(json!([project.id])).await.status, 200);
    let turn = control
        .send(Method::POST, &turn, Some(&ada.token), None)
        .await;
    assert_eq!(turn.status, 200);
}

/// A project of a suspended workspace cannot be used either.
async fn projects_of_a_suspended_workspace_get_no_tokens(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let mut tx = control.app.store.begin().await.unwrap();
    let (status, now) = (workspaces::Status::Suspended, control.now());
    workspaces::set_status(&mut tx, ada.workspace, status, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let body = json!({
        "permissions": ["tunnels.resources.read-only"],
        "resources": {"tunnels": {"projects": [project.id]}},
    });
    let answer = control.post("/api/tokens", &ada.token, &body).await;
    assert_eq!(answer.problem(), (409, "project_suspended".to_owned()));
}
