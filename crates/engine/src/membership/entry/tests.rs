use credentials::{Secret, link_password};
use ownership::{Engine, EngineId, Entry, EntryValue, Generation};
use types::id::{ClientId, TunnelId};
use types::tunnel::TunnelProperties;

use super::*;
use crate::access::TunnelPolicy;
use crate::directory::Project;
use crate::live::ClientHandle;

const HOST: &str = "web.t.engine.example";

fn identity() -> Identity {
    let user = credentials::Identity::User("usr_1".to_owned());
    Identity::new("prj_1", &user)
}

fn passwords() -> LinkPasswords {
    let secret = Secret::new("open sesame".to_owned());
    let hash = link_password::hash(&secret, &[7; link_password::SALT_BYTES]).unwrap();
    let entry = LinkPassword::parse("guest", &hash).unwrap();
    LinkPasswords::new(vec![entry]).unwrap()
}

/// A tunnel with settings of all kinds.
fn tunnel() -> LiveTunnel<()> {
    let properties = TunnelProperties {
        name: Some("web".parse().unwrap()),
        hostname: Some(HOST.parse().unwrap()),
        protocol: Some(Protocol::Http),
        publish: Some(true),
        trusted_ips: vec!["192.0.2.0/24".parse().unwrap()],
        geo_ip: vec!["de".parse().unwrap()],
        labels: [("team".to_owned(), "a".to_owned())].into(),
        token_auth: Some(true),
        basic_auth: Some(true),
        time_to_first_byte_seconds: Some(30),
        ..TunnelProperties::default()
    };
    let policy = TunnelPolicy::compile(&properties).with_link_passwords(Some(passwords()));
    let client_id = ClientId::new(2, [2; 10]);
    let mut view = Tunnel::online(TunnelId::new(1, [1; 10]), client_id, properties);
    view.project_id = Some("prj_1".to_owned());
    view.creation_date = Some("2026-01-02T03:04:05.678Z".parse().unwrap());
    let owner = ClientHandle {
        identity: identity(),
        project: Arc::new(Project::community()),
        client_id,
        agent: Arc::new(()),
    };
    let recent = (Arc::default(), Arc::default());
    LiveTunnel::at_peer(owner, Arc::new(view), Arc::new(policy), recent, None)
}

fn server(value: Option<&[u8]>, identity: &Identity) -> Server {
    Server {
        id: EngineId(1),
        engine: Engine {
            name: "engine-1".into(),
            address: "engine-1:7443".into(),
            zone: "".into(),
        },
        owner: owner_of(identity),
        generation: Generation(5),
        entry: value.map(|value| Entry {
            revision: Generation(6),
            value: EntryValue::new(value),
        }),
    }
}

fn text(tunnel: &LiveTunnel<()>) -> String {
    String::from_utf8(encode(tunnel).unwrap()).unwrap()
}

fn read(text: &str) -> Result<TunnelEntry, EntryError> {
    decode(HOST, &server(Some(text.as_bytes()), &identity()))
}

#[test]
fn an_entry_has_the_settings_for_the_access_decision() {
    let tunnel = tunnel();
    let read = read(&text(&tunnel)).unwrap();
    assert_eq!(read.view, tunnel.view);
    assert_eq!(read.identity, tunnel.identity);
    let policy = TunnelPolicy::compile(&read.view.properties);
    assert_eq!(
        policy.with_link_passwords(read.link_passwords),
        *tunnel.policy
    );
}

/// Ports have no owner in the cluster, and sessions of terminals are at one engine.
#[test]
fn private_tunnels_ports_and_terminals_have_no_entry() {
    let with = |protocol, publish| {
        let mut tunnel = tunnel();
        let view = Arc::make_mut(&mut tunnel.view);
        view.properties.protocol = Some(protocol);
        view.properties.publish = Some(publish);
        encode(&tunnel).is_some()
    };
    assert!(with(Protocol::Http, true) && with(Protocol::Tls, true));
    assert!(!with(Protocol::Http, false));
    assert!(!with(Protocol::Tcp, true));
    assert!(!with(Protocol::Webtty, true));
}

/// Another version may have added a setting that restricts the access.
#[test]
fn an_entry_with_anything_unknown_is_not_used() {
    let text = text(&tunnel());
    let newer = text.replacen("\"version\":1", "\"version\":2", 1);
    assert!(matches!(read(&newer), Err(EntryError::Version(2))));
    let setting = text.replacen("\"token_auth\"", "\"new_auth\":true,\"token_auth\"", 1);
    assert_ne!(setting, text);
    assert!(matches!(read(&setting), Err(EntryError::UnknownSettings)));
    let field = text.replacen("{\"version\"", "{\"new\":1,\"version\"", 1);
    assert!(matches!(read(&field), Err(EntryError::Unreadable(_))));
    assert!(matches!(read(""), Err(EntryError::Unreadable(_))));
    let missing = decode(HOST, &server(None, &identity()));
    assert!(matches!(missing, Err(EntryError::Missing)));
}

#[test]
fn an_entry_belongs_to_its_name_and_owner() {
    let text = text(&tunnel());
    let value = Some(text.as_bytes());
    let other = decode("other.t.engine.example", &server(value, &identity()));
    assert!(matches!(other, Err(EntryError::OtherName)));
    let client = credentials::Identity::Client("usr_1".to_owned());
    for stranger in [
        Identity::new("prj_2", &identity().subject),
        Identity::new("prj_1", &client),
    ] {
        let refused = decode(HOST, &server(value, &stranger));
        assert!(matches!(refused, Err(EntryError::OtherOwner)));
    }
    let private = text.replacen("\"publish\":true", "\"publish\":false", 1);
    assert!(matches!(read(&private), Err(EntryError::OtherName)));
}

/// Without its passwords, the tunnel would be open or closed for all visitors.
#[test]
fn link_passwords_match_the_settings() {
    let text = text(&tunnel());
    let open = text.replacen("\"basic_auth\":true", "\"basic_auth\":false", 1);
    assert!(matches!(read(&open), Err(EntryError::UnexpectedPasswords)));
    let start = text.find("\"link_passwords\"").unwrap();
    let end = text.find("\"tunnel\"").unwrap();
    let bare = format!("{}{}", &text[..start], &text[end..]);
    assert!(matches!(read(&bare), Err(EntryError::UnexpectedPasswords)));
    let weak = text.replacen("argon2id", "argon2i", 1);
    assert!(matches!(read(&weak), Err(EntryError::Passwords(_))));
}
