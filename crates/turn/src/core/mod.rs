//! The relay as a function: its inputs are bytes and times, its outputs are responses and actions.
//!
//! One [`Core`] has the allocations of one worker. It requests sockets and connections with an
//! [`Action`], and the times in its arguments are its only clock. Every rule of RFC 8656 can
//! therefore be tested exactly, and the core can be fuzzed.
//!
//! ```text
//! datagram, frame of a client ──▶ from_client ──▶ Action: answer | send to a peer | open a relay
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
use self::packet::{DataHeader, channel_data};
pub use self::peers::Peers;
pub use self::quota::{Permit, Quota, Quotas};
pub use self::rate::{Bandwidth, Rates};
use self::tcp::{Connection, ConnectionNumber, CorePosition, JoinedConnections};

/// State that all workers of a relay share.
#[derive(Debug)]
pub struct SharedState {
    /// The realm of its credentials.
    pub realm: Box<str>,
    /// Nonces of all responses.
    pub nonces: Nonces,
    /// Limits of the number of allocations.
    pub quotas: Quotas,
    /// Permitted peers.
    pub peers: Peers,
    /// True if there are relayed addresses of IPv4, and of IPv6.
    pub families: [bool; 2],
    /// Limits of one allocation.
    pub limits: Limits,
    /// Decides about credentials.
    pub authority: Arc<dyn Authority>,
}

/// Limits of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum of permissions.
    pub permissions: usize,
    /// Maximum of channels.
    pub channels: usize,
    /// Maximum of connections with peers.
    pub connections: usize,
    /// Age up to which an allocation may be refreshed although its username has expired.
    pub age: Millis,
}

/// Transport between an allocation and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Connections (RFC 6062).
    Tcp,
}

/// The current time of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Unix seconds, for the expiry of credentials.
    pub unix: i64,
    /// Monotonic time since the start, for all other deadlines.
    pub monotonic: Millis,
}

/// A monotonic time or a duration in milliseconds. Times count from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// A duration of `seconds`.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Whole seconds.
    pub const fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// This time plus a duration.
    #[must_use]
    pub const fn after(self, time: Self) -> Self {
        Self(self.0.saturating_add(time.0))
    }

    /// The duration since an earlier time; zero if that time is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Address of a client, and the socket of the relay: the five-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Address of the client.
    pub address: SocketAddr,
    /// Number of the relay's listener.
    pub listener: u16,
    /// Number of the connection, 0 for UDP. Each connection has a unique number.
    pub connection: u32,
}

impl Client {
    /// True if the client uses TCP, with or without TLS.
    pub fn is_stream(&self) -> bool {
        self.connection != 0
    }

    /// Address for which a nonce is valid. The source of a connection is verified, and a client's
    /// second connection (RFC 6062) starts with the nonce of its first. The port of a connection is
    /// therefore ignored.
    fn nonce_source(&self) -> SocketAddr {
        let port = if self.is_stream() {
            0
        } else {
            self.address.port()
        };
        SocketAddr::new(self.address.ip(), port)
    }
}

/// Id of an allocation. A later allocation in the same slot has another id.
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

/// Result of a client's packet.
#[derive(Debug)]
pub enum Action<'a, S, P = ()> {
    /// No action.
    NoAction,
    /// Send this response.
    Answer(Vec<u8>),
    /// Send this data to a peer.
    Send {
        /// The relay's socket.
        socket: &'a S,
        /// Address of the peer.
        peer: SocketAddr,
        /// The data.
        data: &'a [u8],
    },
    /// Open relayed addresses, and call [`Core::opened`] before anything else.
    Open(OpenRequest),
    /// Connect to a peer, and report the result with [`Core::dialled`].
    Dial {
        /// Number of the new connection.
        number: ConnectionNumber,
        /// The relayed address that the connection comes from.
        relay: &'a S,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// Join this connection of the client with the peer's. It carries no more messages.
    Join(Box<JoinedConnections<P>>),
}

/// Relayed addresses that a client requests.
#[derive(Debug)]
pub struct OpenRequest {
    /// Id of the future allocation.
    pub id: AllocationId,
    /// Transport to peers.
    pub transport: Transport,
    /// Requested families: IPv4, IPv6.
    pub families: [bool; 2],
    /// IPv6 is an additional address: without it the allocation is made nevertheless.
    pub is_v6_optional: bool,
    /// True if the port must be even.
    pub needs_even_port: bool,
    /// Also reserves the next port for a later allocation of the holder. This permit counts it
    /// while it is reserved.
    pub reserve: Option<Permit>,
    /// Token of a reserved port to use.
    pub token: Option<u64>,
    /// Holder of the credential. Only the holder may use its reservations.
    pub holder: Arc<str>,
}

