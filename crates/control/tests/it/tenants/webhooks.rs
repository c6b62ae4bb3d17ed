//! Webhooks: endpoints, deliveries, and receivers.

mod deliveries;
mod platforms;
mod signatures;

use control::webhooks::{deliver_due, on_event};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::event::{Event, EventType};
use types::id::{EventId, ProjectId};

use crate::support::receiver::Receiver;
use crate::support::{Answer, Person, Project, TestControl, both, next};

both! {
    webhooks_are_added_changed_and_removed,
    a_project_has_a_bounded_number_of_webhooks,
    errors_of_a_webhook_name_the_field,
    a_plan_without_webhooks_refuses_them,
    users_without_write_access_see_only_the_host_of_webhooks,
}

/// A platform whose free plan has webhooks that may be sent to a receiver on loopback.
struct World {
    control: TestControl,
    receiver: Receiver,
    person: Person,
    project: Project,
}

impl World {
    async fn new(control: TestControl) -> Self {
        let ca_file = control.directory().join("receiver.pem");
        let receiver = Receiver::start(&ca_file).await;
        let control = control.configured(sections(&ca_file)).await;
        let person = control.person("ada").await;
        let project = control.project(&person).await;
        Self {
            control,
            receiver,
            person,
            project,
        }
    }

    fn path(&self) -> String {
        format!("/api/projects/tunnels/{}/webhooks", self.project.id)
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let path = format!("{}{path}", self.path());
        let token = Some(self.person.token.as_str());
        self.control.send(method, &path, token, body.as_ref()).await
    }

    async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await.expect(200)
    }

    /// Adds a webhook for this address. Returns its path and its secret.
    async fn add(&self, url: &str) -> (String, String) {
        let body = json!({"name": "Chat", "events": EVENTS, "config": {"url": url}});
        let made = self.call(Method::POST, "", Some(body)).await.expect(201);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (
            format!("/{}", text(&made["id"])),
            text(&made["signingSecret"]),
        )
    }

    /// Reports an event over an engine's link. Returns the number of new deliveries.
    async fn report(&self, event: &Event) -> u64 {
        let mut tx = self.control.app.store.begin().await.unwrap();
        let made = on_event(&mut tx, event, self.control.now()).await.unwrap();
        tx.commit().await.unwrap();
        made
    }

    async fn deliver(&self) {
        deliver_due(&self.control.app).await.unwrap();
    }

    /// The deliveries of a webhook, newest first.
    async fn deliveries(&self, webhook: &str) -> Vec<Value> {
        let list = self.get(&format!("{webhook}/deliveries")).await;
        list["deliveries"].as_array().unwrap().clone()
    }

    async fn audit(&self) -> Vec<String> {
        let path = format!("/api/workspaces/{}/audit", self.person.workspace);
        let list = self
            .control
            .get(&path, &self.person.token)
            .await
            .expect(200);
        let entries = list["entries"].as_array().unwrap().iter();
        let mut actions: Vec<_> = entries
            .map(|entry| entry["action"].as_str().unwrap().to_owned())
            .filter(|action| action.starts_with("webhook."))
            .collect();
        actions.sort();
        actions
    }
}

fn sections(ca_file: &std::path::Path) -> Value {
    json!({
        "catalog": {"plans": [{"plan": "basic", "webhooks": true}]},
        "webhooks": {"allowed_targets": ["127.0.0.0/8"], "ca_file": ca_file},
    })
}

const EVENTS: [&str; 4] = [
    "client.created",
    "client.deleted",
    "tunnel.created",
    "tunnel.deleted",
];

fn event(project: ProjectId, kind: EventType, at: Timestamp) -> Event {
    let millis = u64::try_from(at.as_millisecond()).unwrap();
    let mut random = [0; 10];
    random[2..].copy_from_slice(&next().to_be_bytes());
    let id = EventId::new(millis, random);
    let object = json!({"id": "tun_01h455vb4pex5vsknk084sn02q", "name": "web – ü"});
    let mut event = Event::new(id, kind, at, object);
    event.project_id = Some(project.to_string());
    event
}

impl World {
    fn event(&self, kind: EventType) -> Event {
        event(self.project.id, kind, self.control.now())
    }
}

