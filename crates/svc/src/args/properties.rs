//! Flags for the properties of a tunnel.

use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args};
use client::{
    Destination, HostHeader, Properties, ServiceName, Status, Target,
    properties::{HttpVersion, LinkPassword, Protocol, TunnelKind},
};
use types::tunnel::{BadIdentityField, Hostname, IdentityField, MAX_TIME_TO_FIRST_BYTE_SECONDS};

use super::hostname::in_a_labels;
use super::{link_password, time};
use crate::failure::Failure;

/// Headings of the help, shared by commands.
pub(crate) const SERVICE: &str = "Service";
const VISITORS: &str = "Visitors";
const TLS: &str = "TLS of visitors";

/// The protocol of a service, unless it is plain HTTP/1.1 whose `Host` can be rewritten.
pub(crate) fn unsupported_for_rewrite(properties: &Properties) -> Option<&str> {
    let protocol = properties.protocol.as_ref();
    match &properties.http_version {
        _ if protocol != Some(&Protocol::Http) => {
            Some(protocol.map_or("a byte stream", Protocol::as_str))
        }
        Some(version) if *version != HttpVersion::Http11 => Some(version.as_str()),
        _ if properties.upstream_tls == Some(true) => Some("TLS"),
        _ => None,
    }
}

/// Sets another `Host` and another server name for the service.
///
/// For an `https://` target, the agent then uses TLS to the service instead of the edge, because it
/// cannot change requests inside the edge's session.
pub(crate) fn apply_service_names(
    properties: &mut Properties,
    destination: &mut Destination,
    host_header: Option<HostHeader>,
    server_name: Option<ServiceName>,
) -> Result<(), ServiceNamesError> {
    if host_header.is_none() && server_name.is_none() {
        return Ok(());
    }
    let is_https = matches!(destination.target, Target::Tls(_));
    if server_name.is_some() && !is_https {
        return Err(ServiceNamesError::NotHttps);
    }
    let mut requested = properties.clone();
    if is_https {
        requested.upstream_tls = None;
    }
    if let Some(other) = unsupported_for_rewrite(&requested) {
        return Err(ServiceNamesError::Protocol(other.to_owned()));
    }
    if is_https {
        let name = server_name
            .unwrap_or_else(|| ServiceName::of_requests(&destination.target, host_header.as_ref()));
        destination.service_name = Some(name);
    }
    destination.host_header = host_header;
    *properties = requested;
    Ok(())
}

/// Reason why a service cannot get another `Host` or another server name.
#[derive(Debug)]
pub(crate) enum ServiceNamesError {
    /// A server name without TLS.
    NotHttps,
    /// The agent cannot parse this protocol.
    Protocol(String),
}

impl fmt::Display for ServiceNamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttps => f.write_str("it is for an https:// target"),
            Self::Protocol(other) => write!(
                f,
                "it is for services that use http/1.1 (also over TLS, with an https:// target), and \
                 this one uses {other}"
            ),
        }
    }
}

