//! The relay from a client's view: requests and responses.

mod credentials;
mod properties;
mod relaying;
mod shapes;
mod tcp;

use ::credentials::Secret;
use ::credentials::turn::{Kind, PasswordKey, Username};
use parking_lot::Mutex;
use stun_types::attribute::{
    Attribute as _, AttributeStaticType as _, ErrorCode, Fingerprint, Nonce, PasswordAlgorithm,
    PasswordAlgorithmValue, PasswordAlgorithms, RawAttribute, Realm, UnknownAttributes, Userhash,
    XorMappedAddress,
};
use stun_types::attribute::{AttributeType, AttributeWrite};
use stun_types::message::{
    BINDING, Message, MessageClass, MessageType, MessageWrite as _, MessageWriteExt as _,
    MessageWriteVec, Method, TransactionId,
};
use turn_types::attribute::{
    AdditionalAddressFamily, AddressErrorCode, ChannelNumber, ConnectionId, Data, DontFragment,
    EvenPort, Lifetime, RequestedAddressFamily, RequestedTransport, ReservationToken,
    XorPeerAddress, XorRelayedAddress,
};
use turn_types::message::{
    ALLOCATE, CHANNEL_BIND, CONNECT, CONNECTION_ATTEMPT, CONNECTION_BIND, CREATE_PERMISSION,
    REFRESH, SEND,
};

use super::integrity::is_signed;
use super::*;

const REALM: &str = "engine.example.com";
const ENDPOINT: &str = "e7e8a732";
/// Unix time at the start of a test, in seconds.
const START: i64 = 1_800_000_000;
const USER: &str = "v1:1800003600:api:e7e8a732:usr_1";

/// Accepts every credential of the platform except barred ones.
#[derive(Debug)]
struct TestAuthority {
    key: Arc<PasswordKey>,
    barred: Mutex<BTreeSet<String>>,
    meter: Arc<Meter>,
}

impl Authority for TestAuthority {
    fn password_key(&self, username: &Username<'_>) -> Option<Arc<PasswordKey>> {
        (username.kind == Kind::Api).then(|| Arc::clone(&self.key))
    }

    fn admit(&self, username: &Username<'_>, _unix: i64) -> Result<Account, NotAllowedError> {
        if self.barred.lock().contains(username.subject) {
            return Err(NotAllowedError);
        }
        Ok(Account {
            project: username.project_endpoint.into(),
            holder: username.subject.into(),
            meter: Arc::clone(&self.meter),
            expires_at: None,
        })
    }
}

/// A relay with a clock.
struct Relay {
    core: Core<SocketAddr, u32>,
    authority: Arc<TestAuthority>,
    now: Time,
    /// Results of opening, if they are not the next port.
    ports: Vec<Result<u16, RelayError>>,
    next_port: u16,
    has_v6: bool,
    last_open: Option<OpenRequest>,
    /// Permit of the reserved port.
    kept: Option<Permit>,
}

/// Result of a packet.
#[derive(Debug, PartialEq)]
enum PacketResult {
    Nothing,
    Answer(Vec<u8>),
    Peer(SocketAddr, SocketAddr, Vec<u8>),
    /// Number, local address and peer.
    Dial(ConnectionNumber, SocketAddr, SocketAddr),
    /// Number, the peer's stream and response. In these tests a number stands for the stream.
    Join(ConnectionNumber, u32, Vec<u8>),
}

fn peers() -> Peers {
    Peers {
        allowed: vec![],
        own: vec!["198.41.0.4".parse().unwrap()],
        relay_ports: 40_000..=49_999,
        listeners: vec!["198.41.0.4:3478".parse().unwrap()],
    }
}

const QUOTA: Quota = Quota {
    whole: 100,
    per_project: 50,
    per_user: 10,
    per_source: 20,
};

impl Relay {
    fn new() -> Self {
        Self::with(QUOTA)
    }

    fn with(quota: Quota) -> Self {
        Self::limited(quota, Bandwidth::default())
    }

    fn limited(quota: Quota, bandwidth: Bandwidth) -> Self {
        Self::aged(quota, bandwidth, Millis::default())
    }

    /// A relay whose allocations may outlive their usernames up to this age.
    fn aged(quota: Quota, bandwidth: Bandwidth, age: Millis) -> Self {
        let secret = Secret::new(*b"0123456789abcdef0123456789abcdef");
        let authority = Arc::new(TestAuthority {
            key: Arc::new(PasswordKey::api(&secret, REALM).unwrap()),
            barred: Mutex::default(),
            meter: Arc::default(),
        });
        let shared = SharedState {
            realm: REALM.into(),
            nonces: Nonces::new(&[7; 32]),
            quotas: Quotas::new(quota, bandwidth),
            peers: peers(),
            families: [true, true],
            limits: Limits {
                permissions: 4,
                channels: 3,
                connections: 2,
                age,
            },
            authority: Arc::clone(&authority) as Arc<dyn Authority>,
        };
        Self {
            core: Core::new(Arc::new(shared), CorePosition { index: 2, count: 3 }, 9),
            authority,
            now: Time {
                unix: START,
                monotonic: Millis::from_seconds(1000),
            },
            ports: vec![],
            next_port: 40_000,
            has_v6: true,
            last_open: None,
            kept: None,
        }
    }

