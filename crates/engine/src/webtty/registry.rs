//! All sessions of an engine: those that run, and the last ones that ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use api::webtty as shapes;
use parking_lot::Mutex;
use types::id::WebttySessionId;
use types::problem::Problem;
use types::tunnel::Tunnel;

use super::recordings::Recorder;
use super::running::RunningSession;

/// The sessions of all projects. Shared by every worker.
#[derive(Debug, Default)]
pub struct Sessions {
    pub(crate) recorder: Recorder,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Places that are taken, by sessions that run and those that begin.
    taken: usize,
    projects: HashMap<Arc<str>, OfProject>,
    past: EndedSessions<Arc<Past>>,
}

#[derive(Debug, Default)]
struct OfProject {
    taken: usize,
    running: BTreeMap<WebttySessionId, Arc<RunningSession>>,
}

/// The sessions that ended last, of each project and of all.
#[derive(Debug)]
struct EndedSessions<T> {
    of: HashMap<Arc<str>, VecDeque<T>>,
    /// The projects of the sessions, oldest first, to forget in that order.
    order: VecDeque<Arc<str>>,
}

/// What is left of a session that ended.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) session: shapes::Session,
    pub(crate) tunnel: Arc<Tunnel>,
    pub(crate) participants: Vec<shapes::Participant>,
    pub(crate) requests: Vec<shapes::ControlRequest>,
}

/// A session that is known.
#[derive(Clone, Debug)]
pub(crate) enum SessionEntry {
    Running(Arc<RunningSession>),
    Past(Arc<Past>),
}

/// There is no place for a further session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("the engine has as many terminal sessions as it may have: {MOST}")]
    Engine,
    #[error("the project has as many terminal sessions as one may have: {OF_PROJECT}")]
    Project,
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        Self::unavailable()
            .with_detail(format!("No terminal can be opened now: {full}."))
            .with_retry_after(RETRY)
    }
}

/// A place for one session, until this is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit {
    sessions: Arc<Sessions>,
    project: Arc<str>,
}

impl Sessions {
    /// Sessions that are recorded by this.
    pub fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            table: Mutex::default(),
        }
    }

    /// What records them.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Takes a place for a session that is to begin.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn reserve(self: &Arc<Self>, project: &Arc<str>) -> Result<SessionPermit, Full> {
        let mut table = self.table.lock();
        if table.taken >= MOST {
            return Err(Full::Engine);
        }
        let of = table.projects.entry(Arc::clone(project)).or_default();
        if of.taken >= OF_PROJECT {
            return Err(Full::Project);
        }
        of.taken += 1;
        table.taken += 1;
        Ok(SessionPermit {
            sessions: Arc::clone(self),
            project: Arc::clone(project),
        })
    }

    /// The session of a project with this id.
    pub(crate) fn find(&self, project: &str, id: &str) -> Option<SessionEntry> {
        let table = self.table.lock();
        let of = table.projects.get(project);
        let running = of.and_then(|of| of.running.get(&id.parse().ok()?));
        if let Some(running) = running {
            return Some(SessionEntry::Running(Arc::clone(running)));
        }
        let mut past = table.past.of(project);
        let past = past.find(|past| past.session.id == id);
        past.map(|past| SessionEntry::Past(Arc::clone(past)))
    }

    /// The sessions of a project: those that run, the newest first, then those that ended last.
    pub(crate) fn of(&self, project: &str) -> Vec<SessionEntry> {
        let table = self.table.lock();
        let of = table.projects.get(project);
        let running = of.into_iter().flat_map(|of| of.running.values().rev());
        let running = running.cloned().map(SessionEntry::Running);
        let past = table.past.of(project).cloned().map(SessionEntry::Past);
        running.chain(past).collect()
    }
}

impl SessionPermit {
    /// The session is there.
    pub(super) fn begun(&self, session: &Arc<RunningSession>) {
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        of.running.insert(session.facts.id, Arc::clone(session));
    }

    /// It has ended.
    pub(super) fn ended(self, session: &RunningSession) {
        let past = Arc::new(session.past());
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        let gone = of.running.remove(&session.facts.id);
        let forgotten = table.past.keep(&self.project, past);
        drop(table);
        // Not under the lock.
        drop((gone, forgotten));
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut table = self.sessions.table.lock();
        table.taken = table.taken.saturating_sub(1);
        if let Some(of) = table.projects.get_mut(&self.project) {
            of.taken = of.taken.saturating_sub(1);
            if of.is_empty() {
                table.projects.remove(&self.project);
            }
        }
    }
}

