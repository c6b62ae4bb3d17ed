//! Certificates that projects uploaded for their domains, on the way to the engines, and those of the
//! engines, on the way to the operators.

use api::link::Item;
use http::Method;
use serde_json::{Value, json};
use store::domains::{self, State};
use store::users;

use super::changes::custom_domain;
use super::reports::report;
use super::{OTHER_SECRET, RELAY_SECRET, SECRET, linkable, linked, to_json};
use crate::support::{TestControl, both};

both! {
    an_uploaded_certificate_is_sent_to_the_engines_of_its_project,
    operators_see_the_certificates_of_engines,
}

fn certificates(items: &[Item]) -> Vec<Value> {
    let items = to_json(items).into_iter();
    let items = items.filter(|item| item["item"] == "domain_certificate");
    items.collect()
}

async fn an_uploaded_certificate_is_sent_to_the_engines_of_its_project(control: TestControl) {
    let (control, served, mut link, ada, project) = linked(control).await;
    let name = "app.example.com";
    let mut tx = control.app.store.begin().await.unwrap();
    let domain = custom_domain(&control, (&ada, &project), 1, name, State::Verified);
    domains::insert(&mut tx, &domain).await.unwrap();
    tx.commit().await.unwrap();
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    let body = json!({"certificate": made.cert.pem(), "privateKey": key});
    let of_domain = format!("/api/projects/tunnels/{}/domains/{}", project.id, domain.id);
    let path = format!("{of_domain}/certificate");
    let send = async |method: Method, body: Option<&Value>| {
        control.send(method, &path, Some(&ada.token), body).await
    };
    send(Method::PUT, Some(&body)).await.expect(200);

    let (_, items) = link.change().await;
    let sent = to_json(&items);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0]["item"], "project");
    assert_eq!(sent[0]["domains"][0]["has_certificate"], true);
    let chain = sent[1]["chain"].as_str().unwrap();
    assert_eq!(chain.lines().next(), Some("-----BEGIN CERTIFICATE-----"));
    let expected = json!({
        "item": "domain_certificate", "id": domain.id, "project_id": project.id,
        "hostname": name, "chain": chain, "private_key": key,
    });
    assert_eq!(sent[1], expected);
    let whole = served.link(None).await.everything().await;
    assert_eq!(certificates(&whole.items), [expected]);
    for secret in [OTHER_SECRET, RELAY_SECRET] {
        let other = served.link_of(secret, None).await.everything().await;
        assert!(certificates(&other.items).is_empty(), "{other:?}");
    }

    send(Method::DELETE, None).await.expect(204);
    let (_, items) = link.change().await;
    let sent = to_json(&items);
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0]["domains"][0].get("has_certificate").is_none());
    served.stop().await;
}

/// An engine reports the certificates of its own names, and its last report counts for 15 minutes.
async fn operators_see_the_certificates_of_engines(control: TestControl) {
    let control = linkable(control).await;
    let person = control.person("Ops").await;
    let mut tx = control.app.store.begin().await.unwrap();
    let role = users::set_role(&mut tx, person.user, users::Role::Admin, control.now());
    role.await.unwrap();
    tx.commit().await.unwrap();
    let shown = async || {
        let list = control.get("/api/operator/engines", &person.token).await;
        list.expect(200)["clusters"][0]["certificates"].clone()
    };
    assert_eq!(shown().await, json!([]));

    let files = json!({"source": "files", "names": ["engine.example"],
        "expires_at": "2026-03-01T00:00:00Z"});
    let failed = json!({"source": "acme", "names": ["*.t.engine.example"],
        "problem": "rateLimited:\u{202e} too many", "next_attempt_at": "2026-01-01T00:05:00Z"});
    let record = |certificates: Value| json!([{"record": "engine_certificates", "certificates": certificates}]);
    let both = record(json!([files, failed]));
    report(&control, SECRET, 1, both.clone()).await.expect(200);
    let seen = shown().await;
    assert_eq!(seen[0]["expiresAt"], "2026-03-01T00:00:00.000Z");
    assert_eq!(seen[0]["names"], json!(["engine.example"]));
    assert_eq!(seen[1]["source"], "acme");
    assert_eq!(seen[1]["problem"], "rateLimited:  too many");
    assert_eq!(seen[1]["nextAttemptAt"], "2026-01-01T00:05:00.000Z");
    assert_eq!(seen[1].get("expiresAt"), None);
    let mut browser = control.signed_in("Ops").await;
    let page = browser.open("/operator/engines").await;
    for text in ["*.t.engine.example", "not issued yet", "too many"] {
        assert!(page.text.contains(text), "{}", page.text);
    }

    // The next report replaces it as a whole.
    report(&control, SECRET, 2, record(json!([files])))
        .await
        .expect(200);
    assert_eq!(shown().await.as_array().unwrap().len(), 1);
    control.clock.advance(15 * 60);
    assert_eq!(shown().await, json!([]));

    // Relays report no certificates, and an excessive name is refused by its member.
    let refused = report(&control, RELAY_SECRET, 1, both).await;
    assert_eq!(refused.refused(400).1.as_deref(), Some("records.0.record"));
    let long = json!([{"source": "acme", "names": ["x".repeat(254)]}]);
    let refused = report(&control, SECRET, 3, record(long)).await;
    let (_, field) = refused.refused(400);
    assert_eq!(field.as_deref(), Some("records.0.certificates.0.names"));
}
