//! Questions to name servers about the records of a public server.
//!
//! A recursive resolver caches that a record was missing, and cannot tell whether a name is
//! delegated to a server that does not run yet. So the zone's own servers are asked as well.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::records::{CaaProperty, Delegation, DnsAnswer, RecordAnswers, WantedRecords};
use crate::failure::Failure;

/// The name servers that are asked.
#[derive(Clone, Debug)]
pub(super) struct NameServers {
    /// Resolvers, which are asked in their order until one answers.
    resolvers: Vec<SocketAddr>,
    /// True if no other server is asked.
    is_only: bool,
}

/// The servers of the root zone of a closed network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootServers {
    /// At least one.
    pub(super) addresses: Vec<IpAddr>,
    /// Port of all name servers of the network.
    pub(super) port: u16,
}

impl RootServers {
    /// The given servers; `None` without one. Then the root is that of the Internet.
    pub(super) fn new(given: &[String]) -> Result<Option<Self>, Failure> {
        let servers = given.iter().map(|text| server_address("--dns-root", text));
        let servers: Vec<SocketAddr> = servers.collect::<Result<_, _>>()?;
        let Some(port) = servers.first().map(SocketAddr::port) else {
            return Ok(None);
        };
        if port == 0 || servers.iter().any(|server| server.port() != port) {
            let message = "the addresses of --dns-root do not have the same port";
            let hint = "give all of them with one port from 1 to 65535, or without a port for 53";
            return Err(Failure::usage(message).hint(hint));
        }
        let addresses = servers.iter().map(SocketAddr::ip).collect();
        Ok(Some(Self { addresses, port }))
    }
}

/// The address of a name server in an option.
fn server_address(option: &str, given: &str) -> Result<SocketAddr, Failure> {
    let address = given
        .parse::<SocketAddr>()
        .or_else(|_| given.parse().map(|ip: IpAddr| (ip, DNS_PORT).into()));
    address.map_err(|_invalid| {
        Failure::usage(format!("{option} `{given}` is not an IP address"))
            .hint("give an address, and a port if it is not 53, such as 192.0.2.53:53")
    })
}

impl NameServers {
    /// The given server, or else those of the system.
    pub(super) fn new(given: Option<&str>) -> Result<Self, Failure> {
        let Some(given) = given else {
            let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            return Ok(Self {
                resolvers: system_servers(&text),
                is_only: false,
            });
        };
        Ok(Self {
            resolvers: vec![server_address("--resolver", given)?],
            is_only: true,
        })
    }

    /// The answers for all names.
    pub(super) async fn answers(&self, wanted: &WantedRecords) -> RecordAnswers {
        let own = self.servers_of_zone(&wanted.host).await;
        let mut answers = RecordAnswers::default();
        for name in wanted.address_names() {
            let found = self.addresses(&name, &own).await;
            answers.addresses.insert(name, found);
        }
        for name in wanted.delegated_names() {
            // An alias may point into another zone.
            let found = if is_below(&name, &wanted.host) {
                self.delegation(&name, &own).await
            } else {
                let own = self.servers_of_zone(parent(&name)).await;
                self.delegation(&name, &own).await
            };
            answers.delegations.insert(name, found);
        }
        // The authority reports names whose servers fail.
        answers.caa = self.caa(&wanted.host).await.ok().flatten();
        answers
    }

