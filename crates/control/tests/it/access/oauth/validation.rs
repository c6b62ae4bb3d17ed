//! OA-8, MC-4: required claims of an access token, and its required record.

use std::sync::Arc;

use control::config::Config;
use control::oauth::OauthSection;
use control::router::router;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use store::members;
use store::users::Status;
use types::id::CredentialId;

use super::{SCOPE, access_token, with_token};
use crate::support::{BASE_URL, Browser, TestControl, both};

both! {
    oa_8_every_claim_is_validated,
    oa_8_a_token_without_its_record_is_refused,
    oa_8_revocation_is_seen_by_the_next_request_of_every_process,
    oa_8_a_removed_client_has_no_valid_tokens,
    mc_4_a_token_without_oauth_claims_is_accepted,
    a_token_never_exceeds_its_owners_rights,
}

async fn whoami(control: &TestControl, token: &str) -> u16 {
    with_token(control, "/api/whoami", token).await.status
}

/// The same platform with a key that the test also has.
async fn with_known_key(control: TestControl) -> TestControl {
    let file = control.directory().join("own.pem");
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    std::fs::write(&file, pair.serialize_pem()).unwrap();
    let mut config = control.app.config.clone();
    config.signing_keys = vec![file];
    control.restarted_with(config).await
}

/// Signs with the key of [`with_known_key`].
fn sign(control: &TestControl, kind: &str, claims: &Value) -> String {
    let file = control.directory().join("own.pem");
    let key = EncodingKey::from_ed_pem(&std::fs::read(file).unwrap()).unwrap();
    let mut header = Header::new(Algorithm::EdDSA);
    header.typ = Some(kind.to_owned());
    header.kid = control.app.keys.signing().kid().map(str::to_owned);
    jsonwebtoken::encode(&header, claims, &key).unwrap()
}

/// Signs claims with the platform's own key, and stores a record like that of `like`. Any refusal
/// is then due to the claims.
async fn forge(control: &TestControl, like: &str, claims: &Value) -> String {
    let token = sign(control, "at+jwt", claims);
    let mut tx = control.app.store.begin().await.unwrap();
    let hash = |token: &str| store::SecretHash(::credentials::digest(token));
    let found = store::credentials::by_token(&mut tx, hash(like)).await;
    let mut credential = found.unwrap().unwrap();
    let now = control.app.now();
    store::credentials::revoke(&mut tx, credential.user_id, credential.id, now)
        .await
        .unwrap();
    let number = crate::support::next();
    credential.id = CredentialId::new(number, [3; 10]);
    credential.token_hash = Some(hash(&token));
    credential.token_endpoint = claims["token_endpoint"].as_str().map(str::to_owned);
    credential.revoked_at = None;
    store::credentials::insert(&mut tx, &credential)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    token
}

/// MC-4, OA-6, OA-8: a claim that is missing, wrong, or inconsistent with the others, in a token
/// with a valid signature and record.
async fn oa_8_every_claim_is_validated(control: TestControl) {
    let control = with_known_key(control).await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let mut like = access_token(&mut browser, &control).await;
    let good = ::credentials::inspect(&like).unwrap()["claims"].clone();
    let now = control.app.now().as_second();
    let cases = [
        ("exp", Value::Null),
        ("exp", json!(now)),
        ("iat", json!(now + 60)),
        ("iss", Value::Null),
        ("iss", json!("https://other.example")),
        ("aud", Value::Null),
        ("aud", json!("https://other.example")),
        ("aud", json!([BASE_URL, "https://other.example"])),
        ("resource", Value::Null),
        ("resource", json!(format!("{BASE_URL}/api/mcp"))),
        ("client_id", Value::Null),
        ("client_id", json!("other")),
        ("client_id", json!("nobody")),
        ("scope", Value::Null),
        ("scope", json!("account.projects.read-only")),
        (
            "scope",
            json!(format!("{SCOPE} account.credentials.read-write")),
        ),
        ("permissions", Value::Null),
        ("permissions", json!(["account.credentials.read-write"])),
        ("type", json!("auth")),
        ("userId", json!("usr_01h455vb4pex5vsknk084sn02q")),
        ("token_endpoint", json!("00000000")),
    ];
    let mut endpoint = 1_u32;
    for (name, value) in cases {
        let mut claims = good.clone();
        endpoint += 1;
        claims["token_endpoint"] = json!(format!("{endpoint:08x}"));
        let members = claims.as_object_mut().unwrap();
        match &value {
            Value::Null => members.remove(name),
            value => members.insert(name.to_owned(), value.clone()),
        };
        let token = forge(&control, &like, &claims).await;
        if name == "token_endpoint" {
            // This token matches its record, so all others were refused for their claims.
            assert_eq!(whoami(&control, &token).await, 200);
        } else {
            let answer = with_token(&control, "/api/whoami", &token).await;
            assert_eq!(answer.status, 401, "{name}: {value}");
            assert_eq!(answer.json()["code"], "invalid_token");
        }
        like = token;
    }
}

/// OA-8: a signature alone is not enough.
async fn oa_8_a_token_without_its_record_is_refused(control: TestControl) {
    let control = with_known_key(control).await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let token = access_token(&mut browser, &control).await;
    let mut claims = ::credentials::inspect(&token).unwrap()["claims"].clone();
    claims["jti"] = json!("another");
    let forged = sign(&control, "JWT", &claims);
    assert_eq!(whoami(&control, &forged).await, 401);
    // The same claims with another signature are another token.
    let (head, _) = token.rsplit_once('.').unwrap();
    let (_, signature) = forged.rsplit_once('.').unwrap();
    let crossed = format!("{head}.{signature}");
    assert_eq!(whoami(&control, &crossed).await, 401);
    assert_eq!(whoami(&control, &token).await, 200);
}

