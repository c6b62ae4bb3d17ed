//! The way of the requests, as a function over bytes.

use http1::{
    Authority, BadBody, BodyReader, BodyState, FieldKind, Limits, Progress, Refusal, RequestHead,
    Slots, may_complete, parse_request,
};

use super::answers::{Answers, Asked};

/// Where in the requests of a stream the next byte is.
pub(super) struct Requests {
    host: String,
    /// Of the service, where its requests come from a page of its own.
    origin: String,
    at: At,
    slots: Box<Slots>,
}

enum At {
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
            host: host.to_owned(),
            origin: format!("http://{host}"),
            at: At::Head { seen: 0 },
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
                At::Head { seen } if !may_complete(rest, *seen, &LIMITS) => {
                    *seen = rest.len();
                    return Ok(used);
                }
                At::Head { .. } => self.head(rest, out, answers)?,
                At::Body { reader, .. } => {
                    let verbatim = reader.advance_verbatim(rest)?;
                    out.extend_from_slice(rest.get(..verbatim.consumed).unwrap_or_default());
                    if verbatim.state != BodyState::More {
                        self.at = At::Head { seen: 0 };
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
            self.at = At::Head { seen: rest.len() };
            return Ok(0);
        };
        let whole = rest.get(..head_len).unwrap_or_default();
        rename(whole, &head, &self.host, &self.origin, out);
        answers.expect(Asked {
            to_head: head.method.as_str() == "HEAD",
            upgrade: head.upgrade.is_some(),
        });
        let reader = BodyReader::from(head.body);
        self.at = if reader.is_done() {
            answers.request_is_whole();
            At::Head { seen: 0 }
        } else {
            At::Body { reader }
        };
        Ok(head_len)
    }
}

/// Writes a head with another host, and with another origin where it was the public one.
fn rename(whole: &[u8], head: &RequestHead<'_>, host: &str, origin: &str, out: &mut Vec<u8>) {
    let public = head.fields.of_kind(FieldKind::Host).next();
    let public = public.map_or(&[][..], |field| field.value);
    let proto = head.fields.of_kind(FieldKind::XForwardedProto).next();
    let proto = proto.map_or(&b"https"[..], |field| field.value);
    let mut copied = 0;
    for field in head.fields.iter() {
        let new = match field.kind {
            FieldKind::Host => host,
            FieldKind::Other if field.is("origin") && is_origin_of(field.value, proto, public) => {
                origin
            }
            _ => continue,
        };
        // The value lies in `whole`, from where it was parsed.
        let start = field.value.as_ptr().addr() - whole.as_ptr().addr();
        out.extend_from_slice(whole.get(copied..start).unwrap_or_default());
        out.extend_from_slice(new.as_bytes());
        copied = start + field.value.len();
    }
    out.extend_from_slice(whole.get(copied..).unwrap_or_default());
}

/// Whether an `Origin` is that of the pages of a host.
fn is_origin_of(origin: &[u8], proto: &[u8], host: &[u8]) -> bool {
    let Some(authority) = origin
        .strip_prefix(proto)
        .and_then(|rest| rest.strip_prefix(b"://"))
    else {
        return false;
    };
    let default = if proto == b"https" { 443 } else { 80 };
    let read = |text| {
        let authority = Authority::parse(text)?;
        let port = authority.port.unwrap_or(default);
        Some((authority.host.to_ascii_lowercase(), port))
    };
    read(authority).is_some_and(|origin| read(host) == Some(origin))
}

/// The engine adds fields of its own to a head that kept its limits.
const LIMITS: Limits = Limits {
    head_bytes: 60 * 1024,
    target_bytes: 16 * 1024,
    headers: http1::MAX_FIELDS,
};
