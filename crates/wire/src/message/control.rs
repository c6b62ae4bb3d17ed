//! Messages about the control channel itself.

use std::fmt;

use super::details::{ClientDetails, ServerDetails};
use crate::error::Error;

/// The hello of a control channel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenControlChannelReq {
    /// The client and its token.
    #[prost(message, optional, tag = "1")]
    pub client_details: Option<ClientDetails>,
    /// The heartbeat that the client proposes; absent in the old mode.
    #[prost(message, optional, tag = "2")]
    pub liveness: Option<ControlChannelLiveness>,
}

/// The response to the hello.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenControlChannelRsp {
    /// Accepted or refused.
    #[prost(oneof = "ControlChannelOutcome", tags = "1, 2")]
    pub outcome: Option<ControlChannelOutcome>,
}

/// Result of a hello.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(
    clippy::large_enum_variant,
    reason = "a channel has one, which is not stored"
)]
pub enum ControlChannelOutcome {
    /// The channel is open.
    #[prost(message, tag = "1")]
    Ok(ControlChannelOk),
    /// The channel is refused.
    #[prost(message, tag = "2")]
    Error(Error),
}

/// Information for an accepted client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ControlChannelOk {
    /// The id that the engine assigned to this client.
    #[prost(string, tag = "1")]
    pub client_id: String,
    /// Information about the engine.
    #[prost(message, optional, tag = "2")]
    pub server_details: Option<ServerDetails>,
    /// The agreed heartbeat; present if and only if the client proposed one.
    #[prost(message, optional, tag = "3")]
    pub liveness: Option<ControlChannelLiveness>,
}

/// The parameters of the heartbeat, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ControlChannelLiveness {
    /// Time between two heartbeats of the client.
    #[prost(uint32, tag = "1")]
    pub heartbeat_interval_ms: u32,
    /// Silence after which either end treats the other one as gone; 0 in a proposal.
    #[prost(uint32, tag = "2")]
    pub heartbeat_timeout_ms: u32,
}

/// Requests the end of the control channel.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CloseControlChannelReq {}

/// Confirms the end of the control channel.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CloseControlChannelRsp {}

/// A sign of life, see [`liveness`](crate::liveness).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Heartbeat {
    /// The client's sequence number; 0 from an engine and in the old mode.
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    /// The last sequence number that the engine received; 0 from a client and in the old mode.
    #[prost(uint64, tag = "2")]
    pub acknowledgement: u64,
}

/// A line for the user of the agent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServerMessage {
    /// The line.
    #[prost(string, tag = "1")]
    pub message: String,
}

impl ServerMessage {
    /// Another channel of the same identity has taken over a name: the agent that receives this
    /// does not request that tunnel again.
    pub const TAKEN_OVER: &'static str = "taken_over";

    /// A caller of the Engine API closed a tunnel: the agent that receives this does not request that
    /// tunnel again.
    pub const CLOSED_BY_CALLER: &'static str = "closed_by_caller";
}

/// Our extension `pool/1`: the engine requests `count` further standing connections.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct PoolReq {
    /// The secret for the hello of each of them; valid for the lifetime of the channel.
    #[prost(string, tag = "1")]
    pub secret: String,
    /// Number of connections to open.
    #[prost(uint32, tag = "2")]
    pub count: u32,
    /// Time without a stream after which the agent may close one.
    #[prost(uint32, tag = "3")]
    pub idle_timeout_ms: u32,
}

/// Our extension `move/1`: the engine is being replaced, and the agent opens a control channel to the
/// new process. This channel stays open meanwhile.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MoveReq {
    /// The new process, as [`process_protocol`](crate::handshake::process_protocol) names it.
    #[prost(string, tag = "1")]
    pub process: String,
}

/// Our extension `move/1`: the tunnels of this channel are online at the new process.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MoveRsp {}

impl fmt::Debug for PoolReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolReq")
            .field("count", &self.count)
            .field("idle_timeout_ms", &self.idle_timeout_ms)
            .finish_non_exhaustive()
    }
}
