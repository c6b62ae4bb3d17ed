//! Requests for control, and their answers.

use std::time::Duration;

use jiff::Timestamp;
use types::id::{ControlRequestId, ParticipantId};
use types::root::Root;
use types::webtty::{ControlAction, ControlStatus, RecordType, SessionStatus};

use super::participant::{Person, notice, notice_of_kind};
use super::session::Session;
use super::{
    Event, MAX_PENDING, MAX_REQUEST_TTL, REQUEST_TTL, SessionRefusalError, WITHDRAWAL_PAUSE, after,
};
use crate::message::{Notice, NoticeKind, limits};

/// A new request for control.
#[derive(Clone, Debug, Default)]
pub struct NewControlRequest {
    /// Reason for the person that answers: at most [`limits::MAX_ERROR`] bytes.
    pub reason: Option<String>,
    /// Expiry of the request; [`REQUEST_TTL`] from now if absent.
    pub expires_at: Option<Timestamp>,
    /// Requested limit of control.
    pub limit: ControlLimit,
}

impl NewControlRequest {
    /// Checks the values, and returns the expiry.
    fn check(&self, now: Timestamp) -> Result<Timestamp, SessionRefusalError> {
        let reason_len = self.reason.as_ref().map_or(0, String::len);
        if reason_len > limits::MAX_ERROR {
            return Err(SessionRefusalError::Invalid("reason"));
        }
        let expires_at = self.expires_at.unwrap_or_else(|| after(now, REQUEST_TTL));
        if expires_at <= now || expires_at > after(now, MAX_REQUEST_TTL) {
            return Err(SessionRefusalError::Invalid("expires_at"));
        }
        if self.limit.lines == Some(0) || self.limit.time.is_some_and(|time| time.is_zero()) {
            return Err(SessionRefusalError::Invalid("limit"));
        }
        Ok(expires_at)
    }
}

/// Limits after which control is returned automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlLimit {
    /// Maximum duration.
    pub time: Option<Duration>,
    /// Maximum number of lines that are sent: 1 is one command.
    pub lines: Option<u32>,
}

/// A request for control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Id of the request in this session.
    pub id: ControlRequestId,
    /// Participant that requests control.
    pub requester: ParticipantId,
    /// Account of the requester.
    pub requester_user_id: Option<String>,
    /// Participant that answered.
    pub approver: Option<ParticipantId>,
    /// Account of the approver.
    pub approver_user_id: Option<String>,
    /// Credential chain of the approver.
    pub(super) approver_root: Option<Root>,
    /// Status of the request.
    pub status: ControlStatus,
    /// Reason of the requester.
    pub reason: Option<String>,
    /// Requested limit of control.
    pub limit: ControlLimit,
    /// Time of the request.
    pub created_at: Timestamp,
    /// Time of the latest change.
    pub updated_at: Timestamp,
    /// Time of the answer or the expiry.
    pub resolved_at: Option<Timestamp>,
    /// Expiry of a pending request.
    pub expires_at: Timestamp,
}

impl ControlRequest {
    fn is_pending(&self) -> bool {
        self.status == ControlStatus::Pending
    }

    /// True if the requester has made and withdrawn it within [`WITHDRAWAL_PAUSE`].
    fn is_just_withdrawn(&self, now: Timestamp) -> bool {
        // Other answers have another approver, or none.
        let is_withdrawn =
            self.status == ControlStatus::Revoked && self.approver == Some(self.requester);
        is_withdrawn && now < after(self.created_at, WITHDRAWAL_PAUSE)
    }
}

/// Caller that answers a request.
#[derive(Clone, Debug)]
pub enum Approver {
    /// A participant on its own stream. It must have control, or have granted it.
    Participant(ParticipantId),
    /// A participant by a call of the API, with the same requirements.
    Caller {
        /// The participant for which the caller answers. The API has checked that it may.
        participant: ParticipantId,
        /// Identity of the caller.
        caller: Person,
    },
    /// An owner by a call of the API, which has checked the permission.
    Owner(Person),
}

/// An answer to a request, with its author.
#[derive(Clone, Debug)]
pub(super) struct ControlAnswer {
    participant: Option<ParticipantId>,
    author: Person,
    /// True for a call of the API, which has a token and no stream.
    is_call: bool,
}

