//! Relayed TCP (RFC 6062) on real sockets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use stun_types::message::{Message, MessageClass};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use turn_types::attribute::{ConnectionId, Lifetime, RequestedTransport, XorPeerAddress};
use turn_types::message::{
    ALLOCATE, CONNECT, CONNECTION_ATTEMPT, CONNECTION_BIND, CREATE_PERMISSION, REFRESH,
};

use crate::client::Client;
use crate::sockets::{Relay, relayed};

/// Time limit for immediate events on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

async fn allocate(relay: SocketAddr) -> (Client, SocketAddr) {
    let mut client = Client::tcp(relay, "a").await;
    let tcp = RequestedTransport::new(6);
    let (code, answer) = client.ask(ALLOCATE, &[&tcp]).await;
    assert_eq!(code, 0);
    (client, relayed(&answer)[0])
}

async fn connect(client: &mut Client, peer: SocketAddr) -> Result<u32, u16> {
    let address = XorPeerAddress::new(peer, client.transaction().into());
    match client.ask(CONNECT, &[&address]).await {
        (0, answer) => Ok(number(&answer)),
        (code, _) => Err(code),
    }
}

fn number(message: &[u8]) -> u32 {
    let message = Message::from_bytes(message).unwrap();
    message.attribute::<ConnectionId>().unwrap().id()
}

/// A second connection that is joined with a peer's, and the first bytes of the peer.
async fn claim(client: &Client, relay: SocketAddr, number: u32) -> (TcpStream, Vec<u8>) {
    let mut data = client.second(relay).await;
    let (code, _) = data
        .ask(CONNECTION_BIND, &[&ConnectionId::new(number)])
        .await;
    assert_eq!(code, 0);
    data.into_stream()
}

/// A connection to a peer, and the peer's end of it.
async fn joined(relay: &Relay) -> (Client, TcpStream, TcpStream) {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut client, from) = allocate(relay.v4()).await;
    let (number, accepted) = tokio::join!(
        connect(&mut client, service.local_addr().unwrap()),
        service.accept()
    );
    let (peer, address) = accepted.unwrap();
    assert_eq!(address, from, "it comes from the relayed address");
    let (data, _) = claim(&client, relay.v4(), number.unwrap()).await;
    (client, data, peer)
}

async fn is_over(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = timeout(WAIT_LIMIT, stream.read_to_end(&mut rest)).await;
    // A reset counts as an end.
    assert!(read.expect("it stays open").is_err() || rest.is_empty());
}

/// Several rounds, since any worker may accept the second connection.
#[tokio::test]
async fn a_client_and_a_service_exchange_bytes_until_each_direction_ends() {
    let relay = Relay::start().await;
    for _ in 0..8 {
        let (_client, mut data, mut peer) = joined(&relay).await;
        let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            data.write_all(&sent).await.unwrap();
            data.shutdown().await.unwrap();
            let mut answer = Vec::new();
            data.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut got = Vec::new();
        peer.read_to_end(&mut got).await.unwrap();
        assert!(got == body);
        peer.write_all(b"thank you").await.unwrap();
        drop(peer);
        assert_eq!(sending.await.unwrap(), b"thank you");
    }
}

#[tokio::test]
async fn a_peer_can_connect_with_a_permission() {
    let relay = Relay::start().await;
    for at in [relay.v4(), relay.v6()] {
        let mut client = Client::tcp(at, "a").await;
        let tcp = RequestedTransport::new(6);
        let v6 = turn_types::attribute::RequestedAddressFamily::new(if at.is_ipv4() {
            stun_types::AddressFamily::IPV4
        } else {
            stun_types::AddressFamily::IPV6
        });
        let (code, answer) = client.ask(ALLOCATE, &[&tcp, &v6]).await;
        assert_eq!(code, 0);
        let address = relayed(&answer)[0];
        let mut stranger = TcpStream::connect(address).await.unwrap();
        is_over(&mut stranger).await;
        let permitted = XorPeerAddress::new(at, client.transaction().into());
        assert_eq!(client.ask(CREATE_PERMISSION, &[&permitted]).await.0, 0);
        let mut peer = TcpStream::connect(address).await.unwrap();
        // Its first bytes wait for the client.
        peer.write_all(b"good day").await.unwrap();
        let told = client.receive().await;
        let read = Message::from_bytes(&told).unwrap();
        assert!(read.has_class(MessageClass::Indication) && read.has_method(CONNECTION_ATTEMPT));
        let from: XorPeerAddress = read.attribute().unwrap();
        assert_eq!(from.addr(read.transaction_id()), peer.local_addr().unwrap());
        let (mut data, mut words) = claim(&client, at, number(&told)).await;
        while words.len() < 8 {
            assert_ne!(data.read_buf(&mut words).await.unwrap(), 0);
        }
        assert_eq!(words, b"good day");
        data.write_all(b"to you").await.unwrap();
        drop(data);
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"to you");
    }
}

