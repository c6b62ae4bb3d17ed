//! Cross-site writes in a browser are refused by every route that reads a cookie, including routes
//! added later.

use std::collections::BTreeSet;
use std::path::Path;

use api::control::{Access, Method, operations};
use control::pages::same_origin::WITHOUT_COOKIES;
use http::StatusCode;

use crate::http_api::walk::method;
use crate::support::TestControl;

/// The paths of this crate's sources that take a form: `.route("/path", … post(…) …)`.
fn paths_of_forms() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for route in text.split(".route(").skip(1) {
                let route = route.split(".route(").next().unwrap();
                let (path, handlers) = route.split_once(',').unwrap();
                let handlers = handlers.split("\n        .").next().unwrap();
                let path = path.trim();
                if !handlers.contains("post(") {
                    continue;
                }
                let path = match path.strip_prefix('"') {
                    Some(path) => path.trim_end_matches('"').to_owned(),
                    None => constant(path).to_owned(),
                };
                found.insert(path);
            }
        }
    }
    found
}

/// The paths that are constants in the sources.
fn constant(name: &str) -> &'static str {
    match name {
        "AUTHORIZE" => api::control::oauth::AUTHORIZE,
        "TOKEN" => api::control::oauth::TOKEN,
        "REVOKE" => api::control::oauth::REVOKE,
        "DEVICE_AUTHORIZATION" => api::control::oauth::DEVICE_AUTHORIZATION,
        "BACK_CHANNEL_LOGOUT" => control::people::openid::logout::BACK_CHANNEL_LOGOUT,
        "REPORTS" => api::link::REPORTS,
        "SIGN_IN" => api::link::SIGN_IN,
        other => panic!("{other} takes a form: add its path here"),
    }
}

#[tokio::test]
async fn no_form_of_another_site_is_accepted() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let mut browser = control.browser();
    browser.cookie = Some(control.session(&ada).await);
    let paths = paths_of_forms();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        if WITHOUT_COOKIES.contains(&path.as_str()) {
            continue;
        }
        for headers in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example")],
        ] {
            // With and without a session, because signing a user in is a write as well.
            for cookie in [browser.cookie.clone(), None] {
                let mut asking = browser.clone();
                asking.cookie = cookie;
                let answer = asking.submit_from(&path, &[], headers).await;
                assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
                assert!(
                    answer
                        .text
                        .contains("not sent from a page of this platform"),
                    "{path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn no_operation_is_callable_from_a_page_of_another_site() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let mut browser = control.browser();
    browser.cookie = Some(control.session(&ada).await);
    let mut writes = 0;
    for operation in operations() {
        let is_read = matches!(operation.method, Method::Get | Method::Head);
        if is_read || operation.access == Access::Public {
            continue;
        }
        writes += 1;
        let path: Vec<_> = operation
            .path
            .split('/')
            .map(|part| {
                if part.starts_with('{') {
                    "nothing"
                } else {
                    part
                }
            })
            .collect();
        for headers in [
            &[][..],
            &[("sec-fetch-site", "cross-site")],
            &[("origin", "https://evil.example")],
        ] {
            let body = operation.body.map(|body| {
                let text = (body.example)().to_string();
                ("application/json", text)
            });
            let answer = browser
                .send(method(operation), &path.join("/"), body, headers)
                .await;
            let problem = answer.problem();
            let wanted = (403, "foreign_origin".to_owned());
            assert_eq!(problem, wanted, "{}", operation.id);
        }
    }
    assert!(writes > 20);
}
