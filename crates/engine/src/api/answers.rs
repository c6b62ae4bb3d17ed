//! Memory of responses: lists and first events of streams, which are as large as the live state.
//!
//! Such a response is written in pieces, and each piece is charged to a budget before it is stored
//! ([`AnswerBudget`]). All responses together are bounded, and so is the share of one project; a
//! response that does not fit is refused with 503. A client has to read its response at
//! [`SLOWEST_READER`] on average; after that time the rest of the response is dropped.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use types::problem::Problem;

use crate::config::{Limits, QuotaPercent};
use crate::directory::Project;

/// The bytes of all buffered responses of the Engine API, of all workers.
#[derive(Debug)]
pub struct AnswerBudget {
    most: usize,
    share: QuotaPercent,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    bytes: usize,
    /// Bytes of each project that has any.
    of_projects: HashMap<Arc<str>, usize>,
}

/// The bytes of one response, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<AnswerBudget>,
    project: Arc<str>,
    most: usize,
    bytes: usize,
}

/// The budget does not have so many bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BudgetError {
    #[error("the engine has reached its memory limit for responses that clients have not read yet")]
    Engine,
    #[error(
        "the project has reached its memory limit for responses; limit the result with `params`"
    )]
    Project,
}

impl AnswerBudget {
    /// Half of the bytes that streams may buffer for their readers: such responses are a small part
    /// of an engine's work.
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Self::with(limits.max_buffered_bytes / 2, limits.project_share)
    }

    /// A budget of `most` bytes, of which one of several projects may have a share.
    pub fn with(most: usize, share: QuotaPercent) -> Arc<Self> {
        Arc::new(Self {
            most,
            share,
            usage: Mutex::default(),
        })
    }

    /// Charges the first piece of a response.
    fn charge(self: &Arc<Self>, project: &Project) -> Result<Charge, BudgetError> {
        let most = if project.is_alone() {
            self.most
        } else {
            self.share.of(self.most)
        };
        let mut charge = Charge {
            budget: Arc::clone(self),
            project: Arc::clone(&project.id),
            most,
            bytes: 0,
        };
        charge.grow(PIECE)?;
        Ok(charge)
    }
}

