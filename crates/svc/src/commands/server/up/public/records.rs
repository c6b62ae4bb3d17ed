//! The DNS records of a public server: which ones are needed, and which changes are missing. The
//! answers of name servers are an argument, so nothing is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// A server, as far as its records depend on it.
#[derive(Clone, Debug)]
pub(super) struct WantedRecords {
    /// The engine's host.
    pub(super) host: String,
    /// All addresses of the server.
    pub(super) addresses: Vec<IpAddr>,
    /// Records for `dns-01`.
    pub(super) challenges: ChallengeRecords,
    /// The name of the authority in CAA records, if it is known.
    pub(super) authority: Option<&'static str>,
    /// URLs of the accounts at the authority, as far as they exist: each part has one.
    pub(super) accounts: Vec<String>,
    /// The validations of its orders.
    pub(super) validations: OrderValidations,
}

/// The validations with which an authority checks the orders of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderValidations {
    /// The one of hosts that is tried first.
    pub(super) host: &'static str,
    /// True if there are wildcards, which are validated with `dns-01`.
    pub(super) has_wildcards: bool,
}

impl OrderValidations {
    /// Those of a public server.
    pub(super) const PUBLIC: Self = Self {
        host: "tls-alpn-01",
        has_wildcards: true,
    };
}

/// Records with which name servers find the answers to `dns-01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChallengeRecords {
    /// Each `_acme-challenge.NAME` is delegated to the engine.
    Delegation,
    /// This zone is delegated to the engine, and each `_acme-challenge.NAME` points to `NAME.ZONE`.
    Alias(String),
    /// None: a program or another name server has the answers.
    Elsewhere,
}

/// Type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecordKind {
    A,
    Aaaa,
    Ns,
    Cname,
    Caa,
}

/// A record, as it is entered at a DNS provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DnsRecord {
    name: String,
    kind: RecordKind,
    value: String,
}

/// A change without which the server does not work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecordChange {
    /// This record is missing.
    Add(DnsRecord),
    /// This record leads visitors or the authority elsewhere.
    Remove(DnsRecord),
    /// The name servers did not answer, or the answer cannot be corrected by one record.
    Clarify {
        /// Name of the records.
        name: String,
        /// Cause.
        reason: String,
    },
}

/// The records at the name of a challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delegation {
    /// Name servers, in lower case and without a dot at the end.
    pub(super) servers: Vec<String>,
    /// Target of an alias.
    pub(super) alias: Option<String>,
}

/// A property of a CAA record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CaaProperty {
    pub(super) tag: String,
    pub(super) value: String,
}

/// The answer of name servers, or the reason why there is none.
pub(super) type DnsAnswer<T> = Result<T, String>;

/// The answers for the names of [`WantedRecords::address_names`] and
/// [`WantedRecords::delegated_names`].
#[derive(Clone, Debug, Default)]
pub(super) struct RecordAnswers {
    pub(super) addresses: BTreeMap<String, DnsAnswer<Vec<IpAddr>>>,
    pub(super) delegations: BTreeMap<String, DnsAnswer<Delegation>>,
    /// The CAA records that apply to the host, and the name that has them.
    pub(super) caa: Option<(String, Vec<CaaProperty>)>,
}

impl WantedRecords {
    /// Names whose addresses lead to the server. A name below a wildcard stands for all of them.
    pub(super) fn address_names(&self) -> Vec<String> {
        let rows = self.address_rows().into_iter();
        rows.flat_map(|(_, probes)| probes).collect()
    }

    /// The name of each record, with the names that it must answer for.
    fn address_rows(&self) -> [(String, Vec<String>); 3] {
        let host = &self.host;
        let below = |label: &str| format!("{label}.{host}");
        [
            (host.clone(), vec![host.clone()]),
            (
                below("*"),
                vec![below("platform"), below("turn"), below(PROBE)],
            ),
            (below("*.t"), vec![below(&format!("{PROBE}.t"))]),
        ]
    }

    /// Names that are delegated, or point to a zone that is.
    pub(super) fn delegated_names(&self) -> Vec<String> {
        match &self.challenges {
            ChallengeRecords::Elsewhere => Vec::new(),
            ChallengeRecords::Delegation => self.challenge_names().to_vec(),
            ChallengeRecords::Alias(zone) => {
                let mut names = vec![zone.clone()];
                names.extend(self.challenge_names());
                names
            }
        }
    }

    fn challenge_names(&self) -> [String; 2] {
        let host = &self.host;
        [
            format!("_acme-challenge.{host}"),
            format!("_acme-challenge.t.{host}"),
        ]
    }

    /// The changes that are missing, in the order of the records; none if everything is right.
    pub(super) fn changes(&self, answers: &RecordAnswers) -> Vec<RecordChange> {
        let mut changes = Vec::new();
        for (record, probes) in self.address_rows() {
            for probe in probes {
                self.check_addresses(&record, &probe, answers, &mut changes);
            }
        }
        for name in self.delegated_names() {
            self.check_delegation(&name, answers, &mut changes);
        }
        if let Some((name, properties)) = &answers.caa {
            self.check_caa(name, properties, &mut changes);
        }
        let mut seen = BTreeSet::new();
        changes.retain(|change| seen.insert(change.clone()));
        changes
    }

