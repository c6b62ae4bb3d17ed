//! Facts about users that the services of tunnels receive: the page that states them, the codes,
//! and the keys of assertions.

use credentials::{AssertionKey, Secret};
use serde_json::{Value, json};
use store::members::Role;

use super::sign_in::{code, host, one, path};
use super::{OTHER_SECRET, RELAY_SECRET, SECRET, linkable};
use crate::support::{PASSWORD, TestControl, both};

both! {
    ed_2_a_user_sees_and_agrees_to_what_the_service_receives,
    ed_2_only_the_facts_of_the_page_are_in_a_code,
    ed_2_each_cluster_publishes_the_keys_of_its_assertions,
}

/// The claims of a code, which other tests verify.
fn claims(code: &str) -> Value {
    credentials::inspect(code).unwrap()["claims"].clone()
}

/// The code on the page that leads back to the tunnel.
fn returned(page: &str) -> Value {
    let (_, rest) = page.split_once("callback?").unwrap();
    let address = format!("callback?{}", rest.split('"').next().unwrap());
    claims(&code(&address.replace("&#38;", "&")))
}

async fn ed_2_a_user_sees_and_agrees_to_what_the_service_receives(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let address = format!("{}&identity=email%2Cname%2Cgroups", path(&host(&project)));
    // With a sign-in before.
    let mut browser = control.browser();
    let login = browser.open(&address).await.location.unwrap();
    let next = login.strip_prefix("/login?next=").unwrap();
    let next = next.replace("%26", "&").replace("%25", "%");
    let fields = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", &next),
    ];
    let again = browser.submit("/login", &fields).await.location.unwrap();
    for at in [again.as_str(), &address] {
        let page = browser.open(at).await;
        assert_eq!(
            (page.status, page.location.as_deref()),
            (200, None),
            "{}",
            page.text
        );
        // Forms of a page without a referrer have no origin, and would be refused.
        assert_eq!(page.header("referrer-policy"), "same-origin");
        for part in [
            format!("The service at <b>{}</b> requests", host(&project)),
            "Email address: <b>ada@example.com</b></li>".to_owned(),
            "Your role in the workspace of this service: <b>owner</b>".to_owned(),
        ] {
            assert!(page.text.contains(&part), "{part}: {}", page.text);
        }
        assert!(
            !page.text.contains("code="),
            "before the user agrees: {}",
            page.text
        );
        // A script keeps the fragment until the form has been answered.
        assert!(
            page.text
                .contains("<script src=\"/fragment.js\" defer></script>")
        );
        let action = page.between("<form method=\"post\" action=\"", "\"");
        let next = page.between("name=\"next\" value=\"", "\"");
        assert_eq!(action, next);
        let action = action.replace("&#38;", "&");
        let page = browser.submit(&action, &[]).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let claims = returned(&page.text);
        assert_eq!(claims["sub"], json!(ada.user));
        assert_eq!(claims["identity"], json!(["email", "name", "groups"]));
        assert_eq!(claims["email"], "ada@example.com");
        assert!(claims["name"].is_string());
    }
    // Another site cannot submit the form.
    let evil = [("origin", "https://evil.example")];
    let foreign = browser.submit_from(&address, &[], &evil).await;
    assert_eq!(foreign.status, 403, "{}", foreign.text);
    // Without a session the user has to sign in first, and sees the page afterwards.
    let out = control.browser().submit(&address, &[]).await;
    assert!(
        out.location
            .unwrap()
            .starts_with("/login?next=/edge/sign-in?")
    );
}

async fn ed_2_only_the_facts_of_the_page_are_in_a_code(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let mut browser = control.signed_in("ada").await;
    let address = path(&host(&project));
    for (requested, email, name) in [
        ("email", true, false),
        ("name", false, true),
        ("groups", false, false),
    ] {
        let address = format!("{address}&identity={requested}");
        let page = browser.open(&address).await;
        assert_eq!(page.text.contains("Email address:"), email, "{}", page.text);
        assert_eq!(page.text.contains("<li>Name:"), name, "{}", page.text);
        assert_eq!(page.text.contains("Your role"), requested == "groups");
        let claims = returned(&browser.submit(&address, &[]).await.text);
        assert_eq!(claims["identity"], json!([requested]));
        assert_eq!(claims.get("email").is_some(), email, "{claims}");
        assert_eq!(claims.get("name").is_some(), name, "{claims}");
    }
    // Facts that the page cannot name are refused.
    for bad in [
        "phone",
        "email,phone",
        "email,email",
        "id",
        "assertion",
        ",",
        "EMAIL",
    ] {
        for answer in [
            browser.open(&format!("{address}&identity={bad}")).await,
            browser
                .submit(&format!("{address}&identity={bad}"), &[])
                .await,
        ] {
            assert_eq!((answer.status, answer.location), (400, None), "{bad}");
        }
    }
    // Services identify users by their addresses, so an unverified one is not shared.
    let eve = control.person_with("eve", false).await;
    control.join(&eve, ada.workspace, Role::Member).await;
    let mut browser = control.signed_in("eve").await;
    let address = format!("{address}&identity=email");
    let page = browser.open(&address).await;
    assert!(
        page.text.contains("not shared until you have verified it"),
        "{}",
        page.text
    );
    let claims = returned(&browser.submit(&address, &[]).await.text);
    assert!(claims.get("email").is_none(), "{claims}");
}

async fn ed_2_each_cluster_publishes_the_keys_of_its_assertions(control: TestControl) {
    let control = linkable(control).await;
    let keys = async |cluster: &str| {
        let answer = control
            .get(&format!("/keyrings/identity/{cluster}"), "")
            .await;
        (answer.status, answer.text)
    };
    let derived = |secret: &str| AssertionKey::derive(&Secret::new(secret)).unwrap();
    for (cluster, secret) in [("engine.example", SECRET), ("other.example", OTHER_SECRET)] {
        let (status, text) = keys(cluster).await;
        assert_eq!(status, 200, "{text}");
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document, json!({"keys": [derived(secret).jwk()]}));
        assert!(!text.contains("\"d\""), "no private key");
    }
    assert_eq!(keys("unknown.example").await.0, 404);
    // An engine's key verifies no token, and a relay has none.
    let jwks = control.get("/.well-known/jwks.json", "").await.text;
    for secret in [SECRET, OTHER_SECRET, RELAY_SECRET] {
        let derived = derived(secret);
        let id = derived.jwk()["kid"].as_str().unwrap();
        assert!(!jwks.contains(id), "{jwks}");
    }
    let relays = derived(RELAY_SECRET);
    let relays = relays.jwk()["kid"].as_str().unwrap();
    assert!(!keys("engine.example").await.1.contains(relays));
}
