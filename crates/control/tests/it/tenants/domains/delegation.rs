//! Domains that certificate authorities validate in the DNS: the delegation of their challenges.

use http::Method;
use serde_json::{Value, json};

use super::{DAY, World, call, results};
use crate::support::{TestControl, both};

both! {
    a_wildcard_needs_the_delegation_of_its_challenges,
    a_name_and_its_wildcard_have_one_delegation,
    without_a_zone_the_refusal_names_the_keys_of_the_operator,
}

fn delegation(domain: &Value) -> (&Value, &str) {
    let check = &domain["checks"][2];
    assert_eq!(check["purpose"], "delegation", "{domain}");
    (check, check["result"].as_str().unwrap())
}

async fn a_wildcard_needs_the_delegation_of_its_challenges(control: TestControl) {
    let world = World::new(control).await;
    let wildcard = world.add("*.app.example.com").await;
    let record = &wildcard["records"][2];
    let target = record["value"].as_str().unwrap();
    assert!(target.ends_with(".acme.example.net"), "{target}");
    let name = "_acme-challenge.app.example.com";
    let expected = json!({
        "purpose": "delegation", "type": "CNAME", "name": name, "value": target,
    });
    assert_eq!(*record, expected);
    for record in &wildcard["records"].as_array().unwrap()[..2] {
        let text = |member: &str| record[member].as_str().unwrap();
        world.dns.add(0, text("type"), text("name"), text("value"));
    }
    let missing = world.verify(&wildcard).await;
    assert_eq!(results(&missing), ["found", "found"]);
    let (check, result) = delegation(&missing);
    assert_eq!((result, &missing["status"]), ("missing", &json!("pending")));
    let detail = check["detail"].as_str().unwrap();
    assert!(
        detail.contains(&format!("CNAME {name} {target}")),
        "{detail}"
    );

    world.dns.add(0, "CNAME", name, "other.acme.example.net");
    let different = world.verify(&wildcard).await;
    let (check, result) = delegation(&different);
    assert_eq!(result, "different");
    assert_eq!(check["seen"], json!(["CNAME other.acme.example.net"]));
    assert_eq!(different["status"], "pending");

    world.dns.remove(name);
    world.dns.add(0, "CNAME", name, target);
    let verified = world.verify(&wildcard).await;
    assert_eq!(delegation(&verified).1, "found");
    assert_eq!(verified["status"], "verified");
    // The target stays the same, and its loss suspends no domain: it may have an uploaded certificate.
    world.dns.remove(name);
    world.check_after(DAY).await;
    let shown = world.show(&wildcard).await;
    assert_eq!(shown["records"], wildcard["records"]);
    assert_eq!(
        (delegation(&shown).1, &shown["status"]),
        ("missing", &json!("verified"))
    );

    // Without a wildcard it depends on the requested validation.
    for (validation, records) in [("dns_01", 3), ("tls_alpn_01", 2)] {
        let name = format!("{}.example.com", validation.replace('_', "-"));
        let body = json!({"hostname": name, "certificateValidation": validation});
        let added = world.call(Method::POST, "", Some(body)).await.expect(201);
        assert_eq!(added["records"].as_array().unwrap().len(), records);
    }
}

/// A name has one record `_acme-challenge`, so that both can be validated only with the same target.
/// The record of one project proves nothing for another one.
async fn a_name_and_its_wildcard_have_one_delegation(control: TestControl) {
    let world = World::new(control).await;
    let body = json!({"hostname": "app.example.com", "certificateValidation": "dns_01"});
    let add = async |body: Value| world.call(Method::POST, "", Some(body)).await.expect(201);
    let name = add(body.clone()).await;
    let wildcard = add(json!({"hostname": "*.app.example.com"})).await;
    assert_eq!(name["records"][2], wildcard["records"][2]);
    let eve = world.control.person("eve").await;
    let other = world.control.project(&eve).await;
    let own = (&eve, &other);
    let hers = call(&world.control, own, Method::POST, "", Some(body)).await;
    let hers = hers.expect(201);
    assert_ne!(hers["records"][2]["value"], name["records"][2]["value"]);
    world.dns.enter(0, &name);
    for record in &wildcard["records"].as_array().unwrap()[..2] {
        let text = |member: &str| record[member].as_str().unwrap();
        world.dns.add(0, text("type"), text("name"), text("value"));
    }
    for domain in [&name, &wildcard] {
        let verified = world.verify(domain).await;
        assert_eq!(delegation(&verified).1, "found");
        assert_eq!(verified["status"], "verified", "{verified}");
    }
}

async fn without_a_zone_the_refusal_names_the_keys_of_the_operator(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let path = format!("/api/projects/tunnels/{}/domains", project.id);
    for body in [
        json!({"hostname": "*.app.example.com"}),
        json!({"hostname": "app.example.com", "certificateValidation": "dns_01"}),
    ] {
        let refused = control.post(&path, &ada.token, &body).await;
        let (code, field) = refused.refused(409);
        assert_eq!(code, "dns_validation_unavailable");
        assert_eq!(field.as_deref(), Some("hostname"));
        for key in ["domains.challenge_zones", "certs.acme.dns_responder.zone"] {
            assert!(refused.text.contains(key), "{}", refused.text);
        }
    }
    let body = json!({"hostname": "app.example.com"});
    control.post(&path, &ada.token, &body).await.expect(201);
}