    fn advance(&mut self, seconds: u64) {
        self.now.unix += i64::try_from(seconds).unwrap();
        self.now.monotonic = self.now.monotonic.after(Millis::from_seconds(seconds));
        self.core.expire(self.now);
    }

    fn give(&mut self, client: Client, bytes: &[u8]) -> PacketResult {
        let now = self.now;
        match self.core.on_client_packet(now, client, bytes) {
            Action::NoAction => PacketResult::Nothing,
            Action::Answer(bytes) => PacketResult::Answer(bytes),
            Action::Send { socket, peer, data } => PacketResult::Peer(*socket, peer, data.to_vec()),
            Action::Open(mut open) => {
                let claimed = open.token.and_then(|_| self.kept.take());
                let reserve = open.reserve.take();
                let port = self.ports.pop().unwrap_or_else(|| {
                    self.next_port += 2;
                    Ok(self.next_port)
                });
                let opened = port.map(|port| OpenedAddresses {
                    relays: [
                        open.families[0].then(|| address("198.41.0.4", port)),
                        (open.families[1] && self.has_v6).then(|| address("2a00::4", port)),
                    ]
                    .map(|address| address.map(|address| (address, address))),
                    token: reserve.is_some().then_some(77),
                    permit: claimed,
                });
                if opened.is_ok() && reserve.is_some() {
                    self.kept = reserve;
                }
                self.last_open = Some(open);
                PacketResult::Answer(self.core.opened(now, opened))
            }
            Action::Dial {
                number,
                relay,
                peer,
            } => PacketResult::Dial(number, *relay, peer),
            Action::Join(join) => PacketResult::Join(join.number, join.stream, join.answer),
        }
    }
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn at(text: &str) -> Client {
    Client {
        address: text.parse().unwrap(),
        listener: 0,
        connection: 0,
    }
}

fn udp_client() -> Client {
    at("192.0.2.9:5000")
}

/// A client with its credential, which can sign requests.
#[derive(Clone)]
struct Caller {
    client: Client,
    username: String,
    password: String,
    realm: String,
    nonce: String,
    algorithm: KeyAlgorithm,
    integrity: Integrity,
    transaction: u128,
}

impl Caller {
    /// A client that has received realm and nonce.
    fn new(relay: &mut Relay, client: Client, username: &str) -> Self {
        let mut caller = Self {
            client,
            username: username.to_owned(),
            password: relay.authority.key.password(username),
            realm: String::new(),
            nonce: String::new(),
            algorithm: KeyAlgorithm::Md5,
            integrity: Integrity::Sha1,
            transaction: 1,
        };
        caller.greet(relay);
        caller
    }

    fn greet(&mut self, relay: &mut Relay) {
        let bytes = message(ALLOCATE, self.next(), &[&RequestedTransport::new(17)]);
        let PacketResult::Answer(answer) = relay.give(self.client, &bytes) else {
            panic!("an answer");
        };
        let answer = Message::from_bytes(&answer).unwrap();
        assert_eq!(code(&answer), 401);
        assert!(!is_signed(&answer));
        self.realm = answer.attribute::<Realm>().unwrap().realm().to_owned();
        self.nonce = answer.attribute::<Nonce>().unwrap().nonce().to_owned();
    }

    fn next(&mut self) -> TransactionId {
        self.transaction += 1;
        self.transaction.into()
    }

    fn key(&self) -> Key {
        Key::new(self.algorithm, &self.username, &self.realm, &self.password)
    }

    fn signed(&self, method: Method, id: TransactionId, with: &[&dyn AttributeWrite]) -> Vec<u8> {
        let username = stun_types::attribute::Username::new(&self.username).unwrap();
        let realm = Realm::new(&self.realm).unwrap();
        let nonce = Nonce::new(&self.nonce).unwrap();
        let kind = MessageType::from_class_method(MessageClass::Request, method);
        let mut out = Message::builder(kind, id, MessageWriteVec::new());
        for attribute in with {
            out.add_attribute(*attribute).unwrap();
        }
        out.add_attribute(&username).unwrap();
        out.add_attribute(&realm).unwrap();
        out.add_attribute(&nonce).unwrap();
        if self.algorithm == KeyAlgorithm::Sha256 {
            let offered = [PasswordAlgorithmValue::SHA256, PasswordAlgorithmValue::MD5];
            out.add_attribute(&PasswordAlgorithms::new(&offered))
                .unwrap();
            let chosen = PasswordAlgorithm::new(PasswordAlgorithmValue::SHA256);
            out.add_attribute(&chosen).unwrap();
        }
        self.key().sign(self.integrity, &mut out);
        out.finish()
    }

