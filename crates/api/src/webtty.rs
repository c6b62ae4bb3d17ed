//! Managed terminals on the Engine API: who takes part, who asks for control, and what was recorded.
//! Terminal bytes that are live never come this way: the stream of a participant is WebTTY.
//!
//! Lists are bare arrays; their parameters are one JSON value in the query parameter `params`. Times
//! are RFC 3339 in UTC with milliseconds. Fields that say nothing are absent, never null.

mod filter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::webtty::{
    ControlAction, ControlStatus, EncryptionMode, RecordDirection, RecordType, RecordingMode, Role,
    SessionMode, SessionStatus, StreamType, Transport,
};
use utoipa::ToSchema;

/// `GET`: what this engine can do.
pub const CAPABILITIES: &str = "/api/webtty/capabilities";
/// `GET`: sessions.
pub const SESSIONS: &str = "/api/webtty/sessions";
/// `GET`: one session; `DELETE` terminates it.
pub const SESSION: &str = "/api/webtty/sessions/{id}";
/// `GET`: its records, by `from_seq` and `limit`.
pub const EVENTS: &str = "/api/webtty/sessions/{id}/events";
/// `GET`: its recording in a format, streamed.
pub const EXPORT: &str = "/api/webtty/sessions/{id}/export";
/// `GET`: whether its recording is what was recorded.
pub const VERIFY: &str = "/api/webtty/sessions/{id}/verify";
/// `DELETE`: its recording. The session stays in the list.
pub const RECORDING: &str = "/api/webtty/sessions/{id}/recording";
/// `GET`: lines of what was shown in the sessions of the project.
pub const SEARCH: &str = "/api/webtty/recordings/search";
/// `GET`: who takes part; `POST`: take part.
pub const PARTICIPANTS: &str = "/api/webtty/sessions/{id}/participants";
/// `POST`: detach, oneself or somebody else.
pub const PARTICIPANT: &str = "/api/webtty/sessions/{id}/participants/{participant_id}";
/// WebSocket: the stream of a participant. Its first message is the WebTTY attach.
pub const STREAM: &str = "/api/webtty/sessions/{id}/participants/{participant_id}/stream";
/// `GET`: requests for control; `POST`: ask.
pub const CONTROL_REQUESTS: &str = "/api/webtty/sessions/{id}/control-requests";
/// `POST`: answer one.
pub const CONTROL_REQUEST: &str = "/api/webtty/sessions/{id}/control-requests/{request_id}";
/// `GET`: keys that were wrapped for participants, without the keys.
pub const KEY_GRANTS: &str = "/api/webtty/sessions/{id}/key-grants";
/// `GET`: groups of sessions.
pub const GROUPS: &str = "/api/webtty/groups";
/// `GET`: one group.
pub const GROUP: &str = "/api/webtty/groups/{id}";

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )*};
}

/// What somebody sends: unknown keys are refused.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            pub $field: Option<$type>,)*
        }
    )*};
}

mod recorded;

pub use recorded::{RecordingHit, RecordingSearch, RecordingVerdict};