#[tokio::test]
async fn unreachable_peers_and_the_relay_itself_are_refused() {
    let relay = Relay::start().await;
    let (mut client, own) = allocate(relay.v4()).await;
    // A port that is bound but does not listen.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = nobody.local_addr().unwrap();
    assert_eq!(connect(&mut client, closed).await, Err(447));
    assert_eq!(connect(&mut client, own).await, Err(447), "itself");
    assert_eq!(
        connect(&mut client, relay.v4()).await,
        Err(403),
        "its listener"
    );
    let private = "10.0.0.1:80".parse().unwrap();
    assert_eq!(connect(&mut client, private).await, Err(403));
}

/// Two clients of one relay connect to each other.
#[tokio::test]
async fn two_allocations_reach_each_other() {
    let relay = Relay::start().await;
    let (mut one, from) = allocate(relay.v4()).await;
    let (mut other, to) = allocate(relay.v4()).await;
    let permitted = XorPeerAddress::new(from, other.transaction().into());
    assert_eq!(other.ask(CREATE_PERMISSION, &[&permitted]).await.0, 0);
    let (dialled, told) = tokio::join!(connect(&mut one, to), other.receive());
    let (mut near, _) = claim(&one, relay.v4(), dialled.unwrap()).await;
    let (mut far, _) = claim(&other, relay.v4(), number(&told)).await;
    near.write_all(b"hello").await.unwrap();
    let mut word = [0; 5];
    far.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    drop(far);
    is_over(&mut near).await;
}

#[tokio::test]
async fn an_allocation_that_ends_closes_both_sides() {
    let relay = Relay::start().await;
    let (mut client, mut data, mut peer) = joined(&relay).await;
    assert_eq!(client.ask(REFRESH, &[&Lifetime::new(0)]).await.0, 0);
    is_over(&mut data).await;
    is_over(&mut peer).await;
    let (client, mut data, mut peer) = joined(&relay).await;
    drop(client);
    is_over(&mut data).await;
    is_over(&mut peer).await;
}

/// A peer that does not read blocks its client, and nothing piles up in between.
#[tokio::test]
async fn a_slow_reader_applies_back_pressure() {
    const MOST: usize = 64 * 1024 * 1024;
    let relay = Relay::start().await;
    let (_client, mut data, mut peer) = joined(&relay).await;
    let piece = vec![7; 256 * 1024];
    let mut sent = 0;
    while sent < MOST {
        // Long enough for a busy machine to transfer the rest.
        match timeout(Duration::from_secs(1), data.write(&piece)).await {
            Ok(written) => sent += written.unwrap(),
            Err(_) => break,
        }
    }
    assert!(sent < MOST, "it never blocked");
    data.shutdown().await.unwrap();
    let (mut got, mut buffer) = (0, vec![0; 1024 * 1024]);
    loop {
        match peer.read(&mut buffer).await.unwrap() {
            0 => break,
            read => got += read,
        }
    }
    assert_eq!(got, sent);
}

#[tokio::test]
async fn a_rate_slows_connections_down() {
    let relay = Relay::with(json!({ "bytes_per_second_per_user": 200_000 })).await;
    let (_client, mut data, mut peer) = joined(&relay).await;
    let begun = Instant::now();
    let sending = tokio::spawn(async move {
        data.write_all(&vec![7; 300_000]).await.unwrap();
        data
    });
    let mut got = vec![0; 300_000];
    peer.read_exact(&mut got).await.unwrap();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1200), "{took:?}");
    drop(sending.await.unwrap());
    is_over(&mut peer).await;
}
