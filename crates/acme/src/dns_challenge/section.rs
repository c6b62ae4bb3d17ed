//! The keys `dns_*` of the section: the way to publish the records of `dns-01`.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use daemon::config::values::{address, path, required};
use daemon::config::{ConfigError, ConfigErrors};
use dns::{DnsUpdate, KeyAlgorithm, KeySource, Zone, Zones};
use schemars::JsonSchema;
use serde::Deserialize;

use super::program::DnsProgram;
use super::provider::{DnsProvider, ResponderSettings, challenge_name};
use crate::section_context::SectionContext;
use crate::settings::Settings;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DnsUpdateSection {
    /// The primary name server of the zone: a host or an address, and a port if it is not 53. The
    /// engine connects to it over TCP. Required in this section.
    #[schemars(example = "ns1.example.com")]
    pub(crate) server: Option<String>,
    /// The zone of the records. Without this key, the engine asks the server for it.
    #[schemars(example = "example.com")]
    pub(crate) zone: Option<String>,
    /// Name of the key. Required if the file has only the secret.
    #[schemars(example = "svc-acme")]
    pub(crate) key_name: Option<String>,
    /// The file of the key: the secret in base64, or a key in the form of BIND, as tsig-keygen
    /// prints it. Other users must not have access to it. Required in this section.
    #[schemars(example = "/etc/svc/tsig.key")]
    pub(crate) key_file: Option<String>,
    /// `hmac-sha256`, `hmac-sha384` or `hmac-sha512`. Without this key it is the one in the file,
    /// or `hmac-sha256`.
    #[schemars(example = "hmac-sha256")]
    pub(crate) algorithm: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DnsResponderSection {
    /// Addresses for UDP and TCP. Name servers ask at port 53. On a host with several addresses, list
    /// the one of `name_server` instead of an unspecified one.
    #[schemars(example = ["0.0.0.0:53", "[::]:53"])]
    pub(crate) listen_addr: Vec<String>,
    /// The host name of this engine in NS records. Its A and AAAA records must lead to
    /// `listen_addr`. Without this key it is `engine.host`.
    #[schemars(example = "engine.example.com")]
    pub(crate) name_server: Option<String>,
    /// A zone that is delegated to this engine, for records of type CNAME: `_acme-challenge.NAME`
    /// points to `NAME.ZONE`. Without this key, each `_acme-challenge.NAME` is delegated itself.
    #[schemars(example = "acme.example.net")]
    pub(crate) zone: Option<String>,
    /// Serves the whole zone `t.<host>`: all its names have `addresses`. Then its delegation
    /// replaces the records of published names and of their challenge.
    pub(crate) serve_zone: bool,
    /// Addresses of the engines for `serve_zone`.
    #[schemars(example = ["192.0.2.1", "2001:db8::1"])]
    pub(crate) addresses: Vec<String>,
    /// Certificate authorities that may issue certificates for names in the zone of `serve_zone` (CAA
    /// records), the one of `directory` first. Without this key every authority may.
    #[schemars(example = ["letsencrypt.org"])]
    pub(crate) caa: Vec<String>,
    /// The first authority of `caa` may do so only for the account in `state_dir` (`accounturi`, RFC
    /// 8657), once it is known. Not for several engines with accounts of their own.
    pub(crate) caa_account: bool,
}

impl Default for DnsResponderSection {
    fn default() -> Self {
        Self {
            listen_addr: vec!["[::]:53".to_owned()],
            name_server: None,
            zone: None,
            serve_zone: false,
            addresses: Vec::new(),
            caa: Vec::new(),
            caa_account: false,
        }
    }
}

/// The keys of all ways.
#[derive(Debug)]
pub(crate) struct DnsForms {
    pub(crate) program: Option<String>,
    pub(crate) update: Option<DnsUpdateSection>,
    pub(crate) responder: Option<DnsResponderSection>,
}

/// The parts of the configuration that the ways depend on.
#[derive(Debug)]
pub(crate) struct DnsContext<'a> {
    pub(crate) outer: &'a SectionContext<'a>,
    /// Names of the certificate.
    pub(crate) names: &'a [String],
    /// `dns-01` is a challenge.
    pub(crate) has_dns: bool,
    pub(crate) program_timeout: Duration,
    pub(crate) propagation: Duration,
}

