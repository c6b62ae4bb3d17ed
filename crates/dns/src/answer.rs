//! The response to one message, without IO.

use hickory_proto::op::{
    Edns, Header, HeaderCounts, Message, MessageType, Metadata, OpCode, Query, ResponseCode,
};
use hickory_proto::rr::{DNSClass, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};

use crate::zone::{CHALLENGE_TTL, LookUpResult, Zones};

/// The transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The source address may be another host's: the response is little larger than the request.
    Udp,
    /// The client has its address.
    Tcp,
}

/// The response to a message.
#[derive(Clone, Debug)]
pub struct Response {
    /// The message.
    pub bytes: Vec<u8>,
    /// Its kind, for metrics.
    pub result: QueryResult,
}

/// The kinds of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryResult {
    /// Records.
    Answer,
    /// The name has no records of this type.
    NoData,
    /// The name does not exist.
    NoName,
    /// The name is in no zone, or the query is of a kind that is not answered.
    Refused,
    /// The operation is not a query.
    NotImplemented,
    /// The message is malformed.
    Malformed,
    /// The response is too large for UDP; the client has to use TCP.
    Truncated,
}

impl QueryResult {
    /// The value of the label `result` of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::NoData => "no_data",
            Self::NoName => "no_name",
            Self::Refused => "refused",
            Self::NotImplemented => "not_implemented",
            Self::Malformed => "malformed",
            Self::Truncated => "truncated",
        }
    }
}

impl Zones {
    /// Responds to a message. `None` if it is a response itself or has no header: then nothing may
    /// be sent, or two servers would respond to each other for ever.
    pub fn respond(&self, request: &[u8], transport: Transport) -> Option<Response> {
        let (reply, result) = self.reply(request)?;
        let limit = match transport {
            Transport::Udp => udp_limit(request.len(), reply.payload),
            Transport::Tcp => usize::from(u16::MAX),
        };
        let bytes = reply.message.to_vec().ok()?;
        if bytes.len() <= limit {
            return Some(Response { bytes, result });
        }
        reply.truncate()
    }

    /// The response to a client that has to use TCP: no larger than its request.
    pub(crate) fn respond_truncated(&self, request: &[u8]) -> Option<Response> {
        self.reply(request)?.0.truncate()
    }

    fn reply(&self, request: &[u8]) -> Option<(Reply, QueryResult)> {
        let mut decoder = BinDecoder::new(request);
        let header = Header::read(&mut decoder).ok()?;
        if header.metadata.message_type == MessageType::Response {
            return None;
        }
        let mut reply = Reply::to(&header.metadata);
        if header.metadata.op_code != OpCode::Query {
            let result = reply.refuse(ResponseCode::NotImp, QueryResult::NotImplemented);
            return Some((reply, result));
        }
        let Some((query, extension)) = parse(request, &mut decoder, header.counts) else {
            let result = reply.refuse(ResponseCode::FormErr, QueryResult::Malformed);
            return Some((reply, result));
        };
        let result = self.fill(&mut reply, &query, extension);
        Some((reply, result))
    }

    /// Adds the records for a query.
    fn fill(&self, reply: &mut Reply, query: &Query, extension: Option<Extension>) -> QueryResult {
        let message = &mut reply.message;
        message.add_query(query.clone());
        if let Some(extension) = extension {
            reply.payload = extension.payload;
            let mut edns = Edns::new();
            edns.set_max_payload(MAX_UDP_BYTES);
            edns.set_dnssec_ok(extension.is_dnssec_ok);
            message.set_edns(edns);
            if extension.version != 0 {
                return reply.refuse(ResponseCode::BADVERS, QueryResult::Refused);
            }
        }
        // Nothing here can be transferred.
        let is_transfer = matches!(query.query_type, RecordType::AXFR | RecordType::IXFR);
        let zone = self
            .find(&query.name)
            .filter(|_| query.query_class == DNSClass::IN && !is_transfer);
        let Some(zone) = zone else {
            return reply.refuse(ResponseCode::Refused, QueryResult::Refused);
        };
        message.metadata.authoritative = true;
        let result = match self.look_up(zone, &query.name, query.query_type) {
            LookUpResult::Data(data, ttl) => {
                let records = data
                    .into_iter()
                    .map(|data| Record::from_rdata(query.name.clone(), ttl, data));
                message.add_answers(records);
                return QueryResult::Answer;
            }
            LookUpResult::NoData => QueryResult::NoData,
            LookUpResult::NoName => {
                message.metadata.response_code = ResponseCode::NXDomain;
                QueryResult::NoName
            }
        };
        // In the letters of the query, so that its name is repeated as a pointer.
        let apex = query.name.trim_to(zone.apex().iter().len());
        message.add_authority(Record::from_rdata(apex, CHALLENGE_TTL, self.soa()));
        result
    }
}

