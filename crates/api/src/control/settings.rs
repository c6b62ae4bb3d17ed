//! Project-wide policy (ED-8).

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Body, Method, Operation, Schemas, SuccessResponse, add, not_null};

/// Returns the policy.
pub const GET: &Operation = &Operation::get(
    "get_tunnels_project_settings",
    "/api/projects/tunnels/{project_id}/settings",
    "Get the policy of a project",
    READ,
    "ProjectSettings",
);

/// Changes parts of the policy.
pub const PATCH: &Operation = &Operation {
    id: "patch_tunnels_project_settings",
    method: Method::Patch,
    summary: "Change parts of the policy of a project",
    access: WRITE,
    body: Some(Body::required(
        "ProjectSettingsPatch",
        || json!({"publicAccessPolicy": "auth-required", "trustedIps": null}),
    )),
    refusals: &[409],
    ..*GET
};

/// Replaces the policy.
pub const PUT: &Operation = &Operation {
    id: "replace_tunnels_project_settings",
    method: Method::Put,
    summary: "Replace the policy of a project",
    body: Some(Body::required("ReplaceProjectSettings", || {
        json!({
            "publicAccessPolicy": "allowed",
            "publishedTcpEnabled": false,
            "trustedIps": ["192.0.2.0/24"],
            "minTlsVersion": "tls1.3",
        })
    })),
    ..*PATCH
};

/// Resets the policy to its defaults.
pub const DELETE: &Operation = &Operation {
    id: "reset_tunnels_project_settings",
    method: Method::Delete,
    summary: "Reset the policy of a project to its defaults",
    access: WRITE,
    answer: SuccessResponse::NO_CONTENT,
    refusals: &[409],
    ..*GET
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[GET, PATCH, PUT, DELETE];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<ProjectSettings>(schemas);
    add::<ReplaceProjectSettings>(schemas);
    add::<ProjectSettingsPatch>(schemas);
}

const READ: Access = access(&[rule(&["read"])]);
const WRITE: Access = access(&[rule(&["write"])]);

const fn access(rules: &'static [Rule]) -> Access {
    Access::Permitted(Permission::AccountProjectsReadWrite, rules)
}

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "settings",
        actions,
    }
}

/// Defines a policy: its own members, and those that may be absent in responses as well.
macro_rules! policy {
    ($(#[$doc:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($own)*
            /// The only addresses and networks from which visitors may connect.
            #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false, max_items = 256)]
            pub trusted_ips: Option<Vec<String>>,
            /// The allowed or blocked countries of visitors.
            #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            pub geo_ip: Option<GeoIp>,
            /// Minimum TLS version of visitors.
            #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            pub min_tls_version: Option<MinTlsVersion>,
        }
    };
}

policy! {
    /// Policy of every published tunnel of a project, in addition to the tunnel's own options. A list
    /// or version that is not set does not restrict anything.
    ProjectSettings {
        /// Access of visitors without a proof.
        // The store keeps only the values that differ from the defaults; a response has both.
        #[serde(default)]
        #[schema(required = true)]
        pub public_access_policy: PublicAccessPolicy,
        /// True if TCP tunnels may be published.
        #[serde(default = "yes")]
        #[schema(required = true)]
        pub published_tcp_enabled: bool,
    }
}

policy! {
    /// A new policy. An absent member is set to its default.
    ReplaceProjectSettings {
        /// Access of visitors without a proof.
        #[serde(default)]
        pub public_access_policy: PublicAccessPolicy,
        /// True if TCP tunnels may be published.
        #[serde(default = "yes")]
        #[schema(default = true)]
        pub published_tcp_enabled: bool,
    }
}

const fn yes() -> bool {
    true
}

impl Default for ProjectSettings {
    fn default() -> Self {
        Self {
            public_access_policy: PublicAccessPolicy::default(),
            published_tcp_enabled: true,
            trusted_ips: None,
            geo_ip: None,
            min_tls_version: None,
        }
    }
}

/// Access of visitors without a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PublicAccessPolicy {
    /// The tunnel decides.
    #[default]
    Allowed,
    /// Only tunnels that require a proof may be published.
    AuthRequired,
    /// Nothing may be published.
    Forbidden,
}

