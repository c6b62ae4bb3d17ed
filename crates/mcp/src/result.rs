//! Conversion of an operation's response to the result of a tool.

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{Response, StatusCode};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};

use crate::tools::call::BadArgument;

/// The result of a successful call: the response as structured content, and as text for clients
/// that do not read structured content.
pub(crate) fn structured(answer: Value) -> CallToolResult {
    let mut result = CallToolResult::default();
    result.content = vec![ContentBlock::text(answer.to_string())];
    result.structured_content = Some(answer);
    result.is_error = Some(false);
    result
}

/// A failure that the model can react to.
pub(crate) fn failure(text: impl Into<String>) -> CallToolResult {
    let mut result = CallToolResult::default();
    result.content = vec![ContentBlock::text(text.into())];
    result.is_error = Some(true);
    result
}

/// An invalid argument.
pub(crate) fn bad_argument(error: &BadArgument) -> CallToolResult {
    failure(format!("{}: {}", error.name, error.message))
}

/// Missing access, for which the user is asked to sign in (MC-6).
#[derive(Debug)]
pub(crate) enum MissingAccess<'a> {
    /// The user is not signed in.
    Login,
    /// The credential lacks these scopes.
    Scope(&'a str),
}

/// The result that makes a client start the OAuth flow: a challenge as in RFC 6750, with the
/// address of the metadata (RFC 9728 section 5.1).
pub(crate) fn challenge(
    missing: &MissingAccess<'_>,
    scopes: &str,
    resource_metadata: &str,
) -> CallToolResult {
    let (error, description, scope) = match missing {
        MissingAccess::Login => (
            "invalid_token",
            "Sign in to use this tool.".to_owned(),
            scopes,
        ),
        MissingAccess::Scope(missing) => (
            "insufficient_scope",
            format!("This credential lacks permissions that the tool needs: {missing}."),
            *missing,
        ),
    };
    let scope = match scope {
        "" => String::new(),
        names => format!(", scope=\"{names}\""),
    };
    let value = format!(
        "Bearer error=\"{error}\", error_description=\"{description}\"{scope}, \
         resource_metadata=\"{resource_metadata}\""
    );
    let mut result = failure(description);
    let mut meta = Map::new();
    meta.insert("mcp/www_authenticate".to_owned(), json!([value]));
    result.meta = Some(MetaObject::from(meta));
    result
}

/// The result for an operation's response.
pub(crate) fn of_response(
    response: &Response<Bytes>,
    scopes: &str,
    resource_metadata: &str,
    name_of: impl Fn(&str) -> String,
) -> CallToolResult {
    let status = response.status();
    if status == StatusCode::NO_CONTENT {
        return structured(json!({"done": true}));
    }
    let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    if status.is_success() {
        return structured(body);
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            return challenge(&MissingAccess::Login, scopes, resource_metadata);
        }
        StatusCode::FORBIDDEN => {
            if let Some(missing) = missing_scope(response) {
                return challenge(&MissingAccess::Scope(missing), scopes, resource_metadata);
            }
        }
        _ => {}
    }
    problem(status, &body, name_of)
}

/// The scopes in a refusal.
pub(crate) fn missing_scope(response: &Response<Bytes>) -> Option<&str> {
    if response.status() != StatusCode::FORBIDDEN {
        return None;
    }
    let challenge = response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()?;
    let (_, rest) = challenge.split_once("scope=\"")?;
    rest.split('"').next()
}

/// A refusal of the API, with its code, and its field under the argument's name.
fn problem(status: StatusCode, body: &Value, name_of: impl Fn(&str) -> String) -> CallToolResult {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let code = text("code").unwrap_or("failed");
    let detail = text("detail").or(status.canonical_reason()).unwrap_or("");
    let mut lines = vec![format!("{detail} ({code})")];
    let mut members = Map::new();
    members.insert("status".to_owned(), json!(status.as_u16()));
    members.insert("code".to_owned(), json!(code));
    members.insert("detail".to_owned(), json!(detail));
    if let Some(field) = text("field") {
        let name = name_of(field);
        lines.push(format!("argument: {name}"));
        members.insert("argument".to_owned(), json!(name));
    }
    if let Some(url) = text("url") {
        lines.push(format!("The user continues here: {url}"));
        members.insert("url".to_owned(), json!(url));
    }
    let mut result = failure(lines.join("\n"));
    let mut meta = Map::new();
    meta.insert("svc/problem".to_owned(), Value::Object(members));
    result.meta = Some(MetaObject::from(meta));
    result
}
