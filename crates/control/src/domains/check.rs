//! The check of a domain's records, and the description of its result.
//!
//! A record counts as present only if every authoritative name server that responds has it. So one
//! server, for example a forgotten one that another party could take over, is not sufficient to
//! prove ownership. It counts as missing only if no server has it, so that a change that has not
//! reached all servers yet does no harm.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::control::domains::{DomainCheck, DomainCheckResult, DomainRecordPurpose};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::time::timeout;

use super::dns::{Answers, LIMIT, NameServerAnswer, Resolver, Walk, WalkError, addresses, text};
use super::lifecycle::RecordState;
use super::records::{Delegation, ExpectedRecords};
use crate::http_api::user_text::printable;

/// Results of all checks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckReport {
    pub(super) ownership: DomainCheck,
    pub(super) traffic: DomainCheck,
    /// `None` if the domain needs no such record.
    pub(super) delegation: Option<DomainCheck>,
    /// False if no name server at all answered, or none was asked. Then the platform itself has no
    /// access to the DNS.
    has_access: bool,
}

impl CheckReport {
    /// The effect on the state of a domain. The delegation counts only while the domain is pending:
    /// later its loss only prevents renewals, and an uploaded certificate does without it.
    pub(super) fn finding(&self, is_pending: bool) -> RecordState {
        let delegation = self.delegation.as_ref().filter(|_| is_pending);
        let checks = [&self.ownership, &self.traffic].into_iter();
        let results: Vec<_> = checks.chain(delegation).map(|check| check.result).collect();
        let is = |wanted| results.contains(&wanted);
        if results
            .iter()
            .all(|result| *result == DomainCheckResult::Found)
        {
            RecordState::Found
        } else if is(DomainCheckResult::Missing) || is(DomainCheckResult::Different) {
            RecordState::Missing
        } else if self.has_access {
            RecordState::Unknown
        } else {
            RecordState::Unchecked
        }
    }

    /// The checks, in the order of the records.
    pub(super) fn checks(&self) -> Vec<DomainCheck> {
        let mut checks = vec![self.ownership.clone(), self.traffic.clone()];
        checks.extend(self.delegation.clone());
        checks
    }

    fn failed(expected: &ExpectedRecords, error: &WalkError, has_access: bool) -> Self {
        let has_delegation = expected.delegation.is_some();
        Self {
            ownership: failed(DomainRecordPurpose::Ownership, error),
            traffic: failed(DomainRecordPurpose::Traffic, error),
            delegation: has_delegation.then(|| failed(DomainRecordPurpose::Delegation, error)),
            has_access,
        }
    }
}

/// Checks the records at the request of a user.
pub(super) async fn check_on_request(
    resolver: &Resolver,
    expected: &ExpectedRecords,
) -> CheckReport {
    match resolver.slot().await {
        Ok(_slot) => check(resolver, expected).await,
        Err(error) => CheckReport::failed(expected, &error, false),
    }
}

/// Checks the records at the authoritative name servers.
pub(super) async fn check(resolver: &Resolver, expected: &ExpectedRecords) -> CheckReport {
    let mut walk = resolver.walk();
    let all = async {
        let ownership = ownership(&mut walk, expected).await;
        let traffic = traffic(&mut walk, expected).await;
        let delegation = match &expected.delegation {
            Some(record) => Some(delegation(&mut walk, record).await),
            None => None,
        };
        (ownership, traffic, delegation)
    };
    let all = timeout(LIMIT, all).await;
    let has_access = walk.has_response();
    match all {
        Ok((ownership, traffic, delegation)) => CheckReport {
            ownership,
            traffic,
            delegation,
            has_access,
        },
        Err(_) => CheckReport::failed(expected, &WalkError::Timeout, has_access),
    }
}

