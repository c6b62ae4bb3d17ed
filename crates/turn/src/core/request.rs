//! Requests and Send indications: parsing, authentication, checks and responses.

use std::net::IpAddr;
use std::sync::Arc;

use credentials::turn::{PasswordKey, Username, UsernameTimeError};
use stun_types::attribute::{
    Attribute as _, AttributeFromRaw as _, AttributeStaticType as _, Nonce, Realm, XorMappedAddress,
};
use stun_types::message::{BINDING, Message, MessageClass, Method};
use turn_types::attribute::{ChannelNumber, Lifetime, RequestedAddressFamily, XorPeerAddress};
use turn_types::message::{
    ALLOCATE, CHANNEL_BIND, CONNECT, CONNECTION_BIND, CREATE_PERMISSION, REFRESH, SEND,
};

use super::allocation::{Owner, PermissionError};
use super::answer::{error_response, success_response};
use super::attributes::{
    AllocationParameters, StunError, attribute, check_attributes, index_of, key_algorithm,
    read_send, requested_lifetime, text,
};
use super::authority::Authority;
use super::integrity::{Integrity, Key, is_signed};
use super::tcp::{ConnectionNumber, JoinedConnections};
use super::{Action, Client, Core, Millis, OpenRequest, PendingAllocation, Time, Transport};

/// Maximum size of a request: the longest username, realm and nonce, and the other attributes.
const MAX_REQUEST_BYTES: usize = 4096;
/// RFC 8656 section 3.2: the lifetime if none, or a shorter one, is requested.
const DEFAULT_LIFETIME: u32 = 600;
/// The maximum validity of a credential.
pub(super) const MAX_LIFETIME: u32 = 3600;
/// RFC 8656 section 12 permits the numbers up to 0x4fff, RFC 5766 section 11 those up to 0x7ffe.
/// Existing clients use all of them.
const CHANNEL_NUMBERS: std::ops::RangeInclusive<u16> = 0x4000..=0x7ffe;
/// Methods for authenticated clients.
const AUTHENTICATED_METHODS: [Method; 6] = [
    ALLOCATE,
    REFRESH,
    CREATE_PERMISSION,
    CHANNEL_BIND,
    CONNECT,
    CONNECTION_BIND,
];
/// Maximum of peers in one `CreatePermission`.
const MAX_PEERS: usize = 64;

/// A request whose author has the password of its username.
#[derive(Debug)]
pub(super) struct AuthenticatedRequest {
    pub(super) username: String,
    pub(super) key: Key,
    secret: Arc<PasswordKey>,
    pub(super) integrity: Integrity,
}

