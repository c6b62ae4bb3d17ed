//! The accepted configurations of an engine, rule by rule.

use std::fs;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::*;

mod domains;
mod inspect;
mod managed;
mod orders;
mod tls_routes;

/// The minimal configuration of an engine.
const LEAST: &str = "
engine: {host: tunnel.example.com}
certs: {static: {cert_file: cert.pem, key_file: key.pem}}
auth: {jwt: {token_jwt_secret: 0123456789abcdef-0123456789abcdef}}
";

/// [`LEAST`] with these variables set, or the first error.
fn with(variables: &[(&str, &str)]) -> Result<EngineConfig, ConfigError> {
    load_least(variables).map_err(first)
}

/// [`LEAST`] with these variables set, or all errors.
fn load_least(variables: &[(&str, &str)]) -> Result<EngineConfig, ConfigErrors> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("engine.yaml");
    fs::write(&path, LEAST).unwrap();
    let env = variables
        .iter()
        .map(|(key, value)| (variable(key), (*value).to_owned()))
        .collect::<Vec<_>>();
    EngineConfig::load(Some(&path), env)
}

/// The first of several errors.
fn first(errors: ConfigErrors) -> ConfigError {
    errors.into_iter().next().unwrap()
}

/// The variable that sets a key.
fn variable(key: &str) -> String {
    format!("SVC_{}", key.replace('.', "__").to_uppercase())
}

/// The rejected key and the reason.
fn refused(variables: &[(&str, &str)]) -> (String, String) {
    let error = with(variables).unwrap_err();
    (error.key, error.message)
}

/// Asserts that `key` is rejected with this value, and that the message contains `why`.
#[track_caller]
fn refuses(key: &str, value: &str, why: &str) {
    let (refused, message) = refused(&[(key, value)]);
    assert!(
        refused.starts_with(key),
        "{key}={value}: {refused}: {message}"
    );
    assert!(message.contains(why), "{key}={value}: {message}");
}

/// The keys of a community engine.
fn keys(config: &EngineConfig) -> &JwtAuth {
    match &config.auth {
        Auth::Keys(keys) => keys,
        Auth::Platform(platform) => panic!("a managed engine: {platform:?}"),
    }
}

#[test]
fn the_minimal_configuration_has_these_defaults() {
    let config = with(&[]).unwrap();
    assert_eq!(config.host, "tunnel.example.com");
    assert_eq!(config.log_level, Level::Info);
    assert_eq!(config.http, None);
    assert_eq!(config.tls, "[::]:443".parse().unwrap());
    assert_eq!(
        config.certificate.as_ref().unwrap().key,
        Path::new("key.pem")
    );
    assert_eq!(keys(&config).secrets.len(), 1);
    assert!(!config.metrics.enabled);
    assert_eq!(config.metrics.path.as_str(), "/metrics");
    assert_eq!(config.timeouts.stream_request, Duration::from_secs(30));
    assert_eq!(
        config.timeouts.max_time_to_first_byte,
        Duration::from_mins(10)
    );
    assert_eq!(config.timeouts.http_idle, Duration::from_secs(90));
    assert_eq!(config.timeouts.visitor_stall, Duration::from_mins(2));
    assert_eq!(config.timeouts.drain, Duration::from_secs(30));
    assert_eq!(config.tcp_ports, None);
    assert!(config.trusted_proxies.is_empty());
    assert_eq!(config.access_log, None);
    assert_eq!(config.limits.header_bytes, 32 * 1024);
    assert_eq!(config.limits.url_bytes, 8 * 1024);
    assert_eq!(config.limits.min_body_rate, NonZeroU32::new(500));
    assert_eq!(
        config.limits.project_share.of(config.limits.max_streams),
        25_000
    );
    assert!(!config.compat_rstream);
}

