//! The pages in a real browser.

use serde_json::json;

use crate::chromium::Site;
use crate::support::PASSWORD;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_looked_at_in_chromium() {
    let site = Site::start().await;
    for name in ["Ada", "Grace", "Alan"] {
        site.person(name).await;
    }
    site.run("pages.mjs", json!({"password": PASSWORD})).await;
}
