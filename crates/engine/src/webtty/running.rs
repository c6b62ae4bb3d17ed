//! A running session: the state machine behind its lock, and the notifications for waiting tasks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::webtty as shapes;
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tty::managed::{self, Command, ControlRequest, Event, Person};
use tty::message::{Attach, Kind, Stream};
use tty::recording::{Entry, MAX_PAYLOAD};
use types::id::{ControlRequestId, ParticipantId, WebttySessionId};
use types::tunnel::Tunnel;
use types::webtty::{RecordType, RecordingMode, Transport};

use super::context::SessionContext;
use super::policy::Policy;
use super::recordings::{Recording, RecordingPace};
use super::registry::EndedSession;
use super::resource;
use crate::agents::Agent;
use crate::api::CredentialGuard;
use crate::clock::Clock;
use crate::directory::Project;
use crate::live::{TunnelRegistry, WebttyChange};

/// The immutable attributes of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionAttributes {
    pub(crate) id: WebttySessionId,
    pub(crate) project: Arc<Project>,
    pub(crate) workspace_id: Option<Arc<str>>,
    pub(crate) tunnel: Arc<Tunnel>,
    pub(crate) policy: Policy,
    pub(crate) context: SessionContext,
    pub(crate) opener: Person,
    pub(crate) downstream: Transport,
    pub(crate) upstream: Transport,
}

/// A session that runs.
pub(crate) struct RunningSession {
    pub(crate) attributes: SessionAttributes,
    clock: Arc<dyn Clock>,
    live: Arc<TunnelRegistry<Agent>>,
    recording: Recording,
    state: Mutex<State>,
    /// Notified when there is a message for the server.
    pub(super) for_server: Notify,
    /// Notified when the deadline, the end of the session or the pace may have changed.
    pub(super) timers_changed: Notify,
    /// Incremented each time paused tasks may check again.
    capacity_changes: watch::Sender<u64>,
    /// Cancelled when the connection to the server is to be closed, after its queue is sent.
    pub(super) server_closing: CancellationToken,
    /// Cancelled when the session has ended.
    pub(super) over: CancellationToken,
    /// Bytes received from participants and sent to them.
    traffic: [AtomicU64; 2],
}

struct State {
    session: managed::Session,
    streams: HashMap<ParticipantId, Arc<ParticipantStream>>,
    /// Credential guards of participants that attached, until their streams connect.
    credential_guards: HashMap<ParticipantId, Box<CredentialGuard>>,
    /// Metadata of pending control requests.
    request_metadata: HashMap<ControlRequestId, Map<String, Value>>,
    to_server: VecDeque<Kind>,
    to_server_bytes: usize,
    command: Option<String>,
    pace: RecordingPace,
    has_server: bool,
    deadline: Option<Timestamp>,
    /// True if a task paused since the paused tasks were last notified.
    has_paused_tasks: bool,
}

/// Stream of a connected participant.
#[derive(Debug)]
pub(crate) struct ParticipantStream {
    pub(crate) id: ParticipantId,
    /// Notified when there is a message for the participant.
    pub(super) wake: Notify,
    /// Cancelled when the connection to the participant is to be closed.
    pub(super) over: CancellationToken,
}

impl RunningSession {
    pub(super) fn new(
        attributes: SessionAttributes,
        session: managed::Session,
        initiator: ParticipantId,
        recording: Recording,
        (clock, live): (Arc<dyn Clock>, Arc<TunnelRegistry<Agent>>),
    ) -> (Self, Arc<ParticipantStream>) {
        let seat = Arc::new(ParticipantStream::new(initiator));
        let state = State {
            session,
            streams: HashMap::from([(initiator, Arc::clone(&seat))]),
            credential_guards: HashMap::new(),
            request_metadata: HashMap::new(),
            to_server: VecDeque::new(),
            to_server_bytes: 0,
            command: None,
            pace: RecordingPace::Go,
            has_server: true,
            deadline: None,
            has_paused_tasks: false,
        };
        let running = Self {
            attributes,
            clock,
            live,
            recording,
            state: Mutex::new(state),
            for_server: Notify::new(),
            timers_changed: Notify::new(),
            capacity_changes: watch::Sender::new(0),
            server_closing: CancellationToken::new(),
            over: CancellationToken::new(),
            traffic: Default::default(),
        };
        (running, seat)
    }

    /// Changes the session, and runs the commands that result from the change.
    pub(crate) fn update<T>(&self, act: impl FnOnce(&mut managed::Session, Timestamp) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let done = act(&mut state.session, now);
        self.run_commands(&mut state, now);
        done
    }

