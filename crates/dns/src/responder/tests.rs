//! The responder on sockets of this machine.

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::RecordType;
use tokio::task::JoinHandle;

use super::*;
use crate::name::parse_name;
use crate::zone::Zone;

const CHALLENGE: &str = "_acme-challenge.h.example";

struct TestResponder {
    zones: Zones,
    udp: SocketAddr,
    tcp: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

fn start() -> TestResponder {
    let zones = vec![Zone::of_challenges(CHALLENGE).unwrap()];
    let zones = Zones::new("ns.h.example", zones).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let responder = Responder::bind(&[address], zones.clone()).unwrap();
    let (udp, tcp) = responder.local_addresses().unwrap();
    let stop = CancellationToken::new();
    TestResponder {
        zones,
        udp: udp[0],
        tcp: tcp[0],
        task: tokio::spawn(responder.serve(stop.clone())),
        stop,
    }
}

fn query() -> Vec<u8> {
    let mut message = Message::query();
    let name = parse_name(CHALLENGE).unwrap();
    message.add_query(Query::query(name, RecordType::TXT));
    message.to_vec().unwrap()
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    [&length.to_be_bytes()[..], message].concat()
}

async fn receive(stream: &mut TcpStream) -> Message {
    let length = stream.read_u16().await.unwrap();
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await.unwrap();
    Message::from_vec(&bytes).unwrap()
}

#[tokio::test]
async fn queries_are_answered_over_udp_and_tcp() {
    let running = start();
    running.zones.records().add(CHALLENGE, "text").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    for malformed in [&[0_u8; 5][..], &[0x80; 12]] {
        // There is no response, and the next query is answered.
        client.send_to(malformed, running.udp).await.unwrap();
    }
    client.send_to(&query(), running.udp).await.unwrap();
    let (length, source) = client.recv_from(&mut buffer).await.unwrap();
    assert_eq!(source, running.udp);
    let over_udp = Message::from_vec(&buffer[..length]).unwrap();
    assert_eq!(over_udp.answers.len(), 1);

    let mut stream = TcpStream::connect(running.tcp).await.unwrap();
    let queries = [framed(&query()), framed(&query())].concat();
    stream.write_all(&queries).await.unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&mut stream).await.answers, over_udp.answers);
    }
    running.stop.cancel();
    running.task.await.unwrap().unwrap();
    // The connection has ended as well.
    assert_eq!(stream.read(&mut buffer).await.unwrap_or_default(), 0);
}

#[tokio::test]
async fn a_long_message_ends_the_connection() {
    let running = start();
    let mut stream = TcpStream::connect(running.tcp).await.unwrap();
    let length = u16::try_from(MAX_REQUEST_BYTES + 1).unwrap();
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or_default(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends() {
    let running = start();
    let started = Instant::now();
    let mut stream = TcpStream::connect(running.tcp).await.unwrap();
    stream.write_all(&[0]).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or_default(), 0);
    assert!(started.elapsed() >= IDLE_TIME);
    assert!(started.elapsed() < CONNECTION_TIME);
}

#[test]
fn connections_are_limited_by_network_and_in_total() {
    let connections = Arc::<Connections>::default();
    let admit = |text: String| Connections::admit(&connections, text.parse().unwrap());
    let mut permits = Vec::new();
    for network in 0..MAX_CONNECTIONS / MAX_CONNECTIONS_PER_NETWORK {
        for host in 0..MAX_CONNECTIONS_PER_NETWORK {
            permits.push(admit(format!("10.0.{network}.{host}")).unwrap());
        }
        assert!(admit(format!("10.0.{network}.200")).is_none());
    }
    assert!(admit("192.0.2.1".to_owned()).is_none());
    permits.pop();
    let again = admit("192.0.2.1".to_owned());
    assert!(again.is_some());
    drop((permits, again));
    assert!(connections.0.lock().is_empty());
}

#[tokio::test]
async fn a_network_beyond_its_rate_gets_no_records() {
    let running = start();
    running.zones.records().add(CHALLENGE, "text").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut buffer = [0; 2048];
    let request = query();
    let mut truncated = None;
    // Every second query beyond the burst is answered, so each pair has a response.
    for _ in 0..1000 {
        client.send_to(&request, running.udp).await.unwrap();
        client.send_to(&request, running.udp).await.unwrap();
        let length = client.recv(&mut buffer).await.unwrap();
        let response = Message::from_vec(&buffer[..length]).unwrap();
        if response.metadata.truncation {
            truncated = Some((length, response));
            break;
        }
    }
    let (length, response) = truncated.unwrap();
    assert!(response.answers.is_empty());
    assert_eq!(length, request.len());
}

#[test]
fn an_error_names_the_address_and_the_next_step() {
    let zones = || Zones::new("ns.h.example", Vec::new()).unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let error = Responder::bind(&[address], zones())
        .unwrap_err()
        .to_string();
    assert!(error.contains(&address.to_string()), "{error}");
    assert!(error.contains("systemd-resolved"), "{error}");
    let denied = BindError {
        address,
        source: io::ErrorKind::PermissionDenied.into(),
    };
    assert!(denied.to_string().contains("CAP_NET_BIND_SERVICE"));
}
