//! Accepted configurations, and rejected ones with their keys.

use super::*;

fn load(section: &str) -> Result<TurnConfig, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("turn:\n{section}")).unwrap();
    let home = ("HOME".to_owned(), "/relay".to_owned());
    TurnConfig::load(Some(file.path()), [home]).map_err(|error| error.to_string())
}

/// The minimal configuration, with additional lines.
fn with(more: &str) -> Result<TurnConfig, String> {
    let least = "  realm: Engine.Example.com\n  secret_file: /s\n";
    load(&format!(
        "{least}  listen_addr: ['198.41.0.4:3478']\n{more}"
    ))
}

#[test]
fn a_minimal_configuration_is_accepted() {
    let config = with("").unwrap();
    assert_eq!(config.realm, "engine.example.com");
    assert_eq!(
        config.relay.announced,
        [Some("198.41.0.4".parse().unwrap()), None]
    );
    assert_eq!(config.relay.announced, config.relay.bind);
    assert_eq!(config.relay.ports, 49_152..=65_535);
    assert!(config.tls.is_none() && config.control_plane.is_none());
}

#[test]
fn a_relay_behind_nat_has_two_addresses() {
    let least = "  realm: a\n  secret_file: /s\n";
    let nat = "  listen_addr: ['0.0.0.0:3478', '[::]:3478']\n  relay_addr: [10.0.0.7]\n  \
               external_ip: [198.41.0.4]\n";
    let config = load(&format!("{least}{nat}")).unwrap();
    assert_eq!(config.relay.bind, [Some("10.0.0.7".parse().unwrap()), None]);
    assert_eq!(
        config.relay.announced,
        [Some("198.41.0.4".parse().unwrap()), None]
    );
    let unknown = load(least).unwrap_err();
    assert!(unknown.contains("turn.external_ip"), "{unknown}");
}

#[test]
fn the_state_directory_depends_on_the_environment() {
    let platform = "  control_plane: {url: 'https://p.example', token_file: /t}\n";
    let config = with(platform).unwrap();
    let path = Path::new("/relay/.local/state/svc/turn/engine.example.com");
    assert_eq!(config.control_plane.unwrap().data_dir, path);
}

#[test]
fn invalid_values_are_rejected_with_their_keys() {
    for (more, key) in [
        ("  realm: 'a b'\n", "turn.realm"),
        ("  listen_addr: []\n", "turn.listen_addr"),
        ("  listen_addr: [localhost]\n", "turn.listen_addr.0"),
        ("  relay_ports: 5-4\n", "turn.relay_ports"),
        ("  relay_ports: '0-4'\n", "turn.relay_ports"),
        ("  relay_ports: 3000-4000\n", "turn.relay_ports"),
        (
            "  tls_listen_addr: ['198.41.0.4:5349']\n",
            "turn.tls.cert_file",
        ),
        (
            "  external_ip: [198.41.0.4, 198.41.0.5]\n",
            "turn.external_ip.1",
        ),
        ("  external_ip: ['2a00::1']\n", "turn.external_ip"),
        ("  external_ip: [0.0.0.0]\n", "turn.external_ip"),
        ("  allowed_peers: [10.0.0.1/8]\n", "turn.allowed_peers.0"),
        ("  allowed_peers: [here]\n", "turn.allowed_peers.0"),
        ("  limits: {allocations: 0}\n", "turn.limits.allocations"),
        (
            "  limits: {channels_per_allocation: 5000}\n",
            "turn.limits.channels_per_allocation",
        ),
        ("  drain_seconds: 4000\n", "turn.drain_seconds"),
        (
            "  control_plane: {token_file: /t}\n",
            "turn.control_plane.url",
        ),
        (
            "  control_plane: {url: 'https://p.example'}\n",
            "turn.control_plane.token_file",
        ),
        (
            "  control_plane: {url: 'http://p.example', token_file: /t}\n",
            "turn.control_plane.url",
        ),
        ("  relm: a\n", "turn.relm"),
    ] {
        let own = "  realm: a\n";
        let own = if more.contains("realm") { "" } else { own };
        let listen = "  listen_addr: ['198.41.0.4:3478']\n";
        let listen = if more.starts_with("  listen_addr") {
            ""
        } else {
            listen
        };
        let error = load(&format!("{own}  secret_file: /s\n{listen}{more}")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{more}: {error}");
    }
    let error = load("  realm: a\n  external_ip: [198.41.0.4]\n").unwrap_err();
    assert!(error.contains("turn.secret_file"), "{error}");
}

#[test]
fn a_secret_is_read_like_in_the_platform() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display();
    let config = || {
        load(&format!(
            "  realm: a\n  listen_addr: ['198.41.0.4:1']\n  secret_file: {path}\n"
        ))
    };
    std::fs::write(file.path(), " 0123456789abcdef0123456789abcdef\n").unwrap();
    let secret = config().unwrap().secret().unwrap().unwrap();
    assert_eq!(secret.expose(), b"0123456789abcdef0123456789abcdef");
    std::fs::write(file.path(), "short").unwrap();
    let error = config().unwrap().secret().unwrap_err().to_string();
    assert!(
        error.contains("turn.secret_file") && !error.contains("short"),
        "{error}"
    );
}
