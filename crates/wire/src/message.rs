//! The messages of the agent protocol, numbered as in `docs/agent-protocol.md`.
//!
//! They are written by hand rather than generated: the set is small and fixed by the published
//! clients, and a build needs no schema compiler. A test compares every number with `agent.proto`.
//!
//! Unknown fields are skipped, and so are messages of an unknown kind: such a [`Message`] decodes
//! with `kind: None` and is ignored. Our own additions have numbers from 100 up, so that they do
//! not collide with the protocol of the published clients.

mod control;
mod details;
mod stream;
mod tunnel;
mod wrappers;

pub use control::{
    CloseControlChannelReq, CloseControlChannelRsp, ControlChannelLiveness, ControlChannelOk,
    ControlChannelOutcome, Heartbeat, MoveReq, MoveRsp, OpenControlChannelReq,
    OpenControlChannelRsp, PoolReq, ServerMessage,
};
pub use details::{ClientDetails, ServerDetails};
pub use stream::{
    Address, DatagramChannelClose, IpAddress, ProxyConnReq, ProxyConnRsp, ProxyReq, ProxyRsp,
    StreamOutcome, StreamReq, StreamRsp,
};
pub use tunnel::{
    BasicAuthUser, CloseTunnelReq, CloseTunnelRsp, OpenTunnelReq, OpenTunnelRsp, TunnelOutcome,
    TunnelProperties,
};
pub use wrappers::{BoolValue, Secret, StringValue, Timestamp, UInt32Value, text};

/// The content of one frame.
///
/// `kind` is `None` if the peer sent a kind that this version does not have; such a message is
/// ignored, never an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The content of this message.
    #[prost(
        oneof = "Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 100, 101, 102"
    )]
    pub kind: Option<Kind>,
}

/// All kinds of messages. The comment of each variant names the sender.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(
    clippy::large_enum_variant,
    reason = "a message is read, handled and dropped; a box would be an allocation for each"
)]
pub enum Kind {
    /// Agent: the hello of a control channel.
    #[prost(message, tag = "1")]
    OpenControlChannelReq(OpenControlChannelReq),
    /// Engine: the response to the hello.
    #[prost(message, tag = "2")]
    OpenControlChannelRsp(OpenControlChannelRsp),
    /// Agent: requests the end of the control channel.
    #[prost(message, tag = "3")]
    CloseControlChannelReq(CloseControlChannelReq),
    /// Engine: the control channel has ended.
    #[prost(message, tag = "4")]
    CloseControlChannelRsp(CloseControlChannelRsp),
    /// Agent: requests a tunnel.
    #[prost(message, tag = "5")]
    OpenTunnelReq(OpenTunnelReq),
    /// Engine: the tunnel with its effective properties, or an error.
    #[prost(message, tag = "6")]
    OpenTunnelRsp(OpenTunnelRsp),
    /// Agent: requests the end of a tunnel.
    #[prost(message, tag = "7")]
    CloseTunnelReq(CloseTunnelReq),
    /// Engine: the tunnel has ended, requested or not.
    #[prost(message, tag = "8")]
    CloseTunnelRsp(CloseTunnelRsp),
    /// Engine: a visitor waits; the agent has to open a data connection for it.
    #[prost(message, tag = "9")]
    ProxyConnReq(ProxyConnReq),
    /// Agent: the visitor is accepted or refused.
    #[prost(message, tag = "10")]
    ProxyConnRsp(ProxyConnRsp),
    /// Agent: the hello of a data connection.
    #[prost(message, tag = "11")]
    ProxyReq(ProxyReq),
    /// Engine: the response to a [`ProxyReq`] without zero-RTT.
    #[prost(message, tag = "12")]
    ProxyRsp(ProxyRsp),
    /// Dialler: the hello of a connection to a private tunnel.
    #[prost(message, tag = "13")]
    StreamReq(StreamReq),
    /// Engine: the response to a [`StreamReq`] without zero-RTT.
    #[prost(message, tag = "14")]
    StreamRsp(StreamRsp),
    /// Both: see [`liveness`](crate::liveness).
    #[prost(message, tag = "15")]
    Heartbeat(Heartbeat),
    /// Engine: a line for the user of the agent.
    #[prost(message, tag = "16")]
    ServerMessage(ServerMessage),
    /// Both: a datagram channel has ended.
    #[prost(message, tag = "17")]
    DatagramChannelClose(DatagramChannelClose),
    /// Engine, extension `pool/1`: open further standing connections.
    #[prost(message, tag = "100")]
    PoolReq(PoolReq),
    /// Engine, extension `move/1`: open a control channel to another process.
    #[prost(message, tag = "101")]
    MoveReq(MoveReq),
    /// Agent, extension `move/1`: the tunnels are online there.
    #[prost(message, tag = "102")]
    MoveRsp(MoveRsp),
}

impl From<Kind> for Message {
    fn from(kind: Kind) -> Self {
        Self { kind: Some(kind) }
    }
}
