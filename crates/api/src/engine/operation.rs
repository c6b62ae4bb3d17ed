//! One operation of an engine, for the router and for the document.

use types::permission::{Permission, Rule};

/// One operation. Routers use its path and method, the document uses all fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// `operationId`.
    pub id: &'static str,
    pub method: Method,
    pub path: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    pub access: Access,
    /// True if the interface guarantees the operation. Otherwise it may still change.
    pub stable: bool,
    /// Further sentences; most operations have none.
    pub(super) description: Option<&'static str>,
    /// Query parameters.
    pub(super) query: &'static [Parameter],
    /// Component schema of the JSON body, and true if a request without a body is refused.
    pub(super) body: Option<(&'static str, bool)>,
    /// The response on success.
    pub(super) answer: SuccessResponse,
    /// Error statuses in addition to those that follow from `access` and `path`.
    pub(super) refusals: &'static [u16],
}

impl Operation {
    /// An operation without query parameters and without a body. Set further fields with struct
    /// update syntax.
    pub(super) const fn new(
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
            description: None,
            query: &[],
            body: None,
            answer,
            refusals: &[],
        }
    }
}

/// HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
}

/// Credential and permission that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential.
    Public,
    /// Any valid credential.
    Authenticated,
    /// A grant that another operation issued, sent in the first message of the stream. A credential
    /// is not required, but checked if the request has one.
    Granted,
    /// A permission, and those of its rules that apply to the operation.
    Permitted(Permission, &'static [Rule]),
}

/// A query parameter. All are optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameter {
    /// The parameter `params`, a JSON value of this component schema.
    Params(&'static str),
    /// A watch token.
    WatchToken,
    /// Any other parameter: name, description, type.
    Plain(&'static str, &'static str, Shape),
}

impl Parameter {
    /// A number from 0.
    pub(super) const fn number(name: &'static str, description: &'static str) -> Self {
        Self::Plain(name, description, Shape::Number)
    }

    /// True or false.
    pub(super) const fn switch(name: &'static str, description: &'static str) -> Self {
        Self::Plain(name, description, Shape::Switch)
    }
}

/// Type of a plain query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One of the given texts.
    OneOf(&'static [&'static str]),
    /// A number from 0.
    Number,
    /// True or false.
    Switch,
}

/// The response on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SuccessResponse {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content: Content,
}

impl SuccessResponse {
    /// An object of a component schema.
    pub(super) const fn object(schema: &'static str, description: &'static str) -> Self {
        Self::ok(description, Content::Object(schema))
    }

    /// A list of objects of a component schema.
    pub(super) const fn list(schema: &'static str, description: &'static str) -> Self {
        Self::ok(description, Content::List(schema))
    }

    /// A response of another media type.
    pub(super) const fn ok(description: &'static str, content: Content) -> Self {
        Self {
            status: 200,
            description,
            content,
        }
    }

    /// A response without a body.
    pub(super) const fn empty(status: u16, description: &'static str) -> Self {
        Self {
            status,
            description,
            content: Content::Empty,
        }
    }
}

/// Body of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// No body.
    Empty,
    /// A JSON object of a component schema.
    Object(&'static str),
    /// A JSON list of objects of a component schema.
    List(&'static str),
    /// An object of this media type, without a schema.
    AnyObject(&'static str),
    /// Text of one of the media types.
    Text(&'static [&'static str]),
}