async fn ownership(walk: &mut Walk<'_>, expected: &ExpectedRecords) -> DomainCheck {
    let purpose = DomainRecordPurpose::Ownership;
    let Some(name) = absolute(&expected.challenge) else {
        return failed(purpose, &WalkError::Timeout);
    };
    match walk.answers(&name, RecordType::TXT).await {
        Ok(answers) => judge_ownership(&answers, expected, &missing_text(walk, &name)),
        Err(error) => failed(purpose, &error),
    }
}

/// The text about a record that no server has. `name` was looked up.
fn missing_text(walk: &Walk<'_>, name: &Name) -> String {
    let Some(zone) = walk.end_above_registered_domain(name) else {
        return "The record is missing.".to_owned();
    };
    let servers = match zone.as_str() {
        "." => "root servers".to_owned(),
        zone => format!("name servers of {zone}"),
    };
    let (servers, name) = (printable(&servers), printable(&text(name)));
    format!(
        "The record is missing, because the {servers} have no delegation for {name}. Register the \
         domain, or correct its name servers at the registrar."
    )
}

fn judge_ownership(answers: &Answers, expected: &ExpectedRecords, missing: &str) -> DomainCheck {
    let proves = |answer: &NameServerAnswer| match answer {
        NameServerAnswer::Records(records) => values(records).contains(&expected.proof),
        NameServerAnswer::Alias(_) | NameServerAnswer::Nothing => false,
    };
    let record = format!("TXT {} \"{}\"", expected.challenge, expected.proof);
    let purpose = DomainRecordPurpose::Ownership;
    judge_record(purpose, answers, proves, (&record, missing))
}

async fn delegation(walk: &mut Walk<'_>, record: &Delegation) -> DomainCheck {
    let purpose = DomainRecordPurpose::Delegation;
    let Some(name) = absolute(&record.name) else {
        return failed(purpose, &WalkError::Timeout);
    };
    // An authority asks for this type, too, and follows the alias.
    match walk.answers(&name, RecordType::TXT).await {
        Ok(answers) => {
            let leads = |answer: &NameServerAnswer| match answer {
                NameServerAnswer::Alias(target) => text(target) == record.target,
                NameServerAnswer::Records(_) | NameServerAnswer::Nothing => false,
            };
            let shown = format!("CNAME {} {}", record.name, record.target);
            judge_record(
                purpose,
                &answers,
                leads,
                (&shown, &missing_text(walk, &name)),
            )
        }
        Err(error) => failed(purpose, &error),
    }
}

/// Judges a record that has to be at its own name. `record` describes it, and `missing` is the text
/// if no server has any record there.
fn judge_record(
    purpose: DomainRecordPurpose,
    answers: &Answers,
    is_right: impl Fn(&NameServerAnswer) -> bool,
    (record, missing): (&str, &str),
) -> DomainCheck {
    let (with, without): (Vec<_>, Vec<_>) =
        answers.0.iter().partition(|(_, answer)| is_right(answer));
    let seen: BTreeSet<String> = without
        .iter()
        .flat_map(|(_, answer)| match answer {
            NameServerAnswer::Records(records) => values(records),
            NameServerAnswer::Alias(target) => vec![format!("CNAME {}", text(target))],
            NameServerAnswer::Nothing => Vec::new(),
        })
        .collect();
    let (result, detail) = match (with.as_slice(), without.as_slice()) {
        (_, []) => (DomainCheckResult::Found, "The record was found.".to_owned()),
        ([], _) => {
            let result = if seen.is_empty() {
                DomainCheckResult::Missing
            } else {
                DomainCheckResult::Different
            };
            let state = if seen.is_empty() {
                missing
            } else {
                "The name has other records only."
            };
            (result, format!("{state} Enter: {record}"))
        }
        (_, behind) => (
            DomainCheckResult::Inconsistent,
            format!(
                "Some name servers do not have the record yet: {}. Wait until the change has reached \
                 them.",
                names(behind)
            ),
        ),
    };
    finished(purpose, result, seen, detail)
}

