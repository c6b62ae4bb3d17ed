//! Managed terminals on the Engine API: participants, control requests and recordings. Live
//! terminal bytes are not part of it: the stream of a participant is a WebTTY stream.
//!
//! Lists are bare arrays; their parameters are one JSON value in the query parameter `params`.
//! Times are RFC 3339 in UTC with milliseconds. Fields without a value are absent, never null.

mod filter;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::filter::{MAX_LIMIT, limit_schema};
use types::webtty::{
    ControlAction, ControlStatus, EncryptionMode, RecordDirection, RecordType, RecordingMode, Role,
    SessionMode, SessionStatus, StreamType, Transport,
};
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

/// `GET`: capabilities of this engine.
pub const CAPABILITIES: &str = "/api/webtty/capabilities";
/// `GET`: sessions.
pub const SESSIONS: &str = "/api/webtty/sessions";
/// `GET`: one session; `DELETE` terminates it.
pub const SESSION: &str = "/api/webtty/sessions/{id}";
/// `GET`: its records, by `from_seq` and `limit`.
pub const EVENTS: &str = "/api/webtty/sessions/{id}/events";
/// `GET`: its recording in a format, streamed.
pub const EXPORT: &str = "/api/webtty/sessions/{id}/export";
/// `GET`: verifies its recording.
pub const VERIFY: &str = "/api/webtty/sessions/{id}/verify";
/// `DELETE`: its recording. The session stays in the list.
pub const RECORDING: &str = "/api/webtty/sessions/{id}/recording";
/// `GET`: searches the lines shown in the sessions of the project.
pub const SEARCH: &str = "/api/webtty/recordings/search";
/// `GET`: its participants; `POST`: attach as a participant.
pub const PARTICIPANTS: &str = "/api/webtty/sessions/{id}/participants";
/// `POST`: detach a participant, oneself or another one.
pub const PARTICIPANT: &str = "/api/webtty/sessions/{id}/participants/{participant_id}";
/// WebSocket: the stream of a participant. Its first message is the WebTTY attach.
pub const STREAM: &str = "/api/webtty/sessions/{id}/participants/{participant_id}/stream";
/// `GET`: requests for control; `POST`: request control.
pub const CONTROL_REQUESTS: &str = "/api/webtty/sessions/{id}/control-requests";
/// `POST`: resolve one.
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

/// Types of request bodies and parameters. Unknown keys are refused.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$doc])*
        pub struct $name {
            $($(#[$field_doc])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            pub $field: Option<$type>,)*
        }
    )*};
}

/// Maximum number of lines in the result of a search: what a person looks through.
pub const MAX_HITS: u16 = 200;
/// Number of lines without `limit`: a screen or two.
pub const DEFAULT_HITS: u16 = 50;

fn events_limit() -> RefOr<Schema> {
    let about = "Maximum number of records. A response may have fewer records although more \
                 follow: the end of the list is an empty response.";
    limit_schema(about, MAX_LIMIT, Some(MAX_LIMIT))
}

fn search_limit() -> RefOr<Schema> {
    limit_schema("Maximum number of lines.", MAX_HITS, Some(DEFAULT_HITS))
}

mod recordings;

pub use recordings::{RecordingHit, RecordingSearch, RecordingVerdict};