/// Opened relayed addresses.
#[derive(Debug)]
pub struct OpenedAddresses<S> {
    /// IPv4, IPv6: the address that clients and peers use, and its socket.
    pub relays: [Option<(SocketAddr, S)>; 2],
    /// Token of the reserved next port.
    pub token: Option<u64>,
    /// The permit of a reserved port, which counts the allocation that uses it.
    pub permit: Option<Permit>,
}

/// Reasons for which no relayed address can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayError {
    /// No port is free, or the token has no reservation: 508.
    Capacity,
}

/// An Allocate request that waits for [`Core::opened`].
#[derive(Debug)]
struct PendingAllocation {
    id: AllocationId,
    transport: Transport,
    is_v6_optional: bool,
    /// `None` for a reserved port, which is already counted.
    permit: Option<Permit>,
    owner: Owner,
    integrity: Integrity,
    lifetime: Millis,
    /// The original request, for the response.
    request: Vec<u8>,
}

/// Counters of a core, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were refused because their credentials were not authenticated or not
    /// permitted.
    pub refused: u64,
    /// Packets that were dropped: without an allocation, a permission or a channel, or malformed.
    pub dropped: u64,
    /// Allocations that ended because they were no longer permitted.
    pub revoked: u64,
    /// Allocations that were created.
    pub allocated: u64,
    /// Bytes of data that were relayed in datagrams.
    pub relayed: u64,
    /// Bytes of data that were dropped because a rate was reached.
    pub throttled: u64,
    /// Connections that were made to peers.
    pub dialled: u64,
    /// Connections of peers that were accepted.
    pub accepted: u64,
    /// Connections to peers that could not be made.
    pub unreachable: u64,
    /// Connections with peers that were closed because no client claimed them.
    pub unclaimed: u64,
}

/// The allocations of one worker. `S` is a relay's socket, and `P` a connection with a peer, which
/// is closed when it is dropped.
#[derive(Debug)]
pub struct Core<S, P = ()> {
    shared: Arc<SharedState>,
    position: CorePosition,
    allocations: Slab<Allocation<S>>,
    by_client: HashMap<Client, usize>,
    ends: BTreeSet<(Millis, AllocationId)>,
    connections: HashMap<ConnectionNumber, Connection<P>>,
    /// Connections that wait for their clients, in the order of their deadlines.
    unclaimed: VecDeque<(Millis, ConnectionNumber)>,
    generation: u32,
    pending: Option<PendingAllocation>,
    is_draining: bool,
    counts: Counts,
    /// State of the generator of transaction ids for indications. They need not be unpredictable.
    random: u64,
}

impl<S, P> Core<S, P> {
    /// Creates a core without allocations. `seed` makes the indications of two cores differ.
    pub fn new(shared: Arc<SharedState>, position: CorePosition, seed: u64) -> Self {
        Self {
            shared,
            position,
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

    /// Handles a datagram of a client, or a frame of its stream.
    pub fn on_client_packet<'a>(
        &'a mut self,
        now: Time,
        client: Client,
        bytes: &'a [u8],
    ) -> Action<'a, S, P> {
        match bytes.first() {
            Some(0x40..=0x7f) => self.channel_data(now, client, bytes),
            Some(0x00..=0x3f) => self.message(now, client, bytes),
            _ => self.count_dropped(),
        }
    }

