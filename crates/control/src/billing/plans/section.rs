//! The `catalog` section of the configuration, and its validation.

use std::collections::BTreeMap;

use api::control::plans::{Currency, Plan, Provider, UnknownWord};
use api::link::Limits;
use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::Deserialize;
use types::tunnel::Hostname;

use crate::billing::plans::catalogue::{Catalogue, Coordinates, MAX_DOMAINS, PlanTerms, Region};

/// Plans and regions that can be chosen, and their prices.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatalogSection {
    /// Currency of every price: three capital letters.
    #[schemars(example = &"EUR")]
    currency: String,
    /// Allows a confirmed creation to update a subscription on the server. Without it, plans that
    /// would need this are listed as unavailable.
    server_confirmed_creation: bool,
    /// Allows a first payment on the platform's checkout page.
    hosted_checkout: bool,
    /// Plans that differ from the built-in ones of the same name (`basic`, `pro`, `enterprise`).
    plans: Vec<PlanSection>,
    /// Regions for projects. Without any, there is one region, `other` / `local`, without a limit,
    /// on the first engine. Without an engine there is none.
    regions: Vec<RegionSection>,
}

impl Default for CatalogSection {
    fn default() -> Self {
        Self {
            currency: "EUR".to_owned(),
            server_confirmed_creation: true,
            hosted_checkout: true,
            plans: Vec::new(),
            regions: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PlanSection {
    /// The plan: `basic`, `pro` or `enterprise`. Required.
    plan: String,
    /// Name, for users.
    name: Option<String>,
    /// Purpose, for users.
    description: Option<String>,
    /// Price of one project in a month, in the smallest unit of the currency; 0 is free.
    monthly_price: Option<i64>,
    /// The price before a reduction, in the smallest unit of the currency.
    compare_at_monthly_price: Option<i64>,
    /// Reason for the reduced price, for users.
    promotion: Option<String>,
    /// The plan is sold only by arrangement. It is listed, and cannot be chosen.
    by_arrangement: Option<bool>,
    /// Projects of the plan that one workspace may have; unlimited without it.
    projects_per_workspace: Option<u32>,
    /// Days that request logs and events are kept.
    log_retention_days: Option<u16>,
    /// Allows webhooks for projects of the plan; absent: all plans but `basic` have them. Existing
    /// webhooks keep working.
    webhooks: Option<bool>,
    /// TCP addresses that a project of the plan may reserve; absent: 1, 10 and 100.
    tcp_addresses: Option<u32>,
    /// Custom domains that a project of the plan may have, at most 1000; absent: 10, 100 and 1000.
    domains: Option<u32>,
    /// Limits that engines apply to one project of the plan. Each limit that is set replaces the
    /// built-in one, and 0 removes it.
    limits: LimitsSection,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct LimitsSection {
    /// Agents that may be connected at the same time; 0: no limit.
    clients: Option<u32>,
    /// Tunnels that may be online at the same time; 0: no limit.
    tunnels: Option<u32>,
    /// Requests and connections of visitors in a second, over all tunnels; 0: no limit.
    requests_per_second: Option<u32>,
    /// Requests and connections of visitors in a second, to one tunnel; 0: no limit.
    tunnel_requests_per_second: Option<u32>,
    /// Bytes in a second, each way, over all tunnels; 0: no limit.
    bytes_per_second: Option<u64>,
    /// Bytes in a second, each way, of one tunnel; 0: no limit.
    tunnel_bytes_per_second: Option<u64>,
}

impl LimitsSection {
    fn overlay(self, limits: &mut Limits) {
        fn replace<T: PartialEq + Default>(limit: &mut Option<T>, given: Option<T>) {
            if let Some(given) = given {
                *limit = (given != T::default()).then_some(given);
            }
        }
        replace(&mut limits.clients, self.clients);
        replace(&mut limits.tunnels, self.tunnels);
        replace(&mut limits.requests_per_second, self.requests_per_second);
        let of_tunnel = &mut limits.tunnel_requests_per_second;
        replace(of_tunnel, self.tunnel_requests_per_second);
        replace(&mut limits.bytes_per_second, self.bytes_per_second);
        let of_tunnel = &mut limits.tunnel_bytes_per_second;
        replace(of_tunnel, self.tunnel_bytes_per_second);
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RegionSection {
    /// Operator of the machines: `aws`, `gcp`, `azure`, `onpremise` or `other`. Required.
    provider: String,
    /// Name: letters, digits and dashes. Required.
    #[schemars(example = &"eu-central-1")]
    region: String,
    /// Domain of the engines there; absent: that of the first engine.
    cluster_domain: Option<String>,
    /// Port of the engines there; absent: 443.
    engine_port: Option<u16>,
    /// Plans that can be chosen there; absent: every plan.
    plans: Option<Vec<String>>,
    /// Maximum number of projects of each plan in the region; unlimited for a plan that is not
    /// named.
    capacity: BTreeMap<String, u32>,
    /// Degrees north of the equator, for the recommendation.
    latitude: Option<f64>,
    /// Degrees east of Greenwich, for the recommendation.
    longitude: Option<f64>,
    /// Countries for which the region is recommended, if only the country of a caller is known:
    /// codes of two capital letters.
    countries: Vec<String>,
}

impl CatalogSection {
    /// Validates the section. `first_engine` is the domain of the first engine of the
    /// configuration, for regions that name none.
    pub fn check(self, first_engine: Option<&str>) -> Result<Catalogue, ConfigError> {
        let currency: Currency = self
            .currency
            .parse()
            .map_err(|_| ConfigError::new("catalog.currency", "expected three capital letters"))?;
        let mut plans: BTreeMap<Plan, PlanTerms> = Plan::ALL
            .into_iter()
            .map(|plan| (plan, PlanTerms::built_in(plan)))
            .collect();
        let mut seen = Vec::new();
        for (index, section) in self.plans.into_iter().enumerate() {
            let key = |name: &str| format!("catalog.plans.{index}.{name}");
            let plan: Plan = section
                .plan
                .parse()
                .map_err(|_| ConfigError::new(key("plan"), "expected basic, pro or enterprise"))?;
            if seen.contains(&plan) {
                return Err(ConfigError::new(key("plan"), "this plan is repeated"));
            }
            seen.push(plan);
            if let Some(terms) = plans.get_mut(&plan) {
                section.overlay(terms, key)?;
            }
        }
        let regions = if self.regions.is_empty() {
            first_engine.map(local).into_iter().collect()
        } else {
            let mut regions: Vec<Region> = Vec::with_capacity(self.regions.len());
            for (index, section) in self.regions.into_iter().enumerate() {
                let key = |name: &str| format!("catalog.regions.{index}.{name}");
                let region = section.check(first_engine, key)?;
                if regions
                    .iter()
                    .any(|other| other.is_named(region.provider, &region.region))
                {
                    return Err(ConfigError::new(key("region"), "this region is repeated"));
                }
                regions.push(region);
            }
            regions
        };
        Ok(Catalogue {
            currency,
            server_confirmed_creation: self.server_confirmed_creation,
            hosted_checkout: self.hosted_checkout,
            plans,
            regions,
        })
    }
}

impl PlanSection {
    fn overlay(
        self,
        terms: &mut PlanTerms,
        key: impl Fn(&str) -> String,
    ) -> Result<(), ConfigError> {
        if let Some(name) = self.name {
            terms.name = name;
        }
        if let Some(description) = self.description {
            terms.description = description;
        }
        if let Some(price) = self.monthly_price {
            terms.monthly = amount(price, || key("monthly_price"))?;
        }
        if let Some(price) = self.compare_at_monthly_price {
            terms.compare_at = Some(amount(price, || key("compare_at_monthly_price"))?);
        }
        if self.promotion.is_some() {
            terms.promotion = self.promotion;
        }
        if let Some(by_arrangement) = self.by_arrangement {
            terms.by_arrangement = by_arrangement;
        }
        if self.projects_per_workspace.is_some() {
            terms.projects_per_workspace = self.projects_per_workspace;
        }
        if let Some(days) = self.log_retention_days {
            terms.log_retention_days = days;
        }
        if let Some(webhooks) = self.webhooks {
            terms.webhooks = webhooks;
        }
        if let Some(addresses) = self.tcp_addresses {
            terms.tcp_addresses = addresses;
        }
        if let Some(domains) = self.domains {
            if domains > MAX_DOMAINS {
                let message = format!("expected at most {MAX_DOMAINS} domains");
                return Err(ConfigError::new(key("domains"), message));
            }
            terms.domains = domains;
        }
        self.limits.overlay(&mut terms.limits);
        Ok(())
    }
}

impl RegionSection {
    fn check(
        self,
        first_engine: Option<&str>,
        key: impl Fn(&str) -> String,
    ) -> Result<Region, ConfigError> {
        let provider: Provider = self.provider.parse().map_err(|_| {
            ConfigError::new(
                key("provider"),
                "expected aws, gcp, azure, onpremise or other",
            )
        })?;
        if !is_region_name(&self.region) {
            return Err(ConfigError::new(
                key("region"),
                "expected 1 to 64 lower-case letters, digits and dashes",
            ));
        }
        let domain = match (self.cluster_domain, first_engine) {
            (Some(domain), _) => domain
                .parse::<Hostname>()
                .map_err(|_| ConfigError::new(key("cluster_domain"), "expected a host name"))?
                .into(),
            (None, Some(domain)) => domain.to_owned(),
            (None, None) => {
                let message = "this key is required because no engine is configured";
                return Err(
                    ConfigError::new(key("cluster_domain"), message).depending_on("engines")
                );
            }
        };
        let mut plans = Plan::ALL.to_vec();
        if let Some(words) = self.plans {
            plans = words
                .iter()
                .map(|word| word.parse())
                .collect::<Result<_, _>>()
                .map_err(|_| ConfigError::new(key("plans"), "expected basic, pro, enterprise"))?;
        }
        let capacity = self
            .capacity
            .iter()
            .map(|(word, total)| Ok((word.parse()?, *total)))
            .collect::<Result<_, UnknownWord>>()
            .map_err(|_| ConfigError::new(key("capacity"), "expected basic, pro, enterprise"))?;
        let place = match (self.latitude, self.longitude) {
            (None, None) => None,
            (Some(latitude), Some(longitude))
                if latitude.abs() <= 90.0 && longitude.abs() <= 180.0 =>
            {
                Some(Coordinates {
                    latitude,
                    longitude,
                })
            }
            _ => {
                return Err(ConfigError::new(
                    key("latitude"),
                    "expected both latitude (-90 to 90) and longitude (-180 to 180)",
                ));
            }
        };
        if !self.countries.iter().all(|code| is_country(code)) {
            return Err(ConfigError::new(
                key("countries"),
                "expected codes of two capital letters",
            ));
        }
        Ok(Region {
            provider,
            region: self.region,
            domain,
            engine_port: self.engine_port.unwrap_or(DEFAULT_ENGINE_PORT),
            plans,
            capacity,
            coordinates: place,
            countries: self.countries,
        })
    }
}

/// True if the text has the form of a country code of ISO 3166-1.
pub(crate) fn is_country(code: &str) -> bool {
    code.len() == 2 && code.bytes().all(|letter| letter.is_ascii_uppercase())
}

fn local(first_engine: &str) -> Region {
    Region {
        provider: Provider::Other,
        region: "local".to_owned(),
        domain: first_engine.to_owned(),
        engine_port: DEFAULT_ENGINE_PORT,
        plans: Plan::ALL.to_vec(),
        capacity: BTreeMap::new(),
        coordinates: None,
        countries: Vec::new(),
    }
}

fn amount(given: i64, key: impl Fn() -> String) -> Result<i64, ConfigError> {
    if (0..=MAX_MONTHLY_PRICE).contains(&given) {
        Ok(given)
    } else {
        Err(ConfigError::new(
            key(),
            format!("expected an amount from 0 to {MAX_MONTHLY_PRICE}"),
        ))
    }
}

fn is_region_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Default port of engines (HTTPS).
const DEFAULT_ENGINE_PORT: u16 = 443;
/// Ten million in whole units of a currency with cents. This is far above any price, and low enough
/// that sums over a workspace's projects cannot overflow.
const MAX_MONTHLY_PRICE: i64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Catalogue, ConfigError> {
        let section: CatalogSection = serde_json::from_str(yaml).unwrap();
        section.check(Some("engine.localhost"))
    }

    fn fault(json: &str) -> String {
        read(json).unwrap_err().key
    }

    #[test]
    fn built_in_plans_have_one_unlimited_region() {
        let catalogue = read("{}").unwrap();
        let names: Vec<_> = catalogue.plans.keys().map(|plan| plan.as_str()).collect();
        assert_eq!(names, ["basic", "pro", "enterprise"]);
        let region = catalogue.region(Provider::Other, "local").unwrap();
        assert_eq!(region.domain, "engine.localhost");
        assert_eq!(region.engine_port, 443);
        assert!(region.capacity.is_empty());
        assert_eq!(catalogue.terms(Plan::Basic).monthly, 0);
        assert!(catalogue.terms(Plan::Pro).monthly > 0);
        assert!(catalogue.terms(Plan::Enterprise).by_arrangement);
    }

    #[test]
    fn a_plan_differs_only_in_the_configured_values() {
        let catalogue = read(
            r#"{"currency": "USD", "plans": [{"plan": "pro", "monthly_price": 500, "compare_at_monthly_price": 900}]}"#,
        )
        .unwrap();
        let pro = catalogue.terms(Plan::Pro);
        assert_eq!((pro.monthly, pro.compare_at), (500, Some(900)));
        assert_eq!(pro.name, PlanTerms::built_in(Plan::Pro).name);
        assert_eq!(catalogue.currency.as_str(), "USD");
    }

    #[test]
    fn a_limit_is_replaced_or_removed() {
        let catalogue = read(
            r#"{"plans": [{"plan": "pro", "limits": {"clients": 7, "tunnels": 0}},
                {"plan": "basic", "limits": {"bytes_per_second": 1000}}]}"#,
        )
        .unwrap();
        let built_in = PlanTerms::built_in(Plan::Pro).limits;
        let wanted = Limits {
            clients: Some(7),
            tunnels: None,
            ..built_in
        };
        assert_eq!(catalogue.terms(Plan::Pro).limits, wanted);
        assert!(built_in.tunnels.is_some());
        let wanted = Limits {
            bytes_per_second: Some(1000),
            ..Limits::default()
        };
        assert_eq!(catalogue.terms(Plan::Basic).limits, wanted);
        assert_eq!(PlanTerms::built_in(Plan::Basic).limits, Limits::default());
    }

    #[test]
    fn errors_name_the_wrong_key() {
        for (json, key) in [
            (r#"{"currency": "eur"}"#, "catalog.currency"),
            (r#"{"plans": [{"plan": "gold"}]}"#, "catalog.plans.0.plan"),
            (
                r#"{"plans": [{"plan": "pro"}, {"plan": "pro"}]}"#,
                "catalog.plans.1.plan",
            ),
            (
                r#"{"plans": [{"plan": "pro", "monthly_price": -1}]}"#,
                "catalog.plans.0.monthly_price",
            ),
            (
                r#"{"regions": [{"provider": "x"}]}"#,
                "catalog.regions.0.provider",
            ),
            (
                r#"{"regions": [{"provider": "aws", "region": "EU"}]}"#,
                "catalog.regions.0.region",
            ),
            (
                r#"{"regions": [{"provider": "aws", "region": "a", "plans": ["gold"]}]}"#,
                "catalog.regions.0.plans",
            ),
            (
                r#"{"regions": [{"provider": "aws", "region": "a", "latitude": 10}]}"#,
                "catalog.regions.0.latitude",
            ),
            (
                r#"{"regions": [{"provider": "aws", "region": "a", "countries": ["fr"]}]}"#,
                "catalog.regions.0.countries",
            ),
            (
                r#"{"regions": [{"provider": "aws", "region": "a"}, {"provider": "aws", "region": "a"}]}"#,
                "catalog.regions.1.region",
            ),
        ] {
            assert_eq!(fault(json), key, "{json}");
        }
    }
}
