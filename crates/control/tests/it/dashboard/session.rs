//! The session as the caller of the API.

use http::Method;
use serde_json::{Value, json};
use store::members::Role;

use crate::support::{BASE_URL, TestControl, both};

both! {
    a_page_reads_and_writes_with_the_rights_of_its_user,
    reads_for_other_sites_are_refused,
    a_lost_role_and_the_sign_out_take_effect_at_once,
    a_user_lists_and_ends_sessions,
}

/// CP-13.
async fn a_page_reads_and_writes_with_the_rights_of_its_user(control: TestControl) {
    let ada = control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let whoami = browser.api(Method::GET, "/api/whoami", Value::Null).await;
    let whoami = whoami.expect(200);
    assert_eq!(whoami["type"], "session");
    assert_eq!(whoami["email"], "ada@example.com");
    let path = format!("/api/workspaces/{}", ada.workspace);
    let body = json!({"name": "Analytical Engines"});
    let renamed = browser.api(Method::PATCH, &path, body).await;
    assert_eq!(renamed.expect(200)["name"], "Analytical Engines");
}

async fn reads_for_other_sites_are_refused(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://evil.example"),
        ],
    ] {
        let answer = browser.send(Method::GET, "/api/user", None, headers).await;
        assert_eq!(answer.problem(), (403, "foreign_origin".to_owned()));
    }
    // A typed address, a page of the platform, and a public document that another site links to.
    let own = [("sec-fetch-site", "same-origin"), ("origin", BASE_URL)];
    let typed = [("sec-fetch-site", "none")];
    let linked = [("sec-fetch-site", "cross-site")];
    for (path, headers) in [
        ("/api/user", own.as_slice()),
        ("/api/user", typed.as_slice()),
        ("/api/openapi.json", linked.as_slice()),
    ] {
        let answer = browser.send(Method::GET, path, None, headers).await;
        assert_eq!(answer.status, 200, "{path} {headers:?}");
    }
}

async fn a_lost_role_and_the_sign_out_take_effect_at_once(control: TestControl) {
    let (ada, grace) = (control.person("Ada").await, control.person("Grace").await);
    control.join(&grace, ada.workspace, Role::Admin).await;
    let mut browser = control.signed_in("Grace").await;
    let path = format!("/api/workspaces/{}", ada.workspace);
    let rename = || json!({"name": "Looms"});
    browser
        .api(Method::PATCH, &path, rename())
        .await
        .expect(200);
    let member = format!("{path}/members/{}", grace.user);
    let role = json!({"role": "viewer"});
    let changed = control
        .send(Method::PATCH, &member, Some(&ada.token), Some(&role))
        .await;
    changed.expect(200);
    let refused = browser.api(Method::PATCH, &path, rename()).await;
    assert_eq!(refused.problem(), (403, "insufficient_scope".to_owned()));
    let cookie = browser.cookie.clone();
    browser.submit("/logout", &[]).await;
    browser.cookie = cookie;
    let refused = browser.api(Method::GET, &path, Value::Null).await;
    assert_eq!(refused.problem(), (401, "unauthenticated".to_owned()));
}

async fn a_user_lists_and_ends_sessions(control: TestControl) {
    let (ada, eve) = (control.person("Ada").await, control.person("Eve").await);
    let (mut here, mut there) = (
        control.signed_in("Ada").await,
        control.signed_in("Ada").await,
    );
    let list = here
        .api(Method::GET, "/api/user/sessions", Value::Null)
        .await;
    let list = list.expect(200)["sessions"].clone();
    let current: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["current"].as_bool().unwrap())
        .collect();
    assert_eq!(current.len(), 2);
    assert_eq!(current.iter().filter(|current| **current).count(), 1);
    let mut sessions = list.as_array().unwrap().iter();
    let other = sessions.find(|session| session["current"] == false);
    let id = other.unwrap()["id"].as_str().unwrap();
    let path = format!("/api/user/sessions/{id}");
    // Another user's session does not exist.
    let answer = control.delete(&path, &eve.token).await;
    assert_eq!(answer.problem(), (404, "not_found".to_owned()));
    // A session has more rights than this token.
    let weak = json!({"permissions": ["account.credentials.read-write"]});
    let weak = control.delegated(&ada, weak).await;
    let answer = control.delete(&path, &weak).await;
    assert_eq!(answer.problem(), (403, "insufficient_scope".to_owned()));
    let answer = there.api(Method::GET, "/api/user", Value::Null).await;
    answer.expect(200);
    here.api(Method::DELETE, &path, Value::Null)
        .await
        .expect(204);
    let answer = there.api(Method::GET, "/api/user", Value::Null).await;
    assert_eq!(answer.problem(), (401, "unauthenticated".to_owned()));
    let again = here.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(again.problem(), (404, "not_found".to_owned()));
}
