//! Authoritative name servers with the records of a test, on four loopback addresses and one port.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

/// Behaviour of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It answers from its records.
    #[default]
    Answers,
    /// It responds with an error (SERVFAIL).
    Fails,
    /// It responds over UDP that the answer is too long.
    Truncates,
    /// It answers without the flag of an authoritative server.
    IsLame,
    /// It refers each name to a server below it, without an address.
    Refers,
}

/// The name of a server, and its address if the delegation has it.
type NamedServer = (String, Option<Ipv4Addr>);

#[derive(Debug, Default)]
struct Server {
    mode: Mode,
    records: Vec<(String, RData)>,
    /// Zones with their servers.
    delegations: Vec<(String, Vec<NamedServer>)>,
    asked: u32,
}

/// The servers. The first one is the root. They stop when dropped.
pub(crate) struct NameServers {
    port: u16,
    servers: [Arc<Mutex<Server>>; 4],
    _tasks: JoinSet<()>,
}

impl NameServers {
    pub(crate) async fn start() -> Self {
        let servers: [Arc<Mutex<Server>>; 4] = Default::default();
        // The kernel selects a port that is free for TCP. It is rarely in use for UDP at one of the
        // addresses. A listener is kept until another port is found.
        let mut refused = Vec::new();
        let (tcp, sockets, port) = loop {
            let tcp = TcpListener::bind((Self::address(0), 0)).await.unwrap();
            let port = tcp.local_addr().unwrap().port();
            match Self::bind_all(servers.len(), port).await {
                Ok(sockets) => break (tcp, sockets, port),
                Err(_) => refused.push(tcp),
            }
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_tcp(tcp, Arc::clone(&servers[0])));
        for (udp, server) in sockets.into_iter().zip(&servers) {
            tasks.spawn(serve_udp(udp, Arc::clone(server)));
        }
        Self {
            port,
            servers,
            _tasks: tasks,
        }
    }

    async fn bind_all(count: usize, port: u16) -> std::io::Result<Vec<UdpSocket>> {
        let mut sockets = Vec::new();
        for number in 0..count {
            sockets.push(UdpSocket::bind((Self::address(number), port)).await?);
        }
        Ok(sockets)
    }

    /// The address of a server.
    pub(crate) fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 0, u8::try_from(number + 1).unwrap())
    }

    /// The section of a configuration that asks these servers.
    pub(crate) fn section(&self) -> Value {
        json!({
            "root_servers": [Self::address(0)],
            "name_server_port": self.port,
            "allow_private_nameservers": true,
            "challenge_zones": {"engine.example": "acme.example.net"},
        })
    }

    pub(crate) fn set_mode(&self, server: usize, mode: Mode) {
        self.servers[server].lock().mode = mode;
    }

    /// Adds a record of the given type and value to a server.
    pub(crate) fn add(&self, server: usize, kind: &str, name: &str, value: &str) {
        let data = match kind {
            "TXT" => RData::TXT(TXT::new(vec![value.to_owned()])),
            "CNAME" => RData::CNAME(CNAME(absolute(value))),
            "A" => RData::A(A(value.parse().unwrap())),
            "AAAA" => RData::AAAA(AAAA(value.parse().unwrap())),
            _ => panic!("unknown type {kind}"),
        };
        let mut server = self.servers[server].lock();
        server.records.push((name.to_owned(), data));
    }

    /// Removes all records of a name from all servers.
    pub(crate) fn remove(&self, name: &str) {
        for server in &self.servers {
            server.lock().records.retain(|(known, _)| known != name);
        }
    }

    /// Delegates a zone from the first server to these.
    pub(crate) fn delegate(&self, zone: &str, servers: &[(&str, Option<Ipv4Addr>)]) {
        self.delegate_from(0, zone, servers);
    }

    /// Delegates a zone from a server to these.
    pub(crate) fn delegate_from(
        &self,
        parent: usize,
        zone: &str,
        servers: &[(&str, Option<Ipv4Addr>)],
    ) {
        let servers = servers
            .iter()
            .map(|(name, glue)| ((*name).to_owned(), *glue))
            .collect();
        let mut parent = self.servers[parent].lock();
        parent.delegations.push((zone.to_owned(), servers));
    }

    /// Number of questions that a server has received.
    pub(crate) fn asked(&self, server: usize) -> u32 {
        self.servers[server].lock().asked
    }

    /// Adds the records that the platform requests for a domain.
    pub(crate) fn enter(&self, server: usize, domain: &Value) {
        for record in domain["records"].as_array().unwrap() {
            let text = |member: &str| record[member].as_str().unwrap().to_owned();
            self.add(server, &text("type"), &text("name"), &text("value"));
        }
    }
}

