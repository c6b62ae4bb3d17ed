//! Text search in the shown output of a project's sessions.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tty::recording::search::Searcher;

use types::tunnel::Tunnel;

use super::layout::StoredSession;
use super::read::ReadError;
use super::{Inner, Recorder};

/// Maximum of lines from one session: a session that shows the text all the time must not hide the
/// others.
const MAX_HITS_PER_SESSION: usize = 20;

/// Maximum of sessions that one search reads, newest first.
const MAX_SESSIONS: usize = 500;

/// Maximum of bytes that one search reads.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Maximum duration of one search.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Query and filters of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The text, ignoring case.
    pub query: String,
    /// Maximum of lines.
    pub limit: usize,
    /// Only in this session.
    pub session_id: Option<String>,
    /// Only in sessions on this registered server.
    pub server_id: Option<String>,
    /// Only in sessions that this account opened.
    pub user_id: Option<String>,
    /// Only in sessions older than this one, for the next page.
    pub before: Option<String>,
}

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchMatch {
    /// The session.
    pub session_id: String,
    /// The record that showed it.
    pub seq: u64,
    /// Time of the record.
    pub created_at: Timestamp,
    /// The line, without control sequences.
    pub line: String,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// Matching lines, newest session first.
    pub hits: Vec<SearchMatch>,
    /// The last session that was read, if there are more. The next page continues before it.
    pub next: Option<String>,
    /// True if a part of the recordings could not be read.
    pub unreadable: bool,
}

impl Recorder {
    /// Searches those recordings of a project whose tunnel the caller `sees`.
    ///
    /// # Errors
    /// See [`ReadError`]. Without a store the result is empty.
    pub async fn search(
        &self,
        project_id: &str,
        search: Search,
        sees: impl Fn(&Tunnel) -> bool,
    ) -> Result<SearchResult, ReadError> {
        let Some(inner) = &self.inner else {
            return Ok(SearchResult::default());
        };
        let permit = inner.readers.permit(project_id)?;
        let wanted = |stored: &StoredSession| {
            let session = &stored.session;
            let is = |wanted: &Option<String>, has: Option<&str>| {
                wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
            };
            !stored.sealed
                && sees(&stored.tunnel)
                && stored.deleted.is_none()
                && is(&search.session_id, Some(&session.id))
                && is(&search.server_id, session.server_id.as_deref())
                && is(&search.user_id, session.initiator_user_id.as_deref())
                && search
                    .before
                    .as_ref()
                    .is_none_or(|before| session.id < *before)
        };
        // One session more than the limit, to detect if there is a next page.
        let sessions = inner.newest(project_id, MAX_SESSIONS + 1, wanted).await?;
        let (at, project) = (Arc::clone(inner), project_id.to_owned());
        let searching = inner.tasks.spawn_blocking_on(
            move || {
                // The time limit starts here, not while the search waits for a thread.
                let answer = Work::new(at, project, search).run(&sessions);
                drop(permit);
                answer
            },
            &inner.runtime,
        );
        searching.await.map_err(|_| ReadError::Busy)
    }
}

pub(super) struct Work {
    inner: Arc<Inner>,
    handle: Handle,
    project: String,
    search: Search,
    until: Instant,
    pub(super) bytes: usize,
}

/// Outcome for one session.
enum SearchOutcome {
    ToTheEnd,
    /// A limit of the search is reached.
    Enough,
    Unreadable,
}

impl Work {
    pub(super) fn new(inner: Arc<Inner>, project: String, search: Search) -> Self {
        Self {
            handle: inner.runtime.clone(),
            inner,
            project,
            search,
            until: Instant::now() + MAX_TIME,
            bytes: 0,
        }
    }

    pub(super) fn run(mut self, sessions: &[Arc<StoredSession>]) -> SearchResult {
        let mut answer = SearchResult::default();
        let mut last = None;
        for (number, stored) in sessions.iter().enumerate() {
            let id = &stored.session.id;
            if number >= MAX_SESSIONS || self.is_enough(answer.hits.len()) {
                answer.next = last;
                return answer;
            }
            match self.search_session(id, &mut answer.hits) {
                SearchOutcome::ToTheEnd => {}
                SearchOutcome::Unreadable => answer.unreadable = true,
                SearchOutcome::Enough => {
                    // The next page starts after this session, even if it was not read to its end.
                    // Otherwise a session that takes too long would never be passed.
                    answer.next = Some(id.clone());
                    return answer;
                }
            }
            last = Some(id.clone());
        }
        answer
    }

    fn is_enough(&self, hits: usize) -> bool {
        hits >= self.search.limit || Instant::now() >= self.until || self.bytes >= MAX_BYTES
    }

    fn search_session(&mut self, id: &str, hits: &mut Vec<SearchMatch>) -> SearchOutcome {
        let Some(mut searcher) = Searcher::new(&self.search.query) else {
            return SearchOutcome::Unreadable;
        };
        let inner = Arc::clone(&self.inner);
        let Ok((_, mut reader)) = self.handle.block_on(inner.open(&self.project, id, 1)) else {
            return SearchOutcome::Unreadable;
        };
        let mut of_session = 0;
        loop {
            if self.is_enough(hits.len()) {
                return SearchOutcome::Enough;
            }
            let part = match self.handle.block_on(reader.next()) {
                Ok(Some(part)) => part,
                Ok(None) => return SearchOutcome::ToTheEnd,
                Err(_) => return SearchOutcome::Unreadable,
            };
            for record in part {
                self.bytes += record.payload.len();
                let room = self.search.limit.saturating_sub(hits.len());
                let room = room.min(MAX_HITS_PER_SESSION - of_session);
                if room == 0 {
                    break;
                }
                let found = searcher.push(&record, room);
                of_session += found.len();
                hits.extend(found.into_iter().map(|found| SearchMatch {
                    session_id: id.to_owned(),
                    seq: found.seq,
                    created_at: found.created_at,
                    line: found.line,
                }));
                // A large screen that is full of text takes a while.
                if Instant::now() >= self.until {
                    return SearchOutcome::Enough;
                }
            }
            if of_session >= MAX_HITS_PER_SESSION {
                return SearchOutcome::ToTheEnd;
            }
        }
    }
}
