//! The mapping of a provider's groups to roles in the configuration, and its validation.

use std::collections::BTreeMap;

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::members;
use types::id::WorkspaceId;

/// A group of the provider whose members get a role in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GroupSection {
    /// The group as the provider writes it into the claim, byte for byte. Required.
    #[schemars(example = &"engineering")]
    group: Option<String>,
    /// Id of the workspace. Required.
    #[schemars(example = &"wks_01h455vb4pex5vsknk084sn02q")]
    workspace: Option<String>,
    /// The role: `viewer`, `member` or `admin`. The strongest role of a user's groups applies. A
    /// group cannot give `owner`.
    role: GroupRole,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
enum GroupRole {
    /// May read.
    #[default]
    Viewer,
    /// May work with existing projects.
    Member,
    /// May manage projects, members and credentials.
    Admin,
}

impl From<GroupRole> for members::Role {
    fn from(role: GroupRole) -> Self {
        match role {
            GroupRole::Viewer => Self::Viewer,
            GroupRole::Member => Self::Member,
            GroupRole::Admin => Self::Admin,
        }
    }
}

/// The claim with a user's groups, and the roles that they give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoles {
    claim: String,
    rules: Vec<GroupRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupRule {
    group: String,
    workspace: WorkspaceId,
    role: GroupRole,
}

impl GroupRoles {
    /// Validates the rules for the groups in `claim`.
    pub(super) fn check(claim: String, sections: Vec<GroupSection>) -> Result<Self, ConfigError> {
        if sections.len() > MAX_RULES {
            let message = format!("there may be {MAX_RULES} rules at most");
            return Err(ConfigError::new("openid.groups", message));
        }
        let mut rules = Vec::with_capacity(sections.len());
        for (index, section) in sections.into_iter().enumerate() {
            let key = |name: &str| format!("openid.groups.{index}.{name}");
            let required = |name: &str, value: Option<String>| {
                let value = value.filter(|value| !value.is_empty());
                value.ok_or_else(|| ConfigError::new(key(name), "this key is required"))
            };
            let workspace = required("workspace", section.workspace)?;
            rules.push(GroupRule {
                group: required("group", section.group)?,
                workspace: workspace.parse().map_err(|_| {
                    ConfigError::new(key("workspace"), "this is not the id of a workspace")
                })?,
                role: section.role,
            });
        }
        Ok(Self { claim, rules })
    }

    /// Name of the claim.
    pub fn claim(&self) -> &str {
        &self.claim
    }

    /// The strongest role in each workspace that a user with these groups has.
    pub(super) fn roles(&self, groups: &[String]) -> BTreeMap<WorkspaceId, members::Role> {
        let mut strongest: BTreeMap<WorkspaceId, GroupRole> = BTreeMap::new();
        for rule in &self.rules {
            if groups.contains(&rule.group) {
                let role = strongest.entry(rule.workspace).or_default();
                *role = rule.role.max(*role);
            }
        }
        let converted = |(workspace, role): (WorkspaceId, GroupRole)| (workspace, role.into());
        strongest.into_iter().map(converted).collect()
    }
}

/// Each sign-in compares all rules with all groups of the user.
const MAX_RULES: usize = 1000;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::members::Role;

    use super::*;

    #[test]
    fn the_number_of_rules_is_limited() {
        let sections = vec![GroupSection::default(); MAX_RULES + 1];
        let error = GroupRoles::check("groups".to_owned(), sections).unwrap_err();
        assert!(error.to_string().contains("1000 rules at most"), "{error}");
    }

    #[test]
    fn the_strongest_role_of_all_groups_applies() {
        let [one, other] = [1, 2].map(|byte| WorkspaceId::new(0, [byte; 10]));
        let rule = |group: &str, workspace: WorkspaceId, role: &str| json!({"group": group, "workspace": workspace.to_string(), "role": role});
        let sections = json!([
            rule("a", one, "admin"),
            rule("a", one, "viewer"),
            rule("b", one, "member"),
            rule("b", other, "viewer"),
        ]);
        let sections = serde_json::from_value(sections).unwrap();
        let rules = GroupRoles::check("groups".to_owned(), sections).unwrap();
        let roles = |groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(|group| (*group).to_owned()).collect();
            rules.roles(&groups).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(roles(&[]), []);
        assert_eq!(roles(&["A", "a ", "c"]), []);
        assert_eq!(roles(&["a"]), [(one, Role::Admin)]);
        assert_eq!(roles(&["b"]), [(one, Role::Member), (other, Role::Viewer)]);
        assert_eq!(
            roles(&["b", "a"]),
            [(one, Role::Admin), (other, Role::Viewer)]
        );
    }
}
