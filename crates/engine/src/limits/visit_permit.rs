//! Permits of concurrent visits: of the engine, and of each project of a managed one.

use std::sync::Arc;

use transport::permit::Permit;
use types::problem::Problem;

use crate::core::Core;
use crate::directory::Project;

/// The permit of one visit, until this is dropped.
pub(crate) type VisitPermit = Permit<Project>;

/// There is no capacity for a further visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConcurrencyError {
    #[error("the engine has reached its limit of visits in progress: {0}")]
    Engine(usize),
    #[error("the project has reached its limit of visits in progress: {0}")]
    Project(usize),
}

/// A permit for a visit of `project` that has started. `None`: it is not counted, because the
/// project is the only one.
pub(crate) fn permit_visit(
    core: &Core,
    project: &Arc<Project>,
) -> Result<Option<VisitPermit>, ConcurrencyError> {
    let limits = &core.config.limits;
    if core.visits_in_flight() > limits.max_streams {
        return Err(ConcurrencyError::Engine(limits.max_streams));
    }
    if project.is_alone() {
        return Ok(None);
    }
    let most = limits.project_share.of(limits.max_streams);
    permit_within(project, most).map(Some)
}

fn permit_within(project: &Arc<Project>, most: usize) -> Result<VisitPermit, ConcurrencyError> {
    VisitPermit::try_take(project, most).ok_or(ConcurrencyError::Project(most))
}

impl From<ConcurrencyError> for Problem {
    fn from(none: ConcurrencyError) -> Self {
        Self::unavailable()
            .with_detail(format!("This tunnel cannot accept requests now: {none}."))
            .with_retry_after(RETRY)
    }
}

/// Seconds after which a visitor may try again: most visits are shorter.
const RETRY: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_counts_until_it_is_dropped() {
        let project = Arc::new(Project::community());
        let take = || permit_within(&project, 2);
        let (first, _second) = (take().unwrap(), take().unwrap());
        assert_eq!(take().unwrap_err(), ConcurrencyError::Project(2));
        assert_eq!(
            take().unwrap_err(),
            ConcurrencyError::Project(2),
            "a refusal takes none"
        );
        drop(first);
        take().unwrap();
    }
}
