//! Providers that do not confirm addresses, as Entra ID does not, and the log of refused sign-ins.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::provider::Provider;
use super::{identities, section, sign_in, with_provider};
use crate::tenants::workspaces::{invite, team};

/// A provider as Entra ID answers: the address is in a claim that no provider confirms.
fn grace() -> Value {
    json!({"sub": "g-1", "preferred_username": "Grace@example.com", "name": "Grace"})
}

/// The configuration for a provider as Entra ID answers. Its addresses open no existing account.
pub(super) fn rule() -> Value {
    json!({
        "sign_up": "domains",
        "domains": ["example.com"],
        "trust_email": true,
        "email_claim": "preferred_username",
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_address_makes_an_account_that_has_proved_nothing() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    let mut browser = control.browser();
    let answer = sign_in(&control, &provider, &mut browser, "/api/user", grace()).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["email"], "grace@example.com");
    assert_eq!(user["emailVerified"], false);
    // The subject identifies the user from now on, whatever address the claim has.
    let mut again = control.browser();
    let mut moved = grace();
    moved["preferred_username"] = json!("ada@example.com");
    sign_in(&control, &provider, &mut again, "/api/user", moved).await;
    let same = again.open("/api/user").await.json();
    assert_eq!((&same["id"], &same["email"]), (&user["id"], &user["email"]));
}

/// A user can edit such a claim at some providers. It opens no account that exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_address_never_opens_an_existing_account() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &rule()).await;
    let user = control.person("Ada").await.user;
    for claims in [
        json!({"sub": "e-1", "preferred_username": "ada@example.com"}),
        json!({"sub": "e-1", "preferred_username": "ADA@EXAMPLE.com"}),
        // A confirmation of `email` is none of another claim.
        json!({
            "sub": "e-1",
            "preferred_username": "ada@example.com",
            "email": "eve@example.com",
            "email_verified": true,
        }),
    ] {
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert!(answer.text.contains("You have an account here already"));
        assert_eq!(browser.cookie, None);
    }
    assert_eq!(identities(&control, user).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_listed_domains_are_trusted() {
    let provider = Provider::start().await;
    let mut anyone = rule();
    anyone["sign_up"] = json!("anyone");
    let control = with_provider(&provider, &anyone).await;
    let claim = |text: &str| json!({"sub": "x", "preferred_username": text});
    for claims in [
        claim("x@evil.example"),
        claim("x@sub.example.com"),
        claim("x@notexample.com"),
        claim("x@example.com.evil.example"),
        claim("example.com"),
        claim(""),
        json!({"sub": "x"}),
        json!({"sub": "x", "preferred_username": ["x@example.com"]}),
        json!({"sub": "x", "preferred_username": "x@example.com", "email_verified": false}),
        json!({"sub": "x", "email": "x@example.com"}),
    ] {
        let mut browser = control.browser();
        let claims_text = claims.to_string();
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{claims_text}");
        assert_eq!(browser.cookie, None, "{claims_text}");
    }
}

/// The inviter has the link as well, and users can edit such a claim at some providers. Only the
/// mail proves that the address is the user's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_address_needs_the_link_in_the_mail() {
    let provider = Provider::start().await;
    let mut invited = rule();
    invited["sign_up"] = json!("invited");
    let sections = json!({
        "openid": section(&provider, &invited),
        "mail": {"links_create_accounts": false},
    });
    let control = with_provider(&provider, &invited).await;
    let control = control.configured(sections).await;
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let copy = invite(&mut ada, &id, "grace@example.com", "viewer").await;
    for path in [copy.clone(), format!("{copy}?mail=AAAA")] {
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, &path, grace()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text.contains("no account here"), "{}", answer.text);
        assert_eq!(browser.cookie, None);
    }
    let mails = control.mails().await;
    let mail = mails
        .iter()
        .find(|mail| mail.contains("To: grace@example.com\r\n"))
        .unwrap();
    let at = mail.find("/invitations/").unwrap();
    let link = mail[at..].lines().next().unwrap();
    let mut browser = control.browser();
    let page = browser.open(link).await;
    assert!(page.text.contains("Join with Example ID"), "{}", page.text);
    let answer = sign_in(&control, &provider, &mut browser, link, grace()).await;
    let next = answer.location.as_deref();
    assert_eq!(next, Some("/welcome"), "{}", answer.text);
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["emailVerified"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_in_the_id_token_remains_if_the_address_is_in_the_userinfo() {
    let provider = Provider::start().await;
    provider.set_user_info(json!({"sub": "g-1", "preferred_username": "grace@example.com"}));
    let control = with_provider(&provider, &rule()).await;
    let mut browser = control.browser();
    let denied = json!({"sub": "g-1", "email_verified": false});
    let answer = sign_in(&control, &provider, &mut browser, "/account", denied).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", answer.text);
    assert_eq!(browser.cookie, None);
    let named = json!({"sub": "g-1", "name": "Grace H"});
    let answer = sign_in(&control, &provider, &mut browser, "/account", named).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let user = browser.open("/api/user").await.json();
    assert_eq!(
        (&user["email"], &user["name"]),
        (&json!("grace@example.com"), &json!("Grace H"))
    );
}

/// The texts of all events of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

struct Writer<'a>(&'a mut String);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut next = Some(value);
        while let Some(error) = next {
            write!(self.0, "{}={error} ", field.name()).unwrap();
            next = error.source();
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut Writer(&mut self.0.lock()));
    }
}

