//! The sockets of relayed addresses: opening, reading and reserving them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::addresses::Addresses;
use crate::config::RelayConfig;
use crate::core::{Millis, OpenRequest, OpenedAddresses, Permit, RelayError, Transport};
use crate::ports::{Port, Ports};
use crate::worker::streams;
use crate::worker::streams::Origin;

/// Opens relayed addresses for all workers.
#[derive(Debug)]
pub(crate) struct Relays {
    pub(crate) addresses: Addresses,
    ports: [Ports; 2],
    /// Relayed addresses of allocations.
    relayed: Arc<Mutex<HashSet<RelayedAddress>>>,
    reserved: Mutex<HashMap<u64, Reservation>>,
}

/// A socket that is reserved for its holder's next allocation (RFC 8656 section 7.2).
#[derive(Debug)]
struct Reservation {
    socket: Socket,
    port: Port,
    holder: Arc<str>,
    /// Counts the reservation among the allocations of its holder.
    permit: Permit,
    until: Millis,
}

/// A socket of a relayed address. Dropping it ends its task and releases its port.
#[derive(Debug)]
pub(crate) struct RelaySocket {
    socket: Kind,
    // Dropped before the port is released.
    _entry: Entry,
    _port: Port,
}

/// A relayed address on this machine. Its IP address is one of the relay's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RelayedAddress {
    transport: Transport,
    is_ipv6: bool,
    port: u16,
}

/// Registration of a relayed address. Dropping it removes the address.
#[derive(Debug)]
struct Entry {
    relayed: Arc<Mutex<HashSet<RelayedAddress>>>,
    key: RelayedAddress,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.relayed.lock().remove(&self.key);
    }
}

#[derive(Debug)]
enum Kind {
    Udp(Arc<UdpSocket>, AbortHandle),
    Tcp(Origin),
}

/// Starts readers for the sockets of an allocation, on the runtime of the caller.
pub(crate) trait Reader {
    /// Starts to read datagrams of peers.
    fn receive(&self, socket: Arc<UdpSocket>) -> AbortHandle;

    /// Starts to accept connections of peers, until `ended`.
    fn accept(&self, listener: TcpListener, ended: CancellationToken);
}

/// Duration of a reservation: RFC 8656 section 7.2.
const RESERVATION_TIME: Millis = Millis::from_seconds(30);

/// Number of ports that are tried, because other programs of this machine may use them.
const MAX_ATTEMPTS: usize = 8;

impl Relays {
    pub(crate) fn new(relay: RelayConfig) -> Self {
        let ports = [
            Ports::new(relay.ports.clone()),
            Ports::new(relay.ports.clone()),
        ];
        Self {
            addresses: Addresses::new(relay),
            ports,
            relayed: Arc::default(),
            reserved: Mutex::default(),
        }
    }

    /// Opens the requested relayed address, and starts its reader.
    pub(crate) fn open(
        &self,
        mut open: OpenRequest,
        now: Millis,
        reader: &impl Reader,
    ) -> Result<OpenedAddresses<RelaySocket>, RelayError> {
        if let Some(token) = open.token {
            let kept = self.claim(token, &open.holder, now)?;
            let relay = self.serve(0, kept.socket, kept.port, reader)?;
            return Ok(OpenedAddresses {
                relays: [Some(relay), None],
                token: None,
                permit: Some(kept.permit),
            });
        }
        let mut relays = [None, None];
        let mut kept = None;
        for (family, relay) in relays.iter_mut().enumerate() {
            if !open.families.get(family).copied().unwrap_or(false) {
                continue;
            }
            let opened = if open.transport == Transport::Tcp {
                self.listen(family, reader)
            } else if let Some(permit) = open.reserve.take() {
                let [(socket, port), next] = self.bind_pair(family)?;
                kept = Some(self.reserve(next, &open.holder, permit, now));
                self.serve(family, socket, port, reader)
            } else {
                self.bind_one(family, open.needs_even_port, bind)
                    .and_then(|(socket, port)| self.serve(family, socket, port, reader))
            };
            match opened {
                Ok(opened) => *relay = Some(opened),
                Err(_) if family == 1 && open.is_v6_optional => {}
                Err(error) => return Err(error),
            }
        }
        Ok(OpenedAddresses {
            relays,
            token: kept,
            permit: None,
        })
    }

