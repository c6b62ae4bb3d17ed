//! The hosted checkout steps in a browser (CP-4d).

use http::Method;
use serde_json::{Value, json};

use crate::support::both;
use crate::support::{BASE_URL, Browser, TestControl};

/// Submits the form of the page.
async fn confirm(
    browser: &mut Browser<'_>,
    page: &crate::support::Answer,
) -> crate::support::Answer {
    let names = [
        "workspaceId",
        "name",
        "plan",
        "provider",
        "region",
        "creationFingerprint",
        "idempotencyKey",
    ];
    let fields = names.map(|name| {
        let value = page.between(&format!("name=\"{name}\" value=\""), "\"");
        (name, value.to_owned())
    });
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    browser.submit("/billing/checkout", &fields).await
}

async fn preview(browser: &mut Browser<'_>, creation: &str) -> Value {
    let path = format!("{creation}/plan/config");
    let config = browser.api(Method::GET, &path, Value::Null).await;
    config.json()["plans"][1].clone()
}

both! {
    cp_4d_a_first_project_is_paid_for_on_the_hosted_page,
    cp_4b_a_stale_checkout_shows_the_current_offer,
    cp_4d_without_checkout_a_page_starts_no_subscription,
}

/// CP-4d, CP-4e: the answer of the creation leads to a page that creates and pays, once. After
/// that, a further project needs no checkout.
async fn cp_4d_a_first_project_is_paid_for_on_the_hosted_page(control: TestControl) {
    let workspace = control.person("ada").await.workspace;
    let mut browser = control.browser();
    browser.sign_in("ada", crate::support::PASSWORD).await;
    let creation = format!("/api/workspaces/{workspace}/projects/tunnels");
    let offer = preview(&mut browser, &creation).await;
    let order = json!({
        "name": "<b>Ada & co</b>", "plan": "pro", "provider": "other", "region": "local",
        "creationFingerprint": offer["creationFingerprint"], "idempotencyKey": "api",
    });
    let refused = browser.api(Method::POST, &creation, order).await;
    assert_eq!(refused.status, 402);
    let address = refused.json()["url"].as_str().unwrap().to_owned();
    let path = address.strip_prefix(BASE_URL).unwrap();

    // A visitor without a session signs in first, and then returns.
    let stranger = control.browser().open(path).await;
    assert_eq!(stranger.status, 303);
    let login = stranger.location.unwrap();
    assert!(
        login.starts_with("/login?next=/billing/checkout?workspaceId=wks_"),
        "{login}"
    );

    let page = browser.open(path).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("19.00 EUR") && !page.text.contains("<b>Ada"),
        "{}",
        page.text
    );
    let encoded = page
        .text
        .replace("&#60;", "<")
        .replace("&#62;", ">")
        .replace("&#38;", "&")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let page = crate::support::Answer {
        text: encoded,
        ..page
    };
    let done = confirm(&mut browser, &page).await;
    assert_eq!(done.status, 200, "{}", done.text);
    // A form that is submitted twice creates the project once.
    assert_eq!(confirm(&mut browser, &page).await.text, done.text);
    let list = browser
        .api(Method::GET, "/api/projects/tunnels", Value::Null)
        .await
        .json();
    assert_eq!(
        (&list["total"], &list["projects"][0]["name"]),
        (&json!(1), &json!("<b>Ada & co</b>"))
    );
    assert_eq!(
        preview(&mut browser, &creation).await["billingAction"]["type"],
        "update_subscription"
    );
}

/// CP-4b: the page also confirms exactly the offer that it shows.
async fn cp_4b_a_stale_checkout_shows_the_current_offer(control: TestControl) {
    let workspace = control.person("ada").await.workspace;
    let mut browser = control.browser();
    browser.sign_in("ada", crate::support::PASSWORD).await;
    let path = format!(
        "/billing/checkout?workspaceId={workspace}&plan=pro&provider=other&region=local&name=One"
    );
    let page = browser.open(&path).await;
    let setup = browser
        .submit("/billing/setup", &[("workspaceId", workspace.as_str())])
        .await;
    assert_eq!(setup.status, 303);
    let stale = confirm(&mut browser, &page).await;
    assert_eq!(stale.status, 409);
    assert!(
        stale.text.contains("The offer has changed"),
        "{}",
        stale.text
    );
    assert_eq!(confirm(&mut browser, &stale).await.status, 200);
    for bad in [
        "plan=gold&provider=other&region=local&name=One",
        "plan=pro&provider=other&region=local&name=",
    ] {
        let page = browser
            .open(&format!("/billing/checkout?workspaceId={workspace}&{bad}"))
            .await;
        assert_eq!(page.status, 400, "{bad}");
    }
    let foreign = "/billing/setup?workspaceId=wks_01h455vb4pex5vsknk084sn02q";
    assert_eq!(browser.open(foreign).await.status, 404);
    let forged = [("sec-fetch-site", "cross-site")];
    let forged = browser
        .submit_from(
            "/billing/setup",
            &[("workspaceId", workspace.as_str())],
            &forged,
        )
        .await;
    assert_eq!(forged.status, 403);
}

/// CP-4d: without a configured checkout no form starts a subscription. One that the operator
/// started can be completed.
async fn cp_4d_without_checkout_a_page_starts_no_subscription(control: TestControl) {
    let catalog = json!({"catalog": {"hosted_checkout": false}});
    let control = control.configured(catalog).await;
    let ada = control.person("ada").await;
    let mut browser = control.signed_in("ada").await;
    let path = format!("/billing/setup?workspaceId={}", ada.workspace);
    let fields = [("workspaceId", ada.workspace.as_str())];
    assert_eq!(browser.open(&path).await.status, 409);
    let refused = browser.submit("/billing/setup", &fields).await;
    assert_eq!(refused.status, 409);
    let creation = format!("/api/workspaces/{}/projects/tunnels", ada.workspace);
    let offer = preview(&mut browser, &creation).await;
    assert_eq!(offer["billingAction"]["type"], "checkout");
    assert_eq!(offer["available"], false);

    control.subscribe(ada.workspace).await;
    assert_eq!(browser.open(&path).await.status, 200);
    let done = browser.submit("/billing/setup", &fields).await;
    assert_eq!(done.status, 303);
}
