//! Projects: list, resolve, create as previewed, rename, transfer, change the plan, delete (CP-2,
//! CP-4, CP-5).

pub mod addresses;
pub(crate) mod audit_entry;
mod change;
pub(crate) mod create;
mod endpoint;
mod engine;
mod get;
mod list;
mod name;
mod plan_change;
mod region;
pub mod settings;
mod transfer;
mod tunnel_host;
mod view;

use std::sync::Arc;

use api::control::plan_change::{CHANGE, PREVIEW};
use api::control::projects::{CREATE, DELETE, GET, LIST, RESOLVE, TRANSFER, UPDATE};
use axum::Router;

pub use self::endpoint::{BadEndpoint, ProjectEndpoint};
pub(crate) use self::engine::address_of;
pub use self::engine::{EngineAddress, ProjectSelector, engine_of};
pub(crate) use self::list::SORTS;
pub use self::name::{BadText, IdempotencyKey, ProjectName};
pub(crate) use self::region::region_of;
pub(crate) use self::tunnel_host::TunnelHost;
pub(crate) use self::view::view;
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST, list::list)
        .serve(GET, get::get)
        .serve(RESOLVE, get::resolve)
        .serve(CREATE, create::create)
        .serve(UPDATE, change::rename)
        .serve(DELETE, change::delete)
        .serve(TRANSFER, transfer::transfer)
        .serve(PREVIEW, plan_change::preview)
        .serve(CHANGE, plan_change::change)
}
