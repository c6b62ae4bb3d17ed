//! Registered terminal servers.

use http::Method;
use serde_json::{Value, json};
use store::members::Role;
use tty::identity::EndpointIdentity;

use crate::support::{Answer, Person, Project, TestControl, both};

both! {
    servers_are_registered_enrolled_changed_and_removed,
    errors_of_a_server_name_the_field,
    a_server_keeps_its_keys,
    a_list_of_servers_has_pages_and_filters,
    roles_and_permissions_for_servers,
    wt_6_a_token_for_one_restricted_server_cannot_manage_servers,
    a_project_has_a_bounded_number_of_servers,
}

struct World {
    control: TestControl,
    person: Person,
    project: Project,
}

impl World {
    async fn new(control: TestControl) -> Self {
        let person = control.person("ada").await;
        let project = control.project(&person).await;
        Self {
            control,
            person,
            project,
        }
    }

    fn path(&self, rest: &str) -> String {
        format!(
            "/api/projects/tunnels/{}/webtty/servers{rest}",
            self.project.id
        )
    }

    async fn call(&self, method: Method, rest: &str, body: Value) -> Answer {
        let token = Some(self.person.token.as_str());
        let body = (!body.is_null()).then_some(&body);
        self.control
            .send(method, &self.path(rest), token, body)
            .await
    }

    async fn get(&self, rest: &str) -> Value {
        self.call(Method::GET, rest, Value::Null).await.expect(200)
    }

    async fn create(&self, body: Value) -> Answer {
        self.call(Method::POST, "", body).await
    }

    /// Registers a server with this name. Returns the end of its path.
    async fn add(&self, name: &str) -> String {
        let made = self.create(json!({"name": name})).await.expect(201);
        format!("/{}", made["server"]["id"].as_str().unwrap())
    }

    async fn enroll(&self, server: &str, body: Value) -> Answer {
        self.call(Method::POST, &format!("{server}/enroll"), body)
            .await
    }

    async fn patch(&self, server: &str, body: Value) -> Answer {
        self.call(Method::PATCH, server, body).await
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
            .filter(|action| action.starts_with("webtty_server."))
            .collect();
        actions.sort();
        actions
    }
}

/// The request body of a host with these keys.
fn keys(identity: &EndpointIdentity) -> Value {
    let public = identity.public();
    json!({
        "serverPublicKey": public.encryption_text(),
        "serverSigningKeyId": public.signing.id(),
        "serverSigningPublicKey": public.signing.to_text(),
        "serverFingerprint": public.fingerprint(),
        "serverKeyAlgorithm": "webtty-x25519-hpke-v1",
        "capabilities": {"transports": ["plain"], "execution_modes": ["spawn"],
            "encryption": [], "labels": {"os": "linux"}},
    })
}

