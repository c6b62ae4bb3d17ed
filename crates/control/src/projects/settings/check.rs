//! Validation of the lists in the settings, and their canonical form.

use std::net::IpAddr;

use api::control::settings::{GeoIp, ProjectSettings};
use ipnet::IpNet;
use types::problem::Problem;

use crate::billing::plans::is_country;
use crate::http_api::problem::HandlerResult;

/// Validates settings and converts their lists to canonical form: networks without host bits,
/// sorted countries, no duplicates. `has_geo` is true if the platform has a geolocation file.
/// Without one, countries cannot be determined.
pub fn validate(mut settings: ProjectSettings, has_geo: bool) -> HandlerResult<ProjectSettings> {
    if let Some(networks) = &mut settings.trusted_ips {
        bounded(networks, MAX_NETWORKS, "trustedIps")?;
        for (index, network) in networks.iter_mut().enumerate() {
            *network = canonical_network(network).ok_or_else(|| {
                Problem::invalid_request("expected an IP address or a network such as 192.0.2.0/24")
                    .with_field(format!("trustedIps.{index}"))
            })?;
        }
        remove_duplicates(networks);
    }
    if let Some(geo) = &mut settings.geo_ip {
        if !has_geo {
            return Err(Problem::feature_unavailable("geoIp").into());
        }
        check_countries(geo)?;
    }
    Ok(settings)
}

fn check_countries(geo: &mut GeoIp) -> HandlerResult<()> {
    let (list, field) = match (&mut geo.allow, &mut geo.deny) {
        (Some(list), None) => (list, "geoIp.allow"),
        (None, Some(list)) => (list, "geoIp.deny"),
        _ => {
            return Err(Problem::invalid_request("expected either allow or deny")
                .with_field("geoIp")
                .into());
        }
    };
    bounded(list, MAX_COUNTRIES, field)?;
    if let Some(index) = list.iter().position(|code| !is_country(code)) {
        return Err(
            Problem::invalid_request("expected a country code of two capital letters")
                .with_field(format!("{field}.{index}"))
                .into(),
        );
    }
    list.sort_unstable();
    remove_duplicates(list);
    Ok(())
}

/// An empty list would admit no visitor, or have no effect. Other settings express both.
fn bounded(list: &[String], limit: usize, field: &str) -> HandlerResult<()> {
    if (1..=limit).contains(&list.len()) {
        Ok(())
    } else {
        Err(
            Problem::invalid_request(format!("expected 1 to {limit} entries"))
                .with_field(field)
                .into(),
        )
    }
}

/// The network in its shortest form. An IPv4 address inside IPv6 becomes the IPv4 address, because
/// visitors' addresses are compared in that form.
fn canonical_network(given: &str) -> Option<String> {
    if let Ok(address) = given.parse::<IpAddr>() {
        return Some(address.to_canonical().to_string());
    }
    let network: IpNet = given.parse().ok()?;
    Some(network.trunc().to_string())
}

fn remove_duplicates(list: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    list.retain(|entry| seen.insert(entry.clone()));
}

/// The limit of the schema. Every visitor is compared with all entries.
const MAX_NETWORKS: usize = 256;
/// ISO 3166-1 has about 250.
const MAX_COUNTRIES: usize = 256;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn validated(settings: serde_json::Value) -> Result<ProjectSettings, String> {
        validate(serde_json::from_value(settings).unwrap(), true)
            .map_err(|refusal| refusal.problem().field.clone().unwrap_or_default())
    }

    #[test]
    fn ed_8_lists_are_stored_in_canonical_form() {
        let settings = validated(json!({
            "trustedIps": ["192.0.2.7/24", "::ffff:192.0.2.1", "2001:DB8::1", "192.0.2.0/24"],
            "geoIp": {"allow": ["FR", "DE", "FR"]},
        }))
        .unwrap();
        assert_eq!(
            settings.trusted_ips.unwrap(),
            ["192.0.2.0/24", "192.0.2.1", "2001:db8::1"]
        );
        assert_eq!(settings.geo_ip.unwrap().allow.unwrap(), ["DE", "FR"]);
    }

    #[test]
    fn ed_8_errors_name_the_invalid_member() {
        for (settings, field) in [
            (json!({"trustedIps": []}), "trustedIps"),
            (json!({"trustedIps": vec!["10.0.0.1"; 257]}), "trustedIps"),
            (
                json!({"trustedIps": ["10.0.0.1", "10.0.0.0/33"]}),
                "trustedIps.1",
            ),
            (json!({"trustedIps": ["example.com"]}), "trustedIps.0"),
            (json!({"geoIp": {}}), "geoIp"),
            (json!({"geoIp": {"allow": ["FR"], "deny": ["DE"]}}), "geoIp"),
            (json!({"geoIp": {"allow": []}}), "geoIp.allow"),
            (json!({"geoIp": {"allow": vec!["FR"; 257]}}), "geoIp.allow"),
            (json!({"geoIp": {"deny": ["DE", "fr"]}}), "geoIp.deny.1"),
        ] {
            assert_eq!(
                validated(settings.clone()).unwrap_err(),
                field,
                "{settings}"
            );
        }
        let countries = serde_json::from_value(json!({"geoIp": {"deny": ["AQ"]}})).unwrap();
        let refusal = validate(countries, false).unwrap_err();
        assert_eq!(refusal.problem().code, "feature_unavailable");
    }
}
