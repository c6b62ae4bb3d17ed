//! `/operator` in a browser.

use http::StatusCode;
use store::users::{self, Role};

use crate::browser::{PASSWORD, Platform, both};

both! {
    operators_find_and_suspend_in_a_browser
    for_others_there_is_no_such_page
}

async fn operator(platform: &Platform) -> types::id::UserId {
    let (id, _) = platform.person("Ops").await;
    let mut tx = platform.app.store.begin().await.unwrap();
    let now = platform.app.now();
    users::set_role(&mut tx, id, Role::Admin, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}

async fn operators_find_and_suspend_in_a_browser(platform: Platform) {
    let ops_id = operator(&platform).await;
    let (ada_id, workspace) = platform.person("Ada").await;
    let mut ada = platform.signed_in("Ada").await;
    let mut ops = platform.signed_in("Ops").await;
    let home = ops.open("/operator").await;
    assert_eq!(home.location.as_deref(), Some("/operator/users"));
    let list = ops.open("/operator/users?q=ADA").await;
    assert_eq!(list.status, StatusCode::OK);
    assert!(list.text.contains(ada_id.as_str()) && !list.text.contains(ops_id.as_str()));
    assert!(!list.text.contains("<script"));
    let suspend = format!("/operator/users/{ada_id}/suspend");
    let again = ops.submit(&suspend, &[("reason", " ")]).await;
    assert_eq!(again.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(again.text.contains("role=\"alert\""));
    assert_eq!(ada.open("/account").await.status, StatusCode::OK);
    let done = ops.submit(&suspend, &[("reason", "spam")]).await;
    assert_eq!(
        done.location.as_deref(),
        Some("/operator/users?done=suspended")
    );
    let out = ada.open("/account").await;
    assert_eq!(out.location.as_deref(), Some("/login?next=/account"));
    // Suspended, unknown, or another password: one answer.
    let mut nobody = platform.browser();
    let suspended = nobody.sign_in("Ada", PASSWORD).await;
    let wrong = platform.browser().sign_in("Ops", "another password").await;
    assert_eq!(suspended.status, wrong.status);
    let strip = |text: &str| text.replace("ada@", "").replace("ops@", "");
    assert_eq!(strip(&suspended.text), strip(&wrong.text));
    let foreign = [("origin", "https://evil.example")];
    let resume = format!("/operator/users/{ada_id}/resume");
    let refused = ops.submit_from(&resume, &[], &foreign).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    ops.submit(&resume, &[]).await;
    platform.signed_in("Ada").await;
    let path = format!("/operator/workspaces/{workspace}/suspend");
    ops.submit(&path, &[("reason", "spam")]).await;
    let list = ops.open("/operator/workspaces?done=suspended").await;
    assert!(list.text.contains("<strong>suspended</strong>"));
    assert_eq!(ops.open("/operator/projects").await.status, StatusCode::OK);
    assert_eq!(
        ops.open("/operator/secrets").await.status,
        StatusCode::NOT_FOUND
    );
}

async fn for_others_there_is_no_such_page(platform: Platform) {
    operator(&platform).await;
    let (ada_id, _) = platform.person("Ada").await;
    let mut ada = platform.signed_in("Ada").await;
    for path in [
        "/operator/users",
        "/operator/workspaces",
        "/operator/projects",
    ] {
        assert_eq!(ada.open(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let suspend = format!("/operator/users/{ada_id}/suspend");
    let answer = ada.submit(&suspend, &[("reason", "me")]).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let mut nobody = platform.browser();
    let answer = nobody.open("/operator/users").await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/login?next=/operator/users")
    );
}
