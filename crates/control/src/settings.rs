//! Project-wide policy (ED-8): what may stand in it, and its routes.

mod check;
mod routes;

pub use self::check::check;
pub(crate) use self::routes::of;
pub use self::routes::routes;
