//! API representation of an exchange: secrets masked unless revealed, bodies decompressed.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;

use crate::exchange::content::DisplayedBody;
use crate::exchange::{Body, Exchange, Fields, Message, MessageKind, MessageSender, content};
use crate::{Summary, mask, protobuf};

/// Display of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    Masked,
    Revealed,
}

impl Secrets {
    pub(crate) fn of(reveal: bool) -> Self {
        if reveal { Self::Revealed } else { Self::Masked }
    }
}

/// All of an exchange except its messages.
#[derive(Serialize)]
pub(crate) struct Detail {
    #[serde(flatten)]
    summary: Summary,
    /// The address as a visitor would write it.
    url: String,
    /// Target of the request.
    target: String,
    request: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Head>,
    /// Number of removed messages.
    forgotten_messages: u64,
}

/// A request or a response.
#[derive(Serialize)]
struct Head {
    /// The first line.
    line: String,
    headers: Vec<Header>,
    body: Content,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<Header>,
}

#[derive(Serialize)]
struct Header {
    name: String,
    value: String,
    #[serde(skip_serializing_if = "is_false")]
    masked: bool,
}

/// A body.
#[derive(Serialize)]
struct Content {
    /// Transferred bytes.
    size: u64,
    /// Media type, without parameters.
    mime: String,
    /// The content is incomplete: it exceeds the recorded or displayed size, or has not ended.
    cut: bool,
    #[serde(flatten)]
    data: Data,
    #[serde(skip_serializing_if = "Option::is_none")]
    decoded: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// Bytes in a lossless form.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Data {
    Text(String),
    Base64(String),
}

/// A message of a WebSocket, an event stream or gRPC.
#[derive(Serialize)]
pub(crate) struct MessageView {
    number: u64,
    at: String,
    from: MessageSender,
    #[serde(flatten)]
    what: MessageKind,
    size: u64,
    cut: bool,
    #[serde(flatten)]
    data: Data,
    #[serde(skip_serializing_if = "is_false")]
    compressed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<protobuf::Field>>,
}

impl Detail {
    pub(crate) fn of(exchange: &Exchange, secrets: Secrets) -> Self {
        let request = &exchange.request;
        let path = shown_path(&request.path, secrets);
        let mut summary = exchange.summary.clone();
        summary.path = path.as_str().into();
        let version = request.version.as_str();
        Self {
            url: url(exchange, secrets),
            target: exchange.to.to_string(),
            request: Head::of(
                format!("{} {path} {version}", request.method),
                &request.fields,
                &exchange.request_body,
                secrets,
            ),
            response: exchange.response.as_ref().map(|response| {
                let line = format!(
                    "{} {} {}",
                    response.version.as_str(),
                    response.status,
                    response.reason
                );
                let body = &exchange.response_body;
                Head::of(line.trim_end().to_owned(), &response.fields, body, secrets)
            }),
            forgotten_messages: exchange.removed_messages,
            summary,
        }
    }
}

impl Head {
    fn of(line: String, fields: &Fields, body: &Body, secrets: Secrets) -> Self {
        let DisplayedBody {
            bytes,
            decoded,
            is_truncated: cut,
            decode_error: trouble,
        } = content::decode_body(fields, body);
        let mime = fields.content_type();
        let bytes = match secrets {
            Secrets::Masked if mime == FORM => match std::str::from_utf8(&bytes) {
                Ok(form) => mask::query(form).into_owned().into_bytes(),
                Err(_) => bytes,
            },
            _ => bytes,
        };
        Self {
            line,
            headers: headers(fields, secrets),
            body: Content {
                size: body.size,
                mime,
                // A request without a body is always complete.
                cut: cut && body.size > 0,
                data: bytes.into(),
                decoded,
                trouble,
            },
            trailers: headers(&body.trailers, secrets),
        }
    }
}

impl std::convert::From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }
}

impl MessageView {
    /// `grpc_encoding` is the encoding that the sender announced.
    pub(crate) fn of(message: &Message, grpc_encoding: &str) -> Self {
        let mut bytes = message.kept.clone();
        let mut cut = message.size > bytes.len() as u64;
        let mut compressed = message.compressed;
        let grpc = message.what == MessageKind::Grpc;
        if grpc && compressed {
            let shown = content::decode(grpc_encoding, &bytes, cut);
            compressed = shown.decoded.is_none();
            cut = shown.is_truncated;
            bytes = shown.bytes;
        }
        let fields = (grpc && !compressed && !cut)
            .then(|| protobuf::fields(&bytes))
            .flatten();
        Self {
            number: message.number,
            at: format!("{:.3}", message.at),
            from: message.from,
            what: message.what.clone(),
            size: message.size,
            cut,
            data: bytes.into(),
            compressed,
            fields,
        }
    }
}

/// Fields as pairs, masked unless secrets are revealed.
pub(crate) fn pairs(fields: &Fields, secrets: Secrets) -> Vec<(String, String)> {
    let shown = headers(fields, secrets).into_iter();
    shown.map(|header| (header.name, header.value)).collect()
}

pub(crate) fn shown_path(path: &str, secrets: Secrets) -> String {
    match secrets {
        Secrets::Masked => mask::path(path).into_owned(),
        Secrets::Revealed => path.to_owned(),
    }
}

/// The address that the visitor requested, from the headers of the engine.
pub(crate) fn url(exchange: &Exchange, secrets: Secrets) -> String {
    let request = &exchange.request;
    let scheme = match request.fields.get("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    let path = shown_path(&request.path, secrets);
    // `OPTIONS *` has no path.
    let path = if path.starts_with('/') { &path } else { "" };
    let host = request
        .fields
        .get("x-forwarded-host")
        .unwrap_or(&request.host);
    format!("{scheme}://{host}{path}")
}

fn headers(fields: &Fields, secrets: Secrets) -> Vec<Header> {
    let shown = fields.0.iter().map(|(name, value)| {
        let shown = match secrets {
            Secrets::Masked => mask::field(name, value),
            Secrets::Revealed => value.as_str().into(),
        };
        Header {
            masked: shown != *value,
            name: name.clone(),
            value: shown.into_owned(),
        }
    });
    shown.collect()
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that the derive calls"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Forms have the format of queries, and their secrets are masked in the same way.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";
