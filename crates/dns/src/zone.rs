//! The names that the responder answers, and their records.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use hickory_proto::rr::rdata::caa::KeyValue;
use hickory_proto::rr::rdata::{A, AAAA, CAA, HINFO, NS, SOA, TXT};
use hickory_proto::rr::{Name, RData, RecordType};
use parking_lot::Mutex;

use crate::name::{NameError, parse_name};
use crate::records::DnsRecords;

/// A name, and all names below it.
#[derive(Clone, Debug)]
pub struct Zone {
    apex: Name,
    /// Addresses of all its names; empty for a zone that is only for challenges.
    addresses: Vec<IpAddr>,
    /// Authorities that may issue certificates for its names (CAA, RFC 8659); empty for all.
    issuers: Vec<Name>,
    /// The first of them may do so for one account only (RFC 8657).
    has_account: bool,
}

impl Zone {
    /// A zone that has only TXT records of challenges.
    ///
    /// # Errors
    /// The text is not a name.
    pub fn of_challenges(apex: &str) -> Result<Self, NameError> {
        Self::of_hosts(apex, Vec::new())
    }

    /// A zone in which every name has these addresses.
    ///
    /// # Errors
    /// The text is not a name.
    pub fn of_hosts(apex: &str, addresses: Vec<IpAddr>) -> Result<Self, NameError> {
        let apex = parse_name(apex)?;
        Ok(Self {
            apex,
            addresses,
            issuers: Vec::new(),
            has_account: false,
        })
    }

    /// The same with CAA records at its first name, which apply to all names below: only these
    /// authorities issue certificates. With `has_account` the first one does so only for the
    /// account of [`Zones::set_account`], once it is known.
    ///
    /// # Errors
    /// A text is not a name.
    pub fn with_caa(self, issuers: &[String], has_account: bool) -> Result<Self, NameError> {
        let issuers = issuers.iter().map(|issuer| -> Result<Name, NameError> {
            let mut name = parse_name(issuer)?.to_lowercase();
            // The value of a record is a text without the dot of a complete name.
            name.set_fqdn(false);
            Ok(name)
        });
        Ok(Self {
            issuers: issuers.collect::<Result<_, _>>()?,
            has_account,
            ..self
        })
    }

    /// Its first name.
    pub(crate) fn apex(&self) -> &Name {
        &self.apex
    }
}

/// All zones of a responder, with their name server and their records.
#[derive(Clone, Debug)]
pub struct Zones {
    name_server: Name,
    /// Mailbox of the zones' operator (RFC 2142).
    mailbox: Name,
    /// By their first names. An engine may have one for each of thousands of custom domains.
    by_apex: Arc<HashMap<Name, Zone>>,
    /// The names above the zones.
    above: Arc<HashSet<Name>>,
    /// The labels of the longest of these names.
    most_labels: usize,
    records: DnsRecords,
    /// URL of the account for CAA records.
    account: Arc<Mutex<Option<String>>>,
}

/// Result of a look-up.
pub(crate) enum LookUpResult {
    /// The data of the requested type, and their time to live.
    Data(Vec<RData>, u32),
    /// The name exists, and has no records of this type.
    NoData,
    /// The name does not exist.
    NoName,
}

impl Zones {
    /// `name_server` is the name in their NS and SOA records. Of two zones with one first name, the
    /// one with addresses counts: it has the challenges as well.
    ///
    /// # Errors
    /// It is not a name, or too long.
    pub fn new(name_server: &str, zones: Vec<Zone>) -> Result<Self, NameError> {
        let name_server_name = parse_name(name_server)?;
        let mailbox = name_server_name.prepend_label("hostmaster");
        let labels = zones.iter().map(|zone| zone.apex.iter().len());
        Ok(Self {
            most_labels: labels.max().unwrap_or_default(),
            mailbox: mailbox.map_err(|_| NameError(name_server.to_owned()))?,
            name_server: name_server_name,
            above: Arc::new(zones.iter().flat_map(Zone::names_above).collect()),
            by_apex: Arc::new(by_apex(zones)),
            records: DnsRecords::default(),
            account: Arc::default(),
        })
    }

    /// The records of challenges, which orders change.
    pub fn records(&self) -> &DnsRecords {
        &self.records
    }

    /// Sets the URL of the account for CAA records. One that cannot be part of a record counts as
    /// unknown.
    pub fn set_account(&self, url: &str) {
        // RFC 8659 section 4.2.
        let is_value = |byte: u8| byte.is_ascii_graphic() && byte != b';';
        let is_usable = url.len() <= MAX_ACCOUNT_BYTES && url.bytes().all(is_value);
        *self.account.lock() = is_usable.then(|| url.to_owned());
    }

