//! One operation of the control plane, as it is served and described.

use serde_json::Value;
use types::permission::{Permission, Rule};

use super::health::{HEALTHZ, READYZ};

/// One operation. Routers take path and method from it, the document everything.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// `operationId`: stable, `snake_case`, unique.
    pub id: &'static str,
    pub method: Method,
    /// The path, with `{name}` for what varies.
    pub path: &'static str,
    /// One line for people.
    pub summary: &'static str,
    pub access: Access,
    /// Whether the interface promises it (CP-15); else it may still change.
    pub stable: bool,
    /// Parameters of the query.
    pub query: &'static [Parameter],
    /// What is sent.
    pub body: Option<Body>,
    /// What is answered when it goes well.
    pub answer: Answer,
    /// Statuses of refusals beside those that follow from the rest: see
    /// [`Operation::every_refusal`].
    pub refusals: &'static [u16],
}

impl Operation {
    /// A `GET` that answers 200 with a component schema; the other fields by struct update.
    pub const fn get(
        id: &'static str,
        path: &'static str,
        summary: &'static str,
        access: Access,
        schema: &'static str,
    ) -> Self {
        Self {
            id,
            method: Method::Get,
            path,
            summary,
            access,
            stable: false,
            query: &[],
            body: None,
            answer: Answer::json(200, schema),
            refusals: &[],
        }
    }

    /// Statuses of everything that may be answered when it does not go well, ascending.
    ///
    /// Every caller has a limited rate, but for what balancers ask. Whoever is guarded reads the
    /// database, which may be away, and an address, which may have parameters that nobody knows. What a
    /// path names may not be there. A body may be malformed, too large, or declared as something else
    /// than JSON.
    pub fn every_refusal(&self) -> Vec<u16> {
        let guarded: &[u16] = match self.access {
            Access::Public if [HEALTHZ.path, READYZ.path].contains(&self.path) => &[],
            Access::Public => &[429],
            Access::Authenticated => &[400, 401, 429, 503],
            Access::Permitted(..) => &[400, 401, 403, 429, 503],
            // Whoever is no operator is told that it is not there.
            Access::Operator(_) => &[400, 401, 404, 429, 503],
        };
        // A write that another site made a browser send.
        let is_read = matches!(self.method, Method::Get | Method::Head);
        let foreign: &[u16] = if is_read || self.access == Access::Public {
            &[]
        } else {
            &[403]
        };
        let named: &[u16] = if self.path.contains('{') { &[404] } else { &[] };
        let sent: &[u16] = match self.body {
            Some(_) => &[400, 413, 415],
            None => &[],
        };
        let mut statuses = [guarded, foreign, named, sent, self.refusals].concat();
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }
}

/// What an operation asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// Any valid credential.
    Authenticated,
    /// A permission; the rules are those of it that the operation uses.
    Permitted(Permission, &'static [Rule]),
    /// An operator of the installation, with a credential that is not narrowed or in a session.
    /// For everybody else the operation is not there. No permission gives these rules.
    Operator(&'static [Rule]),
}

/// A method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// A parameter of the query.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub description: &'static str,
    pub shape: Shape,
}

/// The shape of a query parameter. All are optional.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Any text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// An integer within these bounds, both included.
    Integer(i64, i64),
    /// A time of RFC 3339.
    Time,
}

/// A JSON body.
#[derive(Debug, Clone, Copy)]
pub struct Body {
    /// Component schema.
    pub schema: &'static str,
    /// Whether a request without a body is refused.
    pub required: bool,
    /// An example of it.
    pub example: fn() -> Value,
}

/// The answer when it goes well.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    pub status: u16,
    /// Media type and component schema; `None`: there is no body.
    pub content: Option<(&'static str, &'static str)>,
}

impl Answer {
    /// A JSON body of a component schema.
    pub const fn json(status: u16, schema: &'static str) -> Self {
        Self {
            status,
            content: Some(("application/json", schema)),
        }
    }

    /// 204 without a body.
    pub const NO_CONTENT: Self = Self {
        status: 204,
        content: None,
    };
}
