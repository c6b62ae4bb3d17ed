//! The way from the root to the authoritative name servers of a name, and their answers.
//!
//! Delegations are followed without any cache but that of one walk. Time, number of queries and
//! depth are limited, because the zones belong to users.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::task::JoinSet;
use types::domain_name::registered_name;

use super::exchange::{self, ExchangeError};
use crate::domains::section::DomainsConfig;
use crate::webhooks::Targets;

/// Answer of one authoritative name server.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::domains) enum NameServerAnswer {
    /// Records of the requested type.
    Records(Vec<RData>),
    /// The name is an alias of another one.
    Alias(Name),
    /// The name has no such record, or does not exist.
    Nothing,
}

/// Answer of each authoritative name server of a zone that responded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::domains) struct Answers(pub(in crate::domains) Vec<(String, NameServerAnswer)>);

/// The authoritative name servers could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::domains) enum WalkError {
    /// No name server of a zone responded usefully.
    #[error("no name server of the zone {zone} gave a usable response for {name}")]
    Unreachable {
        /// The zone.
        zone: String,
        /// The name that was looked up.
        name: String,
    },
    /// No server at which the resolution starts responded usefully.
    #[error(
        "no delegation of {name} was found, because none of the root servers gave a usable response; \
         the operator of the platform can check its access to the DNS (`domains.root_servers`)"
    )]
    RootUnreachable {
        /// The name that was looked up.
        name: String,
    },
    /// A zone has only name servers without an address.
    #[error(
        "the name servers of the zone {zone} have no address; correct them at the registrar of the \
         domain"
    )]
    NoAddress {
        /// The zone.
        zone: String,
    },
    /// The name servers of a zone have addresses that may not be asked.
    #[error(
        "the name servers of the zone {zone} have no public address; correct their addresses, or, in a \
         closed network, have the operator of the platform set `domains.allow_private_nameservers`"
    )]
    PrivateServers {
        /// The zone.
        zone: String,
    },
    /// The name servers of a zone delegate the name differently.
    #[error(
        "the name servers of the zone {zone} do not agree on a delegation; enter the same NS records at \
         all of them"
    )]
    Inconsistent {
        /// The zone.
        zone: String,
    },
    /// The name needs too many queries.
    #[error(
        "the delegation of the name needs more than {} queries; use fewer name servers, whose names are \
         in the zone itself",
        MAX_QUERIES
    )]
    TooManyQueries,
    /// The name servers took too long.
    #[error("the name servers did not respond within {} seconds", LIMIT.as_secs())]
    Timeout,
    /// The platform is checking too many domains.
    #[error("too many domains are being checked at this moment")]
    Busy,
}

impl WalkError {
    /// True if only the name servers of some zone are at fault, so that another name may be
    /// resolved.
    pub(in crate::domains) fn is_of_zone(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::RootUnreachable { .. }
                | Self::NoAddress { .. }
                | Self::PrivateServers { .. }
                | Self::Inconsistent { .. }
        )
    }
}

/// A zone with its name servers.
#[derive(Clone, Debug)]
struct Zone {
    name: Name,
    servers: Vec<Server>,
}

#[derive(Clone, Debug)]
struct Server {
    name: String,
    /// At least one address.
    addresses: Vec<SocketAddr>,
}

/// Resolution for one check of a domain.
#[derive(Debug)]
pub(in crate::domains) struct Walk<'a> {
    config: &'a DomainsConfig,
    targets: &'a Targets,
    queries: u32,
    /// True if a name server has given a usable response.
    has_response: bool,
    /// Zones that were found, the root first.
    zones: Vec<Zone>,
}

/// Resolution of a name server, which may need that of others.
type AddressesFuture<'w> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, WalkError>> + Send + 'w>>;

/// A response, as far as it matters for the walk.
enum WalkStep {
    Authoritative(NameServerAnswer),
    Referral(Delegation),
}

/// The responses of the servers of a zone together.
enum ZoneStep {
    Authoritative(Answers),
    Referral(Delegation),
}

