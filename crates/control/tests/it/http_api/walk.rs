//! Every operation of the document, called without a token, with a restricted one and with another
//! user's (CP-10, CP-11). A new operation without a check fails here.

use std::collections::BTreeSet;

use api::control::{Access, Method, Operation, operations};
use serde_json::{Value, json};
use types::permission::Permission;

use crate::support::{Answer, Person, Project, TestControl};

/// Calls an operation on the objects of `owner`, as any caller.
pub(crate) async fn ask(
    control: &TestControl,
    operation: &Operation,
    objects: (&Person, &Project),
    token: Option<&str>,
) -> Answer {
    let path = path(operation, objects);
    let body = operation.body.map(|body| (body.example)());
    control
        .send(method(operation), &path, token, body.as_ref())
        .await
}

/// The path of an operation on the objects of `owner`.
pub(crate) fn path(operation: &Operation, (owner, project): (&Person, &Project)) -> String {
    let path = operation
        .path
        .replace("{project_id}", project.id.as_str())
        .replace("{project_endpoint}", &project.endpoint)
        .replace("{workspace_id}", owner.workspace.as_str())
        .replace("{user_id}", owner.user.as_str())
        .replace("{keyring}", "engine.example.spki.der.hex");
    // All other parameters name missing objects.
    let path: Vec<_> = path
        .split('/')
        .map(|part| if part.starts_with('{') { MISSING } else { part })
        .collect();
    path.join("/")
}

/// The status of a public operation on the objects of a test.
pub(crate) fn public_status(operation: &Operation, objects: (&Person, &Project)) -> u16 {
    let is_missing = path(operation, objects)
        .split('/')
        .any(|part| part == MISSING);
    if is_missing {
        404
    } else {
        operation.answer.status
    }
}

/// The id of no object.
const MISSING: &str = "nothing";

/// The operation's HTTP method.
pub(crate) fn method(operation: &Operation) -> http::Method {
    operation.method.into()
}

/// CP-10: every operation that is not public checks the credential first.
#[tokio::test]
async fn cp_10_no_operation_answers_without_a_token() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    for operation in operations() {
        let answer = ask(&control, operation, (&ada, &project), None).await;
        if operation.access == Access::Public {
            let status = public_status(operation, (&ada, &project));
            assert_eq!(answer.status, status, "{}", operation.id);
        } else {
            let problem = answer.problem();
            assert_eq!(
                problem,
                (401, "unauthenticated".to_owned()),
                "{}",
                operation.id
            );
            assert!(answer.header("www-authenticate").starts_with("Bearer "));
        }
    }
}

/// CP-11: a token with every permission except the one of the operation is refused, and the answer
/// names the missing permission.
#[tokio::test]
async fn cp_11_every_operation_requires_its_permission() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    for operation in operations() {
        let Access::Permitted(needed, rules) = operation.access else {
            continue;
        };
        assert!(!rules.is_empty(), "{}", operation.id);
        let others: Vec<_> = Permission::ALL
            .iter()
            .filter(|held| **held != needed)
            .collect();
        let weak = control
            .delegated(&ada, json!({"permissions": others}))
            .await;
        let answer = ask(&control, operation, (&ada, &project), Some(&weak)).await;
        let problem = answer.problem();
        assert_eq!(
            problem,
            (403, "insufficient_scope".to_owned()),
            "{}",
            operation.id
        );
        assert_eq!(answer.json()["scope"], needed.as_str(), "{}", operation.id);
        let challenge = answer.header("www-authenticate");
        assert!(
            challenge.contains(&format!("scope=\"{needed}\"")),
            "{challenge}"
        );
    }
}

/// Another user's token with all permissions can neither read nor change another workspace. The
/// named objects are not found.
#[tokio::test]
async fn a_strangers_token_finds_nothing() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let project = control.project(&ada).await;
    for operation in operations() {
        if operation.access == Access::Public || !operation.path.contains('{') {
            continue;
        }
        let answer = ask(&control, operation, (&ada, &project), Some(&eve.token)).await;
        let problem = answer.problem();
        assert_eq!(problem, (404, "not_found".to_owned()), "{}", operation.id);
    }
}

