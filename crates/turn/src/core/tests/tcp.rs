//! Relayed TCP (RFC 6062).

use super::*;

const PEER: &str = "1.1.1.1:9";

fn tcp_client(text: &str, connection: u32) -> Client {
    Client {
        connection,
        listener: u16::MAX,
        ..at(text)
    }
}

fn control() -> Client {
    tcp_client("192.0.2.9:5000", 1)
}

fn data_connection() -> Client {
    tcp_client("192.0.2.9:5001", 2)
}

fn allocate_tcp(relay: &mut Relay, client: Client, user: &str) -> Caller {
    let mut caller = Caller::new(relay, client, user);
    let code = caller
        .ask(relay, ALLOCATE, &[&RequestedTransport::new(6)])
        .0;
    assert_eq!(code, 0);
    assert_eq!(relay.last_open.as_ref().unwrap().transport, Transport::Tcp);
    caller
}

impl Caller {
    /// Requests a connection; returns the code of an immediate refusal.
    fn connect(&mut self, relay: &mut Relay, peer: &str) -> Result<PendingDial, u16> {
        let id = self.next();
        let address = XorPeerAddress::new(peer.parse().unwrap(), id);
        let bytes = self.signed(CONNECT, id, &[&address]);
        match relay.give(self.client, &bytes) {
            PacketResult::Dial(number, from, to) => {
                assert_eq!(
                    (from.ip(), to),
                    (address_of_relay(to), peer.parse().unwrap())
                );
                Ok(PendingDial { number, id })
            }
            PacketResult::Answer(answer) => Err(self.read(CONNECT, id, answer).0),
            other => panic!("{other:?}"),
        }
    }

    /// Establishes a connection; returns its CONNECTION-ID.
    fn establish(&mut self, relay: &mut Relay, peer: &str, stream: u32) -> u32 {
        let dialling = self.connect(relay, peer).unwrap();
        let result = relay.core.dialled(relay.now, dialling.number, Ok(stream));
        let (client, answer) = result.unwrap();
        assert_eq!(client, self.client);
        let (code, answer) = self.read(CONNECT, dialling.id, answer);
        assert_eq!(code, 0);
        connection_id_of(&answer)
    }

    /// Claims a connection: returns its number and the peer's stream, or the code of the refusal.
    fn claim(
        &mut self,
        relay: &mut Relay,
        connection_id: u32,
    ) -> Result<(ConnectionNumber, u32), u16> {
        let id = self.next();
        let bytes = self.signed(CONNECTION_BIND, id, &[&ConnectionId::new(connection_id)]);
        assert_eq!(
            super::super::tcp::core_of_bind(&bytes, 3),
            Some(connection_id as usize % 3)
        );
        match relay.give(self.client, &bytes) {
            PacketResult::Join(connection, stream, answer) => {
                let (code, answer) = self.read(CONNECTION_BIND, id, answer);
                assert_eq!((code, connection_id_of(&answer)), (0, connection_id));
                Ok((connection, stream))
            }
            PacketResult::Answer(answer) => Err(self.read(CONNECTION_BIND, id, answer).0),
            other => panic!("{other:?}"),
        }
    }
}

struct PendingDial {
    number: ConnectionNumber,
    id: TransactionId,
}

fn address_of_relay(peer: SocketAddr) -> std::net::IpAddr {
    let ip = if peer.is_ipv4() {
        "198.41.0.4"
    } else {
        "2a00::4"
    };
    ip.parse().unwrap()
}

fn connection_id_of(message: &[u8]) -> u32 {
    let message = Message::from_bytes(message).unwrap();
    message.attribute::<ConnectionId>().unwrap().id()
}

#[test]
fn a_tcp_allocation_requires_a_connection_and_excludes_other_options() {
    let mut relay = Relay::new();
    let tcp = RequestedTransport::new(6);
    let (even, token) = (EvenPort::new(false), ReservationToken::new(1));
    let table: [(&[&dyn AttributeWrite], u16); 5] = [
        (&[&tcp, &even], 400),
        (&[&tcp, &token], 400),
        (&[&tcp, &DontFragment::new()], 400),
        (&[&RequestedTransport::new(132)], 442),
        (&[&tcp], 0),
    ];
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    assert_eq!(caller.ask(&mut relay, ALLOCATE, &[&tcp]).0, 400, "UDP");
    for (index, (with, expected)) in table.into_iter().enumerate() {
        let mut caller = Caller::new(&mut relay, control(), USER);
        assert_eq!(
            caller.ask(&mut relay, ALLOCATE, with).0,
            expected,
            "{index}"
        );
    }
}

