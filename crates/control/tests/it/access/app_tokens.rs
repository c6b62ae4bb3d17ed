//! CP-16: tokens that applications sign with their own keys, using an independent library.

use http::Method;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::node;
use crate::support::{Person, TestControl};

const NOW: i64 = 1_767_225_600;

/// Signs each of `tokens` (`{alg, key, claims, kid?}`) with jose.
fn sign(tokens: &[Value]) -> Vec<String> {
    let signed = node::run(
        r"
        import { readFileSync } from 'node:fs';
        import { importPKCS8, SignJWT } from 'jose';
        const out = [];
        for (const { alg, key, claims, kid } of JSON.parse(readFileSync(0))) {
            const header = kid ? { alg, typ: 'JWT', kid } : { alg, typ: 'JWT' };
            out.push(await new SignJWT(claims).setProtectedHeader(header).sign(await importPKCS8(key, alg)));
        }
        console.log(JSON.stringify(out));
        ",
        &json!(tokens),
    );
    serde_json::from_value(signed).unwrap()
}

/// New key pairs created by jose, one for each algorithm: `(algorithm, private, public)`.
fn key_pairs() -> Vec<(String, String, String)> {
    let pairs = node::run(
        r"
        import { exportPKCS8, exportSPKI, generateKeyPair } from 'jose';
        const out = [];
        for (const alg of ['ES256', 'ES512', 'EdDSA']) {
            const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
            out.push([alg, await exportPKCS8(privateKey), await exportSPKI(publicKey)]);
        }
        console.log(JSON.stringify(out));
        ",
        &json!([]),
    );
    serde_json::from_value(pairs).unwrap()
}

async fn application(control: &TestControl, who: &Person, public: &str, more: Value) -> String {
    let mut body = json!({"type": "app", "name": "build", "publicKeyPem": public});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let answer = control.post("/api/credentials", &who.token, &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["credential"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// CP-16: the three algorithms, and a lifetime of an hour at most, which the token itself states.
#[tokio::test]
async fn cp_16_an_application_signs_short_lived_tokens() {
    let pairs = key_pairs();
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let eve = control.person("eve").await;
        for (alg, private, public) in &pairs {
            let id = application(&control, &ada, public, json!({})).await;
            let foreign = pairs.iter().find(|(other, ..)| other != alg).unwrap();
            let claims = |more: Value| {
                let mut claims =
                    json!({"type": "app", "clientId": id, "iat": NOW, "exp": NOW + 60});
                for (name, value) in more.as_object().unwrap() {
                    claims[name] = value.clone();
                }
                // `null` in this table means "absent".
                claims
                    .as_object_mut()
                    .unwrap()
                    .retain(|_, value| !value.is_null());
                claims
            };
            let table = [
                (200, json!({})),
                (200, json!({"exp": NOW + 1})),
                (200, json!({"exp": NOW + 3600})),
                (200, json!({"iat": NOW - 3000, "exp": NOW + 600})),
                (200, json!({"userId": ada.user})),
                (401, json!({"exp": NOW + 3601})),
                (401, json!({"iat": NOW - 3000, "exp": NOW + 601})),
                (401, json!({"exp": null})),
                (401, json!({"iat": null})),
                (401, json!({"exp": NOW})),
                (401, json!({"iat": NOW + 6})),
                (401, json!({"iat": NOW + 5, "exp": NOW + 5})),
                (401, json!({"nbf": NOW + 6})),
                (401, json!({"clientId": null})),
                (401, json!({"clientId": null, "userId": ada.user})),
                (401, json!({"clientId": "crd_01h455vb4pex5vsknk084sn02q"})),
                (401, json!({"userId": eve.user})),
                (
                    401,
                    json!({"type": "auth", "userId": ada.user, "sourceCredentialId": id}),
                ),
                (401, json!({"type": "pat", "userId": ada.user})),
            ];
            let mut wanted: Vec<_> = table
                .iter()
                .map(
                    |(_, more)| json!({"alg": alg, "key": private, "claims": claims(more.clone())}),
                )
                .collect();
            let by_another =
                json!({"alg": foreign.0, "key": foreign.1, "claims": claims(json!({}))});
            // The application chooses the name of its key.
            let named =
                json!({"alg": alg, "key": private, "claims": claims(json!({})), "kid": "mine"});
            wanted.extend([by_another, named]);
            let tokens = sign(&wanted);
            let expected = table.iter().map(|(status, _)| *status).chain([401, 200]);
            for (at, (token, status)) in tokens.iter().zip(expected).enumerate() {
                // Twice, because the second request uses the cached signature check.
                for _ in 0..2 {
                    let answer = control.get("/api/whoami", token).await;
                    assert_eq!(answer.status, status, "{alg} {at}");
                }
            }
            let who = control.get("/api/whoami", &tokens[0]).await.json();
            assert_eq!(
                (&who["type"], &who["id"]),
                (&json!("app"), &json!(ada.user))
            );
            assert_eq!(who["expiresAt"], "2026-01-01T00:01:00.000Z");
        }
    }
}

/// CP-11: both the token and the stored credential must allow a request. A token minted from it
/// expires no later.
#[tokio::test]
async fn cp_11_an_applications_token_never_exceeds_its_credential() {
    let (alg, private, public) = key_pairs().remove(1);
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let (one, two) = (control.project(&ada).await, control.project(&ada).await);
        let stored = json!({
            "permissions": ["turn.credentials.create", "account.tokens.create"],
            "resources": {"tunnels": {"projects": [one.id]}},
        });
        let id = application(&control, &ada, &public, stored).await;
        let claims = |more: Value| {
            let mut claims = json!({"type": "app", "clientId": id, "iat": NOW, "exp": NOW + 600});
            claims
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"alg": alg, "key": private, "claims": claims})
        };
        let projects = |ids: Value| json!({"tunnels": {"projects": ids}});
        let tokens = sign(&[
            claims(json!({})),
            claims(json!({"resources": projects(json!([one.id, two.id]))})),
            claims(json!({"resources": projects(json!([two.id]))})),
            claims(json!({"permissions": ["account.tokens.create"]})),
            claims(
                json!({"permissions": ["turn.credentials.create", "account.projects.read-write"]}),
            ),
            claims(json!({"resources": []})),
        ]);
        for (at, (token, [first, second])) in tokens
            .iter()
            .zip([
                [200, 403],
                [200, 403],
                [403, 403],
                [403, 403],
                [200, 403],
                [403, 403],
            ])
            .enumerate()
        {
            for (project, expected) in [(&one, first), (&two, second)] {
                let path = format!(
                    "/api/projects/tunnels/{}/turn-server/credentials",
                    project.id
                );
                let answer = control.send(Method::POST, &path, Some(token), None).await;
                assert_eq!(answer.status, expected, "token {at}");
            }
        }
        let who = control.get("/api/whoami", &tokens[4]).await.json();
        assert_eq!(who["permissions"], json!(["turn.credentials.create"]));
        let minted = json!({"permissions": null, "ttlSeconds": 3600});
        let answer = control
            .post("/api/tokens", &tokens[0], &minted)
            .await
            .json();
        assert_eq!(answer["expiresAt"], "2026-01-01T00:10:00.000Z");
    }
}

