//! Parsing of attributes, and checks that need no state.

use std::net::SocketAddr;

use stun_types::AddressFamily;
use stun_types::attribute::{
    Attribute as _, AttributeFromRaw, AttributeStaticType, AttributeType, Fingerprint,
    MessageIntegrity, MessageIntegritySha256, Nonce, PasswordAlgorithm, PasswordAlgorithms, Realm,
    XorMappedAddress,
};
use stun_types::message::Message;
use turn_types::attribute::{
    AdditionalAddressFamily, ChannelNumber, ConnectionId, Data, DontFragment, EvenPort, Lifetime,
    RequestedAddressFamily, RequestedTransport, ReservationToken, XorPeerAddress,
};

use super::integrity::KeyAlgorithm;
use super::{Client, Transport};

/// Errors for the response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StunError {
    /// This code.
    Code(u16),
    /// This code, with the data for another attempt (RFC 8489 section 9.2.4).
    Challenge(u16),
    /// 420 with these attributes.
    Unknown(Vec<AttributeType>),
}

/// IANA protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Parameters of an Allocate request.
pub(super) struct AllocationParameters {
    pub(super) transport: Transport,
    pub(super) families: [bool; 2],
    pub(super) is_v6_optional: bool,
    pub(super) even: bool,
    pub(super) reserve: bool,
    pub(super) token: Option<u64>,
}

impl AllocationParameters {
    pub(super) fn read(
        message: &Message<'_>,
        client: Client,
        served: [bool; 2],
    ) -> Result<Self, StunError> {
        let transport = attribute::<RequestedTransport>(message)?.ok_or(StunError::Code(400))?;
        let transport = match transport.protocol() {
            UDP => Transport::Udp,
            TCP => Transport::Tcp,
            _ => return Err(StunError::Code(442)),
        };
        if transport == Transport::Tcp {
            // RFC 6062 section 5.1.
            let datagrams_only = [DontFragment::TYPE, EvenPort::TYPE, ReservationToken::TYPE];
            let has_any = datagrams_only
                .iter()
                .any(|kind| message.has_attribute(*kind));
            if !client.is_stream() || has_any {
                return Err(StunError::Code(400));
            }
        }
        if message.has_attribute(DontFragment::TYPE) {
            // The relay cannot control the flag of its sockets, so a client that requires it gets
            // an error.
            return Err(StunError::Unknown(vec![DontFragment::TYPE]));
        }
        let even = attribute::<EvenPort>(message)?;
        let token = attribute::<ReservationToken>(message)?;
        let has = |kind| message.has_attribute(kind);
        let (requested, additional) = (RequestedAddressFamily::TYPE, AdditionalAddressFamily::TYPE);
        let contradicts = has(requested) && has(additional)
            || token.is_some() && (even.is_some() || has(requested) || has(additional))
            || has(additional) && even.as_ref().is_some_and(EvenPort::requested);
        if contradicts {
            return Err(StunError::Code(400));
        }
        let families = if let Some(value) = family_of(message, requested)? {
            match value {
                1 => [true, false],
                2 => [false, true],
                _ => return Err(StunError::Code(440)),
            }
        } else if let Some(value) = family_of(message, additional)? {
            // RFC 8656 section 7.2: only IPv6 can be additional.
            if value != 2 {
                return Err(StunError::Code(400));
            }
            [true, true]
        } else {
            [true, false]
        };
        let is_v6_optional = families == [true, true];
        let [served_v4, served_v6] = served;
        if families[0] && !served_v4 || families == [false, true] && !served_v6 {
            return Err(StunError::Code(440));
        }
        Ok(Self {
            transport,
            families,
            is_v6_optional,
            reserve: even.as_ref().is_some_and(EvenPort::requested),
            even: even.is_some(),
            token: token.map(|token| token.token()),
        })
    }
}

/// First byte of an address family attribute. The library only supports two families.
fn family_of(message: &Message<'_>, kind: AttributeType) -> Result<Option<u8>, StunError> {
    let Some(raw) = message.raw_attribute(kind) else {
        return Ok(None);
    };
    match *raw.value {
        [family, _, _, _] => Ok(Some(family)),
        _ => Err(StunError::Code(400)),
    }
}

pub(super) fn index_of(family: AddressFamily) -> usize {
    match family {
        AddressFamily::IPV4 => 0,
        AddressFamily::IPV6 => 1,
    }
}

