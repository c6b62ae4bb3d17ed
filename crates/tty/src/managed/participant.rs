//! Participants and their message queues.

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

/// A person, or a program that acts for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Account of the person.
    pub user_id: Option<String>,
    /// Start of the chain of credentials that admitted the person. `None` is unknown, and equals no
    /// other chain.
    pub root: Option<Root>,
    /// Display name, at most 256 bytes.
    pub name: String,
    /// Id of the device.
    pub device_id: Option<String>,
    /// Id of the browser.
    pub browser_id: Option<String>,
}

impl Person {
    /// True if both were admitted by credentials of the same chain.
    pub fn is_same_party(&self, other: &Self) -> bool {
        self.root.is_some() && self.root == other.root
    }

    /// True if both have the same account.
    pub fn has_same_account(&self, other: &Self) -> bool {
        self.user_id.is_some() && self.user_id == other.user_id
    }

    /// True if the person was admitted by a browser session.
    pub fn has_session(&self) -> bool {
        self.root.as_ref().is_some_and(Root::is_session)
    }
}

/// A participant that will connect.
pub struct NewParticipant {
    /// Id of the participant in this session.
    pub id: ParticipantId,
    /// The person or program behind it.
    pub person: Person,
    /// Fresh random bytes, which the client presents when it connects.
    pub grant: [u8; GRANT_LEN],
    /// True if the participant's credential also permits to request control. Otherwise the
    /// participant only watches.
    pub may_control: bool,
}

impl fmt::Debug for NewParticipant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewParticipant({})", self.id)
    }
}

/// A present, past or expected participant.
#[derive(Debug)]
pub struct Participant {
    /// Id of the participant in this session.
    pub id: ParticipantId,
    /// The person or program behind it.
    pub person: Person,
    /// Time of the call to attach.
    pub attached_at: Timestamp,
    /// Time at which the participant left or was dismissed.
    pub detached_at: Option<Timestamp>,
    pub(super) grant: Option<Grant>,
    pub(super) may_control: bool,
    pub(super) viewer: Option<Viewer>,
}

impl Participant {
    /// True if the participant's stream is connected.
    pub fn is_connected(&self) -> bool {
        self.viewer.is_some() && self.detached_at.is_none()
    }
}

/// An unused grant.
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

    pub(super) fn matches(&self, presented: &[u8]) -> bool {
        self.hash.ct_eq(&hash(presented)).into()
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

/// Message queue of one stream.
#[derive(Debug, Default)]
pub(super) struct Viewer {
    queue: VecDeque<Kind>,
    bytes: usize,
    /// True if output was dropped: the next message is then a snapshot of the screen.
    is_behind: bool,
}

impl Viewer {
    /// The queue of a viewer that joins a running session.
    pub(super) fn for_late_join() -> Self {
        Self {
            is_behind: true,
            ..Self::default()
        }
    }

    /// True if no more output may be read for this participant.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= VIEWER_QUEUE || self.queue.len() >= VIEWER_MESSAGES
    }

    /// True if there is a message to take.
    pub(super) fn is_ready(&self) -> bool {
        self.is_behind || !self.queue.is_empty()
    }

    /// Adds output of the command. A participant that does not set the pace loses it if the queue
    /// is full.
    pub(super) fn output(&mut self, kind: &Kind, paces: bool) {
        if self.is_behind {
            return;
        }
        if self.is_full() && !paces {
            self.drop_output();
            self.is_behind = true;
            return;
        }
        self.push(kind.clone());
    }

    /// Drops waiting output and keeps the other messages.
    pub(super) fn drop_output(&mut self) {
        self.is_behind = false;
        self.queue.retain(|kind| !is_output(kind));
        self.bytes = self.queue.iter().map(encoded_size).sum();
    }

    /// Adds a message that is not output; these are few. If the queue is full, the oldest notice is
    /// dropped, but never output: the participant that sets the pace must receive all output, and a
    /// missing sealed message ends the session.
    pub(super) fn push_message(&mut self, kind: Kind) {
        if self.queue.len() >= VIEWER_MESSAGES {
            if kind == Kind::Heartbeat(Heartbeat::default()) {
                // The waiting messages already prove that the peer is alive.
                return;
            }
            let oldest = self.queue.iter().position(is_notice);
            if let Some(notice) = oldest.and_then(|at| self.queue.remove(at)) {
                self.bytes = self.bytes.saturating_sub(encoded_size(&notice));
            }
        }
        self.push(kind);
    }

    /// The next message. If output was dropped, a snapshot of the screen comes first.
    pub(super) fn take(
        &mut self,
        drawn: impl FnOnce() -> Option<Bytes>,
        size: Size,
    ) -> Option<Kind> {
        if std::mem::replace(&mut self.is_behind, false) {
            if let Some(drawn) = drawn() {
                let drawn = Kind::data(Stream::Stdout, drawn);
                self.bytes += encoded_size(&drawn);
                self.queue.push_front(drawn);
            }
            // The notice is sent first: the next message is drawn on an empty terminal of this
            // size.
            return Some(notice(Notice {
                size: Some(size.into()),
                ..notice_of_kind(NoticeKind::Snapshot)
            }));
        }
        let kind = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(encoded_size(&kind));
        Some(kind)
    }

    fn push(&mut self, kind: Kind) {
        self.bytes += encoded_size(&kind);
        self.queue.push_back(kind);
    }
}

pub(super) fn notice_of_kind(kind: NoticeKind) -> Notice {
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

/// Size of the whole message, because a peer controls the size of each part.
fn encoded_size(kind: &Kind) -> usize {
    kind.encoded_len()
}