#[test]
fn a_client_connects_to_a_peer_and_claims_the_connection() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let connection_id = caller.establish(&mut relay, PEER, 70);
    assert_eq!(connection_id % 3, 2, "its number identifies this core");
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    let (connection, stream) = data.claim(&mut relay, connection_id).unwrap();
    assert_eq!(stream, 70);
    assert_eq!(
        data.claim(&mut relay, connection_id),
        Err(400),
        "it is claimed once"
    );
    assert_eq!(caller.connect(&mut relay, PEER).err(), Some(446));
    assert_eq!(relay.core.connections(), 1);
    relay.core.disconnected(connection);
    assert_eq!(relay.core.connections(), 0);
    assert!(caller.connect(&mut relay, PEER).is_ok());
}

/// coturn's client requires this.
#[test]
fn the_second_connection_can_use_the_nonce_of_the_first() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let connection_id = caller.establish(&mut relay, PEER, 70);
    let mut elsewhere = caller.clone();
    elsewhere.client = tcp_client("192.0.2.10:5001", 3);
    assert_eq!(elsewhere.claim(&mut relay, connection_id), Err(438));
    caller.client = data_connection();
    assert!(caller.claim(&mut relay, connection_id).is_ok());
}

#[test]
fn a_peer_needs_a_permission_to_connect() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let (id, now) = (relay.last_open.as_ref().unwrap().id, relay.now);
    let peer: SocketAddr = PEER.parse().unwrap();
    assert!(relay.core.accepted(now, id, peer, 70).is_none());
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let (client, message) = relay.core.accepted(now, id, peer, 71).unwrap();
    assert_eq!(client, control());
    let read = Message::from_bytes(&message).unwrap();
    assert!(read.has_class(MessageClass::Indication) && read.has_method(CONNECTION_ATTEMPT));
    let from: XorPeerAddress = read.attribute().unwrap();
    assert_eq!(from.addr(read.transaction_id()), peer);
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    let claimed = data.claim(&mut relay, connection_id_of(&message));
    assert_eq!(claimed.map(|(_, stream)| stream), Ok(71));
    relay.advance(300);
    let now = relay.now;
    let later = "1.1.1.1:10".parse().unwrap();
    assert!(relay.core.accepted(now, id, later, 72).is_none(), "300 s");
}

#[test]
fn connections_cannot_be_claimed_by_others() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let connection_id = caller.establish(&mut relay, PEER, 70);
    let other_user = USER.replace("usr_1", "usr_2");
    let mut other = Caller::new(&mut relay, data_connection(), &other_user);
    assert_eq!(other.claim(&mut relay, connection_id), Err(441));
    assert_eq!(
        other.claim(&mut relay, connection_id ^ 0x100),
        Err(400),
        "no such connection"
    );
    let mut datagrams = Caller::new(&mut relay, udp_client(), USER);
    assert_eq!(datagrams.claim(&mut relay, connection_id), Err(400), "UDP");
    assert_eq!(
        caller.claim(&mut relay, connection_id),
        Err(400),
        "the first connection"
    );
    assert_eq!(caller.ask(&mut relay, CONNECTION_BIND, &[]).0, 400);
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    data.password.push('x');
    assert_eq!(data.claim(&mut relay, connection_id), Err(401));
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    assert!(data.claim(&mut relay, connection_id).is_ok());
}

#[test]
fn connections_to_special_peers_and_the_relay_itself_are_refused() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    for (peer, code) in [
        ("10.0.0.1:80", 403),
        ("127.0.0.1:22", 403),
        ("169.254.169.254:80", 403),
        ("198.41.0.4:3478", 403),
        ("198.41.0.4:22", 403),
        ("1.1.1.1:0", 403),
        ("[2606:4700::1]:80", 443),
    ] {
        assert_eq!(caller.connect(&mut relay, peer).err(), Some(code), "{peer}");
    }
    assert!(
        caller.connect(&mut relay, "198.41.0.4:40001").is_ok(),
        "another allocation"
    );
    assert_eq!(caller.ask(&mut relay, CONNECT, &[]).0, 400);
}