/// Returns 420 if an attribute requires comprehension and is unknown.
pub(super) fn check_attributes(message: &Message<'_>) -> Result<(), StunError> {
    let mut unknown: Vec<AttributeType> = Vec::new();
    for (_, raw) in message.iter_attributes() {
        let kind = raw.get_type();
        let is_new = kind.comprehension_required()
            && !COMPREHENDED.contains(&kind)
            && !unknown.contains(&kind);
        if is_new && unknown.len() < MAX_UNKNOWN {
            unknown.push(kind);
        }
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(StunError::Unknown(unknown))
    }
}

/// Maximum of attributes in one response, so that it does not grow with the request.
const MAX_UNKNOWN: usize = 8;

/// Known attributes that require comprehension. USERHASH is not supported: a relay without a table
/// of users cannot resolve it.
const COMPREHENDED: [AttributeType; 18] = [
    stun_types::attribute::Username::TYPE,
    MessageIntegrity::TYPE,
    MessageIntegritySha256::TYPE,
    Fingerprint::TYPE,
    Realm::TYPE,
    Nonce::TYPE,
    PasswordAlgorithm::TYPE,
    XorMappedAddress::TYPE,
    ChannelNumber::TYPE,
    Lifetime::TYPE,
    XorPeerAddress::TYPE,
    Data::TYPE,
    RequestedAddressFamily::TYPE,
    EvenPort::TYPE,
    RequestedTransport::TYPE,
    DontFragment::TYPE,
    ReservationToken::TYPE,
    ConnectionId::TYPE,
];

/// The key's algorithm that the client chose. The client repeats the offer that it received, so
/// that a manipulated offer is detected.
pub(super) fn key_algorithm(message: &Message<'_>) -> Result<KeyAlgorithm, StunError> {
    let offered = message.raw_attribute(PasswordAlgorithms::TYPE);
    let chosen = message.raw_attribute(PasswordAlgorithm::TYPE);
    match (offered, chosen) {
        (None, None) => Ok(KeyAlgorithm::Md5),
        (Some(offered), Some(chosen)) => {
            let is_ours = *offered.value == [0, 2, 0, 0, 0, 1, 0, 0];
            match *chosen.value {
                [0, 1, 0, 0] if is_ours => Ok(KeyAlgorithm::Md5),
                [0, 2, 0, 0] if is_ours => Ok(KeyAlgorithm::Sha256),
                _ => Err(StunError::Code(400)),
            }
        }
        _ => Err(StunError::Code(400)),
    }
}

/// Peer and data of a Send indication that has both and no unknown attributes.
pub(super) fn read_send(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let message = Message::from_bytes(bytes).ok()?;
    let (mut peer, mut data) = (None, None);
    for (offset, raw) in message.iter_attributes() {
        match raw.get_type() {
            XorPeerAddress::TYPE => {
                let read = XorPeerAddress::from_raw_ref(&raw).ok()?;
                peer.get_or_insert(read.addr(message.transaction_id()));
            }
            Data::TYPE => {
                let start = offset + 4;
                data.get_or_insert(bytes.get(start..start + raw.value.len())?);
            }
            kind if kind.comprehension_required() && !COMPREHENDED.contains(&kind) => return None,
            // The relay might fragment the data, which this attribute forbids.
            DontFragment::TYPE => return None,
            _ => {}
        }
    }
    Some((peer?, data?))
}

pub(super) fn requested_lifetime(message: &Message<'_>) -> Result<Option<u32>, StunError> {
    Ok(attribute::<Lifetime>(message)?.map(|lifetime| lifetime.seconds()))
}

/// Parses an attribute; 400 if it is present and malformed.
pub(super) fn attribute<A>(message: &Message<'_>) -> Result<Option<A>, StunError>
where
    A: AttributeStaticType + for<'b> AttributeFromRaw<'b>,
{
    let Some(raw) = message.raw_attribute(A::TYPE) else {
        return Ok(None);
    };
    A::from_raw_ref(&raw)
        .map(Some)
        .map_err(|_| StunError::Code(400))
}

/// Parses a text attribute.
pub(super) fn text(message: &Message<'_>, kind: AttributeType) -> Option<String> {
    let raw = message.raw_attribute(kind)?;
    std::str::from_utf8(&raw.value).ok().map(ToOwned::to_owned)
}
