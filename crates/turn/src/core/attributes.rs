//! What a message holds, read and judged for itself: faults that need no state to be found.

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

/// Why a request is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StunError {
    /// With this code.
    Code(u16),
    /// With this code, and what is needed to do better (RFC 8489 section 9.2.4).
    Challenge(u16),
    /// 420 with these.
    Unknown(Vec<AttributeType>),
}

/// IANA's numbers of protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What an Allocate request asks for.
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
            // Sockets of ours send as the system does; who depends on it is told.
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

/// First byte of an attribute of an address family: the library knows no third one.
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

/// 420 where there is one that must be understood and is not.
pub(super) fn check_attributes(message: &Message<'_>) -> Result<(), StunError> {
    let mut unknown: Vec<AttributeType> = Vec::new();
    for (_, raw) in message.iter_attributes() {
        let kind = raw.get_type();
        let is_new =
            kind.comprehension_required() && !KNOWN.contains(&kind) && !unknown.contains(&kind);
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

/// Named in one answer at most: it must not grow with the request.
const MAX_UNKNOWN: usize = 8;

/// What must be understood, and is. USERHASH is not among them: a relay without a table of users
/// cannot find out who is meant.
const KNOWN: [AttributeType; 18] = [
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

/// The key's algorithm that the client chose, from what it was offered and says that it was: who
/// changed the offer on its way is noticed here.
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

/// Peer and data of a Send indication that has both and nothing that is not understood.
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
            kind if kind.comprehension_required() && !KNOWN.contains(&kind) => return None,
            // It would be fragmented where it must not be.
            DontFragment::TYPE => return None,
            _ => {}
        }
    }
    Some((peer?, data?))
}

pub(super) fn lifetime(message: &Message<'_>) -> Result<Option<u32>, StunError> {
    Ok(attribute::<Lifetime>(message)?.map(|lifetime| lifetime.seconds()))
}

/// An attribute; 400 where it is there and cannot be read.
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

/// An attribute of text.
pub(super) fn text(message: &Message<'_>, kind: AttributeType) -> Option<String> {
    let raw = message.raw_attribute(kind)?;
    std::str::from_utf8(&raw.value).ok().map(ToOwned::to_owned)
}