/// The flags that describe the tunnel. The engine chooses the values that are not set.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Tunnel", group = ArgGroup::new("short").multiple(false))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct TunnelFlags {
    /// Publish it as HTTP (the default)
    #[arg(long, group = "short", conflicts_with = "protocol")]
    pub(crate) http: bool,

    /// Publish it as TLS
    #[arg(long, group = "short", conflicts_with = "protocol")]
    pub(crate) tls: bool,

    /// Publish it as TCP, on a port of its own
    #[arg(long, group = "short", conflicts_with = "protocol")]
    pub(crate) tcp: bool,

    /// A private byte stream, for `svc dial`
    #[arg(long, group = "short", conflicts_with = "protocol")]
    pub(crate) bytestream: bool,

    /// Kind of traffic: bytestream or datagram
    #[arg(
        long = "type",
        value_name = "TYPE",
        conflicts_with = "bytestream",
        hide_short_help = true
    )]
    pub(crate) kind: Option<String>,

    /// Protocol of visitors: http, tls, tcp
    #[arg(long, value_name = "PROTOCOL", hide_short_help = true)]
    pub(crate) protocol: Option<String>,

    /// Name in lists, for `svc dial`, and in the public address
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Public host name or custom domain. Default: the --name, if it is free
    #[arg(long, value_name = "HOSTNAME")]
    pub(crate) hostname: Option<String>,

    /// Public port, for a TCP tunnel
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// No public address; the tunnel is dialled by its name
    #[arg(long)]
    pub(crate) no_publish: bool,

    /// Label of the tunnel (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair, hide_short_help = true)]
    pub(crate) labels: Vec<(String, String)>,

    /// HTTP version of the service: http/1.1 or h2c
    #[arg(long, help_heading = SERVICE, value_name = "VERSION", hide_short_help = true)]
    pub(crate) http_version: Option<String>,

    /// Use TLS to the service
    #[arg(long, help_heading = SERVICE, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true, hide_short_help = true)]
    pub(crate) upstream_tls: Option<bool>,

    /// Visitors need a token
    #[arg(long, help_heading = VISITORS, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) token_auth: Option<bool>,

    /// Visitors sign in with a browser
    #[arg(long, help_heading = VISITORS, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) svc_auth: Option<bool>,

    /// Visitors need a client certificate
    #[arg(long, help_heading = VISITORS, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true)]
    pub(crate) mtls_auth: Option<bool>,

    /// Visitors solve a challenge first
    #[arg(long, help_heading = VISITORS, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true, hide_short_help = true)]
    pub(crate) challenge_mode: Option<bool>,

    /// Visitors need a password, which is entered at the terminal
    #[arg(long, help_heading = VISITORS, conflicts_with = "basic_auth_file")]
    pub(crate) basic_auth: bool,

    /// Visitors need a password of this file: lines `name:password`, or `:password` for any name
    #[arg(long, help_heading = VISITORS, value_name = "FILE", hide_short_help = true)]
    pub(crate) basic_auth_file: Option<PathBuf>,

    /// Share the name with your other agents that also set this
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true, hide_short_help = true)]
    pub(crate) share: Option<bool>,

    /// Addresses and networks that may visit (comma-separated)
    #[arg(long, help_heading = VISITORS, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) trusted_ips: Vec<String>,

    /// Headers of an upstream proxy that visitors may send, such as x-forwarded-port
    /// (comma-separated)
    #[arg(long, help_heading = VISITORS, value_name = "NAME", value_delimiter = ',', hide_short_help = true)]
    pub(crate) pass_headers: Vec<String>,

    /// Countries that may visit (comma-separated)
    #[arg(long, help_heading = VISITORS, value_name = "COUNTRY", value_delimiter = ',', hide_short_help = true)]
    pub(crate) geoip: Vec<String>,

    /// Origins of other pages that may call the tunnel, with a signed-in session, a link password
    /// or a token (CORS), such as `https://app.example.com` (comma-separated)
    #[arg(long, help_heading = VISITORS, value_name = "ORIGIN", value_delimiter = ',', hide_short_help = true)]
    pub(crate) allowed_origins: Vec<String>,

    /// Identity of signed-in visitors that the service receives: email, name, groups, assertion, or
    /// as another header, such as email=Remote-User (comma-separated)
    #[arg(long, help_heading = VISITORS, value_name = "CLAIM[=HEADER]", value_delimiter = ',', value_parser = identity_field, hide_short_help = true)]
    pub(crate) identity: Vec<String>,

    /// The side that terminates TLS: terminated (engine) or passthrough (service)
    #[arg(long, help_heading = TLS, value_name = "MODE", hide_short_help = true)]
    pub(crate) tls_mode: Option<String>,

    /// ALPN names offered to visitors (comma-separated)
    #[arg(long, help_heading = TLS, value_name = "NAME", value_delimiter = ',', hide_short_help = true)]
    pub(crate) tls_alpns: Vec<String>,

    /// Minimum TLS version of visitors: tls1.2 or tls1.3
    #[arg(long, help_heading = TLS, value_name = "VERSION", hide_short_help = true)]
    pub(crate) tls_min_version: Option<String>,

    /// Time that the service may take until the first byte of a response, up to the engine's limit.
    /// Default: the engine's own, usually 30s
    #[arg(long, help_heading = SERVICE, value_name = "DURATION", value_parser = time_to_first_byte, hide_short_help = true)]
    pub(crate) time_to_first_byte: Option<u16>,

    /// Accept visitors that arrive in another region
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true, hide_short_help = true)]
    pub(crate) allow_cross_region_routing: Option<bool>,
}

/// An entry of `--identity`, in its normal form.
fn identity_field(given: &str) -> Result<String, BadIdentityField> {
    given.parse().map(|field: IdentityField| field.to_string())
}

