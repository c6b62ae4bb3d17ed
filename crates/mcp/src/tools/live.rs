//! Live state of a project: lists of the Engine API, requested from the project's engine, and
//! operations on one object of them.

use api::engine::{self, Access};
use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};
use types::percent::escaped;
use types::permission::Permission;

use crate::tools::call::{BadArgument, segment};
use crate::tools::{Call, Effect, Tool, schema};

/// A list of the Engine API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveList {
    path: &'static str,
    /// The component of its filters.
    filter: &'static str,
    /// The component of its items.
    item: &'static str,
    /// Key of the list in the tool's response.
    key: &'static str,
}

/// An operation of the Engine API on one object, without a response body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveObject {
    /// Id of the operation in the engine's document.
    operation: &'static str,
    /// Argument with the id of the object.
    argument: &'static str,
    /// Description of the argument.
    about: &'static str,
}

pub(crate) const CLIENTS_LIST: Tool = Tool {
    name: "svc_clients_list",
    title: "List connected clients",
    description: "The agents that are connected to the engine of a project at this moment; \
                  filters narrow the list.",
    effect: Effect::Reads,
    call: Call::Live(CLIENTS),
};

pub(crate) const TUNNELS_LIST: Tool = Tool {
    name: "svc_tunnels_list",
    title: "List live tunnels",
    description: "The tunnels of a project at this moment, with their addresses; filters \
                  narrow the list.",
    effect: Effect::Reads,
    call: Call::Live(TUNNELS),
};

pub(crate) const TUNNEL_CLOSE: Tool = Tool {
    name: "svc_tunnel_close",
    title: "Close a tunnel",
    description: "Closes a live tunnel, whichever agent opened it: it is offline at once, and its \
                  open requests and connections end. An agent of svc does not open it again until \
                  it is started again; agents of other makers may. Ask the user first.",
    effect: Effect::Destroys,
    call: Call::LiveObject(CLOSED_TUNNEL),
};

/// One tunnel, to be closed (EN-7).
const CLOSED_TUNNEL: &LiveObject = &LiveObject {
    operation: "close_engine_tunnel",
    argument: "tunnel_id",
    about: "The id of the tunnel, as in svc_tunnels_list. It is a new one whenever the agent opens \
            the tunnel again.",
};

/// Connected agents (EN-1).
const CLIENTS: &LiveList = &LiveList {
    path: engine::CLIENTS,
    filter: "ClientFilter",
    item: "Client",
    key: "clients",
};

/// Their tunnels (EN-1).
const TUNNELS: &LiveList = &LiveList {
    path: engine::TUNNELS,
    filter: "TunnelFilter",
    item: "TunnelListItem",
    key: "tunnels",
};

/// A project, by id or endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectName {
    /// By its id.
    Id(String),
    /// By its endpoint, eight hexadecimal characters.
    Endpoint(String),
}

impl LiveList {
    /// The operation of the engine's document.
    pub(crate) fn operation(&self) -> Option<&'static engine::Operation> {
        engine::OPERATIONS.iter().find(|one| one.path == self.path)
    }

    /// The permission that the engine requires.
    pub(crate) fn permission(&self) -> Option<Permission> {
        permission_of(self.operation()?)
    }

    /// JSON Schema of the arguments.
    pub(crate) fn input(&self) -> Value {
        let mut properties = project_properties();
        properties.insert(FILTERS.to_owned(), schema::reference(self.filter));
        let limit = json!({
            "description": "At most this many, oldest first; all of them if absent.",
            "type": "integer",
            "minimum": 1,
            "maximum": types::filter::MAX_LIMIT,
        });
        properties.insert(LIMIT.to_owned(), limit);
        schema::of_engine(json!({
            "type": "object",
            "properties": properties,
            "required": [],
            "additionalProperties": false,
        }))
    }

    /// JSON Schema of the response.
    pub(crate) fn output(&self) -> Value {
        schema::of_engine(json!({
            "type": "object",
            "properties": {
                self.key: {"type": "array", "items": schema::reference(self.item)},
            },
            "required": [self.key],
        }))
    }

    /// The project, and the request to its engine. The engine validates the filters.
    pub(crate) fn request(
        &self,
        mut arguments: Map<String, Value>,
    ) -> Result<(ProjectName, Request<Bytes>), BadArgument> {
        let project = project(&mut arguments)?;
        let known = |name: &str| [FILTERS, LIMIT].contains(&name);
        if let Some(name) = arguments.keys().find(|name| !known(name)) {
            return Err(BadArgument::new(name, "unknown argument"));
        }
        let mut address = self.path.to_owned();
        if !arguments.is_empty() {
            address.push_str("?params=");
            address.extend(escaped(&Value::Object(arguments).to_string()));
        }
        let request = Request::get(address).body(Bytes::new());
        let request =
            request.map_err(|_| BadArgument::new(FILTERS, "they are too long for an address"))?;
        Ok((project, request))
    }

    /// The tool's response: the engine's list under its key. `None`: the engine's response is not a
    /// list.
    pub(crate) fn answer(&self, response: &Response<Bytes>) -> Option<Value> {
        let list: Vec<Value> = serde_json::from_slice(response.body()).ok()?;
        Some(json!({ self.key: list }))
    }
}

