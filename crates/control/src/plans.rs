//! What a workspace may create: the catalogue of the configuration, and what it offers one
//! workspace at one moment (CP-3).

mod catalogue;
mod fingerprint;
mod offer;
mod section;

pub use self::catalogue::{Catalogue, Place, Region, Terms};
pub use self::fingerprint::{Fingerprint, FingerprintKey};
pub use self::offer::{Offer, Room, configuration, offer};
pub use self::section::CatalogSection;
pub(crate) use self::section::is_country;

use std::sync::Arc;

use axum::Router;

use crate::app::App;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
}