    /// Addresses of a name, from the servers of its zone, else from the resolver.
    async fn addresses(&self, name: &str, own: &[SocketAddr]) -> DnsAnswer<Vec<IpAddr>> {
        let mut found = Vec::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let of_zone = ask(own, name, kind, false).await.ok();
            if let Some(message) = of_zone.filter(has_all_addresses) {
                found.extend(addresses_in(&message));
            } else {
                // The name is in another zone, or an alias of a name in one.
                let message = ask(&self.resolvers, name, kind, true).await?;
                found.extend(addresses_in(&message));
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Name servers and alias of a name, as the zone above it has them.
    async fn delegation(&self, name: &str, own: &[SocketAddr]) -> DnsAnswer<Delegation> {
        let message = ask(own, name, RecordType::NS, false).await?;
        let wanted = parse(name)?;
        let mut found = Delegation::default();
        // A referral has the records in its second section.
        let sections = message.answers.iter().chain(&message.authorities);
        for record in sections.filter(|record| record.name == wanted) {
            match &record.data {
                RData::NS(server) => found.servers.push(text(&server.0)),
                RData::CNAME(alias) => found.alias = Some(text(&alias.0)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The CAA records that apply to a name: its own, or those of the next name above it that has
    /// some (RFC 8659 section 3).
    pub(super) async fn caa(&self, host: &str) -> DnsAnswer<Option<(String, Vec<CaaProperty>)>> {
        let mut name = host;
        while !name.is_empty() {
            let message = ask(&self.resolvers, name, RecordType::CAA, true).await?;
            let properties = message
                .answers
                .iter()
                .filter_map(|record| match &record.data {
                    RData::CAA(caa) => Some(CaaProperty {
                        tag: caa.tag.clone(),
                        value: String::from_utf8_lossy(&caa.value).into_owned(),
                    }),
                    _ => None,
                });
            let properties: Vec<_> = properties.collect();
            if !properties.is_empty() {
                return Ok(Some((name.to_owned(), properties)));
            }
            name = parent(name);
        }
        Ok(None)
    }

    /// The name servers of the zone that contains a name.
    async fn servers_of_zone(&self, name: &str) -> Vec<SocketAddr> {
        if self.is_only {
            return self.resolvers.clone();
        }
        let mut zone = name;
        while !zone.is_empty() {
            let message = ask(&self.resolvers, zone, RecordType::NS, true).await;
            let servers = message.map_or_else(|_| Vec::new(), |message| servers_in(&message));
            let mut addresses = Vec::new();
            for server in servers.iter().take(MAX_SERVERS) {
                for kind in [RecordType::A, RecordType::AAAA] {
                    let message = ask(&self.resolvers, server, kind, true).await;
                    let found = message.map_or_else(|_| Vec::new(), |found| addresses_in(&found));
                    let found = found.into_iter().map(|ip| SocketAddr::from((ip, DNS_PORT)));
                    addresses.extend(found.take(1));
                }
            }
            if !addresses.is_empty() {
                return addresses;
            }
            zone = parent(zone);
        }
        self.resolvers.clone()
    }
}

/// The first response of these servers, which are asked in their order.
async fn ask(
    servers: &[SocketAddr],
    name: &str,
    kind: RecordType,
    is_recursive: bool,
) -> DnsAnswer<Message> {
    let name = parse(name)?;
    let mut query = Message::query();
    query.metadata.recursion_desired = is_recursive;
    query.add_query(Query::query(name, kind));
    let mut problem = "no name server is known".to_owned();
    for server in servers.iter().take(MAX_SERVERS) {
        match exchange(*server, &query).await {
            Ok(message) => match message.metadata.response_code {
                ResponseCode::NoError | ResponseCode::NXDomain => return Ok(message),
                code => problem = format!("the name server {server} responds with {code}"),
            },
            Err(error) => problem = format!("the name server {server}: {error}"),
        }
    }
    Err(problem)
}

/// Sends a query over UDP, and over TCP if there is no whole response.
async fn exchange(server: SocketAddr, query: &Message) -> io::Result<Message> {
    let bytes = query.to_vec().map_err(|_| invalid())?;
    if let Ok(Ok(message)) = timeout(UDP_TIME, over_udp(server, query, &bytes)).await
        && !message.metadata.truncation
    {
        return Ok(message);
    }
    match timeout(TCP_TIME, over_tcp(server, query, &bytes)).await {
        Ok(message) => message,
        Err(_elapsed) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no response in time",
        )),
    }
}

async fn over_udp(server: SocketAddr, query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut response = vec![0; MAX_RESPONSE];
    loop {
        let len = socket.recv(&mut response).await?;
        // Another response may be forged or late.
        if let Ok(message) = response_to(query, response.get(..len).unwrap_or_default()) {
            return Ok(message);
        }
    }
}

async fn over_tcp(server: SocketAddr, query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(bytes.len()).map_err(|_| invalid())?;
    let sent = [&len.to_be_bytes()[..], bytes].concat();
    stream.write_all(&sent).await?;
    let mut response = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut response).await?;
    response_to(query, &response)
}

fn response_to(query: &Message, bytes: &[u8]) -> io::Result<Message> {
    let message = Message::from_vec(bytes).map_err(|_| invalid())?;
    let is_answer = message.metadata.id == query.metadata.id
        && message.metadata.message_type == MessageType::Response
        && message.queries == query.queries;
    if is_answer {
        Ok(message)
    } else {
        Err(invalid())
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a valid DNS message")
}

/// True if the server of a zone has the addresses of a name, or reports that there is none. A
/// resolver may cache an earlier record, and would cache that one is missing.
fn has_all_addresses(message: &Message) -> bool {
    let is_none = message.metadata.authoritative && message.answers.is_empty();
    is_none || !addresses_in(message).is_empty()
}

fn addresses_in(message: &Message) -> Vec<IpAddr> {
    let addresses = message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        });
    addresses.collect()
}

fn servers_in(message: &Message) -> Vec<String> {
    let servers = message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::NS(server) => Some(text(&server.0)),
            _ => None,
        });
    servers.collect()
}

