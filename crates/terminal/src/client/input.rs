//! Input of a person, on its way to the command.

use bytes::Bytes;
use tokio::sync::mpsc;
use tty::message::{Decision, Heartbeat, Kind, Signal};
use tty::size::Size;

/// Sends keys, sizes, signals and decisions. It works concurrently with reading the events of a
/// session.
///
/// A method fails only if the session is over; the session's events contain the reason.
#[derive(Clone, Debug)]
pub struct Input {
    typed: mpsc::Sender<InputEvent>,
    done: mpsc::Sender<InputAction>,
}

/// Input, in its order.
#[derive(Debug)]
pub(super) enum InputEvent {
    Bytes(Bytes),
    End,
}

/// Other actions, which do not wait behind input.
#[derive(Debug)]
pub(super) enum InputAction {
    Resize(Size),
    Signal(Signal),
    Decide(Decision),
}

/// The receivers of an [`Input`].
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) typed: mpsc::Receiver<InputEvent>,
    pub(super) done: mpsc::Receiver<InputAction>,
}

impl Input {
    pub(super) fn new() -> (Self, Inputs) {
        let (typed, typed_from) = mpsc::channel(INPUT_QUEUE);
        let (done, done_from) = mpsc::channel(ACTION_QUEUE);
        let inputs = Inputs {
            typed: typed_from,
            done: done_from,
        };
        (Self { typed, done }, inputs)
    }

    /// Sends input; waits if the queue is full. Cancel safe: a cancelled call has sent nothing.
    /// Returns `false` if the session is over.
    pub async fn typed(&self, bytes: Bytes) -> bool {
        self.typed.send(InputEvent::Bytes(bytes)).await.is_ok()
    }

    /// Ends the input.
    pub async fn end(&self) -> bool {
        self.typed.send(InputEvent::End).await.is_ok()
    }

    /// Reports a new size of the person's terminal.
    pub async fn resize(&self, size: Size) -> bool {
        self.done.send(InputAction::Resize(size)).await.is_ok()
    }

    /// Sends a signal to the command. A server without support for signals ignores it.
    pub async fn signal(&self, signal: Signal) -> bool {
        self.done.send(InputAction::Signal(signal)).await.is_ok()
    }

    /// Answers another participant's request for control. The sender must have control.
    pub async fn decide(&self, request_id: &str, grant: bool) -> bool {
        let decision = Decision {
            request_id: request_id.to_owned(),
            grant,
        };
        self.done.send(InputAction::Decide(decision)).await.is_ok()
    }
}

/// A decision as a message.
pub(super) fn decision(decision: Decision) -> Kind {
    Kind::Heartbeat(Heartbeat {
        decision: Some(decision),
        ..Heartbeat::default()
    })
}

/// Maximum of queued pieces of input. A piece is one read.
const INPUT_QUEUE: usize = 8;

/// Maximum of queued actions. A window that is being resized may produce sizes faster than a bad
/// link transmits them.
const ACTION_QUEUE: usize = 8;
