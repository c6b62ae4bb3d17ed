//! Terminals in a real browser. The script plays the engine.

use std::net::TcpListener;

use serde_json::json;
use store::members::Role;

use crate::chromium::Site;
use crate::support::PASSWORD;

/// ED-1e: the address that opens a terminal has a token for one tunnel and path, valid for a
/// minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_opened_watched_handed_over_and_replayed() {
    run("terminals.mjs").await;
}

/// ED-1e: the same at a restricted server. Only that token has the permission that such a server
/// requires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_is_restored_for_its_opener() {
    run("found_terminals.mjs").await;
}

/// Search, size of letters, full screen, links and copying, and the search, the pauses and the
/// export of the player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_and_a_recording_have_their_tools() {
    run("terminal_tools.mjs").await;
}

/// The lists name user, command and duration, show more on request, and keep the focus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lists_of_terminals_describe_sessions_and_keep_the_focus() {
    run("terminal_lists.mjs").await;
}

/// A session that ends by request shows no error, and input that is not sent is reported, also after
/// signing out elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_session_and_of_a_sign_in_are_reported() {
    run("terminal_ends.mjs").await;
}

/// A page that watches tries again while requests fail, and asks to sign in again if it has to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watching_page_that_lost_its_connection_tries_again() {
    run("lost_watchers.mjs").await;
}

/// Runs a script with Ada, who owns a project, and the members Grace and Linus.
async fn run(script: &str) {
    // The platform needs the engine's port before the engine starts.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Browsers resolve names below `localhost` to this machine.
    let domain = "engine.localhost";
    let engines = json!([{"cluster_domain": domain}]);
    let region = json!({
        "provider": "other",
        "region": "local",
        "cluster_domain": domain,
        "engine_port": port,
    });
    let catalogue = format!("catalog: {}", json!({"regions": [region]}));
    let start = Site::start_beside(&engines, &catalogue);
    let site = Box::pin(start).await;
    let (ada, grace) = (site.person("Ada").await, site.person("Grace").await);
    let linus = site.person("Linus").await;
    for person in [&grace, &linus] {
        site.join(person, ada.workspace, Role::Member).await;
    }
    let project = site.project(&ada).await;
    let names = [
        format!("{}.{domain}", project.endpoint),
        format!("*.t.{domain}"),
    ];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let given = json!({
        "password": PASSWORD,
        "project": project.id,
        "endpoint": project.endpoint,
        "domain": domain,
        "certificate": made.cert.pem(),
        "key": made.signing_key.serialize_pem(),
        "people": {"ada": ada.user, "grace": grace.user, "linus": linus.user},
    });
    site.run_on(listener, script, given).await;
}