    /// Reads the session.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&managed::Session) -> T) -> T {
        look(&self.state.lock().session)
    }

    /// The session as lists show it.
    pub(crate) fn to_resource(&self) -> shapes::Session {
        self.session_resource(&self.state.lock())
    }

    /// Present and past participants, in the order in which they joined.
    pub(crate) fn participants(&self) -> Vec<shapes::Participant> {
        let state = self.state.lock();
        let session = &state.session;
        let all = session.participants();
        all.map(|one| resource::participant(session, one)).collect()
    }

    /// All control requests, in their order.
    pub(crate) fn requests(&self) -> Vec<shapes::ControlRequest> {
        let state = self.state.lock();
        let requests = state.session.requests();
        requests.map(|one| state.request_resource(one)).collect()
    }

    /// Summary that is kept after the session has ended.
    pub(super) fn to_ended_session(&self) -> EndedSession {
        let last = |len: usize| len.saturating_sub(MAX_SUMMARY_ENTRIES);
        let (participants, requests) = (self.participants(), self.requests());
        let (first, oldest) = (last(participants.len()), last(requests.len()));
        EndedSession {
            session: self.to_resource(),
            tunnel: Arc::clone(&self.attributes.tunnel),
            participants: participants.into_iter().skip(first).collect(),
            requests: requests.into_iter().skip(oldest).collect(),
        }
    }

    /// Adds a participant, which may stay as long as its credential is valid.
    pub(crate) fn attach(
        &self,
        new: managed::NewParticipant,
        lifetime: Box<CredentialGuard>,
    ) -> Result<(shapes::Participant, Timestamp), managed::SessionRefusalError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let id = new.id;
        let expires_at = state.session.attach(new, now)?;
        let State {
            session,
            credential_guards: lifetimes,
            ..
        } = &mut *state;
        lifetimes.insert(id, lifetime);
        // Participants whose grant expired can no longer connect.
        let is_present = |id: &ParticipantId| {
            let one = session.participants().find(|one| one.id == *id);
            one.is_some_and(|one| one.detached_at.is_none())
        };
        lifetimes.retain(|id, _| is_present(id));
        let one = session.participants().find(|one| one.id == id);
        let shown = one.map(|one| resource::participant(session, one));
        self.run_commands(&mut state, now);
        Ok((
            shown.ok_or(managed::SessionRefusalError::NotFound)?,
            expires_at,
        ))
    }

    /// Connects the stream of a participant, after its first message.
    pub(crate) fn connect(
        &self,
        id: &ParticipantId,
        attach: &Attach,
    ) -> Result<(Arc<ParticipantStream>, Option<Box<CredentialGuard>>), managed::SessionRefusalError>
    {
        if attach.participant_id != id.as_str() {
            return Err(managed::SessionRefusalError::BadGrant);
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        let id = state.session.connect(attach, now)?;
        let seat = Arc::new(ParticipantStream::new(id));
        state.streams.insert(id, Arc::clone(&seat));
        let lifetime = state.credential_guards.remove(&id);
        self.run_commands(&mut state, now);
        Ok((seat, lifetime))
    }

    /// Records a participant's request for control.
    pub(crate) fn request_control(
        &self,
        id: ControlRequestId,
        requester: ParticipantId,
        ask: managed::NewControlRequest,
        metadata: Option<Map<String, Value>>,
    ) -> Result<shapes::ControlRequest, managed::SessionRefusalError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        // The metadata is stored before the event that shows it.
        state
            .request_metadata
            .extend(metadata.map(|metadata| (id, metadata)));
        let requested = state.session.request_control(id, requester, ask, now);
        let requested = requested.map(drop);
        if requested.is_err() {
            state.request_metadata.remove(&id);
        }
        let known: Vec<_> = state.session.requests().map(|request| request.id).collect();
        state.request_metadata.retain(|id, _| known.contains(id));
        self.run_commands(&mut state, now);
        requested?;
        state
            .find_request(id)
            .ok_or(managed::SessionRefusalError::NotFound)
    }

    /// One control request.
    pub(crate) fn request(&self, id: &ControlRequestId) -> Option<shapes::ControlRequest> {
        self.state.lock().find_request(*id)
    }

    /// Handles a message from a participant.
    pub(super) fn on_participant_message(&self, from: ParticipantId, kind: Kind) {
        self.count(0, &kind);
        self.update(|session, now| session.on_message(from, kind, now));
    }

    /// The next message for a participant.
    pub(super) fn next_message(&self, id: ParticipantId) -> Option<Kind> {
        let mut state = self.state.lock();
        let kind = state.session.next_message(id)?;
        self.resume_paused_tasks(&mut state);
        drop(state);
        self.count(1, &kind);
        Some(kind)
    }

    /// Handles the end of a participant's stream.
    pub(crate) fn on_disconnected(&self, id: ParticipantId) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.session.on_lost(id, now);
        state.streams.remove(&id);
        self.run_commands(&mut state, now);
        // The server no longer waits for this participant.
        self.resume_paused_tasks(&mut state);
    }

    /// The next message for the server.
    pub(super) fn next_server_message(&self) -> Option<Kind> {
        let mut state = self.state.lock();
        let kind = state.to_server.pop_front()?;
        state.to_server_bytes = state.to_server_bytes.saturating_sub(size_of(&kind));
        self.resume_paused_tasks(&mut state);
        Some(kind)
    }

    /// Handles the end of the connection to the server.
    pub(super) fn on_server_disconnected(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.has_server = false;
        state.session.on_server_lost(now);
        self.run_commands(&mut state, now);
    }

    /// Waits until the server may be read. Cancel safe.
    pub(super) async fn wait_for_output_capacity(&self) {
        self.wait_for_capacity(|state| state.session.pauses_server())
            .await;
    }

    /// Waits until participants may be read. Cancel safe.
    pub(super) async fn wait_for_input_capacity(&self) {
        self.wait_for_capacity(|state| state.to_server_bytes >= MAX_SERVER_QUEUE)
            .await;
    }

    async fn wait_for_capacity(&self, is_full: impl Fn(&State) -> bool) {
        let mut room = self.capacity_changes.subscribe();
        loop {
            {
                let mut state = self.state.lock();
                let is_paused = state.session.ended_at().is_none()
                    && (state.pace == RecordingPace::Hold || is_full(&state));
                state.has_paused_tasks |= is_paused;
                if !is_paused {
                    return;
                }
            }
            if room.changed().await.is_err() {
                return;
            }
        }
    }

    /// Time of the next timer.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.state.lock().deadline
    }

    /// Watches the pace that the recording requires.
    pub(super) fn pace(&self) -> watch::Receiver<RecordingPace> {
        self.recording.pace()
    }

    /// Applies a new pace of the recording.
    pub(super) fn set_pace(&self, pace: RecordingPace) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.pace = pace;
        if pace == RecordingPace::End {
            state.session.stop(managed::EndReason::Recording, None, now);
        }
        self.run_commands(&mut state, now);
        self.resume_paused_tasks(&mut state);
    }

    /// Ends the recording of a session that is over.
    pub(super) fn finish(&self) {
        self.recording.finish(&self.to_resource());
    }

    /// Bytes received from participants and sent to them.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let [from, to] = &self.traffic;
        (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed))
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn count(&self, direction: usize, kind: &Kind) {
        if let Some(count) = self.traffic.get(direction) {
            let len = u64::try_from(size_of(kind)).unwrap_or_default();
            count.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Notifies paused tasks that they may check again.
    fn resume_paused_tasks(&self, state: &mut State) {
        if std::mem::take(&mut state.has_paused_tasks) {
            self.capacity_changes
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn run_commands(&self, state: &mut State, now: Timestamp) {
        while let Some(command) = state.session.command() {
            match command {
                Command::ToServer(kind) => {
                    state.to_server_bytes += size_of(&kind);
                    state.to_server.push_back(kind);
                    self.for_server.notify_one();
                }
                Command::DropInput => {
                    state.to_server.retain(|kind| !is_input(kind));
                    state.to_server_bytes = state.to_server.iter().map(size_of).sum();
                    // A task may wait for the capacity that the dropped messages took.
                    self.resume_paused_tasks(state);
                }
                Command::HangUpServer => self.server_closing.cancel(),
                Command::Wake(id) => {
                    if let Some(seat) = state.streams.get(&id) {
                        seat.wake.notify_one();
                    }
                }
                Command::HangUp(id) => {
                    if let Some(seat) = state.streams.get(&id) {
                        seat.over.cancel();
                    }
                }
                Command::Record(entry) => self.record(state, entry, now),
                Command::Event(event) => self.publish(state, event),
            }
        }
        let deadline = state.session.deadline();
        if deadline != state.deadline {
            state.deadline = deadline;
            self.timers_changed.notify_one();
        }
        if state.session.ended_at().is_some() && !self.over.is_cancelled() {
            self.over.cancel();
            self.resume_paused_tasks(state);
        }
    }

    fn record(&self, state: &mut State, entry: Entry, now: Timestamp) {
        if entry.record_type == RecordType::Open {
            state.command.clone_from(&entry.detail);
        }
        if self.attributes.policy.recording == RecordingMode::Private {
            return;
        }
        for piece in pieces(entry) {
            state.pace = self.recording.record(piece, now);
        }
    }

    /// Sends an event to the watchers of the project. It is sent under the session's lock, so that
    /// events have the order of the changes. No code takes the session's lock while it holds the
    /// lock of the watchers.
    fn publish(&self, state: &State, event: Event) {
        let object = match event {
            Event::SessionCreated | Event::SessionUpdated | Event::SessionClosed => {
                // All watchers get one object, whatever they may read.
                serde_json::to_value(resource::without_arguments(self.session_resource(state)))
            }
            Event::ParticipantAttached(id) | Event::ParticipantDetached(id) => {
                let one = state.session.participants().find(|one| one.id == id);
                let Some(one) = one else { return };
                serde_json::to_value(resource::participant(&state.session, one))
            }
            Event::ControlRequestCreated(id) | Event::ControlRequestResolved(id) => {
                let Some(request) = state.find_request(id) else {
                    return;
                };
                serde_json::to_value(request)
            }
        };
        // These types always serialise.
        let Ok(object) = object else { return };
        self.live.publish_webtty(WebttyChange {
            event_type: event.event_type(),
            tunnel: Arc::clone(&self.attributes.tunnel),
            user_id: self.attributes.opener.user_id.clone(),
            object,
        });
    }

    fn session_resource(&self, state: &State) -> shapes::Session {
        let command = state.command.as_deref();
        resource::session(&self.attributes, &state.session, command, state.has_server)
    }
}

impl State {
    fn find_request(&self, id: ControlRequestId) -> Option<shapes::ControlRequest> {
        let found = self.session.requests().find(|request| request.id == id);
        found.map(|request| self.request_resource(request))
    }

    fn request_resource(&self, request: &ControlRequest) -> shapes::ControlRequest {
        let metadata = self.request_metadata.get(&request.id).cloned();
        resource::request(&self.session, request, metadata)
    }
}

impl ParticipantStream {
    fn new(id: ParticipantId) -> Self {
        Self {
            id,
            wake: Notify::new(),
            over: CancellationToken::new(),
        }
    }
}

impl std::fmt::Debug for RunningSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.attributes.id)
    }
}