/// The only way that is configured; `None` without `dns-01`.
///
/// # Errors
/// All mistakes.
pub(crate) fn provider(
    forms: DnsForms,
    context: &DnsContext<'_>,
) -> Result<Option<DnsProvider>, ConfigErrors> {
    let outer = context.outer;
    let keys = [
        ("dns_program", forms.program.is_some()),
        ("dns_update", forms.update.is_some()),
        ("dns_responder", forms.responder.is_some()),
    ];
    let mut keys = keys.into_iter().filter(|(_, is_set)| *is_set);
    let refused = |key: &str, message: &str| {
        Err(ConfigErrors::from(ConfigError::new(
            outer.key(key),
            message,
        )))
    };
    let challenges = outer.key("challenges");
    match (keys.next(), context.has_dns) {
        (Some((key, _)), false) => {
            let message = format!("this is not used; add dns-01 to {challenges}");
            let error = ConfigError::new(outer.key(key), message).depending_on(&challenges);
            return Err(error.into());
        }
        (None, false) => return Ok(None),
        (None, true) => {
            let others = if outer.can_respond {
                ", dns_update or dns_responder"
            } else {
                " or dns_update"
            };
            let message = format!("this key{others} is required, because {challenges} has dns-01");
            return refused("dns_program", &message);
        }
        (Some(_), true) => {}
    }
    if let Some((key, _)) = keys.next() {
        return refused(
            key,
            "only one of dns_program, dns_update and dns_responder is used; remove the others",
        );
    }
    if forms.responder.is_some() && !outer.can_respond {
        let message = "only an engine answers for the names of challenges itself; use dns_program \
                       or dns_update";
        return refused("dns_responder", message);
    }
    if let Some(program) = forms.program {
        return Ok(Some(DnsProvider::Program(DnsProgram {
            path: path(&outer.key("dns_program"), program)?,
            timeout: context.program_timeout,
            propagation: context.propagation,
        })));
    }
    if let Some(section) = forms.update {
        return Ok(Some(DnsProvider::Update {
            update: update(section, outer)?,
            propagation: context.propagation,
        }));
    }
    let responder = forms.responder.map(|section| responder(section, context));
    Ok(responder.transpose()?.map(DnsProvider::Responder))
}

fn update(
    section: DnsUpdateSection,
    outer: &SectionContext<'_>,
) -> Result<DnsUpdate, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let key = |name: &str| outer.key(&format!("dns_update.{name}"));
    let server = required(&key("server"), section.server)
        .and_then(|server| host_and_port(&key("server"), &server));
    let server = errors.keep(server);
    let file =
        required(&key("key_file"), section.key_file).and_then(|file| path(&key("key_file"), file));
    let file = errors.keep(file);
    for (name, value) in [("zone", &section.zone), ("key_name", &section.key_name)] {
        if let Some(Err(error)) = value.as_deref().map(Zone::of_challenges) {
            errors.push(ConfigError::new(key(name), error.to_string()));
        }
    }
    let algorithm = section.algorithm.as_deref().map(|text| {
        KeyAlgorithm::parse(text).ok_or_else(|| {
            let message = "this is none of hmac-sha256, hmac-sha384 and hmac-sha512";
            ConfigError::new(key("algorithm"), message)
        })
    });
    let algorithm = errors.keep_or_default(algorithm.transpose());
    let update = server.zip(file).map(|((server, port), file)| DnsUpdate {
        server,
        port,
        zone: section.zone,
        key: KeySource {
            file,
            name: section.key_name,
            algorithm,
        },
    });
    errors.finish(update)
}

/// A host or an address, with a port if it is not [`DNS_PORT`].
fn host_and_port(key: &str, value: &str) -> Result<(String, u16), ConfigError> {
    if let Ok(address) = value.parse::<IpAddr>() {
        return Ok((address.to_string(), DNS_PORT));
    }
    let (host, port) = if let Ok(address) = value.parse::<SocketAddr>() {
        (address.ip().to_string(), Some(address.port()))
    } else if let Some((host, port)) = value.split_once(':') {
        (host.to_owned(), port.parse().ok())
    } else {
        (value.to_owned(), Some(DNS_PORT))
    };
    let is_host = host.parse::<IpAddr>().is_ok() || Zone::of_challenges(&host).is_ok();
    port.filter(|port| is_host && *port != 0)
        .map(|port| (host, port))
        .ok_or_else(|| {
            let message =
                format!("{value:?} is not a host with a port, such as ns1.example.com:53");
            ConfigError::new(key, message)
        })
}

fn responder(
    section: DnsResponderSection,
    context: &DnsContext<'_>,
) -> Result<ResponderSettings, ConfigErrors> {
    let outer = context.outer;
    let mut errors = ConfigErrors::default();
    let key = |name: &str| outer.key(&format!("dns_responder.{name}"));
    if section.listen_addr.is_empty() {
        let message = "at least one address is required";
        errors.push(ConfigError::new(key("listen_addr"), message));
    }
    let mut listen: Vec<SocketAddr> = Vec::new();
    for (index, value) in section.listen_addr.iter().enumerate() {
        let parsed = address(&key(&format!("listen_addr.{index}")), value, "0.0.0.0:53");
        listen.extend(errors.keep(parsed));
    }
    let addresses = errors.keep(host_addresses(&section, outer));
    if let Err(error) = check_caa(&section, outer) {
        errors.push(error);
    }
    let name_server = section.name_server.as_deref().unwrap_or(context.outer.host);
    let zones = addresses.map(|addresses| zones(&section, addresses, name_server, context));
    let zones = zones.and_then(|zones| errors.keep(zones));
    if zones
        .as_ref()
        .is_some_and(|zones| zones.contain(name_server))
    {
        // Its addresses would be asked for at this engine, which does not have them.
        let message = format!("{name_server} is in a zone of the responder; use another name");
        errors.push(ConfigError::new(key("name_server"), message));
    }
    errors.finish(zones.map(|zones| ResponderSettings {
        listen,
        zones,
        alias_zone: section.zone,
    }))
}

