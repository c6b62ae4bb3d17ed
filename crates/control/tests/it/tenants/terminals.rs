//! Terminal pages as rendered by the server: access, and the hosts that their script may contact.

use serde_json::{Value, json};
use store::members::Role;

use crate::node;
use crate::support::TestControl;

#[tokio::test]
async fn a_terminal_page_is_for_members_and_may_contact_only_its_engine() {
    let control = TestControl::start("").await;
    let (ada, grace) = (control.person("Ada").await, control.person("Grace").await);
    control.person("Eve").await;
    control.join(&grace, ada.workspace, Role::Viewer).await;
    let project = control.project(&ada).await;
    let (id, endpoint) = (project.id, &project.endpoint);
    let list = format!("/projects/{id}/terminals");
    let pages = [
        list.clone(),
        format!("{list}/web-1"),
        format!("/projects/{id}/sessions/wts_1"),
        format!("/projects/{id}/sessions/wts_1/replay"),
    ];
    for page in &pages {
        let answer = control.browser().open(page).await;
        assert_eq!(answer.status, 303, "{page}");
        let login = format!("/login?next={page}");
        assert_eq!(answer.location.as_deref(), Some(login.as_str()));
        // Users without access get a 404.
        assert_eq!(control.signed_in("Eve").await.open(page).await.status, 404);
        for name in ["Ada", "Grace"] {
            let answer = control.signed_in(name).await.open(page).await;
            assert_eq!(answer.status, 200, "{page} {name}");
            let policy = answer.header("content-security-policy");
            let own = format!("{endpoint}.engine.example");
            let connect = if *page == pages[1] {
                format!("connect-src 'self' https://{own} wss://{own} wss://*.t.engine.example;")
            } else {
                format!("connect-src 'self' https://{own} wss://{own};")
            };
            assert!(policy.contains(&connect), "{page}: {policy}");
            assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"));
            assert!(!answer.text.contains("<script>"), "{}", answer.text);
            let may_read_logs = answer.text.contains("webtty.logs.read-only");
            assert_eq!(may_read_logs, name == "Ada", "{page}");
        }
    }
}

#[tokio::test]
async fn names_from_an_address_are_escaped_on_the_page() {
    let control = TestControl::start("").await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let path = format!("/projects/{}/terminals/%22%3E%3Cscript%3E", project.id);
    let mut browser = control.signed_in("Ada").await;
    let answer = browser.open(&path).await;
    assert_eq!(answer.status, 200);
    assert!(!answer.text.contains("\"><script>"), "{}", answer.text);
}

#[tokio::test]
async fn third_party_scripts_and_their_licences_are_served() {
    let control = TestControl::start("").await;
    let mut browser = control.browser();
    for (name, kind) in [
        ("webtty.mjs", "text/javascript; charset=utf-8"),
        ("xterm.mjs", "text/javascript; charset=utf-8"),
        ("xterm.css", "text/css; charset=utf-8"),
        ("LICENSE-xterm.txt", "text/plain; charset=utf-8"),
    ] {
        let answer = browser.open(&format!("/terminal/{name}")).await;
        assert_eq!(
            answer.status, 200,
            "{name}: `cargo xtask test` fetches it before the build"
        );
        assert_eq!(answer.header("content-type"), kind);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(browser.open("/terminal/other.mjs").await.status, 404);
}

/// The pages read and write the messages of `crates/tty`, with the same test vectors.
#[test]
fn the_pages_implement_webtty() {
    let done = script("webtty_codec.mjs");
    assert!(done["vectors"].as_u64() > Some(15), "{done}");
}

#[test]
fn the_pages_reconnect_to_a_session_without_loss() {
    assert_eq!(script("webtty_returns.mjs")["returns"], true);
}

#[test]
fn the_search_of_the_pages_finds_every_place_once() {
    let done = script("webtty_find.mjs");
    assert!(done["searches"].as_u64() > Some(1000), "{done}");
}

/// Runs a script of `tests/node`.
fn script(name: &str) -> Value {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/node");
    let path = format!("{scripts}/{name}");
    node::run(&format!("await import({path:?})"), &json!({}))
}