/// Splits an entry for the recording, in which no piece of data is larger than [`MAX_PAYLOAD`].
fn pieces(mut entry: Entry) -> impl Iterator<Item = Entry> {
    let mut rest = entry.payload.clone();
    let whole = rest.len() <= MAX_PAYLOAD;
    let mut first = true;
    std::iter::from_fn(move || {
        if !std::mem::take(&mut first) && (whole || rest.is_empty()) {
            return None;
        }
        if !whole {
            let piece: Bytes = rest.split_to(rest.len().min(MAX_PAYLOAD));
            entry.payload_length = u64::try_from(piece.len()).unwrap_or_default();
            entry.payload = piece;
        }
        Some(entry.clone())
    })
}

fn is_input(kind: &Kind) -> bool {
    matches!(kind, Kind::Data(data) if data.r#type() == Stream::Stdin)
}

fn size_of(kind: &Kind) -> usize {
    kind.encoded_len()
}

/// Bytes that wait for the server before typing participants are paused: as much as a user pastes.
const MAX_SERVER_QUEUE: usize = 256 * 1024;

/// Participants and requests that are kept of an ended session: the latest ones. Its recording has
/// all of them.
const MAX_SUMMARY_ENTRIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_piece_of_data_is_recorded_in_several() {
        let len = |entry: Entry| {
            pieces(entry)
                .map(|piece| piece.payload.len())
                .collect::<Vec<_>>()
        };
        let output = |len: usize| {
            Entry::output(types::webtty::StreamType::Stdout, Bytes::from(vec![0; len]))
        };
        assert_eq!(len(output(3)), [3]);
        assert_eq!(len(output(MAX_PAYLOAD)), [MAX_PAYLOAD]);
        assert_eq!(
            len(output(2 * MAX_PAYLOAD + 1)),
            [MAX_PAYLOAD, MAX_PAYLOAD, 1]
        );
        let masked = Entry::input("p", Bytes::from_static(b"abc"), true);
        assert_eq!(pieces(masked).collect::<Vec<_>>().len(), 1);
    }
}
