//! Live state of a project: lists of the Engine API, requested from the project's engine.

use api::engine::{self, Access};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Map, Value, json};
use types::percent::escaped;
use types::permission::Permission;

use crate::tools::call::{BadArgument, segment};
use crate::tools::schema;

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

/// Connected agents (EN-1).
pub(crate) const CLIENTS: &LiveList = &LiveList {
    path: engine::CLIENTS,
    filter: "ClientFilter",
    item: "Client",
    key: "clients",
};

/// Their tunnels (EN-1).
pub(crate) const TUNNELS: &LiveList = &LiveList {
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
        match self.operation()?.access {
            Access::Permitted(permission, _) => Some(permission),
            Access::Public | Access::Authenticated | Access::Granted => None,
        }
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