#[test]
fn every_value_is_used() {
    let config = with(&[
        ("engine.host", "Edge.Example.COM"),
        ("engine.log_level", "debug"),
        ("http.enabled", "true"),
        ("http.listen_addr", "127.0.0.1:8080"),
        ("tls.listen_addr", "127.0.0.1:8443"),
        ("auth.jwt.public_keys", "[a.pem, b.pem]"),
        ("auth.jwt.jwks_url", "https://id.example.com/keys"),
        ("metrics.prometheus.enabled", "true"),
        ("metrics.prometheus.listen_addr", "0.0.0.0:9090"),
        ("metrics.prometheus.path", "scrape"),
        ("metrics.prometheus.bearer_token", "token"),
        ("timeouts.stream_request_seconds", "5"),
        ("timeouts.max_time_to_first_byte_seconds", "9"),
        ("timeouts.http_idle_seconds", "6"),
        ("timeouts.visitor_stall_seconds", "7"),
        ("timeouts.drain_seconds", "0"),
        ("timeouts.startup_grace_seconds", "8"),
        ("tcp.port_range", "20000-20999"),
        (
            "edge.trusted_proxies",
            "[10.0.0.0/8, 192.0.2.7, \"2001:db8::/32\"]",
        ),
        ("access_log.path", "-"),
        ("limits.max_tunnels", "7"),
        ("limits.min_body_rate", "0"),
        ("geoip.file", "x.mmdb"),
        ("compat.rstream", "true"),
    ])
    .unwrap();
    assert_eq!(config.host, "edge.example.com");
    assert_eq!(config.log_level, Level::Debug);
    assert_eq!(config.http, Some("127.0.0.1:8080".parse().unwrap()));
    assert_eq!(config.tls, "127.0.0.1:8443".parse().unwrap());
    assert_eq!(
        keys(&config).public_keys,
        [Path::new("a.pem"), Path::new("b.pem")]
    );
    let jwks = keys(&config).jwks_url.clone().unwrap();
    assert_eq!(jwks.host(), Some("id.example.com"));
    assert_eq!(
        config.metrics.listener(),
        Some("0.0.0.0:9090".parse().unwrap())
    );
    assert_eq!(config.metrics.path.as_str(), "/scrape");
    assert_eq!(config.timeouts.stream_request, Duration::from_secs(5));
    assert_eq!(
        config.timeouts.max_time_to_first_byte,
        Duration::from_secs(9)
    );
    assert_eq!(config.timeouts.http_idle, Duration::from_secs(6));
    assert_eq!(config.timeouts.visitor_stall, Duration::from_secs(7));
    assert_eq!(config.timeouts.drain, Duration::ZERO);
    assert_eq!(config.timeouts.startup_grace, Duration::from_secs(8));
    assert_eq!(config.tcp_ports, Some(20_000..=20_999));
    let proxies = ["10.0.0.0/8", "192.0.2.7/32", "2001:db8::/32"].map(|net| net.parse().unwrap());
    assert_eq!(config.trusted_proxies, proxies);
    assert_eq!(config.access_log.unwrap().path, Path::new("-"));
    assert_eq!(config.limits.max_tunnels, 7);
    assert_eq!(config.limits.min_body_rate, None);
    assert_eq!(config.geoip_file.as_deref(), Some(Path::new("x.mmdb")));
    assert!(config.compat_rstream);
}

#[test]
fn required_keys_are_named() {
    let missing = |env: &[(&str, &str)]| {
        let env = env
            .iter()
            .map(|(key, value)| (variable(key), (*value).to_owned()));
        first(EngineConfig::load(None, env).unwrap_err()).to_string()
    };
    let host = ("engine.host", "a.example");
    let cert = ("certs.static.cert_file", "c");
    assert_eq!(missing(&[]), "engine.host: this key is required");
    assert_eq!(
        missing(&[host]),
        "certs.static.cert_file: this key is required"
    );
    assert_eq!(
        missing(&[host, cert]),
        "certs.static.key_file: this key is required"
    );
    let error = missing(&[host, cert, ("certs.static.key_file", "k")]);
    assert!(
        error.starts_with("auth.jwt: no key to verify tokens is configured"),
        "{error}"
    );
}

