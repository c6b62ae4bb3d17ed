//! Permits of concurrent visits: of the engine, and of each project of a managed one.

use std::sync::Arc;

use types::problem::Problem;

use crate::core::Core;
use crate::directory::Project;

/// The permit of one visit, until this is dropped.
#[derive(Debug)]
pub(crate) struct VisitPermit(Arc<Project>);

/// There is no capacity for a further visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConcurrencyError {
    #[error("the engine has reached its limit of visits in progress: {0}")]
    Engine(usize),
    #[error("the project has reached its limit of visits in progress: {0}")]
    Project(usize),
}

impl VisitPermit {
    /// A permit for a visit of `project` that has started. `None`: it is not counted, because the
    /// project is the only one.
    pub(crate) fn take(
        core: &Core,
        project: &Arc<Project>,
    ) -> Result<Option<Self>, ConcurrencyError> {
        let limits = &core.config.limits;
        if core.visits_in_flight() > limits.max_streams {
            return Err(ConcurrencyError::Engine(limits.max_streams));
        }
        if project.is_alone() {
            return Ok(None);
        }
        let most = limits.project_share.of(limits.max_streams);
        Self::within(project, most).map(Some)
    }

    fn within(project: &Arc<Project>, most: usize) -> Result<Self, ConcurrencyError> {
        if project.active_visits.acquire(most) {
            Ok(Self(Arc::clone(project)))
        } else {
            Err(ConcurrencyError::Project(most))
        }
    }
}

impl Drop for VisitPermit {
    fn drop(&mut self) {
        self.0.active_visits.release();
    }
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
        let take = || VisitPermit::within(&project, 2);
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
