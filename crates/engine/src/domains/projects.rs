//! The custom domains of a platform's projects, which arrive and end while the engine runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use acme::{
    CertificateSet, ChallengeKind, DnsProvider, IssuedCertificate, Settings, challenge_name,
};
use api::control::domains::DomainCertificateValidation;
use api::link::{self, CustomDomain, Item};
use daemon::tls::export_domain_expiry;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tracing::warn;
use types::domain_name::DomainName;
use types::tunnel::Hostname;

use super::{Domain, DomainCertificate, Domains, can_be_ordered};

/// Applies the domains of projects to the engine's own list, and orders their certificates.
pub(crate) struct ProjectDomains {
    domains: Arc<Domains>,
    /// The engine's own host, at or below which a project has no domain.
    base: Hostname,
    /// The orders of certificates, with their settings; `None` without an authority.
    orders: Option<(CertificateSet, Settings)>,
    /// The domains of each project that has one.
    names: Mutex<NamesByProject>,
    /// Time of the next warnings about uploaded certificates, in seconds since 1970.
    next_warnings: AtomicI64,
}

type NamesByProject = HashMap<Arc<str>, HashSet<DomainName>>;

impl ProjectDomains {
    pub(super) fn new(
        domains: Arc<Domains>,
        base: Hostname,
        orders: Option<(CertificateSet, Settings)>,
    ) -> Self {
        Self {
            domains,
            base,
            orders,
            names: Mutex::default(),
            next_warnings: AtomicI64::new(0),
        }
    }

    /// Applies a complete snapshot. Domains of projects that are not in it are removed.
    pub(crate) fn replace(&self, items: &[Item]) {
        let listed: HashSet<&str> = items
            .iter()
            .filter_map(|item| match item {
                Item::Project(project) => Some(project.id.as_str()),
                _ => None,
            })
            .collect();
        let mut names = self.names.lock();
        let gone: Vec<Arc<str>> = names
            .keys()
            .filter(|id| !listed.contains(&***id))
            .map(Arc::clone)
            .collect();
        for id in gone {
            self.set(&mut names, &id, &[]);
        }
        self.put_all(&mut names, items);
    }

    /// Applies changes in their order.
    pub(crate) fn apply(&self, items: &[Item]) {
        self.put_all(&mut self.names.lock(), items);
    }

    /// The other projects that have names of these changes until the changes are applied: their own
    /// domains, or names below their wildcards.
    pub(crate) fn former_holders(&self, items: &[Item]) -> Vec<Arc<str>> {
        let projects = items.iter().filter_map(|item| match item {
            Item::Project(project) => Some(project),
            _ => None,
        });
        let listed = projects.flat_map(|project| {
            let own = project.domains.iter();
            own.map(move |domain| (&*project.id, &*domain.hostname))
        });
        let holders = listed.filter_map(|(id, hostname)| {
            let holder = self.domains.at(hostname)?;
            (*holder.project != *id).then(|| Arc::clone(&holder.project))
        });
        holders.collect()
    }

    fn put_all(&self, names: &mut NamesByProject, items: &[Item]) {
        for item in items {
            match item {
                Item::Project(project) => self.set(names, &project.id, &project.domains),
                Item::ProjectGone { id } => self.set(names, id, &[]),
                Item::DomainCertificate(uploaded) => self.put_certificate(uploaded),
                _ => {}
            }
        }
    }

    /// Gives a project exactly these domains.
    fn set(&self, names: &mut NamesByProject, project: &str, listed: &[CustomDomain]) {
        let known = names.remove_entry(project);
        let (id, before) = known.unwrap_or_else(|| (project.into(), HashSet::new()));
        let wanted = listed.iter().filter_map(|domain| {
            let name = self.parse(domain)?;
            Some((name, domain))
        });
        let wanted: HashMap<DomainName, &CustomDomain> = wanted.collect();
        for name in before.iter().filter(|name| !wanted.contains_key(*name)) {
            self.remove(name, &id);
        }
        let added = wanted.into_iter().filter_map(|(name, domain)| {
            let has_it = self.add(&name, domain, &id);
            has_it.then_some(name)
        });
        let now: HashSet<DomainName> = added.collect();
        if !now.is_empty() {
            names.insert(id, now);
        }
    }

