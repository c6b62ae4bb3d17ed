//! Messages by which the engine announces why it closes a tunnel.

use wire::message::ServerMessage;

use crate::{Refusal, RefusalKind};

/// The reason that a message announces for the tunnel that the engine closes next. `None` for a
/// message to the user.
pub(crate) fn close_reason(message: &str) -> Option<Refusal> {
    match message {
        ServerMessage::TAKEN_OVER => Some(Refusal::new(
            RefusalKind::TakenOver,
            "another agent of the same identity took the tunnel over",
        )),
        ServerMessage::CLOSED_BY_CALLER => Some(Refusal::new(
            RefusalKind::ClosedByCaller,
            "a member of the project closed the tunnel",
        )),
        _ => None,
    }
}