async fn serve_udp(socket: UdpSocket, server: Arc<Mutex<Server>>) {
    let mut buffer = [0; 4_096];
    loop {
        let (length, from): (usize, SocketAddr) = socket.recv_from(&mut buffer).await.unwrap();
        let reply = server.lock().reply(&buffer[..length], true);
        // The client may have ended its wait.
        drop(socket.send_to(&reply, from).await);
    }
}

async fn serve_tcp(listener: TcpListener, server: Arc<Mutex<Server>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        let reply = server.lock().reply(&bytes, false);
        let length = u16::try_from(reply.len()).unwrap();
        stream.write_u16(length).await.unwrap();
        stream.write_all(&reply).await.unwrap();
    }
}

impl Server {
    fn reply(&mut self, bytes: &[u8], is_udp: bool) -> Vec<u8> {
        self.asked += 1;
        let question = Message::from_vec(bytes).unwrap();
        assert!(!question.metadata.recursion_desired);
        let mut reply = Message::response(question.metadata.id, OpCode::Query);
        let query = question.queries[0].clone();
        reply.add_query(query.clone());
        match self.mode {
            Mode::Fails => reply.metadata.response_code = ResponseCode::ServFail,
            Mode::Truncates if is_udp => reply.metadata.truncation = true,
            Mode::Refers => {
                let server = absolute(&format!("ns.sub.{}", text(&query.name)));
                let below = Record::from_rdata(query.name.clone(), 60, RData::NS(NS(server)));
                reply.add_authority(below);
            }
            Mode::Answers | Mode::Truncates => self.answer(&query, &mut reply),
            Mode::IsLame => {
                self.answer(&query, &mut reply);
                reply.metadata.authoritative = false;
            }
        }
        reply.to_vec().unwrap()
    }

    fn answer(&self, query: &Query, reply: &mut Message) {
        let name = text(&query.name);
        let is_within = |zone: &str| name == zone || name.ends_with(&format!(".{zone}"));
        let delegation = self.delegations.iter().find(|(zone, _)| is_within(zone));
        if let Some((zone, servers)) = delegation {
            for (server, glue) in servers {
                let data = RData::NS(NS(absolute(server)));
                reply.add_authority(Record::from_rdata(absolute(zone), 60, data));
                if let Some(address) = glue {
                    let data = RData::A(A(*address));
                    reply.add_additional(Record::from_rdata(absolute(server), 60, data));
                }
            }
            return;
        }
        reply.metadata.authoritative = true;
        let own: Vec<_> = self
            .records
            .iter()
            .filter(|(known, _)| *known == name)
            .map(|(_, data)| data)
            .collect();
        if own.is_empty() {
            reply.metadata.response_code = ResponseCode::NXDomain;
        }
        let is_answer = |data: &RData| {
            let kind = data.record_type();
            kind == query.query_type || kind == RecordType::CNAME
        };
        for data in own.into_iter().filter(|data| is_answer(data)) {
            reply.add_answer(Record::from_rdata(query.name.clone(), 60, data.clone()));
        }
    }
}

fn absolute(name: &str) -> Name {
    Name::from_ascii(format!("{name}.")).unwrap()
}

fn text(name: &Name) -> String {
    let text = name.to_lowercase().to_ascii();
    text.trim_end_matches('.').to_owned()
}