/// The current controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) participant: ParticipantId,
    /// Request that gave control; `None` for the opener.
    pub(super) request: Option<ControlRequestId>,
    pub(super) until: Option<Timestamp>,
    pub(super) lines: Option<u32>,
}

impl Session {
    /// Records a request for control.
    ///
    /// # Errors
    /// See [`SessionRefusalError`].
    pub fn request_control(
        &mut self,
        id: ControlRequestId,
        requester: ParticipantId,
        new_request: NewControlRequest,
        now: Timestamp,
    ) -> Result<&ControlRequest, SessionRefusalError> {
        self.expire(now);
        self.check_control(requester)?;
        if self.requests.contains_key(&id) {
            return Err(SessionRefusalError::Invalid("id"));
        }
        if self.controller_id() == Some(requester) {
            return Err(SessionRefusalError::HasControl);
        }
        let mut own = self.requests.values().filter(|r| r.requester == requester);
        if own.any(|request| request.is_pending() || request.is_just_withdrawn(now)) {
            return Err(SessionRefusalError::IsPending);
        }
        let mut pending = self.requests.values().filter(|r| r.is_pending());
        if pending.nth(MAX_PENDING - 1).is_some() {
            return Err(SessionRefusalError::TooMany);
        }
        let expires_at = new_request.check(now)?;
        let person = self.person(requester);
        self.remove_oldest_resolved();
        self.requests.insert(
            id,
            ControlRequest {
                id,
                requester,
                requester_user_id: person.user_id.clone(),
                approver: None,
                approver_user_id: None,
                approver_root: None,
                status: ControlStatus::Pending,
                reason: new_request.reason.clone(),
                limit: new_request.limit,
                created_at: now,
                updated_at: now,
                resolved_at: None,
                expires_at,
            },
        );
        self.event(Event::ControlRequestCreated(id));
        self.record(
            RecordType::Control,
            Some(requester),
            &format!("requested {id}"),
        );
        if self.controller.is_none() && self.is_opener(requester) {
            // No controller can answer, and the session belongs to the requester.
            self.grant_control(id, None, now);
        } else if let Some(controller) = self.controller_id() {
            self.send_to(
                controller,
                notice(Notice {
                    participant_id: requester.to_string(),
                    request_id: id.to_string(),
                    user: person.name,
                    reason: new_request.reason.unwrap_or_default(),
                    expires_at: u64::try_from(expires_at.as_second()).unwrap_or_default(),
                    ..notice_of_kind(NoticeKind::Requested)
                }),
            );
        }
        self.requests.get(&id).ok_or(SessionRefusalError::NotFound)
    }

    /// Answers a request, or revokes granted control.
    ///
    /// # Errors
    /// See [`SessionRefusalError`].
    pub fn resolve(
        &mut self,
        id: ControlRequestId,
        by: &Approver,
        action: ControlAction,
        now: Timestamp,
    ) -> Result<&ControlRequest, SessionRefusalError> {
        let known = self
            .requests
            .get(&id)
            .ok_or(SessionRefusalError::NotFound)?;
        let was_pending = known.status == ControlStatus::Pending;
        self.expire(now);
        let request = self
            .requests
            .get(&id)
            .ok_or(SessionRefusalError::NotFound)?;
        if was_pending && request.status == ControlStatus::Expired {
            return Err(SessionRefusalError::Expired);
        }
        let (requester, approver) = (request.requester, request.approver);
        let answer = self.authorize_answer(by, action, requester, approver)?;
        let status = self.requests.get(&id).map(|request| request.status);
        match action {
            ControlAction::Grant => {
                if status != Some(ControlStatus::Pending) {
                    return Err(SessionRefusalError::NotPending);
                }
                self.check_control(requester)?;
                self.check_grant(requester, &answer)?;
                self.grant_control(id, Some(answer), now);
            }
            ControlAction::Refuse => {
                if status != Some(ControlStatus::Pending) {
                    return Err(SessionRefusalError::NotPending);
                }
                self.resolve_request(id, ControlStatus::Refused, Some(answer), now);
            }
            // The requester withdraws its request.
            ControlAction::Revoke
                if status == Some(ControlStatus::Pending)
                    && answer.participant == Some(requester) =>
            {
                self.resolve_request(id, ControlStatus::Revoked, Some(answer), now);
            }
            ControlAction::Revoke => {
                let holds = self.controller.as_ref().and_then(|c| c.request) == Some(id);
                if !holds {
                    return Err(SessionRefusalError::NotGranted);
                }
                self.check_revocation(id, &answer)?;
                self.return_control(now);
            }
        }
        self.requests.get(&id).ok_or(SessionRefusalError::NotFound)
    }