async fn traffic(walk: &mut Walk<'_>, expected: &ExpectedRecords) -> DomainCheck {
    let purpose = DomainRecordPurpose::Traffic;
    match follow(walk, expected).await {
        Ok(route) => {
            let host = absolute(&expected.host);
            let missing = host
                .map(|host| missing_text(walk, &host))
                .unwrap_or_default();
            judge_traffic(&route, expected, &missing)
        }
        Err(error) => failed(purpose, &error),
    }
}

/// The way from a name to its addresses.
#[derive(Clone, Debug, PartialEq)]
enum Route {
    /// Through an alias with the expected name.
    Target,
    /// To these addresses, and the addresses of the engine.
    Addresses {
        own: BTreeSet<IpAddr>,
        engine: BTreeSet<IpAddr>,
    },
    /// To no address. The aliases on the way.
    Nowhere(Vec<String>),
    /// The name servers do not agree.
    Inconsistent(Vec<String>),
}

/// Follows aliases to the expected target, or to addresses.
async fn follow(walk: &mut Walk<'_>, expected: &ExpectedRecords) -> Result<Route, WalkError> {
    let mut aliases = Vec::new();
    let Some(mut name) = absolute(&expected.host) else {
        return Ok(Route::Nowhere(aliases));
    };
    for _ in 0..MAX_ALIASES {
        let answers = walk.answers(&name, RecordType::A).await?;
        let target = match common_alias(&answers) {
            CommonAlias::Target(target) => target,
            CommonAlias::Inconsistent => {
                return Ok(Route::Inconsistent(shown_answers(&answers)));
            }
            CommonAlias::Absent => {
                let own = addresses_at(walk, &name, Some(answers)).await?;
                if own.is_empty() {
                    return Ok(Route::Nowhere(aliases));
                }
                let engine = engine_addresses(walk, expected).await?;
                return Ok(Route::Addresses { own, engine });
            }
        };
        if text(&target) == expected.target {
            return Ok(Route::Target);
        }
        aliases.push(format!("CNAME {}", text(&target)));
        name = target;
    }
    Ok(Route::Nowhere(aliases))
}

/// The alias of a name at all of its servers.
enum CommonAlias {
    /// Every server has this one.
    Target(Name),
    /// No server has one.
    Absent,
    /// The servers do not agree, or none answered.
    Inconsistent,
}

fn common_alias(answers: &Answers) -> CommonAlias {
    let mut aliases = answers.0.iter().map(|(_, answer)| match answer {
        NameServerAnswer::Alias(target) => Some(target),
        NameServerAnswer::Records(_) | NameServerAnswer::Nothing => None,
    });
    match aliases.next() {
        Some(first) if aliases.all(|alias| alias == first) => first
            .cloned()
            .map_or(CommonAlias::Absent, CommonAlias::Target),
        Some(_) | None => CommonAlias::Inconsistent,
    }
}

/// All addresses of a name, from all servers.
async fn addresses_at(
    walk: &mut Walk<'_>,
    name: &Name,
    ipv4: Option<Answers>,
) -> Result<BTreeSet<IpAddr>, WalkError> {
    let ipv4 = match ipv4 {
        Some(answers) => answers,
        None => walk.answers(name, RecordType::A).await?,
    };
    let ipv6 = walk.answers(name, RecordType::AAAA).await?;
    let all = ipv4.0.into_iter().chain(ipv6.0);
    let all = all.flat_map(|(_, answer)| match answer {
        NameServerAnswer::Records(records) => addresses(&records),
        NameServerAnswer::Alias(_) | NameServerAnswer::Nothing => Vec::new(),
    });
    Ok(all.collect())
}