#[test]
fn each_kind_of_allocation_has_its_own_requests() {
    let mut relay = Relay::new();
    let mut tcp = allocate_tcp(&mut relay, control(), USER);
    assert_eq!(tcp.bind(&mut relay, 0x4000, PEER), 403);
    assert_eq!(tcp.permit(&mut relay, &["1.1.1.1:0"]), 0);
    assert_eq!(tcp.send(&mut relay, PEER, b"x"), PacketResult::Nothing);
    let mut udp = allocate_udp(&mut relay);
    assert_eq!(udp.connect(&mut relay, PEER).err(), Some(403));
    let mut nothing = Caller::new(&mut relay, data_connection(), USER);
    assert_eq!(nothing.connect(&mut relay, PEER).err(), Some(437));
}

#[test]
fn an_unreachable_peer_is_reported() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let dialling = caller.connect(&mut relay, PEER).unwrap();
    assert_eq!(
        caller.connect(&mut relay, PEER).err(),
        Some(446),
        "the first dial is pending"
    );
    let (number, now) = (dialling.number, relay.now);
    let (_, answer) = relay
        .core
        .dialled(now, number, Err(super::super::tcp::Unreachable))
        .unwrap();
    assert_eq!(caller.read(CONNECT, dialling.id, answer).0, 447);
    assert_eq!(relay.core.connections(), 0);
    assert!(
        relay.core.dialled(now, number, Ok(1)).is_none(),
        "the dial has already failed"
    );
    assert!(caller.connect(&mut relay, PEER).is_ok());
}

/// The time limit of RFC 6062 sections 5.2 and 5.3: 30 seconds.
#[test]
fn unclaimed_connections_are_closed() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let early = caller.establish(&mut relay, PEER, 70);
    relay.advance(1);
    let late = caller.establish(&mut relay, "1.1.1.1:10", 71);
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    relay.advance(28);
    assert_eq!(relay.core.connections(), 2);
    relay.advance(1);
    assert_eq!(relay.core.connections(), 1);
    assert_eq!(data.claim(&mut relay, early), Err(400));
    assert!(data.claim(&mut relay, late).is_ok());
    relay.advance(60);
    assert_eq!(relay.core.connections(), 1, "joined connections stay");
    assert_eq!(relay.core.take_counts().unclaimed, 1);
}

#[test]
fn connections_of_an_allocation_are_limited_and_end_with_it() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let id = relay.last_open.as_ref().unwrap().id;
    let connection_id = caller.establish(&mut relay, PEER, 70);
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    assert!(data.claim(&mut relay, connection_id).is_ok());
    let dialling = caller.connect(&mut relay, "1.1.1.1:10").unwrap();
    assert_eq!(caller.connect(&mut relay, "1.1.1.1:11").err(), Some(508));
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let now = relay.now;
    let third = "1.1.1.1:12".parse().unwrap();
    assert!(relay.core.accepted(now, id, third, 73).is_none());
    relay.core.client_gone(data_connection());
    assert_eq!(
        relay.core.connections(),
        2,
        "the event loop reports the end with `disconnected`"
    );
    relay.core.client_gone(control());
    assert_eq!((relay.core.len(), relay.core.connections()), (0, 0));
    assert!(relay.core.dialled(now, dialling.number, Ok(74)).is_none());
}

/// TU-5: a revocation also ends connections.
#[test]
fn connections_end_when_their_user_is_barred() {
    let mut relay = Relay::new();
    let mut caller = allocate_tcp(&mut relay, control(), USER);
    let connection_id = caller.establish(&mut relay, PEER, 70);
    relay.authority.barred.lock().insert("usr_1".to_owned());
    relay.core.review(relay.now);
    assert_eq!((relay.core.len(), relay.core.connections()), (0, 0));
    let mut data = Caller::new(&mut relay, data_connection(), USER);
    assert_eq!(data.claim(&mut relay, connection_id), Err(400));
}

#[test]
fn releasing_one_of_two_addresses_ends_its_connections() {
    use stun_types::AddressFamily::IPV6;
    let mut relay = Relay::new();
    let mut caller = Caller::new(&mut relay, control(), USER);
    let (tcp, both) = (
        RequestedTransport::new(6),
        AdditionalAddressFamily::new(IPV6),
    );
    assert_eq!(caller.ask(&mut relay, ALLOCATE, &[&tcp, &both]).0, 0);
    caller.establish(&mut relay, PEER, 70);
    caller.establish(&mut relay, "[2606:4700::1]:80", 71);
    let v6 = RequestedAddressFamily::new(IPV6);
    let given_back = caller.ask(&mut relay, REFRESH, &[&Lifetime::new(0), &v6]);
    assert_eq!(given_back.0, 0);
    assert_eq!(relay.core.connections(), 1);
    assert_eq!(caller.connect(&mut relay, PEER).err(), Some(446));
}
