//! Settings of a project (ED-8), which the documentation calls its policy: access rules that apply
//! to all of its tunnels. The modules contain their validation and their routes.

mod check;
mod routes;

pub use self::check::validate;
pub(crate) use self::routes::project_settings;
pub use self::routes::routes;
