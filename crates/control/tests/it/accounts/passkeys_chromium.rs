//! Passkeys in a real browser.

use serde_json::json;

use crate::chromium::Site;
use crate::support::PASSWORD;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_passkey_is_added_used_and_removed_in_chromium() {
    let site = Site::start().await;
    site.person("Ada").await;
    let given = json!({"email": "ada@example.com", "password": PASSWORD});
    site.run("passkeys.mjs", given).await;
}
