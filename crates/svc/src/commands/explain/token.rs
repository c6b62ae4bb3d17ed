//! Compares the claims of a token with the address that it was sent to. Nothing is verified here:
//! the engine checks the signature, and the platform has the revocations.

use api::control::projects::Project;
use credentials::TokenKind;
use jiff::Timestamp;
use reqwest::Url;
use serde::Serialize;
use serde_json::Value;
use types::{
    boundary::{Boundary, BoundaryRefusal},
    id::{ClientId, TunnelId},
    path::NormalPath,
    permission::Permission,
    tunnel::{COMMUNITY_PROJECT, Tunnel, TunnelProperties},
};

use super::visit::endpoint_of;

/// The result of checking a token against an address.
#[derive(Debug, Default, Serialize)]
pub(super) struct TokenCheck {
    /// True if the token can be parsed.
    pub(super) readable: bool,
    /// `pat`, `app` or `auth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// Expiry (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    pub(super) expired: bool,
    /// Permissions that it is restricted to. Absent without a restriction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) permissions: Option<Vec<String>>,
    /// True if these permissions allow opening streams (visits).
    pub(super) permitted: bool,
    pub(super) boundary: BoundaryVerdict,
}

/// Result of checking the boundary against the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BoundaryVerdict {
    /// The token has no boundary.
    #[default]
    #[serde(rename = "none")]
    NoBoundary,
    Allows,
    /// The boundary is malformed, so it allows nothing.
    Malformed,
    ExcludesProject,
    ExcludesVisits,
    ExcludesPath,
    /// The path is ambiguous, so it is refused.
    #[serde(rename = "unclear_path")]
    AmbiguousPath,
    /// The boundary has conditions on the tunnel's properties, which are not available here.
    DependsOnTunnel,
    /// The boundary names projects or workspaces, and the project of the address is unknown here.
    DependsOnProject,
}

impl TokenCheck {
    /// Checks a token against an address, and the project if it is known.
    pub(super) fn of(token: &str, url: &Url, project: Option<&Project>) -> Self {
        let Some(decoded) = credentials::inspect(token) else {
            return Self::default();
        };
        let claims = decoded.get("claims").unwrap_or(&Value::Null);
        let text = |name: &str| Some(claims.get(name)?.as_str()?.to_owned());
        let expires_at_seconds = claims.get("exp").and_then(Value::as_i64);
        let permissions = claims.get("permissions").and_then(Value::as_array);
        let permissions = permissions.map(|all| {
            let names = all.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        let needed = Permission::TunnelsStreamsCreateDelete.as_str();
        let resources = claims.get("resources").filter(|value| !value.is_null());
        Self {
            readable: true,
            kind: text("type").filter(|kind| kind.parse::<TokenKind>().is_ok()),
            expires_at: expires_at_seconds
                .and_then(|at| Timestamp::from_second(at).ok())
                .map(|at| at.to_string()),
            expired: expires_at_seconds.is_some_and(|at| at <= Timestamp::now().as_second()),
            permitted: permissions
                .as_ref()
                .is_none_or(|granted| granted.iter().any(|name| name == needed)),
            permissions,
            boundary: BoundaryVerdict::of(&Boundary::parse(resources, true), url, project),
        }
    }

    /// The first problem that the edge would find.
    pub(super) fn first_problem(&self) -> Option<&'static str> {
        if !self.readable {
            return Some("it is not a token: a token has three parts separated by dots");
        }
        if self.expired {
            return Some("it has expired");
        }
        if !self.permitted {
            return Some("it lacks the permission tunnels.streams.create-delete");
        }
        self.boundary.problem()
    }
}

impl BoundaryVerdict {
    fn of(boundary: &Boundary, url: &Url, project: Option<&Project>) -> Self {
        if !boundary.has_tunnel_resource() {
            return Self::NoBoundary;
        }
        let path = NormalPath::parse(url.path());
        if path.is_err() && boundary.needs_path() {
            return Self::AmbiguousPath;
        }
        let is_managed = url.host_str().and_then(endpoint_of).is_some();
        let (id, workspace) = match project {
            Some(project) => (project.id.as_str(), Some(project.workspace_id.as_str())),
            None => (COMMUNITY_PROJECT, None),
        };
        // From outside only the host is known. Any other filter does not match, which becomes
        // `DependsOnTunnel`. The ids are placeholders.
        let tunnel = Tunnel {
            host: url.host_str().map(str::to_owned),
            ..Tunnel::online(
                TunnelId::new(0, [0; 10]),
                ClientId::new(0, [0; 10]),
                TunnelProperties::default(),
            )
        };
        match boundary.connect(id, workspace, &tunnel, path.as_ref().ok()) {
            Ok(()) => Self::Allows,
            Err(refusal) => match refusal.outside {
                BoundaryRefusal::Malformed => Self::Malformed,
                BoundaryRefusal::ProjectOrWorkspace if project.is_none() && is_managed => {
                    Self::DependsOnProject
                }
                BoundaryRefusal::ProjectOrWorkspace => Self::ExcludesProject,
                BoundaryRefusal::Action => Self::ExcludesVisits,
                BoundaryRefusal::FilterMismatch => Self::DependsOnTunnel,
                BoundaryRefusal::Path => Self::ExcludesPath,
            },
        }
    }

