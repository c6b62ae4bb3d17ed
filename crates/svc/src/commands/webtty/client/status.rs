//! Messages of this program on a terminal that displays the output of a remote command.

use std::io::{self, Write};

use tty::message::{Notice, NoticeKind};

use crate::output::plain;

/// Prints a separate line, regardless of the cursor position.
pub(super) fn line(text: &str) {
    let mut err = io::stderr().lock();
    // Errors are ignored, because the terminal may be closed.
    drop(write!(err, "\r\n[svc] {text}\x1b[K\r\n").and_then(|()| err.flush()));
}

/// Describes a notice about the participants. `None` for a notice without importance to the user.
pub(super) fn describe(notice: &Notice) -> Option<String> {
    let who = match plain(&notice.user) {
        user if user.is_empty() => plain(&notice.participant_id),
        user => user,
    };
    let why = match plain(&notice.reason) {
        reason if reason.is_empty() => String::new(),
        reason => format!(": {reason}"),
    };
    Some(match notice.kind() {
        NoticeKind::Joined => format!("{who} is watching"),
        NoticeKind::Left => format!("{who} has left"),
        NoticeKind::Requested => {
            format!("{who} requests control{why} (~y grants, ~n refuses)")
        }
        NoticeKind::Granted => format!("{who} has control"),
        NoticeKind::Refused => format!("{who} was refused control"),
        // Without a name, the notice concerns the receiver.
        NoticeKind::Revoked if notice.user.is_empty() => {
            format!("you no longer have control{why}")
        }
        NoticeKind::Revoked => format!("{who} has withdrawn the request for control"),
        NoticeKind::Expired => format!("the request of {who} has expired"),
        NoticeKind::Kicked => format!("{who} was removed{why}"),
        NoticeKind::Recorded => "this session is recorded".to_owned(),
        NoticeKind::Snapshot | NoticeKind::Resized | NoticeKind::Unspecified => return None,
    })
}

/// The help for the escape sequences.
pub(super) const HELP: &str = "~.  disconnect\r\n\
      ~?  this\r\n\
      ~~  send a `~`\r\n\
      ~y  grant the request for control\r\n\
      ~n  refuse it";

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of another participant must not draw on the terminal.
    #[test]
    fn a_question_contains_name_and_reason() {
        let notice = Notice {
            kind: NoticeKind::Requested.into(),
            user: "ada\x1b[2J".to_owned(),
            reason: "fix\nthe build".to_owned(),
            ..Notice::default()
        };
        assert_eq!(
            describe(&notice).unwrap(),
            "ada\u{fffd}[2J requests control: fix\u{fffd}the build (~y grants, ~n refuses)"
        );
    }

    #[test]
    fn lost_control_and_a_withdrawn_request_have_different_texts() {
        let mut notice = Notice {
            kind: NoticeKind::Revoked.into(),
            participant_id: "wtp_1".to_owned(),
            request_id: "wtc_1".to_owned(),
            ..Notice::default()
        };
        assert_eq!(describe(&notice).unwrap(), "you no longer have control");
        notice.user = "ada".to_owned();
        let text = describe(&notice).unwrap();
        assert_eq!(text, "ada has withdrawn the request for control");
    }
}
