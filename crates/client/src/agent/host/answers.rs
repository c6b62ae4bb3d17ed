//! Incremental parser of the responses. It stops at a change of protocol.

use std::collections::VecDeque;

use http1::{
    BodyReader, BodyState, FieldValueBuf, Limits, Progress, ResponseHead, Slots, may_complete,
    parse_response,
};

use super::origin::{self, Origin};

/// State of the responses of a stream.
pub(super) struct Answers {
    /// Origin of the service as the agent addresses it.
    service_origin: Option<Origin>,
    pending_requests: VecDeque<RequestContext>,
    at: ResponseState,
    /// The incomplete part of a head or of chunk framing.
    incomplete: Vec<u8>,
    slots: Box<Slots>,
    /// The newest request is an upgrade and was sent completely.
    upgrade_open: bool,
}

/// Information about a request that is needed to parse and rewrite its response.
pub(super) struct RequestContext {
    pub(super) is_head_request: bool,
    pub(super) upgrade: bool,
    /// The origin that the visitor used, if known.
    pub(super) public: Option<String>,
}

enum ResponseState {
    Head {
        seen: usize,
    },
    Body {
        reader: BodyReader,
    },
    /// The connection uses another protocol.
    Upgraded,
    /// Unparsable: the rest is passed on, and the engine refuses it.
    Lost,
}

impl Answers {
    /// Creates the state for a service that is addressed by this host.
    pub(super) fn new(host: &str, is_tls: bool) -> Self {
        Self {
            service_origin: Origin::of_service(host, is_tls),
            pending_requests: VecDeque::new(),
            at: ResponseState::Head { seen: 0 },
            incomplete: Vec::new(),
            slots: Box::default(),
            upgrade_open: false,
        }
    }

    /// True if the visitor's next bytes may belong to another protocol: an upgrade was requested
    /// and not answered yet.
    pub(super) fn is_upgrade_open(&self) -> bool {
        self.upgrade_open
    }

    /// True if the service has accepted an upgrade.
    pub(super) fn is_upgraded(&self) -> bool {
        matches!(self.at, ResponseState::Upgraded)
    }

    /// A request starts.
    pub(super) fn expect(&mut self, requested: RequestContext) {
        if matches!(self.at, ResponseState::Lost) {
            return;
        }
        if self.pending_requests.len() >= MAX_ASKED {
            return self.stop_parsing();
        }
        self.pending_requests.push_back(requested);
    }

    /// The last request was sent completely, including its body.
    pub(super) fn request_is_whole(&mut self) {
        self.upgrade_open = self
            .pending_requests
            .back()
            .is_some_and(|requested| requested.upgrade);
    }

    /// No further response can be parsed.
    pub(super) fn stop_parsing(&mut self) {
        if !self.is_upgraded() {
            self.at = ResponseState::Lost;
        }
        self.pending_requests.clear();
        self.upgrade_open = false;
    }