    /// The CAA records of a zone.
    fn caa(&self, zone: &Zone) -> Vec<RData> {
        let account = self.account.lock().clone();
        let mut account = account.filter(|_| zone.has_account);
        let issuers = zone.issuers.iter();
        let records = issuers.map(|issuer| {
            let options = account.take().map(|url| KeyValue::new(ACCOUNT_URI, url));
            let options = options.into_iter().collect();
            RData::CAA(CAA::new_issue(false, Some(issuer.clone()), options))
        });
        records.collect()
    }

    /// Returns true if a zone contains the name. A text that is not a name is in no zone.
    pub fn contain(&self, name: &str) -> bool {
        parse_name(name).is_ok_and(|name| self.find(&name).is_some())
    }

    /// The zone with the most labels that contains a name.
    pub(crate) fn find(&self, name: &Name) -> Option<&Zone> {
        let most = self.most_labels.min(name.iter().len());
        (1..=most)
            .rev()
            .find_map(|labels| self.by_apex.get(&name.trim_to(labels)))
    }

    /// The records of a name of `zone`.
    pub(crate) fn look_up(&self, zone: &Zone, name: &Name, kind: RecordType) -> LookUpResult {
        let is_apex = *name == zone.apex;
        let has_addresses = !zone.addresses.is_empty();
        // The names of another zone exist as well. A resolver may conclude that there is nothing
        // below a name that does not exist (RFC 8020).
        let is_above_zone = || self.above.contains(name);
        let has_records = || self.records.has_at_or_below(name);
        if !is_apex && !has_addresses && !has_records() && !is_above_zone() {
            return LookUpResult::NoName;
        }
        let (data, ttl) = match kind {
            RecordType::TXT => {
                let texts = self.records.texts(name).into_iter();
                let data = texts.map(|text| RData::TXT(TXT::new(vec![text])));
                (data.collect(), CHALLENGE_TTL)
            }
            RecordType::A => (zone.ipv4(), ADDRESS_TTL),
            RecordType::AAAA => (zone.ipv6(), ADDRESS_TTL),
            RecordType::SOA if is_apex => (vec![self.soa()], CHALLENGE_TTL),
            RecordType::NS if is_apex => {
                (vec![RData::NS(NS(self.name_server.clone()))], SERVER_TTL)
            }
            RecordType::CAA if is_apex => (self.caa(zone), CHALLENGE_TTL),
            // RFC 8482 section 4.2: one small record instead of all.
            RecordType::ANY => {
                let info = HINFO::new("RFC8482".to_owned(), String::new());
                (vec![RData::HINFO(info)], SERVER_TTL)
            }
            _ => (Vec::new(), 0),
        };
        if data.is_empty() {
            LookUpResult::NoData
        } else {
            LookUpResult::Data(data, ttl)
        }
    }

    /// The start of authority, which is the same for all zones.
    pub(crate) fn soa(&self) -> RData {
        RData::SOA(SOA::new(
            self.name_server.clone(),
            self.mailbox.clone(),
            // There is no second server that would compare it.
            1,
            DAY,
            DAY,
            DAY,
            // Resolvers cache for so long that there is no record.
            CHALLENGE_TTL,
        ))
    }
}

fn by_apex(zones: Vec<Zone>) -> HashMap<Name, Zone> {
    let mut by_apex = HashMap::new();
    for zone in zones {
        match by_apex.entry(zone.apex.clone()) {
            Entry::Occupied(mut other) if !zone.addresses.is_empty() => {
                other.insert(zone);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(zone);
            }
        }
    }
    by_apex
}

impl Zone {
    /// The parents of its first name, without the root.
    fn names_above(&self) -> impl Iterator<Item = Name> + '_ {
        (1..self.apex.iter().len()).map(|labels| self.apex.trim_to(labels))
    }

    fn ipv4(&self) -> Vec<RData> {
        let addresses = self.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(RData::A(A(*address))),
            IpAddr::V6(_) => None,
        });
        addresses.collect()
    }

    fn ipv6(&self) -> Vec<RData> {
        let addresses = self.addresses.iter().filter_map(|address| match address {
            IpAddr::V6(address) => Some(RData::AAAA(AAAA(*address))),
            IpAddr::V4(_) => None,
        });
        addresses.collect()
    }
}

/// Seconds for which a resolver keeps a challenge, or that there is none: shorter than the delay
/// between two attempts.
pub(crate) const CHALLENGE_TTL: u32 = 5;

/// The parameter of a CAA record for an account (RFC 8657 section 3).
const ACCOUNT_URI: &str = "accounturi";

