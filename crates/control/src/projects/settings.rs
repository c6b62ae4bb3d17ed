//! Policy of a project (ED-8): its validation, and its routes.

mod check;
mod routes;

pub use self::check::check;
pub(crate) use self::routes::project_policy;
pub use self::routes::routes;
