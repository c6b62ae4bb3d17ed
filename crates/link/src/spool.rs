//! Batches on disk, until the platform has received them.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use api::link::MAX_REPORT_BYTES;
use parking_lot::Mutex;
use tracing::warn;

use crate::folder::Folder;

/// A queue of files, oldest first. Each is one complete report: a later process sends it unchanged,
/// with its original number and reporter.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: Folder,
    limits: SpoolLimits,
    index: Mutex<Index>,
}

/// The files on disk.
#[derive(Debug, Default)]
struct Index {
    batches: VecDeque<Batch>,
    bytes: u64,
    records: u64,
}

/// Capacity of the spool. Above it, the oldest batches are evicted.
#[derive(Clone, Copy, Debug)]
pub struct SpoolLimits {
    /// Size of all batches in bytes.
    pub bytes: u64,
    /// Number of files.
    pub batches: usize,
}

impl Default for SpoolLimits {
    /// Enough for hours of a busy engine, and small compared to any disk.
    fn default() -> Self {
        Self {
            bytes: 64 * 1024 * 1024,
            batches: 10_000,
        }
    }
}

/// Kind of records in a batch. Any client can cause visits, so visits evict only other visits. Usage
/// and tunnel events have a reserved share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Visits,
    Other,
}

/// One file: `<generation>-<sequence>-<records>`, with the suffix `-rest` if it contains no visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Batch {
    /// Counts the processes that used the folder. Each is a separate reporter, so no number is used
    /// twice, even after a crash.
    pub(crate) generation: u64,
    /// Number of the batch, from 1.
    pub(crate) sequence: u64,
    /// Number of records.
    pub(crate) records: u64,
    kind: Kind,
    size: u64,
}

const OTHER_SUFFIX: &str = "-rest";

/// The reserved share of batches without visits, as a fraction of the spool.
const OTHER_SHARE: u64 = 4;

impl Batch {
    fn name(&self) -> String {
        let Self {
            generation,
            sequence,
            records,
            kind,
            ..
        } = self;
        let mark = match kind {
            Kind::Visits => "",
            Kind::Other => OTHER_SUFFIX,
        };
        format!("{generation:08}-{sequence:012}-{records}{mark}.json")
    }

    fn parse(name: &str, size: u64) -> Option<Self> {
        let stem = name.strip_suffix(".json")?;
        let (stem, kind) = match stem.strip_suffix(OTHER_SUFFIX) {
            Some(stem) => (stem, Kind::Other),
            None => (stem, Kind::Visits),
        };
        let mut parts = stem.splitn(3, '-');
        let mut number = || parts.next()?.parse().ok();
        let batch = Self {
            generation: number()?,
            sequence: number()?,
            records: number()?,
            kind,
            size,
        };
        (batch.name() == name).then_some(batch)
    }
}

impl Spool {
    /// Opens a folder, including the batches that an earlier process left in it.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub(crate) fn open(path: &Path, limits: SpoolLimits) -> io::Result<Self> {
        let folder = Folder::open(path)?;
        let mut waiting = Vec::new();
        for (name, size) in folder.list()? {
            if let Some(batch) = Batch::parse(&name, size) {
                waiting.push(batch);
            } else {
                warn!(name, "a file that is not a report is ignored");
            }
        }
        waiting.sort_unstable();
        let index = Index {
            bytes: waiting.iter().map(|batch| batch.size).sum(),
            records: waiting.iter().map(|batch| batch.records).sum(),
            batches: waiting.into(),
        };
        Ok(Self {
            folder,
            limits,
            index: Mutex::new(index),
        })
    }

    /// The generation for this process: higher than that of every file.
    pub(crate) fn next_generation(&self) -> u64 {
        let index = self.index.lock();
        index.batches.back().map_or(1, |last| last.generation + 1)
    }

    /// Appends a batch, which is durable when this returns. Returns the number of records that were
    /// evicted. Blocks.
    ///
    /// # Errors
    /// Those of the file system; the batch was not added in this case.
    pub(crate) fn append(
        &self,
        (generation, sequence): (u64, u64),
        (records, kind): (u64, Kind),
        report: &[u8],
    ) -> io::Result<u64> {
        let batch = Batch {
            generation,
            sequence,
            records,
            kind,
            size: report.len() as u64,
        };
        self.folder.write(&batch.name(), report)?;
        let mut evicted = Vec::new();
        {
            let mut index = self.index.lock();
            index.bytes += batch.size;
            index.records += batch.records;
            index.batches.push_back(batch);
            while index.batches.len() > self.limits.batches
                || (index.bytes > self.limits.bytes && index.batches.len() > 1)
            {
                evicted.extend(index.evict(self.limits));
            }
        }
        for batch in &evicted {
            self.folder.remove(&batch.name())?;
        }
        Ok(evicted.iter().map(|batch| batch.records).sum())
    }

    /// The oldest batch.
    pub(crate) fn oldest(&self) -> Option<Batch> {
        self.index.lock().batches.front().copied()
    }

    /// The report as it was added; `None` if it was evicted meanwhile. Blocks.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn read(&self, batch: &Batch) -> io::Result<Option<Vec<u8>>> {
        self.folder.read(&batch.name(), MAX_REPORT_BYTES)
    }

    /// Removes a finished batch. Blocks.
    ///
    /// # Errors
    /// Those of the file system. A later process may send the batch again, which the platform then
    /// recognises.
    pub(crate) fn remove(&self, batch: &Batch) -> io::Result<()> {
        {
            let mut index = self.index.lock();
            if index.batches.front() == Some(batch) {
                index.pop();
            }
        }
        self.folder.remove(&batch.name())
    }

    /// Number of records on disk.
    pub(crate) fn records(&self) -> u64 {
        self.index.lock().records
    }
}