impl Charge {
    fn grow(&mut self, bytes: usize) -> Result<(), BudgetError> {
        let mut usage = self.budget.usage.lock();
        if usage.bytes.saturating_add(bytes) > self.budget.most {
            return Err(BudgetError::Engine);
        }
        let of_project = usage.of_projects.get(&self.project).copied();
        let then = of_project.unwrap_or_default().saturating_add(bytes);
        if then > self.most {
            return Err(BudgetError::Project);
        }
        usage.of_projects.insert(Arc::clone(&self.project), then);
        usage.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    fn shrink_to(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        self.bytes -= freed;
        let mut usage = self.budget.usage.lock();
        usage.bytes = usage.bytes.saturating_sub(freed);
        let Some(of_project) = usage.of_projects.get_mut(&self.project) else {
            return;
        };
        *of_project = of_project.saturating_sub(freed);
        if *of_project == 0 {
            usage.of_projects.remove(&self.project);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl From<BudgetError> for Problem {
    fn from(over: BudgetError) -> Self {
        Self::unavailable()
            .with_detail(over.to_string())
            .with_retry_after(RETRY)
    }
}

/// Collects the bytes of one response, piece by piece.
#[derive(Debug)]
pub(super) struct AnswerWriter {
    pieces: VecDeque<Bytes>,
    piece: Vec<u8>,
    bytes: usize,
    charge: Charge,
    refused: Option<BudgetError>,
}

/// A complete response body.
#[derive(Debug)]
pub(super) struct BufferedBody {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    charge: Charge,
}

impl AnswerWriter {
    /// # Errors
    /// [`BudgetError`] before anything is written: a refused response costs nothing.
    pub(super) fn new(budget: &Arc<AnswerBudget>, project: &Project) -> Result<Self, BudgetError> {
        Ok(Self {
            pieces: VecDeque::new(),
            piece: Vec::new(),
            bytes: 0,
            charge: budget.charge(project)?,
            refused: None,
        })
    }

    /// Writes the body with `write`.
    ///
    /// # Errors
    /// [`BudgetError`] as soon as it exceeds the budget.
    pub(super) fn fill(
        mut self,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<BufferedBody, BudgetError> {
        match (write(&mut self), self.refused) {
            (Ok(()), None) => {}
            // Nothing else fails: the values can always be serialized, because their keys are
            // strings.
            (_, over) => return Err(over.unwrap_or(BudgetError::Engine)),
        }
        if !self.piece.is_empty() {
            self.pieces.push_back(self.piece.into());
        }
        self.charge.shrink_to(self.bytes);
        Ok(BufferedBody {
            pieces: self.pieces,
            bytes: self.bytes,
            charge: self.charge,
        })
    }
}

impl io::Write for AnswerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE - self.piece.len());
        let (now, _) = bytes.split_at(count);
        self.piece.extend_from_slice(now);
        self.bytes += count;
        if self.piece.len() == PIECE {
            if let Err(over) = self.charge.grow(PIECE) {
                self.refused = Some(over);
                return Err(io::Error::other(over));
            }
            self.pieces
                .push_back(std::mem::take(&mut self.piece).into());
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BufferedBody {
    /// The body in one buffer, and its charge. A small body is not charged: its connection buffers
    /// as much.
    ///
    /// # Errors
    /// [`BudgetError`]: the copy is charged as well.
    pub(super) fn into_bytes(mut self) -> Result<(Bytes, Option<Charge>), BudgetError> {
        if self.pieces.len() < 2 {
            return Ok((self.pieces.pop_front().unwrap_or_default(), None));
        }
        let bytes = self.bytes;
        self.charge.grow(bytes)?;
        let mut whole = Vec::with_capacity(bytes);
        for piece in self.pieces {
            whole.extend_from_slice(&piece);
        }
        self.charge.shrink_to(bytes);
        Ok((whole.into(), Some(self.charge)))
    }

    /// The body for reading piece by piece, within the time for its size. `tasks` owns the timer.
    pub(super) fn with_deadline(self, tasks: &TaskTracker) -> TimedAnswer {
        let remaining = self.bytes;
        let has_timer = self.pieces.len() > 1;
        let rest = Arc::new(Mutex::new(Some(self)));
        let done = has_timer.then(|| {
            let (done, over) = oneshot::channel::<()>();
            let timed = Arc::clone(&rest);
            tasks.spawn(async move {
                if timeout(time_for(remaining), over).await.is_err() {
                    drop(timed.lock().take());
                }
            });
            done
        });
        TimedAnswer {
            rest,
            remaining,
            _done: done,
        }
    }

    /// A JSON response. It must not be cached, because the live state changes.
    pub(super) fn json(self, tasks: &TaskTracker) -> Response {
        let headers = [
            (CACHE_CONTROL, "no-store"),
            (CONTENT_TYPE, "application/json"),
        ];
        (headers, Body::new(self.with_deadline(tasks))).into_response()
    }
}

/// A response body that its client is reading.
#[derive(Debug)]
pub(super) struct TimedAnswer {
    /// `None` after its time is over.
    rest: Arc<Mutex<Option<BufferedBody>>>,
    remaining: usize,
    /// Stops the timer when it is dropped.
    _done: Option<oneshot::Sender<()>>,
}

/// The client has not read its answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client did not read the response in time")]
pub(super) struct ReadTimeoutError;

impl TimedAnswer {
    /// The next piece; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Result<Bytes, ReadTimeoutError>> {
        if self.remaining == 0 {
            return None;
        }
        let piece = match &mut *self.rest.lock() {
            Some(answer) => answer.pieces.pop_front()?,
            None => return Some(Err(ReadTimeoutError)),
        };
        self.remaining = self.remaining.saturating_sub(piece.len());
        Some(Ok(piece))
    }
}

impl http_body::Body for TimedAnswer {
    type Data = Bytes;
    type Error = ReadTimeoutError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReadTimeoutError>>> {
        Poll::Ready(self.next().map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.remaining).unwrap_or(u64::MAX))
    }
}

/// Time that a client may take to read so many bytes.
fn time_for(bytes: usize) -> Duration {
    let seconds = bytes.div_ceil(SLOWEST_READER);
    WAIT_LIMIT + Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))
}

/// Bytes that are charged, allocated and sent together: a few writes of a TLS connection.
const PIECE: usize = 64 * 1024;

/// Minimum average rate of a client, in bytes per second: even a bad mobile line reaches it.
const SLOWEST_READER: usize = 64 * 1024;

/// Additional time for any response: a line that breaks and recovers.
const WAIT_LIMIT: Duration = Duration::from_secs(15);

/// Seconds after which a client may try again: most responses are read within one.
const RETRY: u32 = 5;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn answer(budget: &Arc<AnswerBudget>, bytes: usize) -> Result<BufferedBody, BudgetError> {
        let writer = AnswerWriter::new(budget, &Project::community())?;
        writer.fill(|out| out.write_all(&vec![b'x'; bytes]))
    }

