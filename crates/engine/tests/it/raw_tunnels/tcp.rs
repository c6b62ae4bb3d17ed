//! Published TCP tunnels, each with its own port of the engine.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;

use client::tunnel::Online;
use client::{Agent, ConnectError, Properties, RefusalKind, Target, Token};
use engine::clock::ManualClock;
use jiff::Timestamp;
use serde_json::json;
use testing::{ClosedPort, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use wire::Kind;
use wire::message::{CloseTunnelReq, TunnelProperties};

use crate::agent::raw_messages::PlainAgent;
use crate::relay::Relay;

/// An engine with a range of this many ports.
async fn engine(ports: u16) -> TestEngine {
    TestEngine::start_with(&format!("tcp: {{port_range: '{}'}}", range(ports))).await
}

fn range(count: u16) -> String {
    let ports = ports::lease_range(count);
    format!("{}-{}", ports.start(), ports.end())
}

fn address(online: &Online) -> SocketAddr {
    let port = online.properties.port.expect("a port");
    SocketAddr::from(([127, 0, 0, 1], port))
}

async fn visit(tunnel: &TestTunnel) -> TcpStream {
    TcpStream::connect(address(tunnel.online())).await.unwrap()
}

async fn read_to_end(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    within("end of the stream", stream.read_to_end(&mut bytes)).await?;
    Ok(bytes)
}

/// True if a visit ends in a reset. The reset may come before the visitor has noticed that it was
/// accepted.
async fn is_reset(tunnel: &TestTunnel) -> bool {
    let visiting = async {
        let mut visitor = TcpStream::connect(address(tunnel.online())).await?;
        read_to_end(&mut visitor).await
    };
    visiting
        .await
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

async fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let exchanging = async {
        stream.write_all(bytes).await?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).await?;
        Ok(back)
    };
    within("echo", exchanging).await
}

#[tokio::test]
async fn bytes_flow_both_ways_and_each_direction_is_closed_separately() {
    let engine = engine(1).await;
    // Sends a greeting first, which works only if the tunnel opens before the visitor sends. Then
    // sends back its input when the visitor has closed its direction.
    let upstream = Upstream::start(|mut stream, _| async move {
        stream.write_all(b"hello, ").await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    assert_eq!(tunnel.hostname(), engine.host());
    let mut visitor = visit(&tunnel).await;
    let mut hello = [0; 7];
    within("hello", visitor.read_exact(&mut hello))
        .await
        .unwrap();
    visitor.write_all(b"visitor").await.unwrap();
    visitor.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"visitor");
}

#[tokio::test]
async fn a_service_that_closes_its_direction_still_receives_data() {
    let engine = engine(1).await;
    let (sender, heard) = tokio::sync::oneshot::channel();
    let mut sender = Some(sender);
    let upstream = Upstream::start(move |mut stream, _| {
        let sender = sender.take();
        async move {
            stream.shutdown().await.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            sender.unwrap().send(said).unwrap();
        }
    })
    .await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let mut visitor = visit(&tunnel).await;
    assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"");
    visitor.write_all(b"after the end").await.unwrap();
    visitor.shutdown().await.unwrap();
    let heard = within("what the service heard", heard).await.unwrap();
    assert_eq!(heard, b"after the end");
}