    /// True if all further bytes pass unchanged.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, ResponseState::Upgraded | ResponseState::Lost)
            && self.incomplete.is_empty()
    }

    /// Writes complete parts for the visitor to `out`. Incomplete parts are kept until more bytes
    /// arrive.
    pub(super) fn advance(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.incomplete.is_empty() {
            let used = self.run(bytes, out);
            self.incomplete
                .extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut held = std::mem::take(&mut self.incomplete);
            held.extend_from_slice(bytes);
            let used = self.run(&held, out);
            held.drain(..used);
            self.incomplete = held;
        }
    }

    /// The service has closed its direction: kept bytes are written unchanged.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.stop_parsing();
        out.append(&mut self.incomplete);
    }

    fn run(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return used;
            }
            let step = match &mut self.at {
                ResponseState::Head { seen } if !may_complete(rest, *seen, &LIMITS) => {
                    *seen = rest.len();
                    return used;
                }
                ResponseState::Head { .. } => self.head(rest, out),
                ResponseState::Body { reader } => match reader.advance_verbatim(rest) {
                    Ok(verbatim) => {
                        out.extend_from_slice(rest.get(..verbatim.consumed).unwrap_or_default());
                        if verbatim.state != BodyState::More {
                            self.at = ResponseState::Head { seen: 0 };
                        }
                        Some(verbatim.consumed).filter(|consumed| *consumed > 0)
                    }
                    Err(_bad) => {
                        self.stop_parsing();
                        Some(0)
                    }
                },
                ResponseState::Upgraded | ResponseState::Lost => {
                    out.extend_from_slice(rest);
                    return bytes.len();
                }
            };
            let Some(step) = step else {
                return used;
            };
            used += step;
        }
    }

    /// Parses and writes a head; `None` while it is incomplete.
    fn head(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let context = self.pending_requests.front();
        let to_head = context.is_some_and(|context| context.is_head_request);
        match parse_response(rest, &LIMITS, to_head, &mut self.slots) {
            Ok(Progress::Partial) => {
                self.at = ResponseState::Head { seen: rest.len() };
                None
            }
            Ok(Progress::Complete { head, head_len }) => {
                let head_bytes = rest.get(..head_len).unwrap_or_default();
                let public = context.and_then(|context| context.public.as_deref());
                match self.service_origin.as_ref().zip(public) {
                    Some((own, public)) => relocate(head_bytes, &head, own, public, out),
                    None => out.extend_from_slice(head_bytes),
                }
                let (status, reader) = (head.status, BodyReader::from(head.body));
                self.answered(status, reader);
                Some(head_len)
            }
            Err(_bad) => {
                self.stop_parsing();
                Some(0)
            }
        }
    }

    fn answered(&mut self, status: u16, body: BodyReader) {
        let upgrade = self
            .pending_requests
            .front()
            .is_some_and(|requested| requested.upgrade);
        self.at = if status == 101 && upgrade {
            self.pending_requests.clear();
            self.upgrade_open = false;
            ResponseState::Upgraded
        } else if status == 101 {
            // A change of protocol that was not requested.
            self.stop_parsing();
            ResponseState::Lost
        } else if status < 200 {
            ResponseState::Head { seen: 0 }
        } else {
            self.pending_requests.pop_front();
            if self.pending_requests.is_empty() {
                self.upgrade_open = false;
            }
            if body.is_done() {
                ResponseState::Head { seen: 0 }
            } else {
                ResponseState::Body { reader: body }
            }
        };
    }
}

/// Writes a head in which addresses below the service's origin are replaced by addresses below the
/// public one. This includes `Content-Location`, because visitors can open it.
fn relocate(whole: &[u8], head: &ResponseHead<'_>, own: &Origin, public: &str, out: &mut Vec<u8>) {
    origin::write_head(whole, &head.fields, out, |field| {
        if !field.is("location") && !field.is("content-location") {
            return None;
        }
        let rest = own.rest_of(&field.value)?;
        FieldValueBuf::parse([public.as_bytes(), rest].concat())
    });
}

/// Above the limits of the engine, which refuses larger responses itself.
const LIMITS: Limits = Limits {
    head_bytes: 60 * 1024,
    target_bytes: 16 * 1024,
    headers: http1::MAX_FIELDS,
};

/// Maximum number of unanswered requests. The engine sends the next request after the response to
/// the last one.
const MAX_ASKED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// The response to each request is rewritten for its visitor, up to this number.
    #[test]
    fn pending_requests_are_limited() {
        for (requests, is_lost) in [(128, false), (129, true)] {
            let mut answers = Answers::new("app.local", false);
            for _ in 0..requests {
                answers.expect(RequestContext {
                    is_head_request: false,
                    upgrade: false,
                    public: None,
                });
            }
            assert_eq!(answers.is_over(), is_lost, "{requests}");
        }
    }
}
