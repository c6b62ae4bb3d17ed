//! Properties that hold for any input of a relay. `fuzz/` feeds these functions with generated
//! input, the tests with changed packets of real clients.

use std::net::SocketAddr;
use std::sync::Arc;

use credentials::Secret;
use credentials::turn::{PasswordKey, Username};
use stun_types::attribute::{Attribute as _, AttributeType, AttributeWrite, RawAttribute};
use stun_types::message::{
    Message, MessageClass, MessageType, MessageWriteExt as _, MessageWriteVec, Method,
};
use turn::core::frame::{Frame, MAX_FRAME_BYTES, frame};
use turn::core::packet::{DataHeader, HEADROOM, TAILROOM, channel_data};
use turn::core::tcp::CorePosition;
use turn::core::{
    Account, Action, Authority, Bandwidth, Client, Core, Integrity, Key, KeyAlgorithm, Limits,
    Millis, Nonces, NotAllowedError, OpenedAddresses, Peers, Quota, Quotas, SharedState, Time,
};

/// A stream of a client: frames have their stated length, and further bytes change no result.
pub(crate) fn frames(data: &[u8]) {
    let verdict = frame(data);
    for end in 0..data.len().min(64) {
        let earlier = frame(&data[..end]);
        assert!(earlier == Frame::Partial || earlier == verdict);
    }
    if let Frame::Complete { bytes, padding } = verdict {
        assert!(bytes + padding <= data.len() && bytes <= MAX_FRAME_BYTES && padding < 4);
        assert_eq!(frame(&data[..bytes + padding]), verdict);
    }
    if let Some((_, payload)) = channel_data(data) {
        let mut buffer = vec![0; HEADROOM + payload.len() + TAILROOM];
        buffer[HEADROOM..HEADROOM + payload.len()].copy_from_slice(payload);
        for wrap in [DataHeader::Channel(0x4000), indication()] {
            let range = wrap.apply(&mut buffer, payload.len(), true);
            // A datagram of 65,535 bytes leaves no space for an indication's attributes.
            assert!(range.is_some() || payload.len() > 65_000);
        }
    }
}

fn indication() -> DataHeader {
    DataHeader::Indication {
        peer: "[2001:db8::1]:9".parse().unwrap(),
        transaction: [7; 12],
    }
}

/// A username: parsing a formatted name returns the same values.
pub(crate) fn username(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(read) = Username::parse(text) {
        let kind = format!("{:?}", read.kind).to_lowercase();
        let Username {
            expires_at,
            project_endpoint,
            subject,
            ..
        } = read;
        assert_eq!(
            text,
            format!("v1:{expires_at}:{kind}:{project_endpoint}:{subject}")
        );
    }
}

/// Packets of a client in sequence. Each has two bytes of length, a byte for its method and its
/// signature, and its bytes or those of its attributes. They are sent once as datagrams, and once
/// on a connection, where the allocation is a TCP one.
pub(crate) fn packets(data: &[u8]) {
    for connection in [0, 1] {
        packets_on(connection, data);
    }
}

fn packets_on(connection: u32, data: &[u8]) {
    let mut core = Core::new(shared(), CorePosition::ONLY, 1);
    let client = Client {
        address: "192.0.2.9:5000".parse().unwrap(),
        listener: 0,
        connection,
    };
    let transport = if connection == 0 { 17 } else { 6 };
    // On a connection the port does not matter.
    let port = if connection == 0 { 5000 } else { 0 };
    let source = SocketAddr::new(client.address.ip(), port);
    let nonce = Nonces::new(&[7; 32]).mint(NOW, source);
    let mut rest = data;
    let mut first = true;
    while let [high, low, kind, more @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (bytes, others) = more.split_at(length);
        rest = others;
        let packet = match kind {
            0x80.. => signed(kind & 0x0f, bytes, &nonce),
            // An allocation for the packets that follow.
            0x40.. if first => signed(3, &[0, 0x19, 0, 4, transport, 0, 0, 0], &nonce),
            _ => bytes.to_vec(),
        };
        first = false;
        give(&mut core, client, &packet);
        assert!(core.len() <= 1 && core.connections() <= 2);
    }
    core.expire(Time {
        monotonic: Millis::from_seconds(100_000),
        ..NOW
    });
    assert!(
        core.is_empty() && core.connections() == 0,
        "every allocation ends"
    );
}