    /// Releases expired reservations.
    pub(crate) fn expire(&self, now: Millis) {
        self.reserved.lock().retain(|_, kept| now < kept.until);
    }

    fn bind_one<T>(
        &self,
        family: usize,
        even: bool,
        bind: impl Fn(IpAddr, u16) -> io::Result<T>,
    ) -> Result<(T, Port), RelayError> {
        let ip = self.addresses.bind(family).ok_or(RelayError::Capacity)?;
        let ports = self.ports.get(family).ok_or(RelayError::Capacity)?;
        // These ports are kept until the search ends, so that none is tried twice.
        let mut passed_over = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let random = random_number();
            let port = if even {
                ports.take_even(random)
            } else {
                ports.take(random)
            };
            let port = port.ok_or(RelayError::Capacity)?;
            match bind(ip, port.number()) {
                Ok(socket) => return Ok((socket, port)),
                Err(_taken) => passed_over.push(port),
            }
        }
        Err(RelayError::Capacity)
    }

    fn bind_pair(&self, family: usize) -> Result<[(Socket, Port); 2], RelayError> {
        let ip = self.addresses.bind(family).ok_or(RelayError::Capacity)?;
        let ports = self.ports.get(family).ok_or(RelayError::Capacity)?;
        let mut passed_over = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let [first, second] = ports
                .take_pair(random_number())
                .ok_or(RelayError::Capacity)?;
            match (bind(ip, first.number()), bind(ip, second.number())) {
                (Ok(one), Ok(other)) => return Ok([(one, first), (other, second)]),
                _ => passed_over.push([first, second]),
            }
        }
        Err(RelayError::Capacity)
    }

    fn serve(
        &self,
        family: usize,
        socket: Socket,
        port: Port,
        reader: &impl Reader,
    ) -> Result<(SocketAddr, RelaySocket), RelayError> {
        let ip = self
            .addresses
            .announced(family)
            .ok_or(RelayError::Capacity)?;
        let socket = UdpSocket::from_std(socket.into()).map_err(|_| RelayError::Capacity)?;
        let socket = Arc::new(socket);
        let address = SocketAddr::new(ip, port.number());
        let receiving = reader.receive(Arc::clone(&socket));
        let relay = RelaySocket {
            socket: Kind::Udp(socket, receiving),
            _entry: self.enter(Transport::Udp, address),
            _port: port,
        };
        Ok((address, relay))
    }

    /// Opens a relayed address for connections of peers.
    fn listen(
        &self,
        family: usize,
        reader: &impl Reader,
    ) -> Result<(SocketAddr, RelaySocket), RelayError> {
        let announced = self.addresses.announced(family);
        let announced = announced.ok_or(RelayError::Capacity)?;
        let (listener, port) = self.bind_one(family, false, streams::listen)?;
        let listening = listener.local_addr().and_then(|address| {
            let listener = TcpListener::from_std(listener)?;
            Ok((address, listener))
        });
        let (address, listener) = listening.map_err(|_| RelayError::Capacity)?;
        let ended = CancellationToken::new();
        reader.accept(listener, ended.clone());
        let relayed = SocketAddr::new(announced, port.number());
        let relay = RelaySocket {
            socket: Kind::Tcp(Origin { address, ended }),
            _entry: self.enter(Transport::Tcp, relayed),
            _port: port,
        };
        Ok((relayed, relay))
    }

    fn enter(&self, transport: Transport, address: SocketAddr) -> Entry {
        let key = RelayedAddress::of(transport, address);
        self.relayed.lock().insert(key);
        Entry {
            relayed: Arc::clone(&self.relayed),
            key,
        }
    }

    /// True if this address of the relay belongs to an allocation. Nothing else on this machine
    /// can be reached by way of the relay, or reach a client. The port alone is not sufficient:
    /// other programs also have ports of the range, and TCP and UDP ports are independent.
    pub(crate) fn is_relayed(&self, transport: Transport, address: SocketAddr) -> bool {
        let key = RelayedAddress::of(transport, address);
        self.relayed.lock().contains(&key)
    }

    /// Reserves the second of two ports, and returns its token.
    fn reserve(&self, next: (Socket, Port), holder: &Arc<str>, permit: Permit, now: Millis) -> u64 {
        let (socket, port) = next;
        let token = random_number();
        let kept = Reservation {
            socket,
            port,
            holder: Arc::clone(holder),
            permit,
            until: now.after(RESERVATION_TIME),
        };
        self.reserved.lock().insert(token, kept);
        token
    }

    fn claim(&self, token: u64, holder: &str, now: Millis) -> Result<Reservation, RelayError> {
        let mut reserved = self.reserved.lock();
        let is_theirs = |kept: &Reservation| *kept.holder == *holder && now < kept.until;
        if !reserved.get(&token).is_some_and(is_theirs) {
            return Err(RelayError::Capacity);
        }
        reserved.remove(&token).ok_or(RelayError::Capacity)
    }
}

