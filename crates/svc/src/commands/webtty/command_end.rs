//! The end of a session, as text and as an exit code.

use terminal::client::{CommandEnd, ConnectionError, SessionError};
use tty::{
    message::{ProtocolErrorCode, TerminationReason},
    session::ClientError,
};

use crate::{
    failure::{Code, Failure, chain},
    output::plain,
};

/// The exit code of this process for a command. Codes outside the valid range become 255, and a
/// failure is never 0.
pub(super) fn status(ended: &CommandEnd) -> u8 {
    if ended.code == 0 {
        return 0;
    }
    u8::try_from(ended.code.clamp(1, 255)).unwrap_or(u8::MAX)
}

/// Exits with the command's exit code.
pub(super) fn exit_as_command(ended: &CommandEnd) -> Result<(), Failure> {
    match status(ended) {
        0 => Ok(()),
        status => Err(Failure::remote_exit(status)),
    }
}

/// The reason as a machine-readable name.
pub(super) fn reason(ended: &CommandEnd) -> Option<&'static str> {
    Some(match ended.reason? {
        TerminationReason::Exited => "exited",
        TerminationReason::Signalled => "signalled",
        TerminationReason::ClientLost => "client_lost",
        TerminationReason::Idle => "idle",
        TerminationReason::Duration => "duration",
        TerminationReason::Drain => "drain",
        TerminationReason::Terminated => "terminated",
        TerminationReason::Recording => "recording",
        TerminationReason::Unspecified => return None,
    })
}

/// Describes an end, or states the exit code if the command ended normally.
pub(super) fn describe(ended: &CommandEnd) -> String {
    let by_limit = match ended.reason {
        Some(TerminationReason::ClientLost) => "the connection was lost for too long",
        Some(TerminationReason::Idle) => "the session was idle for too long",
        Some(TerminationReason::Duration) => "the session reached its maximum duration",
        Some(TerminationReason::Drain) => "the server shut down",
        Some(TerminationReason::Terminated) => "the session was terminated",
        Some(TerminationReason::Recording) => "the session could no longer be recorded",
        _ => "",
    };
    let by_itself = if ended.signal.is_empty() {
        format!("session ended (exit code {})", ended.code)
    } else {
        format!("session ended by SIG{}", plain(&ended.signal))
    };
    let mut text = match by_limit {
        "" => by_itself,
        reason => reason.to_owned(),
    };
    if !ended.detail.is_empty() {
        text.push_str(": ");
        text.push_str(&plain(&ended.detail));
    }
    text
}

/// The failure if the command did not end.
pub(super) fn failed(error: SessionError, url: &str) -> Failure {
    let url = plain(url);
    match error {
        SessionError::Connection(ConnectionError::Dial(error)) => error.into(),
        SessionError::Connection(ConnectionError::Refused(problem)) => {
            let code = match problem.status {
                401 | 403 => Code::Refused,
                _ => Code::Failed,
            };
            let message = if problem.detail.is_empty() {
                format!("{url} answered {}", problem.status)
            } else {
                plain(&problem.to_string())
            };
            let failure = Failure::new(code, message).named(plain(&problem.code));
            match problem.status {
                401 => failure.hint(
                    "a server started with --listen has its own token: use \
                           --auth-token-file",
                ),
                404 | 502 | 503 => {
                    failure.hint("`svc webtty list` shows the servers that are online")
                }
                _ => failure,
            }
        }
        SessionError::Connection(error @ ConnectionError::Unreachable { .. }) => {
            Failure::new(Code::Failed, plain(&chain(&error)))
                .named("webtty_unreachable")
                .hint("is `svc webtty server` running on that host?")
        }
        SessionError::Connection(error) => {
            Failure::new(Code::Failed, format!("{url}: {}", plain(&chain(&error))))
                .named("webtty_connection")
        }
        SessionError::Server(error @ ClientError::Refused(_)) => {
            Failure::new(Code::Failed, plain(&error.to_string())).named("webtty_refused")
        }
        SessionError::Unproven {
            code: ProtocolErrorCode::ServerKeyChanged,
            ..
        } => Failure::new(Code::Refused, format!("{url}: {}", plain(&chain(&error))))
            .named("webtty_server_key_changed")
            .hint("nothing was sent unencrypted; check that it is the expected server"),
        SessionError::Seal(_) | SessionError::NotSealed | SessionError::Unproven { .. } => {
            Failure::new(Code::Refused, format!("{url}: {}", plain(&chain(&error))))
                .named("webtty_e2e")
                .hint("nothing was sent unencrypted; check that it is the expected server")
        }
        error => Failure::new(Code::Failed, format!("{url}: {}", plain(&chain(&error))))
            .named("webtty_session"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32) -> CommandEnd {
        CommandEnd {
            code,
            reason: None,
            signal: String::new(),
            detail: String::new(),
        }
    }

    #[test]
    fn exit_codes_are_those_of_a_process() {
        for (code, mirrored) in [(0, 0), (7, 7), (255, 255), (256, 255), (-1, 1)] {
            assert_eq!(status(&ended(code)), mirrored, "{code}");
        }
    }

    /// A server with the wrong key is refused at any address.
    #[test]
    fn another_key_is_a_refusal() {
        for (code, name) in [
            (
                ProtocolErrorCode::ServerKeyChanged,
                "webtty_server_key_changed",
            ),
            (ProtocolErrorCode::ClientUnauthorized, "webtty_e2e"),
            (ProtocolErrorCode::ClientProofInvalid, "webtty_e2e"),
        ] {
            let message = "no".to_owned();
            let failure = failed(SessionError::Unproven { code, message }, "ws://box");
            assert_eq!((failure.code(), failure.name()), (Code::Refused, name));
        }
    }

    #[test]
    fn an_end_is_described_in_one_line() {
        assert_eq!(describe(&ended(3)), "session ended (exit code 3)");
        let killed = CommandEnd {
            signal: "KILL".to_owned(),
            ..ended(137)
        };
        assert_eq!(describe(&killed), "session ended by SIGKILL");
        let idle = CommandEnd {
            reason: Some(TerminationReason::Idle),
            detail: "after 5m\n".to_owned(),
            ..ended(129)
        };
        assert_eq!(
            describe(&idle),
            "the session was idle for too long: after 5m\u{fffd}"
        );
    }
}
