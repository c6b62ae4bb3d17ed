//! A cluster of engines: which projects it serves, and on what terms.

use std::collections::{BTreeMap, BTreeSet};

use api::control::plans::Plan;
use api::link::{Limits, Platform};
use serde_json::json;
use store::{credentials, directory};

use crate::config::Config;
use crate::plans::Region;

/// A cluster, as the configuration has it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Projects are at `<endpoint>.<domain>`.
    pub(super) domain: String,
    /// Its projects in the database.
    pub(super) directory: directory::Cluster,
    /// What each plan allows.
    limits: BTreeMap<Plan, Limits>,
    /// The clients of OAuth that are registered.
    clients: BTreeSet<String>,
    /// Address of the platform.
    base_url: String,
    /// The realm of TURN credentials, where those who are told are relays.
    pub(super) relay_realm: Option<String>,
    /// Stands for all of the above: an engine that was told under another configuration is told
    /// everything again.
    pub(super) fingerprint: String,
}

impl Cluster {
    /// The cluster as its relays see it: what engines know, and the keys of TURN credentials.
    pub(super) fn of_relays(config: &Config, domain: &str) -> Self {
        let realm = config.turn.realm.clone();
        Self::with(
            config,
            domain,
            Some(realm.unwrap_or_else(|| domain.to_owned())),
        )
    }

    /// The cluster as its engines see it.
    pub(super) fn of(config: &Config, domain: &str) -> Self {
        Self::with(config, domain, None)
    }

    fn with(config: &Config, domain: &str, relay_realm: Option<String>) -> Self {
        let regions = config.catalogue.regions();
        let name = |region: &Region| format!("{}/{}", region.provider.as_str(), region.region);
        let own = regions.iter().filter(|region| region.domain == domain);
        // As in `projects::region_of`: what is in no region that is sold stands in the first.
        let is_first = regions
            .first()
            .is_some_and(|region| region.domain == domain);
        let directory = directory::Cluster {
            regions: own.map(name).collect(),
            others_than: is_first.then(|| regions.iter().map(name).collect()),
        };
        let limits: BTreeMap<Plan, Limits> = Plan::ALL
            .into_iter()
            .map(|plan| (plan, config.catalogue.terms(plan).limits))
            .collect();
        let shown: Vec<_> = limits
            .iter()
            .map(|(plan, limits)| json!([plan.as_str(), limits]))
            .collect();
        let clients: BTreeSet<_> = config.oauth.ids().map(str::to_owned).collect();
        let base_url = config.base_url.clone();
        let all = json!([
            base_url,
            domain,
            directory.regions,
            directory.others_than,
            shown,
            clients,
            relay_realm
        ]);
        let digest = ::credentials::digest(&all.to_string());
        Self {
            domain: domain.to_owned(),
            directory,
            limits,
            clients,
            base_url,
            relay_realm,
            fingerprint: hex::encode(digest.first_chunk::<4>().unwrap_or(&[0; 4])),
        }
    }

    /// Whether engines are told of a credential: of a client that was taken out of the configuration
    /// none is in force (OA-8).
    pub(super) fn knows(&self, credential: &credentials::Credential) -> bool {
        let client = credential.oauth_client.as_ref();
        client.is_none_or(|client| self.clients.contains(client))
    }

    /// What holds for the whole cluster.
    pub(super) fn platform(&self) -> Platform {
        Platform {
            base_url: self.base_url.clone(),
            cluster_domain: self.domain.clone(),
        }
    }

    /// What a plan allows to one project; one that is not known, what the free one does.
    pub(super) fn limits(&self, plan: &str) -> Limits {
        let plan = plan.parse().unwrap_or(Plan::Basic);
        self.limits.get(&plan).copied().unwrap_or_default()
    }
}
