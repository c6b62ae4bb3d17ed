//! Encoding of responses.

use std::net::SocketAddr;

use stun_types::AddressFamily;
use stun_types::attribute::{
    AttributeWrite, ErrorCode, Nonce, PasswordAlgorithmValue, PasswordAlgorithms, Realm,
    UnknownAttributes, XorMappedAddress,
};
use stun_types::message::{
    Message, MessageClass, MessageType, MessageWrite as _, MessageWriteExt as _, MessageWriteVec,
    TransactionId,
};
use turn_types::attribute::{
    AddressErrorCode, ConnectionId, Lifetime, ReservationToken, XorPeerAddress, XorRelayedAddress,
};
use turn_types::message::CONNECTION_ATTEMPT;

use super::allocation::Owner;
use super::attributes::StunError;
use super::integrity::{Integrity, Key, finish};
use super::request::MAX_LIFETIME;
use super::{Client, Millis, OpenedAddresses, RelayError, SharedState, Time};

/// The response to a refused request.
pub(super) fn error_response(
    shared: &SharedState,
    now: Time,
    client: Client,
    message: &Message<'_>,
    fault: &StunError,
    signer: Option<(&Key, Integrity)>,
) -> Vec<u8> {
    let mut out = Message::builder_error(message, MessageWriteVec::with_capacity(160));
    let code = match fault {
        StunError::Code(code) | StunError::Challenge(code) => *code,
        StunError::Unknown(_) => 420,
    };
    // The codes and reasons are constants, and the message has room.
    if let Ok(error) = ErrorCode::new(code, reason(code)) {
        out.add_attribute(&error).ok();
    }
    match fault {
        StunError::Code(_) => {}
        StunError::Unknown(kinds) => {
            out.add_attribute(&UnknownAttributes::new(kinds)).ok();
        }
        StunError::Challenge(_) => {
            let nonce = shared.nonces.mint(now, client.nonce_source());
            if let (Ok(realm), Ok(nonce)) = (Realm::new(&shared.realm), Nonce::new(&nonce)) {
                out.add_attribute(&realm).ok();
                out.add_attribute(&nonce).ok();
            }
            out.add_attribute(&PasswordAlgorithms::new(&PASSWORD_ALGORITHMS))
                .ok();
        }
    }
    if let Some((key, integrity)) = signer {
        key.sign(integrity, &mut out);
    }
    finish(out, message)
}

/// Offered algorithms in the order of preference.
const PASSWORD_ALGORITHMS: [PasswordAlgorithmValue; 2] =
    [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];

/// The response to an Allocate request, after its addresses were opened.
pub(super) fn allocate_response<S>(
    request: &[u8],
    owner: &Owner,
    integrity: Integrity,
    lifetime: Millis,
    is_v6_optional: bool,
    opened: &Result<OpenedAddresses<S>, RelayError>,
) -> Vec<u8> {
    // The request was parsed before.
    let Ok(message) = Message::from_bytes(request) else {
        return Vec::new();
    };
    let transaction = message.transaction_id();
    let signer = Some((&owner.key, integrity));
    let opened = match opened {
        Ok(opened) => opened,
        Err(RelayError::Capacity) => {
            let mut out = Message::builder_error(&message, MessageWriteVec::with_capacity(96));
            if let Ok(error) = ErrorCode::new(508, reason(508)) {
                out.add_attribute(&error).ok();
            }
            owner.key.sign(integrity, &mut out);
            return finish(out, &message);
        }
    };
    let relayed = opened.relays.iter().flatten();
    let relayed: Vec<XorRelayedAddress> = relayed
        .map(|(address, _)| XorRelayedAddress::new(*address, transaction))
        .collect();
    let seconds = u32::try_from(lifetime.seconds()).unwrap_or(MAX_LIFETIME);
    let lifetime = Lifetime::new(seconds);
    let mapped = XorMappedAddress::new(owner.client.address, transaction);
    let token = opened.token.map(ReservationToken::new);
    let lacks_v6 = is_v6_optional && opened.relays.last().is_some_and(Option::is_none);
    let missing = ErrorCode::new(440, reason(440)).ok().filter(|_| lacks_v6);
    let missing = missing.map(|error| AddressErrorCode::new(AddressFamily::IPV6, error));
    let mut attributes: Vec<&dyn AttributeWrite> = Vec::with_capacity(6);
    attributes.extend(relayed.iter().map(|address| address as &dyn AttributeWrite));
    attributes.push(&lifetime);
    attributes.push(&mapped);
    attributes.extend(token.as_ref().map(|token| token as &dyn AttributeWrite));
    attributes.extend(
        missing
            .as_ref()
            .map(|missing| missing as &dyn AttributeWrite),
    );
    success_response(&message, &attributes, signer)
}

/// The response to a successful request.
pub(super) fn success_response(
    request: &Message<'_>,
    attributes: &[&dyn AttributeWrite],
    signer: Option<(&Key, Integrity)>,
) -> Vec<u8> {
    let mut out = Message::builder_success(request, MessageWriteVec::with_capacity(160));
    for attribute in attributes {
        // A message of up to 64 KiB has room for them.
        out.add_attribute(*attribute).ok();
    }
    if let Some((key, integrity)) = signer {
        key.sign(integrity, &mut out);
    }
    finish(out, request)
}

/// An indication that a peer has connected (RFC 6062 section 5.3).
pub(super) fn connection_attempt(
    transaction: TransactionId,
    peer: SocketAddr,
    number: u32,
) -> Vec<u8> {
    let kind = MessageType::from_class_method(MessageClass::Indication, CONNECTION_ATTEMPT);
    let mut out = Message::builder(kind, transaction, MessageWriteVec::with_capacity(64));
    let peer = XorPeerAddress::new(peer, transaction);
    // A message of up to 64 KiB has room for it.
    out.add_attribute(&ConnectionId::new(number)).ok();
    out.add_attribute(&peer).ok();
    out.finish()
}

/// Reason phrases are short, so that unauthenticated clients get short responses.
fn reason(code: u16) -> &'static str {
    match code {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        420 => "Unknown Attribute",
        437 => "Allocation Mismatch",
        438 => "Stale Nonce",
        440 => "Address Family not Supported",
        441 => "Wrong Credentials",
        442 => "Unsupported Transport Protocol",
        443 => "Peer Address Family Mismatch",
        446 => "Connection Already Exists",
        447 => "Connection Timeout or Failure",
        486 => "Allocation Quota Reached",
        508 => "Insufficient Capacity",
        _ => "Server Error",
    }
}
