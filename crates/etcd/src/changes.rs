//! The changes of the view that the engine has not read, so that it can keep what it derived from
//! the view.

use std::collections::HashSet;

use ownership::{Change, Name, View};

/// Names whose holds or entries have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedNames {
    /// These names.
    Some(Vec<Name>),
    /// Any name may have changed.
    All,
}

/// The names that have changed since the engine last asked.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    names: HashSet<Name>,
    is_overfull: bool,
}

impl ChangeLog {
    /// Notes a change that is applied to the view next.
    pub(crate) fn note(&mut self, change: &Change, view: &View) {
        match change {
            Change::Hold(name, _)
            | Change::HoldEnd(name, _)
            | Change::Entry(name, ..)
            | Change::EntryEnd(name, _) => self.note_name(name),
            // Engines write their record again and again.
            Change::Engine(id, engine) if view.engine(*id) == Some(engine) => {}
            Change::Engine(..) | Change::EngineEnd(_) => self.note_all(),
        }
    }

    /// Notes that any name may have changed.
    pub(crate) fn note_all(&mut self) {
        self.names = HashSet::new();
        self.is_overfull = true;
    }

    /// The names since the last call.
    pub(crate) fn take(&mut self) -> ChangedNames {
        if std::mem::take(&mut self.is_overfull) {
            ChangedNames::All
        } else {
            ChangedNames::Some(self.names.drain().collect())
        }
    }

    fn note_name(&mut self, name: &Name) {
        if self.is_overfull || self.names.contains(name) {
            return;
        }
        if self.names.len() >= MAX_NAMES {
            self.note_all();
        } else {
            self.names.insert(name.clone());
        }
    }
}

/// Names that are noted one by one. An engine that has not read so many derives everything again.
const MAX_NAMES: usize = 4096;

#[cfg(test)]
mod tests {
    use ownership::{Engine, EngineId};

    use super::*;

    const ENGINE: EngineId = EngineId(1);

    fn end(number: usize) -> Change {
        Change::HoldEnd(Name::of_host(&number.to_string()), ENGINE)
    }

    #[test]
    fn each_name_is_read_once() {
        let (mut log, view) = (ChangeLog::default(), View::default());
        for _ in 0..2 {
            log.note(&end(1), &view);
        }
        assert_eq!(log.take(), ChangedNames::Some(vec![Name::of_host("1")]));
        assert_eq!(log.take(), ChangedNames::Some(Vec::new()));
    }

    #[test]
    fn the_names_are_limited() {
        let (mut log, view) = (ChangeLog::default(), View::default());
        for number in 0..=MAX_NAMES {
            log.note(&end(number), &view);
        }
        assert_eq!(log.take(), ChangedNames::All);
        assert_eq!(log.take(), ChangedNames::Some(Vec::new()));
    }

    #[test]
    fn an_engine_that_changes_concerns_all_names() {
        let (mut log, mut view) = (ChangeLog::default(), View::default());
        let record = Engine {
            name: "engine".into(),
            address: "engine:1".into(),
            zone: "".into(),
        };
        let written = Change::Engine(ENGINE, record);
        log.note(&written, &view);
        assert_eq!(log.take(), ChangedNames::All);
        view.apply(written.clone(), 1);
        log.note(&written, &view);
        assert_eq!(log.take(), ChangedNames::Some(Vec::new()), "a beat");
        log.note(&Change::EngineEnd(ENGINE), &view);
        assert_eq!(log.take(), ChangedNames::All);
    }
}
