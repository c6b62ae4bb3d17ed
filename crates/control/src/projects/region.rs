//! The region of a project.

use store::projects::Project;

use crate::app::App;
use crate::billing::plans::Region;

/// The region of a project. If its region is not sold any more, it is the first one. `None` if
/// there is no engine at all.
pub(crate) fn region_of<'a>(app: &'a App, project: &Project) -> Option<&'a Region> {
    let regions = app.plan_service.catalogue().regions();
    let name = project.region.as_deref().unwrap_or_default();
    let known = project.provider.parse().ok().and_then(|provider| {
        regions
            .iter()
            .find(|region| region.is_named(provider, name))
    });
    known.or_else(|| regions.first())
}
