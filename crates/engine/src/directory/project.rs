//! A project: its fixed names, and its changing state.

use std::net::IpAddr;
use std::sync::Arc;

use api::control::settings::{GeoIp, MinTlsVersion, ProjectSettings, PublicAccessPolicy};
use api::link::{Address, Limits};
use arc_swap::{ArcSwap, Guard};
use transport::permit::Counter;
use types::tunnel::{Country, IpRange, TlsVersion};

use crate::browser::SignInHosts;
use crate::limits::{BandwidthLimit, ChangeRate, Meters};

/// A project. Tunnels and agents have a reference to it. The platform's updates replace its state,
/// and all references see the new state at their next access.
#[derive(Debug)]
pub struct Project {
    /// Id.
    pub id: Arc<str>,
    /// First label of its address; `None` for the project of a community engine, whose address is
    /// the engine's own name.
    pub endpoint: Option<Arc<str>>,
    /// Recent usage of all its tunnels together.
    pub meters: Meters,
    /// Recent changes of its agents and tunnels.
    pub(crate) changes: ChangeRate,
    /// Active visits of its tunnels.
    pub active_visits: Counter,
    /// Bandwidth of its tunnels, from the limits of its state.
    pub speed: BandwidthLimit,
    /// Sign-ins of users at its tunnels.
    pub signed_in: SignInHosts,
    state: ArcSwap<ProjectState>,
}

impl AsRef<Counter> for Project {
    fn as_ref(&self) -> &Counter {
        &self.active_visits
    }
}

/// Current state of a project.
#[derive(Debug)]
pub struct ProjectState {
    /// The workspace that it belongs to.
    pub workspace_id: Option<Arc<str>>,
    /// Plan, for the lists.
    pub plan: Option<Arc<str>>,
    /// Provider, for the lists.
    pub provider: Option<Arc<str>>,
    /// Region, for the lists.
    pub region: Option<Arc<str>>,
    /// True if it is served: false while it is suspended, and once it is deleted.
    pub in_use: bool,
    /// Project-wide policy (ED-8).
    pub policy: ProjectPolicy,
    /// Limits of the plan.
    pub limits: Limits,
    /// Reserved TCP ports.
    pub addresses: Box<[Address]>,
    /// Host names that an operator has taken down, sorted.
    taken_down: Box<[Box<str>]>,
}

/// Project-wide policy, compiled (ED-8).
#[derive(Debug)]
pub struct ProjectPolicy {
    /// Access of visitors without a proof.
    pub public_access: PublicAccessPolicy,
    /// True if TCP tunnels may be published.
    pub published_tcp: bool,
    /// The oldest TLS version that visitors may use.
    pub min_tls: Option<TlsVersion>,
    /// The countries that visitors may come from; `None`: anywhere.
    pub geo: Option<GeoRule>,
    /// True if a part of it could not be parsed: all visitors are refused.
    pub unreadable: bool,
    trusted_ips: Option<Box<[IpRange]>>,
}

/// Countries that are allowed or denied.
#[derive(Debug)]
pub struct GeoRule {
    /// True for a list of allowed countries, false for a list of denied ones.
    allows: bool,
    countries: Box<[Country]>,
}

impl Project {
    /// Id of the one project that a community engine serves.
    pub const COMMUNITY: &str = types::tunnel::COMMUNITY_PROJECT;

    /// The project of a community engine, which has no settings of its own.
    pub fn community() -> Self {
        Self {
            id: Self::COMMUNITY.into(),
            endpoint: None,
            meters: Meters::default(),
            changes: ChangeRate::default(),
            active_visits: Counter::default(),
            speed: BandwidthLimit::new(&Limits::default()),
            signed_in: SignInHosts::default(),
            state: ArcSwap::from_pointee(ProjectState {
                workspace_id: None,
                plan: None,
                provider: None,
                region: None,
                in_use: true,
                policy: ProjectPolicy::compile(&ProjectSettings::default()),
                limits: Limits::default(),
                addresses: Box::default(),
                taken_down: Box::default(),
            }),
        }
    }

    pub(super) fn managed(record: &api::link::Project) -> Self {
        Self {
            id: record.id.as_str().into(),
            endpoint: Some(record.endpoint.as_str().into()),
            meters: Meters::default(),
            changes: ChangeRate::default(),
            active_visits: Counter::default(),
            speed: BandwidthLimit::new(&record.limits),
            signed_in: SignInHosts::default(),
            state: ArcSwap::from_pointee(ProjectState::compile(record)),
        }
    }

