//! Roles that groups of the provider give.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::provider::Provider;
use super::{section, sign_in, with_provider};
use crate::support::{Browser, TestControl};
use crate::tenants::workspaces::team;

/// A platform with a workspace of Ada, whose roles depend on groups.
async fn world(provider: &Provider) -> (TestControl, String) {
    let control = with_provider(provider, &json!({"sign_up": "anyone"})).await;
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let workspace = team(&mut ada).await;
    let rule =
        |group: &str, role: &str| json!({"group": group, "workspace": workspace, "role": role});
    let openid = json!({
        "sign_up": "anyone",
        "groups_claim": "groups",
        "groups": [
            rule("staff", "viewer"),
            rule("eng", "member"),
            rule("leads", "admin"),
            {"group": "eng", "workspace": "wks_01h455vb4pex5vsknk084sn02q"},
        ],
    });
    let sections = json!({"openid": section(provider, &openid)});
    (control.configured(sections).await, workspace)
}

async fn grace<'a>(control: &'a TestControl, provider: &Provider, groups: Value) -> Browser<'a> {
    let claims = json!({
        "sub": "g-1", "email": "grace@example.com", "email_verified": true, "groups": groups,
    });
    let mut browser = control.browser();
    let answer = sign_in(control, provider, &mut browser, "/account", claims).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    browser
}

/// The role of the user with this address, as the owner sees it.
async fn role(control: &TestControl, workspace: &str, email: &str) -> Option<String> {
    let mut ada = control.signed_in("Ada").await;
    let list = ada
        .open(&format!("/api/workspaces/{workspace}/members"))
        .await;
    let list = list.expect(200);
    let mut members = list["members"].as_array().unwrap().iter();
    let found = members.find(|member| member["email"] == email)?;
    Some(found["role"].as_str().unwrap().to_owned())
}