impl<S, P> Core<S, P> {
    pub(super) fn message<'a>(
        &'a mut self,
        now: Time,
        client: Client,
        bytes: &'a [u8],
    ) -> Action<'a, S, P> {
        let Some(&[kind_high, kind_low, high, low]) = bytes.first_chunk() else {
            return self.count_dropped();
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // Bytes after the end of the message make it invalid.
        if bytes.len() != super::frame::HEADER_BYTES + length || !length.is_multiple_of(4) {
            return self.count_dropped();
        }
        // Only a client with an allocation may send; other clients' indications are not parsed.
        let is_send = [kind_high, kind_low] == SEND_INDICATION;
        let is_acceptable = if is_send {
            self.by_client.contains_key(&client)
        } else {
            bytes.len() <= MAX_REQUEST_BYTES
        };
        let message = match Message::from_bytes(bytes) {
            Ok(message) if is_acceptable => message,
            _ => return self.count_dropped(),
        };
        match message.class() {
            MessageClass::Request => self.request(now, client, &message),
            MessageClass::Indication if message.has_method(SEND) => self.send(now, client, bytes),
            // A Binding indication keeps a NAT's mapping alive.
            MessageClass::Indication if message.has_method(BINDING) => Action::NoAction,
            _ => self.count_dropped(),
        }
    }

    fn request<'a>(
        &'a mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
    ) -> Action<'a, S, P> {
        if message.has_method(BINDING) {
            return Action::Answer(match check_attributes(message) {
                Ok(()) => {
                    let mapped = XorMappedAddress::new(client.address, message.transaction_id());
                    success_response(message, &[&mapped], None)
                }
                Err(fault) => error_response(&self.shared, now, client, message, &fault, None),
            });
        }
        if !AUTHENTICATED_METHODS.contains(&message.method()) {
            return self.count_dropped();
        }
        let signed = match self.authenticate(now, client, message) {
            Ok(signed) => signed,
            Err(fault) => {
                // The first request of each client is refused, to send it realm and nonce.
                self.counts.refused += u64::from(is_signed(message));
                return Action::Answer(error_response(
                    &self.shared,
                    now,
                    client,
                    message,
                    &fault,
                    None,
                ));
            }
        };
        let (key, integrity) = (signed.key.clone(), signed.integrity);
        let done = check_attributes(message).and_then(|()| match message.method() {
            ALLOCATE => self.allocate(now, client, message, signed),
            REFRESH => self.refresh(now, client, message, &signed),
            CREATE_PERMISSION => self.create_permission(now, client, message, &signed),
            CONNECT => self.connect(now, client, message, &signed),
            CONNECTION_BIND => self.connection_bind(now, client, message, &signed),
            _ => self.channel_bind(now, client, message, &signed),
        });
        match done {
            Ok(RequestResult::Answer(bytes)) => Action::Answer(bytes),
            Ok(RequestResult::Open(open)) => Action::Open(open),
            Ok(RequestResult::Dial(number)) => self.dial(number),
            Ok(RequestResult::Join(join)) => Action::Join(join),
            Err(fault) => {
                let signer = Some((&key, integrity));
                Action::Answer(error_response(
                    &self.shared,
                    now,
                    client,
                    message,
                    &fault,
                    signer,
                ))
            }
        }
    }

    /// RFC 8489 section 9.2.4.
    fn authenticate(
        &self,
        now: Time,
        client: Client,
        message: &Message<'_>,
    ) -> Result<AuthenticatedRequest, StunError> {
        if !is_signed(message) {
            return Err(StunError::Challenge(401));
        }
        let required_text = |kind| text(message, kind).ok_or(StunError::Code(400));
        let username = required_text(stun_types::attribute::Username::TYPE)?;
        let (realm, nonce) = (required_text(Realm::TYPE)?, required_text(Nonce::TYPE)?);
        let source = client.nonce_source();
        if !self.shared.nonces.is_fresh(&nonce, now, source) {
            return Err(StunError::Challenge(438));
        }
        let algorithm = key_algorithm(message)?;
        let unauthorised = StunError::Challenge(401);
        let parsed = Username::parse(&username).filter(|_| realm == *self.shared.realm);
        let parsed = parsed.ok_or_else(|| unauthorised.clone())?;
        // The key of a client with an allocation is already known.
        let slot = self.by_client.get(&client);
        let known = slot
            .and_then(|slot| self.allocations.get(*slot))
            .filter(|known| *known.username == *username && known.key.algorithm() == algorithm);
        let (key, secret) = if let Some(known) = known {
            (known.key.clone(), Arc::clone(&known.secret))
        } else {
            let secret = self.shared.authority.password_key(&parsed);
            let secret = secret.ok_or_else(|| unauthorised.clone())?;
            let password = secret.password(&username);
            (Key::new(algorithm, &username, &realm, &password), secret)
        };
        let integrity = key.verify(message).ok_or(unauthorised)?;
        Ok(AuthenticatedRequest {
            username,
            key,
            secret,
            integrity,
        })
    }

    /// Checks that the credential of a request is currently valid (TU-4), and permits allocations.
    fn admit(
        &mut self,
        now: Time,
        signed: &AuthenticatedRequest,
    ) -> Result<(super::Account, Millis), StunError> {
        let admission = Username::parse(&signed.username)
            .filter(|username| username.check_time(now.unix).is_ok())
            .ok_or(StunError::Challenge(401))
            .and_then(|username| {
                let account = self.shared.authority.admit(&username, now.unix);
                let account = account.map_err(|super::NotAllowedError| StunError::Code(403))?;
                let until = account
                    .expires_at
                    .unwrap_or(i64::MAX)
                    .min(username.expires_at);
                let left = u64::try_from(until.saturating_sub(now.unix)).unwrap_or(0);
                Ok((account, Millis::from_seconds(left)))
            });
        self.counts.refused += u64::from(admission.is_err());
        admission
    }

    /// Checks that the owner of an allocation may keep it, and returns the remaining time.
    ///
    /// The allocation was made with a valid username. A client cannot replace the username of an
    /// allocation (RFC 8656 section 8.2 refuses another one), so an allocation may outlive its
    /// username up to a maximum age. Account and project are checked as for a new allocation.
    fn admit_refresh(
        &mut self,
        now: Time,
        signed: &AuthenticatedRequest,
        created: Millis,
    ) -> Result<Millis, StunError> {
        let end = created.after(self.shared.limits.age);
        let left_by_age = Millis::from_seconds(end.since(now.monotonic).seconds());
        let left = Username::parse(&signed.username)
            .filter(|username| username.check_time(now.unix) != Err(UsernameTimeError::TooLong))
            .ok_or(StunError::Challenge(401))
            .and_then(|username| {
                let account = self.shared.authority.admit(&username, now.unix);
                let account = account.map_err(|super::NotAllowedError| StunError::Code(403))?;
                let until = |end: i64| {
                    let left = end.saturating_sub(now.unix);
                    Millis::from_seconds(u64::try_from(left).unwrap_or(0))
                };
                let left = until(username.expires_at).max(left_by_age);
                let left = account.expires_at.map_or(left, |end| left.min(until(end)));
                let remaining = Some(left).filter(|left| *left > Millis::default());
                remaining.ok_or(StunError::Challenge(401))
            });
        self.counts.refused += u64::from(left.is_err());
        left
    }

    /// RFC 8656 section 7.2.
    fn allocate(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        if let Some(known) = self.allocation_of_client(client) {
            // A repeated request means that the response was lost, so the same response is sent
            // again.
            return if known.transaction == message.transaction_id()
                && *known.username == *signed.username
            {
                Ok(RequestResult::Answer(known.answer.to_vec()))
            } else {
                Err(StunError::Code(437))
            };
        }
        let wanted = AllocationParameters::read(message, client, self.shared.families)?;
        let (account, left) = self.admit(now, &signed)?;
        if self.is_draining {
            return Err(StunError::Code(508));
        }
        let source = client.address.ip();
        let take = || {
            let quotas = &self.shared.quotas;
            let permit = quotas.take(now.monotonic, &account.project, &account.holder, source);
            permit.ok_or(StunError::Code(486))
        };
        // A reserved port is already counted.
        let permit = wanted.token.is_none().then(take).transpose()?;
        let reserve = wanted.reserve.then(take).transpose()?;
        let lifetime = requested_lifetime(message)?.unwrap_or(DEFAULT_LIFETIME);
        let open = OpenRequest {
            id: self.next_id(),
            transport: wanted.transport,
            families: wanted.families,
            is_v6_optional: wanted.is_v6_optional,
            needs_even_port: wanted.even,
            reserve,
            token: wanted.token,
            holder: Arc::clone(&account.holder),
        };
        self.pending = Some(PendingAllocation {
            id: open.id,
            transport: open.transport,
            is_v6_optional: open.is_v6_optional,
            permit,
            owner: Owner {
                client,
                transaction: message.transaction_id(),
                username: signed.username.into(),
                key: signed.key,
                secret: signed.secret,
                account,
            },
            integrity: signed.integrity,
            lifetime: granted(lifetime, left),
            request: message.as_bytes().to_vec(),
        });
        Ok(RequestResult::Open(open))
    }

    /// RFC 8656 section 8.2.
    fn refresh(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        let known = self.owned_allocation(now, client, signed)?;
        let (id, before, created) = (known.id, known.expires, known.created);
        let has_relay = known.relays.each_ref().map(Option::is_some);
        let requested = requested_lifetime(message)?.unwrap_or(DEFAULT_LIFETIME);
        let family = attribute::<RequestedAddressFamily>(message)?;
        let index = family.as_ref().map(|family| index_of(family.family()));
        if index.is_some_and(|index| !has_relay.get(index).copied().unwrap_or(false)) {
            return Err(StunError::Code(443));
        }
        let lifetime_seconds = if requested == 0 {
            match index {
                // The client releases one of two addresses.
                Some(index) if has_relay == [true, true] => {
                    let known = self.allocations.get_mut(id.slot as usize);
                    let relay = known.and_then(|known| known.relays.get_mut(index));
                    if let Some(relay) = relay {
                        *relay = None;
                    }
                    self.end_family(id, index == 0);
                }
                _ => self.end(id),
            }
            0
        } else {
            let left = self.admit_refresh(now, signed, created)?;
            let granted_lifetime = granted(requested, left);
            let expires = now.monotonic.after(granted_lifetime);
            self.ends.remove(&(before, id));
            self.ends.insert((expires, id));
            if let Some(known) = self.allocations.get_mut(id.slot as usize) {
                known.expires = expires;
            }
            u32::try_from(granted_lifetime.seconds()).unwrap_or(MAX_LIFETIME)
        };
        let signer = Some((&signed.key, signed.integrity));
        Ok(RequestResult::Answer(success_response(
            message,
            &[&Lifetime::new(lifetime_seconds)],
            signer,
        )))
    }

    /// RFC 8656 section 10.2.
    fn create_permission(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        let known = self.owned_allocation(now, client, signed)?;
        let id = known.id;
        let mut peers: Vec<IpAddr> = Vec::new();
        for (_, raw) in message.iter_attributes() {
            if raw.get_type() != XorPeerAddress::TYPE {
                continue;
            }
            let peer = XorPeerAddress::from_raw_ref(&raw).map_err(|_| StunError::Code(400))?;
            let ip = peer.addr(message.transaction_id()).ip();
            known.relay_for(ip).ok_or(StunError::Code(443))?;
            if !self.shared.peers.permits_ip(ip) {
                return Err(StunError::Code(403));
            }
            if peers.len() >= MAX_PEERS {
                return Err(StunError::Code(508));
            }
            peers.push(ip);
        }
        if peers.is_empty() {
            return Err(StunError::Code(400));
        }
        let limit = self.shared.limits.permissions;
        let known = self.allocations.get_mut(id.slot as usize);
        let known = known.ok_or(StunError::Code(437))?;
        known
            .permit(&peers, now.monotonic, limit)
            .map_err(error_of)?;
        let signer = Some((&signed.key, signed.integrity));
        Ok(RequestResult::Answer(success_response(
            message,
            &[],
            signer,
        )))
    }

    /// RFC 8656 section 12.2.
    fn channel_bind(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        let known = self.owned_allocation(now, client, signed)?;
        let id = known.id;
        let number = attribute::<ChannelNumber>(message)?.ok_or(StunError::Code(400))?;
        let peer = attribute::<XorPeerAddress>(message)?.ok_or(StunError::Code(400))?;
        let peer = peer.addr(message.transaction_id());
        if !CHANNEL_NUMBERS.contains(&number.channel()) {
            return Err(StunError::Code(400));
        }
        if known.transport != Transport::Udp {
            return Err(StunError::Code(403));
        }
        known.relay_for(peer.ip()).ok_or(StunError::Code(443))?;
        if !self.shared.peers.permits_peer(peer) {
            return Err(StunError::Code(403));
        }
        let limits = self.shared.limits;
        let known = self.allocations.get_mut(id.slot as usize);
        let known = known.ok_or(StunError::Code(437))?;
        let bound = known.bind(number.channel(), peer, now.monotonic, limits);
        bound.map_err(error_of)?;
        let signer = Some((&signed.key, signed.integrity));
        Ok(RequestResult::Answer(success_response(
            message,
            &[],
            signer,
        )))
    }

    /// RFC 8656 section 11.2.
    fn send<'a>(&'a mut self, now: Time, client: Client, bytes: &'a [u8]) -> Action<'a, S, P> {
        let Some((peer, data)) = read_send(bytes) else {
            return self.count_dropped();
        };
        let is_reachable = self.shared.peers.permits_peer(peer);
        let slot = self.by_client.get(&client).copied();
        let known = slot
            .and_then(|slot| self.allocations.get(slot))
            .filter(|known| {
                let is_udp = known.transport == Transport::Udp;
                let is_over = known.expires <= now.monotonic;
                is_reachable && is_udp && !is_over && known.permits(peer.ip(), now.monotonic)
            });
        let relay = known.and_then(|known| Some((known, known.relay_for(peer.ip())?)));
        let Some((known, relay)) = relay else {
            self.counts.dropped += 1;
            return Action::NoAction;
        };
        if !known.permit.rates().admit(now.monotonic, data.len()) {
            self.counts.throttled += data.len() as u64;
            return Action::NoAction;
        }
        known.account.meter.relay(data.len());
        self.counts.relayed += data.len() as u64;
        Action::Send {
            socket: relay,
            peer,
            data,
        }
    }

    fn allocation_of_client(&self, client: Client) -> Option<&super::Allocation<S>> {
        self.allocations.get(*self.by_client.get(&client)?)
    }

    /// The allocation of a client, if the authenticated user owns it.
    pub(super) fn owned_allocation(
        &self,
        now: Time,
        client: Client,
        signed: &AuthenticatedRequest,
    ) -> Result<&super::Allocation<S>, StunError> {
        let known = self
            .allocation_of_client(client)
            .filter(|known| now.monotonic < known.expires);
        let known = known.ok_or(StunError::Code(437))?;
        if *known.username == *signed.username {
            Ok(known)
        } else {
            Err(StunError::Code(441))
        }
    }
}

/// Result of a successful request.
pub(super) enum RequestResult<P> {
    Answer(Vec<u8>),
    Open(OpenRequest),
    Dial(ConnectionNumber),
    Join(Box<JoinedConnections<P>>),
}

/// Send indication (RFC 8656 section 18: method 6, class indication).
const SEND_INDICATION: [u8; 2] = [0x00, 0x16];

/// True if the owner of an allocation would still be admitted.
pub(super) fn is_still_permitted(
    authority: &dyn Authority,
    username: &str,
    secret: &Arc<PasswordKey>,
    now: Time,
) -> bool {
    Username::parse(username).is_some_and(|username| {
        let known = authority.password_key(&username);
        known.is_some_and(|known| known == *secret) && authority.admit(&username, now.unix).is_ok()
    })
}

/// The granted part of the requested lifetime, of which `left` remains.
fn granted(requested: u32, left: Millis) -> Millis {
    Millis::from_seconds(u64::from(requested.clamp(DEFAULT_LIFETIME, MAX_LIFETIME))).min(left)
}

fn error_of(refused: PermissionError) -> StunError {
    StunError::Code(match refused {
        PermissionError::Full => 508,
        PermissionError::Taken => 400,
    })
}
