//! Workspaces, members, invitations and the audit, through the API and the pages.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::members::{self, Role};
use store::users;
use types::id::{UserId, WorkspaceId};

use crate::support::{BASE_URL, Browser, PASSWORD, TestControl, both};

both! {
    a_workspace_is_made_renamed_and_deleted,
    another_workspace_does_not_exist,
    roles_have_the_permissions_of_the_table,
    stronger_members_cannot_be_managed_and_an_owner_remains,
    a_suspended_member_is_outside_and_a_viewer_may_leave,
    members_are_searched_sorted_and_paged,
    a_new_user_joins_with_the_link_in_the_mail,
    an_invitation_is_valid_only_for_its_recipient,
    an_invitation_ends_when_revoked_or_old,
    an_invitation_ends_with_the_inviters_role,
    one_user_cannot_fill_the_mail_queue,
    one_person_owns_a_bounded_number_of_workspaces,
    members_and_higher_roles_cannot_be_invited,
    the_audit_lists_the_actions_in_a_workspace,
    a_change_is_atomic,
}

pub(crate) async fn join(control: &TestControl, workspace: &str, user: UserId, role: Role) {
    let workspace: WorkspaceId = workspace.parse().unwrap();
    let now = control.app.now();
    let mut tx = control.app.store.begin().await.unwrap();
    members::insert(&mut tx, workspace, user, role, None, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// A team workspace, owned by the browser's user.
pub(crate) async fn team(browser: &mut Browser<'_>) -> String {
    let made = browser
        .api(
            Method::POST,
            "/api/workspaces",
            json!({"name": " Engines "}),
        )
        .await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn a_workspace_is_made_renamed_and_deleted(control: TestControl) {
    let own = control.person("Ada").await.workspace;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let path = format!("/api/workspaces/{id}");
    let read = ada.open(&path).await.json();
    assert_eq!(read["name"], "Engines");
    assert_eq!(read["type"], "team");
    assert_eq!(read["membership"]["role"], "owner");
    let listed = ada.open("/api/workspaces").await.json();
    assert_eq!(listed["workspaces"].as_array().unwrap().len(), 2);
    let personal = ada.open("/api/workspaces?type=personal").await.json();
    assert_eq!(personal["workspaces"][0]["id"], own.as_str());
    let suspended = ada
        .open("/api/workspaces?membershipStatus=suspended")
        .await
        .json();
    assert_eq!(suspended["workspaces"], json!([]));

    let renamed = ada
        .api(Method::PATCH, &path, json!({"name": "Looms"}))
        .await;
    assert_eq!(renamed.json()["name"], "Looms");
    for bad in ["", " ", "a\nb", &"x".repeat(101)] {
        let refused = ada.api(Method::PATCH, &path, json!({"name": bad})).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad:?}");
        assert_eq!(refused.json()["field"], "name");
    }
    let gone = ada.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(ada.open(&path).await.status, StatusCode::NOT_FOUND);
    let personal = format!("/api/workspaces/{own}");
    let refused = ada.api(Method::DELETE, &personal, Value::Null).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
}

/// CP-5 for workspaces: another user's workspace gives the same answer as a missing one.
async fn another_workspace_does_not_exist(control: TestControl) {
    let ada_id = control.person("Ada").await.user;
    control.person("Eve").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let mut eve = control.signed_in("Eve").await;
    let nobodys = WorkspaceId::new(1, [9; 10]).to_string();
    let invite = json!({"email": "x@example.com", "role": "viewer"});
    for (method, rest, body) in [
        (Method::GET, String::new(), Value::Null),
        (Method::PATCH, String::new(), json!({"name": "Mine now"})),
        (Method::DELETE, String::new(), Value::Null),
        (Method::GET, "/members".to_owned(), Value::Null),
        (
            Method::PATCH,
            format!("/members/{ada_id}"),
            json!({"role": "viewer"}),
        ),
        (Method::DELETE, format!("/members/{ada_id}"), Value::Null),
        (Method::GET, "/invitations".to_owned(), Value::Null),
        (Method::POST, "/invitations".to_owned(), invite),
        (Method::DELETE, "/invitations/inv_1".to_owned(), Value::Null),
        (Method::GET, "/audit".to_owned(), Value::Null),
    ] {
        let mut answers = Vec::new();
        for workspace in [id.as_str(), nobodys.as_str(), "no-id-at-all"] {
            let path = format!("/api/workspaces/{workspace}{rest}");
            let answer = eve.api(method.clone(), &path, body.clone()).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}");
            answers.push(answer.text);
        }
        assert!(
            answers.iter().all(|text| *text == answers[0]),
            "{answers:?}"
        );
    }
    assert_eq!(
        ada.open(&format!("/api/workspaces/{id}")).await.json()["name"],
        "Engines"
    );
}

/// CP-11: each role has the permissions of the table.
async fn roles_have_the_permissions_of_the_table(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    for (name, role, may_manage) in [
        ("Vera", Role::Viewer, false),
        ("Max", Role::Member, false),
        ("Anna", Role::Admin, true),
    ] {
        let user = control.person(name).await.user;
        join(&control, &id, user, role).await;
        let mut browser = control.signed_in(name).await;
        let path = format!("/api/workspaces/{id}");
        assert_eq!(browser.open(&path).await.status, StatusCode::OK);
        assert_eq!(
            browser.open(&format!("{path}/members")).await.status,
            StatusCode::OK
        );
        let renamed = browser
            .api(Method::PATCH, &path, json!({"name": "Engines"}))
            .await;
        let audit = browser.open(&format!("{path}/audit")).await;
        let expected = if may_manage { 200 } else { 403 };
        assert_eq!(
            (renamed.status, audit.status),
            (expected, expected),
            "{name}"
        );
        // Only the owner can delete it.
        let deleted = browser.api(Method::DELETE, &path, Value::Null).await;
        assert_eq!(deleted.status, StatusCode::FORBIDDEN, "{name}");
    }
}

async fn stronger_members_cannot_be_managed_and_an_owner_remains(control: TestControl) {
    let ada_id = control.person("Ada").await.user;
    let anna_id = control.person("Anna").await.user;
    let max_id = control.person("Max").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, anna_id, Role::Admin).await;
    join(&control, &id, max_id, Role::Member).await;
    let mut anna = control.signed_in("Anna").await;
    let member = |user: UserId| format!("/api/workspaces/{id}/members/{user}");

    let forbidden = [
        anna.api(Method::PATCH, &member(ada_id), json!({"role": "viewer"}))
            .await,
        anna.api(Method::DELETE, &member(ada_id), Value::Null).await,
        anna.api(Method::PATCH, &member(max_id), json!({"role": "owner"}))
            .await,
        anna.api(Method::PATCH, &member(anna_id), json!({"role": "owner"}))
            .await,
    ];
    for answer in forbidden {
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.text);
    }
    let raised = anna
        .api(Method::PATCH, &member(max_id), json!({"role": "admin"}))
        .await;
    assert_eq!(raised.json()["role"], "admin");

    // The last owner can neither step down, nor be suspended, nor leave.
    for (method, body) in [
        (Method::PATCH, json!({"role": "admin"})),
        (Method::PATCH, json!({"status": "suspended"})),
        (Method::DELETE, Value::Null),
    ] {
        let refused = ada.api(method, &member(ada_id), body).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text);
    }
    let second = ada
        .api(Method::PATCH, &member(anna_id), json!({"role": "owner"}))
        .await;
    assert_eq!(second.json()["role"], "owner");
    let left = ada.api(Method::DELETE, &member(ada_id), Value::Null).await;
    assert_eq!(left.status, StatusCode::NO_CONTENT);
    let outside = ada.open(&format!("/api/workspaces/{id}")).await;
    assert_eq!(outside.status, StatusCode::NOT_FOUND);
}

