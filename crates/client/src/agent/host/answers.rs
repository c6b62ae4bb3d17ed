//! The way of the answers, as a function over bytes: read until one of them changes the protocol.

use std::collections::VecDeque;

use http1::{
    BodyReader, BodyState, FieldValueBuf, Limits, Progress, ResponseHead, Slots, may_complete,
    parse_response,
};

use super::origin::{self, Origin};

/// What is known of the answers of a stream.
pub(super) struct Answers {
    /// Of the service, as it is addressed.
    own: Option<Origin>,
    asked: VecDeque<RequestContext>,
    at: ResponseState,
    /// The part of a head or of a chunk's framing that was not whole yet.
    held: Vec<u8>,
    slots: Box<Slots>,
    /// The newest request is an upgrade, and all of it has gone out.
    upgrade_open: bool,
}

/// What must be known of a request to read its answer, and to write it.
pub(super) struct RequestContext {
    pub(super) to_head: bool,
    pub(super) upgrade: bool,
    /// The origin that the visitor has used, where it is known.
    pub(super) public: Option<String>,
}

enum ResponseState {
    Head {
        seen: usize,
    },
    Body {
        reader: BodyReader,
    },
    /// Another protocol.
    Upgraded,
    /// Nobody knows: what cannot be read is passed on, and refused by the engine.
    Lost,
}

impl Answers {
    /// Answers of a service that is addressed by this host.
    pub(super) fn new(host: &str) -> Self {
        Self {
            own: Origin::http(host),
            asked: VecDeque::new(),
            at: ResponseState::Head { seen: 0 },
            held: Vec::new(),
            slots: Box::default(),
            upgrade_open: false,
        }
    }

    /// Whether the next bytes of the visitor may be another protocol's: an upgrade was asked for
    /// and is not answered.
    pub(super) fn is_upgrade_open(&self) -> bool {
        self.upgrade_open
    }

    /// Whether the service has accepted an upgrade.
    pub(super) fn is_upgraded(&self) -> bool {
        matches!(self.at, ResponseState::Upgraded)
    }

    /// A request begins.
    pub(super) fn expect(&mut self, asked: RequestContext) {
        if matches!(self.at, ResponseState::Lost) {
            return;
        }
        if self.asked.len() >= MAX_ASKED {
            return self.give_up();
        }
        self.asked.push_back(asked);
    }

    /// The request that began last has gone out with its body.
    pub(super) fn request_is_whole(&mut self) {
        self.upgrade_open = self.asked.back().is_some_and(|asked| asked.upgrade);
    }

    /// No answer will be understood any more.
    pub(super) fn give_up(&mut self) {
        if !self.is_upgraded() {
            self.at = ResponseState::Lost;
        }
        self.asked.clear();
        self.upgrade_open = false;
    }

    /// Whether all that comes passes as it is.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, ResponseState::Upgraded | ResponseState::Lost) && self.held.is_empty()
    }

    /// Writes what goes to the visitor to `out`, as far as it is known what it is. The rest is kept
    /// until more comes.
    pub(super) fn advance(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.held.is_empty() {
            let used = self.run(bytes, out);
            self.held
                .extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(bytes);
            let used = self.run(&held, out);
            held.drain(..used);
            self.held = held;
        }
    }

    /// The service has said its last word: what is kept goes out as it is.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.give_up();
        out.append(&mut self.held);
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
                        self.give_up();
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

    /// Reads a head, and writes it; nothing while it is not whole.
    fn head(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let asked = self.asked.front();
        let to_head = asked.is_some_and(|asked| asked.to_head);
        match parse_response(rest, &LIMITS, to_head, &mut self.slots) {
            Ok(Progress::Partial) => {
                self.at = ResponseState::Head { seen: rest.len() };
                None
            }
            Ok(Progress::Complete { head, head_len }) => {
                let whole = rest.get(..head_len).unwrap_or_default();
                let public = asked.and_then(|asked| asked.public.as_deref());
                match self.own.as_ref().zip(public) {
                    Some((own, public)) => relocate(whole, &head, own, public, out),
                    None => out.extend_from_slice(whole),
                }
                let (status, reader) = (head.status, BodyReader::from(head.body));
                self.answered(status, reader);
                Some(head_len)
            }
            Err(_bad) => {
                self.give_up();
                Some(0)
            }
        }
    }

    fn answered(&mut self, status: u16, body: BodyReader) {
        let upgrade = self.asked.front().is_some_and(|asked| asked.upgrade);
        self.at = if status == 101 && upgrade {
            self.asked.clear();
            self.upgrade_open = false;
            ResponseState::Upgraded
        } else if status == 101 {
            // A change of protocol that nobody asked for.
            self.give_up();
            ResponseState::Lost
        } else if status < 200 {
            ResponseState::Head { seen: 0 }
        } else {
            self.asked.pop_front();
            if self.asked.is_empty() {
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

/// Writes a head in which addresses below the service's own origin are below the public one. A
/// `Content-Location` is such an address as well: visitors can go there.
fn relocate(whole: &[u8], head: &ResponseHead<'_>, own: &Origin, public: &str, out: &mut Vec<u8>) {
    origin::write_head(whole, &head.fields, out, |field| {
        if !field.is("location") && !field.is("content-location") {
            return None;
        }
        let rest = own.rest_of(&field.value)?;
        FieldValueBuf::parse([public.as_bytes(), rest].concat())
    });
}

/// As for requests: what a service may send, the engine decides.
const LIMITS: Limits = Limits {
    head_bytes: 60 * 1024,
    target_bytes: 16 * 1024,
    headers: http1::MAX_FIELDS,
};

/// Requests without an answer; the engine sends the next when the answer to the last is there.
const MAX_ASKED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to each request is written for its visitor, up to a request too many.
    #[test]
    fn so_many_requests_wait_for_their_answers() {
        for (requests, is_lost) in [(128, false), (129, true)] {
            let mut answers = Answers::new("app.local");
            for _ in 0..requests {
                answers.expect(RequestContext {
                    to_head: false,
                    upgrade: false,
                    public: None,
                });
            }
            assert_eq!(answers.is_over(), is_lost, "{requests}");
        }
    }
}