/// Converts header names to lower case, as the engine expects them.
pub(crate) fn lower_case(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

impl TunnelFlags {
    /// The properties of a tunnel to `target`.
    pub(crate) fn properties(&self, target: &Target) -> Result<Properties, Failure> {
        let protocol = parse_open_enum(self.protocol.as_ref()).or_else(|| self.short_form());
        // A byte stream without a protocol cannot be published. Without a name it is dialled by its
        // id.
        let private = self.no_publish || self.bytestream;
        let mut wanted = Properties::default();
        wanted.name.clone_from(&self.name);
        wanted.kind = if self.bytestream {
            Some(TunnelKind::Bytestream)
        } else {
            parse_open_enum(self.kind.as_ref())
        };
        wanted.publish = Some(!private);
        wanted.protocol = protocol;
        wanted.labels = self.labels.iter().cloned().collect();
        wanted.geo_ip.clone_from(&self.geoip);
        wanted.trusted_ips.clone_from(&self.trusted_ips);
        wanted.allowed_origins.clone_from(&self.allowed_origins);
        wanted.tls_mode = parse_open_enum(self.tls_mode.as_ref());
        wanted.tls_alpns.clone_from(&self.tls_alpns);
        wanted.tls_min_version = parse_open_enum(self.tls_min_version.as_ref());
        wanted.mtls_auth = self.mtls_auth;
        wanted.http_version = parse_open_enum(self.http_version.as_ref());
        wanted.token_auth = self.token_auth;
        wanted.svc_auth = self.svc_auth;
        wanted.challenge_mode = self.challenge_mode;
        wanted.link_passwords = self.link_passwords()?;
        wanted.basic_auth = (!wanted.link_passwords.is_empty()).then_some(true);
        wanted.share = self.share;
        wanted.pass_headers = lower_case(&self.pass_headers);
        wanted.identity.clone_from(&self.identity);
        wanted.hostname = self.hostname.as_deref().map(in_a_labels);
        wanted.port = self.port;
        wanted.upstream_tls = self.upstream_tls;
        wanted.allow_cross_region_routing = self.allow_cross_region_routing;
        wanted.time_to_first_byte_seconds = self.time_to_first_byte;
        apply_defaults(wanted, target).map_err(|TlsConflictError| {
            Failure::usage("--upstream-tls=false contradicts an https:// target")
        })
    }

    /// The link passwords, from a file or a prompt. They are never arguments, because other users of
    /// the machine can list those.
    fn link_passwords(&self) -> Result<Vec<LinkPassword>, Failure> {
        if self.basic_auth {
            return link_password::ask();
        }
        let Some(path) = &self.basic_auth_file else {
            return Ok(Vec::new());
        };
        link_password::read(path)
            .map_err(|error| Failure::usage(format!("--basic-auth-file: {error}")))
    }

    fn short_form(&self) -> Option<Protocol> {
        let forms = [
            (self.http, Protocol::Http),
            (self.tls, Protocol::Tls),
            (self.tcp, Protocol::Tcp),
        ];
        forms
            .into_iter()
            .find_map(|(given, protocol)| given.then_some(protocol))
    }
}

/// Converts a text as written. The engine validates values that this program does not define.
pub(crate) fn parse_open_enum<T: for<'w> From<&'w str>>(written: Option<&String>) -> Option<T> {
    written.map(|word| T::from(word))
}

/// Fills in the defaults for a tunnel to `target`: it is published as HTTP, and an `https://`
/// target is contacted with TLS.
pub(crate) fn apply_defaults(
    mut wanted: Properties,
    target: &Target,
) -> Result<Properties, TlsConflictError> {
    if *wanted.publish.get_or_insert(true) {
        wanted.protocol.get_or_insert(Protocol::Http);
    }
    if target.wants_upstream_tls() && !*wanted.upstream_tls.get_or_insert(true) {
        return Err(TlsConflictError);
    }
    Ok(wanted)
}

/// The host name that a tunnel requests without `--hostname`: its name, so that its address stays
/// the same. `None` if it has no host name, or if its name cannot be one.
pub(crate) fn preferred_hostname(requested: &Properties) -> Option<String> {
    let has_hostname =
        requested.publish != Some(false) && requested.protocol != Some(Protocol::Tcp);
    let name = requested.name.as_ref()?;
    let is_label = !name.contains('.') && name.parse::<Hostname>().is_ok();
    (has_hostname && requested.hostname.is_none() && is_label).then(|| name.to_ascii_lowercase())
}

/// True if an engine has granted the preferred host name: below its own name, and in a project with
/// the project's endpoint.
fn is_granted(preferred: &str, hostname: &str) -> bool {
    let label = hostname.split('.').next().unwrap_or_default();
    match label.strip_prefix(preferred) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('-').is_some_and(|endpoint| {
            endpoint.len() == ENDPOINT_DIGITS && endpoint.bytes().all(|b| b.is_ascii_hexdigit())
        }),
        None => false,
    }
}

