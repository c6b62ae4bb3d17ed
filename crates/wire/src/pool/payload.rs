use prost::Message as _;

use super::head::{FrameType, HEAD_LEN, Head, HeadError};
use crate::error::Error;
use crate::message::{ClientDetails, IpAddress, Kind, Message, ProxyReq};

/// Requests the report about a stream with HTTP exchanges (extension `exchange/1`): the only byte
/// of a `DATA` frame of the engine, after the agent's `END`. It is ENQ of ASCII, with which neither
/// a request nor a TLS record begins.
pub const REPORT_REQUEST: u8 = 5;

/// The first frame of a standing connection, in the framing of the control channel: a [`ProxyReq`]
/// without a stream id. The engine does not respond to it; it closes the connection if the secret
/// is invalid.
pub fn hello(details: ClientDetails) -> Message {
    Kind::ProxyReq(ProxyReq {
        client_details: Some(details),
        stream_id: String::new(),
        zero_rtt: Some(true.into()),
    })
    .into()
}

/// Payload of `OPEN`: the new stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamOpen {
    /// Id of the visitor's tunnel.
    #[prost(string, tag = "1")]
    pub tunnel_id: String,
    /// 24 hex characters.
    #[prost(string, tag = "2")]
    pub stream_id: String,
    /// The visitor's address.
    #[prost(message, optional, tag = "3")]
    pub source_ip: Option<IpAddress>,
    /// The stream started on a lane and continues here (extension `lane/2`).
    #[prost(bool, tag = "4")]
    pub moved: bool,
    /// The stream carries consecutive HTTP exchanges (extension `exchange/1`).
    #[prost(bool, tag = "5")]
    pub exchanges: bool,
    /// Between the engines of a cluster: the encoded
    /// [`ForwardHeader`](crate::cluster::ForwardHeader) of a visitor that one of them forwards.
    /// Empty towards agents.
    #[prost(bytes = "vec", tag = "100")]
    pub forward: Vec<u8>,
}

impl StreamOpen {
    /// Appends the frame, head and payload.
    ///
    /// # Errors
    /// [`HeadError::Length`] if it is empty or too long; `out` is unchanged.
    pub fn encode_frame(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        append(FrameType::Open, self, out)
    }

    /// Decodes the payload of an `OPEN` frame.
    ///
    /// # Errors
    /// It is not a `StreamOpen`, or it has no tunnel and so could not be forwarded.
    pub fn decode_payload(payload: &[u8]) -> Result<Self, PayloadError> {
        let open = Self::decode(payload)?;
        if open.tunnel_id.is_empty() {
            return Err(PayloadError::NoTunnel);
        }
        Ok(open)
    }
}

/// Payload of `RESET`: the number of the aborted stream, and the reason.
///
/// The number is necessary because a `RESET` may follow the `END` of the same side. It may then
/// arrive after the stream is over, when the next one has started.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamReset {
    /// Number of streams that were opened on this connection, including the aborted one.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    /// The reason, if there is one.
    #[prost(message, optional, tag = "2")]
    pub error: Option<Error>,
}

impl StreamReset {
    /// Appends the frame, head and payload. A sentence that would not fit is omitted; the code
    /// stays.
    ///
    /// # Errors
    /// [`HeadError::Length`] for stream 0, which does not exist; `out` is unchanged.
    pub fn encode_frame(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        match append(FrameType::Reset, self, out) {
            Err(_) if self.stream != 0 => {
                let error = self.error.clone().unwrap_or_default();
                let short = Self {
                    stream: self.stream,
                    error: Some(Error {
                        message: None,
                        ..error
                    }),
                };
                append(FrameType::Reset, &short, out)
            }
            other => other,
        }
    }

    /// Decodes the payload of a `RESET` frame.
    ///
    /// # Errors
    /// It is not a `StreamReset`.
    pub fn decode_payload(payload: &[u8]) -> Result<Self, PayloadError> {
        Ok(Self::decode(payload)?)
    }
}

/// A payload that does not match its frame's type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// It is not the message.
    #[error("a frame's payload cannot be read")]
    Message(#[from] prost::DecodeError),
    /// `OPEN` without `tunnel_id`.
    #[error("a stream is opened without a tunnel")]
    NoTunnel,
}

fn append(
    kind: FrameType,
    payload: &impl prost::Message,
    out: &mut Vec<u8>,
) -> Result<(), HeadError> {
    let len = payload.encoded_len();
    let head = Head::new(kind, len)?;
    out.reserve(HEAD_LEN + len);
    out.extend_from_slice(&head.encode());
    payload.encode_raw(out);
    Ok(())
}
