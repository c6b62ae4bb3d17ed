//! The format of the file, with unchecked strings and numbers. The doc of a field is its
//! description in the JSON Schema and in `docs/configuration.md`; its default is from `Default`.

use daemon::logs::Level;
use daemon::metrics::MetricsSection;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tls::TlsSection;

/// The configuration of `svc turn`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc turn")]
pub(super) struct TurnFile {
    /// The relay.
    pub(super) turn: TurnSection,
    /// The relay's metrics.
    pub(super) metrics: MetricsSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TurnSection {
    /// Addresses and ports that accept clients over UDP and TCP. List each address of a machine
    /// with several, so that responses leave from the address that received the request.
    #[schemars(example = ["203.0.113.7:3478", "[2001:db8::7]:3478"])]
    pub(super) listen_addr: Vec<String>,
    /// Addresses and ports that accept clients over TLS on TCP; they need `turn.tls.cert_file` and
    /// `turn.tls.key_file`, or `turn.tls.acme`. DTLS is not supported.
    #[schemars(example = ["203.0.113.7:5349"])]
    pub(super) tls_listen_addr: Vec<String>,
    /// The certificate for TLS, from files or from an authority.
    pub(super) tls: TlsSection,
    /// The realm of credentials: the cluster's domain, unless the platform has another one
    /// (`turn.realm` there). Required.
    #[schemars(example = "engine.example.com")]
    pub(super) realm: Option<String>,
    /// The ports of relayed addresses, as `low-high`. Peers send to them, so a firewall must open
    /// them for UDP.
    pub(super) relay_ports: String,
    /// The addresses to which sockets of relayed addresses are bound, one per family; by default
    /// those of `listen_addr`.
    #[schemars(example = ["10.0.0.7"])]
    pub(super) relay_addr: Vec<String>,
    /// The addresses under which peers reach relayed addresses, one per family: the public
    /// addresses of a NAT that maps one to one. Required if `relay_addr` is unspecified
    /// (`0.0.0.0`).
    #[schemars(example = ["203.0.113.7"])]
    pub(super) external_ip: Vec<String>,
    /// The file of the secret that the platform shares with its relays (`turn.secret_file` there),
    /// of at least 32 bytes. Without this key the platform sends the secret over the link.
    #[schemars(example = "/etc/svc/turn-secret")]
    pub(super) secret_file: Option<String>,
    /// Networks that may be peers although they are not part of the public internet. Loopback,
    /// private, link-local and all other networks of IANA's special-purpose registries are refused
    /// unless they are listed here.
    #[schemars(example = ["10.1.0.0/16"])]
    pub(super) allowed_peers: Vec<String>,
    /// Maximum numbers of objects. Requests and connections beyond these limits are refused.
    pub(super) limits: LimitsSection,
    /// The platform that the relay follows. Without this section the relay only accepts credentials
    /// that it can check with `secret_file`: those that the platform issued.
    pub(super) control_plane: Option<ControlPlaneSection>,
    /// Level of the log on standard error: `error`, `warn`, `info` or `debug`.
    pub(super) log_level: Level,
    /// Time in seconds for which allocations may continue when the relay stops.
    pub(super) drain_seconds: u32,
}

impl Default for TurnSection {
    fn default() -> Self {
        Self {
            listen_addr: vec!["0.0.0.0:3478".to_owned()],
            tls_listen_addr: Vec::new(),
            tls: TlsSection::default(),
            realm: None,
            // The dynamic ports (RFC 6335 section 6), as RFC 8656 section 7.2 recommends.
            relay_ports: "49152-65535".to_owned(),
            relay_addr: Vec::new(),
            external_ip: Vec::new(),
            secret_file: None,
            allowed_peers: Vec::new(),
            limits: LimitsSection::default(),
            control_plane: None,
            log_level: Level::default(),
            drain_seconds: 30,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsSection {
    /// Maximum of concurrent allocations.
    pub(super) allocations: u32,
    /// Maximum of allocations of one project.
    pub(super) allocations_per_project: u32,
    /// Maximum of allocations of one user, token or application in one project.
    pub(super) allocations_per_user: u32,
    /// Maximum of allocations from one IPv4 address, or one IPv6 network of 64 bits.
    pub(super) allocations_per_source: u32,
    /// Maximum of permissions of one allocation: peers with which it may exchange data.
    pub(super) permissions_per_allocation: u32,
    /// Maximum of channels of one allocation.
    pub(super) channels_per_allocation: u32,
    /// Seconds since its creation in which an allocation may be refreshed although the time in its
    /// username has passed, so that a call does not end with its credential. 0: no allocation
    /// outlives its username.
    pub(super) seconds_per_allocation: u32,
    /// Maximum of connections with peers of one TCP allocation (RFC 6062).
    pub(super) peer_connections_per_allocation: u32,
    /// Bytes per second that one allocation may relay, in both directions together. Packets beyond
    /// the limit are dropped, and connections with peers are slowed down. Bursts of one second's
    /// bytes are allowed. Without this key there is no limit.
    #[schemars(example = 1_000_000)]
    pub(super) bytes_per_second_per_allocation: Option<u32>,
    /// The same limit for all allocations of one user, token or application in one project.
    #[schemars(example = 5_000_000)]
    pub(super) bytes_per_second_per_user: Option<u32>,
    /// The same limit for all allocations of one project.
    #[schemars(example = 50_000_000)]
    pub(super) bytes_per_second_per_project: Option<u32>,
    /// Maximum of concurrent connections (TCP and TLS).
    pub(super) connections: u32,
    /// Maximum of connections from one IPv4 address, or one IPv6 network of 64 bits.
    pub(super) connections_per_source: u32,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            allocations: 10_000,
            allocations_per_project: 5_000,
            allocations_per_user: 1_000,
            // A NAT may have many people behind it.
            allocations_per_source: 2_000,
            permissions_per_allocation: 128,
            channels_per_allocation: 128,
            // Half a day: longer than nearly all calls.
            seconds_per_allocation: 12 * 3600,
            peer_connections_per_allocation: 32,
            bytes_per_second_per_allocation: None,
            bytes_per_second_per_user: None,
            bytes_per_second_per_project: None,
            connections: 10_000,
            connections_per_source: 1_000,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ControlPlaneSection {
    /// The URL of the platform: https, or http on loopback. Required in this section.
    #[schemars(example = "https://platform.example.com")]
    pub(super) url: Option<String>,
    /// The file with the secret of the cluster's relays (`engines[].relay_secret_file` of the
    /// platform). It is read each time the relay connects. Required in this section.
    #[schemars(example = "/etc/svc/relay-token")]
    pub(super) token_file: Option<String>,
    /// A PEM file with the authorities for the platform's certificate, instead of those of the
    /// system.
    #[schemars(example = "/etc/svc/platform-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// The directory for data of the platform, including its keys, and for unsent reports. Only the
    /// relay may read it. By default it is the first of `$STATE_DIRECTORY` (set by systemd), else
    /// `svc/turn/<realm>` in `$XDG_STATE_HOME` or `~/.local/state`.
    #[schemars(example = "/var/lib/svc/turn")]
    pub(super) data_dir: Option<String>,
}
