//! CP-11, CP-16: chains of issued credentials, and permission to change them.

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};

use crate::access::credentials::create;
use crate::support::{TestControl, both};

both! {
    cp_11_a_chain_of_credentials_is_shown_and_revoked,
    cp_11_a_restricted_credential_cannot_change_a_wider_one,
    cp_16_a_certificate_can_be_registered_by_several_people,
}

/// A personal access token, and a credential that was issued with it: `(id, token)`.
async fn pat(control: &TestControl, token: &str, body: Value) -> (String, String) {
    let answer = control.post("/api/credentials", token, &body).await;
    let issued = answer.expect(201);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&issued["credential"]["id"]), text(&issued["token"]))
}

/// CP-11: credentials issued with a token, or with a token minted from it, are linked to it. They
/// are revoked with it on request, even if the token itself was revoked before.
async fn cp_11_a_chain_of_credentials_is_shown_and_revoked(control: TestControl) {
    let ada = control.person("ada").await;
    let own = json!({"type": "pat", "name": "own"});
    let (first, leaked) = pat(&control, &ada.token, own.clone()).await;
    let (second, second_token) = pat(&control, &leaked, own.clone()).await;
    let ends = json!({"type": "pat", "name": "minted", "expiresAt": "2026-01-01T00:04:00Z"});
    let minted = json!({"permissions": ["account.credentials.read-write"], "ttlSeconds": 300});
    let minted = control
        .post("/api/tokens", &leaked, &minted)
        .await
        .expect(200);
    let minted = minted["token"].as_str().unwrap();
    let (third, third_token) = pat(&control, minted, ends).await;
    let (fourth, fourth_token) = pat(&control, &second_token, own).await;
    for (id, issuer) in [(&second, &first), (&third, &first), (&fourth, &second)] {
        let path = format!("/api/credentials/{id}");
        let shown = control.get(&path, &ada.token).await.expect(200);
        assert_eq!(shown["issuedBy"], **issuer);
    }
    let is_good = async |token: &str| control.get("/api/whoami", token).await.status == 200;
    let path = format!("/api/credentials/{first}");
    assert_eq!(control.delete(&path, &ada.token).await.status, 204);
    assert_eq!(control.delete(&path, &ada.token).await.status, 404);
    assert!(!is_good(&leaked).await && is_good(&second_token).await);
    assert!(is_good(&third_token).await && is_good(&fourth_token).await);

    let odd = control
        .delete(&format!("{path}?issued=1"), &ada.token)
        .await;
    assert_eq!(odd.refused(400).1.as_deref(), Some("issued"));
    let all = format!("{path}?issued=true");
    assert_eq!(control.delete(&all, &ada.token).await.status, 204);
    for token in [&second_token, &third_token, &fourth_token] {
        assert!(!is_good(token).await);
    }
    assert!(is_good(&ada.token).await);

    // The user sees the action, the credential and the address of each entry.
    let log = control.get("/api/user/audit", &ada.token).await.expect(200);
    let entries = log["entries"].as_array().unwrap();
    let find = |action: &str, target: &str| {
        let is_it = |entry: &&Value| entry["action"] == action && entry["targetId"] == target;
        entries.iter().find(is_it).unwrap()
    };
    let issued = find("credential.issued", &second);
    assert_eq!(issued["actorCredentialId"], first);
    assert_eq!(issued["ip"], "192.0.2.1");
    let revoked = find("credential.revoked", &fourth);
    assert_eq!(revoked["details"], json!({"with": first}));
    let page = control.signed_in("ada").await.open("/account").await;
    assert!(page.text.contains("credential revoked"));
    // The user was notified immediately, with the address.
    let mails = control.mails().await;
    let is_notice = |mail: &&String| mail.contains("Subject: A new credential for your account");
    assert_eq!(mails.iter().filter(is_notice).count(), 4);
    assert!(mails[0].contains("To: ada@example.com") && mails[0].contains("192.0.2.1"));
    // Other users cannot see the log.
    let eve = control.person("eve").await;
    let log = control.get("/api/user/audit", &eve.token).await.expect(200);
    assert_eq!(log["total"], 0);
}

/// CP-11: rotation and revocation follow one rule: a caller may change itself, and no credential
/// with more permissions.
async fn cp_11_a_restricted_credential_cannot_change_a_wider_one(control: TestControl) {
    let ada = control.person("ada").await;
    let wide = json!({"type": "pat", "name": "wide"});
    let (wide, wide_token) = pat(&control, &ada.token, wide).await;
    let narrow = json!({"type": "pat", "name": "narrow",
        "permissions": ["account.credentials.read-write"], "expiresAt": "2026-02-01T00:00:00Z"});
    let (own, narrow_token) = pat(&control, &ada.token, narrow.clone()).await;
    let (equal, _) = pat(&control, &ada.token, narrow).await;
    for query in ["", "?issued=true"] {
        let path = format!("/api/credentials/{wide}{query}");
        let refused = control.delete(&path, &narrow_token).await;
        assert_eq!(refused.refused(403).0, "insufficient_scope");
    }
    let path = format!("/api/credentials/{wide}/rotate");
    let refused = control.post(&path, &narrow_token, &json!({})).await;
    assert_eq!(refused.refused(403).0, "insufficient_scope");
    assert_eq!(control.get("/api/whoami", &wide_token).await.status, 200);
    for id in [equal, own] {
        let path = format!("/api/credentials/{id}");
        assert_eq!(control.delete(&path, &narrow_token).await.status, 204);
    }
}

/// CP-16: registration needs no key, so a certificate that an attacker registers still belongs to
/// its owner.
async fn cp_16_a_certificate_can_be_registered_by_several_people(control: TestControl) {
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = CertificateParams::new(vec!["door".to_owned()]).unwrap();
    let pem = certificate.self_signed(&key).unwrap().pem();
    let body = json!({"type": "mtls", "name": "door", "certificatePem": pem});
    for who in [&eve, &ada] {
        create(&control, who, body.clone()).await;
        let again = control.post("/api/credentials", &who.token, &body).await;
        assert_eq!(again.refused(409).0, "conflict", "once per user");
    }
}
