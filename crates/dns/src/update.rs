//! Updates of the records of another server (RFC 2136), signed with TSIG (RFC 8945).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::ProtoError;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::key::{KeyError, KeySource, TsigKey};
use crate::name::{NameError, parse_name};

/// A server whose records can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsUpdate {
    /// Name or address of the zone's primary server.
    pub server: String,
    /// Its port for TCP.
    pub port: u16,
    /// The zone; without it, the server is asked for the one that contains a name.
    pub zone: Option<String>,
    /// The key that both have.
    pub key: KeySource,
}

/// Reason why a record was not changed. Each text ends with the next step.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The key cannot be read.
    #[error("the key in {0}")]
    Key(#[from] KeyError),
    /// A name is none of DNS.
    #[error("{0}; correct `dns_update`")]
    Name(#[from] NameError),
    /// There is no connection.
    #[error(
        "the name server {server} cannot be reached: {problem}; check `server` and that it accepts \
         TCP from here"
    )]
    Connection {
        /// The server.
        server: String,
        /// Cause.
        problem: String,
    },
    /// The server's response is malformed, belongs to another request, or has a wrong signature.
    #[error(
        "the response of the name server cannot be trusted: {0}; check `server`, and that the key \
         is the same on both sides"
    )]
    Response(&'static str),
    /// The server does not accept the signature.
    #[error(
        "the name server refuses the key: {}; {}",
        signature_problem(*code),
        signature_step(*code)
    )]
    Signature {
        /// The code in the signature of the response.
        code: u16,
    },
    /// The server does not change the zone.
    #[error(
        "the name server refuses to {action}: {}; {}",
        code_text(*code),
        step_after(*code)
    )]
    Refused {
        /// The request, as the end of a sentence.
        action: &'static str,
        /// The code of the response.
        code: ResponseCode,
    },
    /// A library failed; never caused by the server.
    #[error("the update cannot be prepared: {0}; report this as a defect")]
    Internal(String),
}

/// Meaning of a code of TSIG (RFC 8945 section 3).
fn signature_problem(code: u16) -> String {
    match TsigError::from(code) {
        TsigError::BadSig => "BADSIG".to_owned(),
        TsigError::BadKey => "BADKEY".to_owned(),
        TsigError::BadTime => "BADTIME".to_owned(),
        TsigError::BadTrunc => "BADTRUNC".to_owned(),
        TsigError::Unknown(code) => format!("code {code}"),
    }
}

fn signature_step(code: u16) -> &'static str {
    match TsigError::from(code) {
        TsigError::BadSig => "enter the same secret in `key_file` and on the server",
        TsigError::BadKey => {
            "use the name and the algorithm of a key that the server has (`key_name`, `algorithm`)"
        }
        TsigError::BadTime => "correct the clock of this host, or of the server",
        TsigError::BadTrunc | TsigError::Unknown(_) => "see the log of the server",
    }
}

/// The name of a code (RFC 2136 section 2.2), as other programs print it.
fn code_text(code: ResponseCode) -> String {
    match code {
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::NotAuth => "NOTAUTH".to_owned(),
        ResponseCode::NotZone => "NOTZONE".to_owned(),
        other => format!("code {}", u16::from(other)),
    }
}

fn step_after(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::Refused => {
            "allow the key to change TXT records of the challenges (BIND: update-policy)"
        }
        ResponseCode::NotAuth | ResponseCode::NotZone => {
            "set `zone` to a zone whose primary server is `server`"
        }
        ResponseCode::NotImp => "use a server that supports updates (RFC 2136)",
        _ => "see the log of the server",
    }
}

fn internal(error: impl std::fmt::Display) -> UpdateError {
    UpdateError::Internal(error.to_string())
}

impl DnsUpdate {
    /// Adds a TXT record, and keeps others of the same name. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`UpdateError`]; the record may exist.
    pub async fn add(&self, name: &str, text: &str, now: i64) -> Result<(), UpdateError> {
        let name = parse_name(name)?;
        let record = record(&name, text, RECORD_TTL);
        self.change(&name, record, now).await
    }

    /// Removes this record, and keeps others of the same name. One that is missing is not an error.
    ///
    /// # Errors
    /// [`UpdateError`]; the record may still exist.
    pub async fn remove(&self, name: &str, text: &str, now: i64) -> Result<(), UpdateError> {
        let name = parse_name(name)?;
        let mut record = record(&name, text, 0);
        // This class means: delete (RFC 2136 section 2.5.4).
        record.dns_class = DNSClass::NONE;
        self.change(&name, record, now).await
    }

    async fn change(&self, name: &Name, record: Record, now: i64) -> Result<(), UpdateError> {
        let zone = self.zone.as_deref().map(parse_name).transpose()?;
        let exchange = Exchange {
            signer: signer(&self.key.read()?)?,
            now: u64::try_from(now).unwrap_or_default(),
        };
        let changed = timeout(TIME, async {
            let mut stream = self.connect().await?;
            let zone = match zone {
                Some(zone) => zone,
                None => exchange.zone_of(&mut stream, name).await?,
            };
            if !zone.zone_of(name) {
                return Err(UpdateError::Refused {
                    action: "change a record",
                    code: ResponseCode::NotZone,
                });
            }
            exchange.update(&mut stream, zone, record).await
        });
        let failed = |problem: &str| UpdateError::Connection {
            server: self.server.clone(),
            problem: problem.to_owned(),
        };
        match changed.await {
            Ok(Err(UpdateError::Connection { problem, .. })) => Err(failed(&problem)),
            Ok(changed) => changed,
            Err(_) => Err(failed("it did not respond in time")),
        }
    }