/// Operations without a name in their path return nothing of the owner to another user.
#[tokio::test]
async fn a_strangers_lists_contain_nothing_of_other_users() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let project = control.project(&ada).await;
    for operation in operations() {
        let is_list = operation.method == Method::Get && !operation.path.contains('{');
        if operation.access == Access::Public || !is_list {
            continue;
        }
        let answer = ask(&control, operation, (&ada, &project), Some(&eve.token)).await;
        if let Access::Operator(_) = operation.access {
            assert_eq!(answer.problem(), (404, "not_found".to_owned()));
            continue;
        }
        assert_eq!(answer.status, 200, "{}: {answer:?}", operation.id);
        let text = answer.json().to_string();
        for secret in [
            ada.user.as_str(),
            ada.workspace.as_str(),
            project.id.as_str(),
            "ada@",
        ] {
            assert!(!text.contains(secret), "{}: {text}", operation.id);
        }
    }
}

/// The paths that the router serves. axum lists them only in its `Debug` output.
fn served(control: &TestControl) -> BTreeSet<String> {
    let debug_text = format!("{:?}", control.router);
    debug_text
        .split("RouteId(")
        .filter_map(|route| route.split_once("): \"")?.1.split('"').next())
        .filter(|path| !path.contains("axum_fallback"))
        .map(str::to_owned)
        .collect()
}

/// CP-7: every served path is in the document, or is a page listed here. A path of the document
/// serves no undocumented method.
#[tokio::test]
async fn cp_7_only_the_document_and_the_pages_are_served() {
    let control = TestControl::start("").await;
    let documented: BTreeSet<_> = operations()
        .map(|operation| operation.path.to_owned())
        .collect();
    let pages: BTreeSet<_> = PAGES.map(|(path, _)| path.to_owned()).into();
    let link = [api::link::CHANGES, api::link::REPORTS].map(str::to_owned);
    let mut wanted: BTreeSet<_> = documented.union(&pages).cloned().collect();
    // Routes between the platform and its engines are not part of the interface.
    wanted.extend(link);
    assert_eq!(served(&control), wanted);
    for path in &documented {
        for asked in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let mut here = operations().filter(|operation| operation.path == path);
            let is_documented = here.any(|operation| method(operation).as_str() == asked);
            let answer = control.send(asked.parse().unwrap(), path, None, None).await;
            assert_eq!(answer.status == 405, !is_documented, "{asked} {path}");
            if !is_documented {
                assert!(!answer.header("allow").is_empty(), "{asked} {path}");
            }
        }
    }
}

