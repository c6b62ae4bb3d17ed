//! Limits of concurrent reads of recordings, in all and per project.

use std::sync::Arc;
use std::time::Duration;

use daemon::counts::Counts;
use parking_lot::Mutex;

use super::read::ReadError;
use crate::directory::Project;

/// Limit of concurrent work of one kind.
#[derive(Debug)]
pub(super) struct Readers {
    most: usize,
    of_project: usize,
    counts: Mutex<ReaderCounts>,
}

#[derive(Debug, Default)]
struct ReaderCounts {
    all: usize,
    by_project: Counts<Box<str>>,
}

/// Permit for one reader. Dropping it releases the permit.
#[derive(Debug)]
pub(super) struct ReaderPermit {
    readers: Arc<Readers>,
    project: Box<str>,
}

impl Readers {
    /// Allows `most` readers in all, and `of_project` for a project if several read.
    pub(super) fn new(most: usize, of_project: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            of_project,
            counts: Mutex::default(),
        })
    }

    pub(super) fn permit(self: &Arc<Self>, project: &str) -> Result<ReaderPermit, ReadError> {
        let is_alone = project == Project::COMMUNITY;
        let most = if is_alone { self.most } else { self.of_project };
        let mut counts = self.counts.lock();
        if counts.all >= self.most || !counts.by_project.increment_below(project.into(), most) {
            return Err(ReadError::Busy);
        }
        counts.all += 1;
        Ok(ReaderPermit {
            readers: Arc::clone(self),
            project: project.into(),
        })
    }
}

impl Drop for ReaderPermit {
    fn drop(&mut self) {
        let mut counts = self.readers.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        counts.by_project.decrement(&self.project);
    }
}

/// Deadline for the client of an export: for one piece, and for all pieces by the number of bytes
/// that the client has read.
#[derive(Debug, Default)]
pub(super) struct ReadDeadline {
    waited: Duration,
    bytes: usize,
}

impl ReadDeadline {
    /// Remaining time for the next piece.
    pub(super) fn remaining(&self) -> Duration {
        let seconds = u64::try_from(self.bytes / MIN_READ_RATE).unwrap_or(u64::MAX);
        let all = READ_TIMEOUT + Duration::from_secs(seconds);
        all.saturating_sub(self.waited).min(READ_TIMEOUT)
    }

    /// Records that a piece was taken after `waited`.
    pub(super) fn taken(&mut self, bytes: usize, waited: Duration) {
        self.waited += waited;
        self.bytes += bytes;
    }
}

/// Time that an export waits for its client.
pub(super) const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Bytes per second that a client of an export must read on average: a bad mobile line achieves
/// this.
const MIN_READ_RATE: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_of_several_has_a_part_of_the_readers() {
        let readers = Readers::new(4, 2);
        let own: Vec<_> = (0..2).map(|_| readers.permit("prj_a").unwrap()).collect();
        assert!(matches!(readers.permit("prj_a"), Err(ReadError::Busy)));
        let others: Vec<_> = (0..2).map(|_| readers.permit("prj_b").unwrap()).collect();
        assert!(matches!(readers.permit("prj_c"), Err(ReadError::Busy)));
        drop(own);
        readers.permit("prj_c").unwrap();
        drop(others);
        assert!(readers.counts.lock().by_project.is_empty());
        let alone: Vec<_> = (0..4)
            .map(|_| readers.permit(Project::COMMUNITY).unwrap())
            .collect();
        assert!(readers.permit(Project::COMMUNITY).is_err());
        drop(alone);
    }

    /// A client that reads a piece just before each deadline does not keep a reader for ever.
    #[test]
    fn a_client_that_trickles_reaches_its_deadline() {
        const PIECE: usize = 64 * 1024;
        let (mut trickling, mut pieces) = (ReadDeadline::default(), 0);
        while trickling.remaining() > Duration::from_secs(30) {
            trickling.taken(PIECE, Duration::from_secs(30));
            pieces += 1;
            assert!(pieces < 10, "{trickling:?}");
        }
        let mut reading = ReadDeadline::default();
        for _ in 0..10_000 {
            reading.taken(PIECE, Duration::from_secs(2));
        }
        assert_eq!(reading.remaining(), READ_TIMEOUT);
    }
}