/// The addresses of the project's engine. They are empty if its name cannot be resolved.
async fn engine_addresses(
    walk: &mut Walk<'_>,
    expected: &ExpectedRecords,
) -> Result<BTreeSet<IpAddr>, WalkError> {
    let Some(mut name) = absolute(&expected.target) else {
        return Ok(BTreeSet::new());
    };
    for _ in 0..MAX_ALIASES {
        let answers = match walk.answers(&name, RecordType::A).await {
            Ok(answers) => answers,
            Err(error) if error.is_of_zone() => break,
            Err(error) => return Err(error),
        };
        match common_alias(&answers) {
            CommonAlias::Target(target) => name = target,
            CommonAlias::Absent | CommonAlias::Inconsistent => {
                return addresses_at(walk, &name, Some(answers)).await;
            }
        }
    }
    Ok(BTreeSet::new())
}

fn judge_traffic(route: &Route, expected: &ExpectedRecords, missing: &str) -> DomainCheck {
    let enter = format!("Enter: CNAME {} {}", expected.host, expected.target);
    let instead = "or ALIAS, A or AAAA records with the addresses of that host";
    let (result, seen, detail) = match route {
        Route::Target => (
            DomainCheckResult::Found,
            BTreeSet::new(),
            "The record was found.".to_owned(),
        ),
        Route::Addresses { own, engine } if own.is_subset(engine) => (
            DomainCheckResult::Found,
            BTreeSet::new(),
            "The addresses are those of the engine.".to_owned(),
        ),
        Route::Addresses { own, .. } => (
            DomainCheckResult::Different,
            own.iter().map(IpAddr::to_string).collect(),
            format!("The name has addresses that are not those of the engine. {enter}, {instead}."),
        ),
        Route::Nowhere(aliases) if aliases.is_empty() => (
            DomainCheckResult::Missing,
            BTreeSet::new(),
            format!("{missing} {enter}, {instead}."),
        ),
        Route::Nowhere(aliases) => (
            DomainCheckResult::Different,
            aliases.iter().cloned().collect(),
            format!("The name is an alias of another host. {enter}."),
        ),
        Route::Inconsistent(seen) => (
            DomainCheckResult::Inconsistent,
            seen.iter().cloned().collect(),
            "The name servers do not agree. Wait until the change has reached all of them."
                .to_owned(),
        ),
    };
    finished(DomainRecordPurpose::Traffic, result, seen, detail)
}

fn shown_answers(answers: &Answers) -> Vec<String> {
    let shown = answers.0.iter().map(|(server, answer)| match answer {
        NameServerAnswer::Alias(target) => format!("{server}: CNAME {}", text(target)),
        NameServerAnswer::Records(records) => {
            let list: Vec<_> = addresses(records).iter().map(IpAddr::to_string).collect();
            format!("{server}: {}", list.join(", "))
        }
        NameServerAnswer::Nothing => format!("{server}: no record"),
    });
    shown.collect()
}