    /// Connects to the first address that accepts.
    async fn connect(&self) -> Result<TcpStream, UpdateError> {
        let addresses = tokio::net::lookup_host((self.server.as_str(), self.port)).await;
        let addresses: Vec<SocketAddr> = addresses.map_err(io_error)?.take(MAX_ADDRESSES).collect();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(elapsed) => last = elapsed.into(),
            }
        }
        Err(io_error(last))
    }
}

/// The server's name is added by the caller.
#[expect(clippy::needless_pass_by_value, reason = "the form of map_err")]
fn io_error(error: io::Error) -> UpdateError {
    UpdateError::Connection {
        server: String::new(),
        problem: error.to_string(),
    }
}

fn record(name: &Name, text: &str, ttl: u32) -> Record {
    let data = RData::TXT(TXT::new(vec![text.to_owned()]));
    Record::from_rdata(name.clone(), ttl, data)
}

fn signer(key: &TsigKey) -> Result<TSigner, UpdateError> {
    let algorithm = key.algorithm().of_messages();
    let signer = TSigner::new(key.secret().to_vec(), algorithm, key.name().clone(), FUDGE);
    signer.map_err(internal)
}

/// Signed requests of one change.
struct Exchange {
    signer: TSigner,
    now: u64,
}

impl Exchange {
    /// The zone that contains a name, by the server's own answer.
    async fn zone_of(&self, stream: &mut TcpStream, name: &Name) -> Result<Name, UpdateError> {
        let mut message = Message::query();
        message.add_query(Query::query(name.clone(), RecordType::SOA));
        let response = self.send(stream, message).await?;
        let code = response.metadata.response_code;
        // The name itself often does not exist yet; the authority section has its zone.
        let mut records = response.answers.iter().chain(&response.authorities);
        let found = records
            .find(|record| record.record_type() == RecordType::SOA && record.name.zone_of(name));
        match (code, found) {
            (ResponseCode::NoError | ResponseCode::NXDomain, Some(record)) => {
                Ok(record.name.clone())
            }
            (ResponseCode::NoError | ResponseCode::NXDomain, None) => Err(UpdateError::Refused {
                action: "name the zone",
                code: ResponseCode::NotAuth,
            }),
            (code, _) => Err(UpdateError::Refused {
                action: "name the zone",
                code,
            }),
        }
    }

    async fn update(
        &self,
        stream: &mut TcpStream,
        zone: Name,
        record: Record,
    ) -> Result<(), UpdateError> {
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.add_query(Query::query(zone, RecordType::SOA));
        message.add_authority(record);
        let response = self.send(stream, message).await?;
        match response.metadata.response_code {
            ResponseCode::NoError => Ok(()),
            code => Err(UpdateError::Refused {
                action: "change a record",
                code,
            }),
        }
    }

    /// Sends a signed request, and returns the response if its signature is right.
    async fn send(
        &self,
        stream: &mut TcpStream,
        mut message: Message,
    ) -> Result<Message, UpdateError> {
        let (signature, verifier) = self
            .signer
            .sign_message(&message, self.now)
            .map_err(internal)?;
        message.set_signature(signature);
        let bytes = message.to_vec().map_err(internal)?;
        let length = u16::try_from(bytes.len()).map_err(internal)?;
        let framed = [&length.to_be_bytes()[..], &bytes].concat();
        stream.write_all(&framed).await.map_err(io_error)?;
        let length = stream.read_u16().await.map_err(io_error)?;
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.map_err(io_error)?;
        let Some(mut verifier) = verifier else {
            return Err(internal("there is no verifier"));
        };
        check(&bytes, &message, |bytes| verifier.verify(bytes).map(drop))
    }
}

/// The response to `request`, if `verify` accepts its signature.
fn check(
    bytes: &[u8],
    request: &Message,
    verify: impl FnOnce(&[u8]) -> Result<(), ProtoError>,
) -> Result<Message, UpdateError> {
    let response =
        Message::from_vec(bytes).map_err(|_| UpdateError::Response("it is malformed"))?;
    let (sent, received) = (&request.metadata, &response.metadata);
    if received.message_type != MessageType::Response
        || received.id != sent.id
        || received.op_code != sent.op_code
    {
        return Err(UpdateError::Response("it belongs to another request"));
    }
    let Some(signature) = &response.signature else {
        // A server without keys does not sign its refusals. They change nothing.
        return Err(match received.response_code {
            ResponseCode::NoError => UpdateError::Response("it is not signed"),
            code => UpdateError::Refused {
                action: "accept a signed request",
                code,
            },
        });
    };
    let signature = &signature.data;
    if let Some(error) = signature.error {
        let code = u16::from(error);
        return Err(UpdateError::Signature { code });
    }
    // The library subtracts the two.
    if signature.time < u64::from(signature.fudge) {
        return Err(UpdateError::Response("its time is wrong"));
    }
    verify(bytes).map_err(|_| UpdateError::Response("its signature is wrong"))?;
    Ok(response)
}

/// Seconds for which resolvers keep a record: an authority that asks again gets a new one.
const RECORD_TTL: u32 = 60;

/// Seconds by which the clocks may differ (RFC 8945 section 10 recommends 300).
const FUDGE: u16 = 300;

/// Time of a change, with the connection. A server changes a record in milliseconds.
const TIME: Duration = Duration::from_secs(30);

/// Time of a connection to one address, so that the next one has its turn.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Addresses of the server that are tried.
const MAX_ADDRESSES: usize = 4;

#[cfg(test)]
mod tests;