    fn channel_data<'a>(
        &'a mut self,
        now: Time,
        client: Client,
        bytes: &'a [u8],
    ) -> Action<'a, S, P> {
        let found = channel_data(bytes).and_then(|(number, data)| {
            let slot = self.by_client.get(&client)?;
            let allocation = self.allocations.get(*slot)?;
            let peer = allocation.peer_of(number, now.monotonic)?;
            let relay = allocation.relay_for(peer.ip())?;
            (now.monotonic < allocation.expires).then_some((allocation, relay, peer, data))
        });
        let Some((allocation, relay, peer, data)) = found else {
            self.counts.dropped += 1;
            return Action::NoAction;
        };
        if !allocation.permit.rates().admit(now.monotonic, data.len()) {
            self.counts.throttled += data.len() as u64;
            return Action::NoAction;
        }
        allocation.account.meter.relay(data.len());
        self.counts.relayed += data.len() as u64;
        Action::Send {
            socket: relay,
            peer,
            data,
        }
    }

    /// Handles a peer's datagram of `length` bytes. Returns the client, and the header for its
    /// data.
    pub fn on_peer_datagram(
        &mut self,
        now: Time,
        id: AllocationId,
        peer: SocketAddr,
        length: usize,
    ) -> Option<(Client, DataHeader)> {
        let transaction = transaction_bytes(self.next_transaction());
        let found = self.allocation(id).and_then(|allocation| {
            let is_admitted =
                now.monotonic < allocation.expires && allocation.permits(peer.ip(), now.monotonic);
            is_admitted.then_some(allocation)
        });
        let Some(allocation) = found else {
            self.counts.dropped += 1;
            return None;
        };
        if !allocation.permit.rates().admit(now.monotonic, length) {
            self.counts.throttled += length as u64;
            return None;
        }
        allocation.account.meter.relay(length);
        let client = allocation.client;
        let wrap = match allocation.channel_of(peer, now.monotonic) {
            Some(number) => DataHeader::Channel(number),
            None => DataHeader::Indication { peer, transaction },
        };
        self.counts.relayed += length as u64;
        Some((client, wrap))
    }

    /// Handles the result of the last [`Action::Open`]. Returns the response to the client.
    pub fn opened(
        &mut self,
        now: Time,
        mut opened: Result<OpenedAddresses<S>, RelayError>,
    ) -> Vec<u8> {
        let Some(pending) = self.pending.take() else {
            return Vec::new();
        };
        let PendingAllocation {
            id,
            transport,
            is_v6_optional,
            permit,
            owner,
            integrity,
            lifetime,
            request,
        } = pending;
        let expires = now.monotonic.after(lifetime);
        let kept = opened.as_mut().ok().and_then(|opened| opened.permit.take());
        let permit = permit.or(kept);
        if permit.is_none() {
            opened = Err(RelayError::Capacity);
        }
        let answer = answer::allocate_response(
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
        let lifetime = now.monotonic..expires;
        let allocation = Allocation::new(id, owner, permit, transport, relays, lifetime, kept);
        let slot = self.allocations.insert(allocation);
        self.by_client.insert(client, slot);
        self.ends.insert((expires, id));
        answer
    }

    /// Ends expired allocations and unclaimed connections. Returns the number of ended allocations.
    pub fn expire(&mut self, now: Time) -> usize {
        let mut ended = 0;
        while let Some((end, id)) = self.ends.first().copied()
            && end <= now.monotonic
        {
            self.ends.pop_first();
            self.end(id);
            ended += 1;
        }
        self.expire_connections(now.monotonic);
        ended
    }

    /// Handles the end of a client's connection, which ends its allocation.
    pub fn client_gone(&mut self, client: Client) {
        let slot = self.by_client.get(&client);
        let allocation = slot.and_then(|slot| self.allocations.get(*slot));
        if let Some(id) = allocation.map(|allocation| allocation.id) {
            self.end(id);
        }
    }

    /// Ends allocations that are no longer permitted. It must be called after each change of
    /// credentials and projects.
    pub fn review(&mut self, now: Time) {
        let authority = Arc::clone(&self.shared.authority);
        let is_allowed = |allocation: &Allocation<S>| {
            request::is_still_permitted(&*authority, &allocation.username, &allocation.secret, now)
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

    /// Stops making allocations; existing ones continue.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Ends all allocations.
    pub fn end_all(&mut self) {
        self.connections.clear();
        self.unclaimed.clear();
        self.allocations.clear();
        self.by_client.clear();
        self.ends.clear();
    }

    /// Number of allocations.
    pub fn len(&self) -> usize {
        self.allocations.len()
    }

    /// True if there are no allocations.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// True if this client has an allocation.
    pub fn has_allocation(&self, client: Client) -> bool {
        self.by_client.contains_key(&client)
    }

    /// Counters since the last call.
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

    fn count_dropped<'a>(&mut self) -> Action<'a, S, P> {
        self.counts.dropped += 1;
        Action::NoAction
    }

    /// The id of the next allocation.
    fn next_id(&mut self) -> AllocationId {
        self.generation = self.generation.wrapping_add(1);
        AllocationId {
            // A slab contains at most as many allocations as the quota permits, which is below the
            // number of ports.
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

/// Encodes the 96 bits of a transaction id.
fn transaction_bytes(bits: u128) -> [u8; 12] {
    let mut transaction = [0; 12];
    for (place, byte) in transaction.iter_mut().zip(bits.to_be_bytes()) {
        *place = byte;
    }
    transaction
}
