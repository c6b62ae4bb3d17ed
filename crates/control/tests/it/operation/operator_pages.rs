//! `/operator` in a browser.

use store::users::{self, Role};

use crate::support::{PASSWORD, Person, TestControl, both};

both! {
    operators_find_and_suspend_in_a_browser,
    operator_pages_do_not_exist_for_other_users,
}

async fn operator(control: &TestControl) -> Person {
    let person = control.person("Ops").await;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.now();
    users::set_role(&mut tx, person.user, Role::Admin, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    person
}

async fn operators_find_and_suspend_in_a_browser(control: TestControl) {
    let ops_id = operator(&control).await.user;
    let ada = control.person("Ada").await;
    let (ada_id, workspace) = (ada.user, ada.workspace);
    let mut ada = control.signed_in("Ada").await;
    let mut ops = control.signed_in("Ops").await;
    let home = ops.open("/operator").await;
    assert_eq!(home.location.as_deref(), Some("/operator/users"));
    let list = ops.open("/operator/users?q=ADA").await;
    assert_eq!(list.status, 200);
    assert!(list.text.contains(ada_id.as_str()) && !list.text.contains(ops_id.as_str()));
    assert!(!list.text.contains("<script"));
    let suspend = format!("/operator/users/{ada_id}/suspend");
    let again = ops.submit(&suspend, &[("reason", " ")]).await;
    assert_eq!(again.status, 422);
    assert!(again.text.contains("role=\"alert\""));
    assert_eq!(ada.open("/account").await.status, 200);
    let done = ops.submit(&suspend, &[("reason", "spam")]).await;
    assert_eq!(
        done.location.as_deref(),
        Some("/operator/users?done=suspended")
    );
    let out = ada.open("/account").await;
    assert_eq!(out.location.as_deref(), Some("/login?next=/account"));
    // Suspended, unknown or wrong password: the answer is the same.
    let mut anonymous = control.browser();
    let suspended = anonymous.sign_in("Ada", PASSWORD).await;
    let wrong = control.browser().sign_in("Ops", "another password").await;
    assert_eq!(suspended.status, wrong.status);
    let strip = |text: &str| text.replace("ada@", "").replace("ops@", "");
    assert_eq!(strip(&suspended.text), strip(&wrong.text));
    let foreign = [("origin", "https://evil.example")];
    let resume = format!("/operator/users/{ada_id}/resume");
    let refused = ops.submit_from(&resume, &[], &foreign).await;
    assert_eq!(refused.status, 403);
    ops.submit(&resume, &[]).await;
    control.signed_in("Ada").await;
    let path = format!("/operator/workspaces/{workspace}/suspend");
    ops.submit(&path, &[("reason", "spam")]).await;
    let list = ops.open("/operator/workspaces?done=suspended").await;
    assert!(list.text.contains("<strong>suspended</strong>"));
    assert_eq!(ops.open("/operator/projects").await.status, 200);
    assert_eq!(ops.open("/operator/secrets").await.status, 404);
}

async fn operator_pages_do_not_exist_for_other_users(control: TestControl) {
    operator(&control).await;
    let ada_id = control.person("Ada").await.user;
    let mut ada = control.signed_in("Ada").await;
    for path in [
        "/operator/users",
        "/operator/workspaces",
        "/operator/projects",
    ] {
        assert_eq!(ada.open(path).await.status, 404, "{path}");
    }
    let suspend = format!("/operator/users/{ada_id}/suspend");
    let answer = ada.submit(&suspend, &[("reason", "me")]).await;
    assert_eq!(answer.status, 404);
    let mut anonymous = control.browser();
    let answer = anonymous.open("/operator/users").await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/login?next=/operator/users")
    );
}
