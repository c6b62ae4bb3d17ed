//! The configurations of a public server. They are the files of `svc engine`, `svc platform` and
//! `svc turn`, so an operator can run these as separate services later.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use acme::StoredStatus;
use serde_json::{Map, Value, json};

use super::super::{
    Args,
    engine::TrustSource,
    local::clients,
    relay::{LocalRelay, RELAY_PORTS},
    reserved_ports,
};
use super::options::{DnsWay, PublicOptions};
use super::ports::PublicPorts;

/// The directories of the parts.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) data: PathBuf,
    /// State of the certificate of each part.
    pub(super) engine: PathBuf,
    pub(super) relay: PathBuf,
    pub(super) platform: PathBuf,
    /// Issuers of test certificates.
    pub(super) staging_ca: PathBuf,
}

impl Layout {
    pub(super) fn new(data: &Path) -> Self {
        let acme = data.join("acme");
        Self {
            data: data.to_owned(),
            engine: acme.join("engine"),
            relay: acme.join("turn"),
            platform: acme.join("platform"),
            staging_ca: data.join("staging-ca.pem"),
        }
    }

    /// State of the certificates of all parts.
    pub(super) fn certificates(&self) -> [&Path; 3] {
        [&self.engine, &self.relay, &self.platform]
    }

    /// The accounts at the authority that exist, in the order of the parts.
    pub(super) fn accounts(&self) -> Vec<String> {
        let parts = self.certificates().into_iter();
        parts
            .filter_map(|part| StoredStatus::read(part).account)
            .collect()
    }
}

pub(super) fn platform_host(host: &str) -> String {
    format!("platform.{host}")
}

pub(super) fn turn_host(host: &str) -> String {
    format!("turn.{host}")
}

pub(super) fn platform_url(host: &str, port: u16) -> String {
    url(&platform_host(host), port)
}

/// An origin, which omits the default port.
pub(super) fn url(host: &str, port: u16) -> String {
    match port {
        443 => format!("https://{host}"),
        port => format!("https://{host}:{port}"),
    }
}

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::from((ip, port)).to_string()
}

/// The keys of every section for certificates.
pub(super) fn acme(options: &PublicOptions, challenges: &[&str], state_dir: &Path) -> Value {
    let authority = &options.authority;
    let mut section = json!({
        "directory": authority.directory,
        "terms_agreed": true,
        "contact": [options.email],
        "challenges": challenges,
        "state_dir": state_dir,
    });
    if let Some(ca_file) = &authority.ca_file {
        insert(&mut section, "ca_file", json!(ca_file));
    }
    if let Some(profile) = &authority.profile {
        insert(&mut section, "profile", json!(profile));
    }
    section
}

fn insert(section: &mut Value, key: &str, value: Value) {
    if let Some(section) = section.as_object_mut() {
        section.insert(key.to_owned(), value);
    }
}

/// The section for the certificate of the engine, which includes wildcards.
fn engine_certificate(options: &PublicOptions, layout: &Layout) -> Value {
    let mut certificate = acme(options, &["tls-alpn-01", "dns-01"], &layout.engine);
    match &options.dns {
        DnsWay::Responder { port, zone } => {
            let addresses = options.addresses.name_server().into_iter();
            let addresses: Vec<_> = addresses.map(|ip| at(ip, *port)).collect();
            let mut responder = json!({ "listen_addr": addresses });
            if let Some(zone) = zone {
                insert(&mut responder, "zone", json!(zone));
            }
            insert(&mut certificate, "dns_responder", responder);
        }
        DnsWay::Program(program) => {
            insert(&mut certificate, "dns_program", json!(program));
        }
        DnsWay::Update { server, key_file } => {
            let update = json!({ "server": server, "key_file": key_file });
            insert(&mut certificate, "dns_update", update);
        }
    }
    if !matches!(options.dns, DnsWay::Responder { .. }) {
        let propagation = json!(options.dns_propagation);
        insert(&mut certificate, "dns_propagation_seconds", propagation);
    }
    certificate
}