/// A response that is being built.
struct Reply {
    message: Message,
    /// The largest datagram that the client takes.
    payload: u16,
}

impl Reply {
    fn to(request: &Metadata) -> Self {
        let mut message = Message::response(request.id, request.op_code);
        message.metadata = Metadata::response_from_request(request);
        Self {
            message,
            payload: MIN_UDP_BYTES,
        }
    }

    fn refuse(&mut self, code: ResponseCode, result: QueryResult) -> QueryResult {
        self.message.metadata.response_code = code;
        result
    }

    /// Removes the records.
    fn truncate(mut self) -> Option<Response> {
        self.message.answers.clear();
        self.message.authorities.clear();
        self.message.metadata.truncation = true;
        Some(Response {
            bytes: self.message.to_vec().ok()?,
            result: QueryResult::Truncated,
        })
    }
}

/// The client's part of EDNS (RFC 6891).
struct Extension {
    payload: u16,
    version: u8,
    is_dnssec_ok: bool,
}

impl Extension {
    /// Parses an OPT record that is the rest of a message. Its options are not used.
    fn parse(rest: &[u8]) -> Option<Self> {
        let (head, options) = rest.split_first_chunk::<11>()?;
        // Root, type 41, size of datagrams, extended code, version, flags, length.
        let &[
            0,
            0,
            41,
            size_high,
            size_low,
            _,
            version,
            flags,
            _,
            high,
            low,
        ] = head
        else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        (length == options.len()).then_some(Self {
            payload: u16::from_be_bytes([size_high, size_low]),
            version,
            is_dnssec_ok: flags & 0x80 != 0,
        })
    }
}

/// The only question of a message. `None` if there is anything else, or the message is malformed.
fn parse(
    request: &[u8],
    decoder: &mut BinDecoder<'_>,
    counts: HeaderCounts,
) -> Option<(Query, Option<Extension>)> {
    let has_records = counts.answers > 0 || counts.authorities > 0;
    if counts.queries != 1 || has_records || counts.additionals > 1 {
        return None;
    }
    let query = Query::read(decoder).ok()?;
    let rest = request.get(decoder.index()..)?;
    let extension = match counts.additionals {
        0 if rest.is_empty() => None,
        0 => return None,
        _ => Some(Extension::parse(rest)?),
    };
    Some((query, extension))
}

/// The largest response over UDP.
fn udp_limit(request: usize, payload: u16) -> usize {
    let payload = payload.clamp(MIN_UDP_BYTES, MAX_UDP_BYTES);
    usize::from(payload).min(request.saturating_mul(MAX_FACTOR))
}

/// Size of a response over UDP relative to its request. Two challenges of a name, or the start of
/// authority, have space beside a name of usual length. Attackers use servers with a factor above 10.
const MAX_FACTOR: usize = 4;

/// Without EDNS (RFC 1035 section 4.2.1).
const MIN_UDP_BYTES: u16 = 512;

/// Larger datagrams are fragmented on some paths (DNS flag day 2020).
const MAX_UDP_BYTES: u16 = 1232;

#[cfg(test)]
mod tests;
