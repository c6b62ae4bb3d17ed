//! Terminals: servers, managed sessions, and control of their input.
//!
//! Most tools are operations of the Engine API, like the lists of live state. Actions that need a
//! terminal stream (running a command, watching a screen, typing) are performed by the owner of
//! such streams: [`TerminalRequest`].

use api::webtty;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};
use types::percent::escaped;
use types::permission::Permission::{
    self, TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete, WebttyLogsReadOnly,
    WebttySessionsReadOnly, WebttySessionsReadWrite,
};

use crate::tools::call::{BadArgument, segment};
use crate::tools::live;
use crate::tools::live::ProjectName;

mod table;

pub(crate) use table::{
    CONTROL_REQUEST_CREATE, CONTROL_REQUEST_RESOLVE, CONTROL_REQUESTS_LIST, EXEC, LIST,
    SESSION_EVENTS, SESSION_EXPORT, SESSION_GET, SESSION_PARTICIPANTS, SESSION_SCREEN,
    SESSION_TYPE, SESSIONS_LIST,
};

/// An action on terminal streams.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalRequest {
    /// The action.
    pub act: TerminalAction,
    /// The unchecked arguments of the tool, without the project.
    pub arguments: Map<String, Value>,
    /// The AI client.
    pub agent: Agent,
}

/// Kind of action on terminal streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalAction {
    /// Lists the servers among the tunnels of the project.
    List,
    /// Runs a command and waits for its exit.
    Exec,
    /// Attaches as a spectator and returns the screen.
    Screen,
    /// Requests control for an attached participant.
    RequestControl,
    /// Types, if control was granted.
    Type,
}

/// An AI client, as it identifies itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Implementation of a terminal tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalTool {
    pub(crate) implementation: ToolImplementation,
    /// Permissions that a credential needs at least. The first is also used to look up a project.
    pub(crate) scopes: &'static [Permission],
    pub(crate) arguments: &'static [Argument],
    /// Properties of the output in addition to the common ones.
    pub(crate) output: fn() -> Value,
}

/// Implementation of the tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ToolImplementation {
    /// An operation of the Engine API: method and path.
    Operation(HttpMethod, &'static str, ResponseShape),
    /// An action on terminal streams.
    Stream(TerminalAction),
}

/// HTTP methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpMethod {
    Get,
    Post,
}

/// Body of the operation's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseShape {
    /// An object, which is the tool's response.
    Object,
    /// A list, which is returned under this name.
    List(&'static str),
    /// Text, which is returned under this name.
    Text(&'static str),
}

/// An argument of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) to: ArgumentTarget,
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
    pub(crate) required: bool,
}

