//! Relayed TCP (RFC 6062): connections between a relayed address and peers. Each is joined with a
//! second connection of the client.
//!
//! ```text
//! Connect ─▶ Action::Dial ─▶ dialled ─▶ answer ┐
//! a peer connects ─▶ accepted ─▶ indication ───┴─▶ ConnectionBind ─▶ Action::Join ─▶ disconnected
//! ```
//!
//! A connection that waits for its client is stored here, and dropping it closes it. A joined
//! connection belongs to the worker's task, which ends it with the relay's socket.

use std::net::SocketAddr;
use std::sync::Arc;

use stun_types::message::{Message, MessageType};
use turn_types::attribute::{ConnectionId, XorPeerAddress};
use turn_types::message::CONNECTION_BIND;

use super::answer::{connection_attempt, error_response, success_response};
use super::attributes::{StunError, attribute};
use super::integrity::{Integrity, Key};
use super::rate::Rates;
use super::request::{AuthenticatedRequest, RequestResult};
use super::{Action, AllocationId, Client, Core, Meter, Millis, Time, Transport};

/// The number of a peer's connection (CONNECTION-ID).
///
/// A client's second connection may be accepted by another worker, so the number
/// identifies the core with the peer's connection. Guessing a number is useless without the
/// credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(u32);

/// Position of a core among the cores of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePosition {
    /// Index, from 0.
    pub index: u32,
    /// Number of cores.
    pub count: u32,
}

impl CorePosition {
    /// The position of a single core.
    pub const ONLY: Self = Self { index: 0, count: 1 };
}

/// The index of the core with the connection that a `ConnectionBind` names; `None` for other
/// messages.
pub fn core_of_bind(bytes: &[u8], core_count: usize) -> Option<usize> {
    let kind: [u8; 2] = bytes.first_chunk().copied()?;
    let kind = MessageType::from_bytes(&kind).ok()?;
    if !kind.has_method(CONNECTION_BIND) {
        return None;
    }
    let message = Message::from_bytes(bytes).ok()?;
    let number = message.attribute::<ConnectionId>().ok()?.id();
    usize::try_from(number).ok()?.checked_rem(core_count)
}

/// A connection between a relayed address and a peer.
#[derive(Debug)]
pub(super) struct Connection<P> {
    allocation: AllocationId,
    peer: SocketAddr,
    state: State<P>,
}

#[derive(Debug)]
enum State<P> {
    /// The relay connects, for a request that waits for its response.
    Dialling(Box<PendingConnect>),
    /// The client was notified, and has to claim the connection until this time.
    Waiting(P, Millis),
    /// The client's second connection is joined with it.
    Joined,
}

/// A Connect request that waits for [`Core::dialled`].
#[derive(Debug)]
struct PendingConnect {
    request: Vec<u8>,
    key: Key,
    integrity: Integrity,
}

/// Two connections to join.
#[derive(Debug)]
pub struct JoinedConnections<P> {
    /// Number of the connection, for [`Core::disconnected`].
    pub number: ConnectionNumber,
    /// The peer's connection.
    pub stream: P,
    /// Response to send to the client first.
    pub answer: Vec<u8>,
    /// Counter of relayed bytes.
    pub meter: Arc<Meter>,
    /// Rate limits.
    pub rates: Rates,
}

/// A peer is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// RFC 6062 sections 5.2 and 5.3: time that a client has to claim a connection.
const CLAIM_TIMEOUT: Millis = Millis::from_seconds(30);

