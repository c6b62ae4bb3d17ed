//! A cluster of engines: the projects that it serves, and their limits.

use std::collections::{BTreeMap, BTreeSet};

use api::control::plans::Plan;
use api::link::{Limits, Platform};
use serde_json::json;
use store::{credentials, directory};

use crate::billing::plans::Region;
use crate::config::Config;
use crate::domains::DomainsConfig;
use crate::oauth::Clients;

/// A cluster of the configuration.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Projects are at `<endpoint>.<domain>`.
    pub(super) domain: String,
    /// Selects its projects in the database.
    pub(super) directory: directory::Cluster,
    /// Limits of each plan.
    limits: BTreeMap<Plan, Limits>,
    /// The accepted OAuth clients.
    clients: Clients,
    /// Address of the platform.
    base_url: String,
    /// The realm of TURN credentials, if the receivers are relays.
    pub(super) relay_realm: Option<String>,
    /// The names to which challenges of custom domains are delegated.
    pub(super) domains: DomainsConfig,
    /// Fingerprint of all fields above and of the version of the platform. An engine that connected
    /// under another configuration, or to another version, receives the whole state again.
    pub(super) fingerprint: String,
}

impl Cluster {
    /// The cluster for its relays: the same as for engines, and the keys of TURN credentials.
    pub(super) fn for_relays(config: &Config, domain: &str) -> Self {
        let realm = config.turn.realm.clone();
        Self::with(
            config,
            domain,
            Some(realm.unwrap_or_else(|| domain.to_owned())),
        )
    }

    /// The cluster for its engines.
    pub(super) fn for_engines(config: &Config, domain: &str) -> Self {
        Self::with(config, domain, None)
    }

    fn with(config: &Config, domain: &str, relay_realm: Option<String>) -> Self {
        let regions = config.catalogue.regions();
        let name = |region: &Region| format!("{}/{}", region.provider.as_str(), region.region);
        let cluster_regions = regions.iter().filter(|region| region.domain == domain);
        // As in `projects::region_of`: projects of unknown regions belong to the first region.
        let is_first = regions
            .first()
            .is_some_and(|region| region.domain == domain);
        let directory = directory::Cluster {
            regions: cluster_regions.map(name).collect(),
            known_regions: is_first.then(|| regions.iter().map(name).collect()),
        };
        let limits: BTreeMap<Plan, Limits> = Plan::ALL
            .into_iter()
            .map(|plan| (plan, config.catalogue.terms(plan).limits))
            .collect();
        let shown: Vec<_> = limits
            .iter()
            .map(|(plan, limits)| json!([plan.as_str(), limits]))
            .collect();
        let clients = &config.oauth;
        let ids: BTreeSet<_> = clients.ids().collect();
        let base_url = config.base_url.clone();
        let all = json!([
            // Another version may send other fields of the same rows.
            env!("CARGO_PKG_VERSION"),
            base_url,
            domain,
            directory.regions,
            directory.known_regions,
            shown,
            ids,
            relay_realm,
            clients.accepts_documents(),
            config.domains.challenge_zones.get(domain),
        ]);
        let digest = ::credentials::digest(&all.to_string());
        Self {
            domain: domain.to_owned(),
            directory,
            limits,
            clients: clients.clone(),
            base_url,
            relay_realm,
            domains: config.domains.clone(),
            fingerprint: hex::encode(digest.first_chunk::<4>().unwrap_or(&[0; 4])),
        }
    }

    /// True if engines receive the credential. Credentials of a client that the configuration no
    /// longer accepts are not valid (OA-8).
    pub(super) fn accepts(&self, credential: &credentials::Credential) -> bool {
        let client = credential.oauth_client.as_ref();
        client.is_none_or(|client| self.clients.is_accepted(client))
    }

    /// Settings for the whole cluster.
    pub(super) fn platform(&self) -> Platform {
        Platform {
            base_url: self.base_url.clone(),
            cluster_domain: self.domain.clone(),
        }
    }

    /// Limits of a plan for one project. An unknown plan has the limits of the free one.
    pub(super) fn limits(&self, plan: &str) -> Limits {
        let plan = plan.parse().unwrap_or(Plan::Basic);
        self.limits.get(&plan).copied().unwrap_or_default()
    }
}
