//! Text search in the shown output of a command.
//!
//! The output is processed by a terminal, as for a transcript. A word that was coloured, or typed
//! with corrections, is thus found in the form that a person saw. Each line is found once, where it
//! was first shown.

use std::collections::VecDeque;

use avt::observer::{DirtyRows, Transcript};
use jiff::Timestamp;
use types::webtty::{RecordType, StreamType};

use super::Record;
use super::export::{has_pipes, sanitized};
use crate::screen::{SET_NEW_LINE_MODE, Utf8};
use crate::size::Size;

/// Maximum characters of a matching line: the width of a wide display.
pub const MAX_LINE: usize = 512;

/// Maximum bytes of a query.
pub const MAX_QUERY: usize = 256;

/// Searches one recording for a text, ignoring case.
pub struct Searcher {
    query: String,
    terminal: avt::Terminal,
    observers: (DirtyRows, Transcript),
    text: Utf8,
    /// The latest matches, so that a line that scrolls is found once.
    recent: VecDeque<String>,
}

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedLine {
    /// The record that showed it.
    pub seq: u64,
    /// Time of the record.
    pub created_at: Timestamp,
    /// The line, as in a transcript.
    pub line: String,
}

impl Searcher {
    /// Creates a searcher; `None` if the text is empty or longer than [`MAX_QUERY`].
    pub fn new(query: &str) -> Option<Self> {
        let terminal =
            avt::Terminal::new(Size::DEFAULT.cols.into(), Size::DEFAULT.rows.into()).ok()?;
        (!query.is_empty() && query.len() <= MAX_QUERY).then(|| Self {
            query: query.to_lowercase(),
            terminal,
            observers: (DirtyRows::new(), Transcript::new()),
            text: Utf8::default(),
            recent: VecDeque::new(),
        })
    }

    /// Adds the next record, and returns at most `room` lines.
    pub fn push(&mut self, record: &Record, room: usize) -> Vec<MatchedLine> {
        let lines = match (record.record_type, record.stream_type) {
            (RecordType::Data, Some(StreamType::Stdout | StreamType::Stderr)) => {
                let shown = self.text.push(&record.payload);
                let (rows, gone) = self.terminal.feed_with(shown.as_str(), &mut self.observers);
                self.lines(gone, &rows)
            }
            (RecordType::Data, _) => return Vec::new(),
            _ if has_pipes(record) => {
                self.terminal.feed(SET_NEW_LINE_MODE);
                return Vec::new();
            }
            _ => match record.terminal_size {
                Some(size) => {
                    let rows = size.rows.clamp(1, crate::screen::MAX_ROWS).into();
                    let cols = size.cols.clamp(1, crate::screen::MAX_COLS).into();
                    let (_, gone) = self.terminal.resize_with(cols, rows, &mut self.observers);
                    self.lines(gone, &[])
                }
                None => return Vec::new(),
            },
        };
        let mut found = Vec::new();
        for line in &lines {
            if found.len() >= room {
                break;
            }
            if !line.to_lowercase().contains(&self.query) || self.was_found(line, &lines) {
                continue;
            }
            let line = line.chars().take(MAX_LINE).collect::<String>();
            found.push(MatchedLine {
                seq: record.seq,
                created_at: record.created_at,
                line: sanitized(&line).into_owned(),
            });
        }
        found
    }

    /// Lines that scrolled off the screen, and the current text of the changed rows.
    fn lines(&self, gone: Vec<String>, rows: &[usize]) -> Vec<String> {
        let screen = self.terminal.screen();
        let shown = rows.iter().filter_map(|row| screen.line(*row));
        let shown = shown.map(|line| line.text().trim_end().to_owned());
        gone.into_iter().chain(shown).collect()
    }

    /// Remembers a line. True if it was reported before, perhaps in a shorter form, which is
    /// then no longer on any row.
    fn was_found(&mut self, line: &str, shown: &[String]) -> bool {
        if self.recent.iter().any(|known| known == line) {
            return true;
        }
        let rows = self.terminal.screen();
        let is_shown = |known: &String| {
            shown.contains(known)
                || rows
                    .visible_lines()
                    .any(|row| row.text().trim_end() == known)
        };
        if let Some(last) = self.recent.back_mut()
            && line.starts_with(last.as_str())
            && !is_shown(last)
        {
            line.clone_into(last);
            return true;
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(line.to_owned());
        false
    }
}

impl std::fmt::Debug for Searcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Searcher").finish_non_exhaustive()
    }
}

