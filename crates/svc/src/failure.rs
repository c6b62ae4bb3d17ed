//! How a command fails: one line, a next step, and an exit code that scripts can tell apart.

use std::{error::Error, fmt, process::ExitCode};

use client::{ConnectError, Refusal, RefusalKind, api::ApiError};

/// Why a command ended.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
}

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Whoever read our output has enough; nothing went wrong.
    OutputClosed = 0,
    /// Something failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Authentication, a permission or a boundary.
    Refused = 3,
    /// A name is held by somebody else, or was taken over.
    Conflict = 4,
    /// An option that this engine does not have.
    NotAvailable = 5,
}

impl Failure {
    /// A failure with its code.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// A plain failure: what was tried, and the error with its causes.
    pub(crate) fn of(what: &str, error: impl Error) -> Self {
        Self::new(Code::Failed, format!("{what}: {}", chain(&error)))
    }

    /// A wrong command line or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Adds the next step.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// What went wrong, without the next step.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The code alone.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// What failed, without the next step.
    pub(crate) fn text(&self) -> &str {
        &self.message
    }

    /// Tells the person and gives the process its code.
    #[expect(clippy::print_stderr, reason = "the one place that tells a failure")]
    pub(crate) fn report(&self) -> ExitCode {
        if self.code != Code::OutputClosed {
            eprintln!("{self}");
        }
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        let message = refusal.message.as_str();
        match refusal.kind {
            RefusalKind::Unauthorized => Self::new(Code::Refused, message)
                .hint("`svc token inspect` shows what the token allows and until when"),
            RefusalKind::Conflict => Self::new(Code::Conflict, message)
                .hint("`svc tunnels` shows who holds it; take another with --name or --hostname"),
            RefusalKind::TakenOver => Self::new(Code::Conflict, message)
                .hint("`svc clients` shows the agents; give each its own --name to run several"),
            RefusalKind::NotAvailable => Self::new(Code::NotAvailable, message)
                .hint("leave the option out, or use an engine that has it"),
            RefusalKind::NotFound => Self::new(Code::Failed, message)
                .hint("`svc tunnels` shows the names that are online"),
            RefusalKind::Invalid => Self::new(Code::Failed, message),
            _ => Self::new(Code::Failed, message),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::Refused(refusal) => Self::from(refusal),
            ConnectError::Trust(_) | ConnectError::Address(_) => {
                Self::usage(chain(&error)).hint("check --engine and --ca-file")
            }
            ConnectError::Network {
                step: client::error::Step::Handshake,
                ..
            } => Self::new(Code::Failed, chain(&error))
                .hint("an engine with a private CA needs --ca-file"),
            ConnectError::Network { .. } | ConnectError::TimedOut(_) => {
                Self::new(Code::Failed, chain(&error))
                    .hint("is the engine running, and is --engine its address?")
            }
            _ => Self::new(Code::Failed, chain(&error)),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Connect(error) => error.into(),
            ApiError::Refused(problem) => {
                let code = match problem.status {
                    401 | 403 => Code::Refused,
                    409 => Code::Conflict,
                    400 => Code::Usage,
                    _ => Code::Failed,
                };
                let failure = Self::new(code, problem.to_string());
                match code {
                    Code::Refused => failure
                        .hint("`svc token inspect` shows what the token allows and until when"),
                    _ => failure,
                }
            }
            other => Self::new(Code::Failed, chain(&other)),
        }
    }
}

/// The error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A wrapper that repeats its cause is told once.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(kind: RefusalKind) -> Code {
        Failure::from(&Refusal {
            kind,
            message: "no".to_owned(),
        })
        .code
    }

    #[test]
    fn refusals_have_the_exit_codes_that_scripts_know() {
        assert_eq!(code(RefusalKind::Unauthorized) as u8, 3);
        assert_eq!(code(RefusalKind::Conflict) as u8, 4);
        assert_eq!(code(RefusalKind::TakenOver) as u8, 4);
        assert_eq!(code(RefusalKind::NotAvailable) as u8, 5);
        assert_eq!(code(RefusalKind::Invalid) as u8, 1);
        assert_eq!(code(RefusalKind::NotFound) as u8, 1);
    }

    #[test]
    fn a_failure_is_a_line_and_a_next_step() {
        let failure = Failure::usage("no engine").hint("give --engine");
        assert_eq!(failure.to_string(), "error: no engine\nhint: give --engine");
    }
}
