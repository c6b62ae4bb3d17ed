//! Dismissal of participants.

use jiff::Timestamp;
use types::id::ParticipantId;

use super::SessionRefusalError;
use super::participant::{Person, notice, notice_of_kind};
use super::session::Session;
use crate::message::NoticeKind;

impl Session {
    /// Dismisses a participant by a call of the API. With a browser session, the caller may dismiss
    /// participants of its own account. An owner with a browser session (`is_owner`, which the API
    /// has checked) may dismiss any participant, which gets a notice. With a token alone, a party
    /// may only dismiss its own participants, except the opener and the controller: a program may
    /// have the person's own token.
    ///
    /// # Errors
    /// [`SessionRefusalError::NotFound`] if the participant is not present; [`SessionRefusalError::NeedsPerson`],
    /// [`SessionRefusalError::NotAllowed`].
    pub fn dismiss(
        &mut self,
        id: ParticipantId,
        caller: &Person,
        is_owner: bool,
        now: Timestamp,
    ) -> Result<(), SessionRefusalError> {
        let participant = self
            .participants
            .get(&id)
            .ok_or(SessionRefusalError::NotFound)?;
        let is_own_account = participant.person.has_same_account(caller);
        let has_role = id == self.initiator || self.controller_id() == Some(id);
        if caller.has_session() && is_own_account
            || participant.person.is_same_party(caller) && !has_role
        {
            self.detach(id, now)
        } else if !is_own_account && !is_owner {
            Err(SessionRefusalError::NotAllowed)
        } else if caller.has_session() {
            self.kick(id, now)
        } else {
            Err(SessionRefusalError::NeedsPerson)
        }
    }

    /// Removes a participant, on its own request or an owner's.
    ///
    /// # Errors
    /// [`SessionRefusalError::NotFound`] if the participant is not present.
    pub fn detach(&mut self, id: ParticipantId, now: Timestamp) -> Result<(), SessionRefusalError> {
        let participant = self.participants.get(&id);
        if participant.is_none_or(|participant| participant.detached_at.is_some()) {
            return Err(SessionRefusalError::NotFound);
        }
        self.leave(id, now);
        Ok(())
    }

    /// Removes a participant on an owner's request, with a notice to it.
    ///
    /// # Errors
    /// [`SessionRefusalError::NotFound`] if the participant is not present.
    pub fn kick(&mut self, id: ParticipantId, now: Timestamp) -> Result<(), SessionRefusalError> {
        if let Some(viewer) = self
            .participants
            .get_mut(&id)
            .and_then(|p| p.viewer.as_mut())
        {
            viewer.drop_output();
        }
        self.send_to(id, notice(notice_of_kind(NoticeKind::Kicked)));
        self.detach(id, now)
    }
}