    /// The verdict as a sentence.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::NoBoundary => "none: the token is not restricted by resource",
            Self::Allows => "allows this request",
            Self::Malformed => "is malformed, and refuses everything",
            Self::ExcludesProject => "does not include this project",
            Self::ExcludesVisits => "does not allow connecting to tunnels",
            Self::ExcludesPath => "does not include this path",
            Self::AmbiguousPath => "restricts paths, and this path is ambiguous",
            Self::DependsOnTunnel => {
                "depends on properties of the tunnel, which are not visible \
                                      from here"
            }
            Self::DependsOnProject => {
                "lists projects or workspaces, and the project of this address is not \
                                       known here"
            }
        }
    }

    fn problem(self) -> Option<&'static str> {
        Some(match self {
            Self::NoBoundary | Self::Allows | Self::DependsOnTunnel | Self::DependsOnProject => {
                return None;
            }
            Self::Malformed => "its boundary is malformed, and refuses everything",
            Self::ExcludesProject => "its boundary does not include this project",
            Self::ExcludesVisits => "its boundary does not allow connecting to tunnels",
            Self::ExcludesPath => "its boundary does not include this path",
            Self::AmbiguousPath => "its boundary restricts paths, and this path is ambiguous",
        })
    }
}

#[cfg(test)]
mod tests {
    use credentials::{Identity, MintRequest, Secret, SigningKey, mint};
    use serde_json::json;

    use super::*;

    const ADDRESS: &str = "https://web-e7e8a732.t.engine.example/reports/1";

    fn token(permissions: Option<Vec<Permission>>, resources: Option<Value>) -> String {
        let key = SigningKey::from_secret(&Secret::new(*b"a secret of the tests, of no worth!"));
        let request = MintRequest {
            kind: TokenKind::Auth,
            identity: Identity::User("usr_1".to_owned()),
            ttl_seconds: Some(60),
            permissions,
            resources,
        };
        let now = Timestamp::now().as_second();
        let token = mint(&key.unwrap(), &request, now).unwrap();
        String::from_utf8(token.expose().to_vec()).unwrap()
    }

    fn first_problem(token: &str) -> Option<&'static str> {
        TokenCheck::of(token, &ADDRESS.parse().unwrap(), None).first_problem()
    }

    #[test]
    fn a_token_is_checked_against_the_address() {
        assert_eq!(first_problem(&token(None, None)), None);
        assert!(first_problem("a.b").unwrap().contains("not a token"));
        let narrow = token(Some(vec![Permission::AccountProjectsReadOnly]), None);
        assert!(
            first_problem(&narrow)
                .unwrap()
                .contains("lacks the permission")
        );
    }

    #[test]
    fn a_boundary_is_checked_without_the_project() {
        let judged = |url: &str, resources| {
            TokenCheck::of(&token(None, resources), &url.parse().unwrap(), None).boundary
        };
        let anywhere = || {
            Some(json!({"tunnels": {"workspaces": ["wks_1"],
                "scopes": {"tunnels": {"connect": true}}}}))
        };
        assert_eq!(
            judged(ADDRESS, anywhere()),
            BoundaryVerdict::DependsOnProject
        );
        assert_eq!(judged(ADDRESS, None), BoundaryVerdict::NoBoundary);
        let community = "https://web.t.engine.example/reports/1";
        assert_eq!(
            judged(community, anywhere()),
            BoundaryVerdict::ExcludesProject
        );
        let here = |params: Value| {
            Some(json!({"tunnels": {"projects": ["default"],
                "scopes": {"tunnels": {"connect": params}}}}))
        };
        assert_eq!(
            judged(community, here(json!(true))),
            BoundaryVerdict::Allows
        );
        let path = |regex: &str| here(json!({"params": {"path": {"regex": regex}}}));
        assert_eq!(
            judged(community, path("/reports/.*")),
            BoundaryVerdict::Allows
        );
        assert_eq!(
            judged(community, path("/other")),
            BoundaryVerdict::ExcludesPath
        );
        let named = here(json!({"filters": {"name": "web"}}));
        assert_eq!(judged(community, named), BoundaryVerdict::DependsOnTunnel);
    }
}