/// Number of lines on the largest screens, so that a redrawn screen adds no matches.
const MAX_RECENT: usize = 300;

#[cfg(test)]
mod tests {
    use super::super::{Entry, Recorder};
    use super::*;

    fn found(query: &str, outputs: &[&str]) -> Vec<(u64, String)> {
        let mut recorder = Recorder::new("wts_x", u64::MAX);
        let mut searcher = Searcher::new(query).unwrap();
        let mut all = Vec::new();
        for output in outputs {
            let entry = Entry::output(StreamType::Stdout, output.as_bytes().to_vec().into());
            let record = recorder
                .next(entry, Timestamp::UNIX_EPOCH, [7; 16])
                .unwrap();
            recorder.commit(&record);
            all.extend(searcher.push(&record, 100));
        }
        all.into_iter().map(|hit| (hit.seq, hit.line)).collect()
    }

    fn numbered(count: usize) -> String {
        (0..count).fold(String::new(), |text, n| text + &format!("line {n};\r\n"))
    }

    #[test]
    fn a_line_is_found_once_in_its_visible_form() {
        let outputs = [
            "$ ls\r\n",
            "fi\x1b[31mle one\x1b[0m\r\n",
            "other\r\n",
            "FILE two\r\n",
        ];
        let hits = found("File", &outputs);
        assert_eq!(
            hits,
            [(2, "file one".to_owned()), (4, "FILE two".to_owned())]
        );
        // Written letter by letter, and scrolled.
        let hits = found("cat", &["$ c", "a", "t", " x", "\r\n", &"\r\n".repeat(80)]);
        assert_eq!(hits, [(3, "$ cat".to_owned())]);
        let hits = found(
            "disk",
            &["disk\r\n", "disk full\r\n", &"\r\n".repeat(30), "disk"],
        );
        let lines: Vec<_> = hits.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(lines, ["disk", "disk full"]);
        // More lines in one piece than a screen has.
        let many = numbered(200);
        assert_eq!(found("line 7;", &[&many]), [(1, "line 7;".to_owned())]);
    }

    #[test]
    fn hidden_text_is_not_found_and_matches_are_harmless() {
        assert_eq!(found("title", &["\x1b]0;title\x07$ "]), []);
        for attack in [
            "find \x1b]52;c;eA==\x07me",
            "find \u{202e}me",
            "find \u{9b}2Jme",
        ] {
            for (_, line) in found("find", &[attack]) {
                assert_eq!(sanitized(&line), line);
            }
        }
        assert!(Searcher::new("").is_none() && Searcher::new(&"x".repeat(257)).is_none());
    }

    #[test]
    fn a_result_has_at_most_the_requested_lines() {
        let many = numbered(200);
        let mut recorder = Recorder::new("wts_x", u64::MAX);
        let entry = Entry::output(StreamType::Stdout, many.into());
        let record = recorder
            .next(entry, Timestamp::UNIX_EPOCH, [7; 16])
            .unwrap();
        recorder.commit(&record);
        assert_eq!(Searcher::new("line").unwrap().push(&record, 3).len(), 3);
    }

    #[test]
    fn a_line_is_truncated_at_512_characters() {
        let mut recorder = Recorder::new("wts_x", u64::MAX);
        let mut searcher = Searcher::new("e").unwrap();
        let line = "\u{e9}".repeat(590) + "e";
        let entries = [
            Entry::resize("wtp_a", Size { rows: 4, cols: 600 }),
            Entry::output(StreamType::Stdout, format!("e{line}").into()),
        ];
        let mut found = Vec::new();
        for entry in entries {
            let record = recorder
                .next(entry, Timestamp::UNIX_EPOCH, [7; 16])
                .unwrap();
            recorder.commit(&record);
            found.extend(searcher.push(&record, 100));
        }
        let lines: Vec<_> = found.iter().map(|hit| hit.line.chars().count()).collect();
        assert_eq!(lines, [512]);
    }
}
