//! The pages in a real browser.

use serde_json::json;

use crate::chromium::Site;
use crate::support::{CALLBACK, PASSWORD};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_is_checked_in_chromium() {
    let site = Site::start().await;
    for name in ["Ada", "Grace", "Alan"] {
        site.person(name).await;
    }
    site.run("pages.mjs", json!({"password": PASSWORD})).await;
}

/// OA-2, OA-4: consent and the approval of a device, before and after the decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oa_2_oa_4_the_consent_pages_are_checked_in_chromium() {
    let site = Site::start().await;
    // One user for each appearance, and one whose browser runs no scripts.
    let people = ["Ada", "Grace", "Alan", "Edsger", "Barbara"];
    for name in people {
        site.person(name).await;
    }
    let given = json!({"password": PASSWORD, "callback": CALLBACK, "people": people});
    site.run("grants.mjs", given).await;
}
