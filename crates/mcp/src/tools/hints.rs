//! Members of a tool's list entry that models and clients read before a call: hints and security
//! schemes.

use serde_json::{Value, json};
use types::permission::Permission;

use super::effect::Effect;

/// The hints of MCP.
pub(crate) fn annotations(title: &str, effect: Effect) -> Value {
    json!({
        "title": title,
        "readOnlyHint": effect == Effect::Reads,
        "destructiveHint": matches!(effect, Effect::Destroys | Effect::Acts),
        "idempotentHint": !matches!(effect, Effect::Adds | Effect::Acts),
        // All other tools affect only this platform.
        "openWorldHint": effect == Effect::Acts,
    })
}

/// The security schemes of a tool that needs these scopes, or no credential.
pub(crate) fn schemes(scopes: Option<&[Permission]>) -> Value {
    match scopes {
        None => json!([{"type": "noauth"}]),
        Some(scopes) => json!([{"type": "oauth2", "scopes": scopes}]),
    }
}

/// Adds the security schemes next to `_meta` in a response that lists tools, because the SDK's type
/// of a tool has no field for them.
pub(crate) fn add_schemes(message: &mut Value) {
    let tools = message.pointer_mut("/result/tools");
    for tool in tools.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schemes) = tool.pointer("/_meta/securitySchemes").cloned()
            && let Value::Object(members) = tool
        {
            members.insert("securitySchemes".to_owned(), schemes);
        }
    }
}