impl LiveObject {
    /// The operation of the engine's document.
    pub(crate) fn operation(&self) -> Option<&'static engine::Operation> {
        engine::OPERATIONS
            .iter()
            .find(|one| one.id == self.operation)
    }

    /// The permission that the engine requires.
    pub(crate) fn permission(&self) -> Option<Permission> {
        permission_of(self.operation()?)
    }

    /// JSON Schema of the arguments.
    pub(crate) fn input(&self) -> Value {
        let mut properties = project_properties();
        let id = json!({
            "description": self.about, "type": "string", "minLength": 1, "maxLength": 128,
        });
        properties.insert(self.argument.to_owned(), id);
        json!({
            "type": "object",
            "properties": properties,
            "required": [self.argument],
            "additionalProperties": false,
        })
    }

    /// The project, and the request to its engine.
    pub(crate) fn request(
        &self,
        mut arguments: Map<String, Value>,
    ) -> Result<(ProjectName, Request<Bytes>), BadArgument> {
        let project = project(&mut arguments)?;
        let Some(value) = arguments.remove(self.argument) else {
            return Err(BadArgument::new(self.argument, "missing"));
        };
        if let Some(name) = arguments.keys().next() {
            return Err(BadArgument::new(name, "unknown argument"));
        }
        let not_an_id = || BadArgument::new(self.argument, "not an identifier");
        let id = segment(&value).ok_or_else(not_an_id)?;
        // The document has the operation: a test sends this request.
        let operation = self.operation().ok_or_else(not_an_id)?;
        let request = Request::builder()
            .method(method(operation.method))
            .uri(operation.path.replace("{id}", id))
            .body(Bytes::new());
        Ok((project, request.map_err(|_| not_an_id())?))
    }

    /// The tool's argument for a field that a refusal names.
    pub(crate) fn name_of(&self, field: &str) -> String {
        let name = if field == "id" { self.argument } else { field };
        name.to_owned()
    }
}

fn method(method: engine::Method) -> Method {
    match method {
        engine::Method::Get => Method::GET,
        engine::Method::Post => Method::POST,
        engine::Method::Delete => Method::DELETE,
    }
}

fn permission_of(operation: &engine::Operation) -> Option<Permission> {
    match operation.access {
        Access::Permitted(permission, _) => Some(permission),
        Access::Public | Access::Authenticated | Access::Granted => None,
    }
}

/// JSON Schemas of the arguments that identify a project.
pub(crate) fn project_properties() -> Map<String, Value> {
    let name = |about: &str| json!({"description": about, "type": "string", "minLength": 1, "maxLength": 128});
    let by_id = name("The project by its id; or give its endpoint.");
    let by_endpoint = name("The project by its endpoint, eight hexadecimal characters.");
    [(PROJECT_ID, by_id), (PROJECT_ENDPOINT, by_endpoint)]
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// Removes the project from the arguments.
pub(crate) fn project(arguments: &mut Map<String, Value>) -> Result<ProjectName, BadArgument> {
    let mut named = |name: &str| {
        let value = arguments.remove(name);
        let read = |value: Value| segment(&value).map(str::to_owned);
        value
            .map(|value| read(value).ok_or_else(|| BadArgument::new(name, "not an identifier")))
            .transpose()
    };
    match (named(PROJECT_ID)?, named(PROJECT_ENDPOINT)?) {
        (Some(id), None) => Ok(ProjectName::Id(id)),
        (None, Some(endpoint)) => Ok(ProjectName::Endpoint(endpoint)),
        (Some(_), Some(_)) => Err(BadArgument::new(
            PROJECT_ENDPOINT,
            "give the id or the endpoint, not both",
        )),
        (None, None) => Err(BadArgument::new(
            PROJECT_ID,
            "the id or the endpoint of the project is missing",
        )),
    }
}

const PROJECT_ID: &str = "project_id";
const PROJECT_ENDPOINT: &str = "project_endpoint";
const FILTERS: &str = "filters";
const LIMIT: &str = "limit";
