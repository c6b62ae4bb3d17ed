//! Directories of processes that overlap.
//!
//! A process that replaces a running one cannot use its directories: each has one owner, which
//! writes to it until it has drained. It therefore uses another slot of the data directory, and
//! starts with a copy of the stored state. When the old process has ended, the new one deletes the
//! state that it left, because later revocations are missing there, and sends its reports.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::endpoint::Endpoint;
use crate::follow::Link;
use crate::reports::{Records, Reporter, reports};
use crate::spool::SpoolLimits;
use crate::storage::STATE;
use crate::times::LinkTimes;

/// Maximum number of processes that use a data directory at the same time: one serves, and the
/// others drain.
const SLOTS: usize = 4;

/// Interval between two attempts to clear the slots of other processes.
const INTERVAL: Duration = Duration::from_secs(5);

/// The directories of one process.
pub(crate) struct OpenSlot {
    pub(crate) index: usize,
    pub(crate) link: Link,
    pub(crate) records: Records,
    pub(crate) reporter: Reporter,
}

/// The directory with a name in a slot. The first slot has the names of earlier versions.
fn folder(data_dir: &Path, name: &str, index: usize) -> PathBuf {
    match index {
        0 => data_dir.join(name),
        later => data_dir.join(format!("{name}.{}", later + 1)),
    }
}

fn link_folder(data_dir: &Path, index: usize) -> PathBuf {
    folder(data_dir, "link", index)
}

fn reports_folder(data_dir: &Path, index: usize) -> PathBuf {
    folder(data_dir, "reports", index)
}

/// Opens the slot with the newest state. Only a successor may use the data directory beside another
/// process; it uses a free slot, with a copy of that state. Blocks.
///
/// # Errors
/// No slot can be used, or another process uses the data directory.
pub(crate) fn open(
    endpoint: &Endpoint,
    data_dir: &Path,
    is_successor: bool,
) -> io::Result<OpenSlot> {
    let newest = newest_state(data_dir);
    let mut in_use = io::Error::from(io::ErrorKind::WouldBlock);
    for index in newest.into_iter().chain(0..SLOTS) {
        match open_slot(endpoint, data_dir, index) {
            Ok(slot) => {
                if let Some(newest) = newest.filter(|newest| *newest != index) {
                    slot.link.adopt_state(&link_folder(data_dir, newest))?;
                }
                return Ok(slot);
            }
            Err(error) if is_successor && error.kind() == io::ErrorKind::WouldBlock => {
                in_use = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(in_use)
}

fn open_slot(endpoint: &Endpoint, data_dir: &Path, index: usize) -> io::Result<OpenSlot> {
    let folder = link_folder(data_dir, index);
    let link = Link::open(endpoint.clone(), &folder, LinkTimes::default())?;
    let (folder, limits) = (reports_folder(data_dir, index), SpoolLimits::default());
    let (records, reporter) = reports(endpoint.clone(), &folder, limits, LinkTimes::default())?;
    Ok(OpenSlot {
        index,
        link,
        records,
        reporter,
    })
}

/// The slot whose state was saved last.
fn newest_state(data_dir: &Path) -> Option<usize> {
    let saved = (0..SLOTS).filter_map(|index| {
        let file = fs::metadata(link_folder(data_dir, index).join(STATE)).ok()?;
        Some((file.modified().ok()?, index))
    });
    saved.max().map(|(_, index)| index)
}

/// Clears the slots of other processes when these have ended, until `stop`: deletes their states,
/// and sends their reports. They may be processes that this one replaced, or that failed to replace
/// it.
pub(crate) async fn clear_others(
    endpoint: Endpoint,
    data_dir: PathBuf,
    own: usize,
    stop: CancellationToken,
) {
    loop {
        let round = async {
            for index in (0..SLOTS).filter(|index| *index != own) {
                clear(&endpoint, &data_dir, index).await;
            }
            sleep(INTERVAL).await;
        };
        // A report that is sent twice is recognised by its number.
        if stop.run_until_cancelled(round).await.is_none() {
            return;
        }
    }
}

/// Clears a slot, unless it is in use. Reports that cannot be sent now remain.
async fn clear(endpoint: &Endpoint, data_dir: &Path, index: usize) {
    let (endpoint, data_dir) = (endpoint.clone(), data_dir.to_owned());
    let opening = tokio::task::spawn_blocking(move || {
        if !has_files(&data_dir, index) {
            return Ok(None);
        }
        let slot = open_slot(&endpoint, &data_dir, index)?;
        slot.link.forget_state()?;
        Ok::<_, io::Error>(Some(slot.reporter))
    });
    if let Ok(Ok(Some(reporter))) = opening.await {
        let last = CancellationToken::new();
        last.cancel();
        reporter.run(last).await;
    }
}

/// Returns true if a slot has a state or reports.
fn has_files(data_dir: &Path, index: usize) -> bool {
    let is_report = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "json"))
    };
    let reports = fs::read_dir(reports_folder(data_dir, index));
    link_folder(data_dir, index).join(STATE).exists()
        || reports.is_ok_and(|mut entries| entries.any(is_report))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(directory: &Path) -> Endpoint {
        let token = directory.join("token");
        fs::write(&token, "an enrolment secret").unwrap();
        Endpoint::new("http://127.0.0.1:1", token, None).unwrap()
    }

    #[test]
    fn only_a_successor_uses_a_directory_beside_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, data) = (endpoint(directory.path()), directory.path().join("data"));
        let first = open(&endpoint, &data, false).unwrap();
        let refused = open(&endpoint, &data, false).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);

        fs::write(data.join("link/state"), "a state").unwrap();
        let second = open(&endpoint, &data, true).unwrap();
        assert_eq!((first.index, second.index), (0, 1));
        assert_eq!(fs::read(data.join("link.2/state")).unwrap(), b"a state");
        let third = open(&endpoint, &data, true).unwrap();
        assert_eq!(third.index, 2);
    }

    #[test]
    fn an_older_state_does_not_replace_one_that_was_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, data) = (endpoint(directory.path()), directory.path().join("data"));
        let slot = open_slot(&endpoint, &data, 1).unwrap();
        fs::write(data.join("link.2/state"), "an older state").unwrap();
        // The other process deletes its file when that lacks a revocation.
        slot.link.adopt_state(&link_folder(&data, 0)).unwrap();
        assert!(!data.join("link.2/state").exists());
    }

    #[tokio::test]
    async fn the_state_of_an_ended_process_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, data) = (endpoint(directory.path()), directory.path().join("data"));
        let first = open(&endpoint, &data, false).unwrap();
        fs::write(data.join("link/state"), "a state").unwrap();
        let second = open(&endpoint, &data, true).unwrap();
        clear(&endpoint, &data, 0).await;
        assert!(data.join("link/state").exists(), "it is in use");
        drop(first);
        clear(&endpoint, &data, 0).await;
        assert!(!data.join("link/state").exists());
        // The next process continues in the slot with the state.
        drop(second);
        assert_eq!(open(&endpoint, &data, false).unwrap().index, 1);
    }
}
