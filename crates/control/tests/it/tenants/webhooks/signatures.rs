//! Deliveries are verified by third-party libraries.

use std::process::{Command, Stdio};

use control::webhooks::{deliver_due, on_event};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::event::EventType;

use super::{World, event, sections};
use crate::node;
use crate::support::receiver::ReceivedRequest;
use crate::support::{TestControl, both};

both! {
    third_party_libraries_verify_deliveries,
}

/// The JavaScript library of Standard Webhooks, and the Python SDK of the ecosystem.
async fn third_party_libraries_verify_deliveries(control: TestControl) {
    let world = World::new(control).await;
    // The libraries check the time.
    world.control.clock.set(Timestamp::now());
    let (path, old) = world.add(&world.receiver.url()).await;
    let first = world.event(EventType::TunnelCreated);
    assert_eq!(world.report(&first).await, 1);
    world.deliver().await;
    let request = world.receiver.wait_for(1).await.remove(0);
    assert_eq!(request.line, "POST /in?x=1 HTTP/1.1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.body, first.to_line());
    assert_eq!(request.header("webhook-id"), Some(first.id.as_str()));
    assert_eq!(request.header("svc-event-id"), Some(first.id.as_str()));
    assert_eq!(request.header("svc-event-type"), Some("tunnel.created"));
    assert_eq!(request.header("svc-webhook-id"), Some(&path[1..]));
    assert_eq!(request.header("rstream-signature"), None);
    assert_eq!(verified(&request, &old), (true, true));
    let other = format!("whsec_{}", "A".repeat(44));
    assert_eq!(verified(&request, &other), (false, false));
    let forged = ReceivedRequest {
        body: request.body.replace("web", "wab"),
        ..request.clone()
    };
    assert_eq!(verified(&forged, &old), (false, false));

    // Both secrets sign during the overlap, and then only the new one.
    let rotate = format!("{path}/secret/rotate");
    let body = json!({"overlapSeconds": 10});
    let rotated = world
        .call(Method::POST, &rotate, Some(body))
        .await
        .expect(200);
    let new = rotated["signingSecret"].as_str().unwrap();
    world.report(&world.event(EventType::TunnelDeleted)).await;
    world.deliver().await;
    let request = world.receiver.wait_for(2).await.remove(1);
    assert_eq!(verified(&request, &old), (true, true));
    assert_eq!(verified(&request, new), (true, true));
    world.control.clock.advance(10);
    world.report(&world.event(EventType::ClientCreated)).await;
    world.deliver().await;
    let request = world.receiver.wait_for(3).await.remove(2);
    assert_eq!(verified(&request, &old), (false, false));
    assert_eq!(verified(&request, new), (true, true));

    // The SDK's own header names work as well.
    let ca_file = world.control.directory().join("receiver.pem");
    let mut sections = sections(&ca_file);
    sections["compat"] = json!({"rstream": true});
    let now = world.control.now();
    let control = world.control.configured(sections).await;
    let made = event(world.project.id, EventType::ClientDeleted, now);
    let mut tx = control.app.store.begin().await.unwrap();
    on_event(&mut tx, &made, now).await.unwrap();
    tx.commit().await.unwrap();
    deliver_due(&control.app).await.unwrap();
    let request = world.receiver.wait_for(4).await.remove(3);
    assert_eq!(
        request.header("rstream-signature"),
        request.header("svc-signature")
    );
    assert_eq!(request.header("rstream-event-id"), Some(made.id.as_str()));
}

/// True for each library that accepts the request.
fn verified(request: &ReceivedRequest, secret: &str) -> (bool, bool) {
    let mut input = request.json();
    input["secret"] = json!(secret);
    let by_standard = node::run(STANDARD, &input);
    let python = std::env::var_os("SVC_TEST_PYTHON")
        .unwrap_or_else(|| panic!("SVC_TEST_PYTHON is not set: run cargo xtask test"));
    let mut python = Command::new(python)
        .args(["-c", SDK])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(python.stdin.take().unwrap(), &input).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let by_sdk: Value = serde_json::from_slice(&output.stdout).unwrap();
    (by_standard == json!(true), by_sdk == json!(true))
}

const STANDARD: &str = r#"
import { Webhook, WebhookVerificationError } from "standardwebhooks";
import { readFileSync } from "node:fs";
const { headers, body, secret } = JSON.parse(readFileSync(0, "utf8"));
let answer = true;
try {
  const event = new Webhook(secret).verify(body, headers);
  if (event.id !== headers["webhook-id"]) answer = "another event";
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  answer = String(error);
}
console.log(JSON.stringify(answer));
"#;

const SDK: &str = r#"
import json, sys
from rstream.errors import RuntimeError
from rstream.webhooks import Webhooks
given = json.load(sys.stdin)
answer = True
try:
    event = Webhooks().event(given["body"], given["headers"]["svc-signature"], given["secret"])
    if event.id != given["headers"]["svc-event-id"]:
        answer = "another event"
except RuntimeError as error:
    answer = str(error)
print(json.dumps(answer))
"#;
