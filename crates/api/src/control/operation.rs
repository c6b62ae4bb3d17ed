//! One operation of the control plane, for the router and for the document.

use serde_json::Value;
use types::permission::{Permission, Rule};

use super::health::{HEALTHZ, READYZ};

/// One operation. Routers use its path and method, the document uses all fields.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// `operationId`: stable, `snake_case`, unique.
    pub id: &'static str,
    pub method: Method,
    /// The path, with `{name}` for each parameter.
    pub path: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    pub access: Access,
    /// True if the interface guarantees the operation (CP-15). Otherwise it may still change.
    pub stable: bool,
    /// Query parameters.
    pub query: &'static [Parameter],
    /// The request body.
    pub body: Option<Body>,
    /// The response on success.
    pub answer: SuccessResponse,
    /// Error statuses in addition to those that follow from the other fields: see
    /// [`Operation::every_refusal`].
    pub refusals: &'static [u16],
}

impl Operation {
    /// An operation without query parameters and body. Set the other fields with struct update
    /// syntax.
    pub const fn new(
        id: &'static str,
        method: Method,
        path: &'static str,
        summary: &'static str,
        access: Access,
        answer: SuccessResponse,
    ) -> Self {
        Self {
            id,
            method,
            path,
            summary,
            access,
            stable: false,
            query: &[],
            body: None,
            answer,
            refusals: &[],
        }
    }

    /// A `GET` that responds with 200 and a component schema.
    pub const fn get(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        access: Access,
        schema: &'static str,
    ) -> Self {
        let answer = SuccessResponse::json(200, schema);
        Self::new(id, Method::Get, path, summary, access, answer)
    }

    /// All error statuses of the operation, ascending.
    ///
    /// Every caller is rate limited, except for the health checks of load balancers. Guarded
    /// operations read the database, which may be unavailable. Their address may have unknown
    /// parameters. The objects in the path may not exist. A body may be malformed, too large, or of
    /// another type than JSON.
    pub fn every_refusal(&self) -> Vec<u16> {
        let access_statuses: &[u16] = match self.access {
            Access::Public if [HEALTHZ.path, READYZ.path].contains(&self.path) => &[],
            Access::Public => &[429],
            Access::Authenticated => &[400, 401, 429, 503],
            Access::Permitted(..) => &[400, 401, 403, 429, 503],
            // A caller that is not an operator receives 404.
            Access::Operator(_) => &[400, 401, 404, 429, 503],
        };
        // A request that another site caused in a browser is refused.
        let csrf_statuses: &[u16] = match self.access {
            Access::Public => &[],
            _ => &[403],
        };
        let path_statuses: &[u16] = if self.path.contains('{') { &[404] } else { &[] };
        let body_statuses: &[u16] = match self.body {
            Some(_) => &[400, 413, 415],
            None => &[],
        };
        let mut statuses = [
            access_statuses,
            csrf_statuses,
            path_statuses,
            body_statuses,
            self.refusals,
        ]
        .concat();
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }
}

/// Credential and permission that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential.
    Public,
    /// Any valid credential.
    Authenticated,
    /// A permission; the rules are the ones of the permission that the operation uses.
    Permitted(Permission, &'static [Rule]),
    /// An operator of the installation, with an unrestricted credential or in a browser session.
    /// All other callers receive 404. No permission includes these rules.
    Operator(&'static [Rule]),
}

/// An HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Head => Self::HEAD,
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub description: &'static str,
    pub shape: Shape,
    /// True if a request without the parameter is refused.
    pub is_required: bool,
}

impl Parameter {
    /// A parameter with any text.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Shape::Text)
    }

    /// A parameter with one of the given texts.
    pub const fn one_of(
        name: &'static str,
        description: &'static str,
        words: &'static [&'static str],
    ) -> Self {
        Self::new(name, description, Shape::OneOf(words))
    }

    /// An integer within these bounds, both included, with a default.
    pub const fn integer(
        name: &'static str,
        description: &'static str,
        least: u32,
        most: u32,
        default: u32,
    ) -> Self {
        let shape = Shape::Integer {
            least,
            most,
            default,
        };
        Self::new(name, description, shape)
    }

    /// An RFC 3339 time.
    pub const fn time(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Shape::Time)
    }

    /// The same parameter, which a request must have.
    #[must_use]
    pub const fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    const fn new(name: &'static str, description: &'static str, shape: Shape) -> Self {
        Self {
            name,
            description,
            shape,
            is_required: false,
        }
    }
}

/// Type of a query parameter.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Any text.
    Text,
    /// One of the given texts.
    OneOf(&'static [&'static str]),
    /// An integer within these bounds, both included.
    Integer {
        least: u32,
        most: u32,
        /// Value if the parameter is absent.
        default: u32,
    },
    /// An RFC 3339 time.
    Time,
}

/// A JSON body.
#[derive(Debug, Clone, Copy)]
pub struct Body {
    /// Component schema.
    pub schema: &'static str,
    /// True if a request without a body is refused.
    pub required: bool,
    /// An example body.
    pub example: fn() -> Value,
}

impl Body {
    /// A body that every request must have.
    pub const fn required(schema: &'static str, example: fn() -> Value) -> Self {
        Self {
            schema,
            required: true,
            example,
        }
    }

    /// A body that a request may leave out.
    pub const fn optional(schema: &'static str, example: fn() -> Value) -> Self {
        Self {
            schema,
            required: false,
            example,
        }
    }
}

/// The response on success.
#[derive(Debug, Clone, Copy)]
pub struct SuccessResponse {
    pub status: u16,
    /// Media type and component schema; `None`: no body.
    pub content: Option<(&'static str, &'static str)>,
}

impl SuccessResponse {
    /// A response with a JSON body of a component schema.
    pub const fn json(status: u16, schema: &'static str) -> Self {
        Self {
            status,
            content: Some(("application/json", schema)),
        }
    }

    /// A 200 response with a body of a media type and a component schema.
    pub const fn of_type(media_type: &'static str, schema: &'static str) -> Self {
        Self {
            status: 200,
            content: Some((media_type, schema)),
        }
    }

    /// A 204 response without a body.
    pub const NO_CONTENT: Self = Self {
        status: 204,
        content: None,
    };
}