/// A section that replaces required keys is not missing because it is wrong.
#[test]
fn consequences_of_a_wrong_section_are_not_reported() {
    let keys = |file: &str| -> Vec<String> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("engine.yaml");
        fs::write(&path, format!("engine: {{host: a.example}}\n{file}")).unwrap();
        let errors = EngineConfig::load(Some(&path), []).unwrap_err();
        errors.into_iter().map(|error| error.key).collect()
    };
    let mut reported = keys("certs: {acme: 7}\ncontrol_plane: 7");
    reported.sort();
    assert_eq!(reported, ["certs.acme", "control_plane"]);
    let reported = keys("certs: {acme: 7, static: {enabled: false}}");
    let is_reported = reported.iter().any(|key| key == "certs.static.enabled");
    assert!(!is_reported, "{reported:?}");
    let reported =
        keys("certs: {acme: {terms_agreed: true, challenges: [dns01], dns_program: /bin/true}}");
    let is_reported = reported.iter().any(|key| key == "certs.acme.dns_program");
    assert!(!is_reported, "{reported:?}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    let (key, message) = refused(&[("engine.hots", "x")]);
    assert_eq!(key, "engine.hots");
    assert!(message.ends_with("engine.host"), "{message}");
    let (key, message) = refused(&[("metrics.bearer_token", "x")]);
    assert_eq!(key, "metrics.bearer_token");
    assert!(
        message.ends_with("metrics.prometheus.bearer_token"),
        "{message}"
    );
    refuses("cluster.nodes", "x", "unknown key");
}

/// EN-11.
#[test]
fn en_11_unavailable_features_are_refused_by_name() {
    refuses("quic.enabled", "true", "not supported");
    refuses("tls.enabled", "false", "must be true");
    refuses("certs.static.enabled", "false", "must be true");
}

#[test]
fn an_engine_without_authentication_is_refused() {
    refuses(
        "auth.jwt.enabled",
        "false",
        "no authentication method is enabled",
    );
}

#[test]
fn a_host_is_a_dns_name_with_room_below_it() {
    for (host, why) in [
        ("https://tunnel.example.com", "only a host name"),
        ("tunnel.example.com/", "only a host name"),
        ("tunnel.example.com:443", "has a port"),
        ("10.0.0.1", "IP address"),
        ("::1", "IP address"),
        ("[::1]", "IP address"),
        ("", "not a DNS name"),
        ("a..b", "not a DNS name"),
        (".example.com", "not a DNS name"),
        ("example.com.", "not a DNS name"),
        ("-a.example", "not a DNS name"),
        ("a_b.example", "not a DNS name"),
        ("*.example.com", "not a DNS name"),
        ("exämple.com", "not a DNS name"),
        ("1.2.3", "not a DNS name"),
    ] {
        refuses("engine.host", host, why);
    }
    let longest = |length: usize| ["a"; 94].join(".")[..length].to_owned();
    assert_eq!(
        with(&[("engine.host", &longest(187))]).unwrap().host.len(),
        187
    );
    refuses("engine.host", &format!("{}.ab", longest(185)), "too long");
    refuses(
        "engine.host",
        &format!("{}.example", "a".repeat(64)),
        "not a DNS name",
    );
}

#[test]
fn addresses_need_an_ip_and_a_port() {
    for key in ["tls.listen_addr", "metrics.prometheus.listen_addr"] {
        for value in ["443", ":443", "localhost:443", "10.0.0.1", "[::]:70000", ""] {
            refuses(key, value, "is not an address and a port");
        }
    }
    let (key, _) = refused(&[("http.enabled", "true"), ("http.listen_addr", "80")]);
    assert_eq!(key, "http.listen_addr");
}

#[test]
fn an_hs256_secret_must_not_be_shorter_than_its_hash() {
    refuses(
        "auth.jwt.token_jwt_secret",
        &"s".repeat(31),
        "at least 32 bytes",
    );
    with(&[("auth.jwt.token_jwt_secret", &"s".repeat(32))]).unwrap();
    let list = format!("[{}, short]", "s".repeat(32));
    let (key, message) = refused(&[("auth.jwt.token_jwt_secrets", &list)]);
    assert_eq!(key, "auth.jwt.token_jwt_secrets.1");
    assert!(!message.contains("short"), "no secret in the message");
}

