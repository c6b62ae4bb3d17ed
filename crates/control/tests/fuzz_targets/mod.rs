//! Properties that hold for any input of the parsers that callers of the control plane can reach.
//! `fuzz/` feeds these functions with generated input, the tests with input from proptest.

use api::control::credentials::{CreateCredential, RotateCredential};
use api::control::domains::CreateDomain;
use api::control::projects::{CreateProject, TransferProject, UpdateProject};
use api::control::settings::{ProjectSettings, ProjectSettingsPatch};
use api::control::tokens::MintToken;
use api::control::turn::IssueTurnCredential;
use api::control::webhooks::{CreateWebhook, UpdateWebhook};
use control::http_api::extract::{Query, read_json};
use control::people::cookie::Cookie;
use control::people::email::Email;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A query, or the body of a form.
pub(crate) fn control_query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let names: Vec<&str> = text
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .collect();
    let Ok(mut query) = Query::parse(text) else {
        return;
    };
    if let Ok(page) = query.page() {
        assert!(page.page > 0 && (1..=100).contains(&page.size));
    }
    for name in ["page", "pageSize"].into_iter().chain(names) {
        query.text(name);
    }
    let is_plain = !text.contains(['%', '+']);
    assert!(
        query.finish().is_ok() || !is_plain,
        "a named parameter is found by its name"
    );
}

/// A JSON body, as each operation would read it.
pub(crate) fn control_body(data: &[u8]) {
    body::<CreateProject>(data);
    body::<UpdateProject>(data);
    body::<TransferProject>(data);
    body::<ProjectSettings>(data);
    body::<ProjectSettingsPatch>(data);
    body::<CreateCredential>(data);
    body::<RotateCredential>(data);
    body::<MintToken>(data);
    body::<IssueTurnCredential>(data);
    body::<CreateDomain>(data);
    body::<CreateWebhook>(data);
    body::<UpdateWebhook>(data);
}

fn body<T: DeserializeOwned + Serialize>(data: &[u8]) {
    match read_json::<T>(data) {
        Ok(read) => {
            let once = serde_json::to_vec(&read).unwrap();
            let again = read_json::<T>(&once).expect("a parsed body parses again");
            assert_eq!(serde_json::to_vec(&again).unwrap(), once);
        }
        Err(refusal) => assert_eq!(refusal.problem().status, 400),
    }
}

/// A `Cookie` field, or two fields separated by a line feed.
pub(crate) fn control_cookie(data: &[u8]) {
    let bases = ["https://svc.example", "http://127.0.0.1:8080"];
    for cookie in bases
        .into_iter()
        .flat_map(|base| [Cookie::session(base), Cookie::sign_in(base)])
    {
        let fields = || data.split(|byte| *byte == b'\n');
        if let Some(secret) = cookie.read(fields()) {
            let written = format!("{}={}", cookie.name(), secret.reveal());
            let again = cookie.read([written.as_bytes()]).unwrap();
            assert_eq!(again.reveal(), secret.reveal());
            let twice = fields().chain([written.as_bytes()]);
            assert!(cookie.read(twice).is_none(), "two cookies are refused");
        }
    }
}

/// A mail address.
pub(crate) fn control_email(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(email) = Email::parse(text) {
        let text = email.as_str();
        assert!(text.is_ascii() && !text.contains(|letter: char| letter.is_ascii_control()));
        assert!(
            !text.contains([' ', ',', '<', '>', '"']),
            "{text} would need quotes"
        );
        assert!(Email::parse(text) == Ok(email.clone()));
    }
}
