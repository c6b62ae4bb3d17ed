//! The message that joins a running session.

use std::fmt;

use super::hello::{ClientProof, StringValue};

/// The first message on a participant's stream at an engine.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Attach {
    /// The session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// Id of the participant from the Engine API.
    #[prost(string, tag = "2")]
    pub participant_id: String,
    /// The grant of the Engine API for this attachment.
    #[prost(bytes = "vec", tag = "3")]
    pub attach_grant: Vec<u8>,
    /// The requested role.
    #[prost(enumeration = "AttachRole", tag = "4")]
    pub requested_role: i32,
    /// The transport of the stream.
    #[prost(enumeration = "AttachTransport", tag = "5")]
    pub transport: i32,
    /// Capabilities of the participant; none means that it only reads.
    #[prost(enumeration = "AttachCapability", repeated, tag = "6")]
    pub capabilities: Vec<i32>,
    /// Id of its device.
    #[prost(message, optional, tag = "7")]
    pub device_id: Option<StringValue>,
    /// Id of its browser.
    #[prost(message, optional, tag = "8")]
    pub browser_id: Option<StringValue>,
    /// Its identity, in the published protocol.
    #[prost(message, optional, tag = "9")]
    pub client_proof: Option<ClientProof>,
}

/// The grant is a secret.
impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attach")
            .field("session_id", &self.session_id)
            .field("participant_id", &self.participant_id)
            .field("requested_role", &self.requested_role())
            .finish_non_exhaustive()
    }
}

/// Role of a participant that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachRole {
    /// Not specified; treated as a spectator.
    Unspecified = 0,
    /// The participant watches.
    Spectator = 1,
    /// The participant types. A client cannot join with this role: it requests control later.
    Controller = 2,
}

/// Transport of a participant that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachTransport {
    /// Not specified.
    Unspecified = 0,
    /// Frames on a byte stream.
    Plain = 1,
    /// Messages of a WebSocket.
    Websocket = 2,
    /// Frames on a stream of a WebTransport session.
    Webtransport = 3,
}

/// Capabilities of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachCapability {
    /// Not specified.
    Unspecified = 0,
    /// Reads the output.
    ReadStream = 1,
    /// Requests control.
    RequestControl = 2,
    /// Takes granted control.
    ReceiveControl = 3,
}