fn parse(name: &str) -> DnsAnswer<Name> {
    Name::from_ascii(format!("{name}.")).map_err(|_| format!("{name} is not a DNS name"))
}

/// In lower case, without the dot at the end.
fn text(name: &Name) -> String {
    let text = name.to_lowercase().to_ascii();
    text.trim_end_matches('.').to_owned()
}

/// The name without its first label.
fn parent(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, parent)| parent)
}

fn is_below(name: &str, zone: &str) -> bool {
    name.strip_suffix(zone)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The servers in the text of `/etc/resolv.conf`, or this machine (resolv.conf(5)).
fn system_servers(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver");
        let address: IpAddr = address.and(words.next())?.parse().ok()?;
        Some(SocketAddr::from((address, DNS_PORT)))
    });
    let servers: Vec<_> = servers.take(MAX_SERVERS).collect();
    if servers.is_empty() {
        vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT))]
    } else {
        servers
    }
}

const DNS_PORT: u16 = 53;
/// Servers that are asked for one name: some zones have a dozen.
const MAX_SERVERS: usize = 4;
/// Responses over UDP are smaller without an extension. Some servers send more.
const MAX_RESPONSE: usize = 4096;
/// Time limit over UDP, with one retransmission by TCP after it.
const UDP_TIME: Duration = Duration::from_secs(2);
const TCP_TIME: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CAA, CNAME, NS};
    use tokio::net::TcpListener;

    use super::super::records::{ChallengeRecords, OrderValidations};
    use super::*;

    /// A name server on a free port, over TCP only, with these records: the address of every name,
    /// a referral for one challenge, and CAA records of a parent.
    async fn name_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut bytes).await.unwrap();
                let answer = respond(&Message::from_vec(&bytes).unwrap());
                let answer = answer.to_vec().unwrap();
                let len = u16::try_from(answer.len()).unwrap();
                stream.write_u16(len).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        address
    }

    fn respond(query: &Message) -> Message {
        let mut response = Message::response(query.metadata.id, query.metadata.op_code);
        let question = query.queries[0].clone();
        let name = question.name().clone();
        let host = Name::from_ascii("engine.example.com.").unwrap();
        let record = |data: RData| Record::from_rdata(name.clone(), 60, data);
        match (question.query_type(), text(&name).as_str()) {
            (RecordType::A, _) => {
                let own = Ipv4Addr::new(203, 0, 113, 7);
                response.add_answer(record(RData::A(A(own))));
            }
            (RecordType::NS, "_acme-challenge.engine.example.com") => {
                response.add_authority(record(RData::NS(NS(host))));
            }
            (RecordType::CAA, "example.com") => {
                let issuer = Name::from_ascii("other.example").unwrap();
                let caa = CAA::new_issue(false, Some(issuer), Vec::new());
                response.add_answer(record(RData::CAA(caa)));
            }
            _ => {}
        }
        response.add_query(question);
        response
    }

    #[test]
    fn root_servers_share_a_port() {
        let servers = |given: &[&str]| {
            let given: Vec<_> = given.iter().map(|text| (*text).to_owned()).collect();
            RootServers::new(&given)
        };
        assert_eq!(servers(&[]).unwrap(), None);
        let found = servers(&["10.0.0.53", "[fd00::53]:53"]).unwrap().unwrap();
        assert_eq!(found.port, 53);
        assert_eq!(found.addresses.len(), 2);
        for bad in [
            &["ns.example"][..],
            &["10.0.0.53", "10.0.0.54:54"],
            &["10.0.0.53:0"],
        ] {
            let failure = servers(bad).unwrap_err();
            assert!(failure.message().contains("--dns-root"), "{failure}");
            assert!(failure.next_step().is_some());
        }
    }

    #[tokio::test]
    async fn the_records_of_a_server_are_looked_up() {
        let address = name_server().await.to_string();
        let servers = NameServers::new(Some(&address)).unwrap();
        let wanted = WantedRecords {
            host: "engine.example.com".to_owned(),
            addresses: vec![Ipv4Addr::new(203, 0, 113, 7).into()],
            challenges: ChallengeRecords::Delegation,
            authority: Some("letsencrypt.org"),
            accounts: Vec::new(),
            validations: OrderValidations::PUBLIC,
        };
        let changes = wanted.changes(&servers.answers(&wanted).await);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("add     _acme-challenge.t.engine.example.com."));
        assert!(lines[1].starts_with("add     example.com. "), "{lines:?}");
        assert!(lines[1].ends_with("CAA   0 issue \"letsencrypt.org\""));
    }

    /// A resolver may still have a record that was removed.
    #[test]
    fn the_server_of_a_zone_reports_that_there_is_no_address() {
        let mut message = Message::response(1, OpCode::Query);
        assert!(!has_all_addresses(&message), "a referral");
        message.metadata.authoritative = true;
        assert!(has_all_addresses(&message));
        let name = Name::from_ascii("engine.example.com.").unwrap();
        let alias = Name::from_ascii("host.example.net.").unwrap();
        let alias = RData::CNAME(CNAME(alias));
        message.add_answer(Record::from_rdata(name.clone(), 60, alias));
        assert!(!has_all_addresses(&message), "an alias into another zone");
        let own = RData::A(A(Ipv4Addr::new(203, 0, 113, 7)));
        message.add_answer(Record::from_rdata(name, 60, own));
        assert!(has_all_addresses(&message));
    }

    /// Nothing listens on a leased port.
    #[tokio::test]
    async fn a_name_server_that_is_unreachable_is_named() {
        let address = ports::lease_address();
        let servers = NameServers::new(Some(&address)).unwrap();
        let found = servers.addresses("engine.example.com", &[]).await;
        let reason = found.unwrap_err();
        assert!(reason.contains(&address), "{reason}");
    }

    #[test]
    fn the_servers_of_the_system_are_read() {
        let text = "# none\nnameserver 192.0.2.53\nsearch example\nnameserver 2001:db8::53\n";
        let servers = system_servers(text);
        let expected = ["192.0.2.53:53", "[2001:db8::53]:53"];
        assert_eq!(
            servers,
            expected.map(|text| text.parse::<SocketAddr>().unwrap())
        );
        assert_eq!(
            system_servers("nameserver x"),
            ["127.0.0.1:53".parse::<SocketAddr>().unwrap()]
        );
    }

    #[test]
    fn a_resolver_has_an_address_and_maybe_a_port() {
        for (given, expected) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("127.0.0.1:5353", "127.0.0.1:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
        ] {
            let servers = NameServers::new(Some(given)).unwrap();
            assert_eq!(servers.resolvers, [expected.parse::<SocketAddr>().unwrap()]);
        }
        assert!(NameServers::new(Some("ns.example.com")).is_err());
    }

    #[test]
    fn names_are_below_whole_labels() {
        assert!(is_below("_acme-challenge.a.example", "a.example"));
        assert!(!is_below("ba.example", "a.example"));
        assert_eq!(parent("a.b.example"), "b.example");
        assert_eq!(parent("example"), "");
    }
}