/// CP-11: an application's key is replaced with an overlap, during which both keys sign.
#[tokio::test]
async fn cp_11_an_applications_key_is_rotated() {
    let pairs = key_pairs();
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let (alg, private, public) = &pairs[2];
        let (new_alg, new_private, new_public) = &pairs[1];
        let stored = json!({"permissions": ["account.projects.read-only"]});
        let old = application(&control, &ada, public, stored).await;
        let path = format!("/api/credentials/{old}/rotate");
        for (body, field) in [
            (json!({}), "publicKeyPem"),
            (json!({"publicKeyPem": "x"}), "publicKeyPem"),
            (
                json!({"publicKeyPem": new_public, "issuerPem": "x"}),
                "issuerPem",
            ),
            (
                json!({"publicKeyPem": new_public, "overlapSeconds": -1}),
                "overlapSeconds",
            ),
        ] {
            let answer = control.post(&path, &ada.token, &body).await;
            assert_eq!(
                (answer.status, &answer.json()["field"]),
                (400, &json!(field)),
                "{body}"
            );
        }
        let body = json!({"publicKeyPem": new_public, "overlapSeconds": 60});
        let answer = control.post(&path, &ada.token, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let rotated = answer.json();
        assert_eq!(rotated.get("token"), None);
        let new = rotated["credential"]["id"].as_str().unwrap();
        assert_eq!(
            rotated["credential"]["permissions"],
            json!(["account.projects.read-only"])
        );
        let shown = control
            .get(&format!("/api/credentials/{old}"), &ada.token)
            .await
            .json();
        assert_eq!(shown["rotatedTo"], new);
        let claims =
            |id: &str| json!({"type": "app", "clientId": id, "iat": NOW, "exp": NOW + 600});
        let tokens = sign(&[
            json!({"alg": alg, "key": private, "claims": claims(&old)}),
            json!({"alg": new_alg, "key": new_private, "claims": claims(new)}),
            json!({"alg": new_alg, "key": new_private, "claims": claims(&old)}),
            json!({"alg": alg, "key": private, "claims": claims(new)}),
        ]);
        for (seconds, expected) in [(0, [200, 200, 401, 401]), (60, [401, 200, 401, 401])] {
            control.clock.advance(seconds);
            for (token, expected) in tokens.iter().zip(expected) {
                assert_eq!(control.get("/api/whoami", token).await.status, expected);
            }
        }
    }
}

/// CP-11: a client certificate is rotated in the same way, and one certificate remains one
/// credential.
#[tokio::test]
async fn cp_11_a_clients_certificate_is_rotated() {
    let certificate = || {
        let key = KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().pem()
    };
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let (old, new) = (certificate(), certificate());
        let body = json!({"type": "mtls", "name": "door", "certificatePem": old});
        let issued = control
            .post("/api/credentials", &ada.token, &body)
            .await
            .json();
        let id = issued["credential"]["id"].as_str().unwrap();
        let path = format!("/api/credentials/{id}/rotate");
        let same = json!({"certificatePem": old, "overlapSeconds": 60});
        let answer = control.post(&path, &ada.token, &same).await;
        assert_eq!(answer.problem(), (409, "conflict".to_owned()));
        let answer = control
            .post(&path, &ada.token, &json!({"publicKeyPem": "x"}))
            .await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!("publicKeyPem"))
        );
        let body = json!({"certificatePem": new, "overlapSeconds": 60});
        let answer = control.post(&path, &ada.token, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let rotated = answer.json()["credential"].clone();
        assert_ne!(rotated["fingerprint"], issued["credential"]["fingerprint"]);
        let status = async || {
            let path = format!("/api/credentials/{id}");
            control.get(&path, &ada.token).await.json()["status"].clone()
        };
        assert_eq!(status().await, "active");
        control.clock.advance(60);
        assert_eq!(status().await, "expired");
    }
}
