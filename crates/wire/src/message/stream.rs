//! Messages about streams: one visitor's bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::details::ClientDetails;
use super::wrappers::{BoolValue, Secret, StringValue};
use crate::error::Error;

/// A visitor waits: the agent dials back and shows `secret`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyConnReq {
    /// The tunnel that the visitor asked for.
    #[prost(string, tag = "1")]
    pub tunnel_id: String,
    /// 24 hex characters.
    #[prost(string, tag = "2")]
    pub stream_id: String,
    /// Valid once, for this client, for a short time.
    #[prost(message, optional, tag = "3")]
    pub secret: Option<Secret>,
    /// The visitor's address.
    #[prost(message, optional, tag = "4")]
    pub source_ip: Option<IpAddress>,
    /// Where to dial instead of the engine that the control channel leads to.
    #[prost(message, optional, tag = "5")]
    pub proxy_endpoint: Option<StringValue>,
}

impl ProxyConnReq {
    /// Most requests that an engine leaves open with one agent at a time; the rest wait. The
    /// published clients dial for 64 at a time, queue 256 more (some 1,024), and give up their
    /// control channel beyond that.
    pub const MAX_PENDING: usize = 64;
}

/// The agent takes or refuses a visitor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyConnRsp {
    /// That of the [`ProxyConnReq`].
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Present when the agent refuses.
    #[prost(message, optional, tag = "2")]
    pub error: Option<Error>,
}

/// The hello of a data connection. An empty `stream_id` is the hello of a standing connection
/// ([`pool`](crate::pool)), whose proof is the pool secret.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyReq {
    /// Who dials; `token` is the secret.
    #[prost(message, optional, tag = "1")]
    pub client_details: Option<ClientDetails>,
    /// The stream that this connection will carry.
    #[prost(string, tag = "2")]
    pub stream_id: String,
    /// Whether bytes follow at once, without a [`ProxyRsp`].
    #[prost(message, optional, tag = "3")]
    pub zero_rtt: Option<BoolValue>,
}

/// The answer to a [`ProxyReq`] without zero-RTT.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyRsp {
    /// Present when the engine refuses.
    #[prost(message, optional, tag = "1")]
    pub error: Option<Error>,
}

/// The hello of a connection to a private tunnel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamReq {
    /// Who dials, with its token.
    #[prost(message, optional, tag = "1")]
    pub client_details: Option<ClientDetails>,
    /// Id or name of the tunnel.
    #[prost(string, tag = "2")]
    pub tunnel_id_name: String,
    /// Whether bytes follow at once, without a [`StreamRsp`].
    #[prost(message, optional, tag = "3")]
    pub zero_rtt: Option<BoolValue>,
    /// Whether this opens a datagram channel.
    #[prost(message, optional, tag = "4")]
    pub datagram_channel: Option<BoolValue>,
}

/// The answer to a [`StreamReq`] without zero-RTT.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamRsp {
    /// The stream, or why there is none.
    #[prost(oneof = "StreamOutcome", tags = "1, 2")]
    pub outcome: Option<StreamOutcome>,
}

/// How a private dial ended.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StreamOutcome {
    /// The stream's id, 24 hex characters.
    #[prost(string, tag = "1")]
    StreamId(String),
    /// No stream.
    #[prost(message, tag = "2")]
    Error(Error),
}

/// A datagram channel is over.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DatagramChannelClose {
    /// The channel.
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Why, where something went wrong.
    #[prost(message, optional, tag = "2")]
    pub error: Option<Error>,
}

/// A visitor's address as the wire has it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct IpAddress {
    /// One of the two families.
    #[prost(oneof = "Address", tags = "1, 2")]
    pub address: Option<Address>,
}

/// One of the two address families.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Address {
    /// The address as a number: `192.0.2.1` is `0xC000_0201`.
    #[prost(fixed32, tag = "1")]
    V4(u32),
    /// 16 bytes in network order.
    #[prost(bytes = "vec", tag = "2")]
    V6(Vec<u8>),
}

impl From<IpAddr> for IpAddress {
    fn from(address: IpAddr) -> Self {
        let address = match address.to_canonical() {
            IpAddr::V4(v4) => Address::V4(v4.to_bits()),
            IpAddr::V6(v6) => Address::V6(v6.octets().to_vec()),
        };
        Self {
            address: Some(address),
        }
    }
}

impl IpAddress {
    /// The address, or `None` where the peer sent none or one of a wrong length.
    pub fn to_ip(&self) -> Option<IpAddr> {
        match self.address.as_ref()? {
            Address::V4(bits) => Some(IpAddr::V4(Ipv4Addr::from_bits(*bits))),
            Address::V6(octets) => {
                let octets: [u8; 16] = octets.as_slice().try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(octets)))
            }
        }
    }
}