    /// Returns true if it is the engine's only project, and so needs no fair share.
    pub fn is_alone(&self) -> bool {
        self.endpoint.is_none()
    }

    /// The current state.
    pub fn state(&self) -> Guard<Arc<ProjectState>> {
        self.state.load()
    }

    pub(super) fn update(&self, state: ProjectState) {
        self.speed.set(&state.limits);
        self.state.store(Arc::new(state));
    }

    /// Stops serving the project.
    pub(super) fn end(&self) {
        let ended = ProjectState::clone_without_use(&self.state.load());
        self.state.store(Arc::new(ended));
    }
}

impl ProjectState {
    /// Returns true if the project has reserved this TCP port.
    pub fn has_reserved(&self, port: u16) -> bool {
        self.addresses.iter().any(|address| address.port == port)
    }

    /// Returns true if an operator has taken down this host name, which is in lower case.
    pub fn is_taken_down(&self, hostname: &str) -> bool {
        let found = self
            .taken_down
            .binary_search_by(|name| (**name).cmp(hostname));
        found.is_ok()
    }

    pub(super) fn compile(record: &api::link::Project) -> Self {
        let names = record.taken_down.iter();
        let mut taken_down: Box<[Box<str>]> = names.map(|name| name.as_str().into()).collect();
        taken_down.sort_unstable();
        Self {
            workspace_id: Some(record.workspace_id.as_str().into()),
            plan: Some(record.plan.as_str().into()),
            provider: Some(record.provider.as_str().into()),
            region: record.region.as_deref().map(Into::into),
            in_use: !record.suspended,
            policy: ProjectPolicy::compile(&record.settings),
            limits: record.limits,
            addresses: record.addresses.clone().into(),
            taken_down,
        }
    }

    fn clone_without_use(from: &Self) -> Self {
        Self {
            workspace_id: from.workspace_id.clone(),
            plan: from.plan.clone(),
            provider: from.provider.clone(),
            region: from.region.clone(),
            in_use: false,
            policy: ProjectPolicy::compile(&ProjectSettings {
                public_access_policy: PublicAccessPolicy::Forbidden,
                ..ProjectSettings::default()
            }),
            limits: from.limits,
            addresses: Box::default(),
            // Nothing of the project is served.
            taken_down: Box::default(),
        }
    }
}

impl ProjectPolicy {
    fn compile(settings: &ProjectSettings) -> Self {
        let ranges = settings.trusted_ips.as_ref().map(|ranges| {
            let ranges = ranges.iter().map(|range| range.parse::<IpRange>());
            ranges.collect::<Result<Box<[_]>, _>>()
        });
        let geo = settings.geo_ip.as_ref().map(GeoRule::compile);
        Self {
            public_access: settings.public_access_policy,
            published_tcp: settings.published_tcp_enabled,
            min_tls: settings.min_tls_version.map(|version| match version {
                MinTlsVersion::Tls12 => TlsVersion::Tls12,
                MinTlsVersion::Tls13 => TlsVersion::Tls13,
            }),
            unreadable: matches!(ranges, Some(Err(_))) || matches!(geo, Some(None)),
            trusted_ips: ranges.and_then(Result::ok),
            geo: geo.flatten(),
        }
    }

    /// Returns true if visitors from this address are allowed. Without ranges all addresses are.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let ranges = self.trusted_ips.as_ref();
        ranges.is_none_or(|ranges| ranges.iter().any(|range| range.contains(peer)))
    }
}

impl GeoRule {
    fn compile(record: &GeoIp) -> Option<Self> {
        let (allows, countries) = match (&record.allow, &record.deny) {
            (Some(countries), None) => (true, countries),
            (None, Some(countries)) => (false, countries),
            _ => return None,
        };
        let countries = countries.iter().map(|country| country.parse::<Country>());
        Some(Self {
            allows,
            countries: countries.collect::<Result<_, _>>().ok()?,
        })
    }

    /// Returns true if visitors from this country are allowed. An unknown country is refused by
    /// every list: it is not among the allowed ones, and may be among the denied ones.
    pub fn admits(&self, country: Option<&Country>) -> bool {
        country.is_some_and(|country| self.countries.contains(country) == self.allows)
    }
}