    /// Checks that `by` may answer a request of `requester`, which `approver` has granted if it was
    /// granted.
    fn authorize_answer(
        &self,
        by: &Approver,
        action: ControlAction,
        requester: ParticipantId,
        approver: Option<ParticipantId>,
    ) -> Result<ControlAnswer, SessionRefusalError> {
        Ok(match by {
            Approver::Owner(person) => ControlAnswer {
                participant: None,
                author: person.clone(),
                is_call: true,
            },
            Approver::Participant(given)
            | Approver::Caller {
                participant: given, ..
            } => {
                let person = self
                    .participants
                    .get(given)
                    .ok_or(SessionRefusalError::NotFound)?;
                if !person.is_connected() {
                    return Err(SessionRefusalError::NotConnected);
                }
                let is_controller = self.controller_id() == Some(*given);
                let has_granted = approver == Some(*given) || *given == self.initiator;
                let allowed = match action {
                    ControlAction::Grant | ControlAction::Refuse => is_controller,
                    ControlAction::Revoke => is_controller || has_granted || *given == requester,
                };
                if !allowed {
                    return Err(SessionRefusalError::NotAllowed);
                }
                let (by, is_call) = match by {
                    Approver::Caller { caller, .. } => (caller, true),
                    _ => (&person.person, false),
                };
                ControlAnswer {
                    participant: Some(*given),
                    author: by.clone(),
                    is_call,
                }
            }
        })
    }

