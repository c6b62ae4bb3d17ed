//! Requests for control, and what is done about them.

use std::time::Duration;

use jiff::Timestamp;
use types::id::{ControlRequestId, ParticipantId};
use types::root::Root;
use types::webtty::{ControlAction, ControlStatus, RecordType, SessionStatus};

use super::participant::{Person, notice, of_kind};
use super::session::Session;
use super::{Event, MAX_PENDING, MAX_REQUEST_TTL, REQUEST_TTL, Refused, after};
use crate::message::{Notice, NoticeKind, limits};

/// What somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Why, for who answers: at most [`limits::MAX_ERROR`] bytes.
    pub reason: Option<String>,
    /// Until when an answer is of use; [`REQUEST_TTL`] from now where absent.
    pub expires_at: Option<Timestamp>,
    /// How much control is asked for.
    pub limit: ControlLimit,
}

/// When control goes back by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlLimit {
    /// After this time.
    pub time: Option<Duration>,
    /// After so many lines were sent off: 1 is one command.
    pub lines: Option<u32>,
}

/// One request for control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    /// Names it in this session.
    pub id: ControlRequestId,
    /// Who asks.
    pub requester: ParticipantId,
    /// Their account.
    pub requester_user_id: Option<String>,
    /// Who of the session answered.
    pub approver: Option<ParticipantId>,
    /// The account of who answered.
    pub approver_user_id: Option<String>,
    /// What the answer came with.
    pub(super) approver_root: Option<Root>,
    /// What became of it.
    pub status: ControlStatus,
    /// Why they ask.
    pub reason: Option<String>,
    /// How much control they ask for.
    pub limit: ControlLimit,
    /// When they asked.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// When it was answered, or ran out.
    pub resolved_at: Option<Timestamp>,
    /// Until when it waits.
    pub expires_at: Timestamp,
}

/// Who answers.
#[derive(Clone, Debug)]
pub enum Approver {
    /// Somebody who takes part, on their own stream: they need to have control, or to have given it.
    Participant(ParticipantId),
    /// The same, by a call of the API.
    Caller {
        /// For whom they answer, which was judged before.
        participant: ParticipantId,
        /// What they came with.
        caller: Person,
    },
    /// Somebody who may by permission, which was judged before, by a call of the API.
    Owner(Person),
}

/// An answer to a request, by whom and how.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    participant: Option<ParticipantId>,
    by: Person,
    /// By a call of the API, which shows a token and no stream.
    is_call: bool,
}

/// Who has control.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) participant: ParticipantId,
    /// By which request; none for who opened the session.
    pub(super) request: Option<ControlRequestId>,
    pub(super) until: Option<Timestamp>,
    pub(super) lines: Option<u32>,
}

