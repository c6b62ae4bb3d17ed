//! The way of the requests, as a function over bytes.

use http1::{
    BadBody, BodyReader, BodyState, FieldKind, FieldValueBuf, Limits, Progress, Refusal,
    RequestHead, Slots, may_complete, parse_request,
};

use super::{
    answers::{Answers, RequestContext},
    origin::{self, Origin},
};

/// Where in the requests of a stream the next byte is.
pub(super) struct Requests {
    names: Names,
    at: RequestState,
    slots: Box<Slots>,
}

/// Of the service.
struct Names {
    host: FieldValueBuf,
    /// Where its requests come from a page of its own.
    origin: FieldValueBuf,
}

enum RequestState {
    /// In a head of which so many bytes were looked at in vain.
    Head {
        seen: usize,
    },
    Body {
        reader: BodyReader,
    },
}

/// Why a stream cannot be read on. The engine writes no such thing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("a request cannot be read: {0}")]
    Head(Refusal),
    #[error("a request cannot be read: {0}")]
    Body(#[from] BadBody),
}

impl Requests {
    pub(super) fn new(host: &str) -> Self {
        Self {
            names: Names {
                // A host that no field can carry is none: the service refuses such requests.
                host: FieldValueBuf::parse(host.into()).unwrap_or_default(),
                origin: FieldValueBuf::parse(format!("http://{host}").into()).unwrap_or_default(),
            },
            at: RequestState::Head { seen: 0 },
            slots: Box::default(),
        }
    }

    /// Writes what `bytes` hold to `out` as the service shall see it, and says how many of them it
    /// has used; the others are offered again, with more behind them.
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Answers,
    ) -> Result<usize, Unreadable> {
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

    /// Reads a head; 0 while it is not whole.
    fn head(
        &mut self,
        rest: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Answers,
    ) -> Result<usize, Unreadable> {
        let parsed = parse_request(rest, &LIMITS, &mut self.slots).map_err(Unreadable::Head)?;
        let Progress::Complete { head, head_len } = parsed else {
            self.at = RequestState::Head { seen: rest.len() };
            return Ok(0);
        };
        let whole = rest.get(..head_len).unwrap_or_default();
        let public = public_origin(&head);
        rename(whole, &head, public.as_deref(), &self.names, out);
        answers.expect(RequestContext {
            to_head: head.method.as_str() == "HEAD",
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

/// The origin of the page that the visitor has asked for.
fn public_origin(head: &RequestHead<'_>) -> Option<String> {
    let value = |kind| Some(head.fields.of_kind(kind).next()?.value);
    let host = str::from_utf8(value(FieldKind::Host)?.as_bytes()).ok()?;
    let proto = match value(FieldKind::XForwardedProto) {
        Some(value) if value.as_bytes() == b"http" => "http",
        _ => "https",
    };
    Some(format!("{proto}://{host}"))
}

/// Writes a head with another host, and with another origin where it was the public one.
fn rename(
    whole: &[u8],
    head: &RequestHead<'_>,
    public: Option<&str>,
    to: &Names,
    out: &mut Vec<u8>,
) {
    let public = public.and_then(|public| Origin::parse(public.as_bytes()));
    origin::write_head(whole, &head.fields, out, |field| {
        let is_public = || public.is_some() && Origin::parse(&field.value) == public;
        let new = match field.kind {
            FieldKind::Host => &to.host,
            FieldKind::Other if field.is("origin") && is_public() => &to.origin,
            _ => return None,
        };
        Some(new.clone())
    });
}

/// The engine adds fields of its own to a head that kept its limits.
const LIMITS: Limits = Limits {
    head_bytes: 60 * 1024,
    target_bytes: 16 * 1024,
    headers: http1::MAX_FIELDS,
};