/// An operator finds the claim that is the reason, and no address.
#[tokio::test]
async fn every_refusal_is_logged_with_the_name_of_the_claim() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    control.person("Ada").await;
    let log = Log::default();
    // While a process has only one subscriber, a thread without it caches that an event is disabled.
    // Other tests run on such threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::registry().with(log.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let now = control.app.now().as_second();
    let with = |name: &str, value: Value| {
        let mut claims = json!({
            "sub": "ada-1", "email": "ada@example.com", "email_verified": true,
        });
        claims[name] = value;
        claims
    };
    for (claims, claim) in [
        (with("iss", json!("https://evil.example")), "iss"),
        (with("aud", json!("other")), "aud"),
        (with("azp", json!("other")), "azp"),
        (with("exp", json!(now - 600)), "exp"),
        (with("exp", Value::Null), "exp"),
        (with("iat", json!(now + 600)), "iat"),
        (with("nbf", json!(now + 600)), "nbf"),
        (with("nonce", json!("other")), "nonce"),
        (with("sub", json!(7)), "sub"),
        (with("sub", json!("")), "sub"),
        (with("email", Value::Null), "email"),
        (with("email", json!(["ada@example.com"])), "email"),
        (with("email", json!("ada")), "email"),
        (with("email", json!("nobody@example.com")), "email"),
        (with("email_verified", json!(false)), "email_verified"),
        (with("email_verified", Value::Null), "email_verified"),
    ] {
        log.0.lock().clear();
        let text = claims.to_string();
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert!(answer.status >= 400, "{text}: {}", answer.status);
        let logged = log.0.lock().clone();
        let names = [format!("claim=\"{claim}\""), format!("claim {claim}:")];
        let is_named = names.iter().any(|name| logged.contains(name));
        assert!(is_named, "{text}: {logged}");
        assert!(!logged.contains("@example.com"), "{logged}");
    }
    let mut invited = rule();
    invited["sign_up"] = json!("invited");
    let control = with_provider(&provider, &invited).await;
    log.0.lock().clear();
    let mut browser = control.browser();
    let answer = sign_in(&control, &provider, &mut browser, "/account", grace()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let logged = log.0.lock().clone();
    let claim = "claim=\"preferred_username\"";
    assert!(logged.contains(claim), "{logged}");
    assert!(!logged.contains("@example.com"), "{logged}");
}
