//! The single pass over the fields of a head: it indexes them and determines the message framing.

use httparse::Header;

use crate::fields::{Slot, Slots};
use crate::kind::FieldKind;
use crate::protocol::Protocols;
use crate::token::is_token_byte;

/// Properties of the message that its fields determine.
#[derive(Default)]
pub(crate) struct FramingFields<'b> {
    pub(crate) host: Option<&'b [u8]>,
    pub(crate) host_repeated: bool,
    pub(crate) content_length: Option<u64>,
    pub(crate) chunked: bool,
    /// A service made a fault with only one interpretation. Its connection is not reused.
    pub(crate) tolerated: bool,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) expect_continue: bool,
    /// The value of `Upgrade`, even if `Connection` does not name it.
    pub(crate) upgrade: Option<Protocols<'b>>,
    /// `Connection` names `upgrade`.
    pub(crate) upgrade_named: bool,
}

/// Kind of a message. Some faults of services are common and have only one interpretation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Request,
    Response,
}

impl<'b> FramingFields<'b> {
    /// Evaluates the fields that the tokenizer found in `head`, which is a complete head. The error
    /// is a reason that may be shown to the peer.
    pub(crate) fn gather(
        head: &'b [u8],
        headers: &[Header<'b>],
        slots: &mut Slots,
        kind: MessageKind,
    ) -> Result<Self, &'static str> {
        let mut facts = Self::default();
        let is_response = kind == MessageKind::Response;
        let mut has_identity = false;
        let mut options = ConnectionOptions::default();
        slots.clear();
        for header in headers {
            let mut slot = locate(head, header, false)?;
            let value = header.value;
            match slot.kind {
                FieldKind::Host => facts.host_repeated |= facts.host.replace(value).is_some(),
                FieldKind::ContentLength => {
                    let length = content_length(value)?;
                    if is_response && facts.content_length == Some(length) {
                        // The same length again: the visitor gets it once.
                        facts.tolerated = true;
                        slot.hop_by_hop = true;
                    } else {
                        set_once(
                            &mut facts.content_length,
                            length,
                            "Content-Length is repeated",
                        )?;
                    }
                }
                // An obsolete name for no coding (RFC 2616, 3.6).
                FieldKind::TransferEncoding
                    if is_response && value.eq_ignore_ascii_case(b"identity") =>
                {
                    has_identity = true;
                    facts.tolerated = true;
                }
                FieldKind::TransferEncoding => {
                    if facts.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                        return Err("Transfer-Encoding is not exactly chunked");
                    }
                    facts.chunked = true;
                }
                FieldKind::Connection => options.parse(value, &mut facts)?,
                FieldKind::Upgrade => {
                    let protocols = Protocols::parse(value).ok_or("Upgrade is malformed")?;
                    set_once(&mut facts.upgrade, protocols, "Upgrade is repeated")?;
                }
                FieldKind::Expect => {
                    facts.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
                }
                _ => {}
            }
            if !slots.push(slot) {
                return Err("too many fields");
            }
        }
        if facts.chunked && has_identity {
            return Err("Transfer-Encoding is not exactly chunked");
        }
        if facts.chunked && facts.content_length.is_some() {
            return Err("Transfer-Encoding and Content-Length together");
        }
        if options.names_fields {
            mark_named(head, slots);
        }
        Ok(facts)
    }
}

/// Stores the value of a field that may occur only once.
fn set_once<T>(
    place: &mut Option<T>,
    value: T,
    repeated: &'static str,
) -> Result<(), &'static str> {
    if place.replace(value).is_some() {
        Err(repeated)
    } else {
        Ok(())
    }
}

/// Returns a field's position in the head and checks that its line follows CR LF, because the
/// tokenizer accepts a bare line feed as the end of a line. Only the `first` line of a trailer
/// section has none before it.
pub(crate) fn locate(head: &[u8], header: &Header<'_>, first: bool) -> Result<Slot, &'static str> {
    let name = header.name.as_bytes();
    let name_at = offset(head, name);
    let line_start = name_at
        .checked_sub(2)
        .and_then(|start| head.get(start..name_at));
    if line_start != Some(b"\r\n") && !(first && name_at == 0) {
        return Err(BARE_LINE_FEED);
    }
    let kind = FieldKind::of(name);
    let narrow = |number: usize| u16::try_from(number).map_err(|_| "the head is too large");
    Ok(Slot {
        name_at: narrow(name_at)?,
        name_len: narrow(name.len())?,
        value_at: narrow(offset(head, header.value))?,
        value_len: narrow(header.value.len())?,
        kind,
        hop_by_hop: kind.is_hop_by_hop(),
    })
}

/// Offset of `part` from the start of `whole`, which contains it.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr())
}

/// Accepts digits only (RFC 9110 §8.6). Some receivers use signed 64-bit numbers, so a value that
/// does not fit is refused as well.
fn content_length(value: &[u8]) -> Result<u64, &'static str> {
    if !value.iter().all(u8::is_ascii_digit) {
        return Err("Content-Length is not a number");
    }
    std::str::from_utf8(value)
        .ok()
        .and_then(|digits| digits.parse::<u64>().ok())
        .filter(|length| i64::try_from(*length).is_ok())
        .ok_or("Content-Length is not a number that can be counted")
}

#[derive(Default)]
struct ConnectionOptions {
    count: usize,
    names_fields: bool,
}

impl ConnectionOptions {
    fn parse(&mut self, value: &[u8], facts: &mut FramingFields<'_>) -> Result<(), &'static str> {
        for option in options(value) {
            if !option.iter().all(|byte| is_token_byte(*byte)) {
                return Err("Connection is malformed");
            }
            self.count += 1;
            if self.count > CONNECTION_OPTIONS {
                return Err("Connection has too many options");
            }
            if option.eq_ignore_ascii_case(b"close") {
                facts.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                facts.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                facts.upgrade_named = true;
            } else {
                self.names_fields = true;
            }
        }
        Ok(())
    }
}

/// The non-empty members of a comma-separated list.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}

/// Marks the fields that `Connection` names.
///
/// `Host` and `Content-Length` stay: a peer must not remove the fields that route or frame the
/// message.
fn mark_named(head: &[u8], slots: &mut Slots) {
    let slots = slots.filled_mut();
    for index in 0..slots.len() {
        let Some(connection) = slots
            .get(index)
            .filter(|slot| slot.kind == FieldKind::Connection)
        else {
            continue;
        };
        let value = connection.value(head);
        for slot in slots.iter_mut() {
            let removable = !matches!(slot.kind, FieldKind::Host | FieldKind::ContentLength);
            let name = slot.name(head);
            slot.hop_by_hop |=
                removable && options(value).any(|option| option.eq_ignore_ascii_case(name));
        }
    }
}

/// A reason shared by heads and trailers.
pub(crate) const BARE_LINE_FEED: &str = "header lines end in a bare line feed";

/// No client needs more, and each option is compared with every field.
const CONNECTION_OPTIONS: usize = 16;
