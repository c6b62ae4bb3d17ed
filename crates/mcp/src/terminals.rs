//! Terminals: servers, managed sessions, and who may type into them.
//!
//! Most tools are operations of the Engine API, asked as the lists of what is live are. What takes a
//! stream of a terminal (running a command, watching a screen, typing) is done by whoever has such
//! streams: [`TerminalAsk`].

use api::webtty;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};
use types::permission::Permission::{
    self, TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete, WebttyLogsReadOnly,
    WebttySessionsReadOnly, WebttySessionsReadWrite,
};

use crate::call::{BadArgument, push_encoded, segment};
use crate::live::{self, ProjectName};

mod table;

pub(crate) use table::{
    CONTROL_REQUEST_CREATE, CONTROL_REQUEST_RESOLVE, CONTROL_REQUESTS_LIST, EXEC, LIST,
    SESSION_EVENTS, SESSION_EXPORT, SESSION_GET, SESSION_PARTICIPANTS, SESSION_SCREEN,
    SESSION_TYPE, SESSIONS_LIST,
};

/// What is done with streams of terminals.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalAsk {
    /// What.
    pub act: TerminalAct,
    /// The arguments of the tool, but for the project. They are not checked yet.
    pub arguments: Map<String, Value>,
    /// The AI client that asks.
    pub agent: Agent,
}

/// What can be done with streams of terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalAct {
    /// Lists the servers among the tunnels of the project.
    List,
    /// Runs a command to its end.
    Exec,
    /// Takes part as a spectator, and shows the screen.
    Screen,
    /// Asks for control, for who takes part.
    RequestControl,
    /// Types, where control was given.
    Type,
}

/// An AI client, as it calls itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// How a tool about terminals is carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalTool {
    pub(crate) way: Way,
    /// The least that a credential has to hold; the first is what a project is found with.
    pub(crate) scopes: &'static [Permission],
    pub(crate) arguments: &'static [Argument],
    /// What the answer has beside what is always there.
    pub(crate) output: fn() -> Value,
}

/// What carries it out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// An operation of the Engine API: method and path.
    Operation(Verb, &'static str, Answer),
    /// Whoever has streams.
    Stream(TerminalAct),
}

/// The methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
}

/// What the operation answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An object, which is the answer of the tool.
    Object,
    /// A list, which stands under this name.
    List(&'static str),
    /// Text, which stands under this name.
    Text(&'static str),
}

/// An argument of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) to: To,
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
    pub(crate) required: bool,
}

/// Where an argument goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum To {
    /// Into the path, in place of `{name}`.
    Path(&'static str),
    /// Into `params`.
    Param(&'static str),
    /// Into the filters of `params`.
    Filter(&'static str),
    /// Into the query, by itself.
    Query(&'static str),
    /// Into the body.
    Body(&'static str),
    /// To whoever has streams, as it is called.
    Stream,
}

/// What it is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Text,
    Time,
    Flag,
    OneOf(&'static [&'static str]),
    /// From, to, and what it is where it is absent.
    Number(u64, u64, Option<u64>),
    /// A list of texts.
    Texts,
    /// Texts by their names.
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

    /// The project that is meant, and the other arguments; those that there are not are refused.
    pub(crate) fn read(
        &self,
        mut given: Map<String, Value>,
    ) -> Result<(ProjectName, Map<String, Value>), BadArgument> {
        let project = live::project(&mut given)?;
        let is_known = |name: &str| self.arguments.iter().any(|argument| argument.name == name);
        if let Some(name) = given.keys().find(|name| !is_known(name)) {
            return Err(BadArgument::new(name, "there is no such argument"));
        }
        for argument in self.arguments {
            match (given.get(argument.name), argument.shape) {
                (None, _) if argument.required => {
                    return Err(BadArgument::new(argument.name, "it is missing"));
                }
                (None, Shape::Number(_, _, Some(usual))) => {
                    given.insert(argument.name.to_owned(), usual.into());
                }
                _ => {}
            }
        }
        Ok((project, given))
    }

    /// The request to the engine. What the arguments say is the engine's to judge.
    pub(crate) fn request(
        &self,
        (verb, path): (Verb, &str),
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
                To::Path(name) => {
                    let id = segment(value)
                        .ok_or_else(|| BadArgument::new(argument.name, "it is no identifier"))?;
                    address = address.replace(&format!("{{{name}}}"), id);
                }
                To::Param("from_seq") => {
                    // A number that JavaScript may not hold is text on the wire.
                    params.insert("from_seq".to_owned(), value.to_string().into());
                }
                To::Param(name) => drop(params.insert(name.to_owned(), value.clone())),
                To::Query(name) => {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    query.extend(["&", name, "="]);
                    push_encoded(&mut query, &text);
                }
                To::Filter(name) => drop(filters.insert(name.to_owned(), value.clone())),
                To::Body(name) => drop(body.insert(name.to_owned(), value.clone())),
                To::Stream => {}
            }
        }
        if !filters.is_empty() {
            params.insert("filters".to_owned(), Value::Object(filters));
        }
        if !params.is_empty() {
            query.push_str("&params=");
            push_encoded(&mut query, &Value::Object(params).to_string());
        }
        if let Some(query) = query.strip_prefix('&') {
            address.extend(["?", query]);
        }
        let request = match verb {
            Verb::Get => Request::get(address).body(Bytes::new()),
            Verb::Post => Request::builder()
                .method(Method::POST)
                .uri(address)
                .header(CONTENT_TYPE, "application/json")
                .body(Value::Object(body).to_string().into()),
        };
        request.map_err(|_| BadArgument::new("arguments", "they are too long for an address"))
    }

    /// What the engine calls the arguments is what the tool calls them, but for some.
    pub(crate) fn name_of(&self, field: &str) -> String {
        let last = field.rsplit('.').next().unwrap_or(field);
        let is_meant = |argument: &&Argument| match argument.to {
            To::Path(name)
            | To::Param(name)
            | To::Filter(name)
            | To::Query(name)
            | To::Body(name) => name == last,
            To::Stream => argument.name == last,
        };
        let found = self.arguments.iter().find(is_meant);
        found.map_or(field, |argument| argument.name).to_owned()
    }
}

impl Answer {
    /// The answer of the tool; `None`: the engine answered something else.
    pub(crate) fn of(self, response: &Response<Bytes>) -> Option<Value> {
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
