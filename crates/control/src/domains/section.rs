//! The `domains` section of the configuration.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aws_lc_rs::digest;
use daemon::config::ConfigError;
use data_encoding::BASE32_NOPAD;
use schemars::JsonSchema;
use serde::Deserialize;
use types::id::ProjectId;

/// Name servers that are asked about custom domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainsConfig {
    /// Servers of the root zone.
    pub root_servers: Vec<IpAddr>,
    /// Port of every name server.
    pub name_server_port: u16,
    /// True if name servers may have addresses that are not public.
    pub allow_private_nameservers: bool,
    /// The zone for delegated challenges of each cluster that has one, by the domain of the cluster.
    pub challenge_zones: BTreeMap<String, String>,
}

/// The section as it is written in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DomainsSection {
    /// Addresses of the servers at which the resolution of custom domains starts. Empty: the root
    /// servers of the Internet. Others are for closed networks with their own root, and for tests.
    #[schemars(example = &["10.20.0.53"])]
    root_servers: Vec<String>,
    /// Port on which all name servers are asked. Another port than 53 is for tests.
    name_server_port: u16,
    /// Ask name servers whose addresses are not public, such as those of a closed network. Every user
    /// who may add a domain can then send DNS queries there.
    allow_private_nameservers: bool,
    /// For each cluster domain a zone for the challenges of domains that are validated in the DNS, such
    /// as wildcards: owners of domains delegate `_acme-challenge` to a name in it. The engines of the
    /// cluster answer for it (`certs.acme.dns_responder.zone`) or change it (`dns_update`,
    /// `dns_program`).
    challenge_zones: BTreeMap<String, String>,
}

impl Default for DomainsSection {
    fn default() -> Self {
        Self {
            root_servers: Vec::new(),
            name_server_port: 53,
            allow_private_nameservers: false,
            challenge_zones: BTreeMap::new(),
        }
    }
}

impl DomainsSection {
    /// Checks the section. `clusters` are the cluster domains of the engines, as they are written.
    pub(crate) fn check(self, clusters: &[String]) -> Result<DomainsConfig, ConfigError> {
        if self.name_server_port == 0 {
            let message = "expected a port from 1 to 65535";
            return Err(ConfigError::new("domains.name_server_port", message));
        }
        if self.root_servers.len() > MAX_ROOT_SERVERS {
            let message = format!("expected at most {MAX_ROOT_SERVERS} addresses");
            return Err(ConfigError::new("domains.root_servers", message));
        }
        let given = self.root_servers.iter().enumerate();
        let given = given.map(|(index, value)| {
            value.parse::<IpAddr>().map_err(|_| {
                let key = format!("domains.root_servers.{index}");
                ConfigError::new(key, format!("{value:?} is not an IP address"))
            })
        });
        let given: Vec<IpAddr> = given.collect::<Result<_, _>>()?;
        let root_servers = if given.is_empty() {
            ROOT_SERVERS.to_vec()
        } else {
            given
        };
        let mut challenge_zones = BTreeMap::new();
        for (written, zone) in self.challenge_zones {
            let key = format!("domains.challenge_zones.{written}");
            let cluster = normalized(&written);
            if !clusters
                .iter()
                .any(|known| known.eq_ignore_ascii_case(&cluster))
            {
                let message = "no engine has this `cluster_domain`; correct the name, or add the \
                               cluster to `engines`";
                return Err(ConfigError::new(key, message));
            }
            let zone = zone.trim_end_matches('.').to_ascii_lowercase();
            if zone.len() > MAX_ZONE_BYTES || !zone.split('.').all(is_label) {
                let message = format!("expected a zone of at most {MAX_ZONE_BYTES} bytes");
                return Err(ConfigError::new(key, message));
            }
            if challenge_zones.insert(cluster, zone).is_some() {
                let message = "the cluster is listed twice; remove one of the entries";
                return Err(ConfigError::new(key, message));
            }
        }
        Ok(DomainsConfig {
            root_servers,
            name_server_port: self.name_server_port,
            allow_private_nameservers: self.allow_private_nameservers,
            challenge_zones,
        })
    }
}

/// A cluster domain as the configuration of the engines has it.
fn normalized(written: &str) -> String {
    let name = written.strip_suffix('.').unwrap_or(written);
    name.to_ascii_lowercase()
}

/// True for a label of letters, digits, dashes and underscores. A zone is not a host, so that it
/// may be below `_acme-challenge`.
fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_LABEL_BYTES).contains(&label.len()) && label.bytes().all(is_allowed)
}

impl Default for DomainsConfig {
    fn default() -> Self {
        Self {
            root_servers: ROOT_SERVERS.to_vec(),
            name_server_port: 53,
            allow_private_nameservers: false,
            challenge_zones: BTreeMap::new(),
        }
    }
}

impl DomainsConfig {
    /// The name to which the owner of a domain delegates `_acme-challenge`. `None` if the cluster has
    /// no zone for it. It depends on the project and on the name without `*.`: a name and its wildcard
    /// have one record there, which can have only one target. Each project has another one.
    pub(crate) fn challenge_alias(
        &self,
        cluster: &str,
        project: ProjectId,
        hostname: &str,
    ) -> Option<String> {
        let zone = self.challenge_zones.get(cluster)?;
        let base = hostname.strip_prefix("*.").unwrap_or(hostname);
        let owner = format!("{project} {base}");
        let digest = digest::digest(&digest::SHA256, owner.as_bytes());
        let mut label = BASE32_NOPAD.encode(digest.as_ref()).to_ascii_lowercase();
        label.truncate(ALIAS_LABEL_BYTES);
        Some(format!("{label}.{zone}"))
    }

