//! Enums of managed terminals: states, roles, and types of records.

crate::words::words! {
    /// Status of a managed session.
    SessionStatus {
        /// The command is being started.
        Opening = "opening",
        /// The command runs.
        Active = "active",
        /// The command was asked to exit.
        Closing = "closing",
        /// The session has ended.
        Closed = "closed",
        /// The command could not be started, or its connection broke.
        Errored = "errored",
    }
    /// Kind of session.
    SessionMode {
        /// With a terminal.
        Interactive = "interactive",
        /// With pipes.
        NonInteractive = "non-interactive",
    }
    /// Recording mode of a session.
    RecordingMode {
        /// Every byte is recorded.
        Recorded = "recorded",
        /// Only the session itself and its participants are recorded.
        Private = "private",
    }
    /// Parties that can read the typed and shown bytes.
    EncryptionMode {
        /// The platform as well.
        Managed = "managed",
        /// Only the two ends.
        E2e = "e2e",
    }
    /// Transport of the messages.
    Transport {
        /// Frames on a byte stream.
        Plain = "plain",
        /// Messages of a WebSocket.
        Websocket = "websocket",
        /// Frames on a stream of a WebTransport session.
        Webtransport = "webtransport",
    }
    /// Role of a participant in a session.
    Role {
        /// Can type.
        Controller = "controller",
        /// Can only watch.
        Spectator = "spectator",
    }
    /// Status of a request for control.
    ControlStatus {
        /// Not resolved yet.
        Pending = "pending",
        /// Granted, and not revoked.
        Granted = "granted",
        /// Refused.
        Refused = "refused",
        /// Granted earlier, and now revoked.
        Revoked = "revoked",
        /// Not resolved in time.
        Expired = "expired",
    }
    /// Action on a request for control.
    ControlAction {
        /// Grants control.
        Grant = "grant",
        /// Refuses control.
        Refuse = "refuse",
        /// Revokes control.
        Revoke = "revoke",
    }
    /// Type of a record in a recording.
    RecordType {
        /// A client requested the command.
        Open = "open",
        /// The command runs.
        Ack = "ack",
        /// Bytes of a stream.
        Data = "data",
        /// The size of the terminal changed.
        Resize = "resize",
        /// The command ended.
        Close = "close",
        /// An error occurred.
        Error = "error",
        /// A participant joined or left.
        Participant = "participant",
        /// Control was requested, granted or revoked.
        Control = "control",
        /// State of the recording itself: it started, has a gap, or is full.
        RecordingState = "recording_state",
    }
    /// Direction of a record.
    RecordDirection {
        /// From the participant that types.
        ClientToServer = "client_to_server",
        /// From the command.
        ServerToClient = "server_to_client",
        /// Neither: the platform caused the record.
        EngineInternal = "engine_internal",
    }
    /// A stream of a command.
    StreamType {
        /// Standard input.
        Stdin = "stdin",
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
    /// Status of a registered server.
    ServerStatus {
        /// The server is registered, but has no keys yet.
        PendingEnrollment = "pending_enrollment",
        /// The server may serve.
        Active = "active",
        /// The server may not serve until it is resumed.
        Suspended = "suspended",
    }
    /// Recording policy of a registered server's sessions.
    RecordingPolicy {
        /// Every byte is recorded.
        Recorded = "recorded",
        /// Only the session itself and its participants are recorded.
        Private = "private",
    }
    /// Encryption policy of a registered server's sessions.
    EncryptionPolicy {
        /// Hop by hop: encrypted to and from the engine, which can read the bytes.
        Disabled = "disabled",
        /// End-to-end, with keys that users exchange themselves.
        ExplicitKey = "explicit_key",
        /// End-to-end, with keys that the workspace stores.
        WorkspaceManaged = "workspace_managed",
    }
    /// Users that may use a registered server.
    AccessPolicy {
        /// Members of its project whose role allows it.
        ProjectMembers = "project_members",
        /// Only members that may also manage registered servers.
        Restricted = "restricted",
    }
}