#[tokio::test]
async fn a_large_payload_arrives_complete_in_both_directions() {
    const LEN: usize = 24 * 1024 * 1024;
    let engine = engine(1).await;
    let upstream = Upstream::tcp().await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let mut visitor = visit(&tunnel).await;
    let payload = Upstream::payload(LEN);
    let (mut reader, mut writer) = visitor.split();
    let sending = async {
        writer.write_all(&payload).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut back = Vec::with_capacity(LEN);
    let both = async { tokio::join!(sending, reader.read_to_end(&mut back)) };
    let ((), read) = within("payload", both).await;
    read.unwrap();
    assert!(back == payload, "{} of {LEN} bytes, or others", back.len());
}

/// Small streams share a connection. A stream with much data leaves it, at its start, in the
/// middle, or from both ends at the same time, without a visible difference.
#[tokio::test]
async fn concurrent_streams_of_every_size_keep_their_bytes_apart() {
    let engine = engine(1).await;
    let upstream = Upstream::tcp().await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let mut visitors = tokio::task::JoinSet::new();
    for number in 0..60_usize {
        let mut visitor = visit(&tunnel).await;
        visitors.spawn(async move {
            for turn in 0..20 {
                let size = match (number + turn) % 20 {
                    0 => 300_000 + number,
                    1 => 70_000 + number,
                    2 => 65_536 - number,
                    _ => number * 10 + turn + 1,
                };
                let sent = Upstream::payload(size);
                let (mut reader, mut writer) = visitor.split();
                let mut back = vec![0; size];
                let both =
                    async { tokio::join!(writer.write_all(&sent), reader.read_exact(&mut back)) };
                let (written, read) = within("echo", both).await;
                written.unwrap();
                read.unwrap();
                assert!(back == sent, "{number}, turn {turn}: {size} bytes");
            }
            visitor.shutdown().await.unwrap();
            assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"");
        });
    }
    while let Some(visited) = within("visitors", visitors.join_next()).await {
        visited.unwrap();
    }
    assert_eq!(upstream.accepted(), 60);
}

/// A tunnel behind a relay that counts the agent's connections.
async fn counted(engine: &TestEngine, upstream: &Upstream) -> (Relay, TestTunnel) {
    let relay = Relay::start(engine).await;
    let agent = Agent::connect(relay.agent_config(engine)).await.unwrap();
    let target: Target = upstream.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::tcp(), target).await;
    (relay, tunnel)
}

/// Visitors with little data do not need a connection to the agent each.
#[tokio::test]
async fn many_small_visitors_share_a_few_connections() {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let engine = engine(1).await;
    let upstream = Upstream::tcp().await;
    let (relay, tunnel) = counted(&engine, &upstream).await;
    let mut visitors = Vec::new();
    for _ in 0..100 {
        let mut visitor = visit(&tunnel).await;
        assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
        visitors.push(visitor);
    }
    // The control channel. On each worker a lane, two idle connections, and those that were
    // requested while the first was being opened.
    let most = 1 + 6 * workers;
    assert!(relay.accepted() <= most, "{} connections", relay.accepted());
    for visitor in &mut visitors {
        assert_eq!(exchange(visitor, b"again").await.unwrap(), b"again");
    }
}

#[tokio::test]
async fn visitors_one_after_another_share_the_data_connections() {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let engine = engine(1).await;
    let upstream = Upstream::tcp().await;
    let (relay, tunnel) = counted(&engine, &upstream).await;
    let visits = 20 * workers;
    for _ in 0..visits {
        let mut visitor = visit(&tunnel).await;
        assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
        visitor.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"");
    }
    assert_eq!(upstream.accepted(), visits);
    // The control channel. On each worker two idle connections, one in use, and one that is still
    // being returned when the next visitor arrives.
    let most = 1 + 4 * workers;
    assert!(relay.accepted() <= most, "{} connections", relay.accepted());
}

/// EN-9.
#[tokio::test]
async fn en_9_a_named_tunnel_gets_its_port_back() {
    let engine = engine(8).await;
    let relay = Relay::start(&engine).await;
    let upstream = Upstream::tcp().await;
    // Takes the first port, so that the named tunnel does not get its own port back by chance.
    let _first = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let agent = Agent::connect(relay.agent_config(&engine)).await.unwrap();
    let mut tunnel = agent.open(Properties::tcp().named("db"));
    let before = within("tunnel", tunnel.online()).await.unwrap();
    let _third = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    relay.cut(1);
    let mut status = tunnel.status();
    let back = status.wait_for(
        |status| matches!(status, client::Status::Online(now) if now.tunnel_id != before.tunnel_id),
    );
    within("reconnect", back).await.unwrap();
    let after = tunnel.online().await.unwrap();
    assert_eq!(after.properties.port, before.properties.port);

    // A takeover keeps the port as well, and visitors reach the new agent's service.
    let taking = engine.publish_as(Properties::tcp().named("db"), upstream.addr());
    let taking = taking.await;
    assert_eq!(taking.online().properties.port, before.properties.port);
    let mut visitor = visit(&taking).await;
    assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
    assert_eq!(upstream.accepted(), 1);
}