impl<S, P> Core<S, P> {
    /// RFC 6062 section 5.2. No permission is needed, because the client itself names the peer.
    pub(super) fn connect(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        let known = self.owned_allocation(now, client, signed)?;
        let id = known.id;
        if known.transport != Transport::Tcp {
            return Err(StunError::Code(403));
        }
        let peer = attribute::<XorPeerAddress>(message)?.ok_or(StunError::Code(400))?;
        let peer = peer.addr(message.transaction_id());
        known.relay_for(peer.ip()).ok_or(StunError::Code(443))?;
        if !self.shared.peers.permits_peer(peer) {
            return Err(StunError::Code(403));
        }
        let mut others = known.connections.iter();
        let is_taken = others.any(|number| {
            let other = self.connections.get(number);
            other.is_some_and(|other| other.peer == peer)
        });
        if is_taken {
            return Err(StunError::Code(446));
        }
        let pending = Box::new(PendingConnect {
            request: message.as_bytes().to_vec(),
            key: signed.key.clone(),
            integrity: signed.integrity,
        });
        let number = self.insert_connection(id, peer, State::Dialling(pending));
        Ok(RequestResult::Dial(number.ok_or(StunError::Code(508))?))
    }

    /// The action that dials the peer of a connection.
    pub(super) fn dial(&self, number: ConnectionNumber) -> Action<'_, S, P> {
        let connection = self.connections.get(&number);
        let found = connection.and_then(|connection| {
            let allocation = self.allocation(connection.allocation)?;
            let relay = allocation.relay_for(connection.peer.ip())?;
            Some((relay, connection.peer))
        });
        match found {
            Some((relay, peer)) => Action::Dial {
                number,
                relay,
                peer,
            },
            None => Action::NoAction,
        }
    }

    /// Handles the result of an [`Action::Dial`]. Returns the client and its message; `None` if the
    /// request is no longer pending.
    pub fn dialled(
        &mut self,
        now: Time,
        number: ConnectionNumber,
        stream: Result<P, Unreachable>,
    ) -> Option<(Client, Vec<u8>)> {
        let connection = self.connections.get_mut(&number)?;
        let State::Dialling(_) = connection.state else {
            return None;
        };
        let id = connection.allocation;
        let is_connected = stream.is_ok();
        let next = match stream {
            Ok(stream) => {
                let until = now.monotonic.after(CLAIM_TIMEOUT);
                self.unclaimed.push_back((until, number));
                State::Waiting(stream, until)
            }
            Err(Unreachable) => State::Joined,
        };
        let State::Dialling(pending) = std::mem::replace(&mut connection.state, next) else {
            return None;
        };
        let client = self.allocation(id)?.client;
        if is_connected {
            self.counts.dialled += 1;
        } else {
            self.counts.unreachable += 1;
            self.disconnected(number);
        }
        // The request was parsed before.
        let message = Message::from_bytes(&pending.request).ok()?;
        let signer = Some((&pending.key, pending.integrity));
        let answer = if is_connected {
            success_response(&message, &[&ConnectionId::new(number.0)], signer)
        } else {
            let fault = StunError::Code(447);
            error_response(&self.shared, now, client, &message, &fault, signer)
        };
        Some((client, answer))
    }

    /// Handles a peer's connection to a relayed address. Returns the client and its message. `None`
    /// closes the connection: it has no permission, or the limit is reached (RFC 6062 section 5.3).
    pub fn accepted(
        &mut self,
        now: Time,
        id: AllocationId,
        peer: SocketAddr,
        stream: P,
    ) -> Option<(Client, Vec<u8>)> {
        let allocation = self.allocation(id).filter(|allocation| {
            now.monotonic < allocation.expires && allocation.permits(peer.ip(), now.monotonic)
        });
        let client = allocation.map(|allocation| allocation.client);
        let until = now.monotonic.after(CLAIM_TIMEOUT);
        let number =
            client.and_then(|_| self.insert_connection(id, peer, State::Waiting(stream, until)));
        let (Some(client), Some(number)) = (client, number) else {
            self.counts.dropped += 1;
            return None;
        };
        self.unclaimed.push_back((until, number));
        self.counts.accepted += 1;
        let transaction = self.next_transaction();
        Some((
            client,
            connection_attempt(transaction.into(), peer, number.0),
        ))
    }

    /// RFC 6062 section 5.4.
    pub(super) fn connection_bind(
        &mut self,
        now: Time,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<RequestResult<P>, StunError> {
        // A connection with an allocation is still needed for messages, so it cannot be joined.
        if !client.is_stream() || self.by_client.contains_key(&client) {
            return Err(StunError::Code(400));
        }
        let number = attribute::<ConnectionId>(message)?.ok_or(StunError::Code(400))?;
        let number = ConnectionNumber(number.id());
        let connection = self.connections.get(&number).ok_or(StunError::Code(400))?;
        let allocation = self.allocation(connection.allocation);
        let allocation = allocation
            .filter(|allocation| now.monotonic < allocation.expires)
            .ok_or(StunError::Code(400))?;
        if *allocation.username != *signed.username {
            return Err(StunError::Code(441));
        }
        let account = &allocation.account;
        let (meter, rates) = (
            Arc::clone(&account.meter),
            allocation.permit.rates().clone(),
        );
        let connection = self.connections.get_mut(&number);
        let connection = connection.ok_or(StunError::Code(400))?;
        let is_waiting =
            matches!(connection.state, State::Waiting(_, until) if now.monotonic < until);
        if !is_waiting {
            return Err(StunError::Code(400));
        }
        let State::Waiting(stream, _) = std::mem::replace(&mut connection.state, State::Joined)
        else {
            return Err(StunError::Code(400));
        };
        let id = ConnectionId::new(number.0);
        Ok(RequestResult::Join(Box::new(JoinedConnections {
            number,
            stream,
            answer: success_response(message, &[&id], Some((&signed.key, signed.integrity))),
            meter,
            rates,
        })))
    }

    /// Handles the end of a joined connection.
    pub fn disconnected(&mut self, number: ConnectionNumber) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let id = connection.allocation;
        if self.allocation(id).is_some()
            && let Some(allocation) = self.allocations.get_mut(id.slot as usize)
        {
            allocation.connections.retain(|other| *other != number);
        }
    }

    /// Number of connections with peers.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Closes connections that no client claimed in time.
    pub(super) fn expire_connections(&mut self, now: Millis) {
        while let Some((until, number)) = self.unclaimed.front().copied()
            && until <= now
        {
            self.unclaimed.pop_front();
            let connection = self.connections.get(&number);
            let is_waiting = connection.is_some_and(
                |connection| matches!(connection.state, State::Waiting(_, end) if end == until),
            );
            if is_waiting {
                self.disconnected(number);
                self.counts.unclaimed += 1;
            }
        }
    }

    /// Ends the connections of one family, after its relayed address was released.
    pub(super) fn end_family(&mut self, id: AllocationId, is_v4: bool) {
        let known = self.allocation(id);
        let numbers = known.map(|known| known.connections.clone());
        for number in numbers.unwrap_or_default() {
            let connection = self.connections.get(&number);
            if connection.is_some_and(|connection| connection.peer.is_ipv4() == is_v4) {
                self.disconnected(number);
            }
        }
    }

    /// Adds a connection to an allocation; `None` if the limit is reached.
    fn insert_connection(
        &mut self,
        id: AllocationId,
        peer: SocketAddr,
        state: State<P>,
    ) -> Option<ConnectionNumber> {
        let limit = self.shared.limits.connections;
        let number = self.next_number();
        let allocation = self.allocations.get_mut(id.slot as usize)?;
        if allocation.id != id || allocation.connections.len() >= limit {
            return None;
        }
        allocation.connections.push(number);
        let connection = Connection {
            allocation: id,
            peer,
            state,
        };
        self.connections.insert(number, connection);
        Some(number)
    }

    /// An unused number that identifies this core.
    fn next_number(&mut self) -> ConnectionNumber {
        let CorePosition { index, count } = self.position;
        loop {
            let [a, b, c, d, ..] = self.next_random().to_be_bytes();
            let random = u32::from_be_bytes([a, b, c, d]);
            let number = random.checked_rem(count).map(|index| random - index);
            let number = ConnectionNumber(number.unwrap_or(random).saturating_add(index));
            if !self.connections.contains_key(&number) {
                return number;
            }
        }
    }
}
