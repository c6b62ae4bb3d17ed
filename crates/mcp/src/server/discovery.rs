//! The two tools that need no sign-in (MC-2).

use serde_json::{Map, Value, json};
use types::permission::{CONTROL_PLANE_BUNDLES, Permission};

use crate::server::local::LocalTool;
use crate::tools::TOOLS;
use crate::tools::call::BadArgument;
use crate::tools::schema::{CONTROL_PLANE, ENGINE};

/// Description of this server for the model of a client.
pub(crate) const INSTRUCTIONS: &str = "svc publishes private services through tunnels. Call \
                                       svc_discovery first: it lists the tools and the permissions \
                                       that each needs. Ask the user for a bundle of permissions, \
                                       not for single ones. Before you create a project, show the \
                                       billing impact of svc_project_creation_options to the user \
                                       and ask; before you change a plan, that of \
                                       svc_project_plan_preview. Tokens and TURN credentials are secrets: use them, \
                                       do not show them.";

/// A short overview of the server; local tools are listed separately, if there are any.
pub(crate) fn discovery(base_url: &str, local: &[LocalTool]) -> Value {
    let tools: Vec<Value> = TOOLS
        .iter()
        .map(|tool| json!({"name": tool.name, "title": tool.title, "scopes": tool.scopes()}))
        .collect();
    let permissions: Map<String, Value> = Permission::ALL
        .iter()
        .map(|permission| (permission.to_string(), json!(permission.description())))
        .collect();
    let bundles: Vec<Value> = CONTROL_PLANE_BUNDLES
        .iter()
        .map(|bundle| json!({"name": bundle.name, "permissions": bundle.permissions}))
        .collect();
    let mut found = json!({
        "service": "svc",
        "summary": "A tunnel platform. Workspaces hold projects; an agent beside a private \
                    service publishes it through the engine of a project, or offers it for \
                    dialling. A tool whose scopes are null needs no sign-in; the others need a \
                    token that holds their scopes. Ask a user for bundles.",
        "resource": base_url,
        "authorization": {
            "protectedResourceMetadata": format!("{base_url}/.well-known/oauth-protected-resource"),
            "authorizationServerMetadata": format!("{base_url}/.well-known/oauth-authorization-server"),
            "apiCatalog": format!("{base_url}/.well-known/api-catalog"),
        },
        "tools": tools,
        "permissions": permissions,
        "bundles": bundles,
    });
    if !local.is_empty()
        && let Value::Object(members) = &mut found
    {
        members.insert("local".to_owned(), local_tools_section(local));
    }
    found
}

/// The tools of this machine.
fn local_tools_section(local: &[LocalTool]) -> Value {
    let tools: Vec<Value> = local
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "title": tool.title,
                "scopes": tool.scopes,
                "bundle": smallest_bundle(tool.scopes),
            })
        })
        .collect();
    json!({
        "summary": "These act on the machine that this server runs on, with the token of its \
                    command line (svc login). Ask the user for this bundle; if it is null, every \
                    signed-in user may call the tools.",
        "tools": tools,
    })
}

/// The smallest bundle with these scopes; `None` if none is needed.
fn smallest_bundle(scopes: &[Permission]) -> Option<&'static str> {
    let fits = CONTROL_PLANE_BUNDLES.iter().filter(|bundle| {
        scopes
            .iter()
            .all(|scope| bundle.permissions.contains(scope))
    });
    let smallest = fits.min_by_key(|bundle| bundle.permissions.len());
    smallest
        .filter(|_| !scopes.is_empty())
        .map(|bundle| bundle.name)
}

/// A list of operations, or one of them with the components that it refers to. Whole documents are
/// too long.
pub(crate) fn openapi(arguments: &Map<String, Value>) -> Result<Value, BadArgument> {
    if let Some(name) = arguments
        .keys()
        .find(|name| !["document", "operation_id"].contains(&name.as_str()))
    {
        return Err(BadArgument::new(name, "unknown argument"));
    }
    let document = match arguments.get("document").map(Value::as_str) {
        None | Some(Some("control-plane")) => &*CONTROL_PLANE,
        Some(Some("engine")) => &*ENGINE,
        Some(_) => return Err(BadArgument::new("document", "not control-plane or engine")),
    };
    match arguments.get("operation_id").map(Value::as_str) {
        None => Ok(json!({"operations": operations(document)})),
        Some(Some(id)) => operation(document, id).ok_or_else(|| {
            BadArgument::new(
                "operation_id",
                "the document does not have this \
                                                             operation",
            )
        }),
        Some(None) => Err(BadArgument::new("operation_id", "expected text")),
    }
}

/// Each operation: path, method, description.
fn all_operations(document: &Value) -> impl Iterator<Item = (&String, &String, &Value)> {
    let paths = document.get("paths").and_then(Value::as_object);
    paths.into_iter().flatten().flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten();
        methods
            .filter(|(_, described)| described.get("operationId").is_some())
            .map(move |(method, described)| (path, method, described))
    })
}

fn operations(document: &Value) -> Vec<Value> {
    all_operations(document)
        .map(|(path, method, described)| {
            json!({
                "operationId": described.get("operationId"),
                "method": method.to_ascii_uppercase(),
                "path": path,
                "summary": described.get("summary"),
                "stability": described.get("x-svc-stability"),
            })
        })
        .collect()
}

fn operation(document: &Value, id: &str) -> Option<Value> {
    let (path, method, described) = all_operations(document).find(|(_, _, described)| {
        described.get("operationId").and_then(Value::as_str) == Some(id)
    })?;
    let mut components = Map::new();
    let mut waiting = Vec::new();
    references(described, &mut waiting);
    while let Some(pointer) = waiting.pop() {
        if components.contains_key(&pointer) {
            continue;
        }
        let component = document.pointer(&pointer)?;
        references(component, &mut waiting);
        components.insert(pointer, component.clone());
    }
    Some(json!({
        "operation": {
            "method": method.to_ascii_uppercase(),
            "path": path,
            "description": described,
        },
        "components": components,
    }))
}

/// The JSON pointers that a part of the document refers to.
fn references(value: &Value, pointers: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let target = members.get("$ref").and_then(Value::as_str);
            pointers.extend(
                target
                    .and_then(|target| target.strip_prefix('#'))
                    .map(String::from),
            );
            members
                .values()
                .for_each(|member| references(member, pointers));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, pointers)),
        _ => {}
    }
}