    /// A domain of the platform, unless this engine cannot serve it.
    fn parse(&self, domain: &CustomDomain) -> Option<DomainName> {
        match domain.hostname.parse::<DomainName>() {
            Ok(name) if !name.is_within(self.base.as_str()) => Some(name),
            Ok(_) => {
                warn!(domain = %domain.id, "a custom domain is below the engine's own host");
                None
            }
            Err(error) => {
                warn!(domain = %domain.id, %error, "a custom domain cannot be served");
                None
            }
        }
    }

    /// Adds a domain, or changes the source of its certificate. False if the engine has too many.
    fn add(&self, name: &DomainName, wanted: &CustomDomain, project: &Arc<str>) -> bool {
        let before = self.domains.get(name);
        let was_uploaded = before
            .as_ref()
            .is_some_and(|before| before.certificate.is_uploaded());
        let known = before.filter(|before| before.project == *project);
        if known.is_some() && was_uploaded == wanted.has_certificate {
            return true;
        }
        if was_uploaded {
            export_domain_expiry(name.as_str(), None);
        }
        let certificate = if wanted.has_certificate {
            self.end_orders(name);
            // Until the uploaded one arrives, the ordered one stays in use.
            let ordered = known.as_ref().and_then(|known| known.certificate.ordered());
            DomainCertificate::Uploaded(ordered)
        } else {
            self.certificate(name, wanted)
        };
        let domain = Domain {
            name: name.clone(),
            project: Arc::clone(project),
            certificate,
        };
        match self.domains.insert(domain) {
            Ok(()) => true,
            Err(error) => {
                self.end_orders(name);
                warn!(domain = %name, %error, "a custom domain is not served");
                false
            }
        }
    }

    /// Removes a domain, unless another project has it by now.
    fn remove(&self, name: &DomainName, project: &str) {
        if self.has(name, project) {
            let removed = self.domains.remove(name);
            if removed.is_some_and(|removed| removed.certificate.is_uploaded()) {
                export_domain_expiry(name.as_str(), None);
            }
            self.end_orders(name);
        }
    }

    /// Uses the certificate that a project uploaded for one of its domains. One that cannot be used
    /// changes nothing: the platform has checked it, so that it is not the project's mistake.
    fn put_certificate(&self, uploaded: &link::DomainCertificate) {
        // A name that cannot be parsed was reported with its project.
        let Ok(name) = uploaded.hostname.parse::<DomainName>() else {
            return;
        };
        let known = self.domains.get(&name);
        let known = known.filter(|known| *known.project == *uploaded.project_id);
        let Some(known) = known.filter(|known| known.certificate.is_uploaded()) else {
            return;
        };
        if known.certificate.has_chain(&uploaded.chain) {
            return;
        }
        let names = [name.to_string()];
        let provider = daemon::tls::provider();
        let (chain, key) = (&uploaded.chain, &uploaded.private_key);
        let issued = match IssuedCertificate::parse(chain, key, &names, &provider) {
            Ok(issued) => issued,
            Err(error) => {
                warn!(domain = %name, %error, "the uploaded certificate of a custom domain is not used");
                return;
            }
        };
        export_domain_expiry(name.as_str(), Some(issued.validity().not_after));
        let domain = Domain {
            name,
            project: Arc::clone(&known.project),
            certificate: DomainCertificate::Uploaded(Some(Arc::new(issued))),
        };
        // It replaces the one with its name, so that the number of domains stays.
        if let Err(error) = self.domains.insert(domain) {
            warn!(%error, "the uploaded certificate of a custom domain is not used");
        }
        self.next_warnings.store(0, Ordering::Relaxed);
    }

