//! The relay as a function: bytes and times in, answers and things to be done out.
//!
//! One [`Core`] is one worker's share of the allocations. What it needs of the world (sockets,
//! connections) it asks for with a [`Action`], and what it is told is its only clock. So every rule
//! of RFC 8656 can be tested at its edge, and a fuzzer can be let loose on it.
//!
//! ```text
//! datagram, frame of a client ──▶ from_client ──▶ Step: answer | send to a peer | open a relay
//! datagram of a peer ───────────▶ from_peer ────▶ client, and how its data is wrapped
//! ```
//!
//! Relayed TCP has its own module: [`tcp`].

mod allocation;
mod answer;
mod attributes;
mod authority;
pub mod frame;
mod integrity;
mod nonce;
pub mod packet;
mod peers;
mod quota;
mod rate;
mod request;
pub mod tcp;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use slab::Slab;

use self::allocation::{Allocation, Owner};
pub use self::authority::{Account, Authority, Meter, NotAllowedError};
pub use self::integrity::{Integrity, Key, KeyAlgorithm};
pub use self::nonce::Nonces;
use self::packet::{Wrap, channel_data};
pub use self::peers::Peers;
pub use self::quota::{Permit, Quota, Quotas};
pub use self::rate::{Bandwidth, Rates};
use self::tcp::{Connection, ConnectionNumber, Join, Lane};

/// What all workers of a relay share.
#[derive(Debug)]
pub struct Shared {
    /// The realm of its credentials.
    pub realm: Box<str>,
    /// Nonces of all of its answers.
    pub nonces: Nonces,
    /// How many allocations there may be.
    pub quotas: Quotas,
    /// To whom may be relayed.
    pub peers: Peers,
    /// Whether there are relayed addresses of IPv4, and of IPv6.
    pub families: [bool; 2],
    /// What one allocation may hold.
    pub limits: Limits,
    /// Who may allocate.
    pub authority: Arc<dyn Authority>,
}

/// What one allocation may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Permissions.
    pub permissions: usize,
    /// Channels.
    pub channels: usize,
    /// Connections with peers.
    pub connections: usize,
}

/// How an allocation reaches its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// With datagrams.
    Udp,
    /// With connections (RFC 6062).
    Tcp,
}

/// The present moment, by both clocks that count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Unix seconds: credentials end by it.
    pub unix: i64,
    /// Since the start, never backwards: everything else ends by it.
    pub at: Millis,
}

/// A time since the start, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// So many seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Whole seconds.
    pub const fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// This long later.
    #[must_use]
    pub const fn after(self, time: Self) -> Self {
        Self(self.0.saturating_add(time.0))
    }

    /// How long ago the other one was; nothing where it is to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Where a client is: its side of the five-tuple, and which of our sockets the other is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Our socket.
    pub listener: u16,
    /// The connection, where there is one: 0 for UDP. No two have one number.
    pub connection: u32,
}

impl Client {
    /// Whether it came over TCP, with TLS or without.
    pub fn is_stream(&self) -> bool {
        self.connection != 0
    }

    /// Whom a nonce is for. A connection has shown where it comes from, and a client's second one
    /// (RFC 6062) begins with the nonce of its first: so the port of a connection does not count.
    fn nonce_source(&self) -> SocketAddr {
        let port = if self.is_stream() {
            0
        } else {
            self.address.port()
        };
        SocketAddr::new(self.address.ip(), port)
    }
}

/// Names an allocation, and never another one that came later to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllocationId {
    slot: u32,
    generation: u32,
}

#[cfg(test)]
impl AllocationId {
    pub(crate) const FIRST: Self = Self {
        slot: 0,
        generation: 0,
    };
}