/// Pages for browsers, apart from the API. The flag is true for public pages.
const PAGES: [(&str, bool); 70] = [
    ("/", false),
    ("/account", false),
    ("/account/confirm", false),
    ("/account/confirm/passkey", false),
    ("/account/confirm/passkey/options", false),
    ("/account/email", false),
    ("/account/email/confirm", false),
    ("/account/email/{secret}", true),
    ("/account/name", false),
    ("/account/openid/link", false),
    ("/account/openid/unlink", false),
    ("/account/passkeys", false),
    ("/account/passkeys/new", false),
    ("/account/passkeys/options", false),
    ("/account/passkeys/{passkey_id}/remove", false),
    ("/account/password", false),
    ("/account/second-factor", false),
    ("/account/second-factor/confirm", false),
    ("/account/second-factor/remove", false),
    ("/account/sessions/end", false),
    ("/account/sessions/{session_id}/end", false),
    ("/assets/{file}", true),
    ("/billing/checkout", false),
    ("/billing/setup", false),
    ("/credentials", false),
    ("/credentials/{*rest}", false),
    ("/device", false),
    ("/device/approve", false),
    ("/edge/sign-in", true),
    // Responds to scripts of pages, with a problem instead of a redirect.
    ("/engine/{project_id}/{*path}", true),
    ("/fragment.js", true),
    ("/favicon.ico", true),
    ("/installation", false),
    ("/installation/{*rest}", false),
    ("/invitations/{secret}", true),
    ("/login", true),
    ("/login/openid", true),
    ("/login/openid/back-channel-logout", true),
    ("/login/openid/callback", true),
    ("/login/openid/signed-out", true),
    ("/login/passkey", true),
    ("/login/passkey/options", true),
    ("/login/second-factor", false),
    ("/login/second-factor/passkey", false),
    ("/login/second-factor/passkey/options", false),
    ("/logout", true),
    ("/oauth/authorize", true),
    ("/oauth/device_authorization", true),
    ("/oauth/revoke", true),
    ("/oauth/token", true),
    ("/operator", true),
    ("/operator/engines", false),
    ("/operator/{kind}", false),
    ("/operator/{kind}/{id}/resume", false),
    ("/operator/{kind}/{id}/suspend", false),
    ("/passkeys.js", true),
    ("/projects", false),
    ("/projects/{project_id}", false),
    ("/projects/{project_id}/{*rest}", false),
    ("/projects/{project_id}/sessions/{session}", false),
    ("/projects/{project_id}/sessions/{session}/replay", false),
    ("/projects/{project_id}/terminals", false),
    ("/projects/{project_id}/terminals/{server}", false),
    ("/reset", true),
    ("/reset/{secret}", true),
    ("/terminal/{file}", true),
    ("/welcome", false),
    ("/workspaces", false),
    ("/workspaces/{workspace_id}", false),
    ("/workspaces/{workspace_id}/{*rest}", false),
];

/// Every page that is not public redirects to the sign-in without a session.
#[tokio::test]
async fn pages_redirect_to_the_sign_in_without_a_session() {
    let control = TestControl::start("").await;
    for (path, _) in PAGES.iter().filter(|(_, for_everybody)| !for_everybody) {
        let path = &path.replace("{kind}", "users");
        let mut browser = control.browser();
        for answer in [browser.open(path).await, browser.submit(path, &[]).await] {
            let to = answer.location.as_deref().unwrap_or_default();
            let is_sent = to.starts_with("/login");
            assert!(is_sent || answer.status == 405, "{path}: {answer:?}");
        }
    }
}

/// CP-7, CP-15: the document is well formed, and its stable operations are those of the interface.
#[test]
fn cp_15_the_stable_operations_are_those_of_the_interface() {
    let stable: BTreeSet<_> = operations()
        .filter(|operation| operation.stable)
        .map(|operation| format!("{:?} {}", operation.method, operation.path))
        .collect();
    // The table "Control plane API" of the interface, and HEAD of the catalogue (RFC 9727).
    let interface = [
        "Get /api/openapi.json",
        "Get /api/engine/openapi.json",
        "Get /.well-known/api-catalog",
        "Head /.well-known/api-catalog",
        "Get /api/whoami",
        "Get /api/projects/tunnels",
        "Get /api/workspaces/{workspace_id}/projects/tunnels/plan/config",
        "Post /api/workspaces/{workspace_id}/projects/tunnels",
        "Get /api/projects/tunnels/resolve/{project_endpoint}",
        "Post /api/projects/tunnels/{project_id}/turn-server/credentials",
        "Post /api/projects/tunnels/resolve/{project_endpoint}/turn-server/credentials",
    ];
    assert_eq!(stable, interface.map(str::to_owned).into());
    let document: Value = api::control::document();
    for operation in operations() {
        let method = format!("{:?}", operation.method).to_lowercase();
        let described = &document["paths"][operation.path][method];
        let stability = if operation.stable {
            "stable"
        } else {
            "preview"
        };
        assert_eq!(described["x-svc-stability"], stability, "{}", operation.id);
    }
}
