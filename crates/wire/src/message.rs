//! The messages of the agent protocol, as `docs/agent-protocol.md` numbers them.
//!
//! Written by hand rather than generated: the set is small and fixed by the published clients, and
//! this way a build needs no schema compiler. A test compares every number with `agent.proto`.
//!
//! Fields that a peer does not know are skipped, and so is a message whose kind it does not know:
//! such a [`Message`] decodes with `kind: None` and is ignored. Our own additions have numbers
//! from 100 up, out of the way of the protocol that the published clients speak.

mod control;
mod details;
mod stream;
mod tunnel;
mod wrappers;

pub use control::{
    CloseControlChannelReq, CloseControlChannelRsp, ControlChannelLiveness, ControlChannelOk,
    ControlChannelOutcome, Heartbeat, OpenControlChannelReq, OpenControlChannelRsp, PoolReq,
    ServerMessage,
};
pub use details::{ClientDetails, ServerDetails};
pub use stream::{
    Address, DatagramChannelClose, IpAddress, ProxyConnReq, ProxyConnRsp, ProxyReq, ProxyRsp,
    StreamOutcome, StreamReq, StreamRsp,
};
pub use tunnel::{
    CloseTunnelReq, CloseTunnelRsp, OpenTunnelReq, OpenTunnelRsp, TunnelOutcome, TunnelProperties,
};
pub use wrappers::{BoolValue, Secret, StringValue, Timestamp, UInt32Value, text};

/// What one frame carries.
///
/// `kind` is `None` when the peer sent a kind that this version does not know; such a message is
/// ignored, never an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The one thing that this message says.
    #[prost(
        oneof = "Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 100"
    )]
    pub kind: Option<Kind>,
}

/// Everything that can be said. The comment of each variant names who says it.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(
    clippy::large_enum_variant,
    reason = "a message is read, handled and dropped; a box would be an allocation for each"
)]
pub enum Kind {
    /// Agent: the hello of a control channel.
    #[prost(message, tag = "1")]
    OpenControlChannelReq(OpenControlChannelReq),
    /// Engine: the answer to the hello.
    #[prost(message, tag = "2")]
    OpenControlChannelRsp(OpenControlChannelRsp),
    /// Agent: asks to end the control channel.
    #[prost(message, tag = "3")]
    CloseControlChannelReq(CloseControlChannelReq),
    /// Engine: the control channel is over.
    #[prost(message, tag = "4")]
    CloseControlChannelRsp(CloseControlChannelRsp),
    /// Agent: asks for a tunnel.
    #[prost(message, tag = "5")]
    OpenTunnelReq(OpenTunnelReq),
    /// Engine: the tunnel with its effective properties, or why not.
    #[prost(message, tag = "6")]
    OpenTunnelRsp(OpenTunnelRsp),
    /// Agent: asks to end a tunnel.
    #[prost(message, tag = "7")]
    CloseTunnelReq(CloseTunnelReq),
    /// Engine: the tunnel is over, asked for or not.
    #[prost(message, tag = "8")]
    CloseTunnelRsp(CloseTunnelRsp),
    /// Engine: a visitor waits, dial back for it.
    #[prost(message, tag = "9")]
    ProxyConnReq(ProxyConnReq),
    /// Agent: the visitor is taken or refused.
    #[prost(message, tag = "10")]
    ProxyConnRsp(ProxyConnRsp),
    /// Agent: the hello of a data connection.
    #[prost(message, tag = "11")]
    ProxyReq(ProxyReq),
    /// Engine: the answer to a [`ProxyReq`] without zero-RTT.
    #[prost(message, tag = "12")]
    ProxyRsp(ProxyRsp),
    /// Dialler: the hello of a connection to a private tunnel.
    #[prost(message, tag = "13")]
    StreamReq(StreamReq),
    /// Engine: the answer to a [`StreamReq`] without zero-RTT.
    #[prost(message, tag = "14")]
    StreamRsp(StreamRsp),
    /// Both: see [`liveness`](crate::liveness).
    #[prost(message, tag = "15")]
    Heartbeat(Heartbeat),
    /// Engine: a line for the person who runs the agent.
    #[prost(message, tag = "16")]
    ServerMessage(ServerMessage),
    /// Both: a datagram channel is over.
    #[prost(message, tag = "17")]
    DatagramChannelClose(DatagramChannelClose),
    /// Engine, extension `pool/1`: open further standing connections.
    #[prost(message, tag = "100")]
    PoolReq(PoolReq),
}

impl From<Kind> for Message {
    fn from(kind: Kind) -> Self {
        Self { kind: Some(kind) }
    }
}
