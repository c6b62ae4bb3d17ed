//! One question to one name server, over UDP, and over TCP if the response does not fit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::runtime::random;

/// A name server did not respond to a question.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The network.
    #[error("the connection failed")]
    Network(#[from] io::Error),
    /// No response in time.
    #[error("it did not respond")]
    Timeout,
    /// The response is not one to the question.
    #[error("its response is not valid")]
    Invalid,
    /// No random number, or a name that cannot be encoded.
    #[error("the question could not be encoded")]
    Question,
}

/// Asks a name server for the records of one type at a name, without recursion.
pub(super) async fn ask(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
) -> Result<Message, ExchangeError> {
    let question = Question::new(name, kind)?;
    let response = timeout(UDP_TIMEOUT, over_udp(server, &question)).await;
    let response = response.map_err(|_| ExchangeError::Timeout)??;
    if !response.metadata.truncation {
        return Ok(response);
    }
    let response = timeout(TCP_TIMEOUT, over_tcp(server, &question)).await;
    response.map_err(|_| ExchangeError::Timeout)?
}

/// A question in its encoded form.
struct Question {
    id: u16,
    query: Query,
    bytes: Vec<u8>,
}

impl Question {
    fn new(name: &Name, kind: RecordType) -> Result<Self, ExchangeError> {
        // With the random port of the socket, an attacker off the path would have to guess 32 bits.
        let id = random::bytes::<2>().map_err(|_| ExchangeError::Question)?;
        let id = u16::from_be_bytes(id);
        let query = Query::query(name.clone(), kind);
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = false;
        message.add_query(query.clone());
        let mut edns = Edns::new();
        edns.set_max_payload(ADVERTISED_BYTES);
        message.set_edns(edns);
        let bytes = message.to_vec().map_err(|_| ExchangeError::Question)?;
        Ok(Self { id, query, bytes })
    }

    /// The message, if it is a response to this question.
    fn response(&self, bytes: &[u8]) -> Option<Message> {
        let message = Message::from_vec(bytes).ok()?;
        let is_response = message.metadata.id == self.id
            && message.metadata.message_type == MessageType::Response
            && message.metadata.op_code == OpCode::Query;
        let is_ours = |query: &Query| {
            query.name == self.query.name
                && query.query_type == self.query.query_type
                && query.query_class == DNSClass::IN
        };
        let [query] = message.queries.as_slice() else {
            return None;
        };
        (is_response && is_ours(query)).then_some(message)
    }
}

async fn over_udp(server: SocketAddr, question: &Question) -> Result<Message, ExchangeError> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).await?;
    // The kernel then drops datagrams of other addresses.
    socket.connect(server).await?;
    socket.send(&question.bytes).await?;
    let mut buffer = [0; MAX_UDP_BYTES];
    for _ in 0..MAX_DATAGRAMS {
        let length = socket.recv(&mut buffer).await?;
        let datagram = buffer.get(..length).unwrap_or_default();
        // Another datagram may be forged. The real response can still arrive.
        if let Some(response) = question.response(datagram) {
            return Ok(response);
        }
    }
    Err(ExchangeError::Invalid)
}

async fn over_tcp(server: SocketAddr, question: &Question) -> Result<Message, ExchangeError> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.bytes.len()).map_err(|_| ExchangeError::Question)?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&question.bytes);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    question.response(&bytes).ok_or(ExchangeError::Invalid)
}

/// The size that passes every path (DNS flag day 2020).
const ADVERTISED_BYTES: u16 = 1_232;
const MAX_UDP_BYTES: usize = 1_232;

/// Datagrams that are read until the response: an attacker cannot keep the task busy.
const MAX_DATAGRAMS: usize = 16;

/// Name servers respond within a fraction of this time.
const UDP_TIMEOUT: Duration = Duration::from_secs(2);

/// Three round trips to the other side of the earth.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);
