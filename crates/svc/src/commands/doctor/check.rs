//! Findings of the checks, written as soon as each one is known.

use serde::Serialize;

use crate::{
    failure::{Code, Failure},
    output,
    output::Format,
};

/// All findings.
#[derive(Serialize)]
struct Findings<'a> {
    /// Version of this program.
    version: &'static str,
    /// The engine that was checked, `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    checks: &'a [Check],
    summary: Summary,
}

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// The observation, or the cause of a failure.
    pub(super) message: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_step: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Pass,
    /// The check passed, but the user should act.
    Warn,
    Fail,
    /// There was nothing to check.
    Skip,
}

impl Status {
    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

/// Number of checks by result.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    pass: usize,
    warn: usize,
    fail: usize,
    skip: usize,
}

impl Check {
    pub(super) fn new(name: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self {
            name,
            status,
            message: message.into(),
            next_step: None,
        }
    }

    pub(super) fn pass(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Pass, message)
    }

    pub(super) fn warn(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Warn, message)
    }

    pub(super) fn skip(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Skip, message)
    }

    pub(super) fn fail(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Fail, message)
    }

    /// Converts the failure of a command to a finding.
    pub(super) fn failed(name: &'static str, failure: &Failure) -> Self {
        Self {
            next_step: failure.next_step().map(str::to_owned),
            ..Self::fail(name, failure.message())
        }
    }

    /// Adds a suggested fix.
    #[must_use]
    pub(super) fn with_next_step(self, step: impl Into<String>) -> Self {
        Self {
            next_step: Some(step.into()),
            ..self
        }
    }

    pub(super) fn is_fail(&self) -> bool {
        self.status == Status::Fail
    }
}

/// Writer of the findings.
pub(super) struct Report {
    format: Format,
    engine: Option<String>,
    checks: Vec<Check>,
    /// Columns of the terminal. `None` when piped.
    width: Option<usize>,
}

impl Report {
    pub(super) fn start(format: Format, engine: Option<String>) -> Result<Self, Failure> {
        let is_table = format == Format::Text && output::is_terminal();
        if is_table {
            output::line(&format!("STATUS  {:NAME_WIDTH$}  MESSAGE", "CHECK"))?;
        }
        Ok(Self {
            format,
            engine,
            checks: Vec::new(),
            width: is_table.then(|| output::width().unwrap_or(80)),
        })
    }

    /// Writes a finding. Returns true if dependent checks can run.
    pub(super) fn add(&mut self, check: Check) -> Result<bool, Failure> {
        match (self.format, self.width) {
            (Format::Json, _) => {}
            (Format::Text, Some(width)) => {
                for line in rows(&check, width) {
                    output::line(&line)?;
                }
            }
            (Format::Text, None) => {
                let mut cells = vec![
                    check.name.to_owned(),
                    check.status.word().to_owned(),
                    check.message.clone(),
                ];
                cells.extend(check.next_step.clone());
                output::line(&output::join_with_tabs(&cells))?;
            }
        }
        let can_continue = !check.is_fail();
        self.checks.push(check);
        Ok(can_continue)
    }

    /// Finishes the report. Returns an error if a check failed.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let findings = Findings {
            version: env!("CARGO_PKG_VERSION"),
            engine: self.engine,
            summary: Summary::of(&self.checks),
            checks: &self.checks,
        };
        if self.format == Format::Json {
            output::json(&findings)?;
        }
        let message = match findings.summary.fail {
            0 => return Ok(()),
            1 => "a check failed".to_owned(),
            fail => format!("{fail} checks failed"),
        };
        let first = self.checks.iter().find(|check| check.is_fail());
        let failure = Failure::new(Code::Failed, message).named("check_failed");
        Err(match first.and_then(|check| check.next_step.as_ref()) {
            Some(step) => failure.hint(step),
            None => failure,
        })
    }
}

/// Formats a finding as table lines, with its sentences wrapped at the terminal width.
fn rows(check: &Check, width: usize) -> Vec<String> {
    let room = width.saturating_sub(INDENT).max(20);
    let message = output::plain(&check.message);
    let step = check.next_step.as_deref().map(output::plain);
    let mut sentences = wrap(&message, room);
    if let Some(step) = step {
        sentences.extend(wrap(&format!("→ {step}"), room));
    }
    let heads = std::iter::once(format!(
        "{:6}  {:NAME_WIDTH$}",
        check.status.word(),
        check.name
    ))
    .chain(std::iter::repeat(" ".repeat(INDENT - 2)));
    let line = |(head, sentence): (String, String)| format!("{head}  {sentence}");
    heads.zip(sentences).map(line).collect()
}

/// Wraps words at the given width.
fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Summary {
    fn of(checks: &[Check]) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Self {
            pass: count(Status::Pass),
            warn: count(Status::Warn),
            fail: count(Status::Fail),
            skip: count(Status::Skip),
        }
    }
}

/// The longest name of a check.
const NAME_WIDTH: usize = 18;
/// Column in which sentences start.
const INDENT: usize = 6 + 2 + NAME_WIDTH + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wrapped_at_the_terminal_width() {
        let check = Check::fail("tcp", "nothing listens on 127.0.0.1:8443")
            .with_next_step("is it running?");
        assert_eq!(
            rows(&check, 50),
            [
                "fail    tcp                 nothing listens on",
                "                            127.0.0.1:8443",
                "                            → is it running?",
            ]
        );
    }

    #[test]
    fn findings_are_counted() {
        let checks = [
            Check::pass("a", ""),
            Check::warn("b", ""),
            Check::skip("c", ""),
            Check::fail("d", ""),
            Check::pass("e", ""),
        ];
        let summary = Summary::of(&checks);
        assert_eq!(
            (summary.pass, summary.warn, summary.fail, summary.skip),
            (2, 1, 1, 1)
        );
    }
}
