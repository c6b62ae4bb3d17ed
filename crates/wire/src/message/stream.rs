//! Messages about streams: the bytes of one visitor.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::details::ClientDetails;
use super::wrappers::{BoolValue, Secret, StringValue};
use crate::error::Error;

/// A visitor waits: the agent opens a data connection and authenticates with `secret`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyConnReq {
    /// Id of the visitor's tunnel.
    #[prost(string, tag = "1")]
    pub tunnel_id: String,
    /// 24 hex characters.
    #[prost(string, tag = "2")]
    pub stream_id: String,
    /// Valid once, for this client and for a short time.
    #[prost(message, optional, tag = "3")]
    pub secret: Option<Secret>,
    /// The visitor's address.
    #[prost(message, optional, tag = "4")]
    pub source_ip: Option<IpAddress>,
    /// Address to dial instead of the engine of the control channel.
    #[prost(message, optional, tag = "5")]
    pub proxy_endpoint: Option<StringValue>,
}

impl ProxyConnReq {
    /// Limit of open requests of an engine to one agent; further ones wait. The published clients
    /// dial for 64 at a time, queue 256 more (some 1,024), and abort their control channel beyond
    /// that.
    pub const MAX_PENDING: usize = 64;
}

/// The agent accepts or refuses a visitor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyConnRsp {
    /// Id of the [`ProxyConnReq`].
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// Present when the agent refuses.
    #[prost(message, optional, tag = "2")]
    pub error: Option<Error>,
}

/// The hello of a data connection. An empty `stream_id` is the hello of a standing connection
/// ([`pool`](crate::pool)), which authenticates with the pool secret.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyReq {
    /// The client; `token` is the secret.
    #[prost(message, optional, tag = "1")]
    pub client_details: Option<ClientDetails>,
    /// The stream of this connection.
    #[prost(string, tag = "2")]
    pub stream_id: String,
    /// True if bytes follow immediately, without a [`ProxyRsp`].
    #[prost(message, optional, tag = "3")]
    pub zero_rtt: Option<BoolValue>,
}

/// The response to a [`ProxyReq`] without zero-RTT.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProxyRsp {
    /// Present when the engine refuses.
    #[prost(message, optional, tag = "1")]
    pub error: Option<Error>,
}

/// The hello of a connection to a private tunnel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamReq {
    /// The dialler and its token.
    #[prost(message, optional, tag = "1")]
    pub client_details: Option<ClientDetails>,
    /// Id or name of the tunnel.
    #[prost(string, tag = "2")]
    pub tunnel_id_name: String,
    /// True if bytes follow immediately, without a [`StreamRsp`].
    #[prost(message, optional, tag = "3")]
    pub zero_rtt: Option<BoolValue>,
    /// True if this opens a datagram channel.
    #[prost(message, optional, tag = "4")]
    pub datagram_channel: Option<BoolValue>,
}

/// The response to a [`StreamReq`] without zero-RTT.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamRsp {
    /// The stream, or an error.
    #[prost(oneof = "StreamOutcome", tags = "1, 2")]
    pub outcome: Option<StreamOutcome>,
}

/// Result of a dial.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StreamOutcome {
    /// The stream's id, 24 hex characters.
    #[prost(string, tag = "1")]
    StreamId(String),
    /// No stream.
    #[prost(message, tag = "2")]
    Error(Error),
}

/// A datagram channel has ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DatagramChannelClose {
    /// The channel.
    #[prost(string, tag = "1")]
    pub stream_id: String,
    /// The reason, if there was an error.
    #[prost(message, optional, tag = "2")]
    pub error: Option<Error>,
}

/// A visitor's address in its wire format.
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
    /// The address, or `None` if the peer sent none or one with a wrong length.
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
