//! The authorization server, from the view of clients, browsers and attackers.

mod codes;
mod device;
mod documents;
mod flow;
mod metadata;
mod security;
mod suspended;
mod validation;

use http::Method;
use types::form::{Form, encode};

use crate::support::{Answer, Browser, CALLBACK, TestControl};

/// The pair of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const SCOPE: &str = "account.projects.read-only tunnels.resources.read-only";

/// These parameters with changes. A change to an empty value removes the parameter.
fn changed<'a>(
    parameters: &[(&'a str, &'a str)],
    changes: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let is_changed = |name: &str| changes.iter().any(|(other, _)| *other == name);
    let kept = parameters.iter().filter(|(name, _)| !is_changed(name));
    kept.chain(changes)
        .filter(|(_, value)| !value.is_empty())
        .copied()
        .collect()
}

/// The URL of an authorization request.
pub(crate) fn authorize(changes: &[(&str, &str)]) -> String {
    let parameters = [
        ("response_type", "code"),
        ("client_id", "web"),
        ("redirect_uri", CALLBACK),
        ("scope", SCOPE),
        ("state", "xyz ä&"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    let query = encode(changed(&parameters, changes));
    format!("/oauth/authorize?{query}")
}

/// Presses a button of a page with hidden fields.
async fn press(browser: &mut Browser<'_>, page: &Answer, decision: &str) -> Answer {
    let action = page.between("<form method=\"post\" action=\"/oauth", "\"");
    let request = page.between("name=\"request\" value=\"", "\"");
    let request = request.replace("&#38;", "&").replace("&amp;", "&");
    let session = page.between("name=\"session\" value=\"", "\"").to_owned();
    let fields = [
        ("request", request.as_str()),
        ("session", &session),
        ("decision", decision),
    ];
    browser.submit(&format!("/oauth{action}"), &fields).await
}

/// The parameters with which the browser reaches the callback.
#[track_caller]
fn at_callback(answer: &Answer) -> Form {
    assert_eq!(answer.status, 303, "{}", answer.text);
    let location = answer.location.as_deref().unwrap();
    let query = location.strip_prefix(CALLBACK).unwrap();
    let mut form = Form::parse(query).unwrap();
    assert_eq!(form.take("iss").as_deref(), Some(crate::support::BASE_URL));
    form
}

/// A code that the user in the browser approved.
async fn code(browser: &mut Browser<'_>, changes: &[(&str, &str)]) -> String {
    let page = browser.open(&authorize(changes)).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let answer = press(browser, &page, "approve").await;
    at_callback(&answer).take("code").unwrap()
}

/// A request of a program: a form without a cookie or an `Origin`.
async fn program(control: &TestControl, path: &str, fields: &[(&str, &str)]) -> Answer {
    control.browser().submit_from(path, fields, &[]).await
}

/// Redeems a code.
async fn redeem(control: &TestControl, code: &str, changes: &[(&str, &str)]) -> Answer {
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", "web"),
        ("redirect_uri", CALLBACK),
        ("code", code),
        ("code_verifier", VERIFIER),
    ];
    program(control, "/oauth/token", &changed(&fields, changes)).await
}

/// An access token that the user in the browser approved.
async fn access_token(browser: &mut Browser<'_>, control: &TestControl) -> String {
    let code = code(browser, &[]).await;
    let answer = redeem(control, &code, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

/// A request to the API with a token.
async fn with_token(control: &TestControl, path: &str, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let mut browser = control.browser();
    browser.send(Method::GET, path, None, &headers).await
}

/// The error code of a refusal.
#[track_caller]
fn error(answer: &Answer) -> String {
    assert!(!(200..300).contains(&answer.status), "{}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.json()["error"].as_str().unwrap().to_owned()
}

/// The audit log, oldest first. Entries of the same time are sorted by name.
async fn audit(control: &TestControl) -> Vec<(String, serde_json::Value)> {
    let mut read = control.app.store.read().await.unwrap();
    let all = store::audit::list_all(&mut read, store::Paging::DEFAULT).await;
    let mut entries = all.unwrap().items;
    entries.sort_by_key(|entry| (entry.created_at, entry.action.clone()));
    entries
        .into_iter()
        .filter(|entry| entry.action.starts_with("oauth."))
        .map(|entry| (entry.action, entry.details))
        .collect()
}