impl OfProject {
    fn is_empty(&self) -> bool {
        self.taken == 0 && self.running.is_empty()
    }
}

impl<T> EndedSessions<T> {
    /// The sessions of a project, the newest first.
    fn of(&self, project: &str) -> impl Iterator<Item = &T> {
        self.of.get(project).into_iter().flatten().rev()
    }

    /// Adds a session, and returns those that are forgotten for it.
    fn keep(&mut self, project: &Arc<str>, one: T) -> Vec<T> {
        let mut forgotten = Vec::new();
        let of = self.of.entry(Arc::clone(project)).or_default();
        of.push_back(one);
        if of.len() > PAST_OF_PROJECT {
            forgotten.extend(of.pop_front());
        }
        self.order.push_back(Arc::clone(project));
        if self.order.len() > PAST
            && let Some(project) = self.order.pop_front()
            // A project that reached its own limit loses a newer session instead.
            && let Some(of) = self.of.get_mut(&project)
        {
            forgotten.extend(of.pop_front());
            if of.is_empty() {
                self.of.remove(&project);
            }
        }
        forgotten
    }
}

impl<T> Default for EndedSessions<T> {
    fn default() -> Self {
        Self {
            of: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl SessionEntry {
    /// The session as lists show it.
    pub(crate) fn session(&self) -> shapes::Session {
        match self {
            Self::Running(running) => running.shown(),
            Self::Past(past) => past.session.clone(),
        }
    }

    /// Who takes part or did.
    pub(crate) fn participants(&self) -> Vec<shapes::Participant> {
        match self {
            Self::Running(running) => running.participants(),
            Self::Past(past) => past.participants.clone(),
        }
    }

    /// Requests for control.
    pub(crate) fn requests(&self) -> Vec<shapes::ControlRequest> {
        match self {
            Self::Running(running) => running.requests(),
            Self::Past(past) => past.requests.clone(),
        }
    }

    /// The tunnel that it came through.
    pub(crate) fn tunnel(&self) -> &Arc<Tunnel> {
        match self {
            Self::Running(running) => &running.facts.tunnel,
            Self::Past(past) => &past.tunnel,
        }
    }
}

/// Sessions at once. Each has a screen and some queues: with all of them full, a few GiB.
const MOST: usize = 4096;

/// Sessions of one project at once: as many terminals as a large team has open.
const OF_PROJECT: usize = 512;

/// Sessions that ended, of one project: what happened before is in the recordings.
const PAST_OF_PROJECT: usize = 256;

/// The same, of all projects: some KiB each.
const PAST: usize = 8192;

/// Seconds after which a further session may be tried.
const RETRY: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sessions_that_ended_are_kept_of_a_project_and_of_all() {
        let mut kept = EndedSessions::default();
        let project = |number: usize| Arc::<str>::from(format!("prj_{number}"));
        for number in 0..=PAST_OF_PROJECT {
            let forgotten = kept.keep(&project(0), number);
            assert_eq!(forgotten.is_empty(), number < 256, "{number}");
        }
        assert_eq!(kept.of("prj_0").count(), 256);
        assert_eq!(kept.of("prj_0").next(), Some(&256), "the newest first");
        assert_eq!(kept.of("prj_0").last(), Some(&1), "the oldest is forgotten");

        for number in kept.order.len()..8192 {
            assert!(kept.keep(&project(number), number).is_empty());
        }
        assert_eq!(kept.keep(&project(1), 0), [1], "the oldest of all");
        for number in 0..8192 {
            kept.keep(&project(8192 + number), number);
        }
        assert_eq!(kept.of("prj_0").count(), 0);
        assert_eq!((kept.of.len(), kept.order.len()), (8192, 8192));
    }

    #[test]
    fn a_project_and_an_engine_have_so_many_sessions() {
        let sessions = Arc::<Sessions>::default();
        let mut held = Vec::new();
        for project in 0..MOST / OF_PROJECT {
            let project: Arc<str> = format!("prj_{project}").into();
            held.extend((0..OF_PROJECT).map(|_| sessions.reserve(&project).unwrap()));
            if held.len() < MOST {
                assert_eq!(sessions.reserve(&project).unwrap_err(), Full::Project);
            }
        }
        let other: Arc<str> = "prj_other".into();
        assert_eq!(sessions.reserve(&other).unwrap_err(), Full::Engine);
        held.pop();
        held.push(sessions.reserve(&other).unwrap());
        drop(held);
        assert!(sessions.table.lock().projects.is_empty());
    }
}
