//! The format of the file, with strings and numbers as they are written. The doc comment of a field
//! is its description in the JSON Schema and in `docs/configuration.md`; its default comes from
//! `Default`.

use acme::AcmeSection;
use daemon::config::SecretString;
use daemon::logs::Level;
use daemon::metrics::MetricsSection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::ClusterSection;
use super::domains::DomainSection;
use super::pages::PagesSection;
use super::recordings::RecordingsSection;
use super::tls_routes::TlsRouteSection;

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
    /// Source of the certificate.
    pub(super) certs: CertsSection,
    /// Custom domains of a community engine: names outside `engine.host` under which agents may
    /// publish tunnels. At most 10000.
    pub(super) domains: Vec<DomainSection>,
    /// Issuer of the accepted tokens.
    pub(super) auth: AuthSection,
    /// Metrics of the engine.
    pub(super) metrics: MetricsSection,
    /// Time limits.
    pub(super) timeouts: TimeoutsSection,
    /// Published `tcp` tunnels.
    pub(super) tcp: TcpSection,
    /// Proxies in front of the engine.
    pub(super) edge: EdgeSection,
    /// The access log: one record for each request.
    pub(super) access_log: AccessLogSection,
    /// Limits of one engine. Connections beyond them are refused.
    pub(super) limits: LimitsSection,
    /// The countries of addresses.
    pub(super) geoip: GeoipSection,
    /// Spellings of other platforms.
    pub(super) compat: CompatSection,
    /// Managed terminals.
    pub(super) webtty: WebttySection,
    /// The operator on pages that visitors see in place of a service, such as refusals.
    pub(super) pages: PagesSection,
    /// The platform of a managed engine. With this section the engine serves the projects of the
    /// platform, `engine.host` is the cluster's domain, and `auth.jwt` must not contain keys.
    /// Without it the engine is a community engine.
    pub(super) control_plane: Option<ControlPlaneSection>,
    /// The cluster of the engine. With this section the names of tunnels belong to one owner at all
    /// engines of the cluster, which share a store: etcd. Without it the engine is alone.
    pub(super) cluster: Option<ClusterSection>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// The base host, without scheme and port. Agents connect to it, and it serves the Engine API.
    /// Published names are `*.t.<host>`. Required.
    #[schemars(example = "tunnel.example.com")]
    pub(super) host: Option<String>,
    /// Log level of standard error: `error`, `warn`, `info` or `debug`. The variable `SVC_LOG`
    /// overrides it and can set a level for each part of the engine.
    pub(super) log_level: Level,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HttpSection {
    /// Enables the plain listener.
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
    /// Enables the TLS listener. An engine needs it: `false` is refused.
    pub(super) enabled: bool,
    /// Address and port of the TLS listener.
    #[schemars(example = "0.0.0.0:443")]
    pub(super) listen_addr: String,
    /// Other servers on the same port, such as the platform. The engine forwards connections with
    /// one of these server names without terminating TLS. Requests for a certificate's validation
    /// by `tls-alpn-01` reach the other server as well.
    pub(super) routes: Vec<TlsRouteSection>,
}

