//! CP-11 and CP-16: long-lived credentials.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use serde_json::{Value, json};
use store::{audit, credentials};

use crate::support::{Person, TestControl, both};

both! {
    cp_16_a_pat_is_shown_once_and_stored_as_a_hash,
    cp_16_an_application_signs_with_its_own_key,
    cp_16_certificates_are_stored_by_fingerprint_or_authority,
    cp_11_a_credential_never_exceeds_its_issuer,
    cp_11_rotation_overlaps_and_then_the_old_secret_ends,
    cp_11_revocation_includes_everything_issued_from_it,
}

pub(crate) async fn create(control: &TestControl, user: &Person, body: Value) -> Value {
    let answer = control.post("/api/credentials", &user.token, &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

async fn field(control: &TestControl, user: &Person, body: Value) -> String {
    let answer = control.post("/api/credentials", &user.token, &body).await;
    assert_eq!(
        answer.problem(),
        (400, "invalid_request".to_owned()),
        "{body}"
    );
    answer.json()["field"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// CP-16: a personal access token is shown once and kept as a hash.
async fn cp_16_a_pat_is_shown_once_and_stored_as_a_hash(control: TestControl) {
    let ada = control.person("ada").await;
    // Ids of one millisecond are not ordered.
    control.clock.advance(1);
    let issued = create(
        &control,
        &ada,
        json!({
            "type": "pat",
            "name": " laptop ",
            "permissions": ["account.projects.read-only", "account.credentials.read-only"],
            "resources": {"tunnels": {"workspaces": [ada.workspace]}},
            "expiresAt": "2026-02-01T00:00:00.9Z",
        }),
    )
    .await;
    let token = issued["token"].as_str().unwrap();
    let claims = ::credentials::inspect(token).unwrap()["claims"].clone();
    assert_eq!(
        (&claims["type"], &claims["iss"]),
        (&json!("pat"), &json!("https://svc.example"))
    );
    assert_eq!(
        claims["token_endpoint"],
        issued["credential"]["tokenEndpoint"]
    );
    assert_eq!(claims["exp"], 1_769_904_000);
    assert_eq!(
        issued["credential"]["expiresAt"],
        "2026-02-01T00:00:00.000Z"
    );
    assert_eq!(issued["credential"]["name"], "laptop");
    let identity = control.get("/api/whoami", token).await.json();
    assert_eq!(identity["permissions"].as_array().unwrap().len(), 2);
    let list = control.get("/api/credentials", token).await;
    assert!(!list.text.contains(token));
    let list = list.json();
    assert_eq!((&list["total"], &list["page"]), (&json!(2), &json!(1)));
    assert_eq!(list["credentials"][1]["id"], issued["credential"]["id"]);
    let id = issued["credential"]["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut read = control.app.store.read().await.unwrap();
    let row = credentials::by_id(&mut read, id).await.unwrap().unwrap();
    assert_eq!(row.token_hash.unwrap().0, ::credentials::digest(token));
    // An expired token is not a credential.
    drop(read);
    control.clock.advance(31 * 24 * 3600);
    assert_eq!(control.get("/api/whoami", token).await.status, 401);
}

/// CP-16: an application signs its tokens with its own key, and acts as its owner within its
/// limits.
async fn cp_16_an_application_signs_with_its_own_key(control: TestControl) {
    let ada = control.person("ada").await;
    for (kind, algorithm) in [
        (&PKCS_ED25519, Algorithm::EdDSA),
        (&PKCS_ECDSA_P256_SHA256, Algorithm::ES256),
    ] {
        let key = KeyPair::generate_for(kind).unwrap();
        let issued = create(
            &control,
            &ada,
            json!({
                "type": "app",
                "name": "build",
                "permissions": ["account.projects.read-only"],
                "publicKeyPem": key.public_key_pem(),
            }),
        )
        .await;
        assert_eq!(issued.get("token"), None);
        let id = &issued["credential"]["id"];
        let sign = |claims: &Value, key: &KeyPair| {
            let key = match algorithm {
                Algorithm::EdDSA => EncodingKey::from_ed_der(key.serialized_der()),
                _ => EncodingKey::from_ec_der(key.serialized_der()),
            };
            jsonwebtoken::encode(&Header::new(algorithm), claims, &key).unwrap()
        };
        let claims = json!({"type": "app", "clientId": id, "iat": 1_767_225_600, "exp": 1_767_225_660,
            "permissions": ["account.projects.read-only", "account.tokens.create"]});
        let token = sign(&claims, &key);
        let identity = control.get("/api/whoami", &token).await;
        assert_eq!(identity.status, 200, "{identity:?}");
        let identity = identity.json();
        assert_eq!(
            (&identity["type"], &identity["id"]),
            (&json!("app"), &json!(ada.user))
        );
        // Claims beyond the credential's permissions are ignored.
        assert_eq!(
            identity["permissions"],
            json!(["account.projects.read-only"])
        );
        let another = KeyPair::generate_for(kind).unwrap();
        for bad in [
            sign(&claims, &another),
            sign(
                &json!({"type": "auth", "userId": ada.user, "exp": 1_767_225_660}),
                &key,
            ),
            sign(
                &json!({"type": "app", "clientId": "crd_x", "exp": 1_767_225_660}),
                &key,
            ),
            sign(
                &json!({"type": "app", "clientId": id, "exp": 1_767_225_600}),
                &key,
            ),
        ] {
            assert_eq!(control.get("/api/whoami", &bad).await.status, 401);
        }
        let path = format!("/api/credentials/{}", id.as_str().unwrap());
        assert_eq!(control.delete(&path, &ada.token).await.status, 204);
        assert_eq!(control.get("/api/whoami", &token).await.status, 401);
    }
}

/// CP-16: client certificates, registered individually or by their authority.
async fn cp_16_certificates_are_stored_by_fingerprint_or_authority(control: TestControl) {
    let ada = control.person("ada").await;
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["client".to_owned()]).unwrap();
    let leaf = leaf.self_signed(&key).unwrap();
    let body = json!({"type": "mtls", "name": "door", "certificatePem": leaf.pem()});
    let issued = create(&control, &ada, body.clone()).await;
    let fingerprint = issued["credential"]["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64);
    // The same certificate can be registered only once by a user.
    let twice = control.post("/api/credentials", &ada.token, &body).await;
    assert_eq!(twice.problem(), (409, "conflict".to_owned()));
    // An expired credential frees its certificate.
    let path = format!(
        "/api/credentials/{}",
        issued["credential"]["id"].as_str().unwrap()
    );
    assert_eq!(control.delete(&path, &ada.token).await.status, 204);
    let again = create(&control, &ada, body).await;
    assert_eq!(again["credential"]["fingerprint"], fingerprint);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let body = json!({"type": "mtls", "name": "fleet", "issuerPem": authority.pem(),
    "permissionPolicy": {
        "control": {"mode": "none"},
        "engine": {"mode": "select", "permissions": ["tunnels.streams.create-delete"]},
    }});
    let issued = create(&control, &ada, body).await;
    assert_eq!(
        issued["credential"]["permissions"],
        json!(["tunnels.streams.create-delete"])
    );
    let not_an_authority = json!({"type": "mtls", "name": "x", "issuerPem": leaf.pem()});
    assert_eq!(field(&control, &ada, not_an_authority).await, "issuerPem");
}

#[tokio::test]
async fn errors_of_a_credential_name_the_field() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n";
    for (body, at) in [
        (json!({"type": "pat"}), "name"),
        (json!({"type": "pat", "name": "  "}), "name"),
        (json!({"type": "pat", "name": "a\nb"}), "name"),
        (json!({"type": "pat", "name": "a".repeat(101)}), "name"),
        (json!({"type": "saml", "name": "a"}), "type"),
        (json!({"type": "pat", "name": "a", "secret": "x"}), "secret"),
        (
            json!({"type": "pat", "name": "a", "permissions": ["x"]}),
            "permissions.0",
        ),
        (
            json!({"type": "pat", "name": "a", "expiresAt": "soon"}),
            "expiresAt",
        ),
        (
            json!({"type": "pat", "name": "a", "expiresAt": "2026-01-01T00:00:00Z"}),
            "expiresAt",
        ),
        (
            json!({"type": "pat", "name": "a", "expiresAt": "9999-01-01T00:00:00Z"}),
            "expiresAt",
        ),
        (
            json!({"type": "pat", "name": "a", "publicKeyPem": "x"}),
            "publicKeyPem",
        ),
        (
            json!({"type": "pat", "name": "a", "resources": {"tunnels": []}}),
            "resources.tunnels",
        ),
        (json!({"type": "app", "name": "a"}), "publicKeyPem"),
        (
            json!({"type": "app", "name": "a", "publicKeyPem": "x"}),
            "publicKeyPem",
        ),
        (
            json!({"type": "app", "name": "a", "publicKeyPem": rsa}),
            "publicKeyPem",
        ),
        (
            json!({"type": "app", "name": "a", "certificatePem": "x"}),
            "certificatePem",
        ),
        (json!({"type": "mtls", "name": "a"}), "certificatePem"),
        (
            json!({"type": "mtls", "name": "a", "certificatePem": "x"}),
            "certificatePem",
        ),
        (
            json!({"type": "mtls", "name": "a", "certificatePem": "x", "issuerPem": "x"}),
            "certificatePem",
        ),
        (
            json!({"type": "pat", "name": "a", "permissions": [], "permissionPolicy": {}}),
            "permissionPolicy",
        ),
        (
            json!({"type": "pat", "name": "a", "permissionPolicy":
                {"engine": {"mode": "select", "permissions": ["account.tokens.create"]}}}),
            "permissionPolicy.engine",
        ),
        (
            json!({"type": "pat", "name": "a", "permissionPolicy":
                {"control": {"mode": "none", "permissions": ["account.tokens.create"]}}}),
            "permissionPolicy.control",
        ),
    ] {
        assert_eq!(field(&control, &ada, body.clone()).await, at, "{body}");
    }
}

/// CP-11: no credential has more permissions than the one that issued it, or outlives it.
async fn cp_11_a_credential_never_exceeds_its_issuer(control: TestControl) {
    let ada = control.person("ada").await;
    let resources = json!({"tunnels": {"projects": ["p1"]}});
    let narrow = json!({
        "permissions": ["account.credentials.read-write", "account.projects.read-only"],
        "resources": resources,
        "ttlSeconds": 600,
    });
    let narrow = control.delegated(&ada, narrow).await;
    control.clock.advance(1);
    let more = json!({"type": "pat", "name": "a", "permissions": ["account.tokens.create"]});
    let answer = control.post("/api/credentials", &narrow, &more).await;
    assert_eq!(answer.problem(), (403, "insufficient_scope".to_owned()));
    assert_eq!(answer.json()["scope"], "account.tokens.create");
    let later = json!({"type": "pat", "name": "a", "expiresAt": "2026-01-01T00:20:00Z"});
    let answer = control.post("/api/credentials", &narrow, &later).await;
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (400, &json!("expiresAt"))
    );
    let all = json!({"type": "pat", "name": "a"});
    let answer = control.post("/api/credentials", &narrow, &all).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let credential = answer.json()["credential"].clone();
    assert_eq!(credential["resources"], resources);
    assert_eq!(credential["expiresAt"], "2026-01-01T00:10:00.000Z");
    assert_eq!(credential["permissions"].as_array().unwrap().len(), 2);
    // Nor by replacing the secret of a credential with more permissions.
    let list = control.get("/api/credentials", &ada.token).await.json();
    let broad = list["credentials"][0]["id"].as_str().unwrap();
    let path = format!("/api/credentials/{broad}/rotate");
    let answer = control
        .send(http::Method::POST, &path, Some(&narrow), None)
        .await;
    assert_eq!(answer.problem(), (403, "insufficient_scope".to_owned()));
}

/// CP-11: rotation with an overlap, during which both secrets are valid.
async fn cp_11_rotation_overlaps_and_then_the_old_secret_ends(control: TestControl) {
    let ada = control.person("ada").await;
    let body = json!({"type": "pat", "name": "a", "permissions": ["account.tokens.create"]});
    let issued = create(&control, &ada, body).await;
    let old = issued["token"].as_str().unwrap();
    let delegated = control
        .post(
            "/api/tokens",
            old,
            &json!({"permissions": null, "ttlSeconds": 3600}),
        )
        .await;
    let delegated = delegated.json()["token"].as_str().unwrap().to_owned();
    let id = issued["credential"]["id"].as_str().unwrap();
    let path = format!("/api/credentials/{id}/rotate");
    let answer = control
        .post(&path, &ada.token, &json!({"overlapSeconds": 60}))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let rotated = answer.json();
    let new = rotated["token"].as_str().unwrap();
    assert_ne!(new, old);
    assert_eq!(
        rotated["credential"]["permissions"],
        issued["credential"]["permissions"]
    );
    for token in [old, new, &delegated] {
        assert_eq!(control.get("/api/whoami", token).await.status, 200);
    }
    let again = control
        .send(http::Method::POST, &path, Some(&ada.token), None)
        .await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));
    control.clock.advance(60);
    for (token, status) in [(old, 401), (new, 200), (&delegated, 401)] {
        assert_eq!(control.get("/api/whoami", token).await.status, status);
    }
    for bad in [json!(-1), json!(604_801), json!(1.0)] {
        let body = json!({"overlapSeconds": bad});
        let answer = control.post(&path, &ada.token, &body).await;
        assert_eq!(
            (answer.status, &answer.json()["field"]),
            (400, &json!("overlapSeconds"))
        );
    }
}

/// CP-11: a revocation is effective with its answer, and the audit log names its author.
async fn cp_11_revocation_includes_everything_issued_from_it(control: TestControl) {
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let issued = create(&control, &ada, json!({"type": "pat", "name": "a"})).await;
    let token = issued["token"].as_str().unwrap().to_owned();
    let holder = Person {
        token: token.clone(),
        ..ada.clone()
    };
    let child = control
        .delegated(&holder, json!({"permissions": null}))
        .await;
    let grandchild = Person {
        token: child.clone(),
        ..ada.clone()
    };
    let grandchild = control
        .delegated(&grandchild, json!({"permissions": null}))
        .await;
    let path = format!(
        "/api/credentials/{}",
        issued["credential"]["id"].as_str().unwrap()
    );
    control.clock.advance(1);
    // Another user gets a 404.
    assert_eq!(control.delete(&path, &eve.token).await.problem().0, 404);
    assert_eq!(control.delete(&path, &ada.token).await.status, 204);
    for token in [&token, &child, &grandchild] {
        assert_eq!(control.get("/api/whoami", token).await.status, 401);
    }
    assert_eq!(control.delete(&path, &ada.token).await.problem().0, 404);
    assert_eq!(
        control
            .delete("/api/credentials/x", &ada.token)
            .await
            .problem()
            .0,
        404
    );
    let mut read = control.app.store.read().await.unwrap();
    let page = store::Paging::new(1, 10).unwrap();
    let entries = audit::of_user(&mut read, ada.user, page).await.unwrap();
    let actions: Vec<_> = entries
        .items
        .iter()
        .map(|entry| entry.action.as_str())
        .collect();
    assert_eq!(actions, ["credential.revoked", "credential.issued"]);
}

#[tokio::test]
async fn a_use_is_recorded_to_the_minute() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let mut seen = Vec::new();
    for advance in [0, 30, 60] {
        control.clock.advance(advance);
        let list = control.get("/api/credentials", &ada.token).await.json();
        seen.push(
            list["credentials"][0]["lastUsedAt"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert_eq!(
        seen,
        [
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:01:30.000Z"
        ]
    );
}

/// CP-16: single credentials, and pages of lists.
#[tokio::test]
async fn cp_16_credentials_are_read_one_by_one_and_in_pages() {
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let eve = control.person("eve").await;
        control.clock.advance(1);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let app =
            json!({"type": "app", "name": "Ärger 100%", "publicKeyPem": key.public_key_pem()});
        let app = create(&control, &ada, app).await["credential"].clone();
        control.clock.advance(1);
        let ends = json!({"type": "pat", "name": "laptop", "expiresAt": "2026-01-01T01:00:00Z"});
        let pat = create(&control, &ada, ends).await["credential"].clone();
        control.clock.advance(3600);
        let path =
            |credential: &Value| format!("/api/credentials/{}", credential["id"].as_str().unwrap());
        let answer = control.get(&path(&app), &ada.token).await;
        assert_eq!((answer.status, answer.json()), (200, app.clone()));
        assert_eq!(app["publicKeyPem"], key.public_key_pem());
        let shown = control.get(&path(&pat), &ada.token).await.json();
        assert_eq!(
            (&pat["status"], &shown["status"]),
            (&json!("active"), &json!("expired"))
        );
        for (path, token) in [
            (path(&app), &eve.token),
            ("/api/credentials/x".to_owned(), &ada.token),
        ] {
            assert_eq!(control.get(&path, token).await.problem().0, 404);
        }
        for (query, names) in [
            ("", &["test", "Ärger 100%", "laptop"][..]),
            ("?order=desc&pageSize=2", &["laptop", "Ärger 100%"]),
            ("?order=desc&pageSize=2&page=2", &["test"]),
            ("?type=app", &["Ärger 100%"]),
            ("?type=mtls", &[]),
            ("?status=expired", &["laptop"]),
            ("?status=active&type=pat", &["test"]),
            ("?q=%C3%A4RGER", &["Ärger 100%"]),
            ("?q=0%25", &["Ärger 100%"]),
            ("?q=_", &[]),
        ] {
            let list = control
                .get(&format!("/api/credentials{query}"), &ada.token)
                .await
                .json();
            let found: Vec<_> = list["credentials"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| &item["name"])
                .collect();
            assert_eq!(found, names, "{query}");
        }
        for (query, at) in [
            ("type=x", "type"),
            ("status=revoked", "status"),
            ("order=up", "order"),
            ("sort=id", "sort"),
        ] {
            let answer = control
                .get(&format!("/api/credentials?{query}"), &ada.token)
                .await;
            assert_eq!((answer.status, &answer.json()["field"]), (400, &json!(at)));
        }
        assert_eq!(control.delete(&path(&app), &ada.token).await.status, 204);
        assert_eq!(control.get(&path(&app), &ada.token).await.problem().0, 404);
    }
}

/// A user has a limited number of active credentials. Expired ones do not count.
#[tokio::test]
async fn credentials_per_user_are_limited() {
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let eve = control.person("eve").await;
        let more = api::control::credentials::MAX_CREDENTIALS - 2;
        let ends = Some("2026-01-01T01:00:00Z".parse().unwrap());
        let mut tx = control.app.store.begin().await.unwrap();
        for _ in 0..more {
            let made = control::credentials::issue_pat(&control.app, ada.user, "a", ends).unwrap();
            credentials::insert(&mut tx, &made.credential)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        let body = json!({"type": "pat", "name": "a"});
        let last = create(&control, &ada, body.clone()).await;
        let answer = control.post("/api/credentials", &ada.token, &body).await;
        assert_eq!(answer.problem(), (409, "conflict".to_owned()));
        assert!(answer.json()["detail"].as_str().unwrap().contains("200"));
        create(&control, &eve, body.clone()).await;
        // Rotation with an overlap adds one for a while, and rotation without overlap adds none.
        let id = last["credential"]["id"].as_str().unwrap();
        let path = format!("/api/credentials/{id}/rotate");
        let answer = control
            .post(&path, &ada.token, &json!({"overlapSeconds": 60}))
            .await;
        assert_eq!(answer.problem(), (409, "conflict".to_owned()));
        assert_eq!(
            control.post(&path, &ada.token, &json!({})).await.status,
            200
        );
        control.clock.advance(3600);
        create(&control, &ada, body).await;
    }
}

/// Names are measured in characters. The older name of boundaries is accepted. The last use has an
/// address.
#[tokio::test]
async fn requests_of_the_sdks_are_accepted() {
    for control in TestControl::both().await {
        let ada = control.person("ada").await;
        let grants = json!({"projects": ["p1"]});
        let body = json!({"type": "pat", "name": "ä".repeat(100), "tunnelsGrants": grants,
        "permissionPolicy": {
            "control": {"mode": "select", "permissions": ["account.credentials.read-only"]},
            "engine": {"mode": "select", "permissions": ["tunnels.streams.create-delete"]},
        }});
        let issued = create(&control, &ada, body.clone()).await;
        assert_eq!(
            issued["credential"]["resources"],
            json!({"tunnels": grants})
        );
        assert_eq!(
            issued["credential"]["permissions"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        let mut both = body.clone();
        both["resources"] = json!({"tunnels": grants});
        assert_eq!(field(&control, &ada, both).await, "tunnelsGrants");
        let mut long = body;
        long["name"] = json!("ä".repeat(101));
        assert_eq!(field(&control, &ada, long).await, "name");
        let token = issued["token"].as_str().unwrap();
        let path = format!(
            "/api/credentials/{}",
            issued["credential"]["id"].as_str().unwrap()
        );
        let shown = control.get(&path, token).await.json();
        assert_eq!(
            (&shown["lastUsedAt"], &shown["lastUsedIp"]),
            (&json!("2026-01-01T00:00:00.000Z"), &json!("192.0.2.1"))
        );
    }
}
