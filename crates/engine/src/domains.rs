//! The custom domains of an engine: names outside its own host, their projects and certificates.
//!
//! A community engine has those of its configuration, a managed engine those that its platform sends.
//! They can be added and removed while it runs.

mod certificates;
mod files;
mod order_reports;
mod projects;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acme::{Certificate, ChallengeKind, IssuedCertificate, Settings};
use rustls::sign::CertifiedKey;
use types::domain_name::DomainName;

pub(crate) use self::certificates::{DomainCertificates, DomainResolver};
pub use self::files::DomainFiles;
pub(crate) use self::order_reports::OrderReports;
pub(crate) use self::projects::ProjectDomains;

/// Maximum number of custom domains of an engine. Their certificates take 80 MiB at most, and the
/// state of all is read at a start.
pub const MAX_DOMAINS: usize = 10_000;

/// The custom domains of an engine. Readers take no lock: a handshake or a request costs one or two
/// look-ups, also for a name that is not there.
#[derive(Default)]
pub struct Domains {
    /// Domains without a wildcard, by name.
    exact: papaya::HashMap<Box<str>, Arc<Domain>>,
    /// Wildcards, by the name after `*.`.
    wildcards: papaya::HashMap<Box<str>, Arc<Domain>>,
    /// Names that are not served, and the projects that hold them: the records of their owner are
    /// missing. Wildcards of other projects do not include them.
    held: papaya::HashMap<Box<str>, Arc<str>>,
    count: AtomicUsize,
}

/// A custom domain.
#[derive(Debug)]
pub struct Domain {
    /// The name.
    pub name: DomainName,
    /// Id of the project whose tunnels may have the name.
    pub project: Arc<str>,
    /// Source of its certificate.
    pub certificate: DomainCertificate,
}

/// Source of the certificate of a domain.
pub enum DomainCertificate {
    /// Two files.
    Files(Arc<DomainFiles>),
    /// An authority. There may be none yet.
    Ordered(Certificate),
    /// The project of the domain, which uploaded it at the platform. It arrives after the domain.
    Uploaded(Option<Arc<IssuedCertificate>>),
    /// The engine's own certificate.
    Own,
}

/// An engine has as many domains as it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has {MAX_DOMAINS} domains already; remove one first")]
pub struct TooManyDomainsError;

impl Domains {
    /// Adds a domain, or replaces the one with its name.
    ///
    /// # Errors
    /// [`TooManyDomainsError`] at [`MAX_DOMAINS`].
    pub fn insert(&self, domain: Domain) -> Result<(), TooManyDomainsError> {
        let names = self.of_kind(&domain.name);
        let names = names.pin();
        let key: Box<str> = domain.name.base().into();
        let is_new = !names.contains_key(&key);
        if is_new && self.count.fetch_add(1, Ordering::AcqRel) >= MAX_DOMAINS {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return Err(TooManyDomainsError);
        }
        names.insert(key, Arc::new(domain));
        Ok(())
    }

    /// Removes a domain. Tunnels that have one of its names keep it until they close: the caller
    /// closes them.
    pub fn remove(&self, name: &DomainName) -> Option<Arc<Domain>> {
        let names = self.of_kind(name);
        let removed = names.pin().remove(name.base()).map(Arc::clone)?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(removed)
    }

    /// The domain with exactly this name.
    pub fn get(&self, name: &DomainName) -> Option<Arc<Domain>> {
        self.of_kind(name).pin().get(name.base()).map(Arc::clone)
    }

    /// The domain of a host name in lower case: the one with this name, else a wildcard.
    pub fn at(&self, host: &str) -> Option<Arc<Domain>> {
        self.exact(host).or_else(|| self.wildcard(host))
    }

    fn exact(&self, host: &str) -> Option<Arc<Domain>> {
        self.exact.pin().get(host).map(Arc::clone)
    }

    fn wildcard(&self, host: &str) -> Option<Arc<Domain>> {
        let (label, base) = host.split_once('.')?;
        let found = self.wildcards.pin().get(base).map(Arc::clone);
        found.filter(|domain| !label.is_empty() && self.may_have(host, &domain.project))
    }

    /// True unless another project holds the name.
    fn may_have(&self, host: &str, project: &str) -> bool {
        let held = self.held.pin();
        held.get(host).is_none_or(|holder| **holder == *project)
    }

    /// Lets a project hold these names as well, which are in lower case. There are at most
    /// [`MAX_DOMAINS`].
    fn hold(&self, names: &[String], project: &Arc<str>) {
        let held = self.held.pin();
        for name in names {
            if held.len() < MAX_DOMAINS || held.contains_key(name.as_str()) {
                held.insert(name.as_str().into(), Arc::clone(project));
            }
        }
    }