#[test]
fn two_secrets_are_valid_during_a_rotation() {
    let [one, two, three] = ["1", "2", "3"].map(|digit| format!("s{}", digit.repeat(40)));
    let secrets = |list: &[&String]| {
        let list = format!("{list:?}");
        with(&[
            ("auth.jwt.token_jwt_secret", &one),
            ("auth.jwt.token_jwt_secrets", &list),
        ])
    };
    let exposed = |config: EngineConfig| {
        keys(&config)
            .secrets
            .iter()
            .map(|secret| secret.expose().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(exposed(secrets(&[]).unwrap()), std::slice::from_ref(&one));
    assert_eq!(
        exposed(secrets(&[&two]).unwrap()),
        [one.clone(), two.clone()]
    );
    assert_eq!(
        exposed(secrets(&[&two, &one]).unwrap()),
        [one.clone(), two.clone()]
    );
    let error = secrets(&[&two, &three]).unwrap_err();
    assert_eq!(error.key, "auth.jwt.token_jwt_secrets.1");
}

#[test]
fn keys_are_not_fetched_over_plain_http() {
    let key = "auth.jwt.jwks_url";
    refuses(key, "http://id.example.com/keys", "only on loopback");
    refuses(key, "ftp://id.example.com/keys", "not an https address");
    refuses(key, "id.example.com", "not an https address");
    refuses(key, "https://me@id.example.com/", "user name");
    refuses(key, "/keys", "not an https address");
    for loopback in [
        "http://127.0.0.1:8080/keys",
        "http://[::1]/",
        "http://localhost/",
    ] {
        with(&[(key, loopback)]).unwrap();
    }
}

/// MX-3.
#[test]
fn mx_3_metrics_off_loopback_need_a_bearer_token() {
    let open = [
        ("metrics.prometheus.enabled", "true"),
        ("metrics.prometheus.listen_addr", "0.0.0.0:9090"),
    ];
    let (key, message) = refused(&open);
    assert_eq!(key, "metrics.prometheus.listen_addr");
    assert!(
        message.contains("metrics.prometheus.bearer_token"),
        "{message}"
    );
    let [enabled, listen] = open;
    with(&[
        enabled,
        listen,
        ("metrics.prometheus.bearer_token", "token"),
    ])
    .unwrap();
    with(&[listen]).unwrap();
    let (key, _) = refused(&[enabled, listen, ("metrics.prometheus.bearer_token", "a b")]);
    assert_eq!(key, "metrics.prometheus.bearer_token");
    refuses("metrics.prometheus.path", "/readyz", "cannot be the path");
}

#[test]
fn a_wrong_time_limit_is_one_error() {
    let key = "timeouts.stream_request_seconds";
    let longest = ("timeouts.max_time_to_first_byte_seconds", "900");
    for variables in [vec![(key, "3601")], vec![(key, "3601"), longest]] {
        let errors = load_least(&variables).unwrap_err();
        let keys: Vec<_> = errors.into_iter().map(|error| error.key).collect();
        assert_eq!(keys, [key]);
    }
}

#[test]
fn timeouts_and_limits_have_bounds() {
    refuses(
        "timeouts.stream_request_seconds",
        "0",
        "not between 1 and 3600",
    );
    refuses(
        "timeouts.max_time_to_first_byte_seconds",
        "29",
        "not between 30 and 3600",
    );
    refuses(
        "timeouts.http_idle_seconds",
        "3601",
        "not between 1 and 3600",
    );
    refuses("timeouts.visitor_stall_seconds", "0", "not between 1 and");
    refuses(
        "limits.project_share_percent",
        "101",
        "not between 1 and 100",
    );
    refuses("limits.min_body_rate", "1048577", "not between 0 and");
    refuses("timeouts.drain_seconds", "3601", "not between 0 and 3600");
    refuses("timeouts.startup_grace_seconds", "3601", "not between 0");
    for count in [
        "clients",
        "tunnels",
        "tunnels_per_client",
        "streams_per_client",
        "streams",
        "watchers",
        "handshakes_per_source",
    ] {
        refuses(&format!("limits.max_{count}"), "0", "not between 1 and");
    }
    refuses(
        "limits.header_bytes",
        "4095",
        "not between 4096 and 1048576",
    );
    refuses("limits.url_bytes", "255", "not between 256 and 32768");
    let (key, _) = refused(&[("limits.header_bytes", "4096")]);
    assert_eq!(key, "limits.url_bytes", "a target fits into its head");
    with(&[
        ("limits.header_bytes", "4096"),
        ("limits.url_bytes", "4096"),
    ])
    .unwrap();
}

#[test]
fn a_port_range_has_an_order() {
    let key = "tcp.port_range";
    refuses(key, "20999-20000", "ends before it starts");
    refuses(key, "0-10", "port 0");
    for value in ["20000", "a-b", "1-70000", "", "-"] {
        refuses(key, value, "is not a range of ports");
    }
    assert_eq!(
        with(&[(key, "20000-20000")]).unwrap().tcp_ports,
        Some(20_000..=20_000)
    );
}

#[test]
fn trusted_proxies_are_networks() {
    let refused_at = |list: &str, at: &str, why: &str| {
        let (key, message) = refused(&[("edge.trusted_proxies", list)]);
        assert_eq!(key, at);
        assert!(message.contains(why), "{message}");
    };
    refused_at(
        "[proxy.example]",
        "edge.trusted_proxies.0",
        "not an address",
    );
    refused_at(
        "[10.0.0.0/8, 10.0.0.1/8]",
        "edge.trusted_proxies.1",
        "did you mean 10.0.0.0/8?",
    );
    refused_at("[10.0.0.0/33]", "edge.trusted_proxies.0", "not an address");
}

#[test]
fn listeners_do_not_share_a_port() {
    let plain = ("http.enabled", "true");
    let (key, message) = refused(&[
        plain,
        ("http.listen_addr", "127.0.0.1:443"),
        ("tls.listen_addr", "[::]:443"),
    ]);
    assert_eq!(key, "http.listen_addr");
    assert!(message.contains("tls.listen_addr"), "{message}");
    with(&[
        plain,
        ("http.listen_addr", "127.0.0.1:443"),
        ("tls.listen_addr", "127.0.0.2:443"),
    ])
    .unwrap();
    with(&[
        plain,
        ("http.listen_addr", "127.0.0.1:0"),
        ("tls.listen_addr", "127.0.0.1:0"),
    ])
    .unwrap();
    let (key, message) = refused(&[
        ("tls.listen_addr", "[::]:8443"),
        ("tcp.port_range", "8000-9000"),
    ]);
    assert_eq!(key, "tcp.port_range");
    assert!(message.contains("8443"), "{message}");
}

#[test]
fn empty_paths_are_refused() {
    for key in [
        "certs.static.cert_file",
        "certs.static.key_file",
        "access_log.path",
        "geoip.file",
    ] {
        refuses(key, "", "must not be empty");
    }
    refuses("auth.jwt.public_keys", "[\"\"]", "must not be empty");
}

#[test]
fn no_secret_is_printed() {
    let secret = "hunter2-hunter2-hunter2-hunter2-hunter2";
    let config = with(&[
        ("auth.jwt.token_jwt_secret", secret),
        ("metrics.prometheus.bearer_token", secret),
    ])
    .unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn the_example_of_the_documentation_is_accepted() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = fs::read_to_string(docs).unwrap();
    let (engine, _) = text
        .split_once("\n# Configuration of a platform\n")
        .unwrap();
    let examples = engine
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    let mut count = 0;
    for example in examples {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("engine.yaml");
        fs::write(&path, example).unwrap();
        EngineConfig::load(Some(&path), []).unwrap();
        count += 1;
    }
    assert_eq!(count, 3);
}