/// A delegated zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Delegation {
    name: Name,
    /// Its servers in the order of their names, with the addresses that the parent zone has.
    servers: Vec<(Name, Vec<IpAddr>)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(config: &'a DomainsConfig, targets: &'a Targets) -> Self {
        let root = config.root_servers.iter().map(|ip| Server {
            name: ip.to_string(),
            addresses: vec![config.at(*ip)],
        });
        let root = Zone {
            name: Name::root(),
            servers: root.collect(),
        };
        Self {
            config,
            targets,
            queries: 0,
            has_response: false,
            zones: vec![root],
        }
    }

    /// True if a name server, such as one of the root, has given a usable response.
    pub(in crate::domains) fn has_response(&self) -> bool {
        self.has_response
    }

    /// Asks all authoritative name servers of a name, at most [`MAX_SERVERS`]. At least one answer
    /// is returned.
    pub(in crate::domains) async fn answers(
        &mut self,
        name: &Name,
        kind: RecordType,
    ) -> Result<Answers, WalkError> {
        self.descend(name, kind, 0).await
    }

    /// The answers of the servers that are authoritative for the name.
    async fn descend(
        &mut self,
        name: &Name,
        kind: RecordType,
        depth: u32,
    ) -> Result<Answers, WalkError> {
        let mut zone = self.closest(name);
        for _ in 0..MAX_REFERRALS {
            match self.step(&zone, name, kind).await? {
                ZoneStep::Authoritative(answers) => return Ok(answers),
                ZoneStep::Referral(delegation) => {
                    zone = self.delegated(delegation, depth).await?;
                    self.zones.push(zone.clone());
                }
            }
        }
        Err(no_response(&zone.name, name))
    }

    /// The zone with which the way to a name ended, if the domain that its owner has registered is
    /// further down: the domain is not registered, or it is not delegated.
    pub(in crate::domains) fn end_above_registered_domain(&self, name: &Name) -> Option<String> {
        let zone = self.closest(name).name;
        let host = text(name);
        let registered = registered_name(&host).split('.').count();
        (usize::from(zone.num_labels()) < registered).then(|| text(&zone))
    }

    /// The next step at a zone. One response is sufficient from the root or a top-level domain. The
    /// servers of all other zones must agree on a delegation, or one of them, for example a
    /// forgotten one that another party could take over, would lead the walk to servers of its
    /// choice.
    async fn step(
        &mut self,
        zone: &Zone,
        name: &Name,
        kind: RecordType,
    ) -> Result<ZoneStep, WalkError> {
        if zone.name.num_labels() < 2
            && let WalkStep::Referral(delegation) = self.first(zone, name, kind).await?
        {
            return Ok(ZoneStep::Referral(delegation));
        }
        let mut answers = Vec::new();
        let mut delegations = Vec::new();
        for (server, step) in self.all(zone, name, kind).await? {
            match step {
                WalkStep::Authoritative(answer) => answers.push((server, answer)),
                WalkStep::Referral(delegation) => delegations.push(delegation),
            }
        }
        match (delegations.pop(), answers.is_empty()) {
            (None, true) => Err(no_response(&zone.name, name)),
            (None, false) => Ok(ZoneStep::Authoritative(Answers(answers))),
            (Some(one), true) if delegations.iter().all(|other| *other == one) => {
                Ok(ZoneStep::Referral(one))
            }
            (Some(_), _) => Err(WalkError::Inconsistent {
                zone: text(&zone.name),
            }),
        }
    }

    /// The usable responses of all servers of a zone, in the order of the servers.
    async fn all(
        &mut self,
        zone: &Zone,
        name: &Name,
        kind: RecordType,
    ) -> Result<Vec<(String, WalkStep)>, WalkError> {
        let mut requested = JoinSet::new();
        let servers = zone.servers.iter().take(MAX_SERVERS);
        for (index, server) in servers.cloned().enumerate() {
            self.count()?;
            let (question, zone) = (name.clone(), zone.name.clone());
            requested.spawn(async move {
                let step = ask(&server, &zone, &question, kind).await;
                (index, server.name, step)
            });
        }
        let mut found = Vec::new();
        while let Some(ended) = requested.join_next().await {
            if let Ok((index, server, Some(step))) = ended {
                found.push((index, server, step));
            }
        }
        self.has_response |= !found.is_empty();
        found.sort_by_key(|(index, ..)| *index);
        let found = found.into_iter();
        Ok(found.map(|(_, server, step)| (server, step)).collect())
    }

    /// The known zone that is closest to the name.
    fn closest(&self, name: &Name) -> Zone {
        let known = self.zones.iter().filter(|zone| zone.name.zone_of(name));
        let closest = known.max_by_key(|zone| zone.name.num_labels());
        closest.cloned().unwrap_or_else(|| Zone {
            name: Name::root(),
            servers: Vec::new(),
        })
    }

    /// The first usable response of a server of the zone.
    async fn first(
        &mut self,
        zone: &Zone,
        name: &Name,
        kind: RecordType,
    ) -> Result<WalkStep, WalkError> {
        for server in zone.servers.iter().take(MAX_SERVERS) {
            self.count()?;
            if let Some(step) = ask(server, &zone.name, name, kind).await {
                self.has_response = true;
                return Ok(step);
            }
        }
        Err(no_response(&zone.name, name))
    }

    /// A delegated zone with the addresses of its servers.
    async fn delegated(&mut self, delegation: Delegation, depth: u32) -> Result<Zone, WalkError> {
        let Delegation {
            name,
            servers: listed,
        } = delegation;
        let mut servers = Vec::new();
        let mut is_private = false;
        for (server, glue) in listed.into_iter().take(MAX_SERVERS) {
            let addresses = if glue.is_empty() {
                self.addresses_of(&server, depth + 1).await?
            } else {
                glue
            };
            is_private |= !addresses.is_empty();
            let permitted = addresses.iter().filter(|ip| self.targets.permits(**ip));
            let addresses: Vec<_> = permitted
                .take(MAX_ADDRESSES)
                .map(|ip| self.config.at(*ip))
                .collect();
            if !addresses.is_empty() {
                servers.push(Server {
                    name: text(&server),
                    addresses,
                });
            }
        }
        if servers.is_empty() {
            let zone = text(&name);
            return Err(if is_private {
                WalkError::PrivateServers { zone }
            } else {
                WalkError::NoAddress { zone }
            });
        }
        Ok(Zone { name, servers })
    }

    /// Addresses of a name server without glue. A failure is an empty list, because the zone may
    /// have other servers.
    fn addresses_of<'w>(&'w mut self, server: &'w Name, depth: u32) -> AddressesFuture<'w> {
        Box::pin(async move {
            if depth > MAX_DEPTH {
                return Ok(Vec::new());
            }
            for kind in [RecordType::A, RecordType::AAAA] {
                match self.descend(server, kind, depth).await {
                    Ok(answers) => {
                        let addresses = common_addresses(&answers);
                        if !addresses.is_empty() {
                            return Ok(addresses);
                        }
                    }
                    Err(error) if error.is_of_zone() => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(Vec::new())
        })
    }

    fn count(&mut self) -> Result<(), WalkError> {
        if self.queries >= MAX_QUERIES {
            return Err(WalkError::TooManyQueries);
        }
        self.queries += 1;
        Ok(())
    }
}

/// Asks a server at its addresses, until one of them gives a usable response.
async fn ask(server: &Server, zone: &Name, name: &Name, kind: RecordType) -> Option<WalkStep> {
    for address in &server.addresses {
        match exchange::ask(*address, name, kind).await {
            Ok(response) => {
                if let Some(step) = interpret(&response, zone, name, kind) {
                    return Some(step);
                }
            }
            Err(error) => log(&server.name, &error),
        }
    }
    None
}

fn log(server: &str, error: &ExchangeError) {
    tracing::debug!(
        server,
        error = error as &dyn std::error::Error,
        "a name server could not be asked"
    );
}

/// The meaning of a response of a server of `zone`; `None` if the server is not authoritative and
/// does not refer to one that is closer to the name.
fn interpret(response: &Message, zone: &Name, name: &Name, kind: RecordType) -> Option<WalkStep> {
    let code = response.metadata.response_code;
    if code != ResponseCode::NoError && code != ResponseCode::NXDomain {
        return None;
    }
    if response.metadata.authoritative {
        return Some(WalkStep::Authoritative(answer(response, name, kind)));
    }
    referral(response, zone, name)
}

fn answer(response: &Message, name: &Name, kind: RecordType) -> NameServerAnswer {
    let own = response
        .answers
        .iter()
        .filter(|record| record.name == *name)
        .map(|record| &record.data);
    let records: Vec<_> = own
        .clone()
        .filter(|data| data.record_type() == kind)
        .take(MAX_RECORDS)
        .cloned()
        .collect();
    if !records.is_empty() {
        return NameServerAnswer::Records(records);
    }
    let alias = own.clone().find_map(|data| match data {
        RData::CNAME(target) => Some(target.0.clone()),
        _ => None,
    });
    alias.map_or(NameServerAnswer::Nothing, NameServerAnswer::Alias)
}

/// The delegation in a response. It must lead closer to the name, so that a walk ends. Addresses
/// are only taken for servers within the zone that gave them.
fn referral(response: &Message, zone: &Name, name: &Name) -> Option<WalkStep> {
    let is_closer = |child: &Name| {
        zone.zone_of(child) && child.zone_of(name) && child.num_labels() > zone.num_labels()
    };
    let records = response.authorities.iter();
    let mut delegations = records.filter_map(|record| match &record.data {
        RData::NS(server) if is_closer(&record.name) => Some((&record.name, &server.0)),
        _ => None,
    });
    let (child, first) = delegations.next()?;
    let mut servers = vec![first];
    servers.extend(
        delegations
            .filter(|(owner, _)| *owner == child)
            .map(|(_, server)| server),
    );
    // Servers rotate their records.
    servers.sort_unstable();
    servers.dedup();
    let glue = |server: &Name| {
        let records = response.additionals.iter();
        let own = records.filter(|record| record.name == *server && zone.zone_of(server));
        let own: Vec<_> = own.map(|record| record.data.clone()).collect();
        addresses(&own)
    };
    let servers = servers
        .into_iter()
        .take(MAX_SERVERS)
        .map(|server| (server.clone(), glue(server)))
        .collect();
    Some(WalkStep::Referral(Delegation {
        name: child.clone(),
        servers,
    }))
}

/// The addresses that all servers have. None if the servers do not agree.
fn common_addresses(answers: &Answers) -> Vec<IpAddr> {
    let mut all = answers.0.iter().map(|(_, answer)| match answer {
        NameServerAnswer::Records(records) => addresses(records),
        NameServerAnswer::Alias(_) | NameServerAnswer::Nothing => Vec::new(),
    });
    let first = all.next().unwrap_or_default();
    if all.all(|other| other == first) {
        first
    } else {
        Vec::new()
    }
}

/// The addresses of records, IPv4 first.
pub(in crate::domains) fn addresses(records: &[RData]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = records
        .iter()
        .filter_map(|data| match data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// A name without the trailing dot, in lower case.
pub(in crate::domains) fn text(name: &Name) -> String {
    let text = name.to_lowercase().to_ascii();
    match text.strip_suffix('.') {
        Some("") | None => text,
        Some(name) => name.to_owned(),
    }
}

fn no_response(zone: &Name, name: &Name) -> WalkError {
    let name = text(name);
    if zone.is_root() {
        return WalkError::RootUnreachable { name };
    }
    let zone = text(zone);
    WalkError::Unreachable { zone, name }
}

/// Time limit of all queries of one check.
pub(in crate::domains) const LIMIT: Duration = Duration::from_secs(10);

/// Queries of one check. Six name servers without glue, in different zones, need half of them.
const MAX_QUERIES: u32 = 200;

/// Name servers of a zone that are asked. Registries allow up to 13, and few zones have more than
/// this.
const MAX_SERVERS: usize = 6;

/// Addresses of a server: one of each family.
const MAX_ADDRESSES: usize = 2;

/// Delegations from the root to a name. Names with more zone cuts than this do not occur.
const MAX_REFERRALS: usize = 12;

/// Names of name servers that need the addresses of other name servers.
const MAX_DEPTH: u32 = 3;

/// Records of one answer. Several projects and other services may have records at the same name.
const MAX_RECORDS: usize = 32;
