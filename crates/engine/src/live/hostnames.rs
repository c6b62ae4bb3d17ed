//! Names of published tunnels: `<label>.t.<base host>`, requested or random, and custom domains.

use std::sync::Arc;

use types::tunnel::{Hostname, TunnelProperties};

use super::names::routed_hostname;
use crate::domains::{Domain, Domains};
use crate::random::random_bytes;

/// The namespace below which an engine publishes: `*.t.<base host>` (EN-10). On a managed engine,
/// whose base is the cluster domain, each label ends with the endpoint of its project:
/// `<slug>-<endpoint>.t.<cluster domain>`. Custom domains are outside of it; a tunnel has one of
/// their names only if it requests it.
#[derive(Debug, Clone)]
pub struct Namespace {
    base: Hostname,
    tunnels: Hostname,
    domains: Arc<Domains>,
}

/// The kind of a name that a tunnel may have.
#[derive(Debug, Clone)]
pub enum PublishedName<'h> {
    /// One label below `t.<base host>`.
    Label(&'h str),
    /// A custom domain, or a name below a wildcard.
    Domain(Arc<Domain>),
}

impl<'h> PublishedName<'h> {
    /// The endpoint of the project that would have a label on a managed engine.
    pub fn endpoint(&self) -> Option<&'h str> {
        match self {
            Self::Label(label) => {
                let (slug, endpoint) = label.rsplit_once('-')?;
                (!slug.is_empty()).then_some(endpoint)
            }
            Self::Domain(_) => None,
        }
    }
}

/// The project that requests a name.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'p> {
    /// Its id.
    pub project: &'p str,
    /// Its endpoint; `None` on a community engine.
    pub endpoint: Option<&'p str>,
}

/// Reasons why a requested host name is refused. Each text ends with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostnameError {
    /// A full name that is not a custom domain of this engine.
    #[error(
        "`hostname`: the domain {0} is not available on this engine; add it to `domains` in the \
         configuration of the engine, or use a single label"
    )]
    UnknownDomain(Hostname),
    /// A full name that is not a custom domain of the project, on a managed engine.
    #[error(
        "`hostname`: the domain {0} is not available in this project: it has not been added (`svc \
         domain add {0}`), or it is not served, because it is pending, suspended or quarantined until \
         its DNS records are found; `svc domain list` shows the status of each domain, and `svc domain \
         show {0}` the records to create"
    )]
    NotOfProject(Hostname),
    /// A name at or below the engine's own host that is not below `t.<host>`.
    #[error(
        "`hostname`: {0} is not available, because it belongs to the engine itself; use a single \
         label"
    )]
    Reserved(Hostname),
    /// A name below a wildcard that leads to another server.
    #[error(
        "`hostname`: {0} is not available, because another server has this name (`tls.routes` in \
         the configuration of the engine); use another name"
    )]
    Routed(Hostname),
    /// A name of this engine that ends with another project's endpoint.
    #[error(
        "`hostname` belongs to another project: names must end with the project's own endpoint"
    )]
    OtherProject,
    /// A label that makes the full name longer than a name may be.
    #[error("`hostname` is too long below this engine's own name; use a shorter label")]
    TooLong,
}

impl Namespace {
    /// Takes the engine's base host (`engine.host`).
    ///
    /// # Errors
    /// A base host that leaves no space for `r` and 8 digits in front of `.t.`.
    pub fn new(base: Hostname) -> Result<Self, HostnameError> {
        let tunnels = Hostname::below("t", &base).map_err(|_| HostnameError::TooLong)?;
        Hostname::below("r00000000", &tunnels).map_err(|_| HostnameError::TooLong)?;
        Ok(Self {
            base,
            tunnels,
            domains: Arc::default(),
        })
    }

    /// The same with custom domains.
    #[must_use]
    pub fn with_domains(self, domains: Arc<Domains>) -> Self {
        Self { domains, ..self }
    }

    /// The custom domains.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// The engine's own host.
    pub fn base(&self) -> &Hostname {
        &self.base
    }