/// What follows from what a client sent.
#[derive(Debug)]
pub enum Action<'a, S, P = ()> {
    /// Nothing.
    Nothing,
    /// This is sent back.
    Answer(Vec<u8>),
    /// This is sent to a peer.
    Send {
        /// The relay's socket.
        socket: &'a S,
        /// To whom.
        peer: SocketAddr,
        /// What.
        data: &'a [u8],
    },
    /// Relayed addresses are wanted: open them and call [`Core::opened`] before anything else.
    Open(Open),
    /// A connection to a peer is wanted: say what came of it with [`Core::dialled`].
    Dial {
        /// Names the connection.
        number: ConnectionNumber,
        /// The relayed address that it is made from.
        relay: &'a S,
        /// To whom.
        peer: SocketAddr,
    },
    /// This connection of the client is joined with the peer's, and carries no messages any more.
    Join(Box<Join<P>>),
}

/// The relayed addresses that a client asks for.
#[derive(Debug)]
pub struct Open {
    /// Names the allocation that is to be.
    pub id: AllocationId,
    /// What they are for.
    pub transport: Transport,
    /// IPv4, IPv6.
    pub families: [bool; 2],
    /// IPv6 is asked for in addition: the allocation is made without it where it cannot be had.
    pub is_v6_optional: bool,
    /// An even port.
    pub even: bool,
    /// The port after it as well, kept for a later allocation of the holder; this counts it for as
    /// long as it is kept.
    pub reserve: Option<Permit>,
    /// The port that was kept under this token.
    pub token: Option<u64>,
    /// Who asks: reservations are theirs alone.
    pub holder: Arc<str>,
}

/// Relayed addresses that were opened.
#[derive(Debug)]
pub struct Opened<S> {
    /// IPv4, IPv6: address as clients and peers see it, and its socket.
    pub relays: [Option<(SocketAddr, S)>; 2],
    /// The next port is kept under this token.
    pub token: Option<u64>,
    /// The permit of a reserved port, which counts the allocation that claims it.
    pub permit: Option<Permit>,
}

/// Why there is no relayed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayError {
    /// No port is free, or nothing was kept under the token: 508.
    Capacity,
}

/// An Allocate request that waits for [`Core::opened`].
#[derive(Debug)]
struct Pending {
    id: AllocationId,
    transport: Transport,
    is_v6_optional: bool,
    /// None where a port was kept, which is counted already.
    permit: Option<Permit>,
    owner: Owner,
    integrity: Integrity,
    lifetime: Millis,
    /// The request, to be answered.
    request: Vec<u8>,
}

/// What a core holds and has done, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were refused for their credentials: not authenticated, or not allowed.
    pub refused: u64,
    /// Packets that were dropped: no allocation, no permission, no channel, no sense.
    pub dropped: u64,
    /// Allocations that ended because they were no longer allowed.
    pub revoked: u64,
    /// Allocations that were made.
    pub allocated: u64,
    /// Bytes of data that were relayed in datagrams.
    pub relayed: u64,
    /// Bytes of data that were dropped because a rate was reached.
    pub throttled: u64,
    /// Connections that were made to peers.
    pub dialled: u64,
    /// Connections of peers that were taken.
    pub accepted: u64,
    /// Connections to peers that could not be made.
    pub unreachable: u64,
    /// Connections with peers that were closed because their client did not come for them.
    pub unclaimed: u64,
}

/// One worker's allocations. `S` stands for a relay's socket, `P` for a connection with a peer:
/// dropping it closes it.
#[derive(Debug)]
pub struct Core<S, P = ()> {
    shared: Arc<Shared>,
    lane: Lane,
    allocations: Slab<Allocation<S>>,
    by_client: HashMap<Client, usize>,
    ends: BTreeSet<(Millis, AllocationId)>,
    connections: HashMap<ConnectionNumber, Connection<P>>,
    /// Those that wait for their clients, in the order in which their time ends.
    unclaimed: VecDeque<(Millis, ConnectionNumber)>,
    generation: u32,
    pending: Option<Pending>,
    is_draining: bool,
    counts: Counts,
    /// Makes transaction ids of indications, which no security hangs on.
    random: u64,
}