    fn check_addresses(
        &self,
        record: &str,
        probe: &str,
        answers: &RecordAnswers,
        changes: &mut Vec<RecordChange>,
    ) {
        let found = match answers.addresses.get(probe) {
            Some(Ok(found)) => found.as_slice(),
            Some(Err(reason)) => {
                changes.push(RecordChange::clarify(record, reason));
                return;
            }
            None => &[],
        };
        let missing = self.addresses.iter().filter(|ip| !found.contains(ip));
        changes.extend(missing.map(|ip| RecordChange::Add(DnsRecord::address(record, *ip))));
        let foreign = found.iter().filter(|ip| !self.addresses.contains(ip));
        // An address of every name below the wildcard is one of the wildcard's own record.
        let of_wildcard = record.replacen('*', PROBE, 1);
        let of_all = match answers.addresses.get(&of_wildcard) {
            Some(Ok(of_all)) => of_all.as_slice(),
            _ => &[],
        };
        changes.extend(foreign.map(|ip| {
            let name = if of_all.contains(ip) { record } else { probe };
            RecordChange::Remove(DnsRecord::address(name, *ip))
        }));
    }

    fn check_delegation(
        &self,
        name: &str,
        answers: &RecordAnswers,
        changes: &mut Vec<RecordChange>,
    ) {
        let found = match answers.delegations.get(name) {
            Some(Ok(found)) => found.clone(),
            Some(Err(reason)) => {
                changes.push(RecordChange::clarify(name, reason));
                return;
            }
            None => Delegation::default(),
        };
        let wanted = self.delegation_record(name);
        let is_alias = wanted.kind == RecordKind::Cname;
        let present = match (&found.alias, is_alias) {
            (Some(alias), true) => vec![alias.clone()],
            (Some(alias), false) => {
                changes.push(RecordChange::Remove(DnsRecord::new(
                    name,
                    RecordKind::Cname,
                    format!("{alias}."),
                )));
                found.servers
            }
            (None, true) => Vec::new(),
            (None, false) => found.servers,
        };
        let target = wanted.value.trim_end_matches('.');
        let foreign = present.iter().filter(|value| *value != target);
        changes.extend(foreign.map(|value| {
            RecordChange::Remove(DnsRecord::new(name, wanted.kind, format!("{value}.")))
        }));
        if !present.iter().any(|value| value == target) {
            changes.push(RecordChange::Add(wanted));
        }
    }

    /// The record at one of the [`delegated_names`](Self::delegated_names).
    fn delegation_record(&self, name: &str) -> DnsRecord {
        let delegated = || DnsRecord::new(name, RecordKind::Ns, format!("{}.", self.host));
        match (&self.challenges, name.strip_prefix("_acme-challenge.")) {
            (ChallengeRecords::Alias(zone), Some(rest)) if name != zone => {
                DnsRecord::new(name, RecordKind::Cname, format!("{rest}.{zone}."))
            }
            _ => delegated(),
        }
    }

    /// The changes without which the CAA records forbid an order.
    pub(super) fn caa_changes(&self, name: &str, properties: &[CaaProperty]) -> Vec<RecordChange> {
        let mut changes = Vec::new();
        self.check_caa(name, properties, &mut changes);
        changes
    }

    /// True if only named accounts may order certificates (RFC 8657).
    pub(super) fn is_restricted(properties: &[CaaProperty]) -> bool {
        let issue = with_tag(properties, "issue");
        !issue.is_empty() && issue.iter().all(|property| property.account().is_some())
    }

    /// Checks that the authority may issue for the host and for wildcards below it (RFC 8659).
    fn check_caa(&self, name: &str, properties: &[CaaProperty], changes: &mut Vec<RecordChange>) {
        let Some(authority) = self.authority else {
            return;
        };
        for tag in ["issue", "issuewild"] {
            let relevant = with_tag(properties, tag);
            let is_unused = tag == "issuewild" && !self.validations.has_wildcards;
            if relevant.is_empty() || is_unused {
                continue;
            }
            let of_authority = relevant
                .iter()
                .filter(|property| property.issuer() == authority);
            let of_authority: Vec<_> = of_authority.copied().collect();
            let methods = self.validations.needed(properties, tag);
            let usable = of_authority
                .iter()
                .filter(|property| methods.iter().all(|method| property.permits(method)));
            let usable: Vec<_> = usable.map(|property| property.account()).collect();
            if self.is_allowed(tag, &usable) {
                continue;
            }
            let accounts: Vec<_> = of_authority.iter().map(|found| found.account()).collect();
            changes.push(if of_authority.is_empty() {
                RecordChange::Add(DnsRecord::new(
                    name,
                    RecordKind::Caa,
                    format!("0 {tag} \"{authority}\""),
                ))
            } else if self.is_allowed(tag, &accounts) {
                let methods = methods.join(",");
                RecordChange::clarify(
                    name,
                    &format!(
                        "its CAA records ({tag}) of {authority} do not allow the validations of \
                         this server; add {methods} to validationmethods, or remove it"
                    ),
                )
            } else {
                let account = accounts.into_iter().flatten().next().unwrap_or_default();
                RecordChange::clarify(
                    name,
                    &format!(
                        "its CAA records allow only the account {account} of {authority}; allow \
                         every account of this server, or remove accounturi"
                    ),
                )
            });
        }
    }

