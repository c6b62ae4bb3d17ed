//! What this program says on a terminal that belongs to somebody else's command.

use std::io::{self, Write};

use tty::message::{Notice, NoticeKind};

use crate::output::plain;

/// A line of its own, whatever the cursor was doing.
pub(super) fn line(text: &str) {
    let mut err = io::stderr().lock();
    // A terminal that is gone is told nothing.
    drop(write!(err, "\r\n[svc] {text}\x1b[K\r\n").and_then(|()| err.flush()));
}

/// A change about who takes part, in words; what nobody needs to know is not told.
pub(super) fn words(notice: &Notice) -> Option<String> {
    let who = match plain(&notice.user) {
        user if user.is_empty() => plain(&notice.participant_id),
        user => user,
    };
    let why = match plain(&notice.reason) {
        reason if reason.is_empty() => String::new(),
        reason => format!(": {reason}"),
    };
    Some(match notice.kind() {
        NoticeKind::Joined => format!("{who} watches"),
        NoticeKind::Left => format!("{who} has left"),
        NoticeKind::Requested => {
            format!("{who} asks for control{why} (~y gives it, ~n does not)")
        }
        NoticeKind::Granted => format!("{who} has control"),
        NoticeKind::Refused => format!("{who} does not get control"),
        // Without a name it is about who reads it.
        NoticeKind::Revoked if who.is_empty() => format!("you no longer have control{why}"),
        NoticeKind::Revoked => format!("{who} no longer has control{why}"),
        NoticeKind::Expired => format!("the request of {who} has run out"),
        NoticeKind::Kicked => format!("{who} was sent away{why}"),
        NoticeKind::Recorded => "this session is recorded".to_owned(),
        NoticeKind::Snapshot | NoticeKind::Resized | NoticeKind::Unspecified => return None,
    })
}

/// What can be said to this program.
pub(super) const HELP: &str = "~.  hang up\r\n\
      ~?  this\r\n\
      ~~  a `~` for the command\r\n\
      ~y  give control to who asks\r\n\
      ~n  do not";

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody else's name cannot draw on the terminal of who is asked.
    #[test]
    fn a_question_names_who_and_why() {
        let notice = Notice {
            kind: NoticeKind::Requested.into(),
            user: "ada\x1b[2J".to_owned(),
            reason: "fix\nthe build".to_owned(),
            ..Notice::default()
        };
        assert_eq!(
            words(&notice).unwrap(),
            "ada\u{fffd}[2J asks for control: fix\u{fffd}the build (~y gives it, ~n does not)"
        );
    }
}
