//! The shape of the file: strings and numbers as they are written. The doc of a field is its
//! description in the JSON Schema and in `docs/configuration.md`; its default comes from `Default`.

use daemon::config::SecretString;
use daemon::logs::Level;
use daemon::metrics::MetricsSection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::recordings::RecordingsSection;

/// The configuration of `svc engine`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc engine")]
pub(super) struct EngineFile {
    /// The engine itself.
    pub(super) engine: EngineSection,
    /// The plain listener. It only redirects to https; nothing is served over it.
    pub(super) http: HttpSection,
    /// The TLS listener: agents, the Engine API and published names share it.
    pub(super) tls: TlsSection,
    /// The QUIC listener.
    pub(super) quic: QuicSection,
    /// Where the certificate comes from.
    pub(super) certs: CertsSection,
    /// Whose tokens are accepted.
    pub(super) auth: AuthSection,
    /// What the engine tells about itself.
    pub(super) metrics: MetricsSection,
    /// How long things may take.
    pub(super) timeouts: TimeoutsSection,
    /// Published `tcp` tunnels.
    pub(super) tcp: TcpSection,
    /// What stands in front of the engine.
    pub(super) edge: EdgeSection,
    /// The access log: one record for each request.
    pub(super) access_log: AccessLogSection,
    /// What one engine holds at most. Beyond these limits connections are refused.
    pub(super) limits: LimitsSection,
    /// The location of addresses.
    pub(super) geoip: GeoipSection,
    /// Spellings of other platforms.
    pub(super) compat: CompatSection,
    /// Managed terminals.
    pub(super) webtty: WebttySection,
    /// The platform that a managed engine follows. With this section the engine serves the
    /// projects of the platform, `engine.host` is the cluster's domain, and `auth.jwt` names no
    /// keys; without it the engine is a community engine.
    pub(super) control_plane: Option<ControlPlaneSection>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// The base host, without scheme and port. Agents connect to it and the Engine API answers on
    /// it; published names live under `*.t.<host>`. Required.
    #[schemars(example = "tunnel.example.com")]
    pub(super) host: Option<String>,
    /// How much is logged to standard error: `error`, `warn`, `info` or `debug`. The variable
    /// `SVC_LOG` stands above it and can tell the engine's parts apart.
    pub(super) log_level: Level,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpSection {
    /// Whether there is a plain listener.
    pub(super) enabled: bool,
    /// Address and port of the plain listener.
    #[schemars(example = "0.0.0.0:80")]
    pub(super) listen_addr: String,
}

impl Default for HttpSection {
    fn default() -> Self {
        Self {
            enabled: false,
            listen_addr: "[::]:80".to_owned(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    /// Whether there is a TLS listener. An engine cannot do without: `false` is refused.
    pub(super) enabled: bool,
    /// Address and port of the TLS listener.
    #[schemars(example = "0.0.0.0:443")]
    pub(super) listen_addr: String,
}

impl Default for TlsSection {
    fn default() -> Self {
        Self {
            enabled: true,
            listen_addr: "[::]:443".to_owned(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QuicSection {
    /// Whether there is a QUIC listener. It is not built yet: `true` is refused.
    pub(super) enabled: bool,
    /// Address and port of the QUIC listener.
    #[schemars(example = "0.0.0.0:443")]
    pub(super) listen_addr: String,
}

impl Default for QuicSection {
    fn default() -> Self {
        Self {
            enabled: false,
            listen_addr: "[::]:443".to_owned(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CertsSection {
    /// A certificate from two files. They are looked at again when a handshake comes, at most once
    /// a second, so replacing them needs no restart, and the handshakes that follow have the new
    /// certificate. A pair that is broken, does not belong together, has expired, is not valid yet
    /// or lacks a name of `<host>`, `*.t.<host>` that the one in service has leaves that one in
    /// service, with a warning in the log and in `svc_certificate_reloads_total`.
    #[serde(rename = "static")]
    pub(super) files: StaticCertSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StaticCertSection {
    /// Whether the files are used. There is no other source of certificates: `false` is refused.
    pub(super) enabled: bool,
    /// The certificate chain, PEM, the engine's own certificate first. It should hold both `<host>`
    /// and `*.t.<host>`. Required.
    #[schemars(example = "/etc/svc/tls/fullchain.pem")]
    pub(super) cert_file: Option<String>,
    /// The private key, PEM. Required.
    #[schemars(example = "/etc/svc/tls/privkey.pem")]
    pub(super) key_file: Option<String>,
}

impl Default for StaticCertSection {
    fn default() -> Self {
        Self {
            enabled: true,
            cert_file: None,
            key_file: None,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthSection {
    /// Tokens are JWTs. At least one kind of key is required; several may be given, and a token is
    /// accepted when one of them verifies it.
    pub(super) jwt: JwtSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtSection {
    /// Whether tokens are accepted. There is no other way in: `false` is refused.
    pub(super) enabled: bool,
    /// The secret of HS256 tokens, at least 32 bytes.
    #[schemars(example = "a-random-text-of-32-bytes-or-more")]
    pub(super) token_jwt_secret: Option<SecretString>,
    /// Secrets of HS256 tokens: two are valid during a rotation. Together with `token_jwt_secret`
    /// there may be two different ones.
    #[schemars(example = ["the-new-random-text-of-32-bytes-or-more", "the-old-random-text-of-32-bytes-or-more"])]
    pub(super) token_jwt_secrets: Vec<SecretString>,
    /// Files of public keys, PEM (`PUBLIC KEY`): Ed25519, P-256, P-384, P-521 or RSA.
    #[schemars(example = ["/etc/svc/keys/issuer.pem"])]
    pub(super) public_keys: Vec<String>,
    /// Where a JWK set with public keys is fetched. https, or http on loopback.
    #[schemars(example = "https://id.example.com/.well-known/jwks.json")]
    pub(super) jwks_url: Option<String>,
}

impl Default for JwtSection {
    fn default() -> Self {
        Self {
            enabled: true,
            token_jwt_secret: None,
            token_jwt_secrets: Vec::new(),
            public_keys: Vec::new(),
            jwks_url: None,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the keys tell their unit")]
pub(super) struct TimeoutsSection {
    /// Seconds from the end of a request's head to the first byte of the answer's head; then the
    /// visitor gets 504. A body that is still on its way counts from its last byte, as long as it
    /// averages `limits.min_body_rate`. 1 to 3600.
    pub(super) stream_request_seconds: u32,
    /// Seconds that an HTTP connection may be idle, from a visitor or to an upstream. 1 to 3600.
    pub(super) http_idle_seconds: u32,
    /// Seconds that a visitor may leave an answer waiting without taking any of it. Then HTTP/1.1
    /// ends with its connection and HTTP/2 with the stream. WebSockets, `tls` and `tcp` tunnels
    /// are exempt: whether a peer that pauses is well, only the two ends know. 1 to 3600.
    pub(super) visitor_stall_seconds: u32,
    /// Seconds that the engine lets requests finish after SIGTERM, before it cuts what is left. 0
    /// to 3600.
    pub(super) drain_seconds: u32,
}

impl Default for TimeoutsSection {
    fn default() -> Self {
        Self {
            stream_request_seconds: 30,
            http_idle_seconds: 90,
            // Twice what servers commonly have: a stream through a tunnel is cheaper than a
            // process. A player that pauses longer asks again for the rest.
            visitor_stall_seconds: 120,
            drain_seconds: 30,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TcpSection {
    /// The ports that published `tcp` tunnels get, first and last. Without it such tunnels are
    /// refused. It must not hold a port of the engine's own.
    #[schemars(example = "20000-20999")]
    pub(super) port_range: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EdgeSection {
    /// Addresses or networks of proxies in front of the engine. A connection from there may begin
    /// with a PROXY protocol header (version 1 or 2), which tells the visitor's address; without
    /// one (a health check) the proxy is the visitor. So name only proxies that put a header in
    /// front of every visitor: one that passes bytes on as they come lets visitors write their
    /// own. From elsewhere a header is not read. `X-Forwarded-For` is never believed.
    #[schemars(example = ["10.0.0.0/8", "192.0.2.7"])]
    pub(super) trusted_proxies: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessLogSection {
    /// The file that records are appended to, or `-` for standard output. It is opened anew at
    /// SIGHUP. Without it no access log is written.
    #[schemars(example = "/var/log/svc/access.log")]
    pub(super) path: Option<String>,
    /// The form of a record: `json`, one object a line.
    pub(super) format: AccessLogForm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum AccessLogForm {
    /// One JSON object a line.
    #[default]
    Json,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsSection {
    /// Agents that are connected at once.
    pub(super) max_clients: u32,
    /// Tunnels that are online at once.
    pub(super) max_tunnels: u32,
    /// Tunnels of one agent.
    pub(super) max_tunnels_per_client: u32,
    /// Streams that one agent serves at once.
    pub(super) max_streams_per_client: u32,
    /// Visits (requests, connections, dials) that are under way at once, of all agents; further
    /// ones are 503.
    pub(super) max_streams: u32,
    /// Requests over HTTP/2 that are under way at once from one source, an IPv4 address or an IPv6
    /// network of 64 bits; further ones are 503. Connections of HTTP/1.1 and of `tls` and `tcp`
    /// tunnels are one visit each and have `max_connections_per_source`. The addresses of
    /// `edge.trusted_proxies` are exempt: behind one that tells no addresses, all visitors are one
    /// source. Without this key it is an eighth of `max_streams`, at least 256.
    #[schemars(example = 12_500)]
    pub(super) max_streams_per_source: Option<u32>,
    /// Bytes that all streams together hold for readers that do not take them. From a half of it
    /// on buffers are small; beyond it streams of the source end that holds the most, those first whose
    /// readers have taken nothing for the longest. Each of `max_streams` costs some 40 KiB beside it. 16777216 to 4294967295.
    pub(super) max_buffered_bytes: u32,
    /// Watchers of the Engine API (SSE and WebSocket) at once.
    pub(super) max_watchers: u32,
    /// Requests to the Engine API that one credential may send in a minute, at once or spread, with
    /// all tokens that come from it; those beyond are answered with 429. 10 to 1000000.
    pub(super) credential_requests_per_minute: u32,
    /// Requests to the Engine API of one project in a minute, with all of its credentials. 10 to
    /// 1000000.
    pub(super) project_requests_per_minute: u32,
    /// Tokens that are not valid and that one source, an IPv4 address or an IPv6 network of 64 bits,
    /// may send to the Engine API in a minute. Beyond it the engine verifies no further tokens from
    /// there and answers 429; those that it has verified before are accepted. 10 to 1000000.
    pub(super) invalid_tokens_per_minute: u32,
    /// Percent of `max_clients`, `max_tunnels`, `max_streams` and `max_watchers` that one project
    /// of a managed engine may have, whatever its plan allows. 1 to 100.
    pub(super) project_share_percent: u32,
    /// Connections that are open at once, of visitors, agents and clients of the Engine API; further
    /// ones are closed unread, and of the last sixteenth visitors' ones. Data connections of agents do
    /// not count. Without this key it is half of the file descriptors that the process may have
    /// (`ulimit -n`, `LimitNOFILE`) beyond 256: each visitor may need one more on the way to an agent.
    #[schemars(example = 20_000)]
    pub(super) max_connections: Option<u32>,
    /// Connections that are open at once from one source, an IPv4 address or an IPv6 network of 64
    /// bits; further ones are closed unread. Without this key it is an eighth of `max_connections`.
    /// Behind a proxy that tells no addresses (`edge.trusted_proxies`), all visitors are one source.
    #[schemars(example = 2_500)]
    pub(super) max_connections_per_source: Option<u32>,
    /// TLS handshakes that are under way at once from one source, an IPv4 address or an IPv6
    /// network of 64 bits; further connections are closed unread. Behind a proxy that tells no
    /// addresses (`edge.trusted_proxies`), all visitors are one source.
    pub(super) max_handshakes_per_source: u32,
    /// Bytes of a request's head; a longer one is 431. 4096 to 1048576.
    pub(super) header_bytes: u32,
    /// Bytes of a request's target; a longer one is 414. 256 to `header_bytes`.
    pub(super) url_bytes: u32,
    /// Bytes a second that a request must average while its body is on its way and its answer is
    /// waited for, beyond the first `timeouts.stream_request_seconds`; a slower one is 504. Services
    /// that speak HTTP/2 are exempt: gRPC sends a message when there is one. 0: any rate will do. 0
    /// to 1048576.
    pub(super) min_body_rate: u32,
}

impl Default for LimitsSection {
    /// The counts are what a machine of two cores and 4 GiB carries with room to spare; they are
    /// there so that a fault of one peer is refused before the machine is full.
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_tunnels: 50_000,
            // A hundred times what a busy agent publishes.
            max_tunnels_per_client: 1_000,
            // Bounds what one agent's visitors can take from all others.
            max_streams_per_client: 10_000,
            // At some 20 KiB each where they only wait, 2 GiB.
            max_streams: 100_000,
            max_streams_per_source: None,
            // A thousand downloads over slow links with buffers of the largest size.
            max_buffered_bytes: 256 * 1024 * 1024,
            // Each holds a queue of events and gets every change.
            max_watchers: 1_000,
            // Twenty in a second for a minute, as at the platform: more than a page or a script
            // sends.
            credential_requests_per_minute: 1_200,
            // Ten of them.
            project_requests_per_minute: 12_000,
            // An office behind one address with a program that retries. A signature costs some
            // hundred microseconds to verify at most.
            invalid_tokens_per_minute: 600,
            // Far more than a plan should allow, and three that do their worst leave room.
            project_share_percent: 25,
            // They follow from the descriptors.
            max_connections: None,
            max_connections_per_source: None,
            // At 100 ms each, five thousand in a second: more than the machine signs.
            max_handshakes_per_source: 512,
            // What mature servers take in all: larger cookies are a mistake.
            header_bytes: 32 * 1024,
            // RFC 9112 section 3 recommends 8000 at least.
            url_bytes: 8 * 1024,
            // Apache's default (mod_reqtimeout): the slowest links that people use are faster, and
            // what holds a service's worker has to pay for it.
            min_body_rate: 500,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GeoipSection {
    /// A file of the `MaxMind` database form with the countries of addresses, which is read again
    /// when it changes. Managed engines use it for `geo_ip`; without it nobody's country is known.
    #[schemars(example = "/var/lib/svc/country.mmdb")]
    pub(super) file: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CompatSection {
    /// Whether the spellings of the rstream SDKs are accepted and sent beside ours: the query
    /// parameter `rstream.token` and the field `rstream_auth`. Their agent protocol is always
    /// spoken.
    pub(super) rstream: bool,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebttySection {
    /// Recordings of sessions.
    pub(super) recordings: RecordingsSection,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ControlPlaneSection {
    /// The address of the platform: https, or http on loopback. Required in this section.
    #[schemars(example = "https://platform.example.com")]
    pub(super) url: Option<String>,
    /// The file that holds the cluster's enrolment secret. It is read whenever the engine connects.
    /// Required in this section.
    #[schemars(example = "/etc/svc/enrolment-token")]
    pub(super) token_file: Option<String>,
    /// A PEM file of authorities that the platform's certificate is checked against, instead of
    /// the system's.
    #[schemars(example = "/etc/svc/platform-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// The directory in which the engine keeps what the platform told and what it has to report,
    /// so that neither is lost in a restart. It holds no credential. Without this key it is the
    /// first of `$STATE_DIRECTORY` (as systemd sets it), else `svc/engine/<host>` in
    /// `$XDG_STATE_HOME` or `~/.local/state`.
    #[schemars(example = "/var/lib/svc/engine")]
    pub(super) data_dir: Option<String>,
}