/// Place of an argument in the request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ArgumentTarget {
    /// In the path, replacing `{name}`.
    Path(&'static str),
    /// In `params`.
    Param(&'static str),
    /// In the filters of `params`.
    Filter(&'static str),
    /// A query parameter of its own.
    Query(&'static str),
    /// In the body.
    Body(&'static str),
    /// Passed to the terminal action under its own name.
    Stream,
}

/// Type of an argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Text,
    Time,
    Flag,
    OneOf(&'static [&'static str]),
    /// Minimum, maximum and default.
    Number(u64, u64, Option<u64>),
    /// A list of texts.
    Texts,
    /// Texts by name.
    Named,
}

impl TerminalTool {
    /// JSON Schema of the arguments.
    pub(crate) fn input(&self) -> Value {
        let mut properties = live::project_properties();
        for argument in self.arguments {
            properties.insert(argument.name.to_owned(), argument.schema());
        }
        let required = self.arguments.iter().filter(|argument| argument.required);
        let required: Vec<_> = required.map(|argument| argument.name).collect();
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// The project and the other arguments. Unknown ones are refused.
    pub(crate) fn read(
        &self,
        mut given: Map<String, Value>,
    ) -> Result<(ProjectName, Map<String, Value>), BadArgument> {
        let project = live::project(&mut given)?;
        let is_known = |name: &str| self.arguments.iter().any(|argument| argument.name == name);
        if let Some(name) = given.keys().find(|name| !is_known(name)) {
            return Err(BadArgument::new(name, "unknown argument"));
        }
        for argument in self.arguments {
            match (given.get(argument.name), argument.shape) {
                (None, _) if argument.required => {
                    return Err(BadArgument::new(argument.name, "missing"));
                }
                (None, Shape::Number(_, _, Some(usual))) => {
                    given.insert(argument.name.to_owned(), usual.into());
                }
                _ => {}
            }
        }
        Ok((project, given))
    }

    /// The request to the engine, which validates the arguments.
    pub(crate) fn request(
        &self,
        (verb, path): (HttpMethod, &str),
        given: &Map<String, Value>,
    ) -> Result<Request<Bytes>, BadArgument> {
        let mut address = path.to_owned();
        let (mut params, mut filters, mut body) = (Map::new(), Map::new(), Map::new());
        let mut query = String::new();
        for argument in self.arguments {
            let Some(value) = given.get(argument.name) else {
                continue;
            };
            match argument.to {
                ArgumentTarget::Path(name) => {
                    let id = segment(value)
                        .ok_or_else(|| BadArgument::new(argument.name, "not an identifier"))?;
                    address = address.replace(&format!("{{{name}}}"), id);
                }
                ArgumentTarget::Param("from_seq") => {
                    // A number that JavaScript cannot represent exactly is text on the wire.
                    params.insert("from_seq".to_owned(), value.to_string().into());
                }
                ArgumentTarget::Param(name) => drop(params.insert(name.to_owned(), value.clone())),
                ArgumentTarget::Query(name) => {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    query.extend(["&", name, "="]);
                    query.extend(escaped(&text));
                }
                ArgumentTarget::Filter(name) => {
                    drop(filters.insert(name.to_owned(), value.clone()));
                }
                ArgumentTarget::Body(name) => drop(body.insert(name.to_owned(), value.clone())),
                ArgumentTarget::Stream => {}
            }
        }
        if !filters.is_empty() {
            params.insert("filters".to_owned(), Value::Object(filters));
        }
        if !params.is_empty() {
            query.push_str("&params=");
            query.extend(escaped(&Value::Object(params).to_string()));
        }
        if let Some(query) = query.strip_prefix('&') {
            address.extend(["?", query]);
        }
        let request = match verb {
            HttpMethod::Get => Request::get(address).body(Bytes::new()),
            HttpMethod::Post => Request::builder()
                .method(Method::POST)
                .uri(address)
                .header(CONTENT_TYPE, "application/json")
                .body(Value::Object(body).to_string().into()),
        };
        request.map_err(|_| BadArgument::new("arguments", "they are too long for an address"))
    }

    /// The engine's names equal the tool's argument names, with some exceptions.
    pub(crate) fn name_of(&self, field: &str) -> String {
        let last = field.rsplit('.').next().unwrap_or(field);
        let is_meant = |argument: &&Argument| match argument.to {
            ArgumentTarget::Path(name)
            | ArgumentTarget::Param(name)
            | ArgumentTarget::Filter(name)
            | ArgumentTarget::Query(name)
            | ArgumentTarget::Body(name) => name == last,
            ArgumentTarget::Stream => argument.name == last,
        };
        let found = self.arguments.iter().find(is_meant);
        found.map_or(field, |argument| argument.name).to_owned()
    }
}

impl ResponseShape {
    /// The tool's response; `None`: the engine's response has another form.
    pub(crate) fn parse(self, response: &Response<Bytes>) -> Option<Value> {
        match self {
            Self::Object => {
                let object: Map<String, Value> = serde_json::from_slice(response.body()).ok()?;
                Some(Value::Object(object))
            }
            Self::List(name) => {
                let list: Vec<Value> = serde_json::from_slice(response.body()).ok()?;
                Some(json!({ name: list }))
            }
            Self::Text(name) => {
                let text = std::str::from_utf8(response.body()).ok()?;
                Some(json!({ name: text }))
            }
        }
    }
}

impl Argument {
    fn schema(&self) -> Value {
        let mut schema = match self.shape {
            Shape::Text => json!({"type": "string", "minLength": 1}),
            Shape::Time => json!({"type": "string", "format": "date-time"}),
            Shape::Flag => json!({"type": "boolean"}),
            Shape::OneOf(words) => json!({"type": "string", "enum": words}),
            Shape::Number(least, most, None) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            Shape::Number(least, most, Some(usual)) => {
                json!({"type": "integer", "minimum": least, "maximum": most, "default": usual})
            }
            Shape::Texts => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            Shape::Named => {
                json!({"type": "object", "additionalProperties": {"type": "string"}})
            }
        };
        if let Value::Object(members) = &mut schema {
            members.insert("description".to_owned(), self.about.into());
        }
        schema
    }
}
