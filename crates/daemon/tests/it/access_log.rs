//! The access log's queue and thread over real files.

use std::fs;
use std::path::Path;

use daemon::access_log::{AccessLog, MAX_LINE_BYTES};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn lines_are_appended_in_order() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("access.log");
    fs::write(&path, "before\n").unwrap();
    let (log, thread) = AccessLog::open(&path).unwrap();
    let expected = (0..1000)
        .map(|n| format!("{{\"n\":{n}}}"))
        .collect::<Vec<_>>();
    for line in &expected {
        log.write(line.as_str());
    }
    thread.finish();
    let written = lines(&path);
    assert_eq!(written[0], "before");
    assert_eq!(written[1..], expected);
    assert_eq!(log.dropped(), 0);
}

#[test]
fn after_a_rotation_lines_go_to_the_new_file() {
    let dir = TempDir::new().unwrap();
    let (path, rotated) = (
        dir.path().join("access.log"),
        dir.path().join("access.log.1"),
    );
    let (log, thread) = AccessLog::open(&path).unwrap();
    log.write("old");
    fs::rename(&path, &rotated).unwrap();
    log.reopen();
    log.write("new");
    thread.finish();
    assert_eq!(lines(&path).last().unwrap(), "new");
    let all = [lines(&rotated), lines(&path)].concat();
    assert_eq!(all, ["old", "new"], "a rotation loses no line");
}

#[test]
fn a_file_that_cannot_be_reopened_leaves_the_old_one() {
    let dir = TempDir::new().unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let path = logs.join("access.log");
    let (log, thread) = AccessLog::open(&path).unwrap();
    let moved = dir.path().join("moved");
    fs::rename(&logs, &moved).unwrap();
    log.reopen();
    log.write("kept");
    thread.finish();
    assert_eq!(lines(&moved.join("access.log")), ["kept"]);
}

#[test]
fn a_reader_that_stops_reading_loses_lines_and_causes_no_delay() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    // Open for reading and writing, so that opening does not block and nothing is read.
    let reader = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let (log, thread) = AccessLog::open(&path).unwrap();
    let line = "x".repeat(MAX_LINE_BYTES);
    // The pipe takes one line, the queue 16 MiB. Most of 64 MiB must be dropped immediately.
    for _ in 0..1024 {
        log.write(line.as_str());
    }
    assert!((700..1024).contains(&log.dropped()), "{}", log.dropped());
    let kept = 1024 - log.dropped();
    let drain = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader};
        BufReader::new(reader)
            .lines()
            .take(usize::try_from(kept).unwrap())
            .count()
    });
    thread.finish();
    assert_eq!(
        drain.join().unwrap() as u64,
        kept,
        "every line that was not dropped arrives"
    );
}

#[test]
fn a_full_disk_drops_lines_and_recovers() {
    let (log, thread) = AccessLog::open(Path::new("/dev/full")).unwrap();
    for _ in 0..100 {
        log.write("x".repeat(MAX_LINE_BYTES));
    }
    thread.finish();
    assert!(
        log.dropped() >= 98,
        "all lines except the buffered ones: {}",
        log.dropped()
    );
}

#[test]
fn a_line_that_is_too_long_or_too_late_is_dropped() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("access.log");
    let (log, thread) = AccessLog::open(&path).unwrap();
    log.write("x".repeat(MAX_LINE_BYTES + 1));
    assert_eq!(log.dropped(), 1);
    thread.finish();
    log.write("late");
    assert_eq!(log.dropped(), 2);
    assert!(lines(&path).is_empty());
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error() {
    assert!(AccessLog::open(Path::new("/nonexistent/access.log")).is_err());
}