    fn held(budget: &AnswerBudget) -> usize {
        budget.usage.lock().bytes
    }

    #[test]
    fn all_responses_together_stay_within_the_budget() {
        let budget = AnswerBudget::with(10 * PIECE, QuotaPercent(100));
        let first = answer(&budget, 6 * PIECE + 1).unwrap();
        assert_eq!(held(&budget), 6 * PIECE + 1);
        assert_eq!(answer(&budget, 4 * PIECE).unwrap_err(), BudgetError::Engine);
        assert_eq!(held(&budget), 6 * PIECE + 1, "a refusal charges nothing");
        let second = answer(&budget, PIECE).unwrap();
        drop(first);
        drop(second);
        assert_eq!(held(&budget), 0);
        assert!(budget.usage.lock().of_projects.is_empty());
        assert_eq!(
            answer(&budget, 11 * PIECE).unwrap_err(),
            BudgetError::Engine
        );
    }

    #[test]
    fn one_of_several_projects_has_a_share() {
        let budget = AnswerBudget::with(8 * PIECE, QuotaPercent(25));
        let mut charge = budget.charge(&Project::community()).unwrap();
        charge.most = QuotaPercent(25).of(8 * PIECE);
        charge.grow(PIECE).unwrap();
        assert_eq!(charge.grow(1), Err(BudgetError::Project));
    }

    #[test]
    fn the_copy_of_a_large_response_is_charged() {
        let budget = AnswerBudget::with(10 * PIECE, QuotaPercent(100));
        let (whole, charge) = answer(&budget, 4 * PIECE).unwrap().into_bytes().unwrap();
        assert_eq!((whole.len(), held(&budget)), (4 * PIECE, 4 * PIECE));
        let again = answer(&budget, 4 * PIECE).unwrap();
        assert_eq!(again.into_bytes().unwrap_err(), BudgetError::Engine);
        drop(charge);
        let (whole, charge) = answer(&budget, 100).unwrap().into_bytes().unwrap();
        assert_eq!((whole.len(), held(&budget)), (100, 0));
        assert!(charge.is_none());
    }

    /// A client that reads nothing, or very little, occupies a response for a bounded time.
    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_not_read_in_time_is_dropped() {
        let budget = AnswerBudget::with(64 * PIECE, QuotaPercent(100));
        let tasks = TaskTracker::new();
        let mut slow = answer(&budget, 32 * PIECE).unwrap().with_deadline(&tasks);
        assert_eq!(slow.next().unwrap().unwrap().len(), PIECE);
        tokio::time::sleep(WAIT_LIMIT + Duration::from_secs(31)).await;
        assert_eq!(slow.next().unwrap().unwrap().len(), PIECE);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(held(&budget), 0);
        assert_eq!(slow.next(), Some(Err(ReadTimeoutError)));
        // A response that was read stops its timer.
        let mut read = answer(&budget, 3 * PIECE).unwrap().with_deadline(&tasks);
        let mut bytes = 0;
        while let Some(piece) = read.next() {
            bytes += piece.unwrap().len();
        }
        assert_eq!(bytes, 3 * PIECE);
        drop(read);
        tasks.close();
        tasks.wait().await;
        assert_eq!(held(&budget), 0);
    }
}
