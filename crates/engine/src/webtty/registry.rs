//! All sessions of an engine: those that run, and the last ones that ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use api::webtty as shapes;
use parking_lot::Mutex;
use types::id::WebttySessionId;
use types::problem::Problem;
use types::tunnel::Tunnel;

use super::recordings::Recorder;
use super::running::Running;

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
    /// Whose session ended, oldest first, to forget in that order.
    ended: VecDeque<Arc<str>>,
}

#[derive(Debug, Default)]
struct OfProject {
    taken: usize,
    running: BTreeMap<WebttySessionId, Arc<Running>>,
    past: VecDeque<Arc<Past>>,
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
pub(crate) enum Known {
    Running(Arc<Running>),
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
pub(crate) struct Reserved {
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
    pub(crate) fn reserve(self: &Arc<Self>, project: &Arc<str>) -> Result<Reserved, Full> {
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
        Ok(Reserved {
            sessions: Arc::clone(self),
            project: Arc::clone(project),
        })
    }

    /// The session of a project with this id.
    pub(crate) fn find(&self, project: &str, id: &str) -> Option<Known> {
        let table = self.table.lock();
        let of = table.projects.get(project)?;
        let running = id.parse().ok().and_then(|id| of.running.get(&id));
        if let Some(running) = running {
            return Some(Known::Running(Arc::clone(running)));
        }
        let past = of.past.iter().rev().find(|past| past.session.id == id);
        past.map(|past| Known::Past(Arc::clone(past)))
    }

    /// The sessions of a project: those that run, the newest first, then those that ended last.
    pub(crate) fn of(&self, project: &str) -> Vec<Known> {
        let table = self.table.lock();
        let Some(of) = table.projects.get(project) else {
            return Vec::new();
        };
        let running = of.running.values().rev().cloned().map(Known::Running);
        let past = of.past.iter().rev().cloned().map(Known::Past);
        running.chain(past).collect()
    }
}

impl Reserved {
    /// The session is there.
    pub(super) fn begun(&self, session: &Arc<Running>) {
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        of.running.insert(session.facts.id, Arc::clone(session));
    }

    /// It has ended.
    pub(super) fn ended(self, session: &Running) {
        let past = Arc::new(session.past());
        let mut gone = Vec::new();
        let mut table = self.sessions.table.lock();
        let of = table.projects.entry(Arc::clone(&self.project)).or_default();
        gone.extend(of.running.remove(&session.facts.id));
        of.past.push_back(past);
        let mut forgotten = Vec::new();
        while of.past.len() > PAST_OF_PROJECT {
            forgotten.extend(of.past.pop_front());
        }
        table.ended.push_back(Arc::clone(&self.project));
        while table.ended.len() > PAST {
            let Some(project) = table.ended.pop_front() else {
                break;
            };
            // Where the project has fewer by its own limit, its oldest is a newer one: so be it.
            if let Some(of) = table.projects.get_mut(&project) {
                forgotten.extend(of.past.pop_front());
                if of.is_empty() {
                    table.projects.remove(&project);
                }
            }
        }
        drop(table);
        // Not under the lock.
        drop((gone, forgotten));
    }
}

impl Drop for Reserved {
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
        self.taken == 0 && self.running.is_empty() && self.past.is_empty()
    }
}

impl Known {
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
