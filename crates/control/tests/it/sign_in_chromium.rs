//! Signing in, in a real browser.

use serde_json::json;

use crate::browser::PASSWORD;
use crate::chromium::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_signs_in_and_out_in_chromium() {
    let site = Site::start().await;
    site.person("Ada").await;
    let given = json!({"email": "ada@example.com", "password": PASSWORD});
    site.run("sign_in.mjs", given).await;
}
