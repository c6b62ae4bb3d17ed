//! The control plane API: its operations, its request and response types, and its document (CP-7).
//!
//! Each part of the API is a module with its types, one [`Operation`] constant per operation, the
//! list `OPERATIONS` of them, and `schemas()`. The routers are made from the same constants, so
//! what is served and what is described cannot differ.

pub mod addresses;
pub mod billing;
pub mod contracts;
pub mod credentials;
mod document;
pub mod domains;
pub mod health;
pub mod oauth;
mod operation;
pub mod operator;
mod paging;
pub mod people;
pub mod plan_change;
pub mod plans;
pub mod projects;
pub mod records;
mod schema;
pub mod settings;
pub mod takedowns;
pub mod tokens;
pub mod turn;
pub mod webhooks;
pub mod webtty_servers;
pub mod whoami;
pub mod workspaces;

use serde_json::Value;

pub use self::operation::{Access, Body, Method, Operation, Parameter, Shape, SuccessResponse};
pub use self::paging::{DEFAULT_PAGE_SIZE, MAX_PAGE, MAX_PAGE_SIZE, Paging};
pub(crate) use self::paging::{ORDER, PAGE, PAGE_SIZE, TIME_ORDER, page, page_size};
pub use self::schema::{MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, Schemas};
pub(crate) use self::schema::{add, not_null};

/// Every operation, in the order of the document.
pub fn operations() -> impl Iterator<Item = &'static Operation> {
    [
        contracts::OPERATIONS,
        health::OPERATIONS,
        whoami::OPERATIONS,
        people::OPERATIONS,
        workspaces::OPERATIONS,
        billing::OPERATIONS,
        plans::OPERATIONS,
        projects::OPERATIONS,
        plan_change::OPERATIONS,
        settings::OPERATIONS,
        records::OPERATIONS,
        webhooks::OPERATIONS,
        webtty_servers::OPERATIONS,
        addresses::OPERATIONS,
        domains::OPERATIONS,
        turn::OPERATIONS,
        credentials::OPERATIONS,
        tokens::OPERATIONS,
        oauth::OPERATIONS,
        operator::OPERATIONS,
        takedowns::OPERATIONS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The OpenAPI 3.1 document of the control plane.
pub fn document() -> Value {
    document::assemble()
}

/// [`document`] as the JSON text that is served and committed.
pub fn document_json() -> String {
    crate::openapi::text(&document())
}

fn schemas() -> Schemas {
    let mut schemas = Schemas::new();
    contracts::schemas(&mut schemas);
    health::schemas(&mut schemas);
    billing::schemas(&mut schemas);
    operator::schemas(&mut schemas);
    takedowns::schemas(&mut schemas);
    whoami::schemas(&mut schemas);
    people::schemas(&mut schemas);
    workspaces::schemas(&mut schemas);
    plans::schemas(&mut schemas);
    projects::schemas(&mut schemas);
    plan_change::schemas(&mut schemas);
    settings::schemas(&mut schemas);
    records::schemas(&mut schemas);
    webhooks::schemas(&mut schemas);
    webtty_servers::schemas(&mut schemas);
    addresses::schemas(&mut schemas);
    domains::schemas(&mut schemas);
    turn::schemas(&mut schemas);
    credentials::schemas(&mut schemas);
    tokens::schemas(&mut schemas);
    oauth::schemas(&mut schemas);
    add::<types::problem::ProblemBody>(&mut schemas);
    schemas.sort_by(|(left, _), (right, _)| left.cmp(right));
    schemas.dedup_by(|(left, _), (right, _)| left == right);
    schemas
}