    /// The label of `host`, in lower case, if it is directly below the base; a managed engine has
    /// the addresses of its projects there.
    pub fn label_of<'h>(&self, host: &'h str) -> Option<&'h str> {
        label_below(host, &self.base)
    }

    /// The kind of the name `host`, which is in lower case. `None` if no tunnel can have it.
    pub fn classify<'h>(&self, host: &'h str) -> Option<PublishedName<'h>> {
        if let Some(label) = label_below(host, &self.tunnels) {
            return Some(PublishedName::Label(label));
        }
        if self.is_own(host) {
            return None;
        }
        self.domains.at(host).map(PublishedName::Domain)
    }

    /// The custom domain, or the name below a wildcard, by which visitors reach a tunnel.
    pub fn custom_name<'p>(&self, properties: &'p TunnelProperties) -> Option<&'p Hostname> {
        routed_hostname(properties).filter(|name| !self.is_own(name.as_str()))
    }

    /// True if `host`, which is in lower case, is a custom domain of the project, or below its
    /// wildcard.
    pub fn is_domain_of(&self, host: &str, project: &str) -> bool {
        let domain = self.domains.at(host);
        domain.is_some_and(|domain| *domain.project == *project)
    }

    /// True if visitors reach the tunnel of a project by a custom domain that the project no longer
    /// has. The tunnel is about to be closed.
    pub fn has_lost_name(&self, properties: &TunnelProperties, project: &str) -> bool {
        let name = self.custom_name(properties);
        name.is_some_and(|name| !self.is_domain_of(name.as_str(), project))
    }

    /// True for the base host and all names below it, for which there are no custom domains.
    fn is_own(&self, host: &str) -> bool {
        let above = host.strip_suffix(self.base.as_str());
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }

    /// Resolves the requested name: a label `L`, the full name `L.t.<base host>`, or a custom
    /// domain of the project. In a project with an endpoint, a label is a slug to which the
    /// endpoint is appended; a full name has it already.
    pub fn resolve(
        &self,
        requested: &Hostname,
        requester: Requester<'_>,
    ) -> Result<Hostname, HostnameError> {
        let below =
            |label: &str| Hostname::below(label, &self.tunnels).map_err(|_| HostnameError::TooLong);
        let label = if requested.is_label() {
            Some(requested.as_str())
        } else {
            requested.label_below(&self.tunnels)
        };
        let Some(label) = label else {
            return self.resolve_domain(requested, requester);
        };
        match requester.endpoint {
            None => below(label),
            Some(endpoint) if is_of(label, endpoint) => below(label),
            Some(endpoint) if requested.is_label() => below(&format!("{label}-{endpoint}")),
            Some(_) => Err(HostnameError::OtherProject),
        }
    }

    fn resolve_domain(
        &self,
        requested: &Hostname,
        requester: Requester<'_>,
    ) -> Result<Hostname, HostnameError> {
        if self.is_own(requested.as_str()) {
            return Err(HostnameError::Reserved(requested.clone()));
        }
        let domain = self.domains.at(requested.as_str());
        // The text is the same for a domain of another project, so that it does not reveal the
        // owner.
        match domain.filter(|domain| *domain.project == *requester.project) {
            Some(_) => Ok(requested.clone()),
            None if requester.endpoint.is_some() => {
                Err(HostnameError::NotOfProject(requested.clone()))
            }
            None => Err(HostnameError::UnknownDomain(requested.clone())),
        }
    }

    /// Draws a random name: `r` and 8 hexadecimal digits, and the project's endpoint if it has one.
    /// `taken` returns true for names in use. `None` if no free one was found, which the caller
    /// treats as exhausted capacity.
    pub fn draw(
        &self,
        endpoint: Option<&str>,
        taken: impl Fn(&Hostname) -> bool,
    ) -> Option<Hostname> {
        self.draw_with(|| u32::from_be_bytes(random_bytes()), endpoint, taken)
    }

    fn draw_with(
        &self,
        mut random: impl FnMut() -> u32,
        endpoint: Option<&str>,
        taken: impl Fn(&Hostname) -> bool,
    ) -> Option<Hostname> {
        let mut label = || match (random(), endpoint) {
            (number, Some(endpoint)) => format!("r{number:08x}-{endpoint}"),
            (number, None) => format!("r{number:08x}"),
        };
        (0..DRAWS)
            .filter_map(|_| Hostname::below(&label(), &self.tunnels).ok())
            .find(|hostname| !taken(hostname))
    }
}

/// The label of `host` if it is exactly one label below `domain`.
fn label_below<'h>(host: &'h str, domain: &Hostname) -> Option<&'h str> {
    let label = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
    (!label.is_empty() && !label.contains('.')).then_some(label)
}

/// Returns true if a label is `<slug>-<endpoint>`.
fn is_of(label: &str, endpoint: &str) -> bool {
    let slug = label.strip_suffix(endpoint);
    slug.and_then(|slug| slug.strip_suffix('-'))
        .is_some_and(|slug| !slug.is_empty())
}

/// With 10,000 names in use, one draw of 32 bits collides once in 400,000, so 8 draws suffice.
const DRAWS: usize = 8;

#[cfg(test)]
mod tests;
