//! Certificates of custom domains: from files, from an authority, or the engine's own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use acme::{CertificateSet, ChallengeKind, Challenges, WallClock};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;
use types::domain_name::DomainName;
use types::tunnel::Hostname;

use super::files::{DomainFiles, FileChecks};
use super::projects::ProjectDomains;
use super::{Domain, DomainCertificate, Domains, can_be_ordered};
use crate::clock::Clock;
use crate::config::{Auth, DomainConfig, EngineConfig};
use crate::directory::Project;
use crate::start_error::StartError;

/// The sources of the domains' certificates, before the engine serves.
pub(crate) struct DomainCertificates {
    ordered: Option<CertificateSet>,
    files: FileChecks,
}

impl DomainCertificates {
    /// Adds the domains of the configuration to `domains`, with the certificates that they have
    /// already. `challenges` are those of the engine's own orders.
    ///
    /// # Errors
    /// A file or the state of orders cannot be used.
    pub(crate) fn open(
        config: &EngineConfig,
        domains: &Domains,
        challenges: Option<Arc<Challenges>>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let files = load_files(&config.domains)?;
        let is_managed = matches!(config.auth, Auth::Platform(_));
        let has_domains = is_managed || !config.domains.is_empty();
        let settings = config.acme.as_ref().filter(|_| has_domains);
        let ordered = match (settings, challenges) {
            (Some(settings), Some(challenges)) => {
                let clock = Arc::clone(clock);
                let now: WallClock = Arc::new(move || clock.now().as_second());
                let (mut settings, provider) = (settings.clone(), daemon::tls::provider());
                if is_managed {
                    // The zones of projects usually belong to other parties, so that a record is the
                    // last resort.
                    settings
                        .challenges
                        .sort_by_key(|kind| *kind == ChallengeKind::Dns01);
                }
                Some(CertificateSet::open(settings, challenges, provider, now)?)
            }
            _ => None,
        };
        let project: Arc<str> = Project::COMMUNITY.into();
        for domain in &config.domains {
            let name = &domain.name;
            let can_order = settings.is_some_and(|settings| can_be_ordered(name, settings));
            let set = ordered.as_ref().filter(|_| can_order);
            let certificate = match (&domain.certificate, set) {
                (Some(pair), _) => files
                    .get(&(&*pair.cert, &*pair.key))
                    .map_or(DomainCertificate::Own, |files| {
                        DomainCertificate::Files(Arc::clone(files))
                    }),
                (None, Some(set)) => DomainCertificate::Ordered(set.add(name.as_str())),
                (None, None) => DomainCertificate::Own,
            };
            domains
                .insert(Domain {
                    name: name.clone(),
                    project: Arc::clone(&project),
                    certificate,
                })
                .map_err(|error| StartError::Domains(error.to_string()))?;
        }
        let files = FileChecks::new(files.into_values().collect());
        Ok(Self { ordered, files })
    }

    /// The receiver of the domains of projects, on a managed engine. `base` is the engine's own host.
    pub(crate) fn of_projects(
        &self,
        config: &EngineConfig,
        domains: &Arc<Domains>,
        base: &Hostname,
    ) -> ProjectDomains {
        let orders = self.ordered.clone().zip(config.acme.clone());
        ProjectDomains::new(Arc::clone(domains), base.clone(), orders)
    }

    /// Starts to check the files, and to order and renew from `begin` on, until `stop`. Returns the
    /// thread of the orders; `None` if no certificate is ordered.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        self,
        clock: &Arc<dyn Clock>,
        begin: &CancellationToken,
        stop: &CancellationToken,
    ) -> io::Result<Option<JoinHandle<()>>> {
        if !self.files.is_empty() {
            let (clock, stop) = (Arc::clone(clock), stop.child_token());
            tokio::spawn(self.files.check_periodically(clock, stop));
        }
        let ordered = self
            .ordered
            .map(|set| set.start(begin.clone(), stop.child_token()));
        ordered.transpose()
    }
}

type FilePairs<'c> = BTreeMap<(&'c Path, &'c Path), Arc<DomainFiles>>;

