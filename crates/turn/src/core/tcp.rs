//! Relayed TCP (RFC 6062): connections between a relayed address and peers, and the client's
//! second connection that each of them is joined with.
//!
//! ```text
//! Connect ─▶ Step::Dial ─▶ dialled ─▶ answer ┐
//! a peer connects ─▶ accepted ─▶ indication ─┴─▶ ConnectionBind ─▶ Step::Join ─▶ disconnected
//! ```
//!
//! What waits for its client is kept here, and dropping it closes it; what is joined is the loop's,
//! which ends it with the relay's socket.

use std::net::SocketAddr;
use std::sync::Arc;

use stun_types::message::{Message, MessageType};
use turn_types::attribute::{ConnectionId, XorPeerAddress};
use turn_types::message::CONNECTION_BIND;

use super::answer::{attempt, refusal, success};
use super::attributes::{StunError, attribute};
use super::integrity::{Integrity, Key};
use super::rate::Rates;
use super::request::{AuthenticatedRequest, Done};
use super::{Action, AllocationId, Client, Core, Meter, Millis, Now, Transport};

/// The name of a peer's connection, as clients know it (CONNECTION-ID).
///
/// A client's second connection may come in at another worker than its first, so the number tells
/// which core has it. To guess one helps nobody: it takes the credential, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionNumber(u32);

/// Which of the cores of a relay one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Counted from 0.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

impl Lane {
    /// There is one core.
    pub const ONLY: Self = Self { index: 0, of: 1 };
}

/// What a `ConnectionBind` request asks for, and which core of `of` has it; `None` for anything
/// else.
pub fn binds(bytes: &[u8], of: usize) -> Option<usize> {
    let kind: [u8; 2] = bytes.first_chunk().copied()?;
    let kind = MessageType::from_bytes(&kind).ok()?;
    if !kind.has_method(CONNECTION_BIND) {
        return None;
    }
    let message = Message::from_bytes(bytes).ok()?;
    let number = message.attribute::<ConnectionId>().ok()?.id();
    usize::try_from(number).ok()?.checked_rem(of)
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
    /// It is being made, for a request that waits for its answer.
    Dialling(Box<PendingConnect>),
    /// Its client has been told, and has until then to come for it.
    Waiting(P, Millis),
    /// The client's second connection has it.
    Joined,
}

/// A Connect request that waits for [`Core::dialled`].
#[derive(Debug)]
struct PendingConnect {
    request: Vec<u8>,
    key: Key,
    integrity: Integrity,
}

/// Two connections that are one from now on.
#[derive(Debug)]
pub struct Join<P> {
    /// Names it, for [`Core::disconnected`].
    pub number: ConnectionNumber,
    /// The peer's.
    pub stream: P,
    /// What the client is told before anything else.
    pub answer: Vec<u8>,
    /// Counts what is relayed.
    pub meter: Arc<Meter>,
    /// How fast may be relayed.
    pub rates: Rates,
}

/// Why there is no connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;

/// RFC 6062 sections 5.2 and 5.3: how long a client may take to come for a connection.
const UNCLAIMED: Millis = Millis::from_seconds(30);

impl<S, P> Core<S, P> {
    /// RFC 6062 section 5.2. No permission is needed: the client itself names the peer.
    pub(super) fn connect(
        &mut self,
        now: Now,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<Done<P>, StunError> {
        let known = self.own(now, client, signed)?;
        let id = known.id;
        if known.transport != Transport::Tcp {
            return Err(StunError::Code(403));
        }
        let peer = attribute::<XorPeerAddress>(message)?.ok_or(StunError::Code(400))?;
        let peer = peer.addr(message.transaction_id());
        known.relay_for(peer.ip()).ok_or(StunError::Code(443))?;
        if !self.shared.peers.reaches(peer) {
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
        let asked = Box::new(PendingConnect {
            request: message.as_bytes().to_vec(),
            key: signed.key.clone(),
            integrity: signed.integrity,
        });
        let number = self.keep(id, peer, State::Dialling(asked));
        Ok(Done::Dial(number.ok_or(StunError::Code(508))?))
    }

    /// What the loop needs to dial.
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
            None => Action::Nothing,
        }
    }

