//! Liveness and readiness of the platform, for load balancers and supervisors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Access, Operation, Schemas, add};

/// Liveness: the process runs.
pub const HEALTHZ: &Operation = &Operation::get(
    "get_health",
    "/healthz",
    "Whether the process is running",
    Access::Public,
    "Health",
);

/// Readiness: the database responds, the keys are loaded, and the platform is not draining.
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

/// Response of a healthy platform. Anything else is a problem response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: HealthStatus,
}

/// Status in a health response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// Healthy.
    Ok,
}