shapes! {
    /// What an engine can do with managed terminals. A client does not try what is not here.
    Capabilities {
        /// Managed sessions exist here.
        managed_protocol: bool,
        /// Recordings have a place.
        store_configured: bool,
        /// Sessions are listed.
        session_listing: bool,
        /// Sessions are recorded.
        recording: bool,
        /// Recordings can be read.
        replay: bool,
        /// Somebody can join a session that runs.
        live_attach: bool,
        /// Control can be given.
        control_transfer: bool,
        /// Sessions can be end-to-end encrypted.
        e2e: bool,
        /// What carries a participant's stream.
        implemented_transports: Vec<Transport>,
        /// Whether sessions are recorded or private.
        recording_modes: Vec<RecordingMode>,
        /// Who can read a session.
        encryption_modes: Vec<EncryptionMode>,
        /// The permissions that each operation asks for.
        required_permissions: BTreeMap<String, Vec<String>>,
    }
    /// One session.
    Session {
        /// Its id.
        id: String,
        /// Its workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        workspace_id: Option<String>,
        /// Its project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        project_id: Option<String>,
        /// Its cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        cluster_id: Option<String>,
        /// The registered server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        server_id: Option<String>,
        /// The tunnel of that server.
        tunnel_id: String,
        /// The agent of that tunnel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        client_id: Option<String>,
        /// Who opened it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        initiator_user_id: Option<String>,
        /// The group it is in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        group_id: Option<String>,
        /// How far it is.
        status: SessionStatus,
        /// Whether it has a terminal.
        session_mode: SessionMode,
        /// Whether it is recorded.
        recording_mode: RecordingMode,
        /// Who can read it.
        encryption_mode: EncryptionMode,
        /// What carries it to who opened it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        downstream_transport: Option<Transport>,
        /// What carries it to the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        upstream_transport: Option<Transport>,
        /// The command, as its recording begins: with its arguments for who opened the session or may
        /// read recordings, without them for everybody else and in events.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        command_meta: Option<Map<String, Value>>,
        /// What it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        context: Option<Context>,
        /// When it began.
        #[schema(format = DateTime)]
        started_at: String,
        /// When it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        ended_at: Option<String>,
        /// How its command ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        exit_code: Option<i32>,
        /// What went wrong, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        error_code: Option<String>,
        /// What went wrong, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        error_message: Option<String>,
        /// What is so right now.
        live: SessionLive,
    }
    /// What is so right now about a session.
    SessionLive {
        /// It runs on this engine.
        available: bool,
        /// Somebody can join.
        attachable: bool,
        /// How many streams there are.
        participant_count: usize,
        /// Who has control.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        controller_participant_id: Option<String>,
        /// The server is there.
        has_upstream: bool,
    }
    /// Somebody who takes part, or took part.
    Participant {
        /// Their id in the session.
        id: String,
        /// The session.
        session_id: String,
        /// Their account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        user_id: Option<String>,
        /// Their device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        device_id: Option<String>,
        /// Their browser.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        browser_id: Option<String>,
        /// What they may do.
        role: Role,
        /// When they asked to take part.
        #[schema(format = DateTime)]
        attached_at: String,
        /// When they went.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        detached_at: Option<String>,
        /// Whether they have control.
        controller: bool,
        /// `attached` or `detached`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        grant_state: Option<String>,
        /// What the attach message shows, in base64: only in the answer to who asked to take part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        attach_grant: Option<String>,
        /// Until when it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        attach_grant_expires_at: Option<String>,
        /// What is so right now.
        live: ParticipantLive,
    }
    /// What is so right now about somebody.
    ParticipantLive {
        /// Their stream is there.
        connected: bool,
        /// They have control.
        controller: bool,
    }
    /// A request for control.
    ControlRequest {
        /// Its id.
        id: String,
        /// The session.
        session_id: String,
        /// Who asks.
        requester_participant_id: String,
        /// Their account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        requester_user_id: Option<String>,
        /// Who of the session answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        approver_participant_id: Option<String>,
        /// The account of who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        approver_user_id: Option<String>,
        /// What became of it.
        status: ControlStatus,
        /// Why they ask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        reason: Option<String>,
        /// What they sent along.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        metadata: Option<Map<String, Value>>,
        /// How long control is asked for, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        control_seconds: Option<u64>,
        /// For how many lines control is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        control_lines: Option<u32>,
        /// When they asked.
        #[schema(format = DateTime)]
        created_at: String,
        /// When it changed last.
        #[schema(format = DateTime)]
        updated_at: String,
        /// When it was answered, or ran out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        resolved_at: Option<String>,
        /// Until when it waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        expires_at: Option<String>,
    }
    /// Sessions that belong together, as who opened them says.
    SessionGroup {
        /// Its id, as the sessions have it.
        id: String,
        /// Its workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        workspace_id: Option<String>,
        /// Its project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        project_id: Option<String>,
        /// Who opened its first session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        initiator_user_id: Option<String>,
        /// What its first session is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        context: Option<Context>,
        /// When its first session began.
        #[schema(format = DateTime)]
        created_at: String,
        /// When one of its sessions began or ended last.
        #[schema(format = DateTime)]
        updated_at: String,
        /// When the last of its sessions ended; absent while one runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        closed_at: Option<String>,
    }
    /// A key that was wrapped for somebody: for whom, never the key.
    KeyGrant {
        /// Its id.
        id: String,
        /// The session.
        session_id: String,
        /// What kind of recipient.
        recipient_kind: String,
        /// Which one.
        recipient_id: String,
        /// When it was made.
        #[schema(format = DateTime)]
        created_at: String,
    }
    /// One record of a recording.
    RecordedEvent {
        /// Its id.
        id: String,
        /// The session.
        session_id: String,
        /// Its number, from 1, as decimal text.
        seq: String,
        /// When it happened.
        #[schema(format = DateTime)]
        created_at: String,
        /// What it is about.
        #[serde(rename = "type")]
        event_type: RecordType,
        /// Which way it went.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        direction: Option<RecordDirection>,
        /// The stream, of data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        stream_type: Option<StreamType>,
        /// Whose doing it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        participant_id: Option<String>,
        /// How many bytes there were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        payload_length: Option<u64>,
        /// The bytes in base64, of an end-to-end encrypted session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        payload_ciphertext: Option<String>,
        /// The bytes in base64, for who may read recordings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        payload_plaintext: Option<String>,
        /// Random bytes that are in its hash, in hex: with the payload, for who may read recordings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        salt: Option<String>,
        /// The hash of the record before it, in hex. Absent without a payload where the record has no
        /// salt, so that its hash would tell it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        prev_hash: Option<String>,
        /// Its hash, in hex, or absent as the one before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        hash: Option<String>,
        /// `terminal_size` with `row` and `col`, `exit_code`, `masked`, `detail`: what there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        metadata: Option<Map<String, Value>>,
    }
}