async fn actions(control: &TestControl, workspace: &str) -> Vec<(String, Value)> {
    let mut ada = control.signed_in("Ada").await;
    let list = ada
        .open(&format!("/api/workspaces/{workspace}/audit"))
        .await;
    let list = list.expect(200);
    let entries = list["entries"].as_array().unwrap().iter();
    let mut found: Vec<_> = entries
        .filter(|entry| entry["action"].as_str().unwrap().starts_with("member."))
        .map(|entry| {
            (
                entry["action"].as_str().unwrap().to_owned(),
                entry["details"].clone(),
            )
        })
        .collect();
    found.sort_by_key(|(action, details)| (action.clone(), details.to_string()));
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_give_the_strongest_role_and_take_it_at_the_next_sign_in() {
    let provider = Provider::start().await;
    let (control, workspace) = world(&provider).await;
    let email = "grace@example.com";
    for (groups, expected) in [
        (json!(["other"]), None),
        (json!(["eng", "staff"]), Some("member")),
        (json!(["eng", "staff", 7]), Some("member")),
        (json!(["leads", "eng"]), Some("admin")),
        (json!("staff"), Some("viewer")),
        (json!([]), None),
        (json!(["eng"]), Some("member")),
        // Without the claim there are no groups.
        (Value::Null, None),
        (json!(["Eng", " eng", "en"]), None),
    ] {
        let mut browser = grace(&control, &provider, groups.clone()).await;
        let found = role(&control, &workspace, email).await;
        assert_eq!(found.as_deref(), expected, "{groups}");
        let status = browser
            .open(&format!("/api/workspaces/{workspace}"))
            .await
            .status;
        assert_eq!(status == 200, expected.is_some(), "{groups}: {status}");
    }
    let issuer = provider.issuer();
    let entry = |action: &str, role: Value| {
        (
            format!("member.{action}"),
            json!({"openid": issuer, "role": role}),
        )
    };
    let mut expected = vec![
        entry("added", json!("member")),
        entry("added", json!("member")),
        entry("changed", json!("admin")),
        entry("changed", json!("viewer")),
        entry("removed", Value::Null),
        entry("removed", Value::Null),
    ];
    expected.sort_by_key(|(action, details)| (action.clone(), details.to_string()));
    assert_eq!(actions(&control, &workspace).await, expected);
}

/// Otherwise a provider could take a workspace from its owner, or end the suspension of a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_never_change_a_role_that_a_person_gave() {
    let provider = Provider::start().await;
    let (control, workspace) = world(&provider).await;
    let email = "grace@example.com";
    let mut browser = grace(&control, &provider, json!(["eng"])).await;
    assert_eq!(
        role(&control, &workspace, email).await.as_deref(),
        Some("member")
    );
    let grace_id = browser.open("/api/user").await.json()["id"].clone();
    let path = format!(
        "/api/workspaces/{workspace}/members/{}",
        grace_id.as_str().unwrap()
    );
    let mut ada = control.signed_in("Ada").await;
    // The role is still that of the group.
    for status in ["suspended", "active"] {
        let changed = ada
            .api(Method::PATCH, &path, json!({"status": status}))
            .await;
        assert_eq!(changed.status, 200, "{}", changed.text);
        if status == "suspended" {
            for groups in [json!([]), json!(["eng"])] {
                grace(&control, &provider, groups).await;
            }
        }
        let members = format!("/api/workspaces/{workspace}/members");
        let members = ada.open(&members).await.expect(200);
        let mut members = members["members"].as_array().unwrap().iter();
        let member = members.find(|member| member["email"] == email).unwrap();
        assert_eq!(member["status"], status);
    }
    let changed = ada
        .api(Method::PATCH, &path, json!({"role": "viewer"}))
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    for groups in [json!(["leads"]), json!([]), json!(["eng"])] {
        grace(&control, &provider, groups).await;
        assert_eq!(
            role(&control, &workspace, email).await.as_deref(),
            Some("viewer")
        );
    }
    let owner = json!({
        "sub": "ada-1", "email": "ada@example.com", "email_verified": true, "groups": ["staff"],
    });
    let mut browser = control.browser();
    sign_in(&control, &provider, &mut browser, "/account", owner).await;
    let found = role(&control, &workspace, "ada@example.com").await;
    assert_eq!(found.as_deref(), Some("owner"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_may_be_at_the_userinfo_endpoint() {
    let provider = Provider::start().await;
    let (control, workspace) = world(&provider).await;
    // The address there is not used, because the ID token has one.
    provider.set_user_info(json!({
        "sub": "g-1", "groups": ["leads"], "email": "eve@example.com", "email_verified": true,
    }));
    grace(&control, &provider, Value::Null).await;
    let found = role(&control, &workspace, "grace@example.com").await;
    assert_eq!(found.as_deref(), Some("admin"));
    assert_eq!(role(&control, &workspace, "eve@example.com").await, None);
    // The ID token comes first.
    grace(&control, &provider, json!(["staff"])).await;
    let found = role(&control, &workspace, "grace@example.com").await;
    assert_eq!(found.as_deref(), Some("viewer"));
}

/// A change of the rules takes effect at the next sign-in with the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_of_the_configured_groups_and_workspaces_only() {
    let provider = Provider::start().await;
    let (control, workspace) = world(&provider).await;
    grace(&control, &provider, json!(["eng"])).await;
    let other = json!({
        "sign_up": "anyone",
        "groups_claim": "groups",
        "groups": [{"group": "staff", "workspace": workspace, "role": "viewer"}],
    });
    let sections = json!({"openid": section(&provider, &other)});
    let control = control.configured(sections).await;
    let email = "grace@example.com";
    assert_eq!(
        role(&control, &workspace, email).await.as_deref(),
        Some("member")
    );
    grace(&control, &provider, json!(["eng"])).await;
    assert_eq!(role(&control, &workspace, email).await, None);
    // The same applies after the last rule was removed.
    grace(&control, &provider, json!(["staff"])).await;
    let given = role(&control, &workspace, email).await;
    assert_eq!(given.as_deref(), Some("viewer"));
    let sections = json!({"openid": section(&provider, &json!({"sign_up": "anyone"}))});
    let control = control.configured(sections).await;
    grace(&control, &provider, json!(["staff"])).await;
    assert_eq!(role(&control, &workspace, email).await, None);
}

/// A sign-in does not fail because of a role that cannot be given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_workspace_gets_no_member_from_a_group() {
    let provider = Provider::start().await;
    let (control, workspace) = world(&provider).await;
    let openid = json!({
        "sign_up": "anyone",
        "groups_claim": "groups",
        "groups": [{"group": "eng", "workspace": workspace, "role": "member"}],
    });
    let sections = json!({
        "openid": section(&provider, &openid),
        "limits": {"members_per_workspace": 1},
    });
    let control = control.configured(sections).await;
    grace(&control, &provider, json!(["eng"])).await;
    assert_eq!(role(&control, &workspace, "grace@example.com").await, None);
}
