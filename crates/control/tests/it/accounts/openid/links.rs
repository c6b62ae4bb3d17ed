//! An identity is linked to an account by the account's own proof, and removed again.

use http::StatusCode;
use serde_json::{Value, json};
use store::{revoked_tokens, sessions};

use super::provider::Provider;
use super::unconfirmed_addresses::rule;
use super::{address, identities, sign_in, value, with_provider};
use crate::support::{Answer, Browser, TestControl};

fn ada() -> Value {
    json!({"sub": "a-1", "preferred_username": "ada@example.com", "name": "Ada"})
}

/// Submits the form of the account page. Returns the query that the browser sends to the provider.
async fn begin_link(browser: &mut Browser<'_>) -> Vec<(String, String)> {
    let account = browser.open("/account").await;
    assert!(
        account.text.contains("action=\"/account/openid/link\""),
        "{}",
        account.text
    );
    let page = browser.submit("/account/openid/link", &[]).await;
    address(&page).query_pairs().into_owned().collect()
}

/// The browser's return from the provider.
async fn come_back(
    control: &TestControl,
    provider: &Provider,
    browser: &mut Browser<'_>,
    query: &[(String, String)],
    claims: &Value,
) -> Answer {
    provider.set_next_token(control.app.now(), value(query, "nonce"), claims);
    let state = value(query, "state");
    browser
        .open(&format!("/login/openid/callback?code=abc&state={state}"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_in_user_links_an_identity_and_removes_it() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    let user = control.person("Ada").await.user;
    let mut stranger = control.browser();
    let refused = sign_in(&control, &provider, &mut stranger, "/account", ada()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.text.contains("You have an account here already"));

    let mut browser = control.signed_in("Ada").await;
    let cookie = browser.cookie.clone();
    let query = begin_link(&mut browser).await;
    let answer = come_back(&control, &provider, &mut browser, &query, &ada()).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/account?done=linked"),
        "{}",
        answer.text
    );
    assert_eq!(
        (&browser.cookie, &browser.sign_in),
        (&cookie, &None),
        "the session stays"
    );
    assert_eq!(identities(&control, user).await, 1);
    let mails = control.mails().await.concat();
    assert!(
        mails.contains("signing in with \"Example ID\" was added"),
        "{mails}"
    );
    let account = browser.open("/account?done=linked").await;
    assert!(
        account.text.contains("You sign in with Example ID."),
        "{}",
        account.text
    );
    assert!(account.text.contains("Stop signing in with Example ID"));
    assert!(!account.text.contains("/account/openid/link"));

    let mut other = control.browser();
    sign_in(&control, &provider, &mut other, "/account", ada()).await;
    assert_eq!(other.open("/api/user").await.json()["id"], user.as_str());
    let mut read = control.app.store.read().await.unwrap();
    let started = sessions::of_subject(&mut read, provider.issuer(), "a-1").await;
    let other_id = started.unwrap()[0].id;
    drop(read);

    // The sessions that the identity started end with it, but not the one that removes it.
    let answer = browser.submit("/account/openid/unlink", &[]).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/account?done=unlinked"),
        "{}",
        answer.text
    );
    assert_eq!(identities(&control, user).await, 0);
    assert_eq!(browser.open("/api/user").await.status, 200);
    assert_eq!(other.open("/api/user").await.status, 401);
    let mut read = control.app.store.read().await.unwrap();
    let is_revoked = revoked_tokens::is_revoked(&mut read, other_id.as_str()).await;
    assert!(is_revoked.unwrap());
    drop(read);
    let refused = sign_in(&control, &provider, &mut stranger, "/account", ada()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let mut read = control.app.store.read().await.unwrap();
    let entries = store::audit::of_user(&mut read, user, store::Paging::DEFAULT).await;
    let entries = entries.unwrap().items;
    let actions = ["identity_linked", "identity_unlinked", "sessions_ended"];
    for action in actions.map(|action| format!("user.{action}")) {
        let entry = entries.iter().find(|entry| entry.action == action).unwrap();
        assert_eq!(entry.details["openid"], provider.issuer());
    }
}

/// The identity is another way to sign in, so an unattended browser is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn linking_and_removing_need_a_recent_proof() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    control.clock.advance(11 * 60);
    for path in ["/account/openid/link", "/account/openid/unlink"] {
        let answer = browser.submit(path, &[]).await;
        let confirm = "/account/confirm?next=/account";
        assert_eq!(answer.location.as_deref(), Some(confirm), "{path}");
        let answer = control.browser().submit(path, &[]).await;
        assert_eq!(
            answer.location.as_deref(),
            Some("/login?next=/account"),
            "{path}"
        );
        let foreign = [
            ("sec-fetch-site", "cross-site"),
            ("origin", "https://evil.example"),
        ];
        let answer = browser.submit_from(path, &[], &foreign).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(provider.requests(), 0);
}

/// An attacker's identity must not become a way into another account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_is_linked_only_to_the_session_that_asked() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    let ada_id = control.person("Ada").await.user;
    let grace_id = control.person("Grace").await.user;
    // Another user signs in meanwhile, or the user signs in again or signs out.
    for name in [Some("Grace"), Some("Ada"), None] {
        let mut browser = control.signed_in("Ada").await;
        let query = begin_link(&mut browser).await;
        match name {
            Some(name) => drop(browser.sign_in(name, crate::support::PASSWORD).await),
            None => drop(browser.submit("/logout", &[]).await),
        }
        let before = provider.requests();
        let answer = come_back(&control, &provider, &mut browser, &query, &ada()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text);
        assert!(provider.requests() > before, "the browser is the right one");
    }
    // The return belongs to the browser that started.
    let mut browser = control.signed_in("Ada").await;
    let query = begin_link(&mut browser).await;
    let mut other = control.signed_in("Grace").await;
    let answer = come_back(&control, &provider, &mut other, &query, &ada()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(identities(&control, ada_id).await, 0);
    let answer = come_back(&control, &provider, &mut browser, &query, &ada()).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    // An identity belongs to one account, and an account has one identity of the provider.
    let query = begin_link(&mut other).await;
    let answer = come_back(&control, &provider, &mut other, &query, &ada()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(
        answer.text.contains("belongs to another account"),
        "{}",
        answer.text
    );
    let page = browser.submit("/account/openid/link", &[]).await;
    let query: Vec<_> = address(&page).query_pairs().into_owned().collect();
    let mut second = ada();
    second["sub"] = json!("a-2");
    let answer = come_back(&control, &provider, &mut browser, &query, &second).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(
        (
            identities(&control, ada_id).await,
            identities(&control, grace_id).await
        ),
        (1, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_way_to_sign_in_is_not_removed() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    let mut claims = ada();
    claims["auth_time"] = json!(control.app.now().as_second());
    let mut browser = control.browser();
    sign_in(&control, &provider, &mut browser, "/account", claims).await;
    let answer = browser.submit("/account/openid/unlink", &[]).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(
        answer.text.contains("This is your only way to sign in"),
        "{}",
        answer.text
    );
    let mut again = control.browser();
    let answer = sign_in(&control, &provider, &mut again, "/account", ada()).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}