/// A port that was assigned to another tunnel meanwhile is not shared with its former holder. A
/// port stays reserved for ten minutes after its tunnel was closed.
#[tokio::test]
async fn a_port_stays_reserved_for_a_limited_time() {
    let clock = Arc::new(ManualClock::at(Timestamp::now()));
    let range = format!("tcp: {{port_range: '{}'}}", range(3));
    let engine = TestEngine::start_at(&range, &[], Arc::<ManualClock>::clone(&clock)).await;
    let mut agent = PlainAgent::connect(&engine).await;
    let mut port_after = async |seconds| {
        clock.advance(seconds);
        let properties = TunnelProperties {
            publish: Some(true.into()),
            protocol: Some("tcp".into()),
            name: Some("db".into()),
            ..TunnelProperties::default()
        };
        let opened = agent.open(properties).await.unwrap();
        let tunnel_id = opened.id.unwrap().value;
        let close = Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id });
        agent.channel.send(close).await;
        let answer = agent.channel.next().await;
        assert!(
            matches!(answer, Some(Kind::CloseTunnelRsp(_))),
            "{answer:?}"
        );
        opened.port.unwrap().value
    };
    let first = port_after(0).await;
    assert_eq!(port_after(599).await, first);
    assert_ne!(port_after(600).await, first);
}

#[tokio::test]
async fn a_port_that_belongs_to_another_tunnel_now_is_not_taken_back() {
    let engine = engine(2).await;
    let (ours, theirs) = (named_service(b"ours").await, named_service(b"them").await);
    let named = || Properties::tcp().named("db");
    let first = engine.publish_as(named(), ours.addr()).await;
    let port = first.online().properties.port;
    first.close().await;
    let mut config = engine.agent_config();
    config.tokens = Token::new(&engine.token(json!({"userId": "usr_other"}))).into();
    let other = Agent::connect(config).await.unwrap();
    let mut others = Vec::new();
    // The other port, and then the one that is free again.
    for _ in 0..2 {
        let target: Target = theirs.addr().to_string().parse().unwrap();
        others.push(TestTunnel::open(other.clone(), Properties::tcp(), target).await);
    }
    let (same, free): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|tunnel| tunnel.online().properties.port == port);
    for tunnel in free {
        tunnel.close().await;
    }
    let back = engine.publish_as(named(), ours.addr()).await;
    assert_ne!(back.online().properties.port, port);
    for _ in 0..8 {
        let mut visitor = visit(&same[0]).await;
        assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"them");
        let mut visitor = visit(&back).await;
        assert_eq!(read_to_end(&mut visitor).await.unwrap(), b"ours");
    }
}