bodies! {
    /// Which records are read.
    EventsParams {
        /// The first, as decimal text; 1 without it.
        from_seq: String,
        /// At most so many, 1 to 1000. There may be fewer though there are more to come: the list
        /// is at its end where it is empty.
        limit: u16,
    }
    /// What is looked for, and where.
    SearchParams {
        /// The text; required. Case does not count.
        query: String,
        /// Lines at most, 1 to 200; 50 without it.
        limit: u16,
        /// Only in this session.
        session_id: String,
        /// Only in sessions on this registered server.
        server_id: String,
        /// Only in sessions that this account opened.
        user_id: String,
        /// Only in sessions older than this one.
        before: String,
    }
    /// What is exported, and in which form: a key of the query each.
    ExportQuery {
        /// `text`, `json`, `ndjson`, `asciicast` or `asciicast-v3`; `text` without it.
        format: String,
        /// The first record, by its number.
        from_seq: u64,
        /// Records at most.
        max_events: u64,
        /// Whether what was typed is there; not without it.
        include_stdin: bool,
        /// Whether what the command wrote is there; it is without it.
        include_stdout: bool,
        /// Whether what it wrote about errors is there; it is without it.
        include_stderr: bool,
        /// Whether lines of a text begin with the time.
        include_timestamps: bool,
        /// Whether a text says who came, who got control, and when the size changed.
        include_markers: bool,
    }
    /// What a session is for, as its opener says it.
    Context {
        /// Who is behind it: `human`, `agent`, `api`, `automation`, `ci`, `scheduled-job`.
        origin: String,
        /// What that is called there.
        origin_id: String,
        /// Why.
        purpose: String,
        /// `user`, `app`, `agent` or `service-account`.
        initiator_kind: String,
        /// The program that acts for somebody.
        agent_name: String,
        /// Its version.
        agent_version: String,
        /// The request that led to it.
        request_id: String,
        /// Anything else.
        labels: BTreeMap<String, String>,
    }
    /// Takes part. Nobody begins as the controller.
    AttachBody {
        /// `spectator`, or absent.
        role: Role,
        /// The device.
        device_id: String,
        /// The browser.
        browser_id: String,
        /// What will carry the stream.
        transport: Transport,
        /// `requested`, or absent.
        grant_state: String,
        /// Anything else.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
    }
    /// Goes, or has somebody go.
    DetachBody {
        /// Why.
        reason: String,
        /// Anything else.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
    }
    /// Asks for control.
    ControlRequestBody {
        /// Who asks; required.
        participant_id: String,
        /// Why.
        reason: String,
        /// Anything else.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
        /// Until when an answer is of use.
        #[schema(format = DateTime)]
        expires_at: String,
        /// For how long control is asked for, in seconds.
        control_seconds: u64,
        /// For how many lines control is asked for: 1 is one command.
        control_lines: u32,
    }
    /// Answers a request for control.
    ResolveBody {
        /// What is done; required.
        action: ControlAction,
        /// Who of the session answers; absent for an owner.
        approver_participant_id: String,
        /// Why.
        reason: String,
    }
    /// Which sessions are listed.
    SessionFilter {
        /// Of this registered server.
        server_id: String,
        /// Over this tunnel.
        tunnel_id: String,
        /// Opened by this account.
        user_id: String,
        /// In this group.
        group_id: String,
        /// With this origin.
        origin: String,
        /// With this status.
        status: SessionStatus,
        /// That began at this time or later.
        #[schema(format = DateTime)]
        started_from: String,
        /// That began at this time or before.
        #[schema(format = DateTime)]
        started_to: String,
    }
    /// Which groups are listed.
    GroupFilter {
        /// Begun by this account.
        initiator_user_id: String,
        /// With this origin.
        origin: String,
        /// That began at this time or later.
        #[schema(format = DateTime)]
        created_from: String,
        /// That began at this time or before.
        #[schema(format = DateTime)]
        created_to: String,
    }
    /// Which requests for control are listed.
    ControlRequestFilter {
        /// With this status.
        status: ControlStatus,
        /// Made by this account.
        requester_user_id: String,
    }
}
