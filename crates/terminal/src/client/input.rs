//! What a person does, on its way to the command.

use bytes::Bytes;
use tokio::sync::mpsc;
use tty::message::{Decision, Heartbeat, Kind, Signal};
use tty::size::Size;

/// Types, resizes, signals and answers. All of it goes on while what a session says is read.
///
/// What fails here fails because the session is over; the session tells why.
#[derive(Clone, Debug)]
pub struct Input {
    typed: mpsc::Sender<InputEvent>,
    done: mpsc::Sender<Done>,
}

/// What is typed, in its order.
#[derive(Debug)]
pub(super) enum InputEvent {
    Bytes(Bytes),
    End,
}

/// What is done beside, which does not wait behind what is typed.
#[derive(Debug)]
pub(super) enum Done {
    Resize(Size),
    Signal(Signal),
    Decide(Decision),
}

/// The other ends.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) typed: mpsc::Receiver<InputEvent>,
    pub(super) done: mpsc::Receiver<Done>,
}

impl Input {
    pub(super) fn new() -> (Self, Inputs) {
        let (typed, typed_from) = mpsc::channel(TYPED);
        let (done, done_from) = mpsc::channel(DONE);
        let inputs = Inputs {
            typed: typed_from,
            done: done_from,
        };
        (Self { typed, done }, inputs)
    }

    /// The person typed; waits until there is room. Cancel safe: nothing was typed then. `false`
    /// when the session is over.
    pub async fn typed(&self, bytes: Bytes) -> bool {
        self.typed.send(InputEvent::Bytes(bytes)).await.is_ok()
    }

    /// There will be no more of it.
    pub async fn end(&self) -> bool {
        self.typed.send(InputEvent::End).await.is_ok()
    }

    /// The person's terminal has another size.
    pub async fn resize(&self, size: Size) -> bool {
        self.done.send(Done::Resize(size)).await.is_ok()
    }

    /// The command is to get a signal. One that does not know signals does not get it.
    pub async fn signal(&self, signal: Signal) -> bool {
        self.done.send(Done::Signal(signal)).await.is_ok()
    }

    /// The answer of who has control to somebody who asks for it.
    pub async fn decide(&self, request_id: &str, grant: bool) -> bool {
        let decision = Decision {
            request_id: request_id.to_owned(),
            grant,
        };
        self.done.send(Done::Decide(decision)).await.is_ok()
    }
}

/// An answer as a message.
pub(super) fn decision(decision: Decision) -> Kind {
    Kind::Heartbeat(Heartbeat {
        decision: Some(decision),
        ..Heartbeat::default()
    })
}

/// Pieces of input that wait: a piece is one read.
const TYPED: usize = 8;

/// Sizes of a window that is dragged come quicker than a bad link takes them.
const DONE: usize = 8;