    /// Ends the holding of these names by a project. Those that another one holds by now stay held.
    fn release<'n>(&self, names: impl Iterator<Item = &'n str>, project: &str) {
        let held = self.held.pin();
        for name in names {
            if held.get(name).is_some_and(|holder| **holder == *project) {
                held.remove(name);
            }
        }
    }

    /// The most specific certificate for a host name in lower case. `None` if the engine's own one
    /// is to be used.
    pub(crate) fn certificate_of(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        let of = |domain: Arc<Domain>| domain.certificate.current();
        match self.exact(host) {
            Some(domain) if domain.certificate.was_expired() => {
                let wildcard = self.wildcard(host).and_then(of);
                wildcard.or_else(|| of(domain))
            }
            exact => {
                let exact = exact.and_then(of);
                exact.or_else(|| self.wildcard(host).and_then(of))
            }
        }
    }

    /// All domains.
    fn all(&self) -> Vec<Arc<Domain>> {
        let (exact, wildcards) = (self.exact.pin(), self.wildcards.pin());
        exact
            .values()
            .chain(wildcards.values())
            .map(Arc::clone)
            .collect()
    }

    fn of_kind(&self, name: &DomainName) -> &papaya::HashMap<Box<str>, Arc<Domain>> {
        if name.is_wildcard() {
            &self.wildcards
        } else {
            &self.exact
        }
    }
}

impl DomainCertificate {
    /// The certificate; `None` if there is none yet, or it is the engine's own.
    fn current(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Files(files) => Some(files.current()),
            Self::Ordered(ordered) => {
                let issued = ordered.current()?;
                Some(Arc::clone(issued.certified()))
            }
            Self::Uploaded(uploaded) => {
                let uploaded = uploaded.as_ref()?;
                Some(Arc::clone(uploaded.certified()))
            }
            Self::Own => None,
        }
    }

    /// True if an ordered certificate had expired when this process read it, so that another
    /// certificate is preferred until it is renewed.
    fn was_expired(&self) -> bool {
        match self {
            Self::Ordered(ordered) => ordered.current().is_some_and(|issued| issued.was_expired()),
            Self::Files(_) | Self::Uploaded(_) | Self::Own => false,
        }
    }
}

/// True if `certs.acme` can order a certificate for a domain: wildcards need a challenge by DNS.
pub(crate) fn can_be_ordered(name: &DomainName, settings: &Settings) -> bool {
    !name.is_wildcard() || settings.challenges.contains(&ChallengeKind::Dns01)
}

impl fmt::Debug for Domains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domains")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DomainCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files(_) => "Files",
            Self::Ordered(_) => "Ordered",
            Self::Uploaded(_) => "Uploaded",
            Self::Own => "Own",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(domains: &Domains, name: &str) -> Result<(), TooManyDomainsError> {
        domains.insert(Domain {
            name: name.parse().unwrap(),
            project: "default".into(),
            certificate: DomainCertificate::Own,
        })
    }

    fn at(domains: &Domains, host: &str) -> Option<String> {
        let found = domains.at(host)?;
        Some(found.name.as_str().to_owned())
    }

    #[test]
    fn the_most_specific_domain_has_a_name() {
        let domains = Domains::default();
        for name in ["app.example.com", "*.example.com", "*.app.example.com"] {
            add(&domains, name).unwrap();
        }
        for (host, expected) in [
            ("app.example.com", Some("app.example.com")),
            ("other.example.com", Some("*.example.com")),
            ("a.app.example.com", Some("*.app.example.com")),
            ("a.b.app.example.com", None),
            (".app.example.com", None),
            ("example.com", None),
            ("com", None),
            ("", None),
        ] {
            assert_eq!(at(&domains, host).as_deref(), expected, "{host}");
        }
        assert!(
            domains
                .remove(&"app.example.com".parse().unwrap())
                .is_some()
        );
        assert!(
            domains
                .remove(&"app.example.com".parse().unwrap())
                .is_none()
        );
        assert_eq!(
            at(&domains, "app.example.com").as_deref(),
            Some("*.example.com")
        );
    }

    #[test]
    fn the_number_of_held_names_is_bounded() {
        let domains = Domains::default();
        let names = (0..=MAX_DOMAINS).map(|number| format!("a{number}.example.com"));
        let names: Vec<String> = names.collect();
        domains.hold(&names, &"prj_1".into());
        assert_eq!(domains.held.pin().len(), MAX_DOMAINS);
        let released = || names.iter().map(String::as_str);
        domains.release(released(), "prj_2");
        assert_eq!(domains.held.pin().len(), MAX_DOMAINS);
        domains.release(released(), "prj_1");
        assert!(domains.held.pin().is_empty());
    }

    #[test]
    fn the_number_of_domains_is_bounded() {
        let domains = Domains::default();
        for number in 0..MAX_DOMAINS {
            add(&domains, &format!("a{number}.example.com")).unwrap();
        }
        assert_eq!(add(&domains, "b.example.com"), Err(TooManyDomainsError));
        assert_eq!(add(&domains, "a0.example.com"), Ok(()), "it is replaced");
        let removed = domains.remove(&"a1.example.com".parse().unwrap());
        assert!(removed.is_some());
        assert_eq!(add(&domains, "b.example.com"), Ok(()));
    }
}
