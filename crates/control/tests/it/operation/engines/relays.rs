//! Relays on the link: they receive what engines receive, and the keys of TURN credentials.

use api::link::Item;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use credentials::Secret;
use credentials::turn::{PasswordKey, RelayPrivateKey, api_password};
use serde_json::json;

use super::{RELAY_SECRET, SECRET, linkable, linked};
use crate::operation::engines::reports::report;
use crate::support::{TestControl, both};

both! {
    keys_of_turn_credentials_are_sent_to_relays_only,
    a_relay_reports_only_turn_usage,
}

/// TU-5: with the data that it receives, a relay computes the passwords that the platform issues.
async fn keys_of_turn_credentials_are_sent_to_relays_only(control: TestControl) {
    let (control, served, _engine, ada, project) = linked(control).await;
    let is_keys = |item: &Item| matches!(item, Item::RelayKeys(_));
    let mut engine = served.link_of(SECRET, None).await;
    let engine = engine.everything().await;
    assert!(!engine.items.iter().any(is_keys));
    let mut relay = served.link_of(RELAY_SECRET, None).await;
    let snapshot = relay.everything().await;
    assert_eq!(
        snapshot.items.len(),
        engine.items.len() + 1,
        "and everything else"
    );
    let keys = snapshot.items.iter().find_map(|item| match item {
        Item::RelayKeys(keys) => Some(keys),
        _ => None,
    });
    let keys = keys.unwrap();
    assert_eq!(keys.realm, "engine.example");
    let path = format!(
        "/api/projects/tunnels/{}/turn-server/credentials",
        project.id
    );
    let issued = control.post(&path, &ada.token, &json!({})).await;
    let issued = issued.expect(200);
    let secret = Secret::new(STANDARD.decode(&keys.secret).unwrap());
    let username = issued["username"].as_str().unwrap();
    let password = api_password(&secret, &keys.realm, username);
    assert_eq!(password.as_deref(), issued["credential"].as_str());
    assert!(PasswordKey::api(&secret, &keys.realm).is_some());
    let private = Secret::new(STANDARD.decode(&keys.private_key).unwrap());
    assert!(RelayPrivateKey::from_der(&private).is_some());

    // A relay that reconnects receives the keys again, whatever else changed.
    drop(relay);
    let mut relay = served.link_of(RELAY_SECRET, Some(&snapshot.cursor)).await;
    let (_, items) = relay.change().await;
    assert!(items.iter().any(is_keys));
    // A relay cannot resume from an engine's cursor, nor an engine from a relay's.
    let mut relay = served.link_of(RELAY_SECRET, Some(&engine.cursor)).await;
    assert!(relay.everything().await.items.iter().any(is_keys));
    served.stop().await;
}

async fn a_relay_reports_only_turn_usage(control: TestControl) {
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await.id.to_string();
    let turn = json!({"record": "turn_usage", "project_id": project,
        "hour": "2026-01-01T00:00:00Z", "allocations": 1, "relayed_bytes": 7});
    let inventory =
        json!({"record": "inventory", "project_id": project, "clients": 1, "tunnels": 1});
    let answer = report(&control, RELAY_SECRET, 1, json!([turn])).await;
    assert_eq!(answer.expect(200)["through"], 1);
    let answer = report(&control, RELAY_SECRET, 2, json!([turn, inventory])).await;
    assert_eq!(answer.expect(400)["field"], "records.1.record");
}