/// Another process on the same database and keys.
async fn other_process(control: &TestControl, config: Config) -> axum::Router {
    let clock = Arc::clone(&control.clock);
    router(control::open(config, clock as _).await.unwrap())
}

/// The answer of another process to `GET /api/whoami`.
async fn whoami_there(router: &axum::Router, token: &str) -> u16 {
    use tower::ServiceExt as _;
    let request =
        http::Request::get("/api/whoami").header("authorization", format!("Bearer {token}"));
    let request = request.body(axum::body::Body::empty()).unwrap();
    router
        .clone()
        .oneshot(request)
        .await
        .unwrap()
        .status()
        .as_u16()
}

/// OA-8: no process caches a token as valid.
async fn oa_8_revocation_is_seen_by_the_next_request_of_every_process(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let token = access_token(&mut browser, &control).await;
    let other = other_process(&control, control.app.config.clone()).await;
    for _ in 0..2 {
        assert_eq!(whoami(&control, &token).await, 200);
        assert_eq!(whoami_there(&other, &token).await, 200);
    }
    let minted = mint(&control, &mut browser).await;
    super::program(&control, "/oauth/revoke", &[("token", &token)]).await;
    assert_eq!(whoami(&control, &token).await, 401);
    assert_eq!(whoami_there(&other, &token).await, 401);
    // A token that was minted from an access token ends with it.
    let (token, child) = minted;
    assert_eq!(whoami(&control, &child).await, 200);
    super::program(&control, "/oauth/revoke", &[("token", &token)]).await;
    assert_eq!(whoami(&control, &child).await, 401);
}

/// An access token, and a token that was minted from it.
async fn mint(control: &TestControl, browser: &mut Browser<'_>) -> (String, String) {
    let scope = "account.tokens.create account.projects.read-only";
    let code = super::code(browser, &[("scope", scope)]).await;
    let issued = super::redeem(control, &code, &[]).await.json();
    let token = issued["access_token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {token}");
    let body = json!({"permissions": ["account.projects.read-only"]}).to_string();
    let mut program = control.browser();
    let answer = program
        .send(
            http::Method::POST,
            "/api/tokens",
            Some(("application/json", body)),
            &[("authorization", &bearer)],
        )
        .await;
    let minted = answer.json()["token"].as_str().unwrap().to_owned();
    (token, minted)
}

/// OA-8: the client of a token must still be registered. Tokens minted from it end with it.
async fn oa_8_a_removed_client_has_no_valid_tokens(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (token, child) = mint(&control, &mut browser).await;
    let mut config = control.app.config.clone();
    config.oauth = OauthSection::default().check(false).unwrap();
    let without = other_process(&control, config).await;
    for token in [token, child] {
        assert_eq!(whoami_there(&without, &token).await, 401);
        assert_eq!(whoami(&control, &token).await, 200);
    }
}

/// MC-4: a PAT without OAuth claims.
async fn mc_4_a_token_without_oauth_claims_is_accepted(control: TestControl) {
    let control = with_known_key(control).await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let body = json!({"type": "pat", "name": "mine"});
    let pat = browser
        .api(http::Method::POST, "/api/credentials", body)
        .await
        .json();
    let pat = pat["token"].as_str().unwrap().to_owned();
    assert_eq!(whoami(&control, &pat).await, 200);
    // With one such claim it must be a complete access token, including its record.
    let claims = ::credentials::inspect(&pat).unwrap()["claims"].clone();
    let mut like = pat;
    for (number, name) in (2_u32..).zip(["client_id", "aud", "resource", "scope"]) {
        let mut part = claims.clone();
        part[name] = json!(if name == "client_id" { "web" } else { BASE_URL });
        part["token_endpoint"] = json!(format!("{number:08x}"));
        let token = forge(&control, &like, &part).await;
        assert_eq!(whoami(&control, &token).await, 401, "{name}");
        like = token;
    }
    let token = access_token(&mut browser, &control).await;
    let whole = ::credentials::inspect(&token).unwrap()["claims"].clone();
    let mut whole = whole;
    whole["token_endpoint"] = json!("000000ff");
    let token = forge(&control, &like, &whole).await;
    assert_eq!(
        whoami(&control, &token).await,
        401,
        "it belongs to no client"
    );
}

/// A suspension or a removal from a workspace applies immediately.
async fn a_token_never_exceeds_its_owners_rights(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let shared = control.person("Eve").await.workspace;
    let now = control.app.now();
    let mut tx = control.app.store.begin().await.unwrap();
    members::insert(&mut tx, shared, ada, members::Role::Viewer, None, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut browser = control.signed_in("Ada").await;
    let scope = "account.plan.read-only account.workspace-protection.read-write";
    let code = super::code(&mut browser, &[("scope", scope)]).await;
    let issued = super::redeem(&control, &code, &[]).await.json();
    let token = issued["access_token"].as_str().unwrap();
    let plans = format!("/api/workspaces/{shared}/projects/tunnels/plan/config");
    assert_eq!(with_token(&control, &plans, token).await.status, 200);
    // The scope is sufficient, but the role is a viewer's.
    let audit = format!("/api/workspaces/{shared}/audit");
    assert_eq!(with_token(&control, &audit, token).await.status, 403);
    let mut tx = control.app.store.begin().await.unwrap();
    members::delete(&mut tx, shared, ada, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(with_token(&control, &plans, token).await.status, 404);
    let mut tx = control.app.store.begin().await.unwrap();
    store::users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(whoami(&control, token).await, 401);
}
