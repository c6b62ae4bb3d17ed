//! The schemas of responses and of query parameters, compared with the server (CP-7). Every other
//! test compares its responses, too: `support::document`.

use api::control::{Access, Method, Operation, Shape, operations, webtty_servers};
use conformance::OptionalMembers;
use serde_json::{Value, json};

use super::walk::path;
use crate::support::{DOCUMENT, Person, Project, TestControl};

/// CP-7: a member that every response has is required. The objects have as few members as possible,
/// so that each optional member is missing in one of them.
#[tokio::test]
async fn cp_7_a_member_that_is_always_present_is_required() {
    let plans = json!({"catalog": {"plans": [{"plan": "basic", "webhooks": true}]}});
    let control = TestControl::start("").await.configured(plans).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let owned = (&ada, &project);
    let mut members = OptionalMembers::default();
    let at = format!("/api/projects/tunnels/{}", project.id);
    let server = json!({"name": "build"});
    let servers = format!("{at}/webtty/servers");
    let made = control
        .post(&servers, &ada.token, &server)
        .await
        .expect(201);
    let id = made["server"]["id"].as_str().unwrap();
    let webhook = json!({
        "name": "chat", "events": ["client.created"],
        "config": {"url": "https://receiver.example/events"},
    });
    let credential = json!({"type": "pat", "name": "plain"});
    for (path, body, status) in [
        (format!("{servers}/{id}/enroll"), enrollment(), 200),
        (format!("{at}/webhooks"), webhook, 201),
        ("/api/credentials".to_owned(), credential, 201),
        (format!("{at}/turn-server/credentials"), json!({}), 200),
    ] {
        let answer = control.post(&path, &ada.token, &body).await;
        observe(&mut members, "POST", &path, status, &answer.expect(status));
    }
    // One that has not been enrolled.
    let other = json!({"name": "other"});
    control.post(&servers, &ada.token, &other).await.expect(201);
    for operation in operations().filter(|one| one.method == Method::Get) {
        let path = path(operation, owned);
        let answer = control.get(&path, &ada.token).await;
        let is_json = answer
            .header("content-type")
            .starts_with("application/json");
        if answer.status == 200 && is_json {
            observe(&mut members, "GET", &path, 200, &answer.json());
        }
    }
    let always: Vec<_> = members.never_absent();
    let always: Vec<_> = always
        .into_iter()
        .map(|(schema, member)| format!("{schema}.{member}"))
        .filter(|member| !ONLY_HERE.contains(&member.as_str()))
        .collect();
    assert_eq!(always, [""; 0]);
    assert!(members.absent.len() > 20, "{members:?}");
}

/// Optional members that the objects of this test have.
const ONLY_HERE: [&str; 6] = [
    // A user without a name has none.
    "Whoami.name",
    // Entries of the platform itself, of a browser, and of a command on its machine.
    "AuditEntry.actorUserId",
    "AuditEntry.actorCredentialId",
    "AuditEntry.ip",
    // Applications and certificates.
    "Credential.tokenEndpoint",
    "IssuedCredential.token",
];

/// The public keys of the example, with no capabilities.
fn enrollment() -> Value {
    let body = webtty_servers::ENROLL.body.unwrap();
    let mut body = (body.example)();
    body["capabilities"] = json!({});
    body
}

#[track_caller]
fn observe(members: &mut OptionalMembers, method: &str, path: &str, status: u16, body: &Value) {
    match DOCUMENT.check(method, path, status, body) {
        Ok(seen) => members.extend(seen),
        Err(differences) => panic!("{differences}"),
    }
}

/// CP-7: a number at the bounds of its schema is accepted, and one outside is refused with its name.
#[tokio::test]
async fn cp_7_numbers_in_a_query_have_the_bounds_of_the_document() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let mut bounded = 0;
    for operation in operations() {
        // An object of the path that does not exist is refused first, like a caller who is not an
        // operator.
        let is_missing = path(operation, (&ada, &project)).contains("/nothing");
        if is_missing || matches!(operation.access, Access::Operator(_)) {
            continue;
        }
        for parameter in operation.query {
            let Shape::Integer { least, most, .. } = parameter.shape else {
                continue;
            };
            let world = (&control, &ada, &project);
            for value in [least, most] {
                let (status, field) = ask(world, operation, parameter.name, value).await;
                assert_ne!(status, 400, "{}: {field:?}", operation.id);
            }
            for value in [least - 1, most + 1] {
                let refused = ask(world, operation, parameter.name, value).await;
                assert_eq!(refused, (400, json!(parameter.name)), "{}", operation.id);
            }
            bounded += 1;
        }
    }
    assert!(bounded > 10, "{bounded}");
}

/// Status and named field of the response to a request with this parameter.
async fn ask(
    (control, owner, project): (&TestControl, &Person, &Project),
    operation: &Operation,
    name: &str,
    value: u32,
) -> (u16, Value) {
    let path = path(operation, (owner, project));
    let answer = control
        .get(&format!("{path}?{name}={value}"), &owner.token)
        .await;
    (answer.status, answer.json()["field"].clone())
}
