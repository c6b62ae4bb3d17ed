//! Set of ids that can be used once, stored until they expire.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

/// A bounded set of ids. Each id is kept for at least `seconds`, in two generations. The old
/// generation is dropped as a whole when the young one reaches this age.
///
/// Each project has reserved capacity ([`PROJECT_RESERVE`]) and a limited share of the common
/// capacity, so that a project that fills the set only blocks itself.
#[derive(Debug)]
pub(super) struct OneTimeIds {
    seconds: i64,
    /// Capacity of one generation beyond the reserves of the projects.
    common: usize,
    used: Mutex<UsedIds>,
}

#[derive(Debug, Default)]
struct UsedIds {
    young: HashSet<[u8; 16]>,
    old: HashSet<[u8; 16]>,
    /// Number of ids of each project in the young generation.
    by_project: HashMap<Arc<str>, usize>,
    /// Number of ids of the young generation that use common capacity.
    common: usize,
    /// Start of the young generation, in Unix seconds.
    since: i64,
}

/// Reason why an id cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OneTimeError {
    /// It was used before.
    Used,
    /// The project has reached its capacity. Ids are never removed early.
    Full,
}

/// Reserved capacity of each project in one generation, in ids: 20 KiB.
const PROJECT_RESERVE: usize = 512;
/// One project may use this fraction of the common capacity: one part in `SHARE`.
const SHARE: usize = 8;

impl OneTimeIds {
    pub(super) fn new(seconds: i64, capacity: usize) -> Self {
        Self {
            seconds,
            common: capacity / 2,
            used: Mutex::default(),
        }
    }

    /// Uses an id of a project at `now` (Unix seconds). Only the first use of an id succeeds.
    pub(super) fn use_once(
        &self,
        id: &[u8],
        project: &Arc<str>,
        now: i64,
    ) -> Result<(), OneTimeError> {
        let id = digest(id);
        let mut used = self.used.lock();
        let used = &mut *used;
        if now.saturating_sub(used.since) >= self.seconds {
            let is_stale = now.saturating_sub(used.since) >= self.seconds.saturating_mul(2);
            let young = std::mem::take(&mut used.young);
            used.old = if is_stale { HashSet::new() } else { young };
            used.since = now;
            used.by_project.clear();
            used.common = 0;
        }
        if used.old.contains(&id) || used.young.contains(&id) {
            return Err(OneTimeError::Used);
        }
        let count = used.by_project.entry(Arc::clone(project)).or_default();
        if *count >= PROJECT_RESERVE {
            if used.common >= self.common || *count >= PROJECT_RESERVE + self.common / SHARE {
                return Err(OneTimeError::Full);
            }
            used.common += 1;
        }
        *count += 1;
        used.young.insert(id);
        Ok(())
    }
}

/// Half of SHA-256, which is collision resistant.
fn digest(id: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    let whole = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, id);
    for (to, from) in half.iter_mut().zip(whole.as_ref()) {
        *to = *from;
    }
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(id: &str) -> Arc<str> {
        id.into()
    }

    #[test]
    fn an_id_can_be_used_once_until_it_expires() {
        let (once, project) = (OneTimeIds::new(60, 100), project("prj_1"));
        assert_eq!(once.use_once(b"early", &project, 1000), Ok(()));
        for now in [1000, 1059, 1060] {
            assert_eq!(
                once.use_once(b"early", &project, now),
                Err(OneTimeError::Used),
                "{now}"
            );
        }
        assert_eq!(once.use_once(b"late", &project, 1119), Ok(()));
        assert_eq!(
            once.use_once(b"late", &project, 1178),
            Err(OneTimeError::Used),
            "59 seconds old"
        );
        assert_eq!(once.use_once(b"late", &project, 1300), Ok(()), "long after");
    }

    /// Uses new ids until the set is full, and returns their number.
    fn fill(once: &OneTimeIds, project: &Arc<str>, now: i64) -> usize {
        let ids = (0..u32::MAX).map(|id| format!("{project} {id}"));
        ids.take_while(|id| once.use_once(id.as_bytes(), project, now).is_ok())
            .count()
    }

    #[test]
    fn capacity_is_limited_and_ids_are_not_removed_early() {
        let (once, one) = (OneTimeIds::new(60, 1600), project("prj_1"));
        assert_eq!(fill(&once, &one, 1000), PROJECT_RESERVE + 100);
        assert_eq!(once.use_once(b"more", &one, 1000), Err(OneTimeError::Full));
        assert_eq!(
            once.use_once(b"prj_1 0", &one, 1000),
            Err(OneTimeError::Used)
        );
        assert_eq!(once.use_once(b"more", &one, 1060), Ok(()));
        assert_eq!(
            once.use_once(b"prj_1 0", &one, 1060),
            Err(OneTimeError::Used)
        );
    }

    #[test]
    fn full_projects_leave_capacity_for_other_projects() {
        let once = OneTimeIds::new(60, 1600);
        let filled = (0..20).map(|number| fill(&once, &project(&number.to_string()), 1000));
        assert_eq!(filled.sum::<usize>(), 20 * PROJECT_RESERVE + 800);
        assert_eq!(fill(&once, &project("late"), 1000), PROJECT_RESERVE);
    }
}