/// The configuration of the engine, whose platform listens on this port.
pub(super) fn engine(
    options: &PublicOptions,
    args: &Args,
    ports: PublicPorts,
    platform_port: u16,
    layout: &Layout,
    authority: &TrustSource,
) -> Value {
    let host = &options.host;
    let listen = options.addresses.listen;
    let loopback = Ipv4Addr::LOCALHOST.into();
    let certificate = engine_certificate(options, layout);
    let mut file = json!({
        "engine": { "host": host, "log_level": "warn" },
        "tls": {
            "enabled": true,
            "listen_addr": at(listen, ports.engine),
            "routes": [
                {
                    "server_name": platform_host(host),
                    "to": at(loopback, platform_port),
                    "proxy_protocol": true,
                },
                {
                    "server_name": turn_host(host),
                    "to": at(options.addresses.own_address(), ports.turn_tls),
                },
            ],
        },
        "http": { "enabled": true, "listen_addr": at(listen, ports.http) },
        "certs": { "static": { "enabled": false }, "acme": certificate },
        "metrics": { "prometheus": {
            "enabled": true,
            "listen_addr": at(loopback, ports.metrics),
        } },
        "tcp": { "port_range": args.tcp_ports },
    });
    if let TrustSource::Platform { url, enrolment } = authority {
        let data_dir = layout.data.join("engine");
        let section = json!({ "url": url, "token_file": enrolment, "data_dir": data_dir });
        insert(&mut file, "control_plane", section);
    }
    file
}

/// The configuration of the relay, which follows the platform at `url`.
pub(super) fn relay(
    options: &PublicOptions,
    ports: PublicPorts,
    url: &str,
    layout: &Layout,
    secret_file: &Path,
) -> Value {
    let addresses = options.addresses.exact();
    let listen = |port: u16| -> Vec<String> { addresses.iter().map(|ip| at(*ip, port)).collect() };
    let mut section = json!({
        "listen_addr": listen(ports.turn),
        "tls_listen_addr": listen(ports.turn_tls),
        "tls": {
            "host": turn_host(&options.host),
            "acme": acme(options, &["tls-alpn-01"], &layout.relay),
        },
        "realm": options.host,
        "relay_ports": RELAY_PORTS,
        "log_level": "warn",
        "control_plane": {
            "url": url,
            "token_file": secret_file,
            "data_dir": layout.data.join("turn"),
        },
    });
    if let Some(external) = options.addresses.behind_nat() {
        insert(&mut section, "external_ip", json!([external]));
    }
    json!({ "turn": section })
}

/// The parts on which the configuration of the platform depends.
pub(super) struct PlatformParts<'a> {
    pub(super) options: &'a PublicOptions,
    pub(super) args: &'a Args,
    /// Ports of its listeners: behind the engine, and for this machine.
    pub(super) ports: [u16; 2],
    /// Public port of the engine.
    pub(super) engine_port: u16,
    pub(super) relay: &'a LocalRelay,
    /// File with the enrolment secret of the engine.
    pub(super) enrolment: Option<&'a Path>,
    /// CA certificates of the engine.
    pub(super) ca_file: Option<&'a Path>,
    pub(super) layout: &'a Layout,
}

/// The configuration of the platform.
pub(super) fn platform(parts: &PlatformParts<'_>) -> Value {
    let PlatformParts {
        options,
        args,
        layout,
        ..
    } = parts;
    let loopback = Ipv4Addr::LOCALHOST.into();
    let [behind_engine, local] = parts.ports;
    let mut file = json!({
        "platform": {
            "base_url": platform_url(&options.host, parts.engine_port),
            "listen_addr": at(loopback, behind_engine),
            "local_listen_addr": at(loopback, local),
            "data_dir": layout.data,
            "log_level": "warn",
            // There is no load balancer that needs time to redirect clients.
            "drain_seconds": 0,
        },
        "tls": {
            "proxy_protocol": true,
            "acme": acme(options, &["tls-alpn-01"], &layout.platform),
        },
        "engines": [{
            "cluster_domain": options.host,
            "enrolment_secret_file": parts.enrolment,
            "relay_secret_file": parts.relay.secret_file,
            "ca_file": parts.ca_file,
            "tcp_ports": reserved_ports(&args.tcp_ports),
        }],
        "catalog": {
            "plans": [{ "plan": "basic", "webhooks": true }],
            "regions": [{
                "provider": "other",
                "region": "local",
                "engine_port": parts.engine_port,
            }],
        },
        "oauth": { "clients": clients(&args.oauth_clients) },
        "turn": {
            "domain": turn_host(&options.host),
            "port": parts.relay.port,
            "tls_port": parts.relay.tls_port,
        },
    });
    let mut domains = Map::new();
    if let Some(root) = &options.root_servers {
        domains.insert("root_servers".into(), json!(root.addresses));
        domains.insert("name_server_port".into(), json!(root.port));
        domains.insert("allow_private_nameservers".into(), json!(true));
    }
    // The engine answers for its own challenges and for all names below.
    if let DnsWay::Responder { zone, .. } = &options.dns {
        let own = || format!("_acme-challenge.{}", options.host);
        let zone = zone.clone().unwrap_or_else(own);
        let zones = BTreeMap::from([(options.host.as_str(), zone)]);
        domains.insert("challenge_zones".into(), json!(zones));
    }
    if !domains.is_empty() {
        insert(&mut file, "domains", domains.into());
    }
    file
}