/// CP-12: the whole life of a record, and its entries in the audit log.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn servers_are_registered_enrolled_changed_and_removed(control: TestControl) {
    let world = World::new(control).await;
    let body = json!({"name": " build ", "description": "A host", "labels": {"rack": "7"}});
    let made = world.create(body).await.expect(201);
    let server = &made["server"];
    let id = server["id"].as_str().unwrap().to_owned();
    assert_eq!(
        *server,
        json!({
            "id": id,
            "workspaceId": world.person.workspace,
            "projectId": world.project.id,
            "name": "build",
            "description": "A host",
            "status": "pending_enrollment",
            "recordingPolicy": "recorded",
            "encryptionPolicy": "disabled",
            "accessPolicy": "project_members",
            "labels": {"rack": "7"},
            "createdByUserId": world.person.user,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
        })
    );
    let at = format!("/{id}");
    assert_eq!(world.get(&at).await, *server);
    // It cannot be suspended before it is active.
    for status in ["active", "suspended"] {
        let refused = world.patch(&at, json!({"status": status})).await;
        assert_eq!(refused.problem(), (409, "not_enrolled".to_owned()));
    }

    world.control.clock.advance(60);
    let identity = EndpointIdentity::generate().unwrap();
    let enrolled = world.enroll(&at, keys(&identity)).await.expect(200);
    assert_eq!(enrolled["status"], "active");
    assert_eq!(enrolled["enrolledAt"], "2026-01-01T00:01:00.000Z");
    assert_eq!(enrolled["capabilities"]["labels"]["os"], "linux");
    let public = identity.public();
    for (key, value) in [
        ("serverPublicKey", public.encryption_text()),
        ("serverSigningKeyId", public.signing.id()),
        ("serverSigningPublicKey", public.signing.to_text()),
        ("serverFingerprint", public.fingerprint()),
        ("serverKeyAlgorithm", "webtty-x25519-hpke-v1".to_owned()),
    ] {
        assert_eq!(enrolled[key], value);
    }

    let changed = world
        .patch(
            &at,
            json!({"name": "other", "description": null, "recordingPolicy": "private",
                "accessPolicy": "restricted", "labels": {}}),
        )
        .await
        .expect(200);
    assert_eq!(changed["name"], "other");
    assert_eq!(changed.get("description"), None);
    assert_eq!(changed["recordingPolicy"], "private");
    assert_eq!(changed["accessPolicy"], "restricted");
    assert_eq!(changed["labels"], json!({}));
    assert_eq!(changed["encryptionPolicy"], "disabled");
    let same = world.patch(&at, json!({})).await.expect(200);
    assert_eq!(same, changed);
    for status in ["suspended", "suspended", "active"] {
        let changed = world
            .patch(&at, json!({"status": status}))
            .await
            .expect(200);
        assert_eq!(changed["status"], status);
    }
    world
        .call(Method::DELETE, &at, Value::Null)
        .await
        .expect(204);
    for method in [Method::GET, Method::DELETE] {
        let gone = world.call(method, &at, Value::Null).await;
        assert_eq!(gone.status, 404);
    }
    assert_eq!(
        world.audit().await,
        [
            "webtty_server.created",
            "webtty_server.deleted",
            "webtty_server.enrolled",
            "webtty_server.resumed",
            "webtty_server.suspended",
            "webtty_server.updated",
        ]
    );
}

/// CP-12: each field at fault is named.
async fn errors_of_a_server_name_the_field(control: TestControl) {
    let world = World::new(control).await;
    let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!(""))).collect();
    for (body, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "a\u{7}b"}), "name"),
        (json!({"name": "x".repeat(101)}), "name"),
        (
            json!({"name": "a", "description": "x".repeat(1001)}),
            "description",
        ),
        (
            json!({"name": "a", "recordingPolicy": "strict"}),
            "recordingPolicy",
        ),
        (
            json!({"name": "a", "accessPolicy": "nobody"}),
            "accessPolicy",
        ),
        (json!({"name": "a", "labels": many}), "labels"),
        (json!({"name": "a", "labels": {"": "x"}}), "labels"),
        (json!({"name": "a", "status": "active"}), "status"),
    ] {
        let (code, named) = world.create(body.clone()).await.refused(400);
        assert_eq!(code, "invalid_request", "{body}");
        let named = named.unwrap();
        assert!(named.starts_with(field), "{body}: {named}");
    }
    let body = json!({"name": "a", "encryptionPolicy": "workspace_managed"});
    let refused = world.create(body).await.refused(400);
    let field = Some("encryptionPolicy".to_owned());
    assert_eq!(refused, ("feature_unavailable".to_owned(), field));

    let at = world.add("a").await;
    let refused = world.create(json!({"name": "a"})).await.refused(409);
    assert_eq!(refused, ("name_taken".to_owned(), Some("name".to_owned())));
    let other = world.add("b").await;
    let refused = world.patch(&other, json!({"name": "a"})).await.refused(409);
    assert_eq!(refused, ("name_taken".to_owned(), Some("name".to_owned())));
    for (body, field) in [
        (json!({"encryptionPolicy": "disabled"}), "encryptionPolicy"),
        (json!({"status": "pending_enrollment"}), "status"),
        (json!({"name": null}), "name"),
    ] {
        let (_, named) = world.patch(&at, body).await.refused(400);
        assert_eq!(named.as_deref(), Some(field));
    }

    let good = keys(&EndpointIdentity::generate().unwrap());
    let other = keys(&EndpointIdentity::generate().unwrap());
    let long = json!({"transports": ["x".repeat(65)]});
    for (field, value) in [
        ("serverPublicKey", json!("AAAA")),
        ("serverSigningKeyId", other["serverSigningKeyId"].clone()),
        ("serverSigningPublicKey", good["serverPublicKey"].clone()),
        ("serverFingerprint", other["serverFingerprint"].clone()),
        ("serverKeyAlgorithm", json!("rot13")),
        ("capabilities", long),
        ("capabilities", json!({"labels": {"": ""}})),
        ("capabilities", json!({"more": []})),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let (_, named) = world.enroll(&at, body).await.refused(400);
        let named = named.unwrap();
        assert!(named.starts_with(field), "{field}: {named}");
    }
    assert_eq!(world.get(&at).await["status"], "pending_enrollment");
    // The maximum number of words of the maximum length, and one more.
    for list in ["transports", "execution_modes", "encryption"] {
        let mut body = good.clone();
        body["capabilities"][list] = json!(vec!["x".repeat(64); 17]);
        let (_, named) = world.enroll(&at, body).await.refused(400);
        assert_eq!(named.unwrap(), format!("capabilities.{list}"));
    }
    let mut body = good.clone();
    for list in ["transports", "execution_modes", "encryption"] {
        body["capabilities"][list] = json!(vec!["x".repeat(64); 16]);
    }
    world.enroll(&at, body).await.expect(200);
}

