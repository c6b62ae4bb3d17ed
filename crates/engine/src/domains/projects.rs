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
    /// The names of each project that has one.
    names: Mutex<NamesByProject>,
    /// Time of the next warnings about uploaded certificates, in seconds since 1970.
    next_warnings: AtomicI64,
    /// Domains whose uploaded certificate arrived since the last warnings. All of them have a place
    /// in `domains` when they are added, which bounds their number.
    arrived: Mutex<HashSet<DomainName>>,
}

type NamesByProject = HashMap<Arc<str>, ProjectNames>;

/// The names of a project.
#[derive(Default)]
struct ProjectNames {
    served: HashSet<DomainName>,
    /// Those that it holds and that are not served.
    held: Vec<Box<str>>,
}

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
            arrived: Mutex::default(),
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
            self.set(&mut names, &id, (&[], &[]));
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
            let served = project.domains.iter().map(|domain| &domain.hostname);
            let all = served.chain(&project.held);
            all.map(move |hostname| (&*project.id, hostname.as_str()))
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
                Item::Project(project) => {
                    self.set(names, &project.id, (&project.domains, &project.held));
                }
                Item::ProjectGone { id } => self.set(names, id, (&[], &[])),
                Item::DomainCertificate(uploaded) => self.put_certificate(uploaded),
                _ => {}
            }
        }
    }

    /// Gives a project exactly these domains, and lets it hold exactly these names that are not
    /// served.
    fn set(
        &self,
        names: &mut NamesByProject,
        project: &str,
        (listed, held): (&[CustomDomain], &[String]),
    ) {
        let known = names.remove_entry(project);
        let (id, before) = known.unwrap_or_else(|| (project.into(), ProjectNames::default()));
        // Before it loses a domain, and released after it has one again: meanwhile no other project
        // gets the name.
        self.domains.hold(held, &id);
        let wanted = listed.iter().filter_map(|domain| {
            let name = self.parse(domain)?;
            Some((name, domain))
        });
        let wanted: HashMap<DomainName, &CustomDomain> = wanted.collect();
        for name in before
            .served
            .iter()
            .filter(|name| !wanted.contains_key(*name))
        {
            self.remove(name, &id);
        }
        let added = wanted.into_iter().filter_map(|(name, domain)| {
            let has_it = self.add(&name, domain, &id);
            has_it.then_some(name)
        });
        let served: HashSet<DomainName> = added.collect();
        let still_held: HashSet<&str> = held.iter().map(String::as_str).collect();
        let before_held = before.held.iter().map(|name| &**name);
        let ended = before_held.filter(|name| !still_held.contains(name));
        self.domains.release(ended, &id);
        if !served.is_empty() || !held.is_empty() {
            let held = held.iter().map(|name| name.as_str().into()).collect();
            names.insert(id, ProjectNames { served, held });
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
        let is_same = known.is_some() && was_uploaded == wanted.has_certificate;
        // The platform may have got another zone for delegated challenges meanwhile.
        let may_change = wanted.certificate_validation == DomainCertificateValidation::Dns01;
        if is_same && (was_uploaded || !may_change) {
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
            self.certificate(name, wanted, project)
        };
        if matches!(certificate, DomainCertificate::Own) {
            self.end_orders(name);
        }
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
            name: name.clone(),
            project: Arc::clone(&known.project),
            certificate: DomainCertificate::Uploaded(Some(Arc::new(issued))),
        };
        // It replaces the one with its name, so that the number of domains stays.
        if let Err(error) = self.domains.insert(domain) {
            warn!(%error, "the uploaded certificate of a custom domain is not used");
        }
        // After it is in place: a warning in between would miss it.
        self.arrived.lock().insert(name);
    }

    /// Warns about uploaded certificates that expire soon: after they arrived, and once a day.
    /// `now` is in seconds since 1970.
    pub(crate) fn warn_expiring(&self, now: i64) {
        for (name, left) in self.expiring(now) {
            if left <= 0 {
                warn!(domain = %name, "the uploaded certificate of a custom domain has expired");
            } else {
                let days = left / WARNING_INTERVAL;
                warn!(domain = %name, days, "the uploaded certificate of a custom domain expires soon");
            }
        }
    }

    /// The domains to warn about with the seconds that are left: all once a day, and otherwise
    /// those whose certificate has just arrived, so that uploads of one project repeat no warning
    /// of others.
    fn expiring(&self, now: i64) -> Vec<(DomainName, i64)> {
        let arrived = std::mem::take(&mut *self.arrived.lock());
        let next = self.next_warnings.load(Ordering::Relaxed);
        // A clock that was set back must not stop the warnings.
        let is_waiting = next > now && next.saturating_sub(now) <= WARNING_INTERVAL;
        let names: Vec<DomainName> = if is_waiting {
            arrived.into_iter().collect()
        } else {
            let next = now.saturating_add(WARNING_INTERVAL);
            self.next_warnings.store(next, Ordering::Relaxed);
            let known = self.names.lock();
            let served = known.values().flat_map(|project| &project.served);
            served.cloned().collect()
        };
        let with_time = names.into_iter().filter_map(|name| {
            let left = self.seconds_left(&name, now)?;
            (left < EXPIRY_NOTICE).then_some((name, left))
        });
        with_time.collect()
    }

    /// Time until the uploaded certificate of a domain expires. `None` if it has no such
    /// certificate.
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
    fn certificate(
        &self,
        name: &DomainName,
        wanted: &CustomDomain,
        project: &Arc<str>,
    ) -> DomainCertificate {
        let validation = wanted.certificate_validation;
        let Some((set, settings)) = &self.orders else {
            return DomainCertificate::Own;
        };
        if !can_be_validated(name, validation, settings) {
            return DomainCertificate::Own;
        }
        if validation == DomainCertificateValidation::TlsAlpn01 {
            return DomainCertificate::Ordered(set.add_for(project, name.as_str(), None));
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
        DomainCertificate::Ordered(set.add_for(project, name.as_str(), alias))
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

    /// True if this chain, in PEM, is in use. Then its key is also in use.
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
mod tests;
