//! Lists of several pages in a real browser.

use serde_json::json;
use store::users::{self, Role};

use crate::chromium::Site;
use crate::support::PASSWORD;

/// Rows of a page of the dashboard.
const PAGE: usize = 50;

/// The second page has one terminal server. Its dialogs open there, and its removal leads to the first
/// page. The same dialogs open on the second page of an operator.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_page_of_a_list_has_dialogs_in_chromium() {
    let site = Site::start().await;
    let ada = site.person("Ada").await;
    let mut tx = site.app.store.begin().await.unwrap();
    users::set_role(&mut tx, ada.user, Role::Admin, site.app.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let project = site.project(&ada).await;
    let path = format!("/api/projects/tunnels/{}/webtty/servers", project.id);
    for number in 0..=PAGE {
        let body = json!({"name": format!("server {number}")});
        site.post(&path, &ada.token, &body).await.expect(201);
    }
    // The list of users has Ada, too.
    for number in 0..PAGE {
        site.person(&format!("User{number}")).await;
    }
    let given = json!({"password": PASSWORD, "project": project.id.as_str(), "page": PAGE});
    site.run("dashboard_lists.mjs", given).await;
}