impl RelayedAddress {
    fn of(transport: Transport, address: SocketAddr) -> Self {
        Self {
            transport,
            is_ipv6: address.ip().to_canonical().is_ipv6(),
            port: address.port(),
        }
    }
}

impl RelaySocket {
    /// Sends a datagram to a peer. A datagram that cannot be sent immediately is lost. This does
    /// not wait for the runtime: a new socket is not registered there yet, while the
    /// client's first datagram may already have arrived.
    pub(crate) fn send(&self, data: &[u8], peer: SocketAddr) -> io::Result<usize> {
        match &self.socket {
            Kind::Udp(socket, _) => SockRef::from(&**socket).send_to(data, &peer.into()),
            Kind::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Local address of connections to peers; `None` for a UDP relay.
    pub(crate) fn origin(&self) -> Option<Origin> {
        match &self.socket {
            Kind::Udp(..) => None,
            Kind::Tcp(origin) => Some(origin.clone()),
        }
    }
}

impl Drop for RelaySocket {
    fn drop(&mut self) {
        match &self.socket {
            Kind::Udp(_, receiving) => receiving.abort(),
            Kind::Tcp(origin) => origin.ended.cancel(),
        }
    }
}

fn bind(ip: IpAddr, port: u16) -> io::Result<Socket> {
    let address = SocketAddr::new(ip, port);
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if ip.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// 64 unpredictable bits. A relay does not start without randomness of the system, so the fallback
/// value does not matter.
pub(crate) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).ok();
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{AllocationId, Bandwidth, Quota, Quotas};

    struct NullReader;

    impl Reader for NullReader {
        fn receive(&self, _socket: Arc<UdpSocket>) -> AbortHandle {
            tokio::spawn(async {}).abort_handle()
        }

        fn accept(&self, _listener: TcpListener, _ended: CancellationToken) {}
    }

    fn relays() -> Relays {
        Relays::new(RelayConfig {
            bind: [Some("127.0.0.1".parse().unwrap()), None],
            announced: [Some("127.0.0.1".parse().unwrap()), None],
            ports: 61_000..=65_535,
        })
    }

    /// A reserved port counts towards the limits of its holder until it is claimed, or for 30
    /// seconds.
    #[tokio::test]
    async fn a_reserved_port_is_counted_until_it_is_claimed_or_expires() {
        let limits = Quota {
            whole: 9,
            per_project: 9,
            per_user: 9,
            per_source: 9,
        };
        let quotas = Quotas::new(limits, Bandwidth::default());
        let relays = relays();
        let holder: Arc<str> = "u".into();
        let open = |reserve, token| OpenRequest {
            id: AllocationId::FIRST,
            transport: Transport::Udp,
            families: [true, false],
            is_v6_optional: false,
            needs_even_port: false,
            reserve,
            token,
            holder: Arc::clone(&holder),
        };
        let reserve = |now| {
            let permit = quotas.take(now, &"p".into(), &holder, [192, 0, 2, 1].into());
            let opened = relays.open(open(permit, None), now, &NullReader).unwrap();
            opened.token.unwrap()
        };
        let at = Millis::from_seconds;

        let token = reserve(at(100));
        assert_eq!(quotas.taken(), 1);
        let claimed = relays
            .open(open(None, Some(token)), at(129), &NullReader)
            .unwrap();
        assert!(claimed.permit.is_some() && quotas.taken() == 1);
        drop(claimed);
        assert_eq!(quotas.taken(), 0);

        let token = reserve(at(200));
        relays.expire(at(229));
        assert_eq!(quotas.taken(), 1);
        let late = relays.open(open(None, Some(token)), at(230), &NullReader);
        assert_eq!(late.err(), Some(RelayError::Capacity));
        relays.expire(at(230));
        assert_eq!(quotas.taken(), 0);
    }
}