fn give(core: &mut Core<()>, client: Client, packet: &[u8]) {
    match core.on_client_packet(NOW, client, packet) {
        Action::NoAction => {}
        Action::Answer(answer) => check(&answer),
        Action::Send { peer, data, .. } => {
            assert!(data.len() <= packet.len() && peer.port() != 0);
        }
        Action::Open(open) => {
            let address = |ip: &str| (SocketAddr::new(ip.parse().unwrap(), 40_000), ());
            let [v4, v6] = open.families;
            let relays = [
                v4.then(|| address("198.41.0.4")),
                v6.then(|| address("2a00::4")),
            ];
            let token = open.reserve.is_some().then_some(7);
            let id = open.id;
            let opened = OpenedAddresses {
                relays,
                token,
                permit: open.reserve,
            };
            check(&core.opened(NOW, Ok(opened)));
            let peer = "1.1.1.1:9".parse().unwrap();
            assert!(core.accepted(NOW, id, peer, ()).is_none(), "no permission");
        }
        Action::Dial { number, peer, .. } => {
            assert!(peer.port() != 0);
            let (_, answer) = core
                .dialled(NOW, number, Ok(()))
                .expect("the request is known");
            check(&answer);
        }
        Action::Join(join) => check(&join.answer),
    }
}

/// Every answer is a valid message.
fn check(answer: &[u8]) {
    let message = Message::from_bytes(answer).expect("an answer that is a message");
    assert!(message.is_response() && answer.len() <= 1024);
}

const NOW: Time = Time {
    unix: 1_800_000_000,
    monotonic: Millis::from_seconds(1000),
};
const REALM: &str = "engine.example.com";
const USER: &str = "v1:1800003600:api:e7e8a732:usr_1";

#[derive(Debug)]
struct AllowAll(Arc<PasswordKey>);

impl Authority for AllowAll {
    fn password_key(&self, _username: &Username<'_>) -> Option<Arc<PasswordKey>> {
        Some(Arc::clone(&self.0))
    }

    fn admit(&self, _username: &Username<'_>, _unix: i64) -> Result<Account, NotAllowedError> {
        Ok(Account {
            project: "prj".into(),
            holder: "usr".into(),
            meter: Arc::default(),
            expires_at: None,
        })
    }
}

fn key() -> PasswordKey {
    PasswordKey::api(&Secret::new([7; 32]), REALM).unwrap()
}

fn shared() -> Arc<SharedState> {
    let quota = Quota {
        whole: 2,
        per_project: 2,
        per_user: 2,
        per_source: 2,
    };
    Arc::new(SharedState {
        realm: REALM.into(),
        nonces: Nonces::new(&[7; 32]),
        quotas: Quotas::new(quota, Bandwidth::default()),
        peers: Peers {
            allowed: vec![],
            own: vec![],
            relay_ports: 40_000..=49_999,
            listeners: vec![],
        },
        families: [true, true],
        limits: Limits {
            permissions: 4,
            channels: 4,
            connections: 2,
            age: Millis::default(),
        },
        authority: Arc::new(AllowAll(Arc::new(key()))),
    })
}

/// A request with these attributes, as far as they are valid, and a valid signature.
fn signed(method: u8, attributes: &[u8], nonce: &str) -> Vec<u8> {
    let kind = MessageType::from_class_method(MessageClass::Request, Method::new(method.into()));
    let mut out = Message::builder(kind, 5.into(), MessageWriteVec::new());
    let mut rest = attributes;
    while let Ok(raw) = RawAttribute::from_bytes(rest) {
        // Only the writer adds the attributes at the end of a message.
        if ![0x0008, 0x001c, 0x8028].contains(&raw.get_type().value()) {
            out.add_attribute(&raw).ok();
        }
        let length = 4 + raw.value.len().next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    let texts = [(0x06, USER), (0x14, REALM), (0x15, nonce)];
    for (kind, text) in texts {
        let raw = RawAttribute::new(AttributeType::new(kind), text.as_bytes());
        out.add_attribute(&raw as &dyn AttributeWrite).ok();
    }
    let key = Key::new(KeyAlgorithm::Md5, USER, REALM, &key().password(USER));
    key.sign(Integrity::Sha1, &mut out);
    stun_types::message::MessageWrite::finish(out)
}
