//! All sessions of an engine: the running ones and the latest ended ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use api::webtty as shapes;
use parking_lot::Mutex;
use types::id::WebttySessionId;
use types::problem::Problem;
use types::tunnel::Tunnel;

use super::recordings::Recorder;
use super::running::RunningSession;

/// The sessions of all projects. All workers share them.
#[derive(Debug, Default)]
pub struct Sessions {
    pub(crate) recorder: Recorder,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Permits in use, of running sessions and of those that start.
    permits: usize,
    projects: HashMap<Arc<str>, ProjectSessions>,
    ended: EndedSessions<Arc<EndedSession>>,
}

#[derive(Debug, Default)]
struct ProjectSessions {
    permits: usize,
    running: BTreeMap<WebttySessionId, Arc<RunningSession>>,
}

/// The latest ended sessions, per project and in all.
#[derive(Debug)]
struct EndedSessions<T> {
    of: HashMap<Arc<str>, VecDeque<T>>,
    /// The projects of the sessions, oldest session first: the order in which sessions are dropped.
    order: VecDeque<Arc<str>>,
}

/// Summary of an ended session.
#[derive(Debug)]
pub(crate) struct EndedSession {
    pub(crate) session: shapes::Session,
    pub(crate) tunnel: Arc<Tunnel>,
    pub(crate) participants: Vec<shapes::Participant>,
    pub(crate) requests: Vec<shapes::ControlRequest>,
}

/// A running or ended session.
#[derive(Clone, Debug)]
pub(crate) enum SessionEntry {
    Running(Arc<RunningSession>),
    Ended(Arc<EndedSession>),
}

/// The limit of sessions is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionLimitError {
    #[error("the engine has reached its limit of terminal sessions: {MAX_SESSIONS}")]
    Engine,
    #[error("the project has reached its limit of terminal sessions: {MAX_PROJECT_SESSIONS}")]
    Project,
}

impl From<SessionLimitError> for Problem {
    fn from(full: SessionLimitError) -> Self {
        Self::unavailable()
            .with_detail(format!("The terminal cannot be opened now: {full}."))
            .with_retry_after(RETRY_AFTER_SECONDS)
    }
}

/// Permit for one session. Dropping it releases the permit.
#[derive(Debug)]
pub(crate) struct SessionPermit {
    sessions: Arc<Sessions>,
    project: Arc<str>,
}

impl Sessions {
    /// Creates an empty registry, whose sessions use this recorder.
    pub fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            table: Mutex::default(),
        }
    }

    /// The recorder of the sessions.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Takes a permit for a new session.
    ///
    /// # Errors
    /// [`SessionLimitError`].
    pub(crate) fn reserve(
        self: &Arc<Self>,
        project: &Arc<str>,
    ) -> Result<SessionPermit, SessionLimitError> {
        let mut table = self.table.lock();
        if table.permits >= MAX_SESSIONS {
            return Err(SessionLimitError::Engine);
        }
        let of = table.projects.entry(Arc::clone(project)).or_default();
        if of.permits >= MAX_PROJECT_SESSIONS {
            return Err(SessionLimitError::Project);
        }
        of.permits += 1;
        table.permits += 1;
        Ok(SessionPermit {
            sessions: Arc::clone(self),
            project: Arc::clone(project),
        })
    }

    /// Finds a project's session by its id.
    pub(crate) fn find(&self, project: &str, id: &str) -> Option<SessionEntry> {
        let table = self.table.lock();
        let of = table.projects.get(project);
        let running = of.and_then(|of| of.running.get(&id.parse().ok()?));
        if let Some(running) = running {
            return Some(SessionEntry::Running(Arc::clone(running)));
        }
        let mut past = table.ended.of_project(project);
        let past = past.find(|past| past.session.id == id);
        past.map(|past| SessionEntry::Ended(Arc::clone(past)))
    }

    /// The sessions of a project: the running ones, newest first, then the latest ended ones.
    pub(crate) fn project_sessions(&self, project: &str) -> Vec<SessionEntry> {
        let table = self.table.lock();
        let of = table.projects.get(project);
        let running = of.into_iter().flat_map(|of| of.running.values().rev());
        let running = running.cloned().map(SessionEntry::Running);
        let past = table
            .ended
            .of_project(project)
            .cloned()
            .map(SessionEntry::Ended);
        running.chain(past).collect()
    }
}

impl SessionPermit {
    /// Adds a session that started.
    pub(super) fn insert(&self, session: &Arc<RunningSession>) {
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        of.running
            .insert(session.attributes.id, Arc::clone(session));
    }

    /// Moves a session to the ended ones.
    pub(super) fn finish(self, session: &RunningSession) {
        let past = Arc::new(session.to_ended_session());
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        let removed = of.running.remove(&session.attributes.id);
        let dropped = table.ended.push(&self.project, past);
        drop(table);
        // Dropped after the lock is released.
        drop((removed, dropped));
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut table = self.sessions.table.lock();
        table.permits = table.permits.saturating_sub(1);
        if let Some(of) = table.projects.get_mut(&self.project) {
            of.permits = of.permits.saturating_sub(1);
            if of.is_empty() {
                table.projects.remove(&self.project);
            }
        }
    }
}