/// Values of TXT records. A value may be divided into strings of 255 bytes (RFC 1035 section
/// 3.3.14).
fn values(records: &[RData]) -> Vec<String> {
    let texts = records.iter().filter_map(|data| match data {
        RData::TXT(text) => Some(text.txt_data.concat()),
        _ => None,
    });
    texts
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

fn names(servers: &[&(String, NameServerAnswer)]) -> String {
    let names = servers.iter().map(|(server, _)| printable(server));
    names.collect::<Vec<_>>().join(", ")
}

/// A complete name, which no search list extends.
pub(super) fn absolute(name: &str) -> Option<Name> {
    Name::from_ascii(format!("{name}.")).ok()
}

fn failed(purpose: DomainRecordPurpose, error: &WalkError) -> DomainCheck {
    let detail = format!("The record could not be checked: {error}. Try again later.");
    let result = DomainCheckResult::Unreachable;
    finished(purpose, result, BTreeSet::new(), detail)
}

fn finished(
    purpose: DomainRecordPurpose,
    result: DomainCheckResult,
    seen: BTreeSet<String>,
    detail: String,
) -> DomainCheck {
    let seen = seen.into_iter().take(MAX_SEEN).map(|value| {
        let mut value = printable(&value);
        value.truncate(value.floor_char_boundary(MAX_SEEN_BYTES.min(value.len())));
        value
    });
    DomainCheck {
        purpose,
        result,
        seen: seen.collect(),
        detail,
    }
}

/// Aliases from a domain to its addresses, as many as resolvers follow.
const MAX_ALIASES: usize = 8;

/// Values in a result, as many as a person reads.
const MAX_SEEN: usize = 10;

/// Part of a value in a result. Longer values are of other services.
const MAX_SEEN_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::UdpSocket;
    use tokio::time::Instant;

    use super::*;
    use crate::domains::section::DomainsConfig;

    /// The servers accept questions, and never respond.
    #[tokio::test(start_paused = true)]
    async fn a_check_has_a_time_limit() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let resolver = resolver(&silent);
        let expected = expected();
        let start = Instant::now();
        let report = check(&resolver, &expected).await;
        assert_eq!(start.elapsed().as_secs(), LIMIT.as_secs());
        assert_eq!(report.finding(true), RecordState::Unchecked);
        for one in report.checks() {
            assert_eq!(one.result, DomainCheckResult::Unreachable);
            assert!(one.detail.contains("10 seconds"), "{}", one.detail);
        }
    }

    fn resolver(root: &UdpSocket) -> Resolver {
        Resolver::new(&DomainsConfig {
            root_servers: vec![Ipv4Addr::LOCALHOST.into(); 6],
            name_server_port: root.local_addr().unwrap().port(),
            allow_private_nameservers: true,
            ..DomainsConfig::default()
        })
    }

    fn expected() -> ExpectedRecords {
        ExpectedRecords {
            challenge: "_svc-challenge.app.example.com".to_owned(),
            proof: "svc-domain-verification=x".to_owned(),
            host: "app.example.com".to_owned(),
            target: "0a1b2c3d.engine.example".to_owned(),
            delegation: None,
        }
    }

    /// Users that occupy all slots do not stop the periodic checks of others.
    #[tokio::test(start_paused = true)]
    async fn periodic_checks_need_no_slot() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (resolver, expected) = (resolver(&silent), expected());
        let mut slots = Vec::new();
        while let Ok(slot) = resolver.slot().await {
            slots.push(slot);
        }
        let report = check_on_request(&resolver, &expected).await;
        assert_eq!(report.finding(true), RecordState::Unchecked);
        assert!(report.ownership.detail.contains("too many domains"));
        let report = check(&resolver, &expected).await;
        assert!(report.ownership.detail.contains("10 seconds"));
    }

    #[test]
    fn a_value_is_compared_as_a_whole() {
        let expected = ExpectedRecords {
            challenge: "_svc-challenge.a.example".to_owned(),
            proof: "svc-domain-verification=abc".to_owned(),
            host: "a.example".to_owned(),
            target: "0a1b2c3d.engine.example".to_owned(),
            delegation: None,
        };
        let found = |values: &[&[&str]]| {
            let record = |parts: &&[&str]| {
                let parts = parts.iter().map(|part| (*part).to_owned()).collect();
                RData::TXT(hickory_proto::rr::rdata::TXT::new(parts))
            };
            let records = values.iter().map(record).collect();
            let answer = ("ns.example".to_owned(), NameServerAnswer::Records(records));
            let check = judge_ownership(&Answers(vec![answer]), &expected, "missing");
            check.result == DomainCheckResult::Found
        };
        assert!(found(&[&["svc-domain-verification=abc"]]));
        assert!(found(&[
            &["v=spf1 -all"],
            &["svc-domain-", "verification=abc"]
        ]));
        for other in [
            "svc-domain-verification=abcd",
            "svc-domain-verification=ab",
            "svc-domain-verification=ABC",
            " svc-domain-verification=abc",
            "abc",
            "",
        ] {
            assert!(!found(&[&[other]]), "{other}");
        }
    }
}
