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

#[test]
fn a_certificate_is_ordered_for_the_host_or_the_realm() {
    let ordered = |more: &str| {
        let tls = format!("  tls: {{{more}acme: {{terms_agreed: true}}}}\n");
        let config = with(&format!("  tls_listen_addr: ['198.41.0.4:443']\n{tls}"));
        config.unwrap().tls.unwrap()
    };
    let tls = ordered("");
    assert!(tls.files.is_none() && tls.http_listen.is_none());
    let settings = tls.acme.unwrap();
    assert_eq!(settings.names, ["engine.example.com"]);
    let path = Path::new("/relay/.local/state/svc/turn/engine.example.com/acme");
    assert_eq!(settings.state_dir, path);
    let tls = ordered("host: Turn.Example.com, http_listen_addr: '198.41.0.4:80', ");
    assert_eq!(tls.http_listen, Some("198.41.0.4:80".parse().unwrap()));
    assert_eq!(tls.acme.unwrap().names, ["turn.example.com"]);
}

#[test]
fn mistakes_of_an_ordered_certificate_are_refused() {
    let acme = "acme: {terms_agreed: true}";
    for (has_listener, tls, key, reason) in [
        (false, acme, "turn.tls.acme", "set turn.tls_listen_addr"),
        (true, "acme: {}", "turn.tls.acme.terms_agreed", "terms"),
        (
            true,
            format!("host: 192.0.2.1, {acme}").as_str(),
            "turn.tls.host",
            "not a DNS name",
        ),
        (
            true,
            "acme: {terms_agreed: true, challenges: [http-01]}",
            "turn.tls.acme.challenges",
            "set turn.tls.http_listen_addr",
        ),
        (false, "host: a.example", "turn.tls.host", "remove"),
        (
            false,
            "http_listen_addr: '198.41.0.4:80'",
            "turn.tls.http_listen_addr",
            "remove",
        ),
        (
            true,
            format!("http_listen_addr: '198.41.0.4:443', {acme}").as_str(),
            "turn.tls.http_listen_addr",
            "already used by turn.tls_listen_addr",
        ),
        (
            true,
            format!("http_listen_addr: '198.41.0.4:50000', {acme}").as_str(),
            "turn.relay_ports",
            "turn.tls.http_listen_addr",
        ),
    ] {
        let listener = if has_listener {
            "  tls_listen_addr: ['198.41.0.4:443']\n"
        } else {
            ""
        };
        let error = with(&format!("{listener}  tls: {{{tls}}}\n")).unwrap_err();
        assert!(error.contains(&format!("{key}: ")), "{tls}: {error}");
        assert!(error.contains(reason), "{tls}: {error}");
    }
}

#[test]
fn a_validation_over_tls_needs_port_443() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "0123456789abcdef0123456789abcdef").unwrap();
    for (port, is_warned) in [(443, false), (5349, true)] {
        let config = load(&format!(
            "  realm: a\n  secret_file: {}\n  listen_addr: ['198.41.0.4:3478']\n  \
             tls_listen_addr: ['198.41.0.4:{port}']\n  tls: {{acme: {{terms_agreed: true}}}}\n",
            secret.path().display()
        ));
        let warnings = config.unwrap().inspect(0).unwrap();
        let mut keys = warnings.iter().map(|warning| warning.key);
        let found = keys.any(|key| key == "turn.tls.acme.challenges");
        assert_eq!(found, is_warned, "{port}");
    }
}