shapes! {
    /// Capabilities of an engine for managed terminals. Clients do not use features that are
    /// missing here.
    Capabilities {
        /// Managed sessions are supported.
        managed_protocol: bool,
        /// Storage for recordings is configured.
        store_configured: bool,
        /// Sessions can be listed.
        session_listing: bool,
        /// Sessions are recorded.
        recording: bool,
        /// Recordings can be read.
        replay: bool,
        /// Clients can attach to a running session.
        live_attach: bool,
        /// Control can be transferred.
        control_transfer: bool,
        /// Sessions can be end-to-end encrypted.
        e2e: bool,
        /// Supported transports for a participant's stream.
        implemented_transports: Vec<Transport>,
        /// Supported recording modes.
        recording_modes: Vec<RecordingMode>,
        /// Supported encryption modes.
        encryption_modes: Vec<EncryptionMode>,
        /// The permissions that each operation requires.
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
        /// The user that opened the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        initiator_user_id: Option<String>,
        /// The group of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        group_id: Option<String>,
        /// Status of the session.
        status: SessionStatus,
        /// Terminal or plain command.
        session_mode: SessionMode,
        /// Recording mode.
        recording_mode: RecordingMode,
        /// Encryption mode.
        encryption_mode: EncryptionMode,
        /// Transport to the client that opened the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        downstream_transport: Option<Transport>,
        /// Transport to the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        upstream_transport: Option<Transport>,
        /// The command, as at the start of the recording. The opener and users that may read
        /// recordings see its arguments. Other users, and events, do not include them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        command_meta: Option<Map<String, Value>>,
        /// Purpose of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        context: Option<Context>,
        /// Start time.
        #[schema(format = DateTime)]
        started_at: String,
        /// End time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        ended_at: Option<String>,
        /// Exit code of the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        exit_code: Option<i32>,
        /// Error code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        error_code: Option<String>,
        /// Error as display text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        error_message: Option<String>,
        /// Current live state.
        live: SessionLive,
    }
    /// Current live state of a session.
    SessionLive {
        /// The session runs on this engine.
        available: bool,
        /// Clients can attach to the session.
        attachable: bool,
        /// Number of connected streams.
        participant_count: usize,
        /// The participant that has control.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        controller_participant_id: Option<String>,
        /// The server is connected.
        has_upstream: bool,
    }
    /// A current or former participant.
    Participant {
        /// Id in the session.
        id: String,
        /// The session.
        session_id: String,
        /// User account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        user_id: Option<String>,
        /// Device.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        device_id: Option<String>,
        /// Browser.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        browser_id: Option<String>,
        /// Role.
        role: Role,
        /// Time of the attach request.
        #[schema(format = DateTime)]
        attached_at: String,
        /// Time of the detach.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        detached_at: Option<String>,
        /// True if the participant has control.
        controller: bool,
        /// `requested`, `attached` or `detached`.
        grant_state: String,
        /// The grant for the attach message, in base64; only in the response to the attach request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        attach_grant: Option<String>,
        /// Expiry of the grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        attach_grant_expires_at: Option<String>,
        /// Current live state.
        live: ParticipantLive,
    }
    /// Current live state of a participant.
    ParticipantLive {
        /// The participant's stream is connected.
        connected: bool,
        /// The participant has control.
        controller: bool,
    }
    /// A request for control.
    ControlRequest {
        /// Its id.
        id: String,
        /// The session.
        session_id: String,
        /// The requesting participant.
        requester_participant_id: String,
        /// Account of the requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        requester_user_id: Option<String>,
        /// The participant that resolved the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        approver_participant_id: Option<String>,
        /// Account of the user that resolved the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        approver_user_id: Option<String>,
        /// Status of the request.
        status: ControlStatus,
        /// Reason given by the requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        reason: Option<String>,
        /// Metadata sent by the requester.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        metadata: Option<Map<String, Value>>,
        /// Requested duration of control, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        control_seconds: Option<u64>,
        /// Requested control in number of lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        control_lines: Option<u32>,
        /// Time of the request.
        #[schema(format = DateTime)]
        created_at: String,
        /// Time of the last change.
        #[schema(format = DateTime)]
        updated_at: String,
        /// Time when the request was resolved or expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        resolved_at: Option<String>,
        /// Expiry of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        expires_at: Option<String>,
    }
    /// A group of sessions, as their openers declare it.
    SessionGroup {
        /// Its id, which the sessions refer to.
        id: String,
        /// Its workspace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        workspace_id: Option<String>,
        /// Its project.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        project_id: Option<String>,
        /// The user that opened its first session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        initiator_user_id: Option<String>,
        /// Purpose of its first session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        context: Option<Context>,
        /// Start of its first session.
        #[schema(format = DateTime)]
        created_at: String,
        /// Time when one of its sessions last started or ended.
        #[schema(format = DateTime)]
        updated_at: String,
        /// End of the last of its sessions; absent while one runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = DateTime)]
        closed_at: Option<String>,
    }
    /// A key that was wrapped for a recipient. The key itself is never included.
    KeyGrant {
        /// Its id.
        id: String,
        /// The session.
        session_id: String,
        /// Kind of recipient.
        recipient_kind: String,
        /// Id of the recipient.
        recipient_id: String,
        /// Creation time.
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
        /// Time of the record.
        #[schema(format = DateTime)]
        created_at: String,
        /// Type of the record.
        #[serde(rename = "type")]
        event_type: RecordType,
        /// Direction.
        direction: RecordDirection,
        /// Stream of the data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        stream_type: Option<StreamType>,
        /// Participant that caused the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        participant_id: Option<String>,
        /// Number of bytes.
        payload_length: u64,
        /// The bytes in base64; only for end-to-end encrypted sessions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        payload_ciphertext: Option<String>,
        /// The bytes in base64; only for users that may read recordings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        payload_plaintext: Option<String>,
        /// Random bytes that are part of the hash, in hex; with the payload, only for users that
        /// may read recordings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        salt: Option<String>,
        /// The hash of the previous record, in hex. Absent, like the payload, if the record has no
        /// salt, because the hash would then reveal the payload.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        prev_hash: Option<String>,
        /// Its hash, in hex; absent in the same case as `prev_hash`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        hash: Option<String>,
        /// `terminal_size` with `row` and `col`, `exit_code`, `masked`, `detail`, as available.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, value_type = Object)]
        metadata: Option<Map<String, Value>>,
    }
}