/// CP-12: a user who may manage servers cannot act as one, because keys are set only once.
async fn a_server_keeps_its_keys(control: TestControl) {
    let world = World::new(control).await;
    let at = world.add("build").await;
    let identity = EndpointIdentity::generate().unwrap();
    let enrolled = world.enroll(&at, keys(&identity)).await.expect(200);
    let again = world.enroll(&at, keys(&identity)).await.expect(200);
    assert_eq!(again, enrolled);
    let other = keys(&EndpointIdentity::generate().unwrap());
    let refused = world.enroll(&at, other.clone()).await;
    assert_eq!(refused.problem(), (409, "already_enrolled".to_owned()));
    // It does not end its own suspension either.
    world
        .patch(&at, json!({"status": "suspended"}))
        .await
        .expect(200);
    world.enroll(&at, keys(&identity)).await.expect(200);
    assert_eq!(world.get(&at).await["status"], "suspended");
    assert_eq!(world.enroll(&at, other).await.status, 409);
}

async fn a_list_of_servers_has_pages_and_filters(control: TestControl) {
    let world = World::new(control).await;
    for name in ["Build-1", "build-2", "web"] {
        world.add(name).await;
        // Within one millisecond the order is not defined.
        world.control.clock.advance(1);
    }
    let names = |list: &Value| -> Vec<String> {
        let servers = list["servers"].as_array().unwrap().iter();
        servers
            .map(|server| server["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = world.get("").await;
    assert_eq!(names(&all), ["Build-1", "build-2", "web"]);
    let place = (
        &all["page"],
        &all["pageSize"],
        &all["total"],
        &all["totalPages"],
    );
    assert_eq!(place, (&json!(1), &json!(20), &json!(3), &json!(1)));
    assert_eq!(names(&world.get("?q=BUILD").await), ["Build-1", "build-2"]);
    let last = world.get("?pageSize=2&page=2").await;
    assert_eq!(
        (names(&last), &last["total"]),
        (vec!["web".to_owned()], &json!(3))
    );
    assert_eq!(world.get("?status=active").await["total"], 0);
    assert_eq!(world.get("?status=pending_enrollment").await["total"], 3);
    for query in ["?status=dead", "?pageSize=101", "?more=1"] {
        let refused = world.call(Method::GET, query, Value::Null).await;
        assert_eq!(refused.status, 400, "{query}");
    }
}

/// WT-6, CP-12: registered servers have their own permissions, and only admins manage them.
async fn roles_and_permissions_for_servers(control: TestControl) {
    let world = World::new(control).await;
    let at = world.path(&world.add("build").await);
    let (control, list) = (&world.control, world.path(""));
    let bob = control.person("bob").await;
    control
        .join(&bob, world.person.workspace, Role::Member)
        .await;
    control.get(&at, &bob.token).await.expect(200);
    let body = json!({"name": "mine"});
    assert_eq!(control.post(&list, &bob.token, &body).await.status, 403);
    assert_eq!(control.delete(&at, &bob.token).await.status, 403);
    for (permission, reads, writes) in [
        ("network.webtty-servers.read-only", 200, 403),
        ("network.webtty-servers.read-write", 403, 204),
        ("tunnels.resources.read-only", 403, 403),
    ] {
        let issued = json!({"type": "pat", "name": "x", "permissions": [permission]});
        let issued = control
            .post("/api/credentials", &world.person.token, &issued)
            .await
            .expect(201);
        let token = issued["token"].as_str().unwrap();
        assert_eq!(control.get(&at, token).await.status, reads, "{permission}");
        assert_eq!(
            control.delete(&at, token).await.status,
            writes,
            "{permission}"
        );
        world.create(json!({"name": "build"})).await;
        if writes == 204 {
            assert_eq!(control.get(&at, &bob.token).await.status, 404);
            break;
        }
    }
}

/// WT-6, ED-1e: pages open a terminal of a restricted server with a token for one tunnel that has
/// the permission to manage servers. That token cannot manage a server or mint another token.
async fn wt_6_a_token_for_one_restricted_server_cannot_manage_servers(control: TestControl) {
    let world = World::new(control).await;
    let restricted = json!({"name": "build", "accessPolicy": "restricted"});
    let made = world.create(restricted).await.expect(201);
    let at = world.path(&format!("/{}", made["server"]["id"].as_str().unwrap()));
    let control = &world.control;
    let bob = control.person("bob").await;
    control
        .join(&bob, world.person.workspace, Role::Member)
        .await;
    let manages = "network.webtty-servers.read-write";
    let of = json!({"filters": {"id": "tun_1"}});
    let opens = json!({"connect": {"filters": {"id": "tun_1"}, "params": {"path": "/"}}});
    let joins = json!({"list": of, "connect": of});
    for (permissions, actions) in [
        (json!(["tunnels.streams.create-delete", manages]), opens),
        (json!(["webtty.sessions.read-write", manages]), joins),
    ] {
        let scopes = json!({"tunnels": actions});
        let resources = json!({"tunnels": {"projects": [world.project.id], "scopes": scopes}});
        let asked = json!({"permissions": permissions, "resources": resources, "ttlSeconds": 60});
        let token = control.delegated(&world.person, asked.clone()).await;
        let (list, enroll) = (world.path(""), format!("{at}/enroll"));
        let keys = keys(&EndpointIdentity::generate().unwrap());
        for (method, path, body) in [
            (Method::POST, &list, json!({"name": "mine"})),
            (
                Method::PATCH,
                &at,
                json!({"accessPolicy": "project_members"}),
            ),
            (Method::DELETE, &at, Value::Null),
            (Method::POST, &enroll, keys),
            (
                Method::POST,
                &"/api/tokens".to_owned(),
                json!({"permissions": [manages]}),
            ),
        ] {
            let body = (!body.is_null()).then_some(&body);
            let answer = control.send(method.clone(), path, Some(&token), body).await;
            let code = answer.problem();
            assert_eq!(
                code,
                (403, "insufficient_scope".to_owned()),
                "{method} {path}"
            );
        }
        // A token never has a permission that the user's role lacks.
        let bobs = control.delegated(&bob, asked).await;
        let patch = json!({"accessPolicy": "project_members"});
        let answer = control
            .send(Method::PATCH, &at, Some(&bobs), Some(&patch))
            .await;
        assert_eq!(answer.status, 403);
    }
    let server = control.get(&at, &world.person.token).await.expect(200);
    assert_eq!(server["accessPolicy"], "restricted");
}

async fn a_project_has_a_bounded_number_of_servers(control: TestControl) {
    let world = World::new(control).await;
    let mut last = String::new();
    for number in 0..500 {
        last = world.add(&format!("server {number}")).await;
    }
    let refused = world.create(json!({"name": "one more"})).await;
    assert_eq!(refused.problem(), (409, "conflict".to_owned()));
    world
        .call(Method::DELETE, &last, Value::Null)
        .await
        .expect(204);
    world.create(json!({"name": "one more"})).await.expect(201);
}
