//! The catalogue: plans with their terms, regions with their capacity.

use std::collections::BTreeMap;

use api::control::plans::{Currency, Plan, Provider};
use api::link::Limits;

/// Plans and regions that can be chosen, and their prices.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Currency of every price.
    pub currency: Currency,
    /// True if a confirmed creation may update a subscription on the server (CP-4f).
    pub server_confirmed_creation: bool,
    /// True if a first payment can be made on the platform's pages.
    pub hosted_checkout: bool,
    /// The plans. All of them are present.
    pub(super) plans: BTreeMap<Plan, PlanTerms>,
    /// The regions, in the order of the configuration.
    pub(super) regions: Vec<Region>,
}

impl Catalogue {
    /// The terms of a plan.
    pub fn terms(&self, plan: Plan) -> &PlanTerms {
        static NONE: std::sync::LazyLock<PlanTerms> =
            std::sync::LazyLock::new(|| PlanTerms::built_in(Plan::Enterprise));
        // The conversion adds every plan. The fallback, which sells nothing, is never used.
        self.plans.get(&plan).unwrap_or(&NONE)
    }

    /// The regions, in the order of the configuration.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// One region.
    pub fn region(&self, provider: Provider, region: &str) -> Option<&Region> {
        self.regions
            .iter()
            .find(|known| known.is_named(provider, region))
    }

    /// True if any plan has a limit per workspace.
    pub(super) fn limits_projects(&self) -> bool {
        self.plans
            .values()
            .any(|terms| terms.projects_per_workspace.is_some())
    }

    /// True if any plan has a price.
    pub fn billing_enabled(&self) -> bool {
        self.plans.values().any(|terms| terms.monthly > 0)
    }
}

/// The terms of one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanTerms {
    /// Name, for users.
    pub name: String,
    /// Purpose, for users.
    pub description: String,
    /// Price of one project in a month, in the smallest unit of the currency; 0 is free.
    pub monthly: i64,
    /// The monthly price before a reduction.
    pub compare_at: Option<i64>,
    /// Reason for the reduced price, for users.
    pub promotion: Option<String>,
    /// True if the plan is sold only by arrangement.
    pub by_arrangement: bool,
    /// Projects that one workspace may have; `None` is unlimited.
    pub projects_per_workspace: Option<u32>,
    /// Days that request logs and events are kept.
    pub log_retention_days: u16,
    /// True if a project may have webhooks.
    pub webhooks: bool,
    /// TCP addresses that a project may reserve.
    pub tcp_addresses: u32,
    /// Custom domains that a project may have.
    pub domains: u32,
    /// Limits that engines apply to one project. A limit that is not set is the engine's own.
    pub limits: Limits,
}

impl PlanTerms {
    /// The default terms, for values that the configuration does not set.
    pub(super) fn built_in(plan: Plan) -> Self {
        let (name, description, monthly, by_arrangement, log_retention_days) = match plan {
            Plan::Basic => (
                "Basic",
                "Everything a single person needs, free of charge.",
                0,
                false,
                7,
            ),
            Plan::Pro => (
                "Pro",
                "For teams: webhooks, longer logs, more capacity.",
                1_900,
                false,
                30,
            ),
            Plan::Enterprise => (
                "Enterprise",
                "Dedicated engines and terms, by arrangement.",
                0,
                true,
                90,
            ),
        };
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            monthly,
            compare_at: None,
            promotion: None,
            by_arrangement,
            projects_per_workspace: None,
            log_retention_days,
            webhooks: plan != Plan::Basic,
            // Ports are few, and a user of a free plan can create many workspaces.
            tcp_addresses: match plan {
                Plan::Basic => 1,
                Plan::Pro => 10,
                Plan::Enterprise => 100,
            },
            // Each has a certificate and daily checks.
            domains: match plan {
                Plan::Basic => 10,
                Plan::Pro => 100,
                Plan::Enterprise => MAX_DOMAINS,
            },
            limits: limits(plan),
        }
    }
}

/// Maximum number of custom domains that a plan may give a project. Their list is one response.
pub(super) const MAX_DOMAINS: u32 = 1_000;

/// Default limits that keep one project from using the capacity of others. The free plan, which
/// self-hosted platforms use, has no limits. An operator who admits strangers has to set them.
fn limits(plan: Plan) -> Limits {
    let of = |times: u32| Limits {
        clients: Some(100 * times),
        tunnels: Some(500 * times),
        requests_per_second: Some(2_000 * times),
        tunnel_requests_per_second: Some(1_000 * times),
        bytes_per_second: Some(125_000_000 * u64::from(times)),
        tunnel_bytes_per_second: Some(62_500_000 * u64::from(times)),
    };
    match plan {
        Plan::Basic => Limits::default(),
        Plan::Pro => of(1),
        Plan::Enterprise => of(10),
    }
}

/// A region for projects.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Operator of the machines.
    pub provider: Provider,
    /// Name.
    pub region: String,
    /// Domain of the engines.
    pub domain: String,
    /// Port of the engines.
    pub engine_port: u16,
    /// Plans that can be chosen.
    pub plans: Vec<Plan>,
    /// Maximum number of projects, by plan. A plan that is not listed has no limit.
    pub capacity: BTreeMap<Plan, u32>,
    /// Location, if it is configured.
    pub coordinates: Option<Coordinates>,
    /// Countries for which the region is recommended.
    pub countries: Vec<String>,
}

impl Region {
    /// True if the provider and the name are those of this region.
    pub fn is_named(&self, provider: Provider, region: &str) -> bool {
        self.provider == provider && self.region == region
    }
}

/// A location on earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinates {
    /// North of the equator.
    pub latitude: f64,
    /// East of Greenwich.
    pub longitude: f64,
}

impl Coordinates {
    /// Angle between the two places, in radians: the haversine formula.
    pub fn angle_to(self, other: Self) -> f64 {
        let half_sine_squared = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let north = half_sine_squared(other.latitude - self.latitude);
        let east = half_sine_squared(other.longitude - self.longitude);
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        2.0 * cosines.mul_add(east, north).sqrt().min(1.0).asin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_goes_around_the_date_line() {
        let place = |latitude, longitude| Coordinates {
            latitude,
            longitude,
        };
        let (fiji, samoa, kenya) = (place(-18.0, 178.0), place(-13.8, -172.0), place(-1.3, 36.8));
        assert!(fiji.angle_to(samoa) < 0.25);
        assert!(fiji.angle_to(kenya) > 2.0);
        assert!(fiji.angle_to(fiji).abs() < 1e-9);
        let poles = place(90.0, 0.0).angle_to(place(-90.0, 0.0));
        assert!((poles - std::f64::consts::PI).abs() < 1e-9);
    }
}