/// True if an engine can grant the same name for both, each a label or a full name.
pub(crate) fn may_be_one_hostname(one: &str, other: &str) -> bool {
    let split = |hostname: &str| {
        let hostname = hostname.strip_suffix('.').unwrap_or(hostname);
        let hostname = hostname.to_ascii_lowercase();
        let (label, parent) = hostname.split_once('.').unwrap_or((hostname.as_str(), ""));
        (label.to_owned(), parent.to_owned())
    };
    let ((one, parent), (other, other_parent)) = (split(one), split(other));
    // Two custom domains, or a custom domain and a name below the engine's host.
    if !parent.is_empty() && !other_parent.is_empty() && parent != other_parent {
        return false;
    }
    is_granted(&one, &other) || is_granted(&other, &one)
}

/// Reports a tunnel that did not get its preferred host name, once per name that it gets instead.
#[derive(Debug, Default)]
pub(crate) struct AddressNotice {
    preferred: Option<String>,
    reported: Option<String>,
}

impl AddressNotice {
    /// For a tunnel that requests this host name.
    pub(crate) fn new(preferred: Option<String>) -> Self {
        Self {
            preferred,
            reported: None,
        }
    }

    /// Returns the notice to print.
    pub(crate) fn text(&mut self, status: &Status) -> Option<String> {
        let Status::Online(online) = status else {
            return None;
        };
        let preferred = self.preferred.as_deref()?;
        let hostname = online.properties.hostname.as_deref()?;
        if is_granted(preferred, hostname) || self.reported.as_deref() == Some(hostname) {
            return None;
        }
        self.reported = Some(hostname.to_owned());
        Some(not_granted(preferred, hostname))
    }
}

/// The notice for a tunnel that did not get its preferred host name.
fn not_granted(preferred: &str, hostname: &str) -> String {
    format!(
        "the address `{preferred}` is not available, for example because another user has it: this \
         tunnel has {hostname} instead; choose another --name, or set --hostname"
    )
}

/// Digits of a project's endpoint in host names.
const ENDPOINT_DIGITS: usize = 8;

/// TLS to the service was disabled for an `https://` target.
#[derive(Debug)]
pub(crate) struct TlsConflictError;

/// Parses a time until the first byte of a response. Returns seconds.
pub(crate) fn time_to_first_byte(text: &str) -> Result<u16, String> {
    let duration = time::duration(text)?;
    let is_whole = duration.subsec_nanos() == 0;
    let seconds = u16::try_from(duration.as_secs()).ok();
    seconds
        .filter(|seconds| is_whole && (1..=MAX_TIME_TO_FIRST_BYTE_SECONDS).contains(seconds))
        .ok_or_else(|| "it is 1s to 1h, in whole seconds".to_owned())
}