impl<S, P> Core<S, P> {
    /// Nothing is allocated. `seed` tells the indications of two cores apart.
    pub fn new(shared: Arc<Shared>, lane: Lane, seed: u64) -> Self {
        Self {
            shared,
            lane,
            allocations: Slab::new(),
            by_client: HashMap::new(),
            ends: BTreeSet::new(),
            connections: HashMap::new(),
            unclaimed: VecDeque::new(),
            generation: 0,
            pending: None,
            is_draining: false,
            counts: Counts::default(),
            random: seed | 1,
        }
    }

    /// A datagram of a client, or a frame of its stream.
    pub fn from_client<'a>(
        &'a mut self,
        now: Now,
        client: Client,
        bytes: &'a [u8],
    ) -> Action<'a, S, P> {
        match bytes.first() {
            Some(0x40..=0x7f) => self.channel_data(now, client, bytes),
            Some(0x00..=0x3f) => self.message(now, client, bytes),
            _ => self.drop_it(),
        }
    }

    fn channel_data<'a>(
        &'a mut self,
        now: Now,
        client: Client,
        bytes: &'a [u8],
    ) -> Action<'a, S, P> {
        let found = channel_data(bytes).and_then(|(number, data)| {
            let slot = self.by_client.get(&client)?;
            let allocation = self.allocations.get(*slot)?;
            let peer = allocation.peer_of(number, now.at)?;
            let relay = allocation.relay_for(peer.ip())?;
            (now.at < allocation.expires).then_some((allocation, relay, peer, data))
        });
        let Some((allocation, relay, peer, data)) = found else {
            self.counts.dropped += 1;
            return Action::Nothing;
        };
        if !allocation.permit.rates().admit(now.at, data.len()) {
            self.counts.throttled += data.len() as u64;
            return Action::Nothing;
        }
        allocation.account.meter.relay(data.len());
        self.counts.relayed += data.len() as u64;
        Action::Send {
            socket: relay,
            peer,
            data,
        }
    }

    /// A peer's datagram of `length` bytes at a relay: whose it is, and how it is wrapped.
    pub fn from_peer(
        &mut self,
        now: Now,
        id: AllocationId,
        peer: SocketAddr,
        length: usize,
    ) -> Option<(Client, Wrap)> {
        let transaction = transaction_bytes(self.next_transaction());
        let found = self.allocation(id).and_then(|allocation| {
            let is_let_in = now.at < allocation.expires && allocation.permits(peer.ip(), now.at);
            is_let_in.then_some(allocation)
        });
        let Some(allocation) = found else {
            self.counts.dropped += 1;
            return None;
        };
        if !allocation.permit.rates().admit(now.at, length) {
            self.counts.throttled += length as u64;
            return None;
        }
        allocation.account.meter.relay(length);
        let client = allocation.client;
        let wrap = match allocation.channel_of(peer, now.at) {
            Some(number) => Wrap::Channel(number),
            None => Wrap::Indication { peer, transaction },
        };
        self.counts.relayed += length as u64;
        Some((client, wrap))
    }

    /// The relayed addresses of the last [`Action::Open`], or why there are none. Returns what is
    /// sent back.
    pub fn opened(&mut self, now: Now, mut opened: Result<Opened<S>, RelayError>) -> Vec<u8> {
        let Some(pending) = self.pending.take() else {
            return Vec::new();
        };
        let Pending {
            id,
            transport,
            is_v6_optional,
            permit,
            owner,
            integrity,
            lifetime,
            request,
        } = pending;
        let expires = now.at.after(lifetime);
        let kept = opened.as_mut().ok().and_then(|opened| opened.permit.take());
        let permit = permit.or(kept);
        if permit.is_none() {
            opened = Err(RelayError::Capacity);
        }
        let answer = answer::allocated(
            &request,
            &owner,
            integrity,
            lifetime,
            is_v6_optional,
            &opened,
        );
        let (Ok(opened), Some(permit)) = (opened, permit) else {
            return answer;
        };
        let relays = opened.relays.map(|relay| relay.map(|(_, socket)| socket));
        let client = owner.client;
        owner.account.meter.allocate();
        self.counts.allocated += 1;
        let kept = answer.clone().into_boxed_slice();
        let allocation = Allocation::new(id, owner, permit, transport, relays, expires, kept);
        let slot = self.allocations.insert(allocation);
        self.by_client.insert(client, slot);
        self.ends.insert((expires, id));
        answer
    }

    /// Ends allocations that have run out, and connections that nobody came for. Returns how many
    /// allocations.
    pub fn expire(&mut self, now: Now) -> usize {
        let mut ended = 0;
        while let Some((end, id)) = self.ends.first().copied()
            && end <= now.at
        {
            self.ends.pop_first();
            self.end(id);
            ended += 1;
        }
        self.expire_connections(now.at);
        ended
    }

    /// The connection of a client is closed: so is what it had allocated.
    pub fn client_gone(&mut self, client: Client) {
        let slot = self.by_client.get(&client);
        let allocation = slot.and_then(|slot| self.allocations.get(*slot));
        if let Some(id) = allocation.map(|allocation| allocation.id) {
            self.end(id);
        }
    }

    /// Ends allocations that would not be allowed now. Called whenever what is known of
    /// credentials and projects has changed.
    pub fn review(&mut self, now: Now) {
        let authority = Arc::clone(&self.shared.authority);
        let is_allowed = |allocation: &Allocation<S>| {
            request::still_allowed(&*authority, &allocation.username, &allocation.secret, now)
        };
        let ended: Vec<AllocationId> = self
            .allocations
            .iter()
            .filter(|(_, allocation)| !is_allowed(allocation))
            .map(|(_, allocation)| allocation.id)
            .collect();
        self.counts.revoked += ended.len() as u64;
        for id in ended {
            self.end(id);
        }
    }

    /// No further allocations are made; those that are there go on.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Ends everything.
    pub fn end_all(&mut self) {
        self.connections.clear();
        self.unclaimed.clear();
        self.allocations.clear();
        self.by_client.clear();
        self.ends.clear();
    }

    /// How many allocations there are.
    pub fn len(&self) -> usize {
        self.allocations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// Whether this client has an allocation.
    pub fn has_allocation(&self, client: Client) -> bool {
        self.by_client.contains_key(&client)
    }

    /// What was counted since the last time.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    fn allocation(&self, id: AllocationId) -> Option<&Allocation<S>> {
        let allocation = self.allocations.get(id.slot as usize)?;
        (allocation.id == id).then_some(allocation)
    }

    fn end(&mut self, id: AllocationId) {
        if self.allocation(id).is_none() {
            return;
        }
        if let Some(allocation) = self.allocations.try_remove(id.slot as usize) {
            self.by_client.remove(&allocation.client);
            self.ends.remove(&(allocation.expires, id));
            for number in allocation.connections {
                self.connections.remove(&number);
            }
        }
    }

    fn drop_it<'a>(&mut self) -> Action<'a, S, P> {
        self.counts.dropped += 1;
        Action::Nothing
    }

    /// The name of the next allocation.
    fn next_id(&mut self) -> AllocationId {
        self.generation = self.generation.wrapping_add(1);
        AllocationId {
            // A slab of ours holds no more than a quota, which is a number of ports.
            slot: u32::try_from(self.allocations.vacant_key()).unwrap_or(u32::MAX),
            generation: self.generation,
        }
    }

    /// xorshift64*, by Vigna.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn next_transaction(&mut self) -> u128 {
        u128::from(self.next_random()) << 64 | u128::from(self.next_random())
    }
}

/// The 96 bits of a transaction.
fn transaction_bytes(bits: u128) -> [u8; 12] {
    let mut transaction = [0; 12];
    for (place, byte) in transaction.iter_mut().zip(bits.to_be_bytes()) {
        *place = byte;
    }
    transaction
}