    /// The address of a name server.
    pub(super) fn at(&self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(ip, self.name_server_port)
    }
}

/// RFC 1035 section 2.3.4.
const MAX_LABEL_BYTES: usize = 63;

/// 130 bits of a hash, so that no two names of projects have the same label.
const ALIAS_LABEL_BYTES: usize = 26;

/// A name has 253 bytes (RFC 1035 section 2.3.4), of which the label of a domain takes 27.
const MAX_ZONE_BYTES: usize = 226;

/// As many as the Internet has.
const MAX_ROOT_SERVERS: usize = 26;

/// Root servers of the Internet, by different operators (<https://www.iana.org/domains/root/servers>).
/// One response of one of them is sufficient.
const ROOT_SERVERS: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 5, 5, 241)),
    IpAddr::V4(Ipv4Addr::new(199, 7, 83, 42)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x500, 0x2f, 0, 0, 0, 0, 0xf)),
    IpAddr::V4(Ipv4Addr::new(192, 36, 148, 17)),
    IpAddr::V4(Ipv4Addr::new(192, 58, 128, 30)),
];

#[cfg(test)]
mod tests {
    use types::network::is_public;

    use super::*;

    fn clusters() -> Vec<String> {
        vec!["Engine.example".to_owned()]
    }

    #[test]
    fn the_root_servers_of_the_internet_are_the_default() {
        let config = DomainsSection::default().check(&[]).unwrap();
        assert_eq!(config.root_servers, ROOT_SERVERS);
        assert!(ROOT_SERVERS.into_iter().all(is_public));
        assert_eq!(config.name_server_port, 53);
        assert!(!config.allow_private_nameservers);
    }

    #[test]
    fn errors_name_the_key() {
        let section = DomainsSection {
            root_servers: vec!["10.0.0.1".to_owned(), "ns.example".to_owned()],
            ..DomainsSection::default()
        };
        let error = section.check(&clusters()).unwrap_err().to_string();
        assert!(error.contains("domains.root_servers.1"), "{error}");
        let section = DomainsSection {
            name_server_port: 0,
            ..DomainsSection::default()
        };
        let error = section.check(&clusters()).unwrap_err().to_string();
        assert!(error.contains("domains.name_server_port"), "{error}");
        let long = format!("{}example", "a.".repeat(115));
        for zone in ["a b", "", long.as_str()] {
            let zones = [("engine.example".to_owned(), zone.to_owned())];
            let section = DomainsSection {
                challenge_zones: zones.into(),
                ..DomainsSection::default()
            };
            let error = section.check(&clusters()).unwrap_err().to_string();
            let key = "domains.challenge_zones.engine.example";
            assert!(error.contains(key), "{error}");
        }
        let own = "_acme-challenge.engine.example";
        let zones = [("engine.example".to_owned(), format!("{own}."))];
        let section = DomainsSection {
            challenge_zones: zones.into(),
            ..DomainsSection::default()
        };
        let config = section.check(&clusters()).unwrap();
        let project = ProjectId::new(1, [1; 10]);
        let alias = config.challenge_alias("engine.example", project, "a.example.com");
        assert!(alias.unwrap().ends_with(&format!(".{own}")));
        let other = config.challenge_alias("other.example", project, "a.example.com");
        assert_eq!(other, None);
    }

    /// The record `_acme-challenge.a.example.com` of both can have only one target.
    #[test]
    fn a_name_and_its_wildcard_of_one_project_have_one_alias() {
        let zones = [("engine.example".to_owned(), "acme.example.net".to_owned())];
        let section = DomainsSection {
            challenge_zones: zones.into(),
            ..DomainsSection::default()
        };
        let config = section.check(&clusters()).unwrap();
        let (one, other) = (ProjectId::new(1, [1; 10]), ProjectId::new(1, [2; 10]));
        let alias = |project, name| {
            let alias = config.challenge_alias("engine.example", project, name);
            alias.unwrap()
        };
        let label = alias(one, "a.example.com");
        let label = label.strip_suffix(".acme.example.net").unwrap();
        assert_eq!(label.len(), ALIAS_LABEL_BYTES);
        assert!(is_label(label), "{label}");
        assert_eq!(alias(one, "*.a.example.com"), alias(one, "a.example.com"));
        assert_ne!(alias(other, "a.example.com"), alias(one, "a.example.com"));
        assert_ne!(alias(one, "b.example.com"), alias(one, "a.example.com"));
    }

    #[test]
    fn zones_are_for_clusters_of_the_configuration_in_any_case() {
        let check = |written: &[&str]| {
            let zone = |name: &&str| ((*name).to_owned(), "acme.example.net".to_owned());
            let section = DomainsSection {
                challenge_zones: written.iter().map(zone).collect(),
                ..DomainsSection::default()
            };
            section.check(&clusters())
        };
        for written in ["engine.example", "ENGINE.example", "engine.example."] {
            let zones = check(&[written]).unwrap().challenge_zones;
            assert!(zones.contains_key("engine.example"), "{written}");
        }
        let error = check(&["other.example"]).unwrap_err().to_string();
        assert!(
            error.contains("domains.challenge_zones.other.example"),
            "{error}"
        );
        assert!(error.contains("`engines`"), "{error}");
        let error = check(&["engine.example", "engine.example."]).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}
