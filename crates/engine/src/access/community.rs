//! Options that an engine does not offer, which are refused by name (EN-11). A community engine
//! refuses more of them than a managed one.

use types::problem::Problem;
use types::tunnel::{HttpVersion, Protocol, TunnelProperties, TunnelType};

use super::Tenancy;

/// An option of a tunnel that this edition does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{option}` is not available on this engine")]
pub struct UnavailableOption {
    /// The option as the agent wrote it: a field, or `field=value`.
    pub option: &'static str,
}

impl From<UnavailableOption> for Problem {
    fn from(unavailable: UnavailableOption) -> Self {
        let field = unavailable
            .option
            .split('=')
            .next()
            .unwrap_or(unavailable.option);
        Self::feature_unavailable(field).with_detail(unavailable.to_string())
    }
}

/// Refuses the first option that this engine does not have. A custom domain that it does not have
/// is refused when host names are resolved ([`crate::live::Namespace::resolve`]).
///
/// Call it with the options that the agent requested, and again after the token's boundary has
/// set its own options.
pub fn refuse_unavailable(
    properties: &TunnelProperties,
    tenancy: &Tenancy,
    knows_countries: bool,
) -> Result<(), UnavailableOption> {
    let platform_options = [
        ("svc_auth", properties.svc_auth == Some(true)),
        ("challenge_mode", properties.challenge_mode == Some(true)),
        ("mtls_auth", properties.mtls_auth == Some(true)),
        ("geo_ip", !properties.geo_ip.is_empty()),
        ("port", properties.port.is_some()),
        (
            "protocol=webtty",
            properties.protocol == Some(Protocol::Webtty),
        ),
    ];
    let unsupported_options = [
        ("protocol=dtls", properties.protocol == Some(Protocol::Dtls)),
        ("protocol=quic", properties.protocol == Some(Protocol::Quic)),
        (
            "type=datagram",
            properties.tunnel_type == Some(TunnelType::Datagram),
        ),
        (
            "http_version=h3",
            properties.http_version == Some(HttpVersion::H3),
        ),
        (
            "allow_cross_region_routing",
            properties.allow_cross_region_routing == Some(true),
        ),
    ];
    let managed = tenancy.directory().is_some();
    let platform_options = platform_options.into_iter().filter(|_| !managed);
    // Needs `geoip.file`: without it every visitor would be refused.
    let of_a_file = ("geo_ip", !properties.geo_ip.is_empty() && !knows_countries);
    let unavailable = platform_options
        .chain([of_a_file])
        .chain(unsupported_options);
    match unavailable
        .into_iter()
        .find(|(_, is_requested)| *is_requested)
    {
        Some((option, _)) => Err(UnavailableOption { option }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::sync::Arc;

    use super::*;
    use crate::directory::{Directory, Project};

    fn community() -> Tenancy {
        Tenancy::Community(Arc::new(Project::community()))
    }

    /// EN-11.
    #[test]
    fn en_11_each_option_is_refused_by_name() {
        for (requested, option) in [
            (json!({"svc_auth": true}), "svc_auth"),
            (json!({"challenge_mode": true}), "challenge_mode"),
            (json!({"mtls_auth": true}), "mtls_auth"),
            (json!({"geo_ip": ["CH"]}), "geo_ip"),
            (json!({"protocol": "webtty"}), "protocol=webtty"),
            (json!({"protocol": "dtls"}), "protocol=dtls"),
            (json!({"protocol": "quic"}), "protocol=quic"),
            (
                json!({"type": "datagram", "publish": false}),
                "type=datagram",
            ),
            (
                json!({"protocol": "http", "http_version": "h3"}),
                "http_version=h3",
            ),
            (json!({"protocol": "tcp", "port": 4000}), "port"),
            (
                json!({"allow_cross_region_routing": true}),
                "allow_cross_region_routing",
            ),
        ] {
            let properties: TunnelProperties = serde_json::from_value(requested).unwrap();
            let refused = refuse_unavailable(&properties, &community(), false).unwrap_err();
            assert_eq!(refused.option, option);
            let message = refused.to_string();
            assert!(
                message.contains(option) && message.contains("available"),
                "{message}"
            );
            let problem = Problem::from(refused);
            assert_eq!((problem.status, problem.code), (400, "feature_unavailable"));
            assert_eq!(problem.field.as_deref(), option.split('=').next());
            assert!(problem.detail.contains(option));
        }
    }

    /// EN-11.
    #[test]
    fn en_11_options_of_the_community_engine_are_accepted() {
        for requested in [
            json!({}),
            json!({"svc_auth": false, "challenge_mode": false, "mtls_auth": false}),
            json!({"protocol": "http", "http_version": "h2c", "token_auth": true}),
            json!({"protocol": "tls", "tls_mode": "passthrough"}),
            json!({"protocol": "tcp", "trusted_ips": ["192.0.2.0/24"]}),
            json!({"publish": false, "name": "db", "labels": {"a": "b"}}),
        ] {
            let properties: TunnelProperties = serde_json::from_value(requested).unwrap();
            assert_eq!(refuse_unavailable(&properties, &community(), false), Ok(()));
        }
    }

    /// EN-11: countries require a file with them.
    #[test]
    fn en_11_country_rules_require_a_file_of_countries() {
        let managed = Tenancy::Managed(Arc::new(Directory::default()));
        let properties = serde_json::from_value(json!({"geo_ip": ["CH"]})).unwrap();
        let refusal = refuse_unavailable(&properties, &managed, false).unwrap_err();
        assert_eq!(refusal.option, "geo_ip");
    }

    /// EN-11: options that need a platform are refused without one; options that are not built are
    /// always refused.
    #[test]
    fn en_11_a_managed_engine_offers_options_that_need_a_platform() {
        let managed = Tenancy::Managed(Arc::new(Directory::default()));
        for (requested, refused) in [
            (
                json!({"svc_auth": true, "challenge_mode": true, "mtls_auth": true}),
                None,
            ),
            (json!({"geo_ip": ["CH"]}), None),
            (json!({"protocol": "tcp", "port": 4000}), None),
            (json!({"protocol": "webtty"}), None),
            (
                json!({"protocol": "http", "http_version": "h3"}),
                Some("http_version=h3"),
            ),
            (
                json!({"allow_cross_region_routing": true}),
                Some("allow_cross_region_routing"),
            ),
        ] {
            let properties: TunnelProperties = serde_json::from_value(requested).unwrap();
            let refusal = refuse_unavailable(&properties, &managed, true).err();
            assert_eq!(refusal.map(|unavailable| unavailable.option), refused);
        }
    }
}
