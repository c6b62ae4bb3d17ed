//! The plan service with its dependencies: the catalogue, accounts, the key of fingerprints and the
//! location of callers.

use std::net::IpAddr;
use std::path::PathBuf;

use api::control::plans::{Plan, PlanConfiguration};
use jiff::Timestamp;
use jiff::civil::Date;
use store::{Conn, Store, capacity, projects};
use types::id::WorkspaceId;
use types::problem::Problem;

use crate::billing::plans::catalogue::{Catalogue, PlanTerms};
use crate::billing::plans::fingerprint::FingerprintKey;
use crate::billing::plans::offer::{Availability, Offer, configuration, offer};
use crate::billing::{Account, Billing, Ledger, day_of};
use crate::config::Config;
use crate::http_api::problem::HandlerResult;
use crate::keys::Keys;
use crate::runtime::geo::{Geo, GeoError, nearest};

/// The plan service of the platform.
pub struct PlanService {
    catalogue: Catalogue,
    key: FingerprintKey,
    billing: Box<dyn Billing>,
    geo: Option<Geo>,
}

/// Inputs of the offers to one workspace, read at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    account: Account,
    availability: Availability,
    today: Date,
}

impl Snapshot {
    /// Revision of the account, to which fingerprints are bound.
    pub fn revision(&self) -> u64 {
        self.account.revision
    }

    /// The first day of the next period of the subscription, if there is one.
    pub fn renewal(&self) -> Option<Date> {
        let subscription = self.account.subscription.as_ref();
        subscription.map(|one| one.period(self.today).end)
    }

    /// Cost of the rest of the running period at a monthly price; 0 without a subscription.
    pub fn rest_of_period(&self, monthly: i64) -> i64 {
        let subscription = self.account.subscription.as_ref();
        subscription.map_or(0, |one| {
            let period = one.period(self.today);
            period.prorated_amount(monthly, self.today)
        })
    }
}

impl PlanService {
    /// Opens the service with the local ledger. It reads the geolocation file and blocks, so call
    /// it at startup only.
    ///
    /// # Errors
    /// The geolocation file cannot be used.
    pub fn open(config: &Config, keys: &Keys) -> Result<Self, PlanServiceError> {
        let secret = keys.derive("creation-fingerprint");
        let geo = config.geoip_file.as_deref().map(|file| {
            Geo::open(file).map_err(|source| PlanServiceError::Geo {
                file: file.to_owned(),
                source,
            })
        });
        Ok(Self {
            catalogue: config.catalogue.clone(),
            key: FingerprintKey::new(&secret.map_err(|_| PlanServiceError::Key)?),
            billing: Box::new(Ledger),
            geo: geo.transpose()?,
        })
    }

    /// Plans and regions that can be chosen, and their prices.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The terms of a project's plan.
    ///
    /// # Errors
    /// The stored plan is unknown.
    pub fn terms_of(&self, project: &projects::Project) -> HandlerResult<&PlanTerms> {
        let plan = project.plan.parse().map_err(|_| {
            tracing::error!(project.id = %project.id, "the plan is not known");
            Problem::internal()
        })?;
        Ok(self.catalogue.terms(plan))
    }

    /// The billing accounts.
    pub fn billing(&self) -> &dyn Billing {
        &*self.billing
    }

    /// The key of fingerprints.
    pub fn key(&self) -> &FingerprintKey {
        &self.key
    }

    /// True if the countries of callers can be determined.
    pub fn has_geo(&self) -> bool {
        self.geo.is_some()
    }

    /// The country of an address, if it is known: two letters (ISO 3166-1).
    pub fn country(&self, address: IpAddr) -> Option<String> {
        self.geo.as_ref()?.locate(address).country
    }

    /// Writes the catalogue's limits to the store, where creations are counted against them. It
    /// runs at every startup. Several processes may run it at the same time.
    pub async fn publish(&self, store: &Store) -> Result<(), store::Error> {
        let mut tx = store.begin().await?;
        for region in self.catalogue.regions() {
            for plan in &region.plans {
                let total = region.capacity.get(plan).copied().map(i64::from);
                let (provider, plan) = (region.provider.as_str(), plan.as_str());
                capacity::set(&mut tx, provider, &region.region, plan, total).await?;
            }
        }
        tx.commit().await
    }

    /// Reads the inputs of the offers to a workspace. For a decision, call this in the transaction
    /// that applies the decision, under the workspace's lock.
    pub async fn snapshot(
        &self,
        conn: &mut Conn,
        workspace: WorkspaceId,
        now: Timestamp,
    ) -> HandlerResult<Snapshot> {
        let account = self.billing.account(conn, workspace).await?;
        let limits = capacity::all(conn).await?;
        let mut full = Vec::new();
        for region in self.catalogue.regions() {
            for plan in &region.plans {
                let has_room = limits.iter().any(|limit| {
                    limit.provider == region.provider.as_str()
                        && limit.region == region.region
                        && limit.plan == plan.as_str()
                        && limit.has_room()
                });
                if !has_room {
                    full.push((region.provider, region.region.clone(), *plan));
                }
            }
        }
        let mut in_workspace = Vec::new();
        if self.catalogue.limits_projects() {
            for count in projects::count_by_plan(conn, workspace).await? {
                if let Ok(plan) = count.plan.parse() {
                    in_workspace.push((plan, u64::try_from(count.n).unwrap_or_default()));
                }
            }
        }
        Ok(Snapshot {
            account,
            availability: Availability { full, in_workspace },
            today: day_of(now),
        })
    }

    /// The offer of one plan.
    pub fn offer(&self, snapshot: &Snapshot, plan: Plan) -> Offer<'_> {
        offer(
            &self.catalogue,
            plan,
            &snapshot.account,
            &snapshot.availability,
            snapshot.today,
        )
    }

    /// Every offer, in the form of the response to a caller at this address (CP-3).
    pub fn configuration(
        &self,
        snapshot: &Snapshot,
        workspace: WorkspaceId,
        caller: IpAddr,
    ) -> PlanConfiguration {
        let location = self.geo.as_ref().map(|geo| geo.locate(caller));
        let offers = Plan::ALL.map(|plan| self.offer(snapshot, plan));
        let nearest = |regions: &[&_]| nearest(location.as_ref()?, regions);
        configuration(&offers, nearest, workspace.as_str(), &self.key)
    }
}

impl std::fmt::Debug for PlanService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanService")
            .field("catalogue", &self.catalogue)
            .finish_non_exhaustive()
    }
}

/// Errors while opening the plan service.
#[derive(Debug, thiserror::Error)]
pub enum PlanServiceError {
    /// The geolocation file cannot be used.
    #[error("{}: {source}", file.display())]
    Geo {
        /// The file.
        file: PathBuf,
        /// The error.
        source: GeoError,
    },
    /// The key of fingerprints could not be derived.
    #[error("the key of creation fingerprints could not be derived")]
    Key,
}
