//! What joins a session that runs.

use std::fmt;

use super::hello::{ClientProof, StringValue};

/// The first message on a participant's stream at an engine.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Attach {
    /// The session.
    #[prost(string, tag = "1")]
    pub session_id: String,
    /// The participant, as the Engine API named it.
    #[prost(string, tag = "2")]
    pub participant_id: String,
    /// What the Engine API gave for this one attachment.
    #[prost(bytes = "vec", tag = "3")]
    pub attach_grant: Vec<u8>,
    /// As what.
    #[prost(enumeration = "AttachRole", tag = "4")]
    pub requested_role: i32,
    /// Over what.
    #[prost(enumeration = "AttachTransport", tag = "5")]
    pub transport: i32,
    /// What the participant will do; none is reading.
    #[prost(enumeration = "AttachCapability", repeated, tag = "6")]
    pub capabilities: Vec<i32>,
    /// Its device.
    #[prost(message, optional, tag = "7")]
    pub device_id: Option<StringValue>,
    /// Its browser.
    #[prost(message, optional, tag = "8")]
    pub browser_id: Option<StringValue>,
    /// Who it is, in the published protocol.
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

/// As what somebody joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachRole {
    /// Says nothing; read as a spectator.
    Unspecified = 0,
    /// Watches.
    Spectator = 1,
    /// Types. Nobody joins as this: control is asked for.
    Controller = 2,
}

/// Over what somebody joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachTransport {
    /// Says nothing.
    Unspecified = 0,
    /// Frames on a byte stream.
    Plain = 1,
    /// Messages of a WebSocket.
    Websocket = 2,
    /// Frames on a stream of a WebTransport session.
    Webtransport = 3,
}

/// What a participant will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AttachCapability {
    /// Says nothing.
    Unspecified = 0,
    /// Watch.
    ReadStream = 1,
    /// Ask for control.
    RequestControl = 2,
    /// Take control when it is given.
    ReceiveControl = 3,
}
