//! Whether the platform lives, and whether it serves: for balancers and supervisors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Access, Operation, Schemas, add};

/// The process lives.
pub const HEALTHZ: &Operation = &Operation::get(
    "get_health",
    "/healthz",
    "Whether the process lives",
    Access::Public,
    "Health",
);

/// The database answers, the keys are there, and nothing drains.
pub const READYZ: &Operation = &Operation {
    refusals: &[503],
    ..Operation::get(
        "get_readiness",
        "/readyz",
        "Whether requests can be served now",
        Access::Public,
        "Health",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[HEALTHZ, READYZ];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<Health>(schemas);
}

/// That all is well; whatever else is a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: HealthStatus,
}

/// The one thing that a health answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// All is well.
    Ok,
}
