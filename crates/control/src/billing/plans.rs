//! Plans that a workspace can choose: the catalogue of the configuration, and the current offers
//! for one workspace (CP-3).

mod catalogue;
mod fingerprint;
mod offer;
mod preview;
mod section;
mod service;

use std::sync::Arc;

use api::control::plans::PLAN_CONFIGURATION;
use axum::Router;

pub use self::catalogue::{Catalogue, Coordinates, PlanTerms, Region};
pub use self::fingerprint::{Fingerprint, FingerprintKey};
pub(crate) use self::offer::explain;
pub use self::offer::{Availability, Offer, configuration, offer};
pub use self::section::CatalogSection;
pub(crate) use self::section::is_country;
pub use self::service::{PlanService, PlanServiceError, Snapshot};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(PLAN_CONFIGURATION, preview::preview)
}