    /// Warns about uploaded certificates that expire soon: after they arrived, and once a day. `now`
    /// is in seconds since 1970.
    pub(crate) fn warn_expiring(&self, now: i64) {
        let next = self.next_warnings.load(Ordering::Relaxed);
        // A clock that was set back must not stop the warnings.
        if next > now && next.saturating_sub(now) <= WARNING_INTERVAL {
            return;
        }
        let next = now.saturating_add(WARNING_INTERVAL);
        self.next_warnings.store(next, Ordering::Relaxed);
        for name in self.names.lock().values().flatten() {
            let Some(left) = self.seconds_left(name, now) else {
                continue;
            };
            if left <= 0 {
                warn!(domain = %name, "the uploaded certificate of a custom domain has expired");
            } else if left < EXPIRY_NOTICE {
                let days = left / WARNING_INTERVAL;
                warn!(domain = %name, days, "the uploaded certificate of a custom domain expires soon");
            }
        }
    }

    /// Time until the uploaded certificate of a domain expires. `None` if it has no such certificate.
    fn seconds_left(&self, name: &DomainName, now: i64) -> Option<i64> {
        let domain = self.domains.get(name)?;
        match &domain.certificate {
            DomainCertificate::Uploaded(uploaded) => {
                let not_after = uploaded.as_ref()?.validity().not_after;
                Some(not_after.saturating_sub(now))
            }
            _ => None,
        }
    }

    fn has(&self, name: &DomainName, project: &str) -> bool {
        let known = self.domains.get(name);
        known.is_some_and(|known| *known.project == *project)
    }

    /// The certificate of a new domain. An order that the authority cannot validate is not placed.
    fn certificate(&self, name: &DomainName, wanted: &CustomDomain) -> DomainCertificate {
        let validation = wanted.certificate_validation;
        let Some((set, settings)) = &self.orders else {
            return DomainCertificate::Own;
        };
        if !can_be_validated(name, validation, settings) {
            return DomainCertificate::Own;
        }
        if validation == DomainCertificateValidation::TlsAlpn01 {
            return DomainCertificate::Ordered(set.add(name.as_str()));
        }
        let alias = wanted.challenge_alias.as_deref();
        if !has_answer(name, alias, settings) {
            warn!(
                domain = %name, record = alias,
                "no certificate is ordered for a custom domain: `certs.acme.dns_responder.zone` of this \
                 engine is not the zone in `domains.challenge_zones` of the platform"
            );
            return DomainCertificate::Own;
        }
        DomainCertificate::Ordered(match alias {
            Some(alias) => set.add_delegated(name.as_str(), alias),
            None => set.add(name.as_str()),
        })
    }

    fn end_orders(&self, name: &DomainName) {
        if let Some((set, _)) = &self.orders {
            set.remove(name.as_str());
        }
    }
}

impl DomainCertificate {
    fn is_uploaded(&self) -> bool {
        matches!(self, Self::Uploaded(_))
    }

    /// The certificate of an authority, if there is one.
    fn ordered(&self) -> Option<Arc<IssuedCertificate>> {
        match self {
            Self::Ordered(ordered) => ordered.current(),
            _ => None,
        }
    }