impl Default for TlsSection {
    fn default() -> Self {
        Self {
            enabled: true,
            listen_addr: "[::]:443".to_owned(),
            routes: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct QuicSection {
    /// Enables the QUIC listener. It is not built yet: `true` is refused.
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
    /// A certificate from two files. The engine checks the files at a handshake, at most once a
    /// second, so that replacing them needs no restart: later handshakes use the new certificate. A
    /// new pair is rejected if it is broken, does not match, has expired, is not valid yet, or
    /// lacks a name of `<host>`, `*.t.<host>` that the current certificate has. The engine then
    /// keeps the current one, logs a warning and counts it in `svc_certificate_reloads_total`.
    #[serde(rename = "static")]
    pub(super) files: StaticCertSection,
    /// A certificate that the engine orders and renews itself, from an authority that uses ACME (RFC
    /// 8555). With `certs.static` as well, a handshake gets the certificate that has its server name
    /// itself, else the one with a matching wildcard; if both match equally, the one that expires
    /// later.
    pub(super) acme: Option<AcmeSection>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StaticCertSection {
    /// Enables the certificate from files. Without `certs.acme`, `false` is refused. With it, the
    /// files are used if `cert_file` or `key_file` is set.
    pub(super) enabled: bool,
    /// The certificate chain, PEM, with the engine's own certificate first. That certificate should
    /// contain both `<host>` and `*.t.<host>`. Required without `certs.acme`.
    #[schemars(example = "/etc/svc/tls/fullchain.pem")]
    pub(super) cert_file: Option<String>,
    /// The private key, PEM. Required without `certs.acme`.
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
    /// Tokens are JWTs. At least one kind of key is required. Several may be given, and a token is
    /// accepted if one of them verifies it.
    pub(super) jwt: JwtSection,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JwtSection {
    /// Enables authentication with tokens. There is no other kind of authentication: `false` is
    /// refused.
    pub(super) enabled: bool,
    /// The secret of HS256 tokens, at least 32 bytes.
    #[schemars(example = "a-random-text-of-32-bytes-or-more")]
    pub(super) token_jwt_secret: Option<SecretString>,
    /// Secrets of HS256 tokens: two are valid during a rotation. Including `token_jwt_secret` there
    /// may be at most two different ones.
    #[schemars(example = ["the-new-random-text-of-32-bytes-or-more", "the-old-random-text-of-32-bytes-or-more"])]
    pub(super) token_jwt_secrets: Vec<SecretString>,
    /// Files of public keys, PEM (`PUBLIC KEY`): Ed25519, P-256, P-384, P-521 or RSA.
    #[schemars(example = ["/etc/svc/keys/issuer.pem"])]
    pub(super) public_keys: Vec<String>,
    /// Address of a JWK set with public keys. https, or http on loopback.
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
    /// Seconds from the end of a request's head to the first byte of the response's head; then the
    /// visitor gets 504. While the body is still being sent, the time counts from its last byte, as
    /// long as the body averages `limits.min_body_rate`. 1 to 3600.
    pub(super) stream_request_seconds: u32,
    /// Longest time in seconds that a tunnel may request instead of `stream_request_seconds`
    /// (`--time-to-first-byte`); a longer one is refused when the tunnel is opened.
    /// `stream_request_seconds` to 3600. Without this key it is 600, or `stream_request_seconds` if
    /// that is more.
    #[schemars(example = 900)]
    pub(super) max_time_to_first_byte_seconds: Option<u32>,
    /// Seconds that an HTTP connection may be idle, from a visitor or to an upstream. 1 to 3600.
    pub(super) http_idle_seconds: u32,
    /// Seconds that a visitor may read nothing of a response that is waiting to be sent. After
    /// that, HTTP/1.1 connections and HTTP/2 streams are closed. WebSockets, `tls` and `tcp`
    /// tunnels are exempt, because the engine cannot tell if a peer that pauses is healthy. 1 to
    /// 3600.
    pub(super) visitor_stall_seconds: u32,
    /// Seconds that requests and streams may take to finish after SIGTERM, or after another process
    /// has taken over (SIGUSR2), before the engine closes the remaining ones. 0 to 3600.
    pub(super) drain_seconds: u32,
    /// Seconds after its start in which the engine answers 503 with `Retry-After` instead of 404
    /// for names below its own host that have no agent yet, because agents of a previous process
    /// are still reconnecting. 0 switches it off. 0 to 3600.
    pub(super) startup_grace_seconds: u32,
}

impl Default for TimeoutsSection {
    fn default() -> Self {
        Self {
            stream_request_seconds: 30,
            max_time_to_first_byte_seconds: None,
            http_idle_seconds: 90,
            // Twice the usual value of servers: a stream through a tunnel is cheaper than a
            // process. A media player that pauses longer requests the rest again.
            visitor_stall_seconds: 120,
            drain_seconds: 30,
            // The longest pause of an agent that reconnects after a short outage.
            startup_grace_seconds: 10,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TcpSection {
    /// First and last port for published `tcp` tunnels. Without it such tunnels are refused. It
    /// must not contain a port of the engine itself.
    #[schemars(example = "20000-20999")]
    pub(super) port_range: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EdgeSection {
    /// Addresses or networks of proxies in front of the engine. A connection from one of them may
    /// start with a PROXY protocol header (version 1 or 2), which contains the visitor's address.
    /// Without a header (a health check) the proxy counts as the visitor. List only proxies that
    /// put a header in front of every connection: a proxy that passes bytes on unchanged lets
    /// visitors send their own header. A header from any other address is not read.
    /// `X-Forwarded-For` is never trusted.
    #[schemars(example = ["10.0.0.0/8", "192.0.2.7"])]
    pub(super) trusted_proxies: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessLogSection {
    /// The file that records are appended to, or `-` for standard output. It is reopened at SIGHUP.
    /// Without it no access log is written.
    #[schemars(example = "/var/log/svc/access.log")]
    pub(super) path: Option<String>,
    /// The format of a record: `json`, one object per line.
    pub(super) format: AccessLogForm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum AccessLogForm {
    /// One JSON object per line.
    #[default]
    Json,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LimitsSection {
    /// Agents that are connected at the same time.
    pub(super) max_clients: u32,
    /// Tunnels that are online at the same time.
    pub(super) max_tunnels: u32,
    /// Tunnels of one agent.
    pub(super) max_tunnels_per_client: u32,
    /// Concurrent streams of one agent.
    pub(super) max_streams_per_client: u32,
    /// Concurrent visits (requests, connections, dials) of all agents; further ones get 503.
    pub(super) max_streams: u32,
    /// Concurrent HTTP/2 requests from one source, an IPv4 address or an IPv6 network of 64 bits;
    /// further ones get 503. Each HTTP/1.1 connection and each connection to a `tls` or `tcp`
    /// tunnel is one visit and is limited by `max_connections_per_source`. The addresses of
    /// `edge.trusted_proxies` are exempt: behind a proxy that does not send addresses, all visitors
    /// are one source. Without this key it is an eighth of `max_streams`, at least 256.
    #[schemars(example = 12_500)]
    pub(super) max_streams_per_source: Option<u32>,
    /// Bytes that all streams together may buffer for slow readers. Above half of this limit,
    /// buffers are small. Above the limit, the engine closes streams of the source that buffers the
    /// most, starting with those whose readers have read nothing for the longest time. Each of
    /// `max_streams` needs about 40 KiB in addition. 16777216 to 4294967295.
    pub(super) max_buffered_bytes: u32,
    /// Concurrent watchers of the Engine API (SSE and WebSocket).
    pub(super) max_watchers: u32,
    /// Requests to the Engine API that one credential may send per minute, in a burst or spread,
    /// including all tokens that come from it; further ones get 429. 10 to 1000000.
    pub(super) credential_requests_per_minute: u32,
    /// Requests to the Engine API of one project per minute, with all of its credentials. 10 to
    /// 1000000.
    pub(super) project_requests_per_minute: u32,
    /// Invalid tokens that one source, an IPv4 address or an IPv6 network of 64 bits, may send to
    /// the Engine API per minute. Beyond that the engine verifies no further tokens from there and
    /// responds with 429; tokens that it has verified before are still accepted. 10 to 1000000.
    pub(super) invalid_tokens_per_minute: u32,
    /// Percent of `max_clients`, `max_tunnels`, `max_streams` and `max_watchers` that one project
    /// of a managed engine may have, regardless of its plan. 1 to 100.
    pub(super) project_share_percent: u32,
    /// Concurrent connections of visitors, agents and clients of the Engine API. Further ones are
    /// closed unread; the last sixteenth is reserved for connections that are not visitors'. Data
    /// connections of agents do not count. Without this key it is half of the file descriptors that
    /// the process may have (`ulimit -n`, `LimitNOFILE`) beyond 256, because each visitor may need
    /// another one for the way to an agent.
    #[schemars(example = 20_000)]
    pub(super) max_connections: Option<u32>,
    /// Concurrent connections from one source, an IPv4 address or an IPv6 network of 64 bits;
    /// further ones are closed unread. Without this key it is an eighth of `max_connections`.
    /// Behind a proxy that does not send addresses (`edge.trusted_proxies`), all visitors are one
    /// source.
    #[schemars(example = 2_500)]
    pub(super) max_connections_per_source: Option<u32>,
    /// Concurrent TLS handshakes from one source, an IPv4 address or an IPv6 network of 64 bits;
    /// further connections are closed unread. Behind a proxy that does not send addresses
    /// (`edge.trusted_proxies`), all visitors are one source.
    pub(super) max_handshakes_per_source: u32,
    /// Bytes of a request's head; a longer one gets 431. 4096 to 1048576.
    pub(super) header_bytes: u32,
    /// Bytes of a request's target; a longer one gets 414. 256 to `header_bytes`.
    pub(super) url_bytes: u32,
    /// Bytes per second that a request must average while its body is being sent and before its
    /// response starts, beyond the first `timeouts.stream_request_seconds`; a slower one gets 504.
    /// Services that use HTTP/2 are exempt: gRPC sends messages at irregular times. 0: no minimum.
    /// 0 to 1048576.
    pub(super) min_body_rate: u32,
}

impl Default for LimitsSection {
    /// The limits are values that a machine with two cores and 4 GiB handles easily. They ensure
    /// that a fault of one peer is refused before the machine is full.
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            max_tunnels: 50_000,
            // A hundred times what a busy agent publishes.
            max_tunnels_per_client: 1_000,
            // Limits the share of capacity that one agent's visitors can use.
            max_streams_per_client: 10_000,
            // 2 GiB if they are idle, at about 20 KiB each.
            max_streams: 100_000,
            max_streams_per_source: None,
            // A thousand downloads over slow links with buffers of the largest size.
            max_buffered_bytes: 256 * 1024 * 1024,
            // Each has a queue of events and receives every change.
            max_watchers: 1_000,
            // Twenty per second for a minute, as at the platform: more than a page or a script
            // sends.
            credential_requests_per_minute: 1_200,
            // Ten credentials at their limit.
            project_requests_per_minute: 12_000,
            // An office behind one address with a program that retries. Verifying a signature takes
            // at most some hundred microseconds.
            invalid_tokens_per_minute: 600,
            // Far more than a plan should allow. Three projects at this limit leave capacity for
            // others.
            project_share_percent: 25,
            // They are derived from the number of descriptors.
            max_connections: None,
            max_connections_per_source: None,
            // At 100 ms each, five thousand per second: more than the machine signs.
            max_handshakes_per_source: 512,
            // The usual total limit of mature servers: larger cookies are a mistake.
            header_bytes: 32 * 1024,
            // RFC 9112 section 3 recommends at least 8000.
            url_bytes: 8 * 1024,
            // Apache's default (mod_reqtimeout). The slowest links in use are faster, and a client
            // that occupies a worker of the service has to send at this rate.
            min_body_rate: 500,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GeoipSection {
    /// A file in the `MaxMind` database format with the countries of addresses, which is read again
    /// when it changes. Managed engines use it for `geo_ip`; without it all countries are unknown.
    #[schemars(example = "/var/lib/svc/country.mmdb")]
    pub(super) file: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CompatSection {
    /// Accepts the spellings of the rstream SDKs and sends them in addition to ours: the query
    /// parameter `rstream.token` and the field `rstream_auth`. Their agent protocol is always
    /// supported.
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
    /// The file with the cluster's enrolment secret. It is read whenever the engine connects.
    /// Required in this section.
    #[schemars(example = "/etc/svc/enrolment-token")]
    pub(super) token_file: Option<String>,
    /// A PEM file of authorities for checking the platform's certificate, instead of the system's.
    #[schemars(example = "/etc/svc/platform-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// The directory for the state received from the platform and for unsent reports, so that
    /// neither is lost in a restart. It contains no credentials. Without this key it is the first
    /// entry of `$STATE_DIRECTORY` (as systemd sets it), else `svc/engine/<host>` in
    /// `$XDG_STATE_HOME` or `~/.local/state`.
    #[schemars(example = "/var/lib/svc/engine")]
    pub(super) data_dir: Option<String>,
}