/// Parses `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not key=value")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        target: Target,
        #[command(flatten)]
        tunnel: TunnelFlags,
    }

    /// The properties as the Engine API writes them.
    fn properties_of(line: &str) -> String {
        let args = std::iter::once("svc").chain(line.split(' '));
        let flags = Flags::try_parse_from(args).unwrap();
        let properties = flags.tunnel.properties(&flags.target).unwrap();
        serde_json::to_string(&properties).unwrap()
    }

    #[test]
    fn flags_become_properties() {
        for (line, properties) in [
            ("3000", r#"{"publish":true,"protocol":"http"}"#),
            (
                "3000 --name web --token-auth",
                r#"{"name":"web","publish":true,"protocol":"http","token_auth":true}"#,
            ),
            (
                "3000 --token-auth=false",
                r#"{"publish":true,"protocol":"http","token_auth":false}"#,
            ),
            (
                "53 --type datagram --no-publish",
                r#"{"type":"datagram","publish":false}"#,
            ),
            ("22 --tcp", r#"{"publish":true,"protocol":"tcp"}"#),
            (
                "22 --protocol tcp --port 20001",
                r#"{"publish":true,"protocol":"tcp","port":20001}"#,
            ),
            (
                "5432 --bytestream --name db",
                r#"{"name":"db","type":"bytestream","publish":false}"#,
            ),
            (
                "5432 --bytestream",
                r#"{"type":"bytestream","publish":false}"#,
            ),
            (
                "5432 --no-publish --name db",
                r#"{"name":"db","publish":false}"#,
            ),
            (
                "3000 --http --no-publish --name w",
                r#"{"name":"w","publish":false,"protocol":"http"}"#,
            ),
            (
                "https://localhost:9443",
                r#"{"publish":true,"protocol":"http","upstream_tls":true}"#,
            ),
            (
                "443 --tls --tls-mode passthrough --tls-alpns h2,http/1.1 --tls-min-version tls1.3",
                r#"{"publish":true,"protocol":"tls","tls_mode":"passthrough","tls_alpns":["h2","http/1.1"],"tls_min_version":"tls1.3"}"#,
            ),
            (
                "80 --label a=b --label c= --trusted-ips 10.0.0.0/8,::1 --geoip CH,LI",
                r#"{"publish":true,"protocol":"http","labels":{"a":"b","c":""},"geo_ip":["CH","LI"],"trusted_ips":["10.0.0.0/8","::1"]}"#,
            ),
            (
                "80 --time-to-first-byte 5m",
                r#"{"publish":true,"protocol":"http","time_to_first_byte_seconds":300}"#,
            ),
            (
                "80 --svc-auth --mtls-auth --challenge-mode",
                r#"{"publish":true,"protocol":"http","mtls_auth":true,"svc_auth":true,"challenge_mode":true}"#,
            ),
        ] {
            assert_eq!(properties_of(line), properties, "{line}");
        }
    }

    #[test]
    fn the_name_is_the_preferred_host_name() {
        let preferred = |line: &str| {
            let args = std::iter::once("svc").chain(line.split(' '));
            let flags = Flags::try_parse_from(args).unwrap();
            preferred_hostname(&flags.tunnel.properties(&flags.target).unwrap())
        };
        assert_eq!(preferred("3000 --name Web").as_deref(), Some("web"));
        assert_eq!(preferred("3000 --name web --tls").as_deref(), Some("web"));
        for without in [
            "3000",
            "3000 --name web --hostname shop",
            "3000 --name web --tcp",
            "3000 --name web --bytestream",
            "3000 --name web --no-publish",
            "3000 --name a_b",
            "3000 --name a.b",
        ] {
            assert_eq!(preferred(without), None, "{without}");
        }
        assert!(is_granted("web", "web.t.engine.example"));
        assert!(is_granted("web", "web-0a1b2c3d.t.engine.example"));
        assert!(!is_granted("web", "web-shop.t.engine.example"));
        assert!(!is_granted("web", "quick-fox-0a1b2c3d.t.engine.example"));
    }

    #[test]
    fn host_names_are_compared_by_their_labels() {
        let forms = [
            "shop",
            "Shop",
            "shop.",
            "shop.t.engine.example",
            "shop.t.engine.example.",
        ];
        let of_a_project = ["shop-0a1b2c3d", "SHOP-0A1B2C3D.t.engine.example"];
        for one in forms {
            for other in forms.into_iter().chain(of_a_project) {
                assert!(may_be_one_hostname(one, other), "{one} {other}");
                assert!(may_be_one_hostname(other, one), "{other} {one}");
            }
            for other in ["web", "shop2.t.engine.example", "shop-web", "a.shop"] {
                assert!(!may_be_one_hostname(one, other), "{one} {other}");
                assert!(!may_be_one_hostname(other, one), "{other} {one}");
            }
        }
        // Custom domains.
        assert!(may_be_one_hostname("app.example.com", "APP.example.com."));
        for other in ["app.example.org", "app.t.engine.example"] {
            assert!(!may_be_one_hostname("app.example.com", other), "{other}");
        }
    }

    #[test]
    fn contradictions_are_usage_errors() {
        for line in [
            "1 --http --tcp",
            "1 --tls --protocol tcp",
            "1 --label x",
            "1 --port 0",
            "1 --bytestream --type datagram",
            "1 --time-to-first-byte 500ms",
            "1 --time-to-first-byte 61m",
            "1 --time-to-first-byte 30",
        ] {
            let args = std::iter::once("svc").chain(line.split(' '));
            assert!(Flags::try_parse_from(args).is_err(), "{line}");
        }
        let args = ["svc", "https://a:1", "--upstream-tls=false"];
        let flags = Flags::try_parse_from(args).unwrap();
        assert!(flags.tunnel.properties(&flags.target).is_err());
    }
}