    /// True if records with these accounts allow every order of this server. `None` is any account.
    fn is_allowed(&self, tag: &str, accounts: &[Option<&str>]) -> bool {
        let is_listed = |own: &String| accounts.contains(&Some(own.as_str()));
        accounts.contains(&None)
            || match tag {
                // Only the engine has wildcards.
                "issuewild" => self.accounts.iter().any(is_listed),
                _ => !self.accounts.is_empty() && self.accounts.iter().all(is_listed),
            }
    }

    /// The CAA records that allow only the accounts of this server (RFC 8657). None if the
    /// authority's name is not known.
    pub(super) fn suggestions(&self) -> Vec<DnsRecord> {
        let authority = self.authority.into_iter();
        let pairs = authority.flat_map(|name| self.accounts.iter().map(move |own| (name, own)));
        let records = pairs.map(|(name, account)| {
            let value = format!("0 issue \"{name}; accounturi={account}\"");
            DnsRecord::new(&self.host, RecordKind::Caa, value)
        });
        records.collect()
    }
}

impl OrderValidations {
    /// The validations of the orders to which records with this tag apply (RFC 8657). Without
    /// records for wildcards, those for hosts apply to both.
    fn needed(self, properties: &[CaaProperty], tag: &str) -> Vec<&'static str> {
        if tag == "issuewild" {
            return vec![WILDCARD_VALIDATION];
        }
        let mut needed = vec![self.host];
        let is_for_both = with_tag(properties, "issuewild").is_empty();
        if self.has_wildcards && is_for_both && self.host != WILDCARD_VALIDATION {
            needed.push(WILDCARD_VALIDATION);
        }
        needed
    }
}

/// Authorities issue wildcards after no other validation.
const WILDCARD_VALIDATION: &str = "dns-01";

fn with_tag<'a>(properties: &'a [CaaProperty], tag: &str) -> Vec<&'a CaaProperty> {
    let properties = properties.iter();
    properties
        .filter(|property| property.tag.eq_ignore_ascii_case(tag))
        .collect()
}

impl CaaProperty {
    /// The name of the authority; empty if no authority may issue.
    fn issuer(&self) -> &str {
        let name = self.value.split(';').next().unwrap_or_default();
        name.trim()
    }

    /// The only account that may order, if there is one.
    fn account(&self) -> Option<&str> {
        self.parameter("accounturi")
    }

    /// True if the authority may use this validation.
    fn permits(&self, method: &str) -> bool {
        let methods = self.parameter("validationmethods");
        methods.is_none_or(|list| list.split(',').any(|listed| listed.trim() == method))
    }

    /// The value of a parameter. White space may surround its parts (RFC 8659 section 4.2).
    fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.value.split(';').skip(1);
        parameters.find_map(|parameter| {
            let (found, value) = parameter.split_once('=')?;
            found
                .trim()
                .eq_ignore_ascii_case(name)
                .then(|| value.trim())
        })
    }
}

impl DnsRecord {
    fn new(name: &str, kind: RecordKind, value: String) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            value,
        }
    }

    fn address(name: &str, ip: IpAddr) -> Self {
        let kind = match ip {
            IpAddr::V4(_) => RecordKind::A,
            IpAddr::V6(_) => RecordKind::Aaaa,
        };
        Self::new(name, kind, ip.to_string())
    }
}

impl RecordChange {
    /// True if a name has an address that is not one of this server.
    pub(super) fn is_foreign_address(&self) -> bool {
        matches!(
            self,
            Self::Remove(DnsRecord {
                kind: RecordKind::A | RecordKind::Aaaa,
                ..
            })
        )
    }

    fn clarify(name: &str, reason: &str) -> Self {
        Self::Clarify {
            name: name.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Ns => "NS",
            Self::Cname => "CNAME",
            Self::Caa => "CAA",
        })
    }
}

/// A line of a zone file.
impl fmt::Display for DnsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, value } = self;
        let name = format!("{name}.");
        write!(f, "{name:<40} {kind:<5} {value}")
    }
}

impl fmt::Display for RecordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(record) => write!(f, "add     {record}"),
            Self::Remove(record) => write!(f, "remove  {record}"),
            Self::Clarify { name, reason } => write!(f, "check   {name}.: {reason}"),
        }
    }
}

/// A label that stands for every name below a wildcard. It has the form of a project's endpoint.
const PROBE: &str = "00000000";

#[cfg(test)]
mod tests;