impl Index {
    fn pop(&mut self) -> Option<Batch> {
        self.remove_at(0)
    }

    fn remove_at(&mut self, at: usize) -> Option<Batch> {
        let batch = self.batches.remove(at)?;
        self.bytes -= batch.size;
        self.records -= batch.records;
        Some(batch)
    }

    /// Evicts the oldest batch of the kind that exceeds its share, but never the newest of all.
    fn evict(&mut self, limits: SpoolLimits) -> Option<Batch> {
        let rest = self
            .batches
            .iter()
            .filter(|batch| batch.kind == Kind::Other);
        let (count, bytes) = rest.fold((0, 0), |(count, bytes), batch| {
            (count + 1, bytes + batch.size)
        });
        let exceeds =
            count * OTHER_SHARE > limits.batches as u64 || bytes * OTHER_SHARE > limits.bytes;
        let victims = if exceeds { Kind::Other } else { Kind::Visits };
        let newest = self.batches.len().checked_sub(1)?;
        let mut older = self.batches.iter().take(newest);
        let at = older.position(|batch| batch.kind == victims);
        self.remove_at(at.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences(spool: &Spool) -> Vec<(u64, u64)> {
        let index = spool.index.lock();
        let waiting = index.batches.iter();
        waiting
            .map(|batch| (batch.generation, batch.sequence))
            .collect()
    }

    #[test]
    fn batches_are_kept_in_order_for_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path(), SpoolLimits::default()).unwrap();
        assert_eq!(spool.next_generation(), 1);
        for sequence in 1..=11 {
            spool
                .append((1, sequence), (2, Kind::Visits), b"{}")
                .unwrap();
        }
        let first = spool.oldest().unwrap();
        assert_eq!(spool.read(&first).unwrap().unwrap(), b"{}");
        spool.remove(&first).unwrap();
        drop(spool);
        std::fs::write(folder.path().join("note.txt"), "mine").unwrap();

        let spool = Spool::open(folder.path(), SpoolLimits::default()).unwrap();
        assert_eq!(
            sequences(&spool),
            (2..=11).map(|n| (1, n)).collect::<Vec<_>>()
        );
        assert_eq!((spool.records(), spool.next_generation()), (20, 2));
        spool.append((2, 1), (1, Kind::Visits), b"{}").unwrap();
        assert_eq!(sequences(&spool).last(), Some(&(2, 1)));
        assert!(folder.path().join("note.txt").exists());
    }

    #[test]
    fn the_oldest_batches_are_evicted_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let limits = SpoolLimits {
            bytes: 10,
            batches: 3,
        };
        let spool = Spool::open(folder.path(), limits).unwrap();
        for sequence in 1..=3 {
            assert_eq!(
                spool
                    .append((1, sequence), (5, Kind::Visits), b"1")
                    .unwrap(),
                0
            );
        }
        assert_eq!(
            spool.append((1, 4), (5, Kind::Visits), b"1").unwrap(),
            5,
            "by their number"
        );
        let evicted = spool
            .append((1, 5), (5, Kind::Visits), b"123456789")
            .unwrap();
        assert_eq!(evicted, 10, "by their size");
        assert_eq!(sequences(&spool), [(1, 4), (1, 5)]);
        assert_eq!(
            spool
                .append((1, 6), (1, Kind::Visits), &[b'1'; 20])
                .unwrap(),
            10
        );
        assert_eq!(sequences(&spool), [(1, 6)], "the newest stays");
        assert_eq!(spool.folder.list().unwrap().len(), 1);
    }

    #[test]
    fn visits_do_not_use_the_share_of_other_records() {
        let folder = tempfile::tempdir().unwrap();
        let limits = SpoolLimits {
            bytes: 1000,
            batches: 8,
        };
        let spool = Spool::open(folder.path(), limits).unwrap();
        let put = |sequence, kind| spool.append((1, sequence), (1, kind), b"1").unwrap();
        for sequence in [1, 2] {
            put(sequence, Kind::Other);
        }
        for sequence in 3..=20 {
            put(sequence, Kind::Visits);
        }
        let kept = [1, 2, 15, 16, 17, 18, 19, 20].map(|sequence| (1, sequence));
        assert_eq!(sequences(&spool), kept);
        // Other records do not exceed their share either, and a later process recognises the kinds.
        drop(spool);
        let spool = Spool::open(folder.path(), limits).unwrap();
        for sequence in 1..=5 {
            spool.append((2, sequence), (1, Kind::Other), b"1").unwrap();
        }
        let kept = [
            (1, 15),
            (1, 16),
            (1, 17),
            (1, 18),
            (1, 19),
            (1, 20),
            (2, 4),
            (2, 5),
        ];
        assert_eq!(sequences(&spool), kept);
    }

    #[test]
    fn a_batch_can_be_evicted_while_it_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let limits = SpoolLimits {
            bytes: 100,
            batches: 1,
        };
        let spool = Spool::open(folder.path(), limits).unwrap();
        spool.append((1, 1), (1, Kind::Visits), b"a").unwrap();
        let first = spool.oldest().unwrap();
        spool.append((1, 2), (1, Kind::Visits), b"b").unwrap();
        assert_eq!(spool.read(&first).unwrap(), None);
        spool.remove(&first).unwrap();
        assert_eq!(sequences(&spool), [(1, 2)]);
    }
}
