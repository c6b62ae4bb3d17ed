//! The words of managed terminals: states, roles, and what a recording is made of.

crate::words::words! {
    /// How far a managed session is.
    SessionStatus {
        /// The command is being started.
        Opening = "opening",
        /// It runs.
        Active = "active",
        /// It has been asked to end.
        Closing = "closing",
        /// It has ended.
        Closed = "closed",
        /// It could not be started, or its connection broke.
        Errored = "errored",
    }
    /// Whether somebody types.
    SessionMode {
        /// With a terminal.
        Interactive = "interactive",
        /// With pipes.
        NonInteractive = "non-interactive",
    }
    /// Whether what happens is kept.
    RecordingMode {
        /// Every byte.
        Recorded = "recorded",
        /// That it took place, and who took part.
        Private = "private",
    }
    /// Who can read what is typed and shown.
    EncryptionMode {
        /// The platform, too.
        Managed = "managed",
        /// The two ends alone.
        E2e = "e2e",
    }
    /// What carries the messages.
    Transport {
        /// Frames on a byte stream.
        Plain = "plain",
        /// Messages of a WebSocket.
        Websocket = "websocket",
        /// Frames on a stream of a WebTransport session.
        Webtransport = "webtransport",
    }
    /// What somebody may do in a session.
    Role {
        /// Type.
        Controller = "controller",
        /// Watch.
        Spectator = "spectator",
    }
    /// What became of a request for control.
    ControlStatus {
        /// Nobody has answered.
        Pending = "pending",
        /// Given, and not taken back.
        Granted = "granted",
        /// Not given.
        Refused = "refused",
        /// Given, and over.
        Revoked = "revoked",
        /// Nobody answered in time.
        Expired = "expired",
    }
    /// What is done about a request for control.
    ControlAction {
        /// Give it.
        Grant = "grant",
        /// Do not give it.
        Refuse = "refuse",
        /// Take it back.
        Revoke = "revoke",
    }
    /// What a record of a recording is about.
    RecordType {
        /// The command was asked for.
        Open = "open",
        /// It runs.
        Ack = "ack",
        /// Bytes of a stream.
        Data = "data",
        /// The terminal has another size.
        Resize = "resize",
        /// It has ended.
        Close = "close",
        /// Something went wrong.
        Error = "error",
        /// Somebody came or went.
        Participant = "participant",
        /// Control was asked for, given or taken.
        Control = "control",
        /// The recording itself: it began, has a gap, or is full.
        RecordingState = "recording_state",
    }
    /// Which way a record went.
    RecordDirection {
        /// From who types.
        ClientToServer = "client_to_server",
        /// From the command.
        ServerToClient = "server_to_client",
        /// Neither: the platform did it.
        EngineInternal = "engine_internal",
    }
    /// A stream of a command.
    StreamType {
        /// What it reads.
        Stdin = "stdin",
        /// What it writes.
        Stdout = "stdout",
        /// What it writes about errors.
        Stderr = "stderr",
    }
    /// How far a registered server is.
    ServerStatus {
        /// It has a record, and no keys.
        PendingEnrollment = "pending_enrollment",
        /// It may serve.
        Active = "active",
        /// It may not, until it is resumed.
        Suspended = "suspended",
    }
    /// Whether sessions of a registered server are recorded.
    RecordingPolicy {
        /// Every byte is kept.
        Recorded = "recorded",
        /// That a session took place is kept, and who took part.
        Private = "private",
    }
    /// How sessions of a registered server are encrypted.
    EncryptionPolicy {
        /// Up to the engine, and from there on.
        Disabled = "disabled",
        /// From end to end, with keys that people hand on.
        ExplicitKey = "explicit_key",
        /// From end to end, with keys that a workspace keeps.
        WorkspaceManaged = "workspace_managed",
    }
    /// Who may use a registered server.
    AccessPolicy {
        /// Whoever has a part in its project that allows it.
        ProjectMembers = "project_members",
        /// Of those, who may manage registered servers.
        Restricted = "restricted",
    }
}
