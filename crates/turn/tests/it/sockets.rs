//! A relay on real sockets.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use daemon::shutdown::Shutdown;
use serde_json::json;
use stun_types::AddressFamily;
use stun_types::message::Message;
use tokio::net::UdpSocket;
use turn::RunningRelay;
use turn::config::TurnConfig;
use turn_types::attribute::{
    AdditionalAddressFamily, ChannelNumber, EvenPort, Lifetime, RequestedAddressFamily,
    RequestedTransport, ReservationToken, XorPeerAddress, XorRelayedAddress,
};
use turn_types::message::{ALLOCATE, CHANNEL_BIND, REFRESH};

use crate::client::{Client, REALM, SECRET};

pub(crate) struct Relay {
    running: RunningRelay,
    shutdown: Shutdown,
}

impl Relay {
    /// Starts one on both loopback addresses, which peers may use.
    pub(crate) async fn start() -> Self {
        Self::with(json!({})).await
    }

    /// Starts one with these limits.
    pub(crate) async fn with(limits: serde_json::Value) -> Self {
        Self::launch(limits, json!(["127.0.0.0/8", "::1/128"])).await
    }

    async fn launch(limits: serde_json::Value, allowed_peers: serde_json::Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        let file = json!({ "turn": {
            "listen_addr": ["127.0.0.1:0", "[::1]:0"],
            "realm": REALM,
            "secret_file": secret,
            // Above the ports that systems assign automatically.
            "relay_ports": "61000-65535",
            "allowed_peers": allowed_peers,
            "limits": limits,
        } });
        let path = directory.path().join("turn.yaml");
        std::fs::write(&path, file.to_string()).unwrap();
        let config = TurnConfig::load(Some(&path), std::iter::empty()).unwrap();
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let running = turn::start(config, shutdown.clone()).await.unwrap();
        Self { running, shutdown }
    }

    pub(crate) fn v4(&self) -> SocketAddr {
        self.running.listen_addrs()[0]
    }

    pub(crate) fn v6(&self) -> SocketAddr {
        self.running.listen_addrs()[1]
    }
}

const UDP: u8 = 17;

pub(crate) fn relayed(answer: &[u8]) -> Vec<SocketAddr> {
    let message = Message::from_bytes(answer).unwrap();
    let addresses = message.iter_attributes().filter_map(|(_, raw)| {
        let address = XorRelayedAddress::try_from(&raw).ok()?;
        Some(address.addr(message.transaction_id()))
    });
    addresses.collect()
}

/// Binds a channel to an echo peer, and sends through it.
async fn echoes(client: &mut Client, ip: IpAddr) {
    let peer = UdpSocket::bind(SocketAddr::new(ip, 0)).await.unwrap();
    let address = XorPeerAddress::new(peer.local_addr().unwrap(), client.transaction().into());
    let number = if ip.is_ipv4() { 0x4000_u16 } else { 0x4001 };
    let bound = client
        .ask(CHANNEL_BIND, &[&ChannelNumber::new(number), &address])
        .await;
    assert_eq!(bound.0, 0);
    for size in [0_u16, 1, 5, 1200, 60_000] {
        let data = vec![7; size.into()];
        let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
        let head = [number.to_be_bytes(), size.to_be_bytes()].concat();
        client.send(&[&head[..], &data, &padding].concat()).await;
        let mut buffer = vec![0; 65_536];
        let (length, from) = peer.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..length], from.ip()), (&data[..], ip));
        peer.send_to(&data, from).await.unwrap();
        assert_eq!(client.receive().await, [head, data].concat());
    }
}

/// Another program on the relay's machine with a port of the relay's range, which is not an
/// allocation.
async fn neighbour() -> UdpSocket {
    for port in 61_000..=65_535 {
        if let Ok(socket) = UdpSocket::bind(("127.0.0.1", port)).await {
            return socket;
        }
    }
    panic!("no port of the range is free");
}