    /// What came of a [`Action::Dial`]: who is told, and what. `None` where nobody waits for it any
    /// more.
    pub fn dialled(
        &mut self,
        now: Now,
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
                let until = now.at.after(UNCLAIMED);
                self.unclaimed.push_back((until, number));
                State::Waiting(stream, until)
            }
            Err(Unreachable) => State::Joined,
        };
        let State::Dialling(asked) = std::mem::replace(&mut connection.state, next) else {
            return None;
        };
        let client = self.allocation(id)?.client;
        if is_connected {
            self.counts.dialled += 1;
        } else {
            self.counts.unreachable += 1;
            self.disconnected(number);
        }
        // It was read before.
        let message = Message::from_bytes(&asked.request).ok()?;
        let signer = Some((&asked.key, asked.integrity));
        let answer = if is_connected {
            success(&message, &[&ConnectionId::new(number.0)], signer)
        } else {
            let fault = StunError::Code(447);
            refusal(&self.shared, now, client, &message, &fault, signer)
        };
        Some((client, answer))
    }

    /// A peer has connected to a relayed address: who is told, and what. `None` where it has no
    /// permission, or there are as many as there may be; it is closed then (RFC 6062 section 5.3).
    pub fn accepted(
        &mut self,
        now: Now,
        id: AllocationId,
        peer: SocketAddr,
        stream: P,
    ) -> Option<(Client, Vec<u8>)> {
        let allocation = self.allocation(id).filter(|allocation| {
            now.at < allocation.expires && allocation.permits(peer.ip(), now.at)
        });
        let client = allocation.map(|allocation| allocation.client);
        let until = now.at.after(UNCLAIMED);
        let number = client.and_then(|_| self.keep(id, peer, State::Waiting(stream, until)));
        let (Some(client), Some(number)) = (client, number) else {
            self.counts.dropped += 1;
            return None;
        };
        self.unclaimed.push_back((until, number));
        self.counts.accepted += 1;
        let transaction = self.next_transaction();
        Some((client, attempt(transaction.into(), peer, number.0)))
    }

    /// RFC 6062 section 5.4.
    pub(super) fn connection_bind(
        &mut self,
        now: Now,
        client: Client,
        message: &Message<'_>,
        signed: &AuthenticatedRequest,
    ) -> Result<Done<P>, StunError> {
        // A connection that has an allocation is spoken to as before.
        if !client.is_stream() || self.by_client.contains_key(&client) {
            return Err(StunError::Code(400));
        }
        let number = attribute::<ConnectionId>(message)?.ok_or(StunError::Code(400))?;
        let number = ConnectionNumber(number.id());
        let connection = self.connections.get(&number).ok_or(StunError::Code(400))?;
        let allocation = self.allocation(connection.allocation);
        let allocation = allocation
            .filter(|allocation| now.at < allocation.expires)
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
        let is_waiting = matches!(connection.state, State::Waiting(_, until) if now.at < until);
        if !is_waiting {
            return Err(StunError::Code(400));
        }
        let State::Waiting(stream, _) = std::mem::replace(&mut connection.state, State::Joined)
        else {
            return Err(StunError::Code(400));
        };
        let id = ConnectionId::new(number.0);
        Ok(Done::Join(Box::new(Join {
            number,
            stream,
            answer: success(message, &[&id], Some((&signed.key, signed.integrity))),
            meter,
            rates,
        })))
    }

    /// A connection that was joined is over.
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

    /// How many connections with peers there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Closes those that nobody came for.
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

    /// One of two relayed addresses is given back, and with it the connections of its family.
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

    /// A new connection of an allocation; `None` where there are as many as there may be.
    fn keep(
        &mut self,
        id: AllocationId,
        peer: SocketAddr,
        state: State<P>,
    ) -> Option<ConnectionNumber> {
        let most = self.shared.limits.connections;
        let number = self.next_number();
        let allocation = self.allocations.get_mut(id.slot as usize)?;
        if allocation.id != id || allocation.connections.len() >= most {
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

    /// One that nobody has, and that leads here.
    fn next_number(&mut self) -> ConnectionNumber {
        let Lane { index, of } = self.lane;
        loop {
            let [a, b, c, d, ..] = self.next_random().to_be_bytes();
            let random = u32::from_be_bytes([a, b, c, d]);
            let number = random.checked_rem(of).map(|rest| random - rest);
            let number = ConnectionNumber(number.unwrap_or(random).saturating_add(index));
            if !self.connections.contains_key(&number) {
                return number;
            }
        }
    }
}