impl Session {
    /// Somebody asks for control.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn request_control(
        &mut self,
        id: ControlRequestId,
        requester: ParticipantId,
        ask: Ask,
        now: Timestamp,
    ) -> Result<&ControlRequest, Refused> {
        self.expire(now);
        self.check_control(requester)?;
        if self.requests.contains_key(&id) {
            return Err(Refused::Invalid("id"));
        }
        if self.controller_id() == Some(requester) {
            return Err(Refused::HasControl);
        }
        let mut pending = self
            .requests
            .values()
            .filter(|r| r.status == ControlStatus::Pending);
        if pending
            .clone()
            .any(|request| request.requester == requester)
        {
            return Err(Refused::IsPending);
        }
        if pending.nth(MAX_PENDING - 1).is_some() {
            return Err(Refused::TooMany);
        }
        let reason_len = ask.reason.as_ref().map_or(0, String::len);
        if reason_len > limits::MAX_ERROR {
            return Err(Refused::Invalid("reason"));
        }
        let expires_at = ask.expires_at.unwrap_or_else(|| after(now, REQUEST_TTL));
        if expires_at <= now || expires_at > after(now, MAX_REQUEST_TTL) {
            return Err(Refused::Invalid("expires_at"));
        }
        if ask.limit.lines == Some(0) || ask.limit.time.is_some_and(|time| time.is_zero()) {
            return Err(Refused::Invalid("limit"));
        }
        let person = self.person(requester);
        self.forget_resolved();
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
                reason: ask.reason.clone(),
                limit: ask.limit,
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
        if self.controller.is_none() && self.opened_by(requester) {
            // Nobody else is there to ask, and it is theirs.
            self.give(id, None, now);
        } else if let Some(controller) = self.controller_id() {
            self.tell(
                controller,
                notice(Notice {
                    participant_id: requester.to_string(),
                    request_id: id.to_string(),
                    user: person.name,
                    reason: ask.reason.unwrap_or_default(),
                    expires_at: u64::try_from(expires_at.as_second()).unwrap_or_default(),
                    ..of_kind(NoticeKind::Requested)
                }),
            );
        }
        self.requests.get(&id).ok_or(Refused::NotFound)
    }

    /// Somebody answers, or takes back what was given.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn resolve(
        &mut self,
        id: ControlRequestId,
        by: &Approver,
        action: ControlAction,
        now: Timestamp,
    ) -> Result<&ControlRequest, Refused> {
        let known = self.requests.get(&id).ok_or(Refused::NotFound)?;
        let was_pending = known.status == ControlStatus::Pending;
        self.expire(now);
        let request = self.requests.get(&id).ok_or(Refused::NotFound)?;
        if was_pending && request.status == ControlStatus::Expired {
            return Err(Refused::Expired);
        }
        let (requester, approver) = (request.requester, request.approver);
        let answer = match by {
            Approver::Owner(person) => Answer {
                participant: None,
                by: person.clone(),
                is_call: true,
            },
            Approver::Participant(given)
            | Approver::Caller {
                participant: given, ..
            } => {
                let person = self.participants.get(given).ok_or(Refused::NotFound)?;
                if !person.is_connected() {
                    return Err(Refused::NotConnected);
                }
                let controls = self.controller_id() == Some(*given);
                let gave = approver == Some(*given) || *given == self.initiator;
                let allowed = match action {
                    ControlAction::Grant | ControlAction::Refuse => controls,
                    ControlAction::Revoke => controls || gave,
                };
                if !allowed {
                    return Err(Refused::NotAllowed);
                }
                let (by, is_call) = match by {
                    Approver::Caller { caller, .. } => (caller, true),
                    _ => (&person.person, false),
                };
                Answer {
                    participant: Some(*given),
                    by: by.clone(),
                    is_call,
                }
            }
        };
        let status = self.requests.get(&id).map(|request| request.status);
        match action {
            ControlAction::Grant => {
                if status != Some(ControlStatus::Pending) {
                    return Err(Refused::NotPending);
                }
                self.check_control(requester)?;
                self.check_grant(requester, &answer)?;
                self.give(id, Some(answer), now);
            }
            ControlAction::Refuse => {
                if status != Some(ControlStatus::Pending) {
                    return Err(Refused::NotPending);
                }
                self.answer(id, ControlStatus::Refused, Some(answer), now);
            }
            ControlAction::Revoke => {
                let holds = self.controller.as_ref().and_then(|c| c.request) == Some(id);
                if !holds {
                    return Err(Refused::NotGranted);
                }
                self.check_revocation(id, &answer)?;
                self.take_back(now);
            }
        }
        self.requests.get(&id).ok_or(Refused::NotFound)
    }

    /// What has run out, runs out.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let late: Vec<_> = self
            .requests
            .values()
            .filter(|r| r.status == ControlStatus::Pending && r.expires_at <= now)
            .map(|request| request.id)
            .collect();
        for id in late {
            self.answer(id, ControlStatus::Expired, None, now);
        }
        let over = self
            .controller
            .as_ref()
            .and_then(|controller| controller.until);
        if over.is_some_and(|until| until <= now) {
            self.take_back(now);
        }
    }

    /// Control goes from who has it by a request to who opened the session, or to nobody.
    pub(super) fn take_back(&mut self, now: Timestamp) {
        let Some(controller) = self.controller.take() else {
            return;
        };
        if let Some(request) = controller.request {
            self.answer(request, ControlStatus::Revoked, None, now);
        }
        let initiator = self.initiator;
        let back = controller.participant != initiator && self.is_connected(initiator);
        self.set_controller(
            back.then_some(Controller {
                participant: initiator,
                request: None,
                until: None,
                lines: None,
            }),
            now,
        );
        if back {
            // Nothing else would tell them.
            self.tell(
                initiator,
                notice(Notice {
                    participant_id: initiator.to_string(),
                    ..of_kind(NoticeKind::Granted)
                }),
            );
        }
    }

    /// Control goes to who asked; whoever had it loses it in the same step.
    fn give(&mut self, id: ControlRequestId, answer: Option<Answer>, now: Timestamp) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let (participant, limit) = (request.requester, request.limit);
        if let Some(before) = self.controller.take() {
            if let Some(request) = before.request {
                self.answer(request, ControlStatus::Revoked, None, now);
            } else {
                let told = of_kind(NoticeKind::Revoked);
                self.tell(before.participant, notice(told));
            }
        }
        self.answer(id, ControlStatus::Granted, answer, now);
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

    pub(super) fn answer(
        &mut self,
        id: ControlRequestId,
        status: ControlStatus,
        answer: Option<Answer>,
        now: Timestamp,
    ) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.status = status;
        request.updated_at = now;
        request.resolved_at = Some(now);
        if let Some(answer) = answer {
            request.approver = answer.participant;
            request.approver_user_id = answer.by.user_id;
            request.approver_root = answer.by.root;
        }
        let requester = request.requester;
        let kind = match status {
            ControlStatus::Granted => NoticeKind::Granted,
            ControlStatus::Refused => NoticeKind::Refused,
            ControlStatus::Expired => NoticeKind::Expired,
            ControlStatus::Revoked | ControlStatus::Pending => NoticeKind::Revoked,
        };
        self.tell(
            requester,
            notice(Notice {
                participant_id: requester.to_string(),
                request_id: id.to_string(),
                ..of_kind(kind)
            }),
        );
        self.event(Event::ControlRequestResolved(id));
        self.record(
            RecordType::Control,
            Some(requester),
            &format!("{status} {id}"),
        );
    }

    fn check_control(&self, participant: ParticipantId) -> Result<(), Refused> {
        let found = self
            .participants
            .get(&participant)
            .ok_or(Refused::NotFound)?;
        match () {
            () if self.status != SessionStatus::Active => Err(Refused::NotActive),
            () if !self.has_terminal() => Err(Refused::NoTerminal),
            () if !found.is_connected() => Err(Refused::NotConnected),
            () => Ok(()),
        }
    }

    /// A party does not grant its own requests: not by a call, and not on the stream of control that
    /// it has borrowed, which would outlast its limit. The stream that opened the session may, to
    /// programs that have the person's own token.
    fn check_grant(&self, requester: ParticipantId, answer: &Answer) -> Result<(), Refused> {
        let owns = !answer.is_call && answer.participant == Some(self.initiator);
        if !owns && answer.by.is_party(&self.person(requester)) {
            return Err(Refused::OwnRequest);
        }
        Ok(())
    }

    /// A call with a token takes control back to the caller's own party only where that party had
    /// given it, or gives it up: else a program would take it from the person who has it.
    fn check_revocation(&self, id: ControlRequestId, answer: &Answer) -> Result<(), Refused> {
        let request = self.requests.get(&id).ok_or(Refused::NotFound)?;
        let initiator = self.person(self.initiator);
        let gains = answer.is_call
            && !answer.by.has_session()
            && answer.by.is_party(&initiator)
            && self.is_connected(self.initiator);
        let gave =
            request.approver == Some(self.initiator) || request.approver_root == initiator.root;
        let gives_up = answer.by.is_party(&self.person(request.requester));
        if gains && !gave && !gives_up {
            return Err(Refused::NeedsPerson);
        }
        Ok(())
    }

    /// The oldest that were answered give way; they are in the recording.
    fn forget_resolved(&mut self) {
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