/// A country filter with exactly one of the two lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeoIp {
    /// The only allowed countries, by their codes of two capital letters (ISO 3166-1).
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_items = 1)]
    pub allow: Option<Vec<String>>,
    /// The blocked countries.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_items = 1)]
    pub deny: Option<Vec<String>>,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum MinTlsVersion {
    /// RFC 5246.
    #[serde(rename = "tls1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "tls1.3")]
    Tls13,
}

impl From<ReplaceProjectSettings> for ProjectSettings {
    fn from(new: ReplaceProjectSettings) -> Self {
        Self {
            public_access_policy: new.public_access_policy,
            published_tcp_enabled: new.published_tcp_enabled,
            trusted_ips: new.trusted_ips,
            geo_ip: new.geo_ip,
            min_tls_version: new.min_tls_version,
        }
    }
}

/// A change to the policy. Absent members stay unchanged; `null` resets a member to its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectSettingsPatch {
    /// Access of visitors without a proof.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PublicAccessPolicy>)]
    pub public_access_policy: Option<Option<PublicAccessPolicy>>,
    /// True if TCP tunnels may be published.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>)]
    pub published_tcp_enabled: Option<Option<bool>>,
    /// The only addresses and networks from which visitors may connect.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 256)]
    pub trusted_ips: Option<Option<Vec<String>>>,
    /// The allowed or blocked countries of visitors.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<GeoIp>)]
    pub geo_ip: Option<Option<GeoIp>>,
    /// Minimum TLS version of visitors.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MinTlsVersion>)]
    pub min_tls_version: Option<Option<MinTlsVersion>>,
}

impl ProjectSettingsPatch {
    /// The settings after the change.
    #[must_use]
    pub fn apply(self, to: ProjectSettings) -> ProjectSettings {
        let reset = ProjectSettings::default();
        ProjectSettings {
            public_access_policy: self
                .public_access_policy
                .map_or(to.public_access_policy, Option::unwrap_or_default),
            published_tcp_enabled: self
                .published_tcp_enabled
                .map_or(to.published_tcp_enabled, |given| {
                    given.unwrap_or(reset.published_tcp_enabled)
                }),
            trusted_ips: self.trusted_ips.unwrap_or(to.trusted_ips),
            geo_ip: self.geo_ip.unwrap_or(to.geo_ip),
            min_tls_version: self.min_tls_version.unwrap_or(to.min_tls_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ed_8_absent_members_stay_and_null_resets_to_the_default() {
        let set: ProjectSettings = serde_json::from_value(json!({
            "publicAccessPolicy": "auth-required",
            "publishedTcpEnabled": false,
            "trustedIps": ["192.0.2.0/24"],
            "geoIp": {"deny": ["AQ"]},
            "minTlsVersion": "tls1.3",
        }))
        .unwrap();
        let patched = |patch| {
            serde_json::from_value::<ProjectSettingsPatch>(patch)
                .unwrap()
                .apply(set.clone())
        };
        assert_eq!(patched(json!({})), set);
        let nulls = json!({
            "publicAccessPolicy": null, "publishedTcpEnabled": null, "trustedIps": null,
            "geoIp": null, "minTlsVersion": null,
        });
        assert_eq!(patched(nulls.clone()), ProjectSettings::default());
        let one = patched(json!({"trustedIps": null, "publishedTcpEnabled": true}));
        assert_eq!((&one.trusted_ips, one.published_tcp_enabled), (&None, true));
        assert_eq!(one.min_tls_version, Some(MinTlsVersion::Tls13));
        // Serialising a patch preserves its `null` members.
        let patch: ProjectSettingsPatch = serde_json::from_value(nulls.clone()).unwrap();
        assert_eq!(serde_json::to_value(patch).unwrap(), nulls);
        assert_eq!(
            serde_json::to_value(ProjectSettingsPatch::default()).unwrap(),
            json!({})
        );
    }

    #[test]
    fn unknown_members_and_words_are_refused() {
        for bad in [
            json!({"geoip": {}}),
            json!({"minTlsVersion": "tls1.1"}),
            json!({"publicAccessPolicy": "auth_required"}),
            json!({"publishedTcpEnabled": "true"}),
        ] {
            assert!(
                serde_json::from_value::<ProjectSettingsPatch>(bad.clone()).is_err(),
                "{bad}"
            );
        }
    }
}