impl ProjectSessions {
    fn is_empty(&self) -> bool {
        self.permits == 0 && self.running.is_empty()
    }
}

impl<T> EndedSessions<T> {
    /// The sessions of a project, newest first.
    fn of_project(&self, project: &str) -> impl Iterator<Item = &T> {
        self.of.get(project).into_iter().flatten().rev()
    }

    /// Adds a session, and returns the sessions that are dropped for it.
    fn push(&mut self, project: &Arc<str>, one: T) -> Vec<T> {
        let mut dropped = Vec::new();
        let of = self.of.entry(Arc::clone(project)).or_default();
        of.push_back(one);
        if of.len() > MAX_ENDED_PER_PROJECT {
            dropped.extend(of.pop_front());
        }
        self.order.push_back(Arc::clone(project));
        if self.order.len() > MAX_ENDED
            && let Some(project) = self.order.pop_front()
            // A project that reached its own limit loses a newer session instead.
            && let Some(of) = self.of.get_mut(&project)
        {
            dropped.extend(of.pop_front());
            if of.is_empty() {
                self.of.remove(&project);
            }
        }
        dropped
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
            Self::Running(running) => running.to_resource(),
            Self::Ended(past) => past.session.clone(),
        }
    }

    /// Present and past participants.
    pub(crate) fn participants(&self) -> Vec<shapes::Participant> {
        match self {
            Self::Running(running) => running.participants(),
            Self::Ended(past) => past.participants.clone(),
        }
    }

    /// Control requests.
    pub(crate) fn requests(&self) -> Vec<shapes::ControlRequest> {
        match self {
            Self::Running(running) => running.requests(),
            Self::Ended(past) => past.requests.clone(),
        }
    }

    /// The session's tunnel.
    pub(crate) fn tunnel(&self) -> &Arc<Tunnel> {
        match self {
            Self::Running(running) => &running.attributes.tunnel,
            Self::Ended(past) => &past.tunnel,
        }
    }
}

/// Maximum of running sessions. Each has a screen and some queues: with all of them full, a few
/// GiB.
const MAX_SESSIONS: usize = 4096;

/// Maximum of running sessions in one project: as many terminals as a large team has open.
const MAX_PROJECT_SESSIONS: usize = 512;

/// Ended sessions that are kept per project. The recordings have older ones.
const MAX_ENDED_PER_PROJECT: usize = 256;

/// Ended sessions that are kept in all: some KiB each.
const MAX_ENDED: usize = 8192;

/// Seconds after which a client may retry.
const RETRY_AFTER_SECONDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sessions_are_kept_up_to_a_limit_per_project_and_in_all() {
        let mut kept = EndedSessions::default();
        let project = |number: usize| Arc::<str>::from(format!("prj_{number}"));
        for number in 0..=MAX_ENDED_PER_PROJECT {
            let dropped = kept.push(&project(0), number);
            assert_eq!(dropped.is_empty(), number < 256, "{number}");
        }
        assert_eq!(kept.of_project("prj_0").count(), 256);
        assert_eq!(
            kept.of_project("prj_0").next(),
            Some(&256),
            "the newest first"
        );
        assert_eq!(
            kept.of_project("prj_0").last(),
            Some(&1),
            "the oldest is dropped"
        );

        for number in kept.order.len()..8192 {
            assert!(kept.push(&project(number), number).is_empty());
        }
        assert_eq!(kept.push(&project(1), 0), [1], "the oldest of all");
        for number in 0..8192 {
            kept.push(&project(8192 + number), number);
        }
        assert_eq!(kept.of_project("prj_0").count(), 0);
        assert_eq!((kept.of.len(), kept.order.len()), (8192, 8192));
    }

    #[test]
    fn sessions_are_limited_per_project_and_per_engine() {
        let sessions = Arc::<Sessions>::default();
        let mut held = Vec::new();
        for project in 0..MAX_SESSIONS / MAX_PROJECT_SESSIONS {
            let project: Arc<str> = format!("prj_{project}").into();
            held.extend((0..MAX_PROJECT_SESSIONS).map(|_| sessions.reserve(&project).unwrap()));
            if held.len() < MAX_SESSIONS {
                assert_eq!(
                    sessions.reserve(&project).unwrap_err(),
                    SessionLimitError::Project
                );
            }
        }
        let other: Arc<str> = "prj_other".into();
        assert_eq!(
            sessions.reserve(&other).unwrap_err(),
            SessionLimitError::Engine
        );
        held.pop();
        held.push(sessions.reserve(&other).unwrap());
        drop(held);
        assert!(sessions.table.lock().projects.is_empty());
    }
}