/// After the answer every visitor reaches the new agent, and the port stays open all the time. A
/// visitor whose stream is on its way to the old agent when that agent closes may be reset.
#[tokio::test]
async fn a_takeover_leaves_the_port_open_and_leads_to_the_new_agent() {
    let engine = engine(4).await;
    let (old, new) = (named_service(b"old").await, named_service(b"new").await);
    let named = || Properties::tcp().named("db");
    let mut holder = engine.publish_as(named(), old.addr()).await;
    let address = address(holder.online());
    for turn in 0..6 {
        let (displaced, service) = match turn % 2 {
            0 => (b"old", &new),
            _ => (b"new", &old),
        };
        let (over, is_over) = watch::channel(false);
        let visits = tokio::spawn(async move {
            while !*is_over.borrow() {
                let visiting = async {
                    let mut visitor = TcpStream::connect(address).await?;
                    read_to_end(&mut visitor).await
                };
                match visiting.await {
                    Ok(said) => assert!(said == b"old" || said == b"new"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
                }
            }
        });
        let taking = engine.publish_as(named(), service.addr()).await;
        for _ in 0..4 {
            let mut visitor = visit(&taking).await;
            let said = read_to_end(&mut visitor).await.unwrap();
            assert_ne!(said, displaced, "the stream is the displaced agent's");
        }
        over.send_replace(true);
        visits.await.unwrap();
        holder = taking;
    }
    assert_eq!(address, self::address(holder.online()));
}

/// A service that sends one word to every visitor.
async fn named_service(word: &'static [u8]) -> Upstream {
    Upstream::start(move |mut stream, _| async move {
        stream.write_all(word).await.ok();
        stream.shutdown().await.ok();
        stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await
}

#[tokio::test]
async fn a_closed_tunnel_stops_accepting_and_keeps_its_visitors() {
    let engine = engine(2).await;
    let upstream = Upstream::tcp().await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let address = address(tunnel.online());
    let mut visitor = visit(&tunnel).await;
    assert_eq!(exchange(&mut visitor, b"before").await.unwrap(), b"before");
    tunnel.close().await;
    let refused = async {
        // The workers close the listeners shortly after the agent has its answer.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    within("end of the port", refused).await;
    assert_eq!(exchange(&mut visitor, b"after").await.unwrap(), b"after");
    assert_eq!(upstream.accepted(), 1);
}

/// EN-11.
#[tokio::test]
async fn en_11_without_a_range_tcp_is_not_available() {
    let engine = TestEngine::start().await;
    let mut tunnel = engine.agent().await.open(Properties::tcp());
    let refused = within("answer", tunnel.online()).await.unwrap_err();
    let ConnectError::Refused(refusal) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.kind, RefusalKind::NotAvailable);
    assert!(
        refusal.message.contains("available") && refusal.message.contains("tcp"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_used_up_range_is_a_temporary_lack_of_capacity() {
    let engine = engine(1).await;
    let upstream = Upstream::tcp().await;
    let first = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let mut second = engine.agent().await.open(Properties::tcp());
    let mut status = second.status();
    let waits = status.wait_for(|status| matches!(status, client::Status::Disconnected { .. }));
    within("refusal", waits).await.unwrap();
    let port = first.online().properties.port;
    first.close().await;
    let online = within("port of the first", second.online()).await.unwrap();
    assert_eq!(online.properties.port, port);
}

/// A clean end would mean that the service had no data to send.
#[tokio::test]
async fn a_service_that_is_down_is_seen_as_a_reset() {
    let engine = engine(1).await;
    let nobody = ClosedPort::new();
    let tunnel = engine.publish_as(Properties::tcp(), nobody.addr()).await;
    assert!(is_reset(&tunnel).await);
}

#[tokio::test]
async fn a_service_that_aborts_is_seen_as_a_reset() {
    let engine = engine(1).await;
    let upstream = Upstream::start(|mut stream, _| async move {
        stream.write_all(b"half of").await.unwrap();
        let mut go = [0];
        stream.read_exact(&mut go).await.unwrap();
        stream.set_zero_linger().unwrap();
    })
    .await;
    let tunnel = engine.publish_as(Properties::tcp(), upstream.addr()).await;
    let mut visitor = visit(&tunnel).await;
    let mut half = [0; 7];
    within("half", visitor.read_exact(&mut half)).await.unwrap();
    visitor.write_all(b"!").await.unwrap();
    let ended = read_to_end(&mut visitor).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn trusted_ips_keep_other_addresses_away_from_the_service() {
    let engine = engine(2).await;
    let upstream = Upstream::tcp().await;
    let trusting = |range: &str| Properties::tcp().trusted_ips(vec![range.to_owned()]);
    let foreign = engine.publish_as(trusting("192.0.2.0/24"), upstream.addr());
    let foreign = foreign.await;
    assert!(is_reset(&foreign).await);
    assert_eq!(upstream.accepted(), 0);

    let ours = engine.publish_as(trusting("127.0.0.0/8"), upstream.addr());
    let ours = ours.await;
    let mut visitor = visit(&ours).await;
    assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
    assert_eq!(upstream.accepted(), 1);
}