/// The addresses for `serve_zone`; none without it.
fn host_addresses(
    section: &DnsResponderSection,
    outer: &SectionContext<'_>,
) -> Result<Vec<IpAddr>, ConfigErrors> {
    let key = outer.key("dns_responder.addresses");
    if section.serve_zone == section.addresses.is_empty() {
        let message = if section.serve_zone {
            "this key is required, because serve_zone is true"
        } else {
            "the addresses are not used; set serve_zone"
        };
        return Err(ConfigError::new(key, message).into());
    }
    if section.addresses.len() > MAX_ADDRESSES {
        let message = format!("at most {MAX_ADDRESSES} addresses are supported");
        return Err(ConfigError::new(key, message).into());
    }
    let mut errors = ConfigErrors::default();
    let mut addresses = Vec::new();
    for (index, value) in section.addresses.iter().enumerate() {
        let parsed = value.parse::<IpAddr>().map_err(|_| {
            let key = format!("{key}.{index}");
            ConfigError::new(key, format!("{value:?} is not an IP address"))
        });
        addresses.extend(errors.keep(parsed));
    }
    errors.finish(Some(addresses))
}

/// Checks that the CAA records are used.
fn check_caa(section: &DnsResponderSection, outer: &SectionContext<'_>) -> Result<(), ConfigError> {
    let key = |name: &str| outer.key(&format!("dns_responder.{name}"));
    let issuers = &section.caa;
    if !issuers.is_empty() && !section.serve_zone {
        let message = "the authorities are not used; set serve_zone";
        return Err(ConfigError::new(key("caa"), message));
    }
    if issuers.is_empty() && section.caa_account {
        let message = "this is not used; list the authority of the account in caa";
        return Err(ConfigError::new(key("caa_account"), message));
    }
    if issuers.len() > MAX_ISSUERS {
        let message = format!("at most {MAX_ISSUERS} authorities are supported");
        return Err(ConfigError::new(key("caa"), message));
    }
    Ok(())
}

/// The zones that are delegated to this engine.
fn zones(
    section: &DnsResponderSection,
    addresses: Vec<IpAddr>,
    name_server: &str,
    context: &DnsContext<'_>,
) -> Result<Zones, ConfigError> {
    let outer = context.outer;
    let key = |name: &str| outer.key(&format!("dns_responder.{name}"));
    let failed = |name: &'static str| {
        move |error: dns::NameError| ConfigError::new(key(name), error.to_string())
    };
    let mut zones = Vec::new();
    let hosts = format!("t.{}", outer.host);
    if section.serve_zone {
        let zone = Zone::of_hosts(&hosts, addresses);
        let zone = zone.map_err(failed("serve_zone"))?;
        let zone = zone.with_caa(&section.caa, section.caa_account);
        zones.push(zone.map_err(failed("caa"))?);
    }
    let names = || context.names.iter().chain(outer.other_names);
    if let Some(zone) = &section.zone {
        zones.push(Zone::of_challenges(zone).map_err(failed("zone"))?);
        for name in names() {
            // The alias of a long name may be too long.
            let alias = format!("{}.{zone}", name.strip_prefix("*.").unwrap_or(name));
            Zone::of_challenges(&alias).map_err(failed("zone"))?;
        }
    } else {
        let below_hosts = format!(".{hosts}");
        // A name and its wildcard have one.
        let challenges: BTreeSet<String> = names().map(|name| challenge_name(name)).collect();
        for challenge in &challenges {
            if !section.serve_zone || !challenge.ends_with(&below_hosts) {
                zones.push(Zone::of_challenges(challenge).map_err(failed("zone"))?);
            }
        }
    }
    Zones::new(name_server, zones).map_err(failed("name_server"))
}

/// Reads the file of the key that updates are signed with.
///
/// # Errors
/// It cannot be used.
pub(crate) fn inspect(settings: &Settings, section: &str) -> Result<(), ConfigError> {
    let Some(DnsProvider::Update { update, .. }) = &settings.dns else {
        return Ok(());
    };
    let read = update.key.read();
    let key = format!("{section}.dns_update.key_file");
    read.map(drop)
        .map_err(|error| ConfigError::new(key, error.to_string()))
}

const DNS_PORT: u16 = 53;

/// Operators order from one or two authorities.
const MAX_ISSUERS: usize = 8;

/// Three or four of a kind fit into a datagram, and resolvers use TCP for more.
const MAX_ADDRESSES: usize = 8;
