//! The header of a forwarded stream, in its opening.

use std::net::{IpAddr, SocketAddr};

use prost::Message as _;

use crate::message::IpAddress;
use crate::pool::StreamOpen;

/// Largest length of the name of a tunnel, of a project and of a reference: that of a host name.
pub const MAX_NAME: usize = 253;

/// The header as it is on the wire, in [`StreamOpen::forward`], which an agent never gets.
/// [`ForwardedVisitor::decode`] checks it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForwardHeader {
    /// The name by which the visitor reached the tunnel: a host name, or `tcp:` and a port.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Id of the tunnel's project.
    #[prost(string, tag = "2")]
    pub project: String,
    /// Generation of the name's ownership, if it is known.
    #[prost(uint64, optional, tag = "3")]
    pub generation: Option<u64>,
    /// The visitor's port; its address is in [`StreamOpen::source_ip`].
    #[prost(uint32, tag = "4")]
    pub source_port: u32,
    /// Reference of the record of the visit, if there is one.
    #[prost(string, optional, tag = "5")]
    pub reference: Option<String>,
    /// The engine has terminated the visitor's TLS session.
    #[prost(bool, tag = "6")]
    pub is_terminated: bool,
    /// A [`StreamProtocol`].
    #[prost(enumeration = "StreamProtocol", tag = "7")]
    pub protocol: i32,
}

/// The bytes of a forwarded stream, which decide if it may share a connection with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StreamProtocol {
    /// An unknown protocol.
    Bytes = 0,
    /// Consecutive exchanges of HTTP/1.1.
    Exchanges = 1,
    /// The same inside TLS.
    TlsExchanges = 2,
    /// Concurrent exchanges of HTTP/2.
    Shared = 3,
}

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedVisitor {
    /// The name by which the visitor reached the tunnel.
    pub name: String,
    /// Id of the tunnel's project.
    pub project: String,
    /// Generation of the name's ownership, if it is known.
    pub generation: Option<u64>,
    /// The visitor's address.
    pub source: SocketAddr,
    /// Reference of the record of the visit, if there is one.
    pub reference: Option<String>,
    /// The engine has terminated the visitor's TLS session.
    pub is_terminated: bool,
    /// The bytes of the stream.
    pub protocol: StreamProtocol,
}

/// Reasons why an opening is not one of a forwarded stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardingError {
    /// It has no header.
    #[error("the stream has no header of a forwarded visitor")]
    Missing,
    /// The header is not a [`ForwardHeader`].
    #[error("the header of a forwarded stream cannot be read")]
    Unreadable,
    /// A value that no engine sends.
    #[error("the {0} of a forwarded stream is invalid")]
    Field(&'static str),
}

impl ForwardedVisitor {
    /// The header on the wire, for [`StreamOpen::forward`].
    pub fn encode(&self) -> Vec<u8> {
        let header = ForwardHeader {
            name: self.name.clone(),
            project: self.project.clone(),
            generation: self.generation,
            source_port: self.source.port().into(),
            reference: self.reference.clone(),
            is_terminated: self.is_terminated,
            protocol: self.protocol as i32,
        };
        header.encode_to_vec()
    }

    /// Checks the header of an opening.
    ///
    /// # Errors
    /// [`ForwardingError`].
    pub fn decode(open: &StreamOpen) -> Result<Self, ForwardingError> {
        if open.forward.is_empty() {
            return Err(ForwardingError::Missing);
        }
        let header = ForwardHeader::decode(open.forward.as_slice());
        let header = header.map_err(|_| ForwardingError::Unreadable)?;
        let address = open.source_ip.as_ref().and_then(IpAddress::to_ip);
        let address: IpAddr = address.ok_or(ForwardingError::Field("source address"))?;
        let port = u16::try_from(header.source_port);
        let port = port.map_err(|_| ForwardingError::Field("source port"))?;
        let protocol = StreamProtocol::try_from(header.protocol);
        let protocol = protocol.map_err(|_| ForwardingError::Field("protocol"))?;
        if !is_name(&header.name) {
            return Err(ForwardingError::Field("name"));
        }
        if !is_name(&header.project) {
            return Err(ForwardingError::Field("project"));
        }
        if !header.reference.as_deref().is_none_or(is_name) {
            return Err(ForwardingError::Field("reference"));
        }
        Ok(Self {
            name: header.name,
            project: header.project,
            generation: header.generation,
            source: SocketAddr::new(address, port),
            reference: header.reference,
            is_terminated: header.is_terminated,
            protocol,
        })
    }
}

/// Returns true for a name that may be logged: visible ASCII.
fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