bodies! {
    /// Range of records to read.
    EventsParams {
        /// Number of the first record, as decimal text; 1 if absent.
        from_seq: String,
        /// Maximum number of records, 1 to [`MAX_LIMIT`], which is the default.
        #[schema(schema_with = events_limit)]
        limit: u16,
    }
    /// Search text and scope of a search.
    SearchParams {
        /// The search text; required. The search ignores case.
        #[schema(required = true)]
        query: String,
        /// Maximum number of lines, 1 to [`MAX_HITS`]; [`DEFAULT_HITS`] if absent.
        #[schema(schema_with = search_limit)]
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
    /// Range and format of an export. Each field is a query parameter.
    ExportQuery {
        /// `text`, `json`, `ndjson`, `asciicast` or `asciicast-v3`; `text` if absent.
        format: String,
        /// Number of the first record.
        from_seq: u64,
        /// Maximum number of records.
        max_events: u64,
        /// True to include the typed input; false if absent.
        include_stdin: bool,
        /// True to include the standard output of the command; true if absent.
        include_stdout: bool,
        /// True to include the standard error of the command; true if absent.
        include_stderr: bool,
        /// True to start the lines of a text with the time.
        include_timestamps: bool,
        /// True if a text includes participants that attach, changes of control and changes of the
        /// size.
        include_markers: bool,
    }
    /// Purpose of a session, as its opener declares it.
    Context {
        /// Origin: `human`, `agent`, `api`, `automation`, `ci`, `scheduled-job`.
        origin: String,
        /// Id within the origin.
        origin_id: String,
        /// Reason.
        purpose: String,
        /// `user`, `app`, `agent` or `service-account`.
        initiator_kind: String,
        /// The program that acts for a user.
        agent_name: String,
        /// Its version.
        agent_version: String,
        /// The request that caused the session.
        request_id: String,
        /// Further labels.
        labels: BTreeMap<String, String>,
    }
    /// Attaches a participant. No participant starts as the controller.
    AttachBody {
        /// `spectator`, or absent.
        role: Role,
        /// The device.
        device_id: String,
        /// The browser.
        browser_id: String,
        /// Transport of the stream.
        transport: Transport,
        /// `requested`, or absent.
        grant_state: String,
        /// Further metadata.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
    }
    /// Detaches the caller or another participant.
    DetachBody {
        /// Reason.
        reason: String,
        /// Further metadata.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
    }
    /// Requests control.
    ControlRequestBody {
        /// The requesting participant; required.
        #[schema(required = true)]
        participant_id: String,
        /// Reason.
        reason: String,
        /// Further metadata.
        #[schema(value_type = Object)]
        metadata: Map<String, Value>,
        /// Time until which the request can be resolved.
        #[schema(format = DateTime)]
        expires_at: String,
        /// Requested duration of control, in seconds.
        control_seconds: u64,
        /// Requested control in number of lines: 1 is one command.
        control_lines: u32,
    }
    /// Resolves a request for control.
    ResolveBody {
        /// The action; required.
        #[schema(required = true)]
        action: ControlAction,
        /// The participant that resolves the request; absent for an owner.
        approver_participant_id: String,
        /// Reason.
        reason: String,
    }
    /// Filter of the session list.
    #[schema(as = WebttySessionFilter)]
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
        /// Started at this time or later.
        #[schema(format = DateTime)]
        started_from: String,
        /// Started at this time or before.
        #[schema(format = DateTime)]
        started_to: String,
    }
    /// Filter of the group list.
    #[schema(as = WebttyGroupFilter)]
    GroupFilter {
        /// Opened by this account.
        initiator_user_id: String,
        /// With this origin.
        origin: String,
        /// Created at this time or later.
        #[schema(format = DateTime)]
        created_from: String,
        /// Created at this time or before.
        #[schema(format = DateTime)]
        created_to: String,
    }
    /// Filter of the list of control requests.
    #[schema(as = WebttyControlRequestFilter)]
    ControlRequestFilter {
        /// With this status.
        status: ControlStatus,
        /// Made by this account.
        requester_user_id: String,
    }
}