    /// Sends a request and returns the code of the response: 0 for success. Every response is
    /// signed with the password, except for those that request authentication.
    fn ask(
        &mut self,
        relay: &mut Relay,
        method: Method,
        with: &[&dyn AttributeWrite],
    ) -> (u16, Vec<u8>) {
        let id = self.next();
        let bytes = self.signed(method, id, with);
        let PacketResult::Answer(answer) = relay.give(self.client, &bytes) else {
            return (1, Vec::new());
        };
        self.read(method, id, answer)
    }

    /// The code of a response, and the response.
    fn read(&self, method: Method, id: TransactionId, answer: Vec<u8>) -> (u16, Vec<u8>) {
        let read = Message::from_bytes(&answer).unwrap();
        assert_eq!((read.transaction_id(), read.method()), (id, method));
        let code = if read.has_class(MessageClass::Success) {
            0
        } else {
            code(&read)
        };
        if ![401, 438].contains(&code) && is_signed(&read) {
            assert_eq!(self.key().verify(&read), Some(self.integrity));
        } else {
            assert!([401, 438, 400].contains(&code), "{code} is signed");
        }
        (code, answer)
    }

    fn allocate(&mut self, relay: &mut Relay) -> u16 {
        self.ask(relay, ALLOCATE, &[&RequestedTransport::new(17)]).0
    }

    fn refresh(&mut self, relay: &mut Relay, seconds: u32) -> (u16, u32) {
        let (code, answer) = self.ask(relay, REFRESH, &[&Lifetime::new(seconds)]);
        let read = Message::from_bytes(&answer).unwrap();
        let given = read
            .attribute::<Lifetime>()
            .map_or(0, |given| given.seconds());
        (code, given)
    }

    fn permit(&mut self, relay: &mut Relay, peers: &[&str]) -> u16 {
        let id = self.next();
        self.transaction -= 1;
        let peers: Vec<_> = peers
            .iter()
            .map(|peer| XorPeerAddress::new(peer.parse().unwrap(), id))
            .collect();
        let peers: Vec<&dyn AttributeWrite> = peers.iter().map(|peer| peer as _).collect();
        self.ask(relay, CREATE_PERMISSION, &peers).0
    }

    fn bind(&mut self, relay: &mut Relay, channel: u16, peer: &str) -> u16 {
        let id = self.next();
        self.transaction -= 1;
        let peer = XorPeerAddress::new(peer.parse().unwrap(), id);
        self.ask(relay, CHANNEL_BIND, &[&ChannelNumber::new(channel), &peer])
            .0
    }

    fn send(&mut self, relay: &mut Relay, peer: &str, data: &[u8]) -> PacketResult {
        let id = self.next();
        let peer = XorPeerAddress::new(peer.parse().unwrap(), id);
        let bytes = indication(id, &[&peer, &Data::new(data)]);
        relay.give(self.client, &bytes)
    }
}

fn message(method: Method, id: TransactionId, with: &[&dyn AttributeWrite]) -> Vec<u8> {
    let kind = MessageType::from_class_method(MessageClass::Request, method);
    let mut out = Message::builder(kind, id, MessageWriteVec::new());
    for attribute in with {
        out.add_attribute(*attribute).unwrap();
    }
    out.finish()
}

fn indication(id: TransactionId, with: &[&dyn AttributeWrite]) -> Vec<u8> {
    let kind = MessageType::from_class_method(MessageClass::Indication, SEND);
    let mut out = Message::builder(kind, id, MessageWriteVec::new());
    for attribute in with {
        out.add_attribute(*attribute).unwrap();
    }
    out.finish()
}

fn code(message: &Message<'_>) -> u16 {
    message.attribute::<ErrorCode>().unwrap().code()
}

fn relayed(answer: &[u8]) -> Vec<SocketAddr> {
    let message = Message::from_bytes(answer).unwrap();
    let all = message.iter_attributes();
    let all = all.filter(|(_, raw)| raw.get_type() == XorRelayedAddress::TYPE);
    all.map(|(_, raw)| {
        let address = XorRelayedAddress::try_from(&raw).unwrap();
        address.addr(message.transaction_id())
    })
    .collect()
}

fn allocate_udp(relay: &mut Relay) -> Caller {
    let mut caller = Caller::new(relay, udp_client(), USER);
    assert_eq!(caller.allocate(relay), 0);
    caller
}
