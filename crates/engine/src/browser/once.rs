//! What may be used once, remembered for as long as it could be used again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

/// A bounded set of ids, each kept for at least `seconds`, in two generations: the old one is
/// dropped whole when the young one has its age.
///
/// Each project has room of its own ([`OWN`]), and beyond it a share of what is there for all, so
/// that one that fills the set is the only one that is kept waiting.
#[derive(Debug)]
pub(super) struct Once {
    seconds: i64,
    /// Ids of a generation, beyond what is each project's own.
    common: usize,
    used: Mutex<UsedIds>,
}

#[derive(Debug, Default)]
struct UsedIds {
    young: HashSet<[u8; 16]>,
    old: HashSet<[u8; 16]>,
    /// Ids of the young generation.
    by_project: HashMap<Arc<str>, usize>,
    /// Those of them that are in the room for all.
    common: usize,
    /// Unix seconds at which the young generation began.
    since: i64,
}

/// Why an id may not be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotNow {
    /// It was used before.
    Used,
    /// As many are remembered of the project as may be; nothing is forgotten before its time.
    Full,
}

/// Ids of one project in a generation for which there is always room: 20 KiB.
const OWN: usize = 512;
/// The part of the room for all that one project may have.
const SHARE: usize = 8;

impl Once {
    pub(super) fn new(seconds: i64, capacity: usize) -> Self {
        Self {
            seconds,
            common: capacity / 2,
            used: Mutex::default(),
        }
    }

    /// Uses an id of a project at `now` (Unix seconds). Once.
    pub(super) fn take(&self, id: &[u8], project: &Arc<str>, now: i64) -> Result<(), NotNow> {
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
            return Err(NotNow::Used);
        }
        let count = used.by_project.entry(Arc::clone(project)).or_default();
        if *count >= OWN {
            if used.common >= self.common || *count >= OWN + self.common / SHARE {
                return Err(NotNow::Full);
            }
            used.common += 1;
        }
        *count += 1;
        used.young.insert(id);
        Ok(())
    }
}

/// Half of SHA-256: nobody finds two ids of the same.
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
    fn an_id_is_used_once_for_as_long_as_it_could_be() {
        let (once, project) = (Once::new(60, 100), project("prj_1"));
        assert_eq!(once.take(b"early", &project, 1000), Ok(()));
        for now in [1000, 1059, 1060] {
            assert_eq!(
                once.take(b"early", &project, now),
                Err(NotNow::Used),
                "{now}"
            );
        }
        assert_eq!(once.take(b"late", &project, 1119), Ok(()));
        assert_eq!(
            once.take(b"late", &project, 1178),
            Err(NotNow::Used),
            "59 seconds old"
        );
        assert_eq!(once.take(b"late", &project, 1300), Ok(()), "long after");
    }

    /// As many new ids as there is room for.
    fn fill(once: &Once, project: &Arc<str>, now: i64) -> usize {
        let ids = (0..u32::MAX).map(|id| format!("{project} {id}"));
        ids.take_while(|id| once.take(id.as_bytes(), project, now).is_ok())
            .count()
    }

    #[test]
    fn memory_has_an_end_and_nothing_is_forgotten_early() {
        let (once, one) = (Once::new(60, 1600), project("prj_1"));
        assert_eq!(fill(&once, &one, 1000), OWN + 100);
        assert_eq!(once.take(b"more", &one, 1000), Err(NotNow::Full));
        assert_eq!(once.take(b"prj_1 0", &one, 1000), Err(NotNow::Used));
        assert_eq!(once.take(b"more", &one, 1060), Ok(()));
        assert_eq!(once.take(b"prj_1 0", &one, 1060), Err(NotNow::Used));
    }

    #[test]
    fn projects_that_fill_it_leave_room_for_others() {
        let once = Once::new(60, 1600);
        let filled = (0..20).map(|number| fill(&once, &project(&number.to_string()), 1000));
        assert_eq!(filled.sum::<usize>(), 20 * OWN + 800);
        assert_eq!(fill(&once, &project("late"), 1000), OWN);
    }
}