async fn a_suspended_member_is_outside_and_a_viewer_may_leave(control: TestControl) {
    control.person("Ada").await;
    let vera_id = control.person("Vera").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, vera_id, Role::Viewer).await;
    let mut vera = control.signed_in("Vera").await;
    let path = format!("/api/workspaces/{id}");
    let member = format!("{path}/members/{vera_id}");
    ada.api(Method::PATCH, &member, json!({"status": "suspended"}))
        .await;
    assert_eq!(vera.open(&path).await.status, StatusCode::NOT_FOUND);
    let listed = vera
        .open("/api/workspaces?membershipStatus=suspended")
        .await
        .json();
    assert_eq!(listed["workspaces"][0]["id"], id);
    ada.api(Method::PATCH, &member, json!({"status": "active"}))
        .await;
    assert_eq!(vera.open(&path).await.status, StatusCode::OK);
    let left = vera.api(Method::DELETE, &member, Value::Null).await;
    assert_eq!(left.status, StatusCode::NO_CONTENT, "{}", left.text);
    assert_eq!(vera.open(&path).await.status, StatusCode::NOT_FOUND);
}

async fn members_are_searched_sorted_and_paged(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    for name in ["Max", "Vera", "Anna"] {
        let user = control.person(name).await.user;
        join(&control, &id, user, Role::Member).await;
    }
    let path = format!("/api/workspaces/{id}/members");
    let names = |page: Value| -> Vec<String> {
        let members = page["members"].as_array().unwrap();
        members
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = ada
        .open(&format!("{path}?sort=name&order=desc&pageSize=3"))
        .await
        .json();
    assert_eq!(
        (page["total"].as_u64(), page["totalPages"].as_u64()),
        (Some(4), Some(2))
    );
    assert_eq!(names(page), ["Vera", "Max", "Anna"]);
    let page = ada
        .open(&format!("{path}?sort=name&order=desc&pageSize=3&page=2"))
        .await
        .json();
    assert_eq!(names(page), ["Ada"]);
    assert_eq!(
        names(ada.open(&format!("{path}?q=VERA%40")).await.json()),
        ["Vera"]
    );
    for bad in ["sort=password", "order=up", "page=0", "pageSize=101", "x=1"] {
        let refused = ada.open(&format!("{path}?{bad}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
    }
}

/// Invites as the browser's user. Returns the path of the link.
pub(crate) async fn invite(browser: &mut Browser<'_>, id: &str, email: &str, role: &str) -> String {
    let path = format!("/api/workspaces/{id}/invitations");
    let sent = browser
        .api(Method::POST, &path, json!({"email": email, "role": role}))
        .await;
    assert_eq!(sent.status, StatusCode::CREATED, "{}", sent.text);
    let url = sent.json()["url"].as_str().unwrap().to_owned();
    url.strip_prefix(BASE_URL).unwrap().to_owned()
}

async fn a_new_user_joins_with_the_link_in_the_mail(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let path = invite(&mut ada, &id, "Grace@Example.com", "member").await;
    let mails = control.mails().await;
    assert!(mails[0].contains("To: grace@example.com\r\n") && mails[0].contains(&path));

    let mut grace = control.browser();
    let page = grace.open(&path).await;
    assert!(
        page.text.contains("Join Engines") && page.text.contains("as member"),
        "{}",
        page.text
    );
    let short = grace
        .submit(&path, &[("name", "Grace"), ("password", "short")])
        .await;
    assert_eq!(short.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(short.text.contains("value=\"Grace\""), "the input is kept");
    let joined = grace
        .submit(&path, &[("name", "Grace"), ("password", PASSWORD)])
        .await;
    assert_eq!(
        joined.location.as_deref(),
        Some("/welcome"),
        "{}",
        joined.text
    );
    let read = grace.open(&format!("/api/workspaces/{id}")).await.json();
    assert_eq!(read["membership"]["role"], "member");
    assert!(read["membership"]["invitedAt"].is_string());
    assert_eq!(
        control.browser().open(&path).await.status,
        StatusCode::NOT_FOUND
    );
    let listed = ada
        .open(&format!("/api/workspaces/{id}/invitations"))
        .await
        .json();
    assert_eq!(listed["invitations"][0]["status"], "accepted");
    assert!(
        !listed.to_string().contains("/invitations/"),
        "the link is shown once"
    );
}

async fn an_invitation_is_valid_only_for_its_recipient(control: TestControl) {
    control.person("Ada").await;
    control.person("Grace").await;
    control.person("Eve").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let path = invite(&mut ada, &id, "grace@example.com", "viewer").await;

    // The link cannot take over the account of an existing address.
    let mut stranger = control.browser();
    let page = stranger.open(&path).await;
    assert!(
        page.text.contains("/login?next=/invitations/"),
        "{}",
        page.text
    );
    let fields = [("name", "Grace"), ("password", "another long password")];
    assert_eq!(
        stranger.submit(&path, &fields).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(stranger.cookie, None);
    // A user with the password returns to the invitation after signing in.
    let fields = [("name", "Grace"), ("password", PASSWORD)];
    let signed_in = stranger.submit(&path, &fields).await;
    assert_eq!(signed_in.location.as_deref(), Some(path.as_str()));

    let mut eve = control.signed_in("Eve").await;
    assert_eq!(eve.submit(&path, &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        eve.open(&format!("/api/workspaces/{id}")).await.status,
        StatusCode::NOT_FOUND
    );

    let mut grace = control.signed_in("Grace").await;
    assert_eq!(
        grace.submit(&path, &[]).await.location.as_deref(),
        Some("/welcome")
    );
    assert_eq!(
        grace.open(&format!("/api/workspaces/{id}")).await.status,
        StatusCode::OK
    );
    // A member gets a notice, and no other user gets in.
    assert_eq!(
        grace.submit(&path, &[]).await.location.as_deref(),
        Some("/welcome")
    );
    assert_eq!(eve.submit(&path, &[]).await.status, StatusCode::NOT_FOUND);
}

async fn an_invitation_ends_when_revoked_or_old(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let revoked = invite(&mut ada, &id, "a@example.com", "viewer").await;
    let list = format!("/api/workspaces/{id}/invitations");
    let invitation = ada.open(&list).await.json()["invitations"][0]["id"].clone();
    let one = format!("{list}/{}", invitation.as_str().unwrap());
    let gone = ada.api(Method::DELETE, &one, Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let again = ada.api(Method::DELETE, &one, Value::Null).await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    assert_eq!(
        control.browser().open(&revoked).await.status,
        StatusCode::NOT_FOUND
    );

    let old = invite(&mut ada, &id, "b@example.com", "viewer").await;
    control.clock.advance(7 * 24 * 3600 - 1);
    assert_eq!(control.browser().open(&old).await.status, StatusCode::OK);
    control.clock.advance(1);
    assert_eq!(
        control.browser().open(&old).await.status,
        StatusCode::NOT_FOUND
    );
}

async fn members_and_higher_roles_cannot_be_invited(control: TestControl) {
    control.person("Ada").await;
    let anna = control.person("Anna").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, anna, Role::Admin).await;
    let path = format!("/api/workspaces/{id}/invitations");
    let body = json!({"email": "ANNA@example.com", "role": "viewer"});
    let again = ada.api(Method::POST, &path, body).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    let mut anna = control.signed_in("Anna").await;
    let body = json!({"email": "x@example.com", "role": "owner"});
    assert_eq!(
        anna.api(Method::POST, &path, body).await.status,
        StatusCode::FORBIDDEN
    );
    for bad in [
        json!({"email": "x", "role": "viewer"}),
        json!({"email": "x@y.z", "role": "boss"}),
    ] {
        assert_eq!(
            anna.api(Method::POST, &path, bad).await.status,
            StatusCode::BAD_REQUEST
        );
    }
}

/// Actor and action of each entry, newest first, with the necessary details and no secrets.
async fn the_audit_lists_the_actions_in_a_workspace(control: TestControl) {
    let ada_id = control.person("Ada").await.user;
    let max_id = control.person("Max").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, max_id, Role::Member).await;
    let path = format!("/api/workspaces/{id}");
    control.clock.advance(1);
    ada.api(Method::PATCH, &path, json!({"name": "Looms"}))
        .await;
    control.clock.advance(1);
    let member = format!("{path}/members/{max_id}");
    ada.api(Method::PATCH, &member, json!({"role": "viewer"}))
        .await;
    control.clock.advance(1);
    let link = invite(&mut ada, &id, "grace@example.com", "viewer").await;
    let page = ada.open(&format!("{path}/audit")).await;
    let entries = page.json()["entries"].as_array().unwrap().clone();
    let actions: Vec<&str> = entries
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    let expected = [
        "invitation.sent",
        "member.changed",
        "workspace.renamed",
        "workspace.created",
    ];
    assert_eq!(actions, expected);
    assert_eq!(entries[1]["targetId"], max_id.as_str());
    assert_eq!(entries[1]["details"]["role"], "viewer");
    assert_eq!(
        entries[2]["details"],
        json!({"from": "Engines", "to": "Looms"})
    );
    for entry in &entries {
        assert_eq!(
            (&entry["actorUserId"], &entry["ip"]),
            (&json!(ada_id), &json!("192.0.2.1"))
        );
    }
    let secret = link.rsplit('/').next().unwrap();
    assert!(!page.text.contains(secret));
    let refused = ada.open(&format!("{path}/audit?since=1")).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

/// A partly refused request changes nothing: role and status change together.
async fn a_change_is_atomic(control: TestControl) {
    let ada_id = control.person("Ada").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let max_id = control.person("Max").await.user;
    join(&control, &id, max_id, Role::Owner).await;
    control.clock.advance(1);
    // The role can change because there is another owner. The status of the last one then cannot.
    let member = |user: UserId| format!("/api/workspaces/{id}/members/{user}");
    ada.api(
        Method::PATCH,
        &member(max_id),
        json!({"status": "suspended"}),
    )
    .await;
    control.clock.advance(1);
    let body = json!({"role": "owner", "status": "suspended"});
    let refused = ada.api(Method::PATCH, &member(ada_id), body).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let audit = ada
        .open(&format!("/api/workspaces/{id}/audit"))
        .await
        .json();
    assert_eq!(audit["entries"][0]["targetId"], max_id.as_str());
    let own = ada.open(&format!("/api/workspaces/{id}")).await.json();
    assert_eq!(own["membership"]["status"], "active");
}

/// Invitations of a member who loses the role or leaves are revoked.
async fn an_invitation_ends_with_the_inviters_role(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let grace = control.person("Grace").await;
    control.join(&grace, id.parse().unwrap(), Role::Admin).await;
    let mut browser = control.signed_in("Grace").await;
    let path = invite(&mut browser, &id, "eve@example.com", "admin").await;
    assert_eq!(control.browser().open(&path).await.status, StatusCode::OK);

    control.person("Eve").await;
    let mut eve = control.signed_in("Eve").await;
    // An invitation also ends when an operator suspends the inviter's account.
    for (status, then) in [
        (users::Status::Suspended, StatusCode::NOT_FOUND),
        (users::Status::Active, StatusCode::OK),
    ] {
        let mut tx = control.app.store.begin().await.unwrap();
        users::set_status(&mut tx, grace.user, status, control.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(eve.open(&path).await.status, then);
    }
    let member = format!("/api/workspaces/{id}/members/{}", grace.user);
    let less = [
        (Method::PATCH, json!({"role": "member"})),
        (
            Method::PATCH,
            json!({"role": "admin", "status": "suspended"}),
        ),
        (Method::DELETE, Value::Null),
    ];
    for (method, change) in less {
        let changed = ada.api(method, &member, change).await;
        assert!(changed.status < 300, "{}", changed.text);
        for gone in [eve.open(&path).await, eve.submit(&path, &[]).await] {
            assert_eq!(gone.status, StatusCode::NOT_FOUND);
        }
    }
}

/// The inviter still has the links.
async fn one_user_cannot_fill_the_mail_queue(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    for number in 0..60 {
        invite(&mut ada, &id, &format!("n{number}@example.com"), "viewer").await;
    }
    assert_eq!(control.mails().await.len(), 51);
}

async fn one_person_owns_a_bounded_number_of_workspaces(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    // The personal workspace exists already.
    for _ in 1..100 {
        team(&mut ada).await;
    }
    let name = json!({"name": "One more"});
    let refused = ada.api(Method::POST, "/api/workspaces", name).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
}