/// CP-11: the whole life of an endpoint. Its secret is shown twice: when it is created and when it
/// is replaced.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn webhooks_are_added_changed_and_removed(control: TestControl) {
    let world = World::new(control).await;
    let body = json!({
        "name": " Chat ", "description": "Who is there", "config": {"url": "https://chat.example/in"},
        "events": ["tunnel.deleted", "client.created", "tunnel.deleted"],
    });
    let made = world.call(Method::POST, "", Some(body)).await.expect(201);
    let secret = made["signingSecret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"), "{secret}");
    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("signingSecret");
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        shown,
        json!({
            "id": id,
            "workspaceId": world.person.workspace,
            "projectId": world.project.id,
            "name": "Chat",
            "description": "Who is there",
            "destinationType": "webhook_endpoint",
            "status": "enabled",
            "events": ["client.created", "tunnel.deleted"],
            "config": {"url": "https://chat.example/in"},
            "secretLastRotatedAt": null,
            "previousSecretExpiresAt": null,
            "failingSince": null,
            "createdByUserId": world.person.user,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
            "deletedAt": null,
        })
    );
    let path = format!("/{id}");
    assert_eq!(world.get(&path).await, shown);
    world.control.clock.advance(60);
    let patch = json!({"name": "Log", "description": null, "status": "disabled"});
    let changed = world
        .call(Method::PATCH, &path, Some(patch))
        .await
        .expect(200);
    assert_eq!(changed["name"], "Log");
    assert_eq!(changed["description"], Value::Null);
    assert_eq!(changed["events"], shown["events"]);
    assert_eq!(changed["updatedAt"], "2026-01-01T00:01:00.000Z");
    let same = world
        .call(Method::PATCH, &path, Some(json!({})))
        .await
        .expect(200);
    assert_eq!(same, changed);

    let rotate = format!("{path}/secret/rotate");
    let rotated = world.call(Method::POST, &rotate, None).await.expect(200);
    assert_ne!(rotated["signingSecret"], secret.as_str());
    assert_eq!(rotated["secretLastRotatedAt"], "2026-01-01T00:01:00.000Z");
    assert_eq!(
        rotated["previousSecretExpiresAt"],
        "2026-01-02T00:01:00.000Z"
    );
    world.control.clock.advance(86_400);
    assert_eq!(
        world.get(&path).await["previousSecretExpiresAt"],
        Value::Null
    );

    world.add("https://b.example/in").await;
    for (query, found) in [
        ("", 2),
        ("?q=B.EXAMPLE", 1),
        ("?status=disabled", 1),
        ("?status=disabled&q=b.example", 0),
        ("?destinationType=webhook_endpoint", 2),
        ("?destinationType=azure_event_grid", 0),
    ] {
        let list = world.get(query).await;
        assert_eq!(list["total"], found, "{query}");
        assert_eq!(list["webhooks"].as_array().unwrap().len(), found, "{query}");
        assert!(
            !list.to_string().contains("whsec_"),
            "a secret is shown once"
        );
    }
    let list = world.get("?sort=name&order=desc").await;
    assert_eq!(list["webhooks"][0]["name"], "Log");
    world.call(Method::DELETE, &path, None).await.expect(204);
    world.call(Method::GET, &path, None).await.refused(404);
    world.call(Method::DELETE, &path, None).await.refused(404);
    assert_eq!(
        world.audit().await,
        [
            "webhook.created",
            "webhook.created",
            "webhook.deleted",
            "webhook.secret_rotated",
            "webhook.updated",
        ]
    );
}

async fn a_project_has_a_bounded_number_of_webhooks(control: TestControl) {
    let world = World::new(control).await;
    let mut last = String::new();
    for _ in 0..20 {
        last = world.add("https://a.example").await.0;
    }
    let body = json!({"name": "a", "events": EVENTS, "config": {"url": "https://a.example"}});
    let refused = world.call(Method::POST, "", Some(body.clone())).await;
    assert_eq!(refused.problem(), (409, "conflict".to_owned()));
    world.call(Method::DELETE, &last, None).await.expect(204);
    world.call(Method::POST, "", Some(body)).await.expect(201);
}

