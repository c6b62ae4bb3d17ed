//! The report of failed tests at the end of `cargo xtask test`. The output of a run is long, and
//! continuous integration may only store its end. The run therefore ends with the logs of the failed
//! tests of each program, followed by the names of all failed tests and their reasons.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::Failure;

/// Number of lines from the start and from the end of one test's log in the report.
const FIRST: usize = 10;
const LAST: usize = 40;

/// Number of lines, and bytes per line, of one test's panic message in the list of failed tests.
const MESSAGE: usize = 12;
const MESSAGE_LINE: usize = 400;

/// Maximum time that a process outside of the group may keep the output open after the program has
/// ended.
const DRAIN: Duration = Duration::from_secs(10);

/// Copies the output of a test program to `to`, line by line. The receiver gets the lines from the
/// harness's list of failures to the end.
pub(super) fn copy(
    output: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        let mut is_report = false;
        while lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            // A closed output of this process does not stop the tests.
            drop(to.write_all(&line));
            let text = String::from_utf8_lossy(&line);
            is_report |= text.trim_end() == "failures:";
            if is_report && sender.send(text.into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// The copied lines, once the output is closed.
pub(super) fn copied(lines: &Receiver<String>) -> String {
    let end = Instant::now() + DRAIN;
    let mut text = String::new();
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => text.push_str(&line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return text,
        }
    }
}

/// The report of one failed program.
pub(crate) fn report(failure: &Failure) -> String {
    format!("{}\n{}", failure.error, shortened(&failure.logs))
}

/// The reports of these programs, and the failed tests again at the end with their panic messages.
pub(crate) fn join_reports(reports: &[(String, String)]) -> String {
    let mut text = String::new();
    let mut names = String::new();
    for (program, report) in reports {
        text.push_str(report);
        let mut lines = report.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = log_of(line) {
                names.extend(["failed: ", program, " ", name, "\n"]);
            } else if line.contains("' panicked at ") || line.contains(") panicked at ") {
                let rest = std::iter::from_fn(|| lines.next_if(|line| !line.starts_with("---- ")));
                for line in rest.take(MESSAGE).filter(|line| !line.is_empty()) {
                    let end = line.floor_char_boundary(MESSAGE_LINE);
                    names.extend(["    ", line.get(..end).unwrap_or_default(), "\n"]);
                }
            }
        }
    }
    text + &names
}

/// The test whose log starts with this line of the harness.
fn log_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The logs without stack backtraces, without the middle of long ones, and without the harness's
/// list of names.
fn shortened(failures: &str) -> String {
    let mut logs: Vec<Vec<&str>> = Vec::new();
    let mut is_backtrace = false;
    for line in failures.lines().skip(1) {
        if line == "failures:" {
            break;
        }
        if log_of(line).is_some() {
            logs.push(Vec::new());
            is_backtrace = false;
        }
        is_backtrace |= line == "stack backtrace:";
        if is_backtrace {
            is_backtrace = !line.starts_with("note: ");
            continue;
        }
        if let Some(log) = logs.last_mut() {
            log.push(line);
        }
    }
    let mut text = String::new();
    for log in logs {
        let left_out = log.len().saturating_sub(FIRST + LAST);
        for (number, line) in log.iter().enumerate() {
            if left_out > 0 && number == FIRST {
                text.extend(["[", &left_out.to_string(), " lines are left out]\n"]);
            }
            if number < FIRST || number >= FIRST + left_out {
                text.extend([line, "\n"]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_end_of_a_run_has_the_logs_and_the_names_of_failed_tests() {
        let long: Vec<_> = (0..100).map(|line| format!("line {line}")).collect();
        let long = long.join("\n");
        let output = format!(
            "running 3 tests\ntest a ... ok\n\nfailures:\n\n---- b::c stdout ----\n\
             thread 'b::c' (7) panicked at a.rs:1:2:\nwhy\nstack backtrace:\n   0: main\n\
             note: Some details are omitted\nlast\n\n---- d stdout ----\n{long}\n\n\nfailures:\n    b::c\n    d\n\ntest result: FAILED.\n"
        );
        let failures = copied(&copy(io::Cursor::new(output), io::sink()));
        assert!(failures.starts_with("failures:\n\n---- b::c"), "{failures}");
        let report = join_reports(&[("it-1".to_owned(), shortened(&failures))]);
        assert!(report.contains("why\nlast\n"), "{report}");
        assert!(!report.contains("main"), "{report}");
        assert!(
            report.contains("line 8\n[53 lines are left out]\nline 62\n"),
            "{report}"
        );
        assert!(
            report.ends_with("failed: it-1 b::c\n    why\n    last\nfailed: it-1 d\n"),
            "{report}"
        );
    }
}
