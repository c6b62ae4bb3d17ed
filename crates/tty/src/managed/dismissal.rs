//! Who has somebody go.

use jiff::Timestamp;
use types::id::ParticipantId;

use super::Refused;
use super::participant::{Person, notice, of_kind};
use super::session::Session;
use crate::message::NoticeKind;

impl Session {
    /// A call of the API has a participant go: its own person's with a browser session, or an
    /// owner's with one (`owns`, which was judged before), who is told. With a token alone a party has
    /// only its own go, who neither opened the session nor have control: a program may have the
    /// person's own token.
    ///
    /// # Errors
    /// [`Refused::NotFound`] for who is not there; [`Refused::NeedsPerson`],
    /// [`Refused::NotAllowed`].
    pub fn dismiss(
        &mut self,
        id: ParticipantId,
        caller: &Person,
        owns: bool,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let there = self.participants.get(&id).ok_or(Refused::NotFound)?;
        let theirs = there.person.is_account(caller);
        let counts = id == self.initiator || self.controller_id() == Some(id);
        if caller.has_session() && theirs || there.person.is_party(caller) && !counts {
            self.detach(id, now)
        } else if !theirs && !owns {
            Err(Refused::NotAllowed)
        } else if caller.has_session() {
            self.kick(id, now)
        } else {
            Err(Refused::NeedsPerson)
        }
    }

    /// A participant goes, by their own word or by an owner's.
    ///
    /// # Errors
    /// [`Refused::NotFound`] for who is not there.
    pub fn detach(&mut self, id: ParticipantId, now: Timestamp) -> Result<(), Refused> {
        let participant = self.participants.get(&id);
        if participant.is_none_or(|participant| participant.detached_at.is_some()) {
            return Err(Refused::NotFound);
        }
        self.leave(id, now);
        Ok(())
    }

    /// An owner has a participant go, who is told so.
    ///
    /// # Errors
    /// [`Refused::NotFound`] for who is not there.
    pub fn kick(&mut self, id: ParticipantId, now: Timestamp) -> Result<(), Refused> {
        if let Some(viewer) = self
            .participants
            .get_mut(&id)
            .and_then(|p| p.viewer.as_mut())
        {
            viewer.forget_output();
        }
        self.tell(id, notice(of_kind(NoticeKind::Kicked)));
        self.detach(id, now)
    }
}
