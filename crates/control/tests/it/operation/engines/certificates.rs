//! Certificates that projects uploaded for their domains, on the way to the engines.

use api::link::Item;
use http::Method;
use serde_json::{Value, json};
use store::domains::{self, State};

use super::changes::custom_domain;
use super::{OTHER_SECRET, RELAY_SECRET, linked, to_json};
use crate::support::{TestControl, both};

both! {
    an_uploaded_certificate_is_sent_to_the_engines_of_its_project,
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