/// URLs of accounts have less than 100 bytes. A record may have 64 KiB, but a response should fit
/// into a datagram.
const MAX_ACCOUNT_BYTES: usize = 512;

/// Seconds for which a resolver keeps an address: a moved engine is reached again soon.
const ADDRESS_TTL: u32 = 300;

/// Seconds for which a resolver keeps the name server, which does not change.
const SERVER_TTL: u32 = 3600;

/// Times for other servers of the zone, which do not exist.
const DAY: i32 = 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_names_are_refused() {
        let long = "a.".repeat(200);
        let label = "a".repeat(64);
        for text in ["", ".", "a..b", ".a", "a\\.b", "a b", &long, &label] {
            assert!(parse_name(text).is_err(), "{text:?}");
        }
        let expected = parse_name("H.example.").unwrap();
        assert_eq!(parse_name("h.example").unwrap(), expected);
    }

    #[test]
    fn the_zone_with_the_most_labels_is_used() {
        let zones = ["example", "t.h.example", "h.example"]
            .map(|apex| Zone::of_challenges(apex).unwrap())
            .to_vec();
        let zones = Zones::new("ns.other.example.net", zones).unwrap();
        for (name, apex) in [
            ("a.T.h.example", "t.h.example"),
            ("t.h.example", "t.h.example"),
            ("a.h.example", "h.example"),
            ("at.h.example", "h.example"),
            ("ah.example", "example"),
        ] {
            let found = zones.find(&parse_name(name).unwrap()).unwrap();
            assert_eq!(*found.apex(), parse_name(apex).unwrap(), "{name}");
        }
        assert!(zones.contain("a.example"));
        assert!(!zones.contain("a.example.net"));
    }

    #[test]
    fn a_zone_of_challenges_does_not_hide_addresses() {
        let addresses = vec![IpAddr::from([192, 0, 2, 1])];
        let hosts = Zone::of_hosts("t.h.example", addresses).unwrap();
        let challenges = Zone::of_challenges("T.h.example").unwrap();
        let name = parse_name("a.t.h.example").unwrap();
        for zones in [
            vec![hosts.clone(), challenges.clone()],
            vec![challenges, hosts],
        ] {
            let zones = Zones::new("ns.example.net", zones).unwrap();
            let zone = zones.find(&name).unwrap();
            let found = zones.look_up(zone, &name, RecordType::A);
            assert!(matches!(found, LookUpResult::Data(..)), "{zone:?}");
        }
    }

    #[test]
    fn caa_records_are_at_the_apex_and_the_first_has_the_account() {
        let addresses = vec![IpAddr::from([192, 0, 2, 1])];
        let issuers = ["LetsEncrypt.org".to_owned(), "ca.example.net".to_owned()];
        let zone = Zone::of_hosts("t.h.example", addresses).unwrap();
        let zone = zone.with_caa(&issuers, true).unwrap();
        let zones = Zones::new("ns.example.net", vec![zone]).unwrap();
        let caa = |name: &str| {
            let name = parse_name(name).unwrap();
            let zone = zones.find(&name).unwrap();
            match zones.look_up(zone, &name, RecordType::CAA) {
                LookUpResult::Data(data, _) => {
                    data.iter().map(ToString::to_string).collect::<Vec<_>>()
                }
                LookUpResult::NoData | LookUpResult::NoName => Vec::new(),
            }
        };
        let other = "0 issue \"ca.example.net\"";
        assert_eq!(caa("t.h.example"), ["0 issue \"letsencrypt.org\"", other]);
        assert!(caa("a.t.h.example").is_empty());
        zones.set_account("https://ca.example/acct/1");
        let first = "0 issue \"letsencrypt.org; accounturi=https://ca.example/acct/1\"";
        assert_eq!(caa("t.h.example"), [first, other]);
        zones.set_account("https://ca.example/;x");
        assert_eq!(caa("t.h.example"), ["0 issue \"letsencrypt.org\"", other]);
    }

    #[test]
    fn names_above_another_zone_exist() {
        let zones = ["h.example", "_acme-challenge.t.h.example"]
            .map(|apex| Zone::of_challenges(apex).unwrap())
            .to_vec();
        let zones = Zones::new("ns.example.net", zones).unwrap();
        for (text, exists) in [("T.h.example", true), ("a.h.example", false)] {
            let name = parse_name(text).unwrap();
            let zone = zones.find(&name).unwrap();
            let found = zones.look_up(zone, &name, RecordType::A);
            let is_missing = matches!(found, LookUpResult::NoName);
            assert_eq!(is_missing, !exists, "{text}");
        }
    }
}
