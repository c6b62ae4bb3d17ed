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
    if !response.metadata.truncation && question.has_same_case(&response) {
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
        // With the random port of the socket and the case of the letters, an attacker off the path
        // would have to guess 32 bits and one for each letter.
        let id = random::bytes::<2>().map_err(|_| ExchangeError::Question)?;
        let id = u16::from_be_bytes(id);
        let query = Query::query(with_random_case(name)?, kind);
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

    /// True if the response repeats the name with the case of each letter. A server that changes the
    /// case, or an attacker that does not know it, causes another question over TCP.
    fn has_same_case(&self, response: &Message) -> bool {
        let queries = &response.queries;
        queries
            .iter()
            .all(|query| query.name.eq_case(&self.query.name))
    }
}

/// The name with a random case of each letter. Servers ignore the case, and repeat the name as it is
/// in the question.
fn with_random_case(name: &Name) -> Result<Name, ExchangeError> {
    let random = random::bytes::<MAX_NAME_BYTES>().map_err(|_| ExchangeError::Question)?;
    let mut random = random.into_iter();
    let labels = name.iter().map(|label| -> Vec<u8> {
        let bytes = label.iter().zip(random.by_ref());
        let cased = bytes.map(|(byte, random)| {
            if random & 1 == 0 {
                byte.to_ascii_lowercase()
            } else {
                byte.to_ascii_uppercase()
            }
        });
        cased.collect()
    });
    let mut cased = Name::from_labels(labels).map_err(|_| ExchangeError::Question)?;
    cased.set_fqdn(true);
    Ok(cased)
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

/// Maximum bytes of a name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 255;

/// The size that passes every path (DNS flag day 2020).
const ADVERTISED_BYTES: u16 = 1_232;
const MAX_UDP_BYTES: usize = 1_232;

/// Datagrams that are read until the response: an attacker cannot keep the task busy.
const MAX_DATAGRAMS: usize = 16;

/// Name servers respond within a fraction of this time.
const UDP_TIMEOUT: Duration = Duration::from_secs(2);

/// Three round trips to the other side of the earth.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_response_would_need_the_case_of_each_letter() {
        let name = Name::from_ascii("_svc-challenge.app.example.com.").unwrap();
        let question = Question::new(&name, RecordType::TXT).unwrap();
        assert_eq!(question.query.name, name);
        assert!(question.query.name.is_fqdn());
        // Two questions with the same case of 25 letters are rarer than a wrong bit of memory.
        let cases: Vec<_> = (0..4)
            .map(|_| Question::new(&name, RecordType::TXT).unwrap().query.name)
            .collect();
        assert!(cases.iter().any(|case| !case.eq_case(&question.query.name)));

        let mut reply = Message::response(question.id, OpCode::Query);
        reply.add_query(question.query.clone());
        let own = question.response(&reply.to_vec().unwrap()).unwrap();
        assert!(question.has_same_case(&own));
        let mut forged = Message::response(question.id, OpCode::Query);
        let other = cases
            .into_iter()
            .find(|case| !case.eq_case(&question.query.name));
        forged.add_query(Query::query(other.unwrap(), RecordType::TXT));
        let other = question.response(&forged.to_vec().unwrap()).unwrap();
        assert!(!question.has_same_case(&other));
    }

    #[test]
    fn the_longest_name_can_be_asked() {
        let label = "a".repeat(63);
        let name = format!("{label}.{label}.{label}.{}.", "b".repeat(61));
        let name = Name::from_ascii(name).unwrap();
        assert!(Question::new(&name, RecordType::A).is_ok());
        assert!(Question::new(&Name::root(), RecordType::NS).is_ok());
    }
}