    /// Expires requests and time-limited control.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let expired: Vec<_> = self
            .requests
            .values()
            .filter(|r| r.is_pending() && r.expires_at <= now)
            .map(|request| request.id)
            .collect();
        for id in expired {
            self.resolve_request(id, ControlStatus::Expired, None, now);
        }
        let control_until = self
            .controller
            .as_ref()
            .and_then(|controller| controller.until);
        if control_until.is_some_and(|until| until <= now) {
            self.return_control(now);
        }
    }

    /// Returns control from a requester to the opener, or to no participant if the opener is gone.
    pub(super) fn return_control(&mut self, now: Timestamp) {
        let Some(controller) = self.controller.take() else {
            return;
        };
        if let Some(request) = controller.request {
            self.resolve_request(request, ControlStatus::Revoked, None, now);
        }
        let initiator = self.initiator;
        let returns_to_opener = controller.participant != initiator && self.is_connected(initiator);
        self.set_controller(
            returns_to_opener.then_some(Controller {
                participant: initiator,
                request: None,
                until: None,
                lines: None,
            }),
            now,
        );
        if returns_to_opener {
            // No other message informs the opener.
            self.send_to(
                initiator,
                notice(Notice {
                    participant_id: initiator.to_string(),
                    ..notice_of_kind(NoticeKind::Granted)
                }),
            );
        }
    }

    /// Gives control to the requester. The previous controller loses it in the same step.
    fn grant_control(
        &mut self,
        id: ControlRequestId,
        answer: Option<ControlAnswer>,
        now: Timestamp,
    ) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let (participant, limit) = (request.requester, request.limit);
        if let Some(before) = self.controller.take() {
            if let Some(request) = before.request {
                self.resolve_request(request, ControlStatus::Revoked, None, now);
            } else {
                let lost_control = notice_of_kind(NoticeKind::Revoked);
                self.send_to(before.participant, notice(lost_control));
            }
        }
        self.resolve_request(id, ControlStatus::Granted, answer, now);
        self.set_controller(
            Some(Controller {
                participant,
                request: Some(id),
                until: limit.time.map(|time| after(now, time)),
                lines: limit.lines,
            }),
            now,
        );
    }

    pub(super) fn resolve_request(
        &mut self,
        id: ControlRequestId,
        status: ControlStatus,
        answer: Option<ControlAnswer>,
        now: Timestamp,
    ) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let was_pending = request.is_pending();
        request.status = status;
        request.updated_at = now;
        request.resolved_at = Some(now);
        let answered_on_stream = answer
            .as_ref()
            .filter(|answer| !answer.is_call)
            .and_then(|answer| answer.participant);
        if let Some(answer) = answer {
            request.approver = answer.participant;
            request.approver_user_id = answer.author.user_id;
            request.approver_root = answer.author.root;
        }
        let requester = request.requester;
        let kind = match status {
            ControlStatus::Granted => NoticeKind::Granted,
            ControlStatus::Refused => NoticeKind::Refused,
            ControlStatus::Expired => NoticeKind::Expired,
            ControlStatus::Revoked | ControlStatus::Pending => NoticeKind::Revoked,
        };
        let resolved = Notice {
            participant_id: requester.to_string(),
            request_id: id.to_string(),
            ..notice_of_kind(kind)
        };
        self.send_to(requester, notice(resolved.clone()));
        if was_pending
            && status != ControlStatus::Granted
            && let Some(controller) = self.controller_id()
            && ![Some(requester), answered_on_stream].contains(&Some(controller))
        {
            // The controller's client still has the request, which can no longer be answered.
            let user = self.person(requester).name;
            self.send_to(controller, notice(Notice { user, ..resolved }));
        }
        self.event(Event::ControlRequestResolved(id));
        self.record(
            RecordType::Control,
            Some(requester),
            &format!("{status} {id}"),
        );
    }

    fn check_control(&self, participant: ParticipantId) -> Result<(), SessionRefusalError> {
        let found = self
            .participants
            .get(&participant)
            .ok_or(SessionRefusalError::NotFound)?;
        match () {
            () if self.status != SessionStatus::Active => Err(SessionRefusalError::NotActive),
            () if !self.has_terminal() => Err(SessionRefusalError::NoTerminal),
            () if !found.is_connected() => Err(SessionRefusalError::NotConnected),
            () => Ok(()),
        }
    }

    /// A party cannot grant its own requests by a call. It cannot grant them on a stream with
    /// granted control either, because this would outlast the limit of the grant. The stream that
    /// opened the session may grant requests of programs with the person's own token.
    fn check_grant(
        &self,
        requester: ParticipantId,
        answer: &ControlAnswer,
    ) -> Result<(), SessionRefusalError> {
        let owns = !answer.is_call && answer.participant == Some(self.initiator);
        if !owns && answer.author.is_same_party(&self.person(requester)) {
            return Err(SessionRefusalError::OwnRequest);
        }
        Ok(())
    }

    /// A call with a token alone returns control to the caller's own party only if that party had
    /// granted it or gives it up. Otherwise a program could take control from the person that has
    /// it.
    fn check_revocation(
        &self,
        id: ControlRequestId,
        answer: &ControlAnswer,
    ) -> Result<(), SessionRefusalError> {
        let request = self
            .requests
            .get(&id)
            .ok_or(SessionRefusalError::NotFound)?;
        let initiator = self.person(self.initiator);
        let gains_control = answer.is_call
            && !answer.author.has_session()
            && answer.author.is_same_party(&initiator)
            && self.is_connected(self.initiator);
        let was_granted_by_party =
            request.approver == Some(self.initiator) || request.approver_root == initiator.root;
        let releases_own_control = answer.author.is_same_party(&self.person(request.requester));
        if gains_control && !was_granted_by_party && !releases_own_control {
            return Err(SessionRefusalError::NeedsPerson);
        }
        Ok(())
    }

    /// Removes the oldest answered requests. The recording has them.
    fn remove_oldest_resolved(&mut self) {
        let holds = self
            .controller
            .as_ref()
            .and_then(|controller| controller.request);
        while self.requests.len() >= super::MAX_LISTED {
            let oldest = self
                .requests
                .values()
                .find(|r| r.status != ControlStatus::Pending && Some(r.id) != holds)
                .map(|request| request.id);
            let Some(oldest) = oldest else {
                break;
            };
            self.requests.remove(&oldest);
        }
    }
}
