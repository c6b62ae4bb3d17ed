//! CP-10, CP-11: revocations apply to the next request on every process, even if the token was
//! verified a moment ago.

use jiff::SignedDuration;
use serde_json::json;
use store::members::{self, Role};
use store::users::{self, Status};
use store::{credentials, revoked_tokens, sessions};
use types::id::CredentialId;

use crate::support::{Person, TestControl};

async fn status(control: &TestControl, token: &str) -> u16 {
    control.get("/api/whoami", token).await.status
}

/// Two processes, a user's token, and a token minted from it, which both processes have verified.
async fn verified_pairs() -> Vec<([TestControl; 2], Person, String)> {
    let mut known = Vec::new();
    for pair in Box::pin(TestControl::pairs("")).await {
        let ada = pair[0].person("ada").await;
        let minted = pair[0].delegated(&ada, json!({"permissions": null})).await;
        for control in &pair {
            for token in [&ada.token, &minted] {
                assert_eq!(status(control, token).await, 200);
            }
        }
        known.push((pair, ada, minted));
    }
    known
}

async fn assert_over(pair: &[TestControl; 2], tokens: &[&str]) {
    for control in pair {
        for token in tokens {
            let answer = control.get("/api/whoami", token).await;
            assert_eq!(answer.problem(), (401, "invalid_token".to_owned()));
        }
    }
}

/// CP-11.
#[tokio::test]
async fn cp_11_a_revocation_is_seen_by_the_next_request_everywhere() {
    for (pair, ada, minted) in verified_pairs().await {
        let list = pair[0].get("/api/credentials", &ada.token).await.json();
        let id = list["credentials"][0]["id"].as_str().unwrap();
        let path = format!("/api/credentials/{id}");
        assert_eq!(pair[0].delete(&path, &ada.token).await.status, 204);
        assert_over(&pair, &[&ada.token, &minted]).await;
    }
}

/// CP-10.
#[tokio::test]
async fn cp_10_a_suspension_is_seen_by_the_next_request_everywhere() {
    for (pair, ada, minted) in verified_pairs().await {
        for (set, expected) in [(Status::Suspended, 401), (Status::Active, 200)] {
            let now = pair[0].now();
            let mut tx = pair[0].app.store.begin().await.unwrap();
            users::set_status(&mut tx, ada.user, set, now)
                .await
                .unwrap();
            tx.commit().await.unwrap();
            for control in &pair {
                for token in [&ada.token, &minted] {
                    assert_eq!(status(control, token).await, expected);
                }
            }
        }
    }
}

/// CP-10: a single token of many can be revoked by its id.
#[tokio::test]
async fn cp_10_a_token_is_revoked_alone() {
    for (pair, ada, minted) in verified_pairs().await {
        let claims = ::credentials::inspect(&minted).unwrap()["claims"].clone();
        let now = pair[0].now();
        let mut tx = pair[0].app.store.begin().await.unwrap();
        let ends = now + SignedDuration::from_hours(1);
        let jti = claims["jti"].as_str().unwrap();
        revoked_tokens::revoke(&mut tx, jti, ends, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_over(&pair, &[&minted]).await;
        assert_eq!(status(&pair[1], &ada.token).await, 200);
    }
}

/// CP-10: expiry also ends a cached verification.
#[tokio::test]
async fn cp_10_a_cached_verification_does_not_outlive_its_token() {
    for (pair, ada, minted) in verified_pairs().await {
        pair[0].clock.advance(299);
        assert_eq!(status(&pair[0], &minted).await, 200);
        pair[0].clock.advance(1);
        assert_over(&pair, &[&minted]).await;
        assert_eq!(status(&pair[0], &ada.token).await, 200);
    }
}

/// CP-13: a token minted from a session ends with it, for every kind of end.
#[tokio::test]
async fn cp_13_tokens_end_with_their_session() {
    for pair in TestControl::pairs("").await {
        let [first, second] = &pair;
        let ada = first.person("ada").await;
        for end in ["signed out", "unused", "over"] {
            let cookie = first.session(&ada).await;
            let body = json!({"permissions": null, "ttlSeconds": 3600}).to_string();
            let request = http::Request::post("/api/tokens")
                .header("cookie", cookie)
                .header("content-type", "application/json")
                .header("sec-fetch-site", "same-origin");
            let answer = first.send_raw(request.body(body.into()).unwrap()).await;
            let token = answer.json()["token"].as_str().unwrap().to_owned();
            for control in [first, second] {
                assert_eq!(status(control, &token).await, 200, "{end}");
            }
            let claims = ::credentials::inspect(&token).unwrap()["claims"].clone();
            let id = claims["sourceCredentialId"].as_str().unwrap();
            let sql = match end {
                "unused" => "last_seen_at = last_seen_at - 7 * 24 * 3600 * CAST(1000000 AS BIGINT)",
                _ => "expires_at = 0",
            };
            if end == "signed out" {
                let mut tx = first.app.store.begin().await.unwrap();
                sessions::end_all(&mut tx, ada.user, None, first.now())
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            } else {
                first
                    .raw(&format!("UPDATE sessions SET {sql} WHERE id = '{id}'"))
                    .await;
            }
            for control in [first, second] {
                assert_eq!(status(control, &token).await, 401, "{end}");
            }
        }
    }
}

/// CP-11: a former member reaches nothing of the workspace, and a credential for that one workspace
/// is not valid any more.
#[tokio::test]
async fn cp_11_a_removed_member_is_out_with_the_next_request() {
    for pair in TestControl::pairs("").await {
        let [first, second] = &pair;
        let ada = first.person("ada").await;
        let eve = first.person("eve").await;
        let project = first.project(&ada).await;
        first.join(&eve, ada.workspace, Role::Admin).await;
        let made = control::credentials::issue_pat(&first.app, eve.user, "one", None).unwrap();
        let mut credential = made.credential.clone();
        credential.workspace_id = Some(ada.workspace);
        let id: CredentialId = credential.id;
        let mut tx = first.app.store.begin().await.unwrap();
        credentials::insert(&mut tx, &credential).await.unwrap();
        tx.commit().await.unwrap();
        let bound = made.token.unwrap().expose().to_vec();
        let bound = String::from_utf8(bound).unwrap();
        let bound = Person {
            token: bound,
            ..eve.clone()
        };
        let minted = first.delegated(&bound, json!({"permissions": null})).await;
        let path = format!(
            "/api/projects/tunnels/{}/turn-server/credentials",
            project.id
        );
        for control in [first, second] {
            for token in [&eve.token, &bound.token, &minted] {
                let answer = control.post(&path, token, &json!({})).await;
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        let mut tx = first.app.store.begin().await.unwrap();
        assert!(
            members::delete(&mut tx, ada.workspace, eve.user, first.now())
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
        for control in [first, second] {
            for (token, expected) in [(&eve.token, 404), (&bound.token, 401), (&minted, 401)] {
                let answer = control.post(&path, token, &json!({})).await;
                assert_eq!(answer.problem().0, expected);
            }
            assert_eq!(status(control, &eve.token).await, 200);
        }
        let mut read = first.app.store.read().await.unwrap();
        let kept = credentials::by_id(&mut read, id).await.unwrap().unwrap();
        assert!(
            kept.is_live(first.now()),
            "the credential itself was not revoked"
        );
    }
}