/// Through the relay, a client reaches other allocations on the relay's own addresses, and no other
/// program with a port of the range. Such a program does not reach a client either.
#[tokio::test]
async fn only_allocations_are_peers_on_the_relays_own_addresses() {
    let relay = Relay::launch(json!({}), json!([])).await;
    let neighbour = neighbour().await;
    let mut clients = Vec::new();
    for user in ["a", "b"] {
        let mut client = Client::udp(relay.v4(), user).await;
        let (code, answer) = client.ask(ALLOCATE, &[&RequestedTransport::new(UDP)]).await;
        assert_eq!(code, 0);
        clients.push((client, relayed(&answer)[0]));
    }
    let [(mut a, at_a), (mut b, at_b)]: [_; 2] = clients.try_into().ok().unwrap();
    // Both have a channel to the other one and one to the neighbour, whose port is in the range.
    let (to_other, to_neighbour) = (0x4000_u16, 0x4001);
    for (client, other) in [(&mut a, at_b), (&mut b, at_a)] {
        for (number, peer) in [
            (to_other, other),
            (to_neighbour, neighbour.local_addr().unwrap()),
        ] {
            let address = XorPeerAddress::new(peer, client.transaction().into());
            let bound = client
                .ask(CHANNEL_BIND, &[&ChannelNumber::new(number), &address])
                .await;
            assert_eq!(bound.0, 0);
        }
    }
    let frame = |number: u16, data: &[u8; 4]| [&number.to_be_bytes()[..], &[0, 4], data].concat();
    // The second message arrives, so the first, sent before it, was dropped.
    a.send(&frame(to_neighbour, b"to n")).await;
    neighbour.send_to(b"of n", at_b).await.unwrap();
    a.send(&frame(to_other, b"to b")).await;
    assert_eq!(b.receive().await, frame(to_other, b"to b"));
    let nothing = neighbour.try_recv(&mut [0; 16]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn both_families_over_both_transports() {
    let relay = Relay::start().await;
    let (v4, v6) = (relay.v4(), relay.v6());
    let clients = [
        (Client::udp(v4, "a").await, v4),
        (Client::udp(v6, "b").await, v6),
        (Client::tcp(v4, "c").await, v4),
        (Client::tcp(v6, "d").await, v6),
    ];
    for (mut client, at) in clients {
        let both = AdditionalAddressFamily::new(AddressFamily::IPV6);
        let udp = RequestedTransport::new(UDP);
        let (code, answer) = client.ask(ALLOCATE, &[&udp, &both]).await;
        let addresses = relayed(&answer);
        assert_eq!((code, addresses.len()), (0, 2), "{at}");
        for address in addresses {
            assert!((61_000..=65_535).contains(&address.port()));
            echoes(&mut client, address.ip()).await;
        }
        let v6 = RequestedAddressFamily::new(AddressFamily::IPV6);
        let (code, _) = client.ask(REFRESH, &[&Lifetime::new(0), &v6]).await;
        assert_eq!(code, 0, "one of two addresses is given back");
        let (code, _) = client.ask(REFRESH, &[&Lifetime::new(600), &v6]).await;
        assert_eq!(code, 443);
        echoes_still(&mut client).await;
        assert_eq!(client.ask(REFRESH, &[&Lifetime::new(0)]).await.0, 0);
        assert_eq!(client.ask(REFRESH, &[&Lifetime::new(600)]).await.0, 437);
    }
}

async fn echoes_still(client: &mut Client) {
    assert_eq!(client.ask(REFRESH, &[&Lifetime::new(600)]).await.0, 0);
}

/// The code of a Refresh after the credential of a call has expired.
async fn refresh_after_expiry(limits: serde_json::Value) -> u16 {
    let udp = RequestedTransport::new(UDP);
    let relay = Relay::with(limits).await;
    // Long enough for the first two requests on a busy machine.
    let mut client = Client::expiring(relay.v4(), "a", 10).await;
    assert_eq!(client.ask(ALLOCATE, &[&udp]).await.0, 0);
    assert_eq!(client.ask(REFRESH, &[&Lifetime::new(600)]).await.0, 0);
    // Other clients with this credential get allocations until it has expired.
    let expired = async {
        loop {
            let mut other = client.again(relay.v4()).await;
            match other.ask(ALLOCATE, &[&udp]).await.0 {
                0 => assert_eq!(other.ask(REFRESH, &[&Lifetime::new(0)]).await.0, 0),
                code => break code,
            }
        }
    };
    let expired = tokio::time::timeout(Duration::from_mins(1), expired).await;
    assert_eq!(expired.expect("the credential expires"), 401);
    let (code, _) = client.ask(REFRESH, &[&Lifetime::new(600)]).await;
    if code == 0 {
        echoes(&mut client, [127, 0, 0, 1].into()).await;
    }
    code
}

/// A browser cannot replace the credential of a running call.
#[tokio::test]
async fn a_call_continues_after_its_credential_has_expired() {
    let (continued, ended) = tokio::join!(
        refresh_after_expiry(json!({})),
        refresh_after_expiry(json!({"seconds_per_allocation": 0})),
    );
    assert_eq!(continued, 0);
    // The allocation has ended, or ends at this moment.
    assert!([401, 437].contains(&ended), "{ended}");
}

/// RFC 8656 section 7.2: the port after an even one is reserved for the same user.
#[tokio::test]
async fn a_reserved_port_is_kept_for_its_user() {
    let relay = Relay::start().await;
    let udp = RequestedTransport::new(UDP);
    let mut first = Client::udp(relay.v4(), "a").await;
    let (code, answer) = first.ask(ALLOCATE, &[&udp, &EvenPort::new(true)]).await;
    assert_eq!(code, 0);
    let port = relayed(&answer)[0].port();
    assert_eq!(port % 2, 0);
    let token: ReservationToken = Message::from_bytes(&answer).unwrap().attribute().unwrap();
    let mut other = Client::udp(relay.v4(), "b").await;
    assert_eq!(
        other.ask(ALLOCATE, &[&udp, &token]).await.0,
        508,
        "another user"
    );
    let mut second = Client::udp(relay.v4(), "a").await;
    let (code, answer) = second.ask(ALLOCATE, &[&udp, &token]).await;
    assert_eq!((code, relayed(&answer)[0].port()), (0, port + 1));
    let mut third = Client::udp(relay.v4(), "a").await;
    assert_eq!(
        third.ask(ALLOCATE, &[&udp, &token]).await.0,
        508,
        "it is assigned once"
    );
}

#[tokio::test]
async fn connections_are_limited_in_total_and_per_source() {
    for limit in ["connections", "connections_per_source"] {
        let relay = Relay::with(json!({ limit: 1 })).await;
        let udp = RequestedTransport::new(UDP);
        let mut first = Client::tcp(relay.v4(), "a").await;
        assert_eq!(first.ask(ALLOCATE, &[&udp]).await.0, 0);
        let mut second = Client::tcp(relay.v4(), "b").await;
        second.closed().await;
        // Connections of another source only count for the total.
        let mut third = Client::tcp(relay.v6(), "c").await;
        if limit == "connections" {
            third.closed().await;
        } else {
            assert_eq!(third.ask(ALLOCATE, &[&udp]).await.0, 0);
        }
    }
}

#[tokio::test]
async fn an_invalid_frame_ends_a_connection() {
    let relay = Relay::start().await;
    let mut client = Client::tcp(relay.v4(), "a").await;
    client.send(&[0x16, 3, 1, 0, 4, 0, 0, 0]).await;
    client.closed().await;
}

#[tokio::test]
async fn a_relay_that_stops_lets_its_clients_finish() {
    let relay = Relay::start().await;
    let udp = RequestedTransport::new(UDP);
    let mut client = Client::udp(relay.v4(), "a").await;
    assert_eq!(client.ask(ALLOCATE, &[&udp]).await.0, 0);
    relay.shutdown.request();
    let mut late = Client::udp(relay.v4(), "a").await;
    // The workers are notified a moment later.
    loop {
        match late.ask(ALLOCATE, &[&udp]).await.0 {
            0 => assert_eq!(late.ask(REFRESH, &[&Lifetime::new(0)]).await.0, 0),
            code => break assert_eq!(code, 508),
        }
    }
    echoes_still(&mut client).await;
    assert_eq!(client.ask(REFRESH, &[&Lifetime::new(0)]).await.0, 0);
    let stopped = tokio::time::timeout(Duration::from_mins(1), relay.running.stopped());
    stopped.await.expect("nothing is left to wait for");
}

/// A client without credentials gets at most one answer per request, not much longer than the
/// request, and none to other packets. A spoofed source therefore gains nothing.
#[tokio::test]
async fn unauthenticated_clients_cause_little_traffic() {
    const HEADERS: usize = 28;
    let relay = Relay::start().await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    stranger.connect(relay.v4()).await.unwrap();
    let head = |kind: u16, length: u16| {
        let head = [kind.to_be_bytes(), length.to_be_bytes()].concat();
        [&head[..], &[0x21, 0x12, 0xa4, 0x42], &[9; 12]].concat()
    };
    let (mut sent, mut answered) = (0, 0);
    for kind in [0x0003_u16, 0x0004, 0x0008, 0x0009, 0x000a, 0x000b] {
        let request = head(kind, 0);
        stranger.send(&request).await.unwrap();
        let mut answer = [0; 2048];
        let length = stranger.recv(&mut answer).await.unwrap();
        sent += request.len() + HEADERS;
        answered += length + HEADERS;
    }
    assert!(answered <= 4 * sent, "{answered} bytes for {sent}");
    // A Send indication, channel data, a response, a request with an unknown method, half a
    // request.
    let data = [&[0x40, 0, 4, 176][..], &[7; 1200]].concat();
    let silent = [
        head(0x0016, 0),
        data,
        head(0x0103, 0),
        head(0x0fff, 0),
        head(0x0003, 8),
    ];
    for packet in &silent {
        stranger.send(packet).await.unwrap();
    }
    // The next packet is the answer to this, so there was no earlier answer.
    stranger.send(&head(0x0001, 0)).await.unwrap();
    let mut answer = [0; 2048];
    let length = stranger.recv(&mut answer).await.unwrap();
    assert_eq!((&answer[..2], length), (&[0x01, 0x01][..], 32));
}
