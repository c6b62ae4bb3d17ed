//! Suspended users and projects approve nothing and are not approved.

use serde_json::json;
use store::users::{self, Status};

use super::{SCOPE, at_callback, audit, authorize, error, press};
use crate::access::oauth::device;
use crate::access::oauth::device::{asked, poll, type_in};
use crate::access::oauth::flow::narrow;
use crate::support::{TestControl, both};

both! {
    a_suspended_user_approves_nothing,
    a_session_for_a_suspended_project_approves_nothing,
}

/// OA-2, OA-4: the pages were opened before the suspension.
async fn a_suspended_user_approves_nothing(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let page = browser.open(&authorize(&[])).await;
    let (device_code, user_code) = asked(&control).await;
    let screen = type_in(&mut browser, &user_code).await;
    let now = control.now();
    let mut tx = control.app.store.begin().await.unwrap();
    users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for answer in [
        press(&mut browser, &page, "approve").await,
        device::press(&mut browser, &screen, "approve").await,
    ] {
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert!(answer.location.unwrap().starts_with("/login"));
    }
    let waiting = poll(&control, &device_code).await;
    assert_eq!(error(&waiting), "authorization_pending");
    assert_eq!(audit(&control).await, []);
}

/// OA-2, OA-4: a grant of such a session could not be used. The session may still deny.
async fn a_session_for_a_suspended_project_approves_nothing(control: TestControl) {
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await.id;
    let mut browser = control.signed_in("Ada").await;
    let held: Vec<_> = SCOPE.split(' ').collect();
    let only = json!({"tunnels": {"projects": [project]}});
    narrow(&control, &mut browser, &held, only).await;
    let page = browser.open(&authorize(&[])).await;
    let (device_code, user_code) = asked(&control).await;
    let screen = type_in(&mut browser, &user_code).await;
    let mut tx = control.app.store.begin().await.unwrap();
    let suspended = store::projects::suspend(&mut tx, project, control.now()).await;
    assert!(suspended.unwrap());
    tx.commit().await.unwrap();
    for answer in [
        press(&mut browser, &page, "approve").await,
        device::press(&mut browser, &screen, "approve").await,
    ] {
        assert_eq!(answer.status, 409, "{}", answer.text);
    }
    let waiting = poll(&control, &device_code).await;
    assert_eq!(error(&waiting), "authorization_pending");
    assert_eq!(audit(&control).await, []);
    let denied = press(&mut browser, &page, "deny").await;
    let code = at_callback(&denied).take("error");
    assert_eq!(code.as_deref(), Some("access_denied"));
    device::press(&mut browser, &screen, "deny").await;
    let poll_answer = poll(&control, &device_code).await;
    assert_eq!(error(&poll_answer), "access_denied");
}
