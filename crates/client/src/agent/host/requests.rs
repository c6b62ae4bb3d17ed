//! Incremental parser of the requests.

use http1::{
    BodyError, BodyReader, BodyState, FieldKind, FieldValueBuf, Limits, Progress, Refusal,
    RequestHead, Slots, may_complete, parse_request,
};

use super::{
    answers::{Answers, RequestContext},
    origin::{self, Origin},
};

/// Parser state of a stream of requests.
pub(super) struct Requests {
    names: ServiceNames,
    at: RequestState,
    slots: Box<Slots>,
}

/// Names of the service.
struct ServiceNames {
    host: FieldValueBuf,
    /// Origin of requests from the service's own pages.
    origin: FieldValueBuf,
}

enum RequestState {
    /// In a head, of which this many bytes were searched without success.
    Head {
        seen: usize,
    },
    Body {
        reader: BodyReader,
    },
}

/// Reason why a stream cannot be parsed. The engine does not write such streams.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error("a request cannot be read: {0}")]
    Head(Refusal),
    #[error("a request cannot be read: {0}")]
    Body(#[from] BodyError),
}

impl Requests {
    pub(super) fn new(host: &str, is_tls: bool) -> Self {
        let scheme = if is_tls { "https" } else { "http" };
        let origin = format!("{scheme}://{host}");
        Self {
            names: ServiceNames {
                // A host that is invalid as a header value becomes empty, and the service refuses
                // such requests.
                host: FieldValueBuf::parse(host.into()).unwrap_or_default(),
                origin: FieldValueBuf::parse(origin.into()).unwrap_or_default(),
            },
            at: RequestState::Head { seen: 0 },
            slots: Box::default(),
        }
    }

    /// Writes the parsed part of `bytes` to `out` in the form for the service, and returns the
    /// number of consumed bytes. The caller passes the others again with more bytes after them.
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Answers,
    ) -> Result<usize, ParseError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() || answers.is_upgrade_open() {
                return Ok(used);
            }
            if answers.is_upgraded() {
                out.extend_from_slice(rest);
                return Ok(bytes.len());
            }
            let step = match &mut self.at {
                RequestState::Head { seen } if !may_complete(rest, *seen, &LIMITS) => {
                    *seen = rest.len();
                    return Ok(used);
                }
                RequestState::Head { .. } => self.head(rest, out, answers)?,
                RequestState::Body { reader, .. } => {
                    let verbatim = reader.advance_verbatim(rest)?;
                    out.extend_from_slice(rest.get(..verbatim.consumed).unwrap_or_default());
                    if verbatim.state != BodyState::More {
                        self.at = RequestState::Head { seen: 0 };
                        answers.request_is_whole();
                    }
                    verbatim.consumed
                }
            };
            if step == 0 {
                return Ok(used);
            }
            used += step;
        }
    }

    /// Parses a head; 0 while it is incomplete.
    fn head(
        &mut self,
        rest: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Answers,
    ) -> Result<usize, ParseError> {
        let parsed = parse_request(rest, &LIMITS, &mut self.slots).map_err(ParseError::Head)?;
        let Progress::Complete { head, head_len } = parsed else {
            self.at = RequestState::Head { seen: rest.len() };
            return Ok(0);
        };
        let head_bytes = rest.get(..head_len).unwrap_or_default();
        let public = public_origin(&head);
        rename(head_bytes, &head, public.as_deref(), &self.names, out);
        answers.expect(RequestContext {
            is_head_request: head.method.as_str() == "HEAD",
            upgrade: head.upgrade.is_some(),
            public,
        });
        let reader = BodyReader::from(head.body);
        self.at = if reader.is_done() {
            answers.request_is_whole();
            RequestState::Head { seen: 0 }
        } else {
            RequestState::Body { reader }
        };
        Ok(head_len)
    }
}

/// The origin of the page that the visitor requested.
fn public_origin(head: &RequestHead<'_>) -> Option<String> {
    let value = |kind| Some(head.fields.of_kind(kind).next()?.value);
    let host = str::from_utf8(value(FieldKind::Host)?.as_bytes()).ok()?;
    let proto = match value(FieldKind::XForwardedProto) {
        Some(value) if value.as_bytes() == b"http" => "http",
        _ => "https",
    };
    Some(format!("{proto}://{host}"))
}

/// Writes a head with another host, and with another origin where it names the public one.
fn rename(
    whole: &[u8],
    head: &RequestHead<'_>,
    public: Option<&str>,
    to: &ServiceNames,
    out: &mut Vec<u8>,
) {
    let public = public.and_then(|public| Origin::parse(public.as_bytes()));
    origin::write_head(whole, &head.fields, out, |field| {
        let is_public = || public.is_some() && Origin::parse(&field.value) == public;
        match field.kind {
            FieldKind::Host => Some(to.host.clone()),
            FieldKind::Other if field.is("origin") && is_public() => Some(to.origin.clone()),
            FieldKind::Other if field.is("destination") => {
                let rest = public.as_ref()?.rest_of(&field.value)?;
                let origin = to.origin.as_value();
                FieldValueBuf::parse([origin.as_bytes(), rest].concat())
            }
            _ => None,
        }
    });
}

/// Above the limits of the engine, which adds fields to a head that it has accepted.
const LIMITS: Limits = Limits {
    head_bytes: 60 * 1024,
    target_bytes: 16 * 1024,
    headers: http1::MAX_FIELDS,
};