/// Reads each pair of files once. Several domains may share it.
fn load_files(domains: &[DomainConfig]) -> Result<FilePairs<'_>, StartError> {
    let mut names: BTreeMap<_, Vec<&DomainName>> = BTreeMap::new();
    for domain in domains {
        if let Some(pair) = &domain.certificate {
            let same = names.entry((&*pair.cert, &*pair.key)).or_default();
            same.push(&domain.name);
        }
    }
    let of_pair = domains
        .iter()
        .filter_map(|domain| domain.certificate.as_ref());
    let mut files = FilePairs::new();
    for pair in of_pair {
        let key = (&*pair.cert, &*pair.key);
        let Some(names) = names.remove(&key) else {
            continue;
        };
        let names = names.iter().map(ToString::to_string).collect();
        let loaded = DomainFiles::load(pair.clone(), names);
        let loaded = loaded.map_err(StartError::DomainCertificate)?;
        files.insert(key, Arc::new(loaded));
    }
    Ok(files)
}

/// The certificate of each handshake: that of the domain, else the engine's own.
pub(crate) struct DomainResolver {
    domains: Arc<Domains>,
    base: Hostname,
    own: Arc<dyn ResolvesServerCert>,
}

impl DomainResolver {
    /// `own` has the certificates of `base` and of all names below it.
    pub(crate) fn new(
        domains: Arc<Domains>,
        base: Hostname,
        own: Arc<dyn ResolvesServerCert>,
    ) -> Self {
        Self { domains, base, own }
    }

    fn of_domain(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        };
        // A wildcard above the engine's host is never used for the engine itself.
        let above = name.strip_suffix(self.base.as_str());
        if above.is_some_and(|above| above.is_empty() || above.ends_with('.')) {
            return None;
        }
        self.domains.certificate_of(&name)
    }
}

impl ResolvesServerCert for DomainResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let of_domain = hello.server_name().and_then(|name| self.of_domain(name));
        of_domain.or_else(|| self.own.resolve(hello))
    }
}

impl fmt::Debug for DomainResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainResolver")
            .field("domains", &self.domains)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use daemon::tls::CertFiles;
    use rcgen::generate_simple_self_signed;
    use tempfile::TempDir;

    use super::*;

    /// A domain with a certificate from files for the same name.
    fn domain(dir: &TempDir, name: &str) -> Domain {
        let made = generate_simple_self_signed([name.to_owned()]).unwrap();
        let file = |kind: &str| dir.path().join(format!("{name}.{kind}"));
        let files = CertFiles {
            cert: file("pem"),
            key: file("key"),
        };
        std::fs::write(&files.cert, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        let names = vec![name.to_owned()];
        let loaded = DomainFiles::load(files, names);
        Domain {
            name: name.parse().unwrap(),
            project: "default".into(),
            certificate: DomainCertificate::Files(Arc::new(loaded.unwrap())),
        }
    }

    #[derive(Debug)]
    struct NoCertificate;

    impl ResolvesServerCert for NoCertificate {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            None
        }
    }

    /// The names of the certificate for a server name; none for the engine's own.
    fn names(resolver: &DomainResolver, name: &str) -> Vec<String> {
        let certified = resolver.of_domain(name);
        let leaf = certified.and_then(|certified| certified.cert.first().cloned());
        leaf.as_ref().map(daemon::tls::names_of).unwrap_or_default()
    }

    #[test]
    fn the_most_specific_certificate_is_used() {
        let dir = TempDir::new().unwrap();
        let domains = Arc::new(Domains::default());
        for name in ["app.example.com", "*.example.com"] {
            domains.insert(domain(&dir, name)).unwrap();
        }
        domains
            .insert(Domain {
                name: "new.example.com".parse().unwrap(),
                project: "default".into(),
                certificate: DomainCertificate::Ordered(acme::Certificate::default()),
            })
            .unwrap();
        let base = "tunnel.example.com".parse().unwrap();
        let resolver = DomainResolver::new(domains, base, Arc::new(NoCertificate));
        for (name, expected) in [
            ("app.example.com", &["app.example.com"][..]),
            ("APP.example.com", &["app.example.com"]),
            ("other.example.com", &["*.example.com"]),
            // The wildcard serves until the certificate of the name itself is issued.
            ("new.example.com", &["*.example.com"]),
            ("a.app.example.com", &[]),
            ("example.com", &[]),
            ("unknown.example.net", &[]),
            // The engine's own names.
            ("tunnel.example.com", &[]),
            ("web.t.tunnel.example.com", &[]),
        ] {
            assert_eq!(names(&resolver, name), expected, "{name}");
        }
    }
}