    /// True if this chain, in PEM, is in use. Then its key is, too.
    fn has_chain(&self, chain: &str) -> bool {
        let Self::Uploaded(Some(current)) = self else {
            return false;
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        chain.is_ok_and(|chain| chain == current.certified().cert)
    }
}

/// Two weeks are long enough to get another certificate.
const EXPIRY_NOTICE: i64 = 14 * WARNING_INTERVAL;

/// A day, in seconds.
const WARNING_INTERVAL: i64 = 24 * 3600;

/// True if the engine has a challenge of the kind that the project has chosen.
fn can_be_validated(
    name: &DomainName,
    validation: DomainCertificateValidation,
    settings: &Settings,
) -> bool {
    let is_dns = |kind: &ChallengeKind| *kind == ChallengeKind::Dns01;
    let mut kinds = settings.challenges.iter();
    let has_kind = match validation {
        DomainCertificateValidation::TlsAlpn01 => kinds.any(|kind| !is_dns(kind)),
        DomainCertificateValidation::Dns01 => kinds.any(is_dns),
    };
    has_kind && can_be_ordered(name, settings)
}

/// True if the authority finds the record of `dns-01`, at `alias` if the challenge is delegated: a
/// responder has to answer for its name. Programs and other servers may have every zone.
fn has_answer(name: &DomainName, alias: Option<&str>, settings: &Settings) -> bool {
    let Some(DnsProvider::Responder(responder)) = &settings.dns else {
        return true;
    };
    let usual = || responder.published_name(&challenge_name(name.as_str()));
    let record = alias.map_or_else(usual, str::to_owned);
    responder.zones.contain(&record)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use acme::{KeyType, WallClock};
    use serde_json::json;

    use super::*;

    fn of_projects() -> (ProjectDomains, Arc<Domains>) {
        let domains = Arc::new(Domains::default());
        let base = "engine.example".parse().unwrap();
        let of_projects = ProjectDomains::new(Arc::clone(&domains), base, None);
        (of_projects, domains)
    }

    fn project(id: &str, names: &[&str]) -> Item {
        let domain = |name: &&str| {
            json!({
                "id": format!("dom_{name}"),
                "hostname": name,
                "certificate_validation": "tls_alpn_01",
            })
        };
        let domains: Vec<_> = names.iter().map(domain).collect();
        let project = serde_json::from_value(json!({
            "id": id,
            "endpoint": id,
            "workspace_id": "wks_1",
            "plan": "basic",
            "provider": "other",
            "domains": domains,
        }));
        Item::Project(Box::new(project.unwrap()))
    }

    fn holder(domains: &Domains, host: &str) -> Option<String> {
        domains.at(host).map(|domain| domain.project.to_string())
    }

    #[test]
    fn domains_follow_the_changes_of_their_project() {
        let (of_projects, domains) = of_projects();
        of_projects.apply(&[project("a", &["app.example.com", "*.shop.example.com"])]);
        assert_eq!(holder(&domains, "app.example.com").as_deref(), Some("a"));
        assert_eq!(holder(&domains, "x.shop.example.com").as_deref(), Some("a"));
        of_projects.apply(&[project("a", &["*.shop.example.com"])]);
        assert_eq!(holder(&domains, "app.example.com"), None);
        assert_eq!(holder(&domains, "x.shop.example.com").as_deref(), Some("a"));
        of_projects.apply(&[Item::ProjectGone { id: "a".to_owned() }]);
        assert_eq!(holder(&domains, "x.shop.example.com"), None);
    }

    #[test]
    fn a_snapshot_removes_what_it_does_not_contain() {
        let (of_projects, domains) = of_projects();
        of_projects.apply(&[
            project("a", &["a.example.com"]),
            project("b", &["b.example.com"]),
        ]);
        of_projects.replace(&[project("b", &["c.example.com"])]);
        assert_eq!(holder(&domains, "a.example.com"), None);
        assert_eq!(holder(&domains, "b.example.com"), None);
        assert_eq!(holder(&domains, "c.example.com").as_deref(), Some("b"));
    }

    /// The changes of two projects may arrive in any order.
    #[test]
    fn a_domain_moves_to_another_project() {
        let (of_projects, domains) = of_projects();
        let name = "app.example.com";
        of_projects.apply(&[project("a", &[name])]);
        of_projects.apply(&[project("b", &[name])]);
        assert_eq!(holder(&domains, name).as_deref(), Some("b"));
        of_projects.apply(&[project("a", &[])]);
        assert_eq!(holder(&domains, name).as_deref(), Some("b"));
        of_projects.apply(&[project("b", &[]), project("a", &[name])]);
        assert_eq!(holder(&domains, name).as_deref(), Some("a"));
    }

    #[test]
    fn names_that_an_engine_cannot_serve_are_left_out() {
        let (of_projects, domains) = of_projects();
        let names = [
            "engine.example",
            "a.engine.example",
            "co.uk",
            "a b",
            "ok.example.com",
        ];
        of_projects.apply(&[project("a", &names)]);
        for refused in ["engine.example", "a.engine.example", "co.uk", "a b"] {
            assert_eq!(holder(&domains, refused), None, "{refused}");
        }
        assert_eq!(holder(&domains, "ok.example.com").as_deref(), Some("a"));
    }

    fn settings(challenges: Vec<ChallengeKind>, state_dir: &Path) -> Settings {
        Settings {
            directory: "https://ca.example/directory".to_owned(),
            contact: Vec::new(),
            external_account: None,
            key_type: KeyType::default(),
            ca_file: None,
            challenges,
            dns: None,
            challenge_alias: None,
            names: Vec::new(),
            state_dir: state_dir.to_owned(),
            first_retry: Duration::from_mins(5),
        }
    }

    #[test]
    fn certificates_are_ordered_for_domains_that_the_authority_can_validate() {
        use DomainCertificateValidation::{Dns01, TlsAlpn01};

        let all = [
            ChallengeKind::TlsAlpn01,
            ChallengeKind::Http01,
            ChallengeKind::Dns01,
        ];
        for (kind, name, validation, expected) in [
            (0, "app.example.com", TlsAlpn01, true),
            (1, "app.example.com", TlsAlpn01, true),
            (2, "app.example.com", TlsAlpn01, false),
            (0, "app.example.com", Dns01, false),
            (2, "app.example.com", Dns01, true),
            (0, "*.example.com", Dns01, false),
            (2, "*.example.com", Dns01, true),
        ] {
            let settings = settings(vec![all[kind]], Path::new(""));
            let name = name.parse().unwrap();
            let found = can_be_validated(&name, validation, &settings);
            assert_eq!(found, expected, "{name} {validation:?} {:?}", all[kind]);
        }
    }

    /// The responder has a zone for delegated challenges, and the platform another one.
    #[test]
    fn a_responder_has_to_answer_for_the_delegated_challenge() {
        let zones = vec![dns::Zone::of_challenges("acme.example.net").unwrap()];
        let responder = |alias_zone: Option<&str>| {
            DnsProvider::Responder(acme::ResponderSettings {
                listen: Vec::new(),
                zones: dns::Zones::new("engine.example", zones.clone()).unwrap(),
                alias_zone: alias_zone.map(str::to_owned),
            })
        };
        let name = "*.app.example.com".parse().unwrap();
        for (dns, alias, expected) in [
            (None, Some("id.acme.example.net"), true),
            (
                Some(responder(Some("acme.example.net"))),
                Some("id.acme.example.net"),
                true,
            ),
            (
                Some(responder(Some("acme.example.net"))),
                Some("id.other.example"),
                false,
            ),
            (Some(responder(Some("acme.example.net"))), None, true),
            (Some(responder(None)), Some("id.acme.example.net"), true),
            (Some(responder(None)), None, false),
        ] {
            let settings = Settings {
                dns,
                ..settings(vec![ChallengeKind::Dns01], Path::new(""))
            };
            assert_eq!(has_answer(&name, alias, &settings), expected, "{alias:?}");
        }
    }

    /// A project whose only domain has an uploaded certificate.
    fn with_certificate(id: &str, name: &str) -> Item {
        let mut item = project(id, &[name]);
        if let Item::Project(project) = &mut item {
            project.domains[0].has_certificate = true;
        }
        item
    }

    fn uploaded(project: &str, name: &str) -> Item {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        Item::DomainCertificate(Box::new(link::DomainCertificate {
            id: format!("dom_{name}"),
            project_id: project.to_owned(),
            hostname: name.to_owned(),
            chain: made.cert.pem(),
            private_key: made.signing_key.serialize_pem(),
        }))
    }

    #[test]
    fn an_uploaded_certificate_is_used_until_it_is_removed() {
        let (of_projects, domains) = of_projects();
        let name = "app.example.com";
        let current = || domains.certificate_of(name);
        let first = uploaded("a", name);
        of_projects.apply(&[with_certificate("a", name)]);
        assert!(current().is_none(), "it has not arrived");
        of_projects.apply(&[uploaded("b", name)]);
        assert!(current().is_none(), "the domain is another project's");
        of_projects.apply(std::slice::from_ref(&first));
        let used = current().unwrap();
        // Each change of the project repeats it.
        of_projects.apply(&[with_certificate("a", name), first]);
        assert!(Arc::ptr_eq(&used, &current().unwrap()));
        of_projects.apply(&[with_certificate("a", name), uploaded("a", name)]);
        let other = current().unwrap();
        assert_ne!(used.cert, other.cert);
        // One for another name, or without its key, changes nothing.
        let mut broken = [uploaded("a", "other.example.com"), uploaded("a", name)];
        if let [Item::DomainCertificate(one), Item::DomainCertificate(two)] = &mut broken {
            name.clone_into(&mut one.hostname);
            two.private_key.clear();
        }
        of_projects.apply(&broken);
        assert!(Arc::ptr_eq(&other, &current().unwrap()));
        of_projects.apply(&[project("a", &[name])]);
        assert!(current().is_none(), "it was removed");
    }

    #[test]
    fn the_time_of_an_uploaded_certificate_is_known() {
        let (of_projects, _) = of_projects();
        let names = ["app.example.com", "own.example.com"];
        of_projects.apply(&[with_certificate("a", names[0]), uploaded("a", names[0])]);
        of_projects.apply(&[project("b", &[names[1]])]);
        let left = |name: &str, now| of_projects.seconds_left(&name.parse().unwrap(), now);
        // The certificates of the tests expire in the year 4096.
        assert!(left(names[0], 1_906_502_400).unwrap() > EXPIRY_NOTICE);
        assert!(left(names[0], 70_000_000_000).unwrap() < 0);
        assert_eq!(left(names[1], 0), None);
    }

    #[test]
    fn former_holders_of_names_are_found() {
        let (of_projects, _) = of_projects();
        of_projects.apply(&[project("a", &["*.example.com", "app.example.org"])]);
        for (name, expected) in [
            ("app.example.com", Some("a")),
            ("*.example.com", Some("a")),
            ("app.example.org", Some("a")),
            ("a.app.example.com", None),
            ("example.com", None),
        ] {
            let former = of_projects.former_holders(&[project("b", &[name])]);
            assert_eq!(former.first().map(|id| &**id), expected, "{name}");
            let own = of_projects.former_holders(&[project("a", &[name])]);
            assert!(own.is_empty(), "{name}");
        }
    }

    #[test]
    fn orders_end_with_their_domain() {
        let state = tempfile::tempdir().unwrap();
        let settings = settings(vec![ChallengeKind::TlsAlpn01], state.path());
        let provider = daemon::tls::provider();
        let now: WallClock = Arc::new(|| 1_906_502_400);
        let set = CertificateSet::open(settings.clone(), Arc::default(), provider, now).unwrap();
        let domains = Arc::new(Domains::default());
        let base = "engine.example".parse().unwrap();
        let orders = Some((set.clone(), settings));
        let of_projects = ProjectDomains::new(Arc::clone(&domains), base, orders);
        of_projects.apply(&[project("a", &["a.example.com", "b.example.com"])]);
        let domain = domains.at("a.example.com").unwrap();
        assert!(matches!(domain.certificate, DomainCertificate::Ordered(_)));
        assert!(format!("{set:?}").contains("names: 2"), "{set:?}");
        of_projects.apply(&[project("a", &["b.example.com"])]);
        assert!(format!("{set:?}").contains("names: 1"), "{set:?}");
    }
}