async fn errors_of_a_webhook_name_the_field(control: TestControl) {
    let world = World::new(control).await;
    let good =
        json!({"name": "a", "events": ["tunnel.created"], "config": {"url": "https://a.example"}});
    for (change, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "a\u{7}"}), "name"),
        (json!({"name": "a".repeat(101)}), "name"),
        (json!({"description": "a".repeat(1001)}), "description"),
        (json!({"events": []}), "events"),
        (json!({"events": ["tunnel.updated"]}), "events.0"),
        (json!({"status": "paused"}), "status"),
        (
            json!({"destinationType": "amazon_eventbridge"}),
            "destinationType",
        ),
        (json!({"config": {"url": "http://a.example"}}), "config.url"),
        (
            json!({"config": {"url": "https://u:p@a.example"}}),
            "config.url",
        ),
        (json!({"config": {"url": "https://10.0.0.1"}}), "config.url"),
        (json!({"config": {"url": "https://[::1]/"}}), "config.url"),
        (
            json!({"config": {"url": "https://0xa9fea9fe/"}}),
            "config.url",
        ),
        (
            json!({"config": {"url": format!("https://a.example/{}", "a".repeat(2048))}}),
            "config.url",
        ),
        (
            json!({"config": {"url": "https://a.example", "method": "GET"}}),
            "config.method",
        ),
        (json!({"secret": "whsec_AAAA"}), "secret"),
    ] {
        let mut body = good.clone();
        let members = change.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(members);
        let refused = world.call(Method::POST, "", Some(body)).await.refused(400);
        assert_eq!(refused.1.as_deref(), Some(field), "{change}");
    }
    let (path, _) = world.add("https://a.example").await;
    for (change, field) in [
        (json!({"name": null}), "name"),
        (json!({"events": []}), "events"),
        (
            json!({"config": {"url": "https://192.168.0.1"}}),
            "config.url",
        ),
        (
            json!({"destinationType": "webhook_endpoint"}),
            "destinationType",
        ),
    ] {
        let refused = world
            .call(Method::PATCH, &path, Some(change))
            .await
            .refused(400);
        assert_eq!(refused.1.as_deref(), Some(field));
    }
    let rotate = format!("{path}/secret/rotate");
    let body = json!({"overlapSeconds": 604_801});
    let refused = world
        .call(Method::POST, &rotate, Some(body))
        .await
        .refused(400);
    assert_eq!(refused.1.as_deref(), Some("overlapSeconds"));
    // Up to the limit.
    for _ in 1..20 {
        world.add("https://a.example").await;
    }
    let refused = world.call(Method::POST, "", Some(good)).await.refused(409);
    assert_eq!(refused.0, "conflict");
}

/// The built-in free plan has no webhooks. Existing ones can be changed, but not enabled.
async fn a_plan_without_webhooks_refuses_them(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add("https://a.example").await;
    let off = json!({"status": "disabled"});
    world
        .call(Method::PATCH, &path, Some(off))
        .await
        .expect(200);
    let World {
        control,
        receiver,
        person,
        project,
    } = world;
    let world = World {
        control: control.configured(json!({})).await,
        receiver,
        person,
        project,
    };
    let body = json!({"name": "a", "events": EVENTS, "config": {"url": "https://a.example"}});
    let refused = world.call(Method::POST, "", Some(body)).await.refused(409);
    assert_eq!(refused.0, "not_in_plan");
    let on = json!({"status": "enabled"});
    let refused = world
        .call(Method::PATCH, &path, Some(on))
        .await
        .refused(409);
    assert_eq!(refused.0, "not_in_plan");
    let rename = json!({"name": "b"});
    world
        .call(Method::PATCH, &path, Some(rename))
        .await
        .expect(200);
    let plan = format!("/api/projects/tunnels/{}/plan", world.project.id);
    let plan = world
        .control
        .get(&plan, &world.person.token)
        .await
        .expect(200);
    assert_eq!(plan["webhooks"], false);
}

/// For many receivers the path of the address is a secret.
async fn users_without_write_access_see_only_the_host_of_webhooks(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world
        .add("https://chat.example.com/hooks/secret?key=x")
        .await;
    let shown = world.get(&path).await;
    assert_eq!(
        shown["config"]["url"],
        "https://chat.example.com/hooks/secret?key=x"
    );
    let eve = world.control.person("eve").await;
    let workspace = world.person.workspace;
    let viewer = store::members::Role::Viewer;
    world.control.join(&eve, workspace, viewer).await;
    for path in [String::new(), path] {
        let path = format!("{}{path}", world.path());
        let answer = world.control.get(&path, &eve.token).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.contains("\"https://chat.example.com/\""));
        assert!(!answer.text.contains("secret?key"), "{}", answer.text);
    }
}
