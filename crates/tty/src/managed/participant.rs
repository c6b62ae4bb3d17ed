//! Who takes part, and what waits for them.

use std::collections::VecDeque;
use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use types::id::ParticipantId;
use types::root::Root;

use super::{VIEWER_MESSAGES, VIEWER_QUEUE};
use crate::message::{Heartbeat, Kind, Notice, NoticeKind, Stream};
use crate::size::Size;

/// Length of a grant to attach, in bytes.
pub const GRANT_LEN: usize = 32;

/// A person, or a program that acts for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Their account.
    pub user_id: Option<String>,
    /// The beginning of the chain of credentials that let them in; absent where nothing is known of
    /// it, which is nobody's.
    pub root: Option<Root>,
    /// What others are shown, at most 256 bytes.
    pub name: String,
    /// Their device.
    pub device_id: Option<String>,
    /// Their browser.
    pub browser_id: Option<String>,
}

impl Person {
    /// Whether both were let in by credentials of one chain.
    pub fn is_party(&self, other: &Self) -> bool {
        self.root.is_some() && self.root == other.root
    }

    /// Whether both are of one account.
    pub fn is_account(&self, other: &Self) -> bool {
        self.user_id.is_some() && self.user_id == other.user_id
    }

    /// Whether a browser session of the person let them in.
    pub fn has_session(&self) -> bool {
        self.root.as_ref().is_some_and(Root::is_session)
    }
}

/// Somebody who will attach.
pub struct NewParticipant {
    /// Names them in this session.
    pub id: ParticipantId,
    /// Who they are.
    pub person: Person,
    /// Fresh random bytes, which they show when they attach.
    pub grant: [u8; GRANT_LEN],
    /// What let them in may ask for control, too: others only watch.
    pub may_control: bool,
}

impl fmt::Debug for NewParticipant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewParticipant({})", self.id)
    }
}

/// Somebody who takes part, took part, or may.
#[derive(Debug)]
pub struct Participant {
    /// Names them in this session.
    pub id: ParticipantId,
    /// Who they are.
    pub person: Person,
    /// When they asked to attach.
    pub attached_at: Timestamp,
    /// When they went, or were made to.
    pub detached_at: Option<Timestamp>,
    pub(super) grant: Option<Grant>,
    pub(super) may_control: bool,
    pub(super) viewer: Option<Viewer>,
}

impl Participant {
    /// Whether their stream is there.
    pub fn is_connected(&self) -> bool {
        self.viewer.is_some() && self.detached_at.is_none()
    }
}

/// A grant that was not used.
pub(super) struct Grant {
    hash: [u8; 32],
    pub(super) expires_at: Timestamp,
}

impl Grant {
    pub(super) fn new(grant: &[u8], expires_at: Timestamp) -> Self {
        Self {
            hash: hash(grant),
            expires_at,
        }
    }

    pub(super) fn is(&self, shown: &[u8]) -> bool {
        self.hash.ct_eq(&hash(shown)).into()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant(until {})", self.expires_at)
    }
}

fn hash(grant: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(b"svc-webtty-attach-grant-v1\0");
    context.update(grant);
    context.finish().as_ref().try_into().unwrap_or([0; 32])
}

/// What waits for one stream.
#[derive(Debug, Default)]
pub(super) struct Viewer {
    queue: VecDeque<Kind>,
    bytes: usize,
    /// Output was left out: the screen comes when the rest of the queue is out.
    behind: bool,
}

impl Viewer {
    /// A viewer who has seen nothing of a session that runs.
    pub(super) fn late() -> Self {
        Self {
            behind: true,
            ..Self::default()
        }
    }

    /// Whether the owner has to wait before it reads more for this one.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= VIEWER_QUEUE || self.queue.len() >= VIEWER_MESSAGES
    }

    /// Whether there is something to take.
    pub(super) fn is_ready(&self) -> bool {
        self.behind || !self.queue.is_empty()
    }

    /// Adds what the command wrote. Who does not set the pace loses it when there is no room.
    pub(super) fn output(&mut self, kind: &Kind, paces: bool) {
        if self.behind {
            return;
        }
        if self.is_full() && !paces {
            self.forget_output();
            self.behind = true;
            return;
        }
        self.push(kind.clone());
    }

    /// What the command wrote and was not taken is not for this one any more; the rest is.
    pub(super) fn forget_output(&mut self) {
        self.behind = false;
        self.queue.retain(|kind| !is_output(kind));
        self.bytes = self.queue.iter().map(size_of).sum();
    }

    /// Adds what is not output; there is little of it. Without room the oldest notice gives way, and
    /// never output: who sets the pace is to see all of it, and a sealed message that is missing ends
    /// the session.
    pub(super) fn tell(&mut self, kind: Kind) {
        if self.queue.len() >= VIEWER_MESSAGES {
            if kind == Kind::Heartbeat(Heartbeat::default()) {
                // What waits says as well that somebody is there.
                return;
            }
            let oldest = self.queue.iter().position(is_notice);
            if let Some(notice) = oldest.and_then(|at| self.queue.remove(at)) {
                self.bytes = self.bytes.saturating_sub(size_of(&notice));
            }
        }
        self.push(kind);
    }

    /// The next message; first the screen, as `drawn` has it, for who is behind.
    pub(super) fn take(
        &mut self,
        drawn: impl FnOnce() -> Option<Bytes>,
        size: Size,
    ) -> Option<Kind> {
        if std::mem::replace(&mut self.behind, false) {
            if let Some(drawn) = drawn() {
                let drawn = Kind::data(Stream::Stdout, drawn);
                self.bytes += size_of(&drawn);
                self.queue.push_front(drawn);
            }
            // The notice goes first: what follows is drawn on an empty terminal of this size.
            return Some(notice(Notice {
                size: Some(size.into()),
                ..of_kind(NoticeKind::Snapshot)
            }));
        }
        let kind = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(size_of(&kind));
        Some(kind)
    }

    fn push(&mut self, kind: Kind) {
        self.bytes += size_of(&kind);
        self.queue.push_back(kind);
    }
}

pub(super) fn of_kind(kind: NoticeKind) -> Notice {
    Notice {
        kind: kind.into(),
        ..Notice::default()
    }
}

pub(super) fn notice(notice: Notice) -> Kind {
    Kind::Heartbeat(Heartbeat {
        notice: Some(Box::new(notice)),
        ..Heartbeat::default()
    })
}

fn is_output(kind: &Kind) -> bool {
    matches!(kind, Kind::Data(_))
}

fn is_notice(kind: &Kind) -> bool {
    matches!(kind, Kind::Heartbeat(_))
}

/// All of it: a peer says how large any part is.
fn size_of(kind: &Kind) -> usize {
    kind.encoded_len()
}
