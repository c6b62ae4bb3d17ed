//! From arguments to a request.

use api::control::Operation;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value};
use types::percent::escaped;

use crate::tools::schema::{Argument, ArgumentPlace, arguments};
use crate::tools::{Call, Tool};

/// Reason why arguments are refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadArgument {
    /// The invalid argument.
    pub(crate) name: String,
    /// Description of the error.
    pub(crate) message: &'static str,
}

impl BadArgument {
    pub(crate) fn new(name: &str, message: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            message,
        }
    }
}

/// Chooses one of two operations: the one whose path parameters are all present.
pub(crate) fn choose(
    tool: &Tool,
    given: &Map<String, Value>,
) -> Result<&'static Operation, BadArgument> {
    let is_meant = |operation: &Operation| {
        arguments(tool, operation)
            .iter()
            .filter(|argument| matches!(argument.place, ArgumentPlace::Path(_)))
            .all(|argument| given.contains_key(&argument.name))
    };
    match tool.operations().as_slice() {
        [one] => Ok(one),
        [one, other] => match (is_meant(one), is_meant(other)) {
            (true, false) => Ok(one),
            (false, true) => Ok(other),
            (true, true) => Err(BadArgument::new(
                "project_endpoint",
                "give the id or the endpoint, not both",
            )),
            (false, false) => Err(BadArgument::new(
                "project_id",
                "the id or the endpoint of the project is missing",
            )),
        },
        _ => Err(BadArgument::new("name", "no such tool")),
    }
}

/// Builds the request with the arguments of the operation.
///
/// Only arguments in the address are checked here; the operation validates all others.
pub(crate) fn request(
    tool: &Tool,
    operation: &Operation,
    given: &Map<String, Value>,
) -> Result<Request<Bytes>, BadArgument> {
    let known = arguments(tool, operation);
    if let Some(name) = given.keys().find(|name| !is_known(known, name)) {
        return Err(BadArgument::new(name, "unknown argument"));
    }
    let mut address = operation.path.to_owned();
    let mut query = String::new();
    let mut members = Map::new();
    let mut whole_body = None;
    for argument in known {
        let Some(value) = given.get(&argument.name) else {
            if argument.required {
                return Err(BadArgument::new(&argument.name, "missing"));
            }
            continue;
        };
        match &argument.place {
            ArgumentPlace::Path(name) => {
                let text = segment(value)
                    .ok_or_else(|| BadArgument::new(&argument.name, "not an identifier"))?;
                address = address.replace(&format!("{{{name}}}"), text);
            }
            ArgumentPlace::Query(name) => {
                let text = plain(value)
                    .ok_or_else(|| BadArgument::new(&argument.name, "expected text or a number"))?;
                query.push(if query.is_empty() { '?' } else { '&' });
                query.push_str(name);
                query.push('=');
                query.extend(escaped(&text));
            }
            ArgumentPlace::Member(name) => {
                members.insert(name.clone(), value.clone());
            }
            ArgumentPlace::Body => whole_body = Some(value.clone()),
        }
    }
    if matches!(tool.call, Call::CreateProject) && !members.contains_key(IDEMPOTENCY_KEY) {
        members.insert(IDEMPOTENCY_KEY.to_owned(), derived_key(&address, &members));
    }
    let body = match whole_body {
        Some(value) => Some(value),
        None => (operation.body.is_some() && !members.is_empty()).then_some(Value::Object(members)),
    };
    address.push_str(&query);
    let mut request = Request::builder()
        .method(http::Method::from(operation.method))
        .uri(address);
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    request
        .body(body)
        .map_err(|_| BadArgument::new("arguments", "they do not form an address"))
}

/// Returns the argument for `field` of an operation, if there is one.
pub(crate) fn argument_of(tool: &Tool, operation: &Operation, field: &str) -> String {
    let (first, rest) = field.split_at(field.find('.').unwrap_or(field.len()));
    let known = arguments(tool, operation);
    let named = known.iter().find(|argument| match &argument.place {
        ArgumentPlace::Path(name) | ArgumentPlace::Query(name) | ArgumentPlace::Member(name) => {
            name == first
        }
        ArgumentPlace::Body => false,
    });
    match (
        named,
        known.iter().find(|one| one.place == ArgumentPlace::Body),
    ) {
        (Some(argument), _) => format!("{}{rest}", argument.name),
        (None, Some(body)) => format!("{}.{field}", body.name),
        (None, None) => field.to_owned(),
    }
}

fn is_known(known: &[Argument], name: &str) -> bool {
    known.iter().any(|argument| argument.name == name)
}

/// Identical creations have the same key, so that a client that lost a response can retry without a
/// second creation (CP-4a).
fn derived_key(address: &str, members: &Map<String, Value>) -> Value {
    let text = format!("{address}\n{}", Value::Object(members.clone()));
    let hash = digest(&SHA256, text.as_bytes());
    Value::String(format!("mcp-{}", URL_SAFE_NO_PAD.encode(hash)))
}

const IDEMPOTENCY_KEY: &str = "idempotencyKey";

/// A value that is safe in a path: no separator, no dot segment, nothing to be encoded.
pub(crate) fn segment(value: &Value) -> Option<&str> {
    let text = value.as_str()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let fits = (1..=MAX_SEGMENT).contains(&text.len()) && text.bytes().all(is_plain);
    fits.then_some(text)
}

/// Ids have about 30 characters, endpoints eight.
const MAX_SEGMENT: usize = 128;

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}
